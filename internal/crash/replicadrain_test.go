//go:build unix

package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// steady is clients that ask for one errand after the other, behind the balancer, while replicas come and go.
type steady struct {
	*replicated
	stop    chan struct{}
	clients sync.WaitGroup

	mayBreak bool // replicas are killed, so that requests without a key may be lost

	mu      sync.Mutex
	broken  int // guarded by mu, like the rest
	next    int
	ended   map[string]int // requests by their kind that were answered
	failed  []string
	refused int // requests that had to be sent again
	unknown int // answers that say that the outcome of a call is unknown
}

func newSteady(t *testing.T, r *replicated) *steady {
	return &steady{replicated: r, stop: make(chan struct{}), ended: map[string]int{}}
}

// begin starts n clients, of each kind as many.
func (s *steady) begin(n int) {
	for i := range n {
		s.clients.Go(func() { s.client([]string{"durable", "stream", "background", "light"}[i%4]) })
	}
}

// finish stops the clients after their present requests.
func (s *steady) finish() {
	close(s.stop)
	s.clients.Wait()
}

// answeredSoFar returns how many requests were answered.
func (s *steady) answeredSoFar() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.ended {
		n += of
	}
	return n
}

func (s *steady) client(kind string) {
	for {
		select {
		case <-s.stop:
			return
		default:
		}
		s.one(kind, s.number())
	}
}

// number returns the number of another errand.
func (s *steady) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next
}

// one sends a request until it is answered. A request without a key is sent again only if it was refused.
func (s *steady) one(kind string, n int) {
	text, key := fmt.Sprintf("Errand %d.", n), fmt.Sprint("steady-", n)
	var said, last string
	var ok bool
	again := 0
	switch kind {
	case "background":
		r := s.respondUntil(asked{input: text, background: true, key: key})
		for id := r.object.ID; id != "" && r.object.Status != "completed" && pause(s.Context(), 25*time.Millisecond) == nil; {
			if now := s.stored(s.Context(), id); now.status == http.StatusOK {
				r = now
			}
		}
		ok, said, last = r.status == http.StatusOK && r.object.Status == "completed", fmt.Sprintf("%d %s %s", r.status, r.code,
			r.said), r.object.text()
	case "light":
		var a answer
		a = s.ask(s.Context(), question{text: text}, nil)
		for ; a.status == http.StatusServiceUnavailable && s.Context().Err() == nil; again++ {
			_ = pause(s.Context(), 25*time.Millisecond)
			text = fmt.Sprintf("Errand %d.", s.number()) // the run may have begun: this is another one
			a = s.ask(s.Context(), question{text: text}, nil)
		}
		ok, said, last = a.status == http.StatusOK && a.code == "", fmt.Sprintf("%+v", a), a.last()
	default:
		in := <-s.insist(question{text: text, key: key, stream: kind == "stream"}, nil)
		ok, said, last, again = in.status == http.StatusOK && in.code == "" && in.err == nil, fmt.Sprintf("%+v %v", in.answer,
			in.err), in.last(), len(in.before)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[kind]++
	s.refused += again
	s.unknown += strings.Count(last, "unknown")
	if !ok && kind == "light" && s.mayBreak {
		s.broken++
	} else if !ok {
		s.failed = append(s.failed, fmt.Sprintf("%s %d: %s", kind, n, said))
	}
}

// respondUntil is respond, which is repeated while there is no answer.
func (w *world) respondUntil(q asked) (r reply) {
	for range 2000 {
		r = w.respond(w.Context(), q)
		if r.status != 0 && r.status != http.StatusServiceUnavailable && r.code != "broken" {
			return r
		}
		if pause(w.Context(), 25*time.Millisecond) != nil {
			return r
		}
	}
	return r
}

// doubled returns the calls of tools that must not be repeated and took effect more than once, and how many took effect.
func (w *world) doubled() (twice []string, effects int) {
	w.Helper()
	n := map[string]int{}
	for _, call := range w.tools.Calls() {
		var arguments struct {
			N    int
			Call string
		}
		if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
			w.Fatal(err)
		}
		if call.Tool == "send" {
			n[fmt.Sprint(arguments.N, arguments.Call)]++
		}
	}
	for call, times := range n {
		if times > 1 {
			twice = append(twice, fmt.Sprintf("%s took effect %d times", call, times))
		}
	}
	return twice, len(n)
}

// judgeAll fails the test unless all runs have ended well and nothing was done twice, and says what happened.
func (s *steady) judgeAll(what string) {
	s.Helper()
	waitFor(s.T, 4*patience, "every run is over", func() bool {
		counts := s.stateCounts()
		return counts["running"]+counts["queued"] == 0
	})
	for _, f := range s.failed {
		s.Error(f)
	}
	twice, effects := s.doubled()
	for _, call := range twice {
		s.Error(call)
	}
	resumed, unknown := 0, 0
	for id, state := range s.runs() {
		if light := s.replicated.one(`SELECT count(*) FROM runs WHERE run_id = $1 AND grade = 'light'`, id) == 1; state != "complete" &&
			!(s.mayBreak && light) {
			s.Errorf("run %s is %s", id, state)
			s.tell(id)
		}
		fates, again := s.wantOneHistory(id)
		resumed += len(again)
		for _, f := range fates {
			if f.outcome == loop.Unknown {
				unknown++
			}
		}
	}
	if n := s.overspent(); n > 0 {
		s.Errorf("%d budgets are overspent", n)
	}
	s.wantNothingHeld()
	s.Logf("%s: requests %v, %d failed, %d without a key lost, %d sent again; "+
		"runs %v, %d taken over; %d once effects, %d doubled, %d outcomes unknown",
		what, s.ended, len(s.failed), s.broken, s.refused, s.stateCounts(), resumed, effects, len(twice), unknown)
}

// tell logs the journal of a run.
func (w *world) tell(id string) {
	w.Helper()
	story, _ := w.load(id)
	for _, f := range story.Facts {
		body, _ := json.Marshal(f.Body)
		w.Logf("%s %d epoch %d %s %s %.300s", id, f.Seq, f.Epoch, time.UnixMilli(f.At).UTC().Format("15:04:05.000"), f.Body.Kind(), body)
	}
}

// A replica is asked to stop under load: what is under way there ends, or is continued by the other one. Then one replica after the
// other is started anew. // R10 O05 P02
func TestARollingRestartOfReplicasLosesNothing(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, options{script: numbered, runtime: "concurrency: 64, budgets: [{scope: org, period: total, usd: 1000}]",
		tools: toolsOfAll()}, 2)
	r.beginAll()
	s := newSteady(t, r)
	s.begin(8)
	restarts := soak.Value(t, 2, 4, 20)
	slowest := time.Duration(0)
	for i := range restarts {
		before := s.answeredSoFar()
		waitFor(t, patience, "requests are answered", func() bool { return s.answeredSoFar() > before+20 })
		one := r.replicas[i%2]
		began := time.Now()
		one.process.signal(syscall.SIGTERM)
		await(t, "the end of the replica", one.process.ended)
		slowest = max(slowest, time.Since(began))
		if !one.process.cmd.ProcessState.Success() {
			t.Errorf("the replica ended with %v", one.process.cmd.ProcessState)
		}
		if n := r.one(`SELECT count(*) FROM replicas WHERE id LIKE $1`, one.id+"\\_%"); n != 0 {
			t.Errorf("the replica that has ended has %d rows", n)
		}
		one.begin()
		r.awaitReady(2)
	}
	s.finish()
	s.judgeAll(fmt.Sprintf("%d restarts, one stop took %v at most", restarts, slowest.Round(time.Millisecond)))
}

// followHere reads the events of a response on this replica until the stream ends, in a goroutine.
func (r *replica) followHere(id string) <-chan []string {
	got := make(chan []string, 1)
	go func() {
		var events []string
		_ = r.streamResponse(r.Context(), id, -1, func(e string) { events = append(events, e) })
		got <- events
	}()
	return got
}

// Durable runs that take longer than a replica may take to stop are continued by the other one at once. // R10 P02
func TestAReplicaThatStopsHandsItsRunsOver(t *testing.T) {
	t.Parallel()
	const n = 10
	play, tools, release := heldErrand("model")
	defer release()
	r := newReplicated(t, options{script: play, tools: tools, runtime: "concurrency: 64"}, 2)
	for _, one := range r.replicas {
		text, err := os.ReadFile(one.config)
		if err == nil {
			err = os.WriteFile(one.config, []byte(strings.Replace(string(text), "drain: 20s", "drain: 1s", 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.beginAll()
	stopping := r.replicas[0]
	var all []<-chan insistence
	for i := range n {
		all = append(all, r.insist(question{text: "Run the errand.", key: fmt.Sprint("long-", i), stream: i%2 == 0}, nil))
	}
	id := stopping.respond(t.Context(), asked{background: true, key: "long-background"}).object.ID
	followed := stopping.followHere(id)
	waitFor(t, patience, "all runs wait for their models", func() bool { return len(r.provider.transcripts()) == 2*(n+1) })
	held := len(r.owners()[stopping.id])
	began := time.Now()
	stopping.process.signal(syscall.SIGTERM)
	waitFor(t, patience, "the other replica has all runs", func() bool { return len(r.owners()[r.replicas[1].id]) == n+1 })
	took := time.Since(began)
	await(t, "the end of the replica", stopping.process.ended)
	if !stopping.process.cmd.ProcessState.Success() || took > 10*time.Second {
		t.Errorf("the replica ended with %v, and its runs were taken over after %v", stopping.process.cmd.ProcessState, took)
	}
	if rows := r.one(`SELECT count(*) FROM replicas`); rows != 1 {
		t.Errorf("%d replicas have rows, want 1", rows)
	}
	events := await(t, "the end of the stream of the replica that stops", followed)
	release()
	if ends := terminal(events); len(ends) > 0 {
		t.Errorf("the stream of a run that was handed over has the ends %q", ends)
	}
	if err := r.streamResponse(t.Context(), id, len(events)-1, func(e string) { events = append(events, e) }); err != nil ||
		!slices.Equal(terminal(events), []string{"completed"}) {
		t.Errorf("continued on the other replica: %v, %q", err, terminal(events))
	}
	var whole []string
	if err := r.streamResponse(t.Context(), id, -1, func(e string) { whole = append(whole, e) }); err != nil || !slices.Equal(events, whole) {
		t.Errorf("%v, the continued stream is\n%q\nwant\n%q", err, events, whole)
	}
	for _, got := range all {
		if in := r.answered(got); in.status != http.StatusOK || !strings.HasPrefix(in.last(), "Done: ") {
			t.Errorf("answered %+v", in.answer)
		}
	}
	if sends := len(r.tools.Calls()); sends != 4*(n+1) {
		t.Errorf("%d tool calls, want %d", sends, 4*(n+1))
	}
	for id := range r.runs() {
		r.wantOneHistory(id)
	}
	r.wantNothingHeld()
	t.Logf("%d of %d runs were with the replica that stopped, and were taken over %v after SIGTERM, with drain: 1s; it ended after %v",
		held, n+1, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}
