// Package load is the load generator: a closed loop over keep-alive connections. It
// knows the right answer to every request and compares status, content type and each
// byte of the body.
//
// It has its own HTTP/1.1 client because it shares the machine with what it measures:
// requests are built beforehand and sent in one write, and answers are compared in the
// read buffer, without a copy.
//
//	Run ─┬─ connection 0: exchange 0, exchange 1, exchange 0, … ─┐
//	     ├─ connection 1: …                                      ├─► Tally
//	     └─ connection c: …                                      ┘
//
// The client knows no redirects, no compression and no pipelining.
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

// Exchange is one request and the answer that it must get.
type Exchange struct {
	Request []byte // the whole HTTP/1.1 request, head and body
	Want    Answer
	Mark    int // how many bytes of the body [OpenStreams] waits for; not used by [Run]
}

// Answer is the right answer to a request.
type Answer struct {
	Status      int
	ContentType string // without parameters, lower case
	Body        []byte // after transfer decoding
}

// Post returns the bytes of a POST request with a JSON body and key as bearer token. Further
// header fields are "Name: value".
func Post(addr, path, key string, body []byte, fields ...string) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n", path, addr, key, len(body))
	for _, f := range fields {
		head += f + "\r\n"
	}
	head += "\r\n"
	return append([]byte(head), body...)
}

// Kind says what was wrong with an answer.
type Kind string

// The kinds of fault.
const (
	NoAnswer Kind = "no answer" // the connection ended before the head was complete, or the head is not HTTP/1.1
	Refused  Kind = "refused"   // another status
	Cut      Kind = "cut"       // the right beginning, then an end
	Altered  Kind = "altered"   // another content type, another byte, or more bytes
)

// Fault is a wrong answer.
type Fault struct {
	Kind   Kind
	Detail string // where, and what was seen there
}

func (f *Fault) Error() string { return string(f.Kind) + ": " + f.Detail }

func fault(k Kind, format string, args ...any) *Fault {
	return &Fault{k, fmt.Sprintf(format, args...)}
}

// mediaType is the value of a Content-Type header without its parameters.
func mediaType(value string) string {
	t, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// A pass waits for answers at most grace after its time, or longest if it has none.
const (
	grace   = 10 * time.Second
	longest = 10 * time.Minute
)

// Plan describes one pass.
type Plan struct {
	Addr string // host:port

	// Connections has, for each connection, the exchanges that it makes in turn.
	Connections [][]Exchange

	// For is the time after which no request is sent. 0 = ten minutes.
	For time.Duration

	// Count is the number of requests. 0 = no limit by number; For or Count must be
	// set.
	Count int
}

// Tally counts the answers of a pass.
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

// Run makes one pass. Every connection first makes one exchange that is not timed. A
// wrong answer is counted and ends its connection, not the pass. The error says that
// the target could not be reached or that ctx ended.
func Run(ctx context.Context, p Plan) (Tally, error) {
	if len(p.Connections) == 0 || (p.For <= 0 && p.Count <= 0) {
		return Tally{}, errors.New("load: a plan needs connections and a limit")
	}
	ps := newPass(p)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]worker, len(p.Connections))
	var done sync.WaitGroup
	ps.warming.Add(len(p.Connections))
	for i := range workers {
		workers[i] = worker{pass: ps, exchanges: p.Connections[i], conn: conn{addr: p.Addr, end: ps.end}}
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
	end     time.Time // of every read and write
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

// worker drives one connection. Only its goroutine uses it until Run has waited.
type worker struct {
	pass      *pass
	exchanges []Exchange
	conn      conn
	tally     Tally
	last      time.Time // when the last answer was complete
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
	err := w.conn.do(ctx, &w.exchanges[i%len(w.exchanges)])
	var f *Fault
	if err == nil || ctx.Err() != nil {
		return nil // Run returns the end of ctx; the answers that it cut off are not counted
	}
	if !errors.As(err, &f) {
		return err
	}
	w.tally = w.tally.Add(Tally{Faults: map[Kind]int{f.Kind: 1}, First: err})
	return nil
}
