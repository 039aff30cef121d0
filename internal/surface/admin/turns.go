package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// How many requests of one org are worked on at a time, and how many more may
// wait. Two leave half of the store's connections to the other orgs.
const (
	atOnce = 2
	inLine = 250
)

// turns lets a few requests of each org through at a time, in the order in which
// they came, so that one org that asks for much delays its own requests and not
// those of others. The zero value is ready to use.
type turns struct {
	mu sync.Mutex
	of map[string]*line // by org; only those that have requests
}

// line is the requests of an org.
type line struct {
	working int
	waiting []chan struct{} // in order; closed when it is their turn
}

// take waits for a turn of the org, which the caller gives back with leave. It
// returns an error, and there is nothing to give back, when ctx ends before or
// when too many wait.
func (t *turns) take(ctx context.Context, orgID string) error {
	turn, err := t.enter(orgID)
	if err != nil {
		return err
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of[orgID]
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else { // it came at the same time
		t.pass(orgID, l)
	}
	return ctx.Err()
}

// enter puts a request into the org's line and returns what is closed when it is
// its turn.
func (t *turns) enter(orgID string) (chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of[orgID]
	if l == nil {
		if t.of == nil {
			t.of = map[string]*line{}
		}
		l = &line{}
		t.of[orgID] = l
	}
	turn := make(chan struct{})
	switch {
	case l.working < atOnce:
		l.working++
		close(turn)
	case len(l.waiting) < inLine:
		l.waiting = append(l.waiting, turn)
	default:
		full := fault.New(fault.Limited, "too_many_requests", "%d management requests of the org are already waiting; try again later", inLine)
		full.RetryAfter = time.Second
		return nil, full
	}
	return turn, nil
}

// leave gives a turn of the org back.
func (t *turns) leave(orgID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(orgID, t.of[orgID])
}

// pass gives a turn to who has waited for the longest. It is called with mu held.
func (t *turns) pass(orgID string, l *line) {
	if len(l.waiting) > 0 {
		close(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
		return
	}
	if l.working--; l.working == 0 {
		delete(t.of, orgID)
	}
}
