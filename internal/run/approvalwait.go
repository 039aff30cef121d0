package run

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

const (
	// maxApprovalWaits is how many callers of an org may wait for approvals at a time. A person
	// has one or two pages open, and a bot one connection.
	maxApprovalWaits = 32
	// approvalWaitBytes is what a caller that waits is charged with: its goroutine and buffers.
	approvalWaitBytes = 32 << 10
	// approvalPoll is how often a caller that waits looks at the store. Runs of this process
	// wake it at once; those of other processes, and other changes, do not.
	approvalPoll = 5 * time.Second
)

// AwaitApprovals returns the approvals of the org that q selects, as [journal.Archive] returns them. If
// there are none, it waits until there is one, but not longer than the time: then it returns
// none. It also returns none when this process stops taking runs, so that callers ask its
// successor. Account is charged with what the caller holds; nil = nothing is counted.
//
// It returns the cause of ctx when ctx ends, and a [fault.Error] if too many callers of the org
// wait.
func (r *Runner) AwaitApprovals(ctx context.Context, orgID string, q journal.ApprovalQuery, longest time.Duration, account *memlimit.Account) ([]journal.Approval, error) {
	if err := r.approvalWaits.enter(orgID); err != nil {
		return nil, err
	}
	defer r.approvalWaits.leave(orgID)
	if account != nil {
		if err := account.Acquire(approvalWaitBytes); err != nil {
			return nil, err
		}
		defer account.Release(approvalWaitBytes)
	}
	next, done := r.followers.Listen(approvalsOf(orgID))
	defer done()
	end := time.NewTimer(longest)
	defer end.Stop()
	poll := time.NewTicker(approvalPoll)
	defer poll.Stop()
	for {
		rang := next()
		found, err := r.o.Archive.Approvals(ctx, orgID, q)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
		select {
		case <-rang:
		case <-poll.C:
		case <-end.C:
			return nil, nil
		case <-r.leases.closing:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// approvalsOf is the key under which those listen who wait for approvals of an org. No run has
// it.
func approvalsOf(orgID string) journal.RunKey { return journal.RunKey{Org: orgID} }

// approvalWaits counts the callers that wait for approvals, by org. The zero value is ready to
// use.
type approvalWaits struct {
	mu sync.Mutex
	of map[string]int
}

// enter takes a place, which leave gives back, or says that there is none.
func (w *approvalWaits) enter(orgID string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[orgID] >= maxApprovalWaits {
		full := fault.New(fault.Limited, "too_many_waiting", "%d requests of the org wait for approvals already; ask without wait, or try again when one of them has ended", maxApprovalWaits)
		full.RetryAfter = eventlog.AttachRetry
		return full
	}
	if w.of == nil {
		w.of = map[string]int{}
	}
	w.of[orgID]++
	return nil
}

func (w *approvalWaits) leave(orgID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[orgID]--; w.of[orgID] == 0 {
		delete(w.of, orgID)
	}
}
