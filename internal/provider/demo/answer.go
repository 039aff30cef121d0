package demo

import (
	"context"
	"net/http"
	"regexp"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// answer is a reply on its way out.
type answer struct {
	reply
	request *request
	created int64
	delay   time.Duration
}

func (a answer) finishReason() string {
	switch {
	case a.call != nil:
		return "tool_calls"
	case a.cut:
		return "length"
	}
	return "stop"
}

// envelope has the members that a completion and each of its chunks share.
func (a answer) envelope(object string, choices []any) map[string]any {
	return map[string]any{"id": "chatcmpl-" + a.id, "object": object, "created": a.created, "model": a.request.Model, "choices": choices}
}

func (a answer) whole() map[string]any {
	message := map[string]any{"role": "assistant", "content": a.text, "refusal": nil}
	if a.call != nil {
		message["tool_calls"] = []any{a.call}
	}
	c := a.envelope("chat.completion", []any{map[string]any{
		"index": 0, "message": message, "logprobs": nil, "finish_reason": a.finishReason(),
	}})
	c["usage"] = a.usage
	return c
}

// stream sends the answer word by word. It stops when the caller has gone,
// which is why errors end it without a word.
func (a answer) stream(ctx context.Context, rw http.ResponseWriter) {
	w := sse.NewWriter(rw, sse.Options{})
	defer w.Close()
	for i, delta := range a.deltas() {
		if i > 0 && !pause(ctx, a.delay) || w.Event(a.chunk(delta, nil)) != nil {
			return
		}
	}
	if w.Event(a.chunk(map[string]any{}, a.finishReason())) != nil {
		return
	}
	if a.request.StreamOptions.IncludeUsage {
		c := a.envelope("chat.completion.chunk", []any{})
		c["usage"] = a.usage
		if w.Event(marshal(c)) != nil {
			return
		}
	}
	_ = w.Event([]byte("[DONE]"))
}

// deltas are the answer in pieces: the role, the words, and the call, whose
// arguments come in pieces too.
func (a answer) deltas() []map[string]any {
	all := []map[string]any{{"role": "assistant", "content": ""}}
	for _, p := range pieces(a.text) {
		all = append(all, map[string]any{"content": p})
	}
	if a.call == nil {
		return all
	}
	calls := func(c map[string]any) map[string]any {
		c["index"] = 0
		return map[string]any{"tool_calls": []any{c}}
	}
	all = append(all, calls(map[string]any{
		"id": a.call.ID, "type": "function", "function": map[string]any{"name": a.call.Function.Name, "arguments": ""},
	}))
	for _, p := range pieces(a.call.Function.Arguments) {
		all = append(all, calls(map[string]any{"function": map[string]any{"arguments": p}}))
	}
	return all
}

// chunk is one event. With usage asked for, those before the last say null.
func (a answer) chunk(delta map[string]any, finish any) []byte {
	c := a.envelope("chat.completion.chunk", []any{map[string]any{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}})
	if a.request.StreamOptions.IncludeUsage {
		c["usage"] = nil
	}
	return marshal(c)
}

// pieces cuts a text before its spaces, and arguments after their commas.
func pieces(s string) []string {
	if s == "" {
		return nil
	}
	return regexp.MustCompile(`\s*[^\s,]*,?`).FindAllString(s, -1)
}

// pause waits; false when the caller has gone.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
