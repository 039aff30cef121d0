package run

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Next is a decision that names a run and no approval.
type Next struct {
	Org, RunID string
	journal.Decision

	// Early says that the decision is kept for the next call of the run if none waits. Without it, one call must wait.
	Early bool
}

// Decider is who makes a decision. The zero value may decide nothing.
type Decider struct {
	author    org.Author
	org       *org.Org // nil unless a key decides
	principal org.Principal
	trusted   bool
}

// KeyDecider returns a decider with the rights of an API key of an org.
func KeyDecider(o *org.Org, p org.Principal, author org.Author) Decider {
	return Decider{author: author, org: o, principal: p}
}

// TrustedDecider returns a decider that may decide everything: the operator on the machine of the gateway, or the
// program that embeds the loop.
func TrustedDecider(author org.Author) Decider { return Decider{author: author, trusted: true} }

// mayDecide returns nil if by may decide the approval, or the error for the caller.
func (by Decider) mayDecide(a journal.Approval) error {
	switch {
	case by.trusted:
		return nil
	case by.org == nil || by.org.ID != a.Org:
		return org.ErrNotFound
	}
	return a.MayDecide(by.org, by.principal)
}

// mayDecideEarly is mayDecide for a call that a run of a principal has not asked for yet.
func (by Decider) mayDecideEarly(orgID, runID, principal string) error {
	switch {
	case by.trusted:
		return nil
	case by.org == nil || by.org.ID != orgID:
		return org.ErrNotFound
	}
	return journal.MayDecideEarly(by.org, by.principal, runID, principal)
}

// errAsked reports that a call was asked for while a decision was to be kept.
var errAsked = errors.New("a call is asked for")

// maxWaiting is about how many approvals of one run can wait.
const maxWaiting = 512

// Decisions are those about approvals. Its methods may be called at the same time.
type Decisions struct{ r *Runner }

// Decisions returns the decisions about the approvals of runs.
func (r *Runner) Decisions() Decisions { return Decisions{r} }

// DecideNext decides the only approval of a run that waits. If none waits and n is early, it keeps the decision for
// the next call that is asked for: that call does not wait. It returns the approval; that of a kept decision has no
// ID. The error wraps org.ErrNotFound if the org has no such run, or if the run has ended. It is a [fault.Error]
// nothing_waits or several_wait if it is not clear which call the decision is about, and too_many_decisions if the
// run keeps [loop.MaxEarly] decisions already.
func (d Decisions) DecideNext(ctx context.Context, n Next, by Decider) (journal.Approval, error) {
	if len(n.Message) > maxReason {
		return journal.Approval{}, fault.New(fault.Invalid, "invalid_value", "reason has %d bytes, and at most %d are allowed", len(n.Message),
			maxReason).In("reason")
	}
	a := journal.Approval{}
	head, err := d.r.o.Archive.Head(ctx, n.Org, n.RunID)
	if err != nil {
		return a, err
	}
	if principal := head.Summary.Principal; !by.trusted && principal != by.principal.ID && !by.principal.Role.MayApprove() {
		return a, org.ErrNotFound
	}
	err = mayRemember(ctx, d.r.o.Archive, n.Org, n.RunID, n.Decision)
	if err != nil {
		return a, err
	}
	for range maxDecideTries {
		if a, err = d.tryNext(ctx, n, by, head.Summary.Principal); err == nil {
			return a, nil
		}
		refused := new(fault.Error)
		switch {
		case errors.As(err, &refused) && refused.Reason == "run_finished":
			return a, org.ErrNotFound
		case refused.Reason == "not_waiting" && !n.Early: // a call that waits now is not the one that the caller has seen
			return journal.Approval{}, d.nothingWaits(ctx, n)
		case refused.Reason != "not_waiting" && !errors.Is(err, errAsked):
			return a, err
		}
	}
	return a, org.ErrNotFound
}

// tryNext tries to decide once a call of a run of a principal. The error is errAsked, or not_waiting, if others were
// faster.
func (d Decisions) tryNext(ctx context.Context, n Next, by Decider, principal string) (journal.Approval, error) {
	u := &d.r.audience
	waiting, err := u.waiting(ctx, n, by)
	switch {
	case err != nil:
		return journal.Approval{}, err
	case len(waiting) == 0 && !n.Early:
		return journal.Approval{}, d.nothingWaits(ctx, n)
	case len(waiting) == 0:
		if err := by.mayDecideEarly(n.Org, n.RunID, principal); err != nil {
			return journal.Approval{}, err
		}
		return journal.Approval{}, d.early(ctx, n, by.author)
	}
	a := waiting[0]
	if err := by.mayDecide(a); err != nil {
		return a, err
	}
	if code, err := u.gone(ctx, a.WaitingRun()); err != nil {
		return a, journal.Unavailable(err)
	} else if code != "" {
		if err := u.endGone(ctx, a.WaitingRun(), code); err != nil {
			return a, err
		}
		return a, org.ErrNotFound
	}
	if len(waiting) > 1 {
		ids := make([]string, len(waiting))
		for i, w := range waiting {
			ids[i] = w.ID
		}
		return journal.Approval{}, fault.New(fault.Conflict, "several_wait",
			"%d calls of the run %s wait, and the decision does not say which of them it is about; send it with the id of an approval: %s",
			len(ids), n.RunID, strings.Join(ids, ", "))
	}
	return a, u.tryResolve(ctx, a, n.Decision, by.author)
}

// waiting returns the approvals of the run of n that wait, in the order of their calls, without those that by must not
// know of. It ends those that nobody has decided in time.
func (u *audience) waiting(ctx context.Context, n Next, by Decider) ([]journal.Approval, error) {
	q := journal.ApprovalQuery{Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, RunID: n.RunID, Access: by.principal.Access,
		Limit: maxWaiting}
	found, err := u.o.Archive.Approvals(ctx, n.Org, q)
	if err != nil {
		return nil, err
	}
	waiting := found[:0]
	for _, a := range found {
		if now := u.o.Now(); a.Overdue(now) {
			if _, err := u.expire(ctx, a, now.UnixMilli()); err != nil {
				return nil, err
			}
		} else if !errors.Is(by.mayDecide(a), org.ErrNotFound) {
			waiting = append(waiting, a)
		}
	}
	slices.SortFunc(waiting, func(a, b journal.Approval) int { // calls of one turn are asked for at once
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(len(a.Call), len(b.Call)), cmp.Compare(a.Call, b.Call))
	})
	return waiting, nil
}

// nothingWaits returns the error for a decision about a run of which no call waits.
func (d Decisions) nothingWaits(ctx context.Context, n Next) error {
	head, err := d.r.o.Archive.Head(ctx, n.Org, n.RunID)
	if err != nil {
		return err
	}
	if head.Summary.Status == journal.Done {
		return org.ErrNotFound
	}
	return fault.New(fault.Conflict, "nothing_waits", "no call of the run %s waits for this decision; decide the next call when it "+
		"waits, with the id of its approval, or send early: true to decide it before it is asked for", n.RunID)
}

// early keeps a decision for the next call of a run that is asked for.
func (d Decisions) early(ctx context.Context, n Next, by org.Author) error {
	account := d.r.o.Memory.Open(n.Org)
	defer account.Close()
	return d.r.appendForeign(ctx, account, n.Org, n.RunID, foreign{of: func(s *loop.State) (foreign, error) {
		switch {
		case s.Ended != "":
			return foreign{}, org.ErrNotFound
		case s.Awaits():
			return foreign{}, errAsked
		case len(s.Early) >= loop.MaxEarly:
			return foreign{}, fault.New(fault.Conflict, "too_many_decisions",
				"the run has %d decisions for calls that it has not asked for yet; wait until it asks", loop.MaxEarly)
		}
		return foreign{bodies: []loop.Body{loop.CallResolved{Approved: n.Approved, By: by.Principal, Message: n.Message,
			Remember: n.Approved && n.Remember, Early: true}}}, nil
	}})
}

// maxReason is the maximum length of the reason of a decision, in bytes.
const maxReason = 4 << 10

// Decide records a decision about an approval of the org, and returns the approval as it is
// then. The run goes on when all its approvals are decided, in whatever process claims it. The
// same decision again changes nothing and is no error. The error wraps org.ErrNotFound if the org has no such approval,
// or none that by may know of; it is a [fault.Error] if by may not decide it ([journal.Approval.MayDecide]), and if the
// approval has another decision, has expired, or is void.
func (d Decisions) Decide(ctx context.Context, orgID, id string, made journal.Decision, by Decider) (journal.Approval, error) {
	if len(made.Message) > maxReason {
		return journal.Approval{}, fault.New(fault.Invalid, "invalid_value", "reason has %d bytes, and at most %d are allowed",
			len(made.Message), maxReason).In("reason")
	}
	a, err := d.r.o.Archive.Approval(ctx, orgID, id)
	if err != nil {
		return a, err
	}
	if err := by.mayDecide(a); err != nil {
		return a, err
	}
	if err := mayRemember(ctx, d.r.o.Archive, orgID, a.RunID, made); err != nil {
		return a, err
	}
	if made.Remember && a.Asker == loop.AskedByHook {
		return a, fault.New(fault.Invalid, "unsupported_value", "remember_for_session: a hook asks for approval of this call, and hooks ask "+
			"each time; send the decision without it").In("remember_for_session")
	}
	if a.Status == journal.ApprovalWaiting {
		if a, err = d.r.audience.decide(ctx, a, made, by.author); err != nil {
			return a, err
		}
	}
	return a, a.Accepts(made)
}

// AwaitApprovals returns the approvals of the org that q selects, as [journal.Archive] returns them. If
// there are none, it waits until there is one, but not longer than the time: then it returns
// none. It also returns none when this process stops taking runs, so that callers ask its
// successor. Account is charged with what the caller holds; nil = nothing is counted.
//
// It returns the cause of ctx when ctx ends, and a [fault.Error] if too many callers of the org
// wait.
func (d Decisions) AwaitApprovals(ctx context.Context, orgID string, q journal.ApprovalQuery, longest time.Duration,
	account *memlimit.Account) ([]journal.Approval, error) {
	if err := d.r.approvalWaits.enter(orgID); err != nil {
		return nil, err
	}
	defer d.r.approvalWaits.leave(orgID)
	if account != nil {
		if err := account.Acquire(approvalWaitBytes); err != nil {
			return nil, err
		}
		defer account.Release(approvalWaitBytes)
	}
	next, done := d.r.followers.Listen(approvalsOf(orgID))
	defer done()
	end := time.NewTimer(longest)
	defer end.Stop()
	poll := time.NewTicker(approvalPoll)
	defer poll.Stop()
	for {
		changed := next()
		found, err := d.r.o.Archive.Approvals(ctx, orgID, q)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-end.C:
			return nil, nil
		case <-d.r.leases.closing:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Client returns where the client is that waits for a decision; "" for an
// approval that does not wait. Of the clients of other processes only those are known to which the
// answer cannot be given later.
func (d Decisions) Client(ctx context.Context, a journal.Approval) (Client, error) {
	return d.r.audience.clientOf(ctx, a)
}
