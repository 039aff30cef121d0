//go:build unix

package crash_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// pausing are the settings of an org whose runs may make two tool calls, and wait for more.
const pausing = "on_limit: pause, max_calls: 2"

// allowCalls lets the runs of the org make twenty calls, from the next start of the gateway on, and in
// the one that runs.
func (w *world) allowCalls(p *process) {
	w.Helper()
	text, err := os.ReadFile(w.config)
	if err == nil {
		err = os.WriteFile(w.config, []byte(strings.Replace(string(text), "max_calls: 2", "max_calls: 20", 1)), 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
}

// raise raises the limit on tool calls of a run over the API, and returns the status and the body; 0 =
// there is no answer.
func (w *world) raise(id, body string) (int, string) {
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.base()+"/v1/runs/"+id+"/limits", strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data)
}

// awaitPaused waits until the only run is paused, and returns its id.
func (w *world) awaitPaused() (id string) {
	w.Helper()
	eventually(w.T, "the run is paused", func() bool {
		for one, state := range w.runs() {
			if state == "paused" {
				id = one
			}
		}
		return id != ""
	})
	return id
}

// The gateway is killed with kill -9 while a run is paused. The run waits on in the next
// process, its limit is raised there, and it completes: each model call and each tool call was made
// once. // P23
func TestAPausedRunSurvivesAKill(t *testing.T) { // P23
	t.Parallel()
	w, _ := newErrand(t, "", pausing)
	first := w.serve()
	got := w.insist(question{text: "Run the errand.", key: "paused-1"}, nil)
	id := w.awaitPaused()
	if n, m := len(w.tools.Calls()), len(w.provider.transcripts()); n != 2 || m != 1 {
		t.Errorf("%d tool calls and %d model calls before the pause, want 2 and 1", n, m)
	}
	first.kill()
	second := w.serve()
	if status, body := w.raise(id, `{"calls":20}`); status != http.StatusForbidden || !strings.Contains(body, "above_org_limit") {
		t.Errorf("a raise above what the org allows: %d %s", status, body)
	}
	if n := len(w.tools.Calls()); n != 2 {
		t.Errorf("%d tool calls before the raise", n)
	}
	w.allowCalls(second)
	eventually(t, "the raise is taken", func() bool { status, _ := w.raise(id, `{"calls":20}`); return status == http.StatusOK })
	in := w.answered(got)
	_, fates := w.judge("complete")
	w.wantErrand(question{text: "Run the errand.", key: "paused-1"}, in, "complete", fates)
	if n, m := len(w.tools.Calls()), len(w.provider.transcripts()); n != 4 || m != 3 {
		t.Errorf("%d tool calls and %d model calls, want 4 and 3", n, m)
	}
	if status, body := w.raise(id, `{"calls":21}`); status != http.StatusConflict || !strings.Contains(body, "run_finished") {
		t.Errorf("a raise after the end: %d %s", status, body)
	}
}

// pauseCases kill the gateway around a pause: when it is stored, when the raise is stored, and around
// the calls that were over the limit.
func pauseCases() []string {
	return []string{
		nth(crash.AfterResult, 2), nth(crash.AfterPark, 1), nth(crash.AfterDecision, 1), nth(crash.AfterClaim, 1),
		nth(crash.AfterCallIntent, 2), nth(crash.AfterCallIntent, 3), nth(crash.AfterCallSend, 3), nth(crash.BeforeResult, 3), nth(crash.AfterResult, 3),
		nth(crash.AfterModelIntent, 2), nth(crash.AfterModelSend, 2), nth(crash.AfterTurn, 2), nth(crash.BeforeFinish, 1), nth(crash.AfterFinish, 1),
	}
}

// A run that pauses is killed at each of its records. It is raised when it waits, and ends
// complete: no call is made twice that must not be repeated, and none is skipped. // P23 P01
func TestPausesSurviveCrashes(t *testing.T) {
	t.Parallel()
	for _, point := range sampled(t, pauseCases(), only) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w, _ := newErrand(t, "", pausing)
			p := w.start(point)
			q := question{text: "Run the errand.", key: "paused-2", stream: slices.Index(pauseCases(), point)%2 == 1}
			got := w.insist(q, nil)
			killed, raised := false, false
			eventually(t, "the run has ended", func() bool {
				select {
				case <-p.ended:
					p.wantKilled(t, "which passes "+point)
					if killed {
						t.Fatal("the second gateway ended")
					}
					killed, p = true, w.start("")
				default:
				}
				over := false
				for id, state := range w.runs() {
					over = state == "complete"
					if state != "paused" {
						continue
					}
					if !raised {
						w.allowCalls(p)
						raised = true
					}
					w.raise(id, `{"calls":20}`)
				}
				return over && killed
			})
			in := w.answered(got)
			_, fates := w.judge("complete")
			w.wantErrand(q, in, "complete", fates)
			story, _ := w.load(w.onlyRun())
			pauses, raises := 0, 0
			for _, f := range story.Facts {
				switch f.Body.(type) {
				case loop.Paused:
					pauses++
				case loop.LimitsRaised:
					raises++
				}
			}
			if pauses != 1 || raises != 1 {
				text, _ := json.Marshal(story.Facts)
				t.Errorf("%d pauses and %d raises: %s", pauses, raises, text)
			}
		})
	}
}
