package turnpiketest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// speech turns steps into the words of the chat-completions dialect and keeps
// what was said for an answer in one piece.
type speech struct {
	id      string
	model   string
	created int64

	text, reasoning, refusal string
	calls                    []model.Call
	stop                     model.Stop
	usage                    model.Usage
	opened                   bool
}

// take adds what a step says and returns it as deltas, in JSON.
func (s *speech) take(st step) []string {
	var deltas []string
	if !s.opened {
		switch st.verb {
		case sayText, sayReasoning, sayRefusal, makeCall:
			s.opened = true
			deltas = append(deltas, `{"role":"assistant","content":""}`)
		}
	}
	switch st.verb {
	case sayText:
		s.text += st.text
		deltas = append(deltas, object("content", st.text))
	case sayReasoning:
		s.reasoning += st.text
		deltas = append(deltas, object("reasoning_content", st.text))
	case sayRefusal:
		s.refusal += st.text
		deltas = append(deltas, object("refusal", st.text))
	case makeCall:
		deltas = append(deltas, callDeltas(len(s.calls), st.call)...)
		s.calls = append(s.calls, st.call)
	case setStop:
		s.stop = st.stop
	case setUsage:
		s.usage = st.usage
	}
	return deltas
}

// callDeltas sends a call as the dialect does: its name, then its arguments in
// pieces.
func callDeltas(index int, c model.Call) []string {
	deltas := []string{fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`,
		index, quote(c.ID), quote(c.Name))}
	half := len(c.Arguments) / 2
	for half > 0 && c.Arguments[half]&0xC0 == 0x80 { // never inside a character
		half--
	}
	for _, part := range []string{c.Arguments[:half], c.Arguments[half:]} {
		if part != "" {
			deltas = append(deltas, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, index, quote(part)))
		}
	}
	return deltas
}

func (s *speech) end() model.Stop {
	if s.stop == "" {
		return defaultStop(len(s.calls))
	}
	return s.stop
}

func (s *speech) chunk(delta, reason string) []byte {
	finish := "null"
	if reason != "" {
		finish = quote(reason)
	}
	return fmt.Appendf(nil, `{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`,
		quote(s.id), s.created, quote(s.model), delta, finish)
}

func (s *speech) usageChunk() []byte {
	return fmt.Appendf(nil, `{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":[],"usage":%s}`,
		quote(s.id), s.created, quote(s.model), usageObject(s.usage))
}

// completion is the whole answer as one object.
func (s *speech) completion() []byte {
	message := map[string]any{"role": "assistant", "content": s.text}
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
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": s.end()}},
	}
	if s.usage != (model.Usage{}) {
		answer["usage"] = json.RawMessage(usageObject(s.usage))
	}
	out, _ := json.Marshal(answer) // strings and numbers: cannot fail
	return out
}

func usageObject(u model.Usage) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, u.Input, u.Output, u.Total)
}

func object(name, text string) string { return fmt.Sprintf(`{%s:%s}`, quote(name), quote(text)) }

func quote(s string) string {
	out, _ := json.Marshal(s) // a string: cannot fail
	return string(out)
}

// stream is an answer of server-sent events, in pieces.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	o       UpstreamOptions
	stays   func(time.Duration) bool // waits, unless the caller leaves
	begun   bool
	failed  bool
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	s.flush(nil)
}

// event sends one event.
func (s *stream) event(data []byte) {
	s.begin()
	frame := append(append([]byte("data: "), data...), "\n\n"...)
	size := s.o.Piece
	if size <= 0 {
		size = len(frame)
	}
	for len(frame) > 0 && !s.failed {
		n := min(size, len(frame))
		s.flush(frame[:n])
		frame = frame[n:]
		if s.o.Gap > 0 {
			s.failed = s.failed || !s.stays(s.o.Gap)
		}
	}
}

// flush lets a piece leave. A caller that has gone gets nothing more.
func (s *stream) flush(piece []byte) {
	if _, err := s.w.Write(piece); err != nil {
		s.failed = true
		return
	}
	s.failed = s.control.Flush() != nil
}
