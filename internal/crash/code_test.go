//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
)

// codeOnce runs the text of the user as JavaScript.
func codeOnce(transcript []message) turn {
	if last := transcript[len(transcript)-1]; last.Role == "user" {
		return turn{calls: []call{{"c", "code_execute", fmt.Sprintf(`{"language":"javascript","code":%q}`, last.Content)}}}
	}
	return turn{text: []string{"It ran."}}
}

// runCode asks for code once, with code_interpreter.
func (w *world) runCode(ctx context.Context, input, previous, key string, stream bool) reply {
	members := map[string]any{
		"model": "m", "input": input, "stream": stream, "include": []string{"code_interpreter_call.outputs"},
		"tools": []any{map[string]any{"type": "code_interpreter", "container": map[string]any{"type": "auto"}}},
	}
	if previous != "" {
		members["previous_response_id"] = previous
	}
	body, _ := json.Marshal(members) // strings and booleans
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+"/v1/responses", bytes.NewReader(body))
	if err != nil {
		return reply{code: err.Error()}
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return w.reply(req)
}

// codeCall is the item of a call that runs code.
type codeCall struct {
	ID, Type, Status, Code string
	Container              string `json:"container_id"`
	Outputs                []struct{ Logs string }
}

// codeOf returns the only call that runs code in a response.
func codeOf(t *testing.T, raw string) codeCall {
	t.Helper()
	var o struct{ Output []codeCall }
	if err := json.Unmarshal([]byte(raw), &o); err != nil || len(o.Output) != 2 || o.Output[0].Type != "code_interpreter_call" {
		t.Fatalf("%v: %s", err, raw)
	}
	return o.Output[0]
}

// A response whose run has code is killed around the call. The code does not run twice, and the client that asks again gets the
// same items, in the same stream, as everybody who reads the response later. // E13 P05
func TestCodeOfAResponseSurvivesCrashes(t *testing.T) {
	t.Parallel()
	ran, lost := "42", ""
	points := map[string]string{
		nth(crash.AfterModelSend, 1): ran, nth(crash.AfterTurn, 1): ran, nth(crash.BeforeResult, 1): lost, nth(crash.AfterResult, 1): ran,
		nth(crash.AfterModelSend, 2): ran, nth(crash.BeforeFinish, 1): ran, nth(crash.AfterFinish, 1): ran,
	}
	for _, point := range sampled(t, slices.Sorted(maps.Keys(points)), func(point string) string { return points[point] }) {
		logs := points[point]
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{script: codeOnce, runtime: "enable_code_execution: true", more: "sandbox: {drivers: [quickjs]}\n"})
			first := w.start(point)
			cut := w.runCode(t.Context(), "6*7", "", "k1", true)
			first.wantKilled(t, "which passes "+point)
			w.start("")
			var whole reply
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			for pause(ctx, 25*time.Millisecond) == nil {
				if whole = w.runCode(ctx, "6*7", "", "k1", true); (answer{code: whole.code}).final() {
					break
				}
			}
			if whole.status != http.StatusOK || whole.object.Status != "completed" || whole.object.types() != "code_interpreter_call message" {
				t.Fatalf("answered %+v", whole)
			}
			events := eventsOf(whole.said)
			for i, e := range eventsOf(cut.said) {
				if cut.status == http.StatusOK && (i >= len(events) || !strings.HasPrefix(events[i], e)) {
					t.Errorf("event %d of the broken stream is\n%s\nand not that of the answer", i, e)
				}
			}
			id := whole.object.ID
			stored := w.stored(t.Context(), id)
			got := codeOf(t, stored.said)
			if got.Container != "cntr_"+strings.TrimPrefix(id, "resp_") || got.Code != "6*7" || !strings.Contains(whole.said, `"id":"`+got.ID+`"`) {
				t.Errorf("stored is %s", stored.said)
			}
			if logs == lost && got.Status != "failed" || logs != lost && (got.Status != "completed" || len(got.Outputs) != 1 || got.Outputs[0].Logs != logs) {
				t.Errorf("the item is %+v", got)
			}
			if again := w.stored(t.Context(), id+"?stream=true"); again.said != whole.said {
				t.Errorf("the stream again is\n%s\nnot\n%s", again.said, whole.said)
			}
			next := codeOf(t, w.runCode(t.Context(), "'next'", id, "", false).said)
			if next.Container != got.Container || next.Status != "completed" {
				t.Errorf("the next response is %+v", next)
			}
			all := w.provider.transcripts()
			results := 0
			for _, m := range all[len(all)-1] {
				if m.Role == "tool" {
					results++
				}
			}
			if results != 2 {
				t.Errorf("the model of the next response was told %d results, want 2", results)
			}
		})
	}
}
