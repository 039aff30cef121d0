//go:build unix

package crash_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// killings is how often the gateway is killed under mixed load. 100 take half a
// minute:
//
//	go test ./internal/crash -run MixedLoad -v -kills 100
var killings = flag.Int("kills", 8, "how often the gateway is killed under mixed load")

// load is many clients that ask for one errand after the other, each with a
// number of its own.
type load struct {
	*world
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	next    int
	asked   int                // durable runs
	durable map[int]insistence // by number; guarded by mu, like the rest
	light   map[int]answer
}

// numbered is the errand of the number in the user's message: three calls, one
// more, and an answer that tells of them.
func numbered(transcript []message) turn {
	var n int
	for _, m := range transcript {
		if m.Role == "user" {
			_, _ = fmt.Sscanf(m.Content, "Errand %d.", &n)
		}
	}
	said := errand(transcript)
	for i := range said.calls {
		said.calls[i].arguments = fmt.Sprintf(`{"n":%d,"call":%q}`, n, said.calls[i].id)
	}
	return said
}

func (l *load) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return l.next
}

// begun returns how many durable runs were asked for so far.
func (l *load) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// client asks until the load is stopped. Its kind of request is always the same.
func (l *load) client(kind int) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		n := l.number()
		q := question{text: fmt.Sprintf("Errand %d.", n), stream: kind%2 == 1}
		switch {
		case kind < 4:
			q.key = fmt.Sprint("errand ", n)
			l.mu.Lock()
			l.asked++
			l.mu.Unlock()
			in := <-l.insist(q, nil)
			l.mu.Lock()
			l.durable[n] = in
			l.mu.Unlock()
		default:
			a := l.ask(l.Context(), q, nil)
			l.mu.Lock()
			l.light[n] = a
			l.mu.Unlock()
			if a.status == 0 { // nobody listens
				_ = pause(l.Context(), 20*time.Millisecond)
			}
		}
	}
}

// Kill -9 again and again, with steps of the wall clock, while clients ask
// for durable and light runs. No durable run is lost, no call that must not be
// repeated takes effect twice, and the audit is whole. // P01
func TestNothingIsLostOrDoubledByKillsUnderMixedLoad(t *testing.T) {
	t.Parallel()
	l := &load{
		world: newWorld(t, options{script: numbered, runtime: "concurrency: 64", tools: []turnpiketest.Tool{
			{Name: "look", Result: "seen"}, {Name: "order", Result: "ordered"}, {Name: "send", Result: "sent"},
		}}),
		stop: make(chan struct{}), durable: map[int]insistence{}, light: map[int]answer{},
	}
	const clients = 6 // four with keys, two without; half of each stream
	p := l.serve()
	for kind := range clients {
		l.wg.Go(func() { l.client(kind) })
	}
	steps := []time.Duration{time.Minute, -10 * time.Minute, 0}
	for i := range *killings {
		before := l.begun()
		eventually(t, "the gateway gets something done between two kills", func() bool { return l.begun() > before })
		if err := pause(t.Context(), rand.N(400*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 { // while it runs, or while nobody does
			l.setClock(steps[i/2%len(steps)])
		}
		p.kill()
		if i%4 == 0 {
			l.setClock(steps[i/4%len(steps)])
		}
		p = l.serve()
		if (i+1)%25 == 0 {
			t.Logf("%d kills, %d errands", i+1, l.number())
		}
	}
	close(l.stop)
	l.wg.Wait()
	eventually(t, "every run is over", func() bool { return l.stateCounts()["running"] == 0 })
	l.check()
	p.kill()
	p = l.serve() // one that stops signs its rows; those killed may not have lived until the first checkpoint
	p.signal(syscall.SIGTERM)
	await(t, "the end of the gateway", p.ended)
	if out := l.command("audit", "verify"); !strings.Contains(out, ": ok") {
		t.Errorf("audit verify says\n%s", out)
	}
}

// check compares what the clients heard with what the tools saw and the store has.
func (l *load) check() {
	l.Helper()
	effects := map[string]int{} // of calls that must not be repeated, by errand and call
	for _, c := range l.tools.Calls() {
		var arguments struct {
			N    int
			Call string
		}
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			l.Fatal(err)
		}
		if c.Tool == "send" {
			effects[fmt.Sprint(arguments.N, arguments.Call)]++
		}
	}
	doubled := 0
	for call, n := range effects {
		if n > 1 {
			doubled++
			l.Errorf("%s took effect %d times", call, n)
		}
	}
	states := l.runs()
	lost, cut, unknown, broken := 0, 0, 0, 0
	for n, in := range l.durable {
		last := in.last()
		unknown += strings.Count(last, "unknown")
		broken += in.broken()
		if in.status != http.StatusOK || in.err != nil || states[in.runID] != "complete" ||
			!strings.HasPrefix(last, "Done: ") || strings.Count(last, "send ") != 2 || strings.Contains(last, "look unknown") || strings.Contains(last, "order unknown") {
			lost++
			l.Errorf("errand %d: %+v, run %s", n, in.answer, states[in.runID])
		}
		for _, id := range []string{"c3", "c4"} {
			if said := strings.Contains(last, "unknown"); !said && effects[fmt.Sprint(n, id)] != 1 {
				l.Errorf("errand %d was told that %s is done, which took effect %d times", n, id, effects[fmt.Sprint(n, id)])
			}
		}
	}
	for n, a := range l.light {
		switch state := states[a.runID]; {
		case a.status == 0 || a.code != "":
			cut++
		case state != "complete" || !strings.HasPrefix(a.last(), "Done: "):
			l.Errorf("light errand %d: %+v, run %s", n, a, state)
		}
	}
	counts := l.stateCounts()
	l.Logf("%d kills; %d durable runs: %d lost, %d effects doubled, %d outcomes unknown, %d streams and answers cut and repeated; %d light runs, %d cut off; states %v",
		*killings, len(l.durable), lost, doubled, unknown, broken, len(l.light), cut, counts)
	if len(l.durable) < *killings {
		l.Errorf("only %d durable runs were asked for: that is no load", len(l.durable))
	}
}
