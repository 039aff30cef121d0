package app_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// upstream is a model provider that answers as its test wants.
type upstream struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request, got received)

	mu   sync.Mutex
	seen []received
}

// received is one request as the upstream saw it.
type received struct {
	number int // from 0
	path   string
	header http.Header
	body   []byte
}

func newUpstream(t *testing.T, answer func(http.ResponseWriter, *http.Request, received)) *upstream {
	u := &upstream{answer: answer}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	got := received{len(u.seen), r.URL.Path, r.Header.Clone(), body}
	u.seen = append(u.seen, got)
	u.mu.Unlock()
	u.answer(w, r, got)
}

func (u *upstream) requests() []received {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]received(nil), u.seen...)
}

// forget removes the requests that were recorded.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = nil
}

// modelRequest is the part of a request to the model that the tests look at.
type modelRequest struct {
	Model    string
	Tools    json.RawMessage
	Messages []struct {
		Role, Content string
		ToolCallID    string `json:"tool_call_id"`
	}
}

func (r received) decode(t *testing.T) modelRequest {
	t.Helper()
	var m modelRequest
	if err := json.Unmarshal(r.body, &m); err != nil {
		t.Fatalf("request %d to the model: %v: %.300q", r.number, err, r.body)
	}
	return m
}

// results returns what the model was told by tools, in order.
func (r received) results(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range r.decode(t).Messages {
		if m.Role == "tool" {
			out = append(out, m.Content)
		}
	}
	return out
}

// turn is a model's answer to one call.
type turn struct {
	text  string
	calls []call
	gpuMS int  // in its usage; 0 = not said
	input int  // tokens of the prompt; 0 = 10
	cut   bool // by the length of the output; the last call is not complete
}

type call struct{ name, arguments string }

func says(text string) turn          { return turn{text: text} }
func asks(calls ...call) turn        { return turn{calls: calls} }
func (u turn) saying(t string) turn  { u.text = t; return u }
func (u turn) reading(n int) turn    { u.input = n; return u }
func cutAfter(text string) turn      { return turn{text: text, cut: true} }
func frame(w io.Writer, data string) { fmt.Fprintf(w, "data: %s\n\n", data) }

// script answers with the turns in order, then with the last one for ever.
func script(turns ...turn) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, _ *http.Request, got received) {
		turns[min(got.number, len(turns)-1)].write(w)
	}
}

// write streams the turn as the dialect has it.
func (u turn) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	reason := "stop"
	frame(w, `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant"}}]}`)
	if u.text != "" {
		frame(w, `{"choices":[{"index":0,"delta":{"content":`+quote(u.text)+`}}]}`)
	}
	for i, c := range u.calls {
		reason = "tool_calls"
		frame(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"call_%d","type":"function","function":{"name":%s,"arguments":%s}}]}}]}`,
			i, i, quote(c.name), quote(c.arguments)))
	}
	if u.cut {
		reason = "length"
	}
	frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"`+reason+`"}]}`)
	billed := ""
	if u.gpuMS > 0 {
		billed = fmt.Sprintf(`,"gpu_ms":%d`, u.gpuMS)
	}
	input := cmp.Or(u.input, 10)
	frame(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":5,"total_tokens":%d%s}}`, input, input+5, billed))
	frame(w, "[DONE]")
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(b)
}
