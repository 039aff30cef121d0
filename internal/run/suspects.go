package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// suspectTime is how long a suspect is worked on alone. One that neither gets
// further nor ends the process in that time does not keep the others waiting.
const suspectTime = 30 * time.Second

// suspects are the runs whose last owners died without getting them further. If one
// of them is what the owners died of, the next owner dies of it as well. So they are
// worked on one after the other, each until it gets further: an owner that dies
// counts against the one whose turn it is, and against no other suspect, because
// those that wait are not resumed and make no call.
//
// The zero value has none. It is safe for concurrent use.
type suspects struct {
	mu      sync.Mutex
	stopped bool
	current *drive
	limit   *time.Timer // of the turn of current
	waiting []*suspect  // first come, first served
}

// suspect is a run that waits for its turn.
type suspect struct {
	drive   *drive
	turn    chan struct{} // closed when it is the run's turn, or when it will never be
	refused bool          // it will never be: the process is stopping; set before turn is closed
}

// enter makes the run wait for its turn. The caller calls leave afterwards.
func (s *suspects) enter(d *drive) *suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &suspect{drive: d, turn: make(chan struct{})}
	s.waiting = append(s.waiting, one)
	s.next()
	return one
}

// leave ends the run's turn, or its wait for one. It may be called by any run, and
// more than once.
func (s *suspects) leave(d *drive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(one *suspect) bool { return one.drive == d })
	if s.current == d {
		s.limit.Stop()
		s.current = nil
		s.next()
	}
}

// stop refuses the runs that wait, and those that come later.
func (s *suspects) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.next()
}

// next gives the turn to the run that has waited longest, if no run has it. The
// caller holds mu.
func (s *suspects) next() {
	for len(s.waiting) > 0 && (s.stopped || s.current == nil) {
		one := s.waiting[0]
		s.waiting = s.waiting[1:]
		if one.refused = s.stopped; !s.stopped {
			s.current = one.drive
			s.limit = time.AfterFunc(suspectTime, func() { s.leave(one.drive) })
		}
		close(one.turn)
	}
}

// awaitTurn waits until the run may be resumed, if it is a suspect. It returns an
// error where this process is not to go on with the run.
func (d *drive) awaitTurn() error {
	if !d.state.Suspect() {
		return nil
	}
	d.log.Warn("the last owners of the run died before it got further: no other such run is worked on at the same time", "owners", d.state.DeadOwners)
	d.suspect = true
	one := d.suspects.enter(d)
	select {
	case <-one.turn:
		if one.refused {
			return errHandOver
		}
		return nil
	case <-d.ctx.Done():
	}
	switch cause := context.Cause(d.ctx); {
	case errors.Is(cause, ErrFenced):
		return ErrFenced
	case errors.Is(cause, errStopped):
		return errHandOver
	}
	return nil // another writer has ended the run: it is resumed without a call
}

// clear ends the turn of a suspect that has got further, or that is not worked on
// any more.
func (d *drive) clear() {
	d.suspect = false
	d.suspects.leave(d)
}

// deadly says which call of the run its owners died of; empty if none is.
func (d *drive) deadly() string {
	c, ok := d.state.FatalCall()
	if !ok {
		return ""
	}
	return fmt.Sprintf("the gateway died %d times while the call %s of the tool %q was under way; it is not made again", c.DeadOwners, c.Key, c.Name)
}
