package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/resulttool"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// replica is a place where one process runs after the other.
type replica struct {
	w    *world
	name string

	current *process // guarded by bus.mu
	stops   bool     // it is being stopped in an orderly way; guarded by bus.mu
}

// process is one life of the gateway: the real Runner and the real Catalog, with
// the bus for an outside.
type process struct {
	w        *world
	name     string
	runner   *run.Runner
	catalog  *catalog.Catalog
	starting sync.WaitGroup
	life     context.Context      // ends when it could not start
	build    loop.Rules           // the numbers that its new runs get
	ids      int                  // guarded by bus.mu
	begins   map[string]time.Time // when each id was made; guarded by bus.mu
	ahead    time.Duration        // of the true time; guarded by bus.mu

	dead    bool      // guarded by bus.mu
	serves  bool      // guarded by bus.mu
	asleep  time.Time // until then it does nothing; guarded by bus.mu
	expires context.CancelFunc
}

// live runs one process after the other.
func (r *replica) live() {
	for life := 1; ; life++ {
		p := r.boot(life)
		orderly, goesOn := r.end(p)
		if orderly {
			chance := r.w.chance(p.name, "drain")
			p.drain(chance)
			r.w.wait(p.life, p.name+" exits", between(chance, time.Millisecond, time.Second), nil) // its clients get the rest
		}
		r.w.bury(p)
		if !goesOn || !r.w.wait(context.Background(), r.name+" boots", between(r.w.chance(p.name, "down"), time.Second/2, 20*time.Second), nil) {
			return
		}
	}
}

// boot starts a process. It serves once its Start has returned.
func (r *replica) boot(life int) *process {
	p := &process{w: r.w, name: fmt.Sprintf("%s.%d", r.name, life), begins: map[string]time.Time{}}
	if clock := r.w.swarm.clocks; clock > 0 {
		p.ahead = between(r.w.chance(p.name, "clock"), -clock, clock).Truncate(time.Millisecond)
	}
	if p.build = r.w.build(p.name); p.build != (loop.Rules{}) {
		r.w.saw("a process was of another build")
	}
	p.life, p.expires = context.WithCancel(context.Background())
	p.catalog = catalog.New(catalog.Options{})
	p.runner = run.New(run.Options{
		Results: resulttool.Reader{},
		Catalog: p.catalog, Journal: p, Leases: p, Archive: p, Conversations: conversations{p: p}, Resources: resources{p},
		Owner: p.name, NewID: p.newID, Now: p.now,
		Jitter: func(limit time.Duration) time.Duration { return limit / 3 },
	})
	b := r.w.bus
	b.mu.Lock()
	r.current = p
	b.mu.Unlock()
	p.starting.Go(func() {
		err := p.runner.Open(context.Background())
		b.mu.Lock()
		p.serves = err == nil
		b.mu.Unlock()
		if err != nil {
			p.expires()
		}
	})
	return p
}

// build returns the numbers of the build that a process is of: in half of the worlds
// every process is of another one.
func (w *world) build(process string) loop.Rules {
	if !w.swarm.builds {
		return loop.Rules{}
	}
	r := w.chance(process, "build")
	return loop.Rules{
		Attempts: 1 + r.IntN(5), DeadOwners: 3 + r.IntN(4), StuckMS: 60_000 + r.Int64N(600_000), DeadOwnersPerCall: 3 + r.IntN(4), RetryWaitMS: 1 + r.Int64N(20_000),
		Estimate: budget.Estimate{BytesPerToken: 1 + r.Int64N(bytesPerToken), MinOutput: 8 + r.Int64N(64)},
	}
}

// end waits for the end of the process. It reports whether the end is an
// orderly one, and whether there is a life after it.
func (r *replica) end(p *process) (orderly, goesOn bool) {
	w := r.w
	chance := w.chance(p.name, "end")
	lives := never
	if w.swarm.lives > 0 {
		lives = between(chance, 2*time.Second, w.swarm.lives)
	}
	for {
		over := false
		goesOn = w.wait(p.life, p.name+" ends", lives, func(*rand.Rand) {
			switch {
			case r.leaving() || w.calm() && p.life.Err() == nil:
			case p.life.Err() == nil && chance.Float64() < w.swarm.drains:
				over, orderly = true, true
			default:
				over = true
				w.kill(p)
			}
		})
		if over || !goesOn {
			return orderly, goesOn
		}
		lives = never
	}
}

// drain ends the process as SIGTERM does.
func (p *process) drain(chance *rand.Rand) {
	p.w.bus.mu.Lock()
	p.serves = false
	p.w.bus.mu.Unlock()
	p.starting.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), between(chance, time.Second, 30*time.Second))
	defer cancel()
	p.runner.Close(ctx, between(chance, 0, 10*time.Second))
	p.w.saw("a process was stopped in an orderly way")
}

// bury waits for the goroutines of a process that is over.
func (w *world) bury(p *process) {
	w.bus.mu.Lock()
	killed := p.dead
	p.dead = true
	w.bus.mu.Unlock()
	if !killed {
		w.store.forget(p)
	}
	for _, c := range w.bus.leave(func(c *call) bool { return c.process == p }) {
		c.err = errKilled
		close(c.done)
	}
	p.expires()
	p.starting.Wait()
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	p.runner.Close(dead, 0)
	p.catalog.Close()
}

// rest stops the process for good at the end of the world.
func (r *replica) rest() {
	p := r.process()
	r.w.bus.mu.Lock()
	r.stops = true
	r.w.bus.mu.Unlock()
	p.starting.Wait()
	p.runner.Close(context.Background(), 0)
}

func (r *replica) leaving() bool {
	r.w.bus.mu.Lock()
	defer r.w.bus.mu.Unlock()
	return r.stops
}

// pause stops the process for a while, again and again, so that it wakes up as a
// zombie whose leases are somebody else's.
func (r *replica) pause() {
	w := r.w
	for n := 1; w.swarm.pauses > 0; n++ {
		chance := w.chance(r.name, "pause", fmt.Sprint(n))
		goesOn := w.wait(context.Background(), r.name+" is paused", between(chance, time.Second, w.swarm.pauses), func(*rand.Rand) {
			w.bus.mu.Lock()
			defer w.bus.mu.Unlock()
			r.current.asleep = time.Now().Add(between(chance, 5*time.Second, 60*time.Second))
			if r.current.asleep.After(w.calmAt) {
				r.current.asleep = w.calmAt
			}
		})
		if !goesOn || w.calm() {
			return
		}
	}
}

func (r *replica) process() *process {
	r.w.bus.mu.Lock()
	defer r.w.bus.mu.Unlock()
	return r.current
}

// serving returns the process of the replica if it takes requests.
func (r *replica) serving() *process {
	r.w.bus.mu.Lock()
	defer r.w.bus.mu.Unlock()
	if p := r.current; p != nil && p.serves && !p.dead {
		return p
	}
	return nil
}

func (p *process) isDead() bool {
	p.w.bus.mu.Lock()
	defer p.w.bus.mu.Unlock()
	return p.dead
}

// now is the process's own wall clock, which may be wrong and may be set.
func (p *process) now() time.Time {
	p.w.bus.mu.Lock()
	defer p.w.bus.mu.Unlock()
	return time.Now().Round(0).Add(p.ahead)
}

// set sets the wall clock of the replica's process, again and again. R17
func (r *replica) set() {
	w := r.w
	for n := 1; w.swarm.steps > 0; n++ {
		chance := w.chance(r.name, "clock", fmt.Sprint(n))
		goesOn := w.wait(context.Background(), r.name+" has its clock set", between(chance, time.Second, w.swarm.steps), func(*rand.Rand) {
			step := []time.Duration{time.Minute, -10 * time.Minute, time.Hour}[chance.IntN(3)]
			w.bus.mu.Lock()
			r.current.ahead += step
			w.bus.mu.Unlock()
			w.store.stepped.Add(int64(step))
			w.saw("a clock was set")
		})
		if !goesOn || w.calm() {
			return
		}
	}
}

// begin returns when the process has made the id.
func (p *process) begin(id string) time.Time {
	p.w.bus.mu.Lock()
	defer p.w.bus.mu.Unlock()
	return p.begins[id]
}

// newID makes ids that are the same in every repetition.
func (p *process) newID(prefix string) string {
	p.w.bus.mu.Lock()
	defer p.w.bus.mu.Unlock()
	p.ids++
	id := fmt.Sprintf("%s%s-%d", prefix, p.name, p.ids)
	p.begins[id] = time.Now()
	return id
}
