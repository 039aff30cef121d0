//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// newDeadly makes a world in which one tool call ends the gateway whenever it is made.
// Other runs are in a call or wait for their model, each for slow.
func newDeadly(t *testing.T, slow time.Duration) (w *world, made <-chan struct{}) {
	t.Helper()
	calls := make(chan struct{}, 64)
	look := func(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
		if strings.Contains(string(arguments), "deadly") {
			calls <- struct{}{}
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}
		if err := pause(ctx, slow); err != nil {
			return tool.Result{}, err
		}
		return tool.Text("seen"), nil
	}
	script := func(transcript []message) turn {
		rounds, told, err := follow(transcript)
		switch text := transcript[0].Content; {
		case err != nil:
			return turn{text: []string{err.Error()}}
		case text == "model":
			hold := make(chan struct{})
			time.AfterFunc(slow, func() { close(hold) })
			return turn{text: []string{"Slow", "ly."}, hold: hold}
		case rounds == 0:
			return turn{calls: []call{{"c1", "look", fmt.Sprintf(`{"at":%q}`, text)}}}
		default:
			return turn{text: []string{"Result: " + told[0] + "."}}
		}
	}
	w = newWorld(t, options{script: script, runtime: "concurrency: 64", tools: []turnpiketest.Tool{{Name: "look", Answer: look}}})
	return w, calls
}

// A tool call that kills the gateway each time ends its own run, after a
// few restarts. The others, which are under way each time, complete. // P01 R14
func TestACallThatKillsTheGatewayEachTimeEndsItsOwnRun(t *testing.T) {
	t.Parallel()
	w, made := newDeadly(t, 700*time.Millisecond)
	const others, most = 12, 7
	p := w.serve()
	var all []<-chan insistence
	for i := range others {
		all = append(all, w.insist(question{text: []string{"model", "call"}[i%2], key: fmt.Sprint("other ", i)}, nil))
	}
	eventually(t, "all the others are under way", func() bool { return w.stateCounts()["running"] == others })
	deadly := w.insist(question{text: "deadly", key: "deadly"}, nil)
	kills, over := 0, false
	var in insistence
	for !over {
		select {
		case <-made:
			if kills++; kills > most {
				t.Fatalf("the call was made %d times: %v", kills, w.stateCounts())
			}
			p.kill()
			p = w.start("")
		case in = <-deadly:
			over = true
		}
	}
	if in.err != nil || in.status != http.StatusInternalServerError || in.code != "run_lost" {
		t.Errorf("the run with the call was answered %+v", in)
	}
	for i, got := range all {
		want := []string{"Slowly.", "Result: look seen."}[i%2]
		if in := w.answered(got); in.text != want {
			t.Errorf("another run was answered %+v, want %q", in.answer, want)
		}
	}
	if counts := w.stateCounts(); counts["complete"] != others || counts["lost"] != 1 {
		t.Errorf("runs %v, want %d complete and one lost", counts, others)
	}
	t.Logf("the gateway was killed %d times", kills)
	for id, state := range w.runs() {
		story, _ := w.load(id)
		end, _ := story.Facts[len(story.Facts)-1].Body.(loop.Finished)
		if state == "lost" && (end.Reason != event.Lost || !strings.Contains(end.Detail, "look") || !strings.Contains(end.Detail, fmt.Sprint(kills))) {
			t.Errorf("the journal says %q of the end, want the tool and the number of deaths", end.Detail)
		}
	}
}
