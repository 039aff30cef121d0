package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// grace is how long after its time a pass may wait for answers; a pass without
// a time has [longest].
const (
	grace   = 10 * time.Second
	longest = 10 * time.Minute
)

// Plan is one pass: whom to load, with what, for how long.
type Plan struct {
	Addr string // host:port

	// Lanes holds, for each connection, the exchanges that it makes in turn.
	Lanes [][]Exchange

	// For ends the pass: no request is sent later. 0 = no limit by time (but
	// never more than ten minutes).
	For time.Duration

	// Count ends the pass after so many answers, right or wrong. 0 = no limit
	// by number; one of the two limits must be set.
	Count int
}

// Tally is what a pass saw. Passes can be added up with [Tally.Add].
type Tally struct {
	Answers int           // right and wrong ones, the warm-up not counted
	Warm    int           // answers before the clock started, one for each connection
	Elapsed time.Duration // from the first request after the warm-up to the last answer
	Faults  map[Kind]int  // wrong answers, the warm-up's included; nil when there was none
	First   error         // the first fault seen; nil when there was none
}

// Rate is the number of answers per second; 0 when no time passed.
func (t Tally) Rate() float64 {
	if t.Elapsed <= 0 {
		return 0
	}
	return float64(t.Answers) / t.Elapsed.Seconds()
}

// Wrong is the number of wrong answers.
func (t Tally) Wrong() int {
	n := 0
	for _, k := range t.Faults {
		n += k
	}
	return n
}

// Describe names the wrong answers: "3 cut, 1 refused; first: …".
func (t Tally) Describe() string {
	if t.Wrong() == 0 {
		return "none wrong"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(t.Faults)) {
		parts = append(parts, fmt.Sprintf("%d %s", t.Faults[k], k))
	}
	return fmt.Sprintf("%s; first: %v", strings.Join(parts, ", "), t.First)
}

// Add returns the sum of two passes.
func (t Tally) Add(o Tally) Tally {
	t.Answers += o.Answers
	t.Warm += o.Warm
	t.Elapsed += o.Elapsed
	if t.First == nil {
		t.First = o.First
	}
	t.Faults = maps.Clone(t.Faults)
	for k, n := range o.Faults {
		if t.Faults == nil {
			t.Faults = map[Kind]int{}
		}
		t.Faults[k] += n
	}
	return t
}

// Run makes one pass. Every connection first makes one exchange outside the
// clock. Wrong answers are counted and end their connection, not the pass; the
// error says that the target could not be reached or that ctx ended.
func Run(ctx context.Context, p Plan) (Tally, error) {
	if len(p.Lanes) == 0 || (p.For <= 0 && p.Count <= 0) {
		return Tally{}, errors.New("load: a plan needs lanes and a limit")
	}
	ps := newPass(p)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]worker, len(p.Lanes))
	var done sync.WaitGroup
	ps.warming.Add(len(p.Lanes))
	for i := range workers {
		workers[i] = worker{pass: ps, lane: p.Lanes[i], conn: conn{addr: p.Addr, end: ps.end}}
		done.Go(func() {
			if err := workers[i].run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	ps.warming.Wait()
	ps.started = time.Now()
	close(ps.start)
	done.Wait()
	return ps.sum(workers), context.Cause(ctx)
}

// pass is what the connections of one pass share.
type pass struct {
	plan    Plan
	end     time.Time // no read waits longer
	warming sync.WaitGroup
	start   chan struct{} // closed when all connections are warm
	started time.Time     // written before start is closed
	sent    atomic.Int64
}

func newPass(p Plan) *pass {
	allowed := longest
	if p.For > 0 {
		allowed = p.For + grace
	}
	return &pass{plan: p, end: time.Now().Add(allowed), start: make(chan struct{})}
}

// next reports whether one more request may be sent.
func (p *pass) next() bool {
	if p.plan.For > 0 && time.Since(p.started) >= p.plan.For {
		return false
	}
	return p.plan.Count <= 0 || p.sent.Add(1) <= int64(p.plan.Count)
}

func (p *pass) sum(workers []worker) Tally {
	var t Tally
	for i := range workers {
		t = t.Add(workers[i].tally)
	}
	t.Elapsed = 0
	for i := range workers {
		t.Elapsed = max(t.Elapsed, workers[i].last.Sub(p.started))
	}
	return t
}

// worker drives one connection. Only its goroutine touches it until Run waits.
type worker struct {
	pass  *pass
	lane  []Exchange
	conn  conn
	tally Tally
	last  time.Time // when the last answer was complete
}

func (w *worker) run(ctx context.Context) error {
	defer w.conn.close()
	err := w.warm(ctx)
	w.pass.warming.Done()
	if err != nil {
		return err
	}
	<-w.pass.start
	for i := 1; ctx.Err() == nil && w.pass.next(); i++ {
		if err := w.make(ctx, i); err != nil {
			return err
		}
		w.tally.Answers++
		w.last = time.Now()
	}
	return nil
}

func (w *worker) warm(ctx context.Context) error {
	w.tally.Warm = 1
	return w.make(ctx, 0)
}

// make makes the i-th exchange and counts it if it goes wrong.
func (w *worker) make(ctx context.Context, i int) error {
	err := w.conn.do(ctx, &w.lane[i%len(w.lane)])
	var f *Fault
	if err == nil || ctx.Err() != nil {
		return nil // a cancelled pass is told so by Run, and its cut answers are no fault
	}
	if !errors.As(err, &f) {
		return err
	}
	w.tally = w.tally.Add(Tally{Faults: map[Kind]int{f.Kind: 1}, First: err})
	return nil
}
