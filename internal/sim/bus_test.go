package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// What befalls a call on its way.
var (
	errLost       = errors.New("connection refused")
	errUnanswered = errors.New("connection reset")
	errKilled     = errors.New("killed")
	errOver       = errors.New("the simulation is over")
)

// fate is what becomes of a call.
type fate string

const (
	arrives    fate = "arrives"
	lost       fate = "is lost"
	unanswered fate = "is not answered"
	late       fate = "is given up"
	fatal      fate = "is the last that its sender does"
)

// never is the time of a call that ends only with its context.
const never = time.Duration(math.MaxInt64)

// call is somebody who waits: for the outside to answer, or for a time to come.
type call struct {
	name    string // unique; calls are taken in an order that follows from it
	process *process
	ctx     context.Context
	at      time.Time    // not before; zero = never
	chance  *rand.Rand   // of this call alone
	do      func() error // what it does outside; in the scheduler's goroutine, at most once
	fate    fate
	err     error // what befell the call
	done    chan struct{}
}

// bus is where everybody waits. The scheduler lets one go at a time.
type bus struct {
	bell chan struct{} // somebody has come, or wants to go

	mu     sync.Mutex
	closed bool
	parked []*call
	times  map[string]int // how often a name was used
}

func newBus() *bus { return &bus{bell: make(chan struct{}, 1), times: map[string]int{}} }

func (b *bus) ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// number makes a name unique. Those who share a name take turns, so that the
// number is the same in every repetition.
func (b *bus) number(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.times[name]++
	return fmt.Sprintf("%s #%d", name, b.times[name])
}

// park waits until the call is released and returns what befell it.
func (b *bus) park(c *call) error {
	c.done = make(chan struct{})
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return errOver
	case c.process != nil && c.process.dead:
		b.mu.Unlock()
		return errKilled
	}
	b.parked = append(b.parked, c)
	b.mu.Unlock()
	defer context.AfterFunc(c.ctx, b.ring)()
	b.ring()
	<-c.done
	return c.err
}

// due returns the calls that may be released now, in order, and when the next
// one may be; zero = nobody waits for a time.
func (b *bus) due(now time.Time) (ready []*call, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.parked {
		at, ends := c.at, c.ctx.Err() != nil
		if ends {
			at = now
		}
		if c.process != nil && c.process.asleep.After(now) && !at.IsZero() && c.process.asleep.After(at) {
			at = c.process.asleep
		}
		switch {
		case at.IsZero():
		case !at.After(now):
			ready = append(ready, c)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	slices.SortFunc(ready, func(a, b *call) int { return cmp.Compare(a.name, b.name) })
	return ready, next
}

// leave takes the calls out of which the function says so, in order.
func (b *bus) leave(which func(*call) bool) []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*call
	b.parked = slices.DeleteFunc(b.parked, func(c *call) bool {
		if which(c) {
			out = append(out, c)
			return true
		}
		return false
	})
	slices.SortFunc(out, func(a, b *call) int { return cmp.Compare(a.name, b.name) })
	return out
}

// ask makes one call of a process to the outside.
func ask[T any](ctx context.Context, p *process, what, about string, f faults, do func(*rand.Rand) (T, error)) (T, error) {
	var out, none T
	var err error
	c := p.call(ctx, what, about, f)
	c.do = func() error {
		out, err = do(c.chance)
		return err
	}
	if befell := p.w.bus.park(c); befell != nil {
		return none, befell
	}
	return out, err
}

// follower is the key of the mark of the message whose run a call follows, in its context. Followers of one run may go on in any order.
type follower struct{}

// call returns a call of the process with its fate.
func (p *process) call(ctx context.Context, what, about string, f faults) *call {
	w := p.w
	if mark, ok := ctx.Value(follower{}).(string); ok {
		about += " for " + mark
	}
	name := w.bus.number(p.name + " " + what + " " + about)
	r := w.chance(name)
	c := &call{name: name, process: p, ctx: ctx, chance: r, fate: arrives}
	took := between(r, 50*time.Microsecond, w.swarm.pace)
	luck, slow, long := r.Float64(), r.Float64(), r.Float64()
	if !w.calm() {
		switch {
		case luck < f.lost:
			c.fate = lost
		case luck < f.lost+f.unanswered:
			c.fate = unanswered
		case luck < f.lost+f.unanswered+f.fatal:
			c.fate = fatal
		}
		if slow < f.slow {
			took = time.Duration(long * float64(f.limit))
		}
	}
	c.at = time.Now().Add(took)
	return c
}

// wait lets an actor of the world wait and then do something. It reports whether
// the world goes on. ctx ends the waiting early.
func (w *world) wait(ctx context.Context, name string, d time.Duration, do func(*rand.Rand)) bool {
	name = w.bus.number(name)
	c := &call{name: name, ctx: ctx, chance: w.chance(name), fate: arrives}
	if d != never {
		c.at = time.Now().Add(d)
	}
	c.do = func() error {
		if do != nil {
			do(c.chance)
		}
		return nil
	}
	return !errors.Is(w.bus.park(c), errOver)
}
