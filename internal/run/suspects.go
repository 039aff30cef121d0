package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// suspectTime is how long a suspect is resumed alone. After it the next one is resumed too.
const suspectTime = 30 * time.Second

// suspects are the runs whose last owners died without progress. One of them may be the
// cause, and would then end this process too. So suspects are resumed one after the other,
// each until it makes progress: if this process dies, only the suspect whose turn it is has
// one more dead owner. Those that wait are not resumed and make no call.
//
// The zero value has none. It is safe for concurrent use.
type suspects struct {
	mu      sync.Mutex
	stopped bool
	current *liveRun
	limit   *time.Timer // of the turn of current
	waiting []*suspect  // first come, first served
}

// suspect is a run that waits for its turn.
type suspect struct {
	run     *liveRun
	turn    chan struct{} // closed when it is the run's turn, or when its turn is refused
	refused bool          // the process is stopping; set before turn is closed
}

// enter adds the run to those that wait for their turn.
func (s *suspects) enter(run *liveRun) *suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &suspect{run: run, turn: make(chan struct{})}
	s.waiting = append(s.waiting, one)
	s.next()
	return one
}

// leave ends the run's turn, or its wait for one. It may be called by any run, and
// more than once.
func (s *suspects) leave(run *liveRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(one *suspect) bool { return one.run == run })
	if s.current == run {
		s.limit.Stop()
		s.current = nil
		s.next()
	}
}

// stop ends the wait of all runs that wait, or will: their turn is refused.
func (s *suspects) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.next()
}

// next gives the turn to the run that has waited longest, if no run has it. It is called
// with mu held.
func (s *suspects) next() {
	for len(s.waiting) > 0 && (s.stopped || s.current == nil) {
		one := s.waiting[0]
		s.waiting = s.waiting[1:]
		if one.refused = s.stopped; !s.stopped {
			s.current = one.run
			s.limit = time.AfterFunc(suspectTime, func() { s.leave(one.run) })
		}
		close(one.turn)
	}
}

// await waits until the run may be resumed. It returns an error if this process must not
// continue the run. The caller calls leave afterwards.
func (s *suspects) await(ctx context.Context, run *liveRun) error {
	one := s.enter(run)
	select {
	case <-one.turn:
		if one.refused {
			return errHandOver
		}
		return nil
	case <-ctx.Done():
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, journal.ErrFenced):
		return journal.ErrFenced
	case errors.Is(cause, errStopped):
		return errHandOver
	}
	return nil // another writer has ended the run: it is resumed without a call
}
