//go:build unix

package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The settings of the org before and after the change.
const (
	settingsBefore = `{"max_rounds":6,"tool_result_max_bytes":1024,"tool_arg_validation":"lenient","doom_loop":"off",` +
		`"tool_error_mode":"recover","tool_cache_ttl_seconds":0}`
	settingsAfter = `{"max_rounds":4,"tool_result_max_bytes":4096,"tool_arg_validation":"strict","doom_loop":"fail",` +
		`"tool_error_mode":"abort","tool_cache_ttl_seconds":3600}`
)

// ruled is what shows under which settings a run was performed.
type ruled struct {
	rounds, calls int    // model calls, repetitions not counted, and calls that reached the server
	end           string // finish_reason, or the code of the error
	said          string // the last text
}

// ruledRuns are the errands, with what becomes of them before and after the change.
func ruledRuns() map[string][2]ruled {
	return map[string][2]ruled{
		"size":   {{2, 1, "stop", "1024 bytes"}, {2, 1, "stop", "4096 bytes"}},
		"types":  {{2, 1, "stop", "1024 bytes"}, {2, 0, "stop", "refused"}},
		"rounds": {{6, 6, "length", "Let me look."}, {4, 4, "length", "Let me look."}},
		"repeat": {{6, 5, "stop", "1024 bytes"}, {3, 1, "length", "Let me look."}},
		"reuse":  {{3, 2, "stop", "1024 bytes"}, {3, 1, "stop", "4096 bytes"}},
		"fail":   {{2, 1, "stop", "15 bytes"}, {1, 1, "tool_failed", ""}},
	}
}

// ruledScript calls tools as the errand says, the first word of the request. The end of its
// first turn waits for the gate.
func ruledScript(gate <-chan struct{}) script {
	rounds := map[string]int{"size": 1, "types": 1, "rounds": 99, "repeat": 5, "reuse": 2, "fail": 1}
	return func(transcript []message) turn {
		errand, _, _ := strings.Cut(transcript[0].Content, " ")
		n, _, err := follow(transcript)
		last := transcript[len(transcript)-1].Content
		switch {
		case err != nil:
			return turn{text: []string{"The transcript is wrong: " + err.Error()}}
		case n == rounds[errand] && strings.Contains(last, "invalid arguments"):
			return turn{text: []string{"refused"}}
		case n == rounds[errand]:
			return turn{text: []string{fmt.Sprintf("%d bytes", len(last))}}
		}
		said := turn{text: []string{"Let me look."}, calls: []call{{fmt.Sprint("c", n), "look", fmt.Sprintf(`{"n":1,"of":%q}`, transcript[0].Content)}}}
		switch errand {
		case "types":
			said.calls[0].arguments = strings.Replace(said.calls[0].arguments, `"n":1`, `"n":"1"`, 1)
		case "rounds":
			said.calls[0].arguments = strings.Replace(said.calls[0].arguments, `"n":1`, fmt.Sprintf(`"n":%d`, n), 1)
		case "fail":
			said.calls[0].name = "order"
		}
		if n == 0 {
			said.hold = gate
		}
		return said
	}
}

// The settings of an org are changed over the management API while its durable runs are
// interrupted: they finish under the policy that they were accepted with, and the next runs
// have the new one.
func TestARunKeepsThePolicyThatItBeganWith(t *testing.T) { // P01 B01 B13
	t.Parallel()
	gate := make(chan struct{})
	w := newWorld(t, options{script: ruledScript(gate), tools: []turnpiketest.Tool{
		{Name: "look", Result: strings.Repeat("x", 8000), Schema: `{"type":"object","properties":{"n":{"type":"integer"},"of":{"type":"string"}}}`},
		{Name: "order", Result: "sold out", IsError: true},
	}})
	w.leaveRuntimeOpen()
	p := w.serve()
	w.patchRuntime(settingsBefore)
	clients := map[string]<-chan insistence{}
	for errand := range ruledRuns() {
		clients[errand] = w.insist(question{text: errand + " before", key: errand + " before"}, nil)
	}
	eventually(t, "every run waits for its model", func() bool { return len(w.provider.transcripts()) == len(clients) })
	w.patchRuntime(settingsAfter)
	p.kill()
	w.serve()
	eventually(t, "every model is asked again", func() bool { return len(w.provider.transcripts()) >= 2*len(clients) })
	close(gate)
	for errand, want := range ruledRuns() {
		w.wantRuled(errand+" before", w.answered(clients[errand]).answer, want[0])
		for _, key := range []string{"", errand + " after"} { // a light and a durable run
			text := errand + " after, key " + key
			w.wantRuled(text, w.answered(w.insist(question{text: text, key: key}, nil)).answer, want[1])
		}
	}
	w.wantSealed()
}

// leaveRuntimeOpen removes the runtime of the org from the configuration, so that the
// management API can change it.
func (w *world) leaveRuntimeOpen() {
	w.Helper()
	text, err := os.ReadFile(w.config)
	if err == nil {
		err = os.WriteFile(w.config, []byte(strings.Replace(string(text), "    runtime: {}\n", "", 1)), 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// patchRuntime changes settings of the org.
func (w *world) patchRuntime(settings string) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPatch, w.base()+"/api/org/runtime", strings.NewReader(settings))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.Fatalf("the settings were refused: %s", resp.Status)
	}
}

// wantRuled fails the test unless the run of the request shows the settings that are wanted.
func (w *world) wantRuled(text string, a answer, want ruled) {
	w.Helper()
	got := ruled{end: a.reason, said: a.last()}
	if a.code != "" {
		got.end = a.code
	}
	for _, transcript := range w.provider.transcripts() {
		if n, _, _ := follow(transcript); transcript[0].Content == text {
			got.rounds = max(got.rounds, n+1)
		}
	}
	for _, c := range w.tools.Calls() {
		var arguments struct{ Of string }
		if json.Unmarshal(c.Arguments, &arguments) == nil && arguments.Of == text {
			got.calls++
		}
	}
	if got != want {
		w.Errorf("%s: %+v, want %+v", text, got, want)
	}
}

// wantSealed fails the test unless the journals of all runs have the settings whole.
func (w *world) wantSealed() {
	w.Helper()
	for id := range w.runs() {
		story, _ := w.load(id)
		got := story.Facts[0].Body.(loop.Accepted).Policy
		before := got.Limits.Rounds == 6 && got.ResultMaxBytes == 1024 && got.Validation == loop.Lenient && !got.AbortOnTool && got.CacheTTLNS == 0
		after := got.Limits.Rounds == 4 && got.ResultMaxBytes == 4096 && got.Validation == loop.Strict && got.AbortOnTool && got.CacheTTLNS == 3600e9
		if before == after || got.StreamMode != "live" || got.CatalogTTLNS != 600e9 || got.Slots != 16 {
			w.Errorf("run %s has the policy %+v", id, got)
		}
	}
}
