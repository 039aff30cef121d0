package responses_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// phased is a provider whose messages say what they are for: a comment before a call, and the answer.
func phased(inputs *atomic.Value) http.HandlerFunc {
	message := func(id, phase, text string) []string {
		head := fmt.Sprintf(`{"id":%q,"type":"message","role":"assistant","phase":%q,"status":"`, id, phase)
		return []string{
			`{"type":"response.output_item.added","output_index":0,"item":` + head + `in_progress","content":[]}}`,
			fmt.Sprintf(`{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":%q,"delta":%q}`, id, text),
			`{"type":"response.output_item.done","output_index":0,"item":` + head + `completed","content":[{"type":"output_text","annotations":[],"text":"` + text + `"}]}}`,
		}
	}
	const ends = `{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"m","output":[],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}`
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		inputs.Store(string(body))
		events := append(message("msg_2", "final_answer", "It is done."), ends)
		if !strings.Contains(string(body), `"function_call_output"`) {
			events = append(message("msg_1", "commentary", "I look."),
				`{"type":"response.output_item.done","output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"c1","name":"tools__echo","arguments":"{}","status":"completed"}}`, ends)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range events {
			_, _ = io.WriteString(w, "data: "+data+"\n\n")
		}
	}
}

// What a message is for is in the stream, in the response and in what is stored, and the provider gets it
// back: models that say it lose quality where it is dropped.
func TestAMessageKeepsItsPhase(t *testing.T) { // G15
	NoLeaks(t)
	specs := spectest.Find(t)
	var inputs atomic.Value
	provider := httptest.NewServer(phased(&inputs))
	t.Cleanup(provider.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: provider.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
	phases := func(items []json.RawMessage) (out []string) {
		for _, raw := range items {
			var it struct{ Type, Phase string }
			if json.Unmarshal(raw, &it) == nil && it.Type == "message" {
				out = append(out, it.Phase)
			}
		}
		return out
	}
	for name, header := range map[string][]string{"light": {}, "durable": {"Idempotency-Key", "k"}} {
		t.Run(name, func(t *testing.T) {
			a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true}`), append(header, "Authorization", "Bearer owner-key")...)
			specs.Check(t, "POST /v1/responses", string(a.Body))
			// added, done and the response of each of the two messages
			if one, two := strings.Count(string(a.Body), `"phase":"commentary"`), strings.Count(string(a.Body), `"phase":"final_answer"`); one != 3 || two != 3 {
				t.Errorf("%d and %d times in the stream:\n%s", one, two, a.Body)
			}
			var stored struct {
				ID     string
				Output []json.RawMessage
			}
			get := g.Send("GET", "/v1/responses/"+last(a.Events(t)).ID, nil, "Authorization", "Bearer owner-key")
			if err := json.Unmarshal(get.Body, &stored); err != nil || fmt.Sprint(phases(stored.Output)) != "[commentary final_answer]" {
				t.Errorf("%v; stored is %s", err, get.Body)
			}
			for _, sent := range []string{`"previous_response_id":"` + stored.ID + `","input":"y"`, `"input":[{"role":"user","content":"x"},` + string(stored.Output[len(stored.Output)-1]) + `,{"role":"user","content":"y"}]`} {
				b := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","tool_choice":"none",`+sent+`}`), "Authorization", "Bearer owner-key")
				if got := inputs.Load().(string); b.Status != 200 || !strings.Contains(got, `"phase":"final_answer"`) {
					t.Errorf("%d %s, and the provider got %s", b.Status, b.Body, got)
				}
			}
		})
	}
}
