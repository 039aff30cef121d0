package run

import (
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// slotRetry is how long a caller is asked to wait for a slot: runs are over
// within their deadline.
const slotRetry = 60 * time.Second

// slots counts the runs of each org that are under way in this process.
type slots struct {
	mu      sync.Mutex
	running map[string]int // by org; absent when none
}

// take takes a slot of the org for one run and returns what gives it back. A
// limit of 0 is none. // B07
func (s *slots) take(org string, limit int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit > 0 && s.running[org] >= limit {
		refused := fault.New(fault.Limited, "concurrency_limit", "the org is at its limit of %d runs at a time; try again later", limit)
		refused.RetryAfter = slotRetry
		return nil, refused
	}
	if s.running == nil {
		s.running = map[string]int{}
	}
	s.running[org]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[org]--; s.running[org] <= 0 {
			delete(s.running, org)
		}
	}, nil
}
