//go:build unix

package crash_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// plainTools are tools that nobody calls, so that the loop is on.
func plainTools() []turnpiketest.Tool { return []turnpiketest.Tool{{Name: "look"}} }

// A deadline ends the run wherever it hangs: the caller gets what was said so
// far, and an auditor one row.
func TestARunThatHangsEndsAtItsDeadline(t *testing.T) { // B04 B05 B06
	const deadline = 2 * time.Second
	w := newWorld(t, options{
		runtime: "deadline: " + deadline.String(),
		tools:   []turnpiketest.Tool{{Name: "look", Trouble: turnpiketest.Hang}},
		script: func(transcript []message) turn {
			if transcript[0].Content == "tool" {
				return turn{text: []string{"Let me look."}, calls: []call{{"c1", "look", "{}"}}}
			}
			return turn{text: []string{"It is ", "never said."}, hold: make(chan struct{})}
		},
	})
	w.serve()
	var waiting []func()
	for what, said := range map[string]string{"model": "It is ", "tool": "Let me look."} {
		for _, key := range []string{"", "a key for " + what} {
			for _, stream := range []bool{false, true} {
				q := question{what, stream, key, ""}
				if key != "" {
					q.key += fmt.Sprint(stream)
				}
				waiting = append(waiting, w.cutOff(q, deadline, said))
			}
		}
	}
	for _, judge := range waiting {
		judge()
	}
}

// cutOff asks, and returns what waits for the answer and fails the test unless
// it has come at the deadline.
func (w *world) cutOff(q question, deadline time.Duration, said string) (judge func()) {
	type timed struct {
		answer
		took time.Duration
	}
	got := make(chan timed, 1)
	go func() {
		begun := time.Now()
		a := w.ask(w.Context(), q, nil)
		got <- timed{a, time.Since(begun)}
	}()
	return func() {
		w.Helper()
		a := await(w.T, "an answer", got)
		if a.took < deadline {
			w.Errorf("%+v: answered after %v, before its deadline of %v", q, a.took, deadline)
		}
		if a.status != http.StatusOK || a.text != said || a.reason != "length" || a.code != "" {
			w.Errorf("%+v: answered %+v, want %q and length", q, a, said)
		}
		w.wantOneRow(a.runID)
	}
}

// wantOneRow fails the test unless the run has left one row for auditors, which
// says that its time is used up, and the command shows it.
func (w *world) wantOneRow(runID string) {
	w.Helper()
	story, rows := w.load(runID)
	w.fates(story)
	rows = slices.DeleteFunc(rows, func(r audit.Row) bool { return r.Kind != audit.KindBudgetExhausted })
	if len(rows) != 1 || !strings.Contains(string(rows[0].Body), `"deadline"`) {
		w.Errorf("rows for auditors: %+v, want one", rows)
	}
	if shown := w.command("runs", "show", runID); strings.Count(shown, string(audit.KindBudgetExhausted)) != 1 {
		w.Errorf("runs show says\n%swant one line with %s", shown, audit.KindBudgetExhausted)
	}
}
