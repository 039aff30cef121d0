package conformance

import (
	"context"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for something that should happen at once.
const patience = 10 * time.Second

// gate holds a request of the gateway until the test opens it.
//
//	request ──arrived──► waits ──► opened: goes on
//	                           └─► gone: the gateway hung up
type gate struct {
	arrived, opened, gone chan struct{}
	arrive, open, leave   sync.Once
}

// newGate returns a closed gate, which opens at the latest when the test ends.
func newGate(t testing.TB) *gate {
	g := &gate{arrived: make(chan struct{}), opened: make(chan struct{}), gone: make(chan struct{})}
	t.Cleanup(g.Open)
	return g
}

// Open lets the held request, and all later ones, go on.
func (g *gate) Open() { g.open.Do(func() { close(g.opened) }) }

// pass holds a request with the context ctx and reports whether it may go on.
func (g *gate) pass(ctx context.Context) bool {
	g.arrive.Do(func() { close(g.arrived) })
	select {
	case <-g.opened:
		return true
	case <-ctx.Done():
		g.leave.Do(func() { close(g.gone) })
		return false
	}
}

// await fails the test unless happened is closed, or sends, in time.
func await[T any](t testing.TB, what string, happened <-chan T) T {
	t.Helper()
	var value T
	select {
	case value = <-happened:
	case <-time.After(patience):
		t.Fatalf("waited %v in vain: %s", patience, what)
	}
	return value
}
