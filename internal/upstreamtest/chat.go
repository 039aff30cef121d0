package upstreamtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/model"
)

// chatDialect is OpenAI Chat Completions, with the reasoning_content of compatible
// providers.
type chatDialect struct{}

func (chatDialect) path() string { return "/chat/completions" }

func (chatDialect) failed(f script.Failure) (http.Header, []byte) { return f.Header(), f.Body() }

func (chatDialect) refuse(r refusal) []byte { return openAIRefusal(r) }

// openAIRefusal is the error object of both dialects of OpenAI.
func openAIRefusal(r refusal) []byte {
	return script.OpenAIError(r.message, "invalid_request_error", r.param, r.code)
}

func (chatDialect) name() string { return "chat" }

func (chatDialect) answer(number int, a asked, _ script.Turn) answer {
	return &chatAnswer{id: script.TurnID(number), model: a.Model, created: time.Now().Unix(), counts: a.StreamOptions.IncludeUsage}
}

// chatAnswer is one completion.
type chatAnswer struct {
	id      string
	model   string
	created int64
	counts  bool // a stream ends with the usage

	text, reasoning, refusal string
	calls                    []model.Call
	stop                     model.Stop
	usage                    model.Usage
	opened                   bool
}

func (s *chatAnswer) take(st script.Step) []sseEvent {
	var events []sseEvent
	for _, d := range s.deltas(st) {
		events = append(events, sseEvent{data: s.chunk(d, "")})
	}
	return events
}

func (s *chatAnswer) end() []sseEvent {
	events := []sseEvent{{data: s.chunk("{}", string(s.reason()))}}
	if s.counts && s.usage != (model.Usage{}) {
		events = append(events, sseEvent{data: s.usageChunk()})
	}
	return append(events, sseEvent{data: []byte("[DONE]")})
}

func (s *chatAnswer) fail(f script.Failure) []sseEvent { return []sseEvent{{data: f.Body()}} }

// deltas adds what a step says and returns it as deltas, in JSON.
func (s *chatAnswer) deltas(st script.Step) []string {
	var deltas []string
	if !s.opened {
		switch st.Verb {
		case script.SayText, script.SayReasoning, script.SayRefusal, script.MakeCall:
			s.opened = true
			deltas = append(deltas, opening(st.Verb))
		}
	}
	switch st.Verb {
	case script.SayText:
		s.text += st.Text
		deltas = append(deltas, member("content", st.Text))
	case script.SayReasoning:
		s.reasoning += st.Text
		deltas = append(deltas, member("reasoning_content", st.Text))
	case script.SayRefusal:
		s.refusal += st.Text
		deltas = append(deltas, member("refusal", st.Text))
	case script.MakeCall:
		deltas = append(deltas, callDeltas(len(s.calls), st.Call)...)
		s.calls = append(s.calls, st.Call)
	case script.SetStop:
		s.stop = st.Stop
	case script.SetUsage:
		s.usage = st.Usage
	}
	return deltas
}

// opening is the first delta. It has no text where a call comes first.
func opening(first script.Verb) string {
	if first == script.MakeCall {
		return `{"role":"assistant","content":null}`
	}
	return `{"role":"assistant","content":"","refusal":null}`
}

// callDeltas sends a call as the dialect does: its name, then its arguments in
// pieces.
func callDeltas(index int, c model.Call) []string {
	deltas := []string{fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`,
		index, quote(c.ID), quote(c.Name))}
	for _, part := range script.Halves(c.Arguments) {
		deltas = append(deltas, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, index, quote(part)))
	}
	return deltas
}

func (s *chatAnswer) reason() model.Stop {
	if s.stop == "" {
		return script.DefaultStop(len(s.calls))
	}
	return s.stop
}

func (s *chatAnswer) chunk(delta, reason string) []byte {
	finish := "null"
	if reason != "" {
		finish = quote(reason)
	}
	usage := ""
	if s.counts { // it is in the last chunk
		usage = `,"usage":null`
	}
	return fmt.Appendf(nil, `{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":[{"index":0,"delta":%s,"finish_reason":%s}]%s}`,
		quote(s.id), s.created, quote(s.model), delta, finish, usage)
}

func (s *chatAnswer) usageChunk() []byte {
	return fmt.Appendf(nil, `{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":[],"usage":%s}`,
		quote(s.id), s.created, quote(s.model), usageObject(s.usage))
}

func (s *chatAnswer) whole() []byte {
	message := map[string]any{"role": "assistant", "content": s.text, "refusal": nil, "annotations": []any{}}
	if s.text == "" && (s.calls != nil || s.refusal != "") {
		message["content"] = nil
	}
	if s.reasoning != "" {
		message["reasoning_content"] = s.reasoning
	}
	if s.refusal != "" {
		message["refusal"] = s.refusal
	}
	var calls []any
	for _, c := range s.calls {
		calls = append(calls, map[string]any{
			"id": c.ID, "type": "function", "function": map[string]string{"name": c.Name, "arguments": c.Arguments},
		})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	answer := map[string]any{
		"id": s.id, "object": "chat.completion", "created": s.created, "model": s.model,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": s.reason()}},
	}
	if s.usage != (model.Usage{}) {
		answer["usage"] = json.RawMessage(usageObject(s.usage))
	}
	return encode(answer)
}

func usageObject(u model.Usage) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, u.Input, u.Output, u.Total)
}

func member(name, text string) string { return fmt.Sprintf(`{%s:%s}`, quote(name), quote(text)) }
