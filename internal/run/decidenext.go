package run

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Next is a decision that names no approval.
type Next struct {
	Org, RunID string
	Access     org.Access // of who decides
	journal.Decision

	// MayDecide returns an error if the caller may not decide the approval; nil stands for one that is not
	// asked for yet.
	MayDecide func(*journal.Approval) error
}

// errAsked reports that a call was asked for while a decision was to be kept.
var errAsked = errors.New("a call is asked for")

// maxWaiting is about how many approvals of one run can wait.
const maxWaiting = 512

// DecideNext decides the approval of a run that waits longest. If none does, it keeps the decision for the next
// call that is asked for: that does not wait then. Each call of DecideNext decides one call. It returns the
// approval; that of a kept decision has no ID. The error wraps org.ErrNotFound if the org has no such run, or
// it has ended; it is a [fault.Error] if the run keeps [loop.MaxEarly] decisions already.
func DecideNext(ctx context.Context, r *Runner, n Next, by org.Author) (journal.Approval, error) {
	if len(n.Message) > maxReason {
		return journal.Approval{}, fault.New(fault.Invalid, "invalid_value", "reason has %d bytes, and at most %d are allowed", len(n.Message), maxReason).In("reason")
	}
	a := journal.Approval{}
	err := mayRemember(ctx, r.o.Archive, n.Org, n.RunID, n.Decision)
	if err != nil {
		return a, err
	}
	for range maxDecideTries {
		if a, err = r.audience.decideNext(ctx, r, n, by); err == nil {
			return a, nil
		}
		refused := new(fault.Error)
		if conflicts := errors.As(err, &refused) && refused.Code == fault.Conflict; conflicts && refused.Reason == "run_finished" {
			return a, org.ErrNotFound
		} else if !conflicts && !errors.Is(err, errAsked) || conflicts && refused.Reason != "not_waiting" {
			return a, err
		}
	}
	return a, org.ErrNotFound
}

// decideNext tries to decide once. The error is errAsked, or not_waiting, if others were faster.
func (u *audience) decideNext(ctx context.Context, r *Runner, n Next, by org.Author) (journal.Approval, error) {
	q := journal.ApprovalQuery{Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, RunID: n.RunID, Access: n.Access, Limit: maxWaiting}
	waiting, err := u.o.Archive.Approvals(ctx, n.Org, q)
	if err != nil {
		return journal.Approval{}, err
	}
	if len(waiting) == 0 {
		if err := n.MayDecide(nil); err != nil {
			return journal.Approval{}, err
		}
		return journal.Approval{}, keepDecision(ctx, r, n, by)
	}
	a := slices.MinFunc(waiting, func(a, b journal.Approval) int { // calls of one turn are asked for at once
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(len(a.Call), len(b.Call)), cmp.Compare(a.Call, b.Call))
	})
	if err := n.MayDecide(&a); err != nil {
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
	late := a.Overdue(u.o.Now())
	if err := u.tryResolve(ctx, a, n.Decision, by); err != nil || late {
		if late {
			err = errAsked // it has expired: the next one is decided
		}
		return a, err
	}
	return a, nil
}

// keepDecision keeps a decision for the next call of a run that is asked for.
func keepDecision(ctx context.Context, r *Runner, n Next, by org.Author) error {
	account := r.o.Memory.Open(n.Org)
	defer account.Close()
	return r.appendForeign(ctx, account, n.Org, n.RunID, foreign{of: func(s *loop.State) (foreign, error) {
		switch {
		case s.Ended != "":
			return foreign{}, org.ErrNotFound
		case s.Awaits():
			return foreign{}, errAsked
		case len(s.Early) >= loop.MaxEarly:
			return foreign{}, fault.New(fault.Conflict, "too_many_decisions", "the run has %d decisions for calls that it has not asked for yet; wait until it asks", loop.MaxEarly)
		}
		return foreign{bodies: []loop.Body{loop.CallResolved{Approved: n.Approved, By: by.Principal, Message: n.Message, Remember: n.Approved && n.Remember, Early: true}}}, nil
	}})
}
