package sim

import (
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The measures of a world.
const (
	replicas   = 3
	patience   = 30 * time.Minute // after the last fault, everything is over
	goodbye    = time.Minute      // and a process that has nothing to do stops
	mostSteps  = 200_000
	tailLength = 60
)

// timeSlice is how long Go lets goroutines work before it may interrupt one of them for
// another that could work. https://go.dev/src/runtime/proc.go (forcePreemptNS)
const timeSlice = 10 * time.Millisecond

// world is one simulation.
type world struct {
	seed     uint64
	swarm    swarm
	mutation mutation
	begin    time.Time
	calmAt   time.Time // no faults from here on
	bus      *bus
	store    *store
	book     *book
	replicas []*replica
	clients  []*client
	sessions []*session
	talks    []*talk
	actors   sync.WaitGroup

	steps       int
	hash        hash.Hash64
	trace       []string
	interrupted bool // a step took longer than a time slice in real time

	mu        sync.Mutex
	waits     map[string]bool // clients that have not got what they want
	sometimes map[string]int
	violation string
}

// report is what came of a simulation.
type report struct {
	seed      uint64
	violation string   // empty = every promise was kept
	trace     []string // all that happened
	steps     int
	took      time.Duration // virtual
	hash      uint64        // of all that happened
	sometimes map[string]int

	// interrupted says that the machine was too busy for a step to run as a whole: its
	// goroutines may have gone on in another order than in the next play of the seed.
	interrupted bool
}

// simulate plays the world of one seed.
func simulate(t *testing.T, seed uint64, m mutation) report {
	t.Helper()
	var r report
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed, m)
		w.play()
		r = report{seed, w.violation, w.trace, w.steps, time.Since(w.begin), w.hash.Sum64(), w.sometimes, w.interrupted}
	})
	return r
}

func newWorld(seed uint64, m mutation) *world {
	w := &world{
		seed: seed, mutation: m, begin: time.Now(), bus: newBus(), hash: fnv.New64a(), waits: map[string]bool{}, sometimes: map[string]int{},
	}
	w.swarm = w.newSwarm()
	w.calmAt = w.begin.Add(between(w.chance("calm"), 60*time.Second, 150*time.Second))
	w.book = newBook(w)
	w.store = newStore(w)
	for i := range replicas {
		w.replicas = append(w.replicas, &replica{w: w, name: fmt.Sprintf("r%d", i)})
	}
	w.populate()
	return w
}

// calm reports whether the time of faults is over.
func (w *world) calm() bool { return !time.Now().Before(w.calmAt) }

// play lets everybody live until all is done, or a promise is broken.
func (w *world) play() {
	for _, r := range w.replicas {
		w.actors.Go(r.live)
		w.actors.Go(r.pause)
		w.actors.Go(r.set)
	}
	for _, c := range w.clients {
		w.waits[c.id] = true
	}
	for _, c := range w.clients {
		w.actors.Go(c.live)
		w.actors.Go(c.meddle)
	}
	for _, s := range w.sessions {
		for _, m := range s.messages {
			w.waits[m.mark] = true
			w.actors.Go(m.live)
		}
	}
	for _, t := range w.talks {
		w.waits[t.id] = true
		w.actors.Go(t.live)
	}
	for _, p := range w.persons() {
		w.actors.Go(p.live)
	}
	w.until(w.calmAt.Add(patience), "I7: not all is over %v after the last fault: %s", w.book.allOver)
	w.stop()
	w.book.checkEnd()
}

// stop ends the processes in an orderly way, which takes them no time: they have
// nothing to do.
func (w *world) stop() {
	if !w.broken() {
		stopped := make(chan struct{})
		w.actors.Go(func() {
			for _, r := range w.replicas {
				r.rest()
			}
			close(stopped)
			w.bus.ring()
		})
		w.until(time.Now().Add(goodbye), "I5: a process does not stop within %v: %s", func() bool {
			select {
			case <-stopped:
				return true
			default:
				return false
			}
		})
	}
	w.close()
	w.actors.Wait()
}

// close ends everybody.
func (w *world) close() {
	for _, r := range w.replicas {
		w.kill(r.process())
	}
	w.bus.mu.Lock()
	w.bus.closed = true
	w.bus.mu.Unlock()
	for _, c := range w.bus.leave(func(*call) bool { return true }) {
		c.err = errOver
		close(c.done)
	}
}

// until schedules until the condition holds.
func (w *world) until(limit time.Time, promise string, over func() bool) {
	begin := time.Now()
	for sliced := realTime(); ; {
		synctest.Wait()
		w.interrupted = w.interrupted || realTime()-sliced > timeSlice
		runtime.Gosched() // begins a new time slice
		sliced = realTime()
		w.book.checkStep()
		switch {
		case w.broken() || over():
			return
		case w.steps > mostSteps || !time.Now().Before(limit):
			w.violate(promise, time.Since(begin).Round(time.Second), w.book.unfinished())
			return
		}
		ready, next := w.bus.due(time.Now())
		if len(ready) == 0 {
			w.rest(next, limit)
			continue
		}
		w.steps++
		w.release(ready[w.chance("scheduler", fmt.Sprint(w.steps)).IntN(len(ready))])
	}
}

// realTime returns the time outside of the simulation.
func realTime() time.Duration {
	var tv syscall.Timeval
	_ = syscall.Gettimeofday(&tv)
	return time.Duration(tv.Sec)*time.Second + time.Duration(tv.Usec)*time.Microsecond
}

// rest lets time pass until somebody comes or becomes ready.
func (w *world) rest(next, limit time.Time) {
	if next.IsZero() || next.After(limit) {
		next = limit
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-w.bus.bell:
	case <-timer.C:
	}
}

// release lets one call go.
func (w *world) release(c *call) {
	w.bus.leave(func(other *call) bool { return other == c })
	var err error
	if c.process != nil && c.ctx.Err() != nil {
		c.fate = late
	}
	switch {
	case c.fate == late && c.chance.IntN(2) == 0:
		c.err = c.ctx.Err()
	case c.fate == late:
		err, c.err = c.do(), c.ctx.Err()
	case c.fate == fatal:
		err, c.err = c.do(), errKilled
		w.note(c.name, c.fate, err)
		w.kill(c.process)
		c.process.expires()
		close(c.done)
		return
	case c.fate == lost:
		c.err = errLost
	case c.fate == unanswered:
		err, c.err = c.do(), errUnanswered
	default:
		err = c.do()
	}
	w.note(c.name, c.fate, err)
	close(c.done)
}

// kill ends a process at once. What it was asking for has happened or not.
func (w *world) kill(p *process) {
	w.bus.mu.Lock()
	gone := p == nil || p.dead
	if !gone {
		p.dead = true
	}
	w.bus.mu.Unlock()
	if gone {
		return
	}
	w.store.forget(p)
	for _, c := range w.bus.leave(func(c *call) bool { return c.process == p }) {
		if c.fate != lost && c.chance.IntN(2) == 0 {
			w.note(c.name, "arrives before its sender is killed", c.do())
		}
		c.err = errKilled
		close(c.done)
	}
}

// note adds to the trace.
func (w *world) note(name string, f fate, err error) {
	line := fmt.Sprintf("%6d %9.3fs %s %s", w.steps, time.Since(w.begin).Seconds(), name, f)
	if err != nil {
		line += ": " + err.Error()
	}
	_, _ = w.hash.Write([]byte(line))
	w.trace = append(w.trace, line)
}

// violate says which promise was broken. The first one counts.
func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.violation != ""
}

// saw counts that the world was in a state which is worth reaching.
func (w *world) saw(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sometimes[what]++
}

// waiting names the clients that have not got what they want.
func (w *world) waiting() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.waits))
}

// String tells how to repeat a simulation that broke a promise.
func (r report) String() string {
	tail := r.trace[max(0, len(r.trace)-tailLength):]
	return fmt.Sprintf("seed %d, after %d steps and %v: %s\n\t%s\nrepeat it with\n\tTURNPIKE_SIM_SEED=%d go test ./internal/sim -run TestPromisesAreKept -v",
		r.seed, r.steps, r.took, r.violation, strings.Join(tail, "\n\t"), r.seed)
}
