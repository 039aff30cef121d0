//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// drained is one of the requests that are under way when the gateway is asked
// to stop.
type drained struct {
	question
	late   string        // what lasts longer than the gateway waits: model, tool, or nothing
	opened chan struct{} // what its model, or its tool, waits for
	got    <-chan insistence
}

// newDrained returns 50 requests, half of them durable, half of both streamed.
func newDrained() []*drained {
	all := make([]*drained, 50)
	for i := range all {
		d := &drained{question: question{text: fmt.Sprint(i), stream: i%4 < 2}, opened: make(chan struct{})}
		if i%2 == 0 {
			d.key = fmt.Sprint("key ", i)
			d.late = map[int]string{0: "model", 2: "model", 4: "tool", 6: "tool"}[i]
		}
		all[i] = d
	}
	return all
}

// script makes one call, then waits for the request's gate before it ends its
// answer.
func (d *drained) script(transcript []message) turn {
	rounds, told, err := follow(transcript)
	switch {
	case err != nil:
		return turn{text: []string{err.Error()}}
	case rounds == 0:
		return turn{calls: []call{{"c1", "send", fmt.Sprintf(`{"n":%s}`, d.text)}}}
	case d.late == "tool":
		return turn{text: []string{"Result: ", told[0], "."}}
	}
	return turn{text: []string{"Result: ", told[0], "."}, hold: d.opened}
}

// newDrainWorld makes the world of the requests.
func newDrainWorld(t *testing.T, all []*drained) *world {
	return newWorld(t, options{
		runtime: "concurrency: 64",
		script:  func(transcript []message) turn { return all[number(transcript[0].Content)].script(transcript) },
		tools: []turnpiketest.Tool{{Name: "send", Answer: func(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
			var a struct{ N int }
			if err := json.Unmarshal(arguments, &a); err != nil {
				return tool.Result{}, err
			}
			if d := all[a.N]; d.late == "tool" {
				select {
				case <-d.opened:
				case <-ctx.Done():
				}
			}
			return tool.Text("sent"), nil
		}}},
	})
}

func number(text string) int {
	var n int
	_, _ = fmt.Sscan(text, &n)
	return n
}

// Who was asked to stop finishes what it can, and leaves the rest to its next
// process: nobody's request is lost, and no tool is called twice.
func TestAGatewayThatIsAskedToStopLosesNothing(t *testing.T) { // O05
	if testing.Short() {
		t.Skip("waits for as long as a gateway may take to stop")
	}
	t.Parallel()
	all := newDrained()
	w := newDrainWorld(t, all)
	p := w.serve()
	for _, d := range all {
		d.got = w.insist(d.question, nil)
	}
	eventually(t, "everything waits", func() bool { return len(w.provider.transcripts()) == 50+48 && len(w.tools.Calls()) == 50 })
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	w.openInTime(all)
	await(t, "the end of the gateway", p.ended)
	if took := time.Since(begun); !p.cmd.ProcessState.Success() || took > 30*time.Second {
		t.Errorf("the gateway ended after %v: %v, want status 0 within 30s", took, p.cmd.ProcessState)
	}
	w.serve()
	for _, d := range all {
		if d.late != "" {
			close(d.opened)
		}
	}
	w.wantDrained(all)
}

// openInTime lets what is not late end, one after the other, one to three
// seconds after the gateway was asked to stop.
func (w *world) openInTime(all []*drained) {
	w.Helper()
	if err := pause(w.Context(), time.Second); err != nil {
		w.Fatal(err)
	}
	for _, d := range all {
		if d.late != "" {
			continue
		}
		close(d.opened)
		if err := pause(w.Context(), 40*time.Millisecond); err != nil {
			w.Fatal(err)
		}
	}
}

// wantDrained fails the test unless every request got its answer: those in time
// at once, the late ones from the next process.
func (w *world) wantDrained(all []*drained) {
	w.Helper()
	for _, d := range all {
		in := w.answered(d.got)
		want := "Result: send sent."
		if d.late == "tool" {
			want = "Result: send unknown."
		}
		if in.status != http.StatusOK || in.text != want || in.reason != "stop" {
			w.Errorf("request %s, late %q: answered %+v, want %q", d.text, d.late, in.answer, want)
		}
		if told := handedOver(in.before); told != (d.late != "") {
			w.Errorf("request %s, late %q: told to come back: %v, %+v", d.text, d.late, told, in.before)
		}
		if d.key == "" {
			continue
		}
		if again := w.ask(w.Context(), d.question, nil); again != in.answer {
			w.Errorf("request %s: sent again, it gets %+v, before %+v", d.text, again, in.answer)
		}
	}
	keys := map[string]int{}
	for _, sent := range w.tools.Calls() {
		keys[sent.Key]++
	}
	if len(keys) != len(w.tools.Calls()) || len(keys) != len(all) {
		w.Errorf("%d calls with %d keys, want %d", len(w.tools.Calls()), len(keys), len(all))
	}
	if got, want := w.stateCounts(), map[string]int{"complete": len(all)}; !maps.Equal(got, want) {
		w.Errorf("runs %v, want %v", got, want)
	}
}

// handedOver reports whether a client was told that its run goes on elsewhere.
func handedOver(before []answer) bool {
	for _, a := range before {
		if a.code == "run_handed_over" {
			return true
		}
	}
	return false
}
