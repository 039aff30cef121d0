//go:build unix

package crash_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// message is a message of the chat dialect, as far as the tests look at it.
type message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// call is a tool call that the model makes.
type call struct{ id, name, arguments string }

// turn is what the model says to a transcript: its text, delta by delta, then
// its calls.
type turn struct {
	text  []string
	calls []call
	hold  <-chan struct{} // what follows the first delta waits for it; nil = nothing waits

	prompt int // tokens of the prompt that are counted; 0 = 10

	status int // of an error that is answered instead; 0 = none
	after  int // and the seconds of its Retry-After
}

// script answers a transcript. It remembers nothing: the same transcript gets
// the same turn, whoever asks and however often.
type script func(transcript []message) turn

// provider is a model provider that streams what its script says.
type provider struct {
	*httptest.Server
	script script

	mu   sync.Mutex
	seen [][]message // transcripts in the order of their coming; guarded by mu

	offered []string // names of the tools that the last request offers; guarded by mu
}

// newProvider starts a provider, which ends with the test.
func newProvider(t *testing.T, s script) *provider {
	p := &provider{script: s}
	p.Server = httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(func() {
		p.CloseClientConnections() // what is held is let go
		p.Close()
	})
	return p
}

// transcripts returns what the model was asked so far.
func (p *provider) transcripts() [][]message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]message(nil), p.seen...)
}

func (p *provider) answer(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Messages []message
		Tools    []struct{ Function struct{ Name string } }
		Stream   bool
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || !ask.Stream {
		http.Error(w, fmt.Sprintf(`{"error":{"message":"stream %v, %v","type":"invalid_request_error"}}`, ask.Stream, err), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.seen = append(p.seen, ask.Messages)
	p.offered = nil
	for _, tool := range ask.Tools {
		p.offered = append(p.offered, tool.Function.Name)
	}
	p.mu.Unlock()
	said := p.script(ask.Messages)
	if said.status != 0 {
		w.Header().Set("Retry-After", strconv.Itoa(said.after))
		http.Error(w, `{"error":{"message":"not now","type":"server_error"}}`, said.status)
		return
	}
	s := speaker{w, http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, text := range said.text {
		s.say(map[string]any{"content": text}, nil)
		if i == 0 && said.hold != nil {
			select {
			case <-said.hold:
			case <-r.Context().Done():
				return
			}
		}
	}
	s.finish(said.calls, cmp.Or(said.prompt, 10))
}

// speaker writes the chunks of one answer.
type speaker struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s speaker) say(delta map[string]any, reason any) {
	s.frame(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}},
	})
}

// finish makes the calls, says why the turn ends, and what it has cost.
func (s speaker) finish(calls []call, prompt int) {
	reason := "stop"
	for i, c := range calls {
		reason = "tool_calls"
		s.say(map[string]any{"tool_calls": []any{map[string]any{
			"index": i, "id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments},
		}}}, nil)
	}
	s.say(map[string]any{}, reason)
	s.frame(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []any{},
		"usage": map[string]any{"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5},
	})
	_, _ = fmt.Fprint(s.w, "data: [DONE]\n\n")
}

// frame sends one event at once. A gateway that was killed gets nothing more.
func (s speaker) frame(v any) {
	data, _ := json.Marshal(v) // strings and numbers
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", data)
	_ = s.control.Flush()
}
