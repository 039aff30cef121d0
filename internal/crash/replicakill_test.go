//go:build unix

package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/soak"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// takeover is how long the runs of a dead replica may stand still.
const takeover = 20 * time.Second

// manyRuns is many runs at once: every second one a background response, the others chat requests, half of them streams.
type manyRuns struct {
	*replicated
	n       int
	clients sync.WaitGroup
	release func() // what the models of all runs wait for in their second turn

	mu     sync.Mutex
	failed []string       // what clients got instead of an answer; guarded by mu, like the rest
	runOf  map[int]string // by number of the errand
}

// toolsOfAll are a tool of each class.
func toolsOfAll() []turnpiketest.Tool {
	return []turnpiketest.Tool{{Name: "look", Result: "seen"}, {Name: "order", Result: "ordered"}, {Name: "send", Result: "sent"}}
}

// newManyRuns makes a world for n runs at once.
func newManyRuns(t *testing.T, n, replicas int) *manyRuns {
	gate := make(chan struct{})
	c := &manyRuns{n: n, release: sync.OnceFunc(func() { close(gate) }), runOf: map[int]string{}}
	c.replicated = newReplicated(t, options{
		script: func(transcript []message) turn {
			said := numbered(transcript)
			if rounds, _, _ := follow(transcript); rounds == 1 {
				said.hold = gate
			}
			return said
		},
		runtime: fmt.Sprintf("concurrency: %d, budgets: [{scope: org, period: total, usd: 1000}]", n), tools: toolsOfAll(),
	}, replicas)
	return c
}

// ask sends the request number i until it is answered, and notes what came of it.
func (c *manyRuns) ask(i int) {
	text := fmt.Sprintf("Errand %d.", i)
	if i%2 == 1 {
		in := <-c.insist(question{text: text, key: fmt.Sprint("errand-", i), stream: i%4 == 1}, nil)
		c.note(i, in.runID, in.status == http.StatusOK && in.err == nil && in.code == "" && strings.HasPrefix(in.last(), "Done: "),
			fmt.Sprintf("%+v %v", in.answer, in.err))
		return
	}
	r := c.respondUntil(asked{input: text, background: true, key: fmt.Sprint("errand-", i)})
	c.note(i, strings.Replace(r.object.ID, "resp_", "run_", 1), r.status == http.StatusOK, fmt.Sprintf("%d %s %s", r.status, r.code, r.said))
}

func (c *manyRuns) note(i int, run string, ok bool, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runOf[i] = run
	if !ok {
		c.failed = append(c.failed, fmt.Sprintf("errand %d: %s", i, said))
	}
}

// 500 runs at once over two replicas, one of which is killed when all wait for their models: each run ends, and no call that must
// not be repeated is repeated. // P01 P03 B07
func TestAReplicaIsKilledUnderManyRuns(t *testing.T) {
	t.Parallel()
	n := soak.Value(t, 40, 100, 500)
	c := newManyRuns(t, n, 2)
	c.beginAll()
	began := time.Now()
	for i := range n {
		c.clients.Go(func() { c.ask(i) })
	}
	waitFor(t, 20*patience, "all runs wait for their models", func() bool { return len(c.provider.transcripts()) == 2*n })
	t.Logf("%d runs wait after %v", n, time.Since(began))
	dead := c.owners()["a"]
	if len(dead) < n/10 || len(dead) > 9*n/10 {
		t.Errorf("the first replica has %d of %d runs", len(dead), n)
	}
	killed := time.Now()
	c.replicas[0].process.kill()
	c.release()
	c.clients.Wait()
	waitFor(t, 20*patience, "every run is over", func() bool { return c.stateCounts()["complete"] == n })
	over := time.Since(killed)
	c.wantAll(dead, killed, over)
}

// waitFor is eventually with another patience.
func waitFor(t *testing.T, most time.Duration, what string, yes func() bool) {
	t.Helper()
	for until := time.Now().Add(most); !yes(); {
		if time.Now().After(until) {
			t.Fatalf("waited %v in vain until %s", most, what)
		}
		if pause(t.Context(), 50*time.Millisecond) != nil {
			return
		}
	}
}

// wantAll compares what clients heard with the tools and the store.
func (c *manyRuns) wantAll(dead []string, killed time.Time, over time.Duration) {
	c.Helper()
	for _, f := range c.failed {
		c.Error(f)
	}
	states := c.runs()
	if len(states) != c.n {
		c.Errorf("the store has %d runs, want %d", len(states), c.n)
	}
	effects, keys := map[string]int{}, map[string]int{}
	for _, call := range c.tools.Calls() {
		var arguments struct {
			N    int
			Call string
		}
		if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
			c.Fatal(err)
		}
		switch call.Tool {
		case "send":
			effects[fmt.Sprint(arguments.N, arguments.Call)]++
		case "order":
			keys[fmt.Sprint(arguments.N, call.Key)]++
		}
	}
	doubled := 0
	for call, n := range effects {
		if n > 1 {
			doubled++
			c.Errorf("%s took effect %d times", call, n)
		}
	}
	if len(keys) != c.n {
		c.Errorf("the keyed tool got %d keys, want %d", len(keys), c.n)
	}
	resumed, unknown, slowest := 0, 0, time.Duration(0)
	for id := range states {
		fates, again := c.wantOneHistory(id)
		for _, f := range fates {
			if f.outcome == loop.Unknown {
				unknown++
			}
		}
		if len(again) > 0 {
			resumed++
			slowest = max(slowest, time.UnixMilli(again[0].At).Sub(killed))
		}
	}
	if resumed != len(dead) || slowest > takeover {
		c.Errorf("%d of %d runs of the dead replica were resumed, the last one after %v, want %v at most", resumed, len(dead), slowest, takeover)
	}
	if n := c.overspent(); n > 0 {
		c.Errorf("%d budgets are overspent", n)
	}
	c.wantNothingHeld()
	c.Logf("%d runs at once, %d of them on the replica that was killed: %d failed, %d lost, %d effects doubled, %d outcomes unknown, "+
		"%d resumed, the last one after %v; all over after %v",
		c.n, len(dead), len(c.failed), c.n-c.stateCounts()["complete"], doubled, unknown, resumed,
		slowest.Round(time.Millisecond), over.Round(time.Millisecond))
}
