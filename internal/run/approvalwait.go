package run

import (
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
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
