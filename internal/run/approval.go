package run

import (
	"context"
	"errors"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// approvalPrefix begins the ids of approvals.
const approvalPrefix = "appr_"

// decide decides an approval that waits. If nobody is left who may have the answer of its run,
// the run ends, and the approval is void.
func (u *audience) decide(ctx context.Context, a journal.Approval, d journal.Decision, by org.Author) (journal.Approval, error) {
	w := a.WaitingRun()
	code, err := u.gone(ctx, w)
	switch {
	case err != nil:
		return a, journal.Unavailable(err)
	case code == "":
		return u.resolve(ctx, a, d, by)
	}
	if err := u.endGone(ctx, w, code); err != nil {
		return a, err
	}
	return u.o.Archive.Approval(ctx, a.Org, a.ID)
}

// resolve appends the decision, or that it is too late, and returns the approval as it is
// then. Somebody else may have decided meanwhile.
func (u *audience) resolve(ctx context.Context, a journal.Approval, d journal.Decision, by org.Author) (journal.Approval, error) {
	err := u.tryResolve(ctx, a, d, by)
	var settled *fault.Error
	if errors.As(err, &settled) && settled.Code == fault.Conflict { // decided meanwhile, or the run has ended
		err = nil
	}
	if err != nil {
		return a, err
	}
	return u.o.Archive.Approval(ctx, a.Org, a.ID)
}

// tryResolve appends the decision, or that it is too late. The error is a conflict if somebody else has decided,
// or the run has ended.
func (u *audience) tryResolve(ctx context.Context, a journal.Approval, d journal.Decision, by org.Author) error {
	var body loop.Body = loop.CallResolved{WaitID: a.ID, Approved: d.Approved, By: by.Principal, Message: d.Message, Remember: d.Approved && d.Remember}
	row := a.Entry(by.At, by.Principal, journal.ApprovalDenied, d.Message)
	switch {
	case a.Overdue(u.o.Now()):
		body, row = loop.Expired{WaitID: a.ID}, a.Entry(by.At, "", journal.ApprovalExpired, "")
	case d.Approved:
		row = a.Entry(by.At, by.Principal, journal.ApprovalApproved, d.Message)
	}
	var account *memlimit.Account // nil for an approval that expires: that is never refused for lack of memory
	if body.Kind() == loop.KindCallResolved {
		account = u.o.Memory.Open(a.Org)
		defer account.Close()
	}
	if err := u.append(ctx, account, a.Org, a.RunID, foreign{bodies: []loop.Body{body}, audit: []audit.Entry{row}}); err != nil {
		return err
	}
	crash.At(crash.AfterDecision)
	u.leases.claimSoon()
	u.followers.Ring(approvalsOf(a.Org))
	return nil
}

// expire appends that nobody has decided an approval in time, or has raised the limits of a run that
// waits, and returns it as it is then.
func (u *audience) expire(ctx context.Context, a journal.Approval, now int64) (journal.Approval, error) {
	if !a.IsPause() {
		return u.resolve(ctx, a, journal.Decision{}, org.Author{At: now})
	}
	err := u.append(ctx, nil, a.Org, a.RunID, foreign{bodies: []loop.Body{loop.Expired{WaitID: a.ID}}})
	var settled *fault.Error
	switch {
	case err == nil:
		a.Status = journal.ApprovalExpired
		crash.At(crash.AfterDecision)
		u.leases.claimSoon()
	case errors.As(err, &settled) && settled.Code == fault.Conflict: // raised meanwhile, or the run has ended
		a.Status, err = journal.ApprovalVoid, nil
	}
	return a, err
}

// expiredAtOnce is how many approvals are looked for at a time that nobody has decided in time.
const expiredAtOnce = 256

// expireApprovals ends the approvals that nobody has decided in time: they count as denied, and
// their runs go on.
func (u *audience) expireApprovals(ctx context.Context) error {
	tried := map[string]bool{} // those that cannot be expired; the next tick tries them again
	for {
		now := u.o.Now().UnixMilli()
		due, err := u.o.Archive.DueApprovals(ctx, now, expiredAtOnce+len(tried))
		if err != nil {
			return err
		}
		progress := false
		for _, a := range due {
			key := a.Org + " " + a.ID
			if tried[key] {
				continue
			}
			got, err := u.expire(ctx, a, now)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil && !errors.Is(err, org.ErrNotFound), err == nil && got.Status == journal.ApprovalWaiting:
				tried[key] = true
				u.o.Log.Error("an approval cannot be ended", "approval", a.ID, "run", a.RunID, "org", a.Org, "error", err)
			default:
				progress = true
				if got.Status != journal.ApprovalExpired { // somebody has decided, or ended the run
					continue
				}
				if a.IsPause() {
					u.o.Log.Info("nobody has raised the limit of a run that waited: it ends", "pause", a.ID, "run", a.RunID, "org", a.Org, "limit", a.Name)
					continue
				}
				u.o.Log.Info("an approval has expired", "approval", a.ID, "run", a.RunID, "org", a.Org, "server", a.Server, "tool", a.Tool)
			}
		}
		if !progress {
			return nil
		}
	}
}
