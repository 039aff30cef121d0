package database

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// largeWrite is the size from which a write passes the gate.
	largeWrite = 64 << 10
	// gateRoom is how many bytes of large writes are queued or performed at a time. One that is
	// larger is admitted alone.
	gateRoom = 1 << 20
)

// gate admits large writes to the writer's queue, so that small writes of other orgs never wait
// for more than gateRoom or one write. Of the orgs whose large writes wait, each has one admitted
// in turn. Writes of one org are admitted in the order of their arrival. The zero value is ready.
type gate struct {
	mu      sync.Mutex
	used    int // bytes of the writes that are admitted
	waiting map[string][]*gateWaiter
	turns   []string // the orgs with waiting writes, the next first
}

// gateWaiter is a large write that waits.
type gateWaiter struct {
	size     int
	since    time.Time
	admitted chan struct{} // closed when it is admitted
}

// enter waits until the write is admitted, or ctx ends. After nil, leave must be called.
func (g *gate) enter(ctx context.Context, one *write) error {
	if one.size < largeWrite {
		return nil
	}
	w := g.add(one)
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	default:
	}
	g.remove(one.org, w)
	g.admit()
	return ctx.Err()
}

// tryEnter is enter for a write that does not wait. It returns false if it is not admitted.
func (g *gate) tryEnter(one *write) bool {
	if one.size < largeWrite {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.turns) > 0 || !g.fits(one.size) {
		return false
	}
	g.used += one.size
	return true
}

// leave gives back the room of a write that has entered.
func (g *gate) leave(one *write) {
	if one.size < largeWrite {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= one.size
	g.admit()
}

// waited returns how long the oldest large write of the org has waited; 0 if none waits.
func (g *gate) waited(org string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.waiting[org]; len(q) > 0 {
		return time.Since(q[0].since)
	}
	return 0
}

func (g *gate) add(one *write) *gateWaiter {
	w := &gateWaiter{size: one.size, since: one.since, admitted: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = map[string][]*gateWaiter{}
	}
	if len(g.waiting[one.org]) == 0 {
		g.turns = append(g.turns, one.org)
	}
	g.waiting[one.org] = append(g.waiting[one.org], w)
	g.admit()
	return w
}

// fits reports whether there is room for a write. It is called with mu held.
func (g *gate) fits(size int) bool { return g.used == 0 || g.used+size <= gateRoom }

// admit admits the writes that fit, one of each org in turn. It is called with mu held.
func (g *gate) admit() {
	for len(g.turns) > 0 {
		org := g.turns[0]
		first := g.waiting[org][0]
		if !g.fits(first.size) {
			return
		}
		g.used += first.size
		close(first.admitted)
		g.turns = g.turns[1:]
		if g.waiting[org] = g.waiting[org][1:]; len(g.waiting[org]) > 0 {
			g.turns = append(g.turns, org)
		} else {
			delete(g.waiting, org)
		}
	}
}

// remove removes a waiter. It is called with mu held.
func (g *gate) remove(org string, w *gateWaiter) {
	g.waiting[org] = slices.DeleteFunc(g.waiting[org], func(other *gateWaiter) bool { return other == w })
	if len(g.waiting[org]) == 0 {
		delete(g.waiting, org)
		g.turns = slices.DeleteFunc(g.turns, func(other string) bool { return other == org })
	}
}
