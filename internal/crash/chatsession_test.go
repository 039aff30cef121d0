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

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// lookEach looks once for each message of the user.
func lookEach(transcript []message) turn {
	last := transcript[len(transcript)-1]
	if last.Role == "user" {
		return turn{text: []string{"Looking."}, calls: []call{{"c", "look", fmt.Sprintf(`{"q":%q}`, last.Content)}}}
	}
	return turn{text: []string{"Found it."}}
}

// A session loses and doubles nothing if the gateway is killed around the end of its run: whether the run is resumed, or is
// lost with its client, who sends the request again. // J04
func TestChatSessionsSurviveCrashes(t *testing.T) {
	t.Parallel()
	for _, point := range []crash.Point{crash.BeforeFinish, crash.AfterFinish, crash.AfterTurn} {
		for _, key := range []string{"", "k1"} {
			t.Run(fmt.Sprint(point, key), func(t *testing.T) {
				t.Parallel()
				look := func(_ context.Context, arguments json.RawMessage) (tool.Result, error) {
					return tool.Text(string(arguments)), nil
				}
				w := newWorld(t, options{script: lookEach, tools: []turnpiketest.Tool{{Name: "look", Answer: look}}})
				const first = `{"role":"user","content":"one"}`
				ask := func(messages, key string) answer {
					return w.post(t.Context(), []byte(`{"model":"m","session_id":"s","messages":[`+messages+`]}`), key, nil)
				}
				p := w.start(nth(point, 1))
				ask(first, key)
				p.wantKilled(t, "which passes "+string(point))
				w.start("")
				again := func(messages, key string) {
					t.Helper()
					var a answer
					ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
					defer cancel()
					for pause(ctx, 25*time.Millisecond) == nil {
						a = ask(messages, key)
						if a.status == http.StatusOK && a.code == "" {
							return
						}
						if a.status != 0 && a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
							break
						}
					}
					t.Fatalf("%+v", a)
				}
				again(first, key)
				again(first+`,{"role":"assistant","content":"Found it."},{"role":"user","content":"two"}`, "")
				all := w.provider.transcripts()
				var results []string
				for _, m := range all[len(all)-1] {
					if m.Role == "tool" {
						results = append(results, m.Content)
					}
				}
				if got, want := strings.Join(results, " "), `{"q":"one"} {"q":"two"}`; got != want {
					t.Errorf("the model was told %s, want %s", got, want)
				}
			})
		}
	}
}
