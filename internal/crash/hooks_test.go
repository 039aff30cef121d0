//go:build unix

package crash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/crash"
)

// hookReceiver counts what it is asked, and redacts the answer of a run.
type hookReceiver struct {
	*httptest.Server

	mu    sync.Mutex
	asked map[string]int // by event
}

func newHookReceiver(t *testing.T) *hookReceiver {
	t.Helper()
	r := &hookReceiver{asked: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var question struct{ Event string }
		_ = json.NewDecoder(q.Body).Decode(&question)
		r.mu.Lock()
		r.asked[question.Event]++
		r.mu.Unlock()
		if question.Event == "PreResponse" {
			fmt.Fprint(w, `{"action":"modify","modified_output":"redacted"}`)
			return
		}
		fmt.Fprint(w, `{"action":"allow"}`)
	}))
	t.Cleanup(r.Close)
	return r
}

// hookCase kills the gateway at a point, the n-th time that it passes it.
type hookCase struct {
	point crash.Point
	n     int
	asked map[string]int
}

func hookCases() []hookCase {
	asked := func(start, tool, answer int) map[string]int {
		return map[string]int{"OnRunStart": start, "PreToolUse": tool, "PreResponse": answer}
	}
	return []hookCase{
		{crash.AfterHookAnswer, 1, asked(2, 1, 1)},
		{crash.AfterHookAnswer, 2, asked(1, 2, 1)},
		{crash.AfterHookAnswer, 3, asked(1, 1, 2)},
		{crash.AfterHookRan, 1, asked(1, 1, 1)},
		{crash.AfterHookRan, 2, asked(1, 1, 1)},
		{crash.BeforeFinish, 1, asked(1, 1, 1)},
	}
}

// The gateway dies when a hook has answered, before and after its decision is stored: a hook whose decision is stored
// is not asked again, and the client gets what the hooks have left. // H14 H15 P01
func TestHooksSurviveCrashes(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(t, hookCases(), func(c hookCase) string { return only(string(c.point)) }) {
		t.Run(fmt.Sprintf("%s:%d", c.point, c.n), func(t *testing.T) {
			t.Parallel()
			r := newHookReceiver(t)
			hook := func(id, more string) string {
				return fmt.Sprintf(`{id: %s, type: http, config: {url: %q}, %s}`, id, r.URL, more)
			}
			hooks := strings.Join([]string{hook("begin", "event: OnRunStart"), hook("tool", "event: PreToolUse, matcher: order"), hook("end", "event: PreResponse")}, ", ")
			w, _ := newErrand(t, "", "hooks: ["+hooks+"]")
			first := w.start(nth(c.point, c.n))
			got := w.insistOnResponse(asked{key: "hook-1"})
			first.wantKilled(t, "which passes "+string(c.point))
			w.start("")
			all := await(t, "a response", got)
			if last := all[len(all)-1].object; last.Status != "completed" || last.text() != "redacted" {
				t.Errorf("the response is %s with %q", last.Status, last.text())
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if diff := cmp.Diff(c.asked, r.asked); diff != "" {
				t.Errorf("how often the hooks were asked (-want +got):\n%s", diff)
			}
			if calls := w.tools.Calls(); len(calls) != 4 {
				t.Errorf("%d calls were executed, want 4", len(calls))
			}
		})
	}
}

// hookTold is what the record of a run says of a hook at OnRunComplete.
type hookTold struct {
	Hook   string `json:"hook_id"`
	Status string
}

// toldOf returns what the record of the run says of its hooks at OnRunComplete, when none of them waits.
func (w *world) toldOf(id string) (told []hookTold) {
	w.Helper()
	eventually(w.T, "the hooks are told", func() bool {
		var shown struct {
			OnRunComplete []hookTold `json:"on_run_complete"`
		}
		w.api(http.MethodGet, "/v1/runs/"+id, nil, &shown)
		told = shown.OnRunComplete
		for _, one := range told {
			if one.Status == "waiting" {
				return false
			}
		}
		return true
	})
	return told
}

// afterRunCases kill the gateway after the end of a run, before its hook is told, and when the hook has answered. The
// numbers are how often the hook is told.
func afterRunCases() map[crash.Point]int {
	return map[crash.Point]int{"": 1, crash.BeforeFinish: 1, crash.AfterFinish: 1, crash.AfterHookTold: 2}
}

// The gateway dies around the end of a run with a hook at OnRunComplete: the hook is told by the next process, with the
// same id if it was told before; a process that nobody kills tells it once, and the next one not again. // H14 H15 P01
func TestHooksAfterRunsSurviveCrashes(t *testing.T) {
	t.Parallel()
	points := slices.Sorted(maps.Keys(afterRunCases()))
	for _, point := range sampled(t, points, func(p crash.Point) string { return only(string(p)) }) {
		want := afterRunCases()[point]
		t.Run("at "+string(point), func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, http.StatusOK)
			w, _ := newErrand(t, "", fmt.Sprintf(`hooks: [{id: end, event: OnRunComplete, type: http, config: {url: %q, include_run_context: true}}]`, r.URL))
			at := ""
			if point != "" {
				at = nth(point, 1)
			}
			first := w.start(at)
			got := w.insistOnResponse(asked{key: "hook-1"})
			if point != "" {
				first.wantKilled(t, "which passes "+string(point))
				w.start("")
			}
			all := await(t, "a response", got)
			run := w.onlyRun()
			if last := all[len(all)-1].object; last.Status != "completed" || w.ends(run) != 1 {
				t.Errorf("the response is %s", last.Status)
			}
			if told := w.toldOf(run); len(told) != 1 || told[0] != (hookTold{"end", "succeeded"}) {
				t.Errorf("the record of the run has %v", told)
			}
			if shown := w.command("runs", "show", run); !strings.Contains(shown, "end at OnRunComplete: succeeded") {
				t.Errorf("the command shows\n%s", shown)
			}
			if point == "" { // it stops, and the next one has nothing to tell
				first.signal(syscall.SIGTERM)
				<-first.ended
				w.serve()
				eventually(t, "a later run is told", func() bool {
					_ = await(t, "a response", w.insistOnResponse(asked{key: "hook-2"}))
					return len(r.all()) > 1
				})
				if r.all()[1].id == r.all()[0].id {
					t.Error("the hook was told twice of one run")
				}
				return
			}
			messages := r.all()
			if len(messages) != want {
				t.Errorf("the hook was told %d times, want %d", len(messages), want)
			}
			for _, m := range messages {
				if m.id == "" || m.id != messages[0].id || m.body != messages[0].body || !strings.Contains(m.body, `"event":"OnRunComplete"`) || !strings.Contains(m.body, run) {
					t.Errorf("the hook was told %s: %s", m.id, m.body)
				}
			}
		})
	}
}

// A hook that was removed while the gateway was down is not told of a run that was complete before. // H14
func TestAHookThatIsGoneIsNotTold(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusOK)
	hooks := fmt.Sprintf(`hooks: [{id: end, event: OnRunComplete, type: http, config: {url: %q}}]`, r.URL)
	w, _ := newErrand(t, "", hooks)
	first := w.start(nth(crash.AfterFinish, 1))
	got := w.insistOnResponse(asked{key: "hook-1"})
	first.wantKilled(t, "which passes "+string(crash.AfterFinish))
	text, err := os.ReadFile(w.config)
	if err == nil {
		err = os.WriteFile(w.config, []byte(strings.Replace(string(text), hooks, "hooks: []", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start("")
	await(t, "a response", got)
	if told := w.toldOf(w.onlyRun()); len(told) != 0 || len(r.all()) != 0 {
		t.Errorf("the record of the run has %v, and the hook was told %v", told, r.all())
	}
}
