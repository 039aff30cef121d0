package run

import (
	"cmp"
	"context"
	"errors"
	"time"

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

// maxReason is the maximum length of the reason of a decision, in bytes.
const maxReason = 4 << 10

// Decide records a decision about an approval of the org, and returns the approval as it is
// then. The run goes on when all its approvals are decided, in whatever process claims it. The
// same decision again changes nothing and is no error. The error wraps org.ErrNotFound if the
// org has no such approval; it is a [fault.Error] if the approval has another decision, has
// expired, or is void.
func (r *Runner) Decide(ctx context.Context, orgID, id string, d journal.Decision, by org.Author) (journal.Approval, error) {
	if len(d.Message) > maxReason {
		return journal.Approval{}, fault.New(fault.Invalid, "invalid_value", "reason has %d bytes, and at most %d are allowed", len(d.Message), maxReason).In("reason")
	}
	a, err := r.o.Archive.Approval(ctx, orgID, id)
	if err != nil {
		return a, err
	}
	if a.Status == journal.ApprovalWaiting {
		if a, err = r.audience.decide(ctx, a, d, by); err != nil {
			return a, err
		}
	}
	return a, a.Accepts(d)
}

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
	var body loop.Body = loop.CallResolved{WaitID: a.ID, Approved: d.Approved, By: by.Principal, Message: d.Message}
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
	err := u.append(ctx, account, a.Org, a.RunID, body, []audit.Entry{row})
	var settled *fault.Error
	if errors.As(err, &settled) && settled.Code == fault.Conflict { // decided meanwhile, or the run has ended
		err = nil
	}
	if err != nil {
		return a, err
	}
	crash.At(crash.AfterDecision)
	u.leases.claimSoon()
	u.followers.Ring(approvalsOf(a.Org))
	return u.o.Archive.Approval(ctx, a.Org, a.ID)
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
			got, err := u.resolve(ctx, a, journal.Decision{}, org.Author{At: now})
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
				u.o.Log.Info("an approval has expired", "approval", a.ID, "run", a.RunID, "org", a.Org, "server", a.Server, "tool", a.Tool)
			}
		}
		if !progress {
			return nil
		}
	}
}

// park appends that the calls wait for a person. A waiting run has no
// goroutine, lease or slot. A light run becomes durable: the request and the tools are stored
// for its next owner.
func (d *driver) park(a loop.Interrupt) error {
	if ended, err := noticeGone(d); ended || err != nil {
		return cmp.Or(err, errDecideAgain)
	}
	s := d.run.state()
	var bodies []loop.Body
	for _, key := range a.Calls {
		if c, _ := s.Call(key); c.Wait == nil {
			bodies = append(bodies, s.AskFor(key, d.o.NewID(approvalPrefix), d.run.now()))
		}
	}
	active := d.run.now() - s.ActiveSince
	var rows []journal.Row
	if !d.run.durable() {
		rows = append(d.run.requestRows(), d.tools.row())
	}
	rows = append(rows, d.run.userMessageRows(bodies)...)
	if err := d.keepResponse(nil); err != nil {
		return err
	}
	err := d.run.append(rows, append(bodies, loop.Parked{ActiveMS: active})...)
	var capped *org.CapError
	if errors.Is(err, errDecideAgain) || errors.As(err, &capped) {
		dropResponse(d) // the run goes on, and its response with it
	}
	if errors.As(err, &capped) {
		return d.calls.refuseToAsk(a.Calls, capped)
	}
	if err == nil {
		d.asked()
		for _, body := range bodies {
			if w, ok := body.(loop.CallWaiting); ok {
				d.run.log.Warn("approval_needed", "approval", w.WaitID, "call", w.Key, "server", w.Server, "tool", w.Tool,
					"principal", d.run.req.Principal, "expires_at", time.UnixMilli(w.ExpiresAt).UTC())
			}
		}
	}
	return err
}

// refuseToAsk answers the calls that cannot be asked for.
func (t *toolCaller) refuseToAsk(calls []loop.CallKey, why error) error {
	t.run.log.Warn("tool calls are not executed: no more approvals can wait", "principal", t.run.req.Principal, "calls", len(calls), "error", why)
	var bodies []loop.Body
	for _, key := range calls {
		c, _ := t.run.state().Call(key)
		if c.Wait != nil {
			continue
		}
		p := *c.Prepared
		p.Again++
		p.Verdict, p.Answer = loop.Tell, `{"error":"the call needs the approval of a person, and too many calls wait for one already; try again later"}`
		bodies = append(bodies, p)
	}
	if err := t.run.append(nil, bodies...); err != nil {
		return err
	}
	return errDecideAgain
}
