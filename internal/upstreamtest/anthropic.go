package upstreamtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/model"
)

// anthropicDialect is the Anthropic Messages API. It remembers what it sent, so
// that a request can be checked against it.
type anthropicDialect struct {
	mu       sync.Mutex                  // guards what follows
	thinking map[string]*anthropicTurn   // by signature, or by the data of redacted thinking
	calls    map[string][]*anthropicTurn // by the id of a tool_use
}

// anthropicTurn is one answer as it was sent. Its blocks are guarded by the
// dialect's mu.
type anthropicTurn struct{ blocks []object }

func newAnthropic() *anthropicDialect {
	return &anthropicDialect{thinking: map[string]*anthropicTurn{}, calls: map[string][]*anthropicTurn{}}
}

func (*anthropicDialect) path() string { return "/messages" }

func (*anthropicDialect) name() string { return "anthropic" }

// anthropicError returns the type of an error by its status, from
// https://platform.claude.com/docs/en/api/errors.
func anthropicError(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusConflict:
		return "conflict_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	case 529:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// anthropicRequestID is the id of every request in errors.
const anthropicRequestID = "req_script"

func anthropicErrorBody(kind, message string) []byte {
	return encode(object{"type": "error", "error": object{"type": kind, "message": message}, "request_id": anthropicRequestID})
}

func (*anthropicDialect) failed(f script.Failure) (http.Header, []byte) {
	header := f.Header()
	header.Set("Request-Id", anthropicRequestID)
	return header, anthropicErrorBody(anthropicError(f.Status), f.Words())
}

func (*anthropicDialect) refuse(r refusal) []byte {
	return anthropicErrorBody("invalid_request_error", r.message)
}

func (d *anthropicDialect) answer(number int, a asked, t script.Turn) answer {
	return &anthropicAnswer{d: d, number: number, model: a.Model, usage: t.Usage(), turn: &anthropicTurn{}}
}

// anthropicAnswer is one message.
type anthropicAnswer struct {
	d      *anthropicDialect
	number int
	model  string
	usage  model.Usage
	turn   *anthropicTurn

	begun   bool        // message_start was sent
	open    script.Verb // what the open block says; "" = no block is open
	block   object      // the open block
	input   string      // of the open call
	refused bool
	stop    model.Stop
}

func (s *anthropicAnswer) take(st script.Step) []sseEvent {
	switch st.Verb {
	case script.SayText, script.SayRefusal:
		s.refused = s.refused || st.Verb == script.SayRefusal
		events := s.enter(script.SayText, object{"type": "text", "text": ""})
		s.block["text"] = s.block["text"].(string) + st.Text
		return append(events, s.delta(object{"type": "text_delta", "text": st.Text}))
	case script.SayReasoning:
		return s.think(st.Text)
	case script.MakeCall:
		return s.call(st.Call)
	case script.SetStop:
		s.stop = st.Stop
	}
	return nil
}

// think adds to the thinking. A line without words is thinking that the provider
// hides: a redacted block.
func (s *anthropicAnswer) think(text string) []sseEvent {
	if text == "" {
		events := s.leave()
		return append(events, s.enter("redacted", object{"type": "redacted_thinking", "data": s.seal("redacted")})...)
	}
	events := s.enter(script.SayReasoning, object{"type": "thinking", "thinking": "", "signature": ""})
	s.block["thinking"] = s.block["thinking"].(string) + text
	return append(events, s.delta(object{"type": "thinking_delta", "thinking": text}))
}

// call begins a tool_use block. Its input comes in pieces.
func (s *anthropicAnswer) call(c model.Call) []sseEvent {
	events := append(s.leave(), s.enter(script.MakeCall, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}})...)
	s.input = c.Arguments
	events = append(events, s.delta(object{"type": "input_json_delta", "partial_json": ""}))
	for _, part := range script.Halves(c.Arguments) {
		events = append(events, s.delta(object{"type": "input_json_delta", "partial_json": part}))
	}
	return events
}

// enter opens a block, unless one that says the same is open.
func (s *anthropicAnswer) enter(what script.Verb, block object) []sseEvent {
	if s.open == what {
		return nil
	}
	events := append(s.begin(), s.leave()...)
	s.open, s.block = what, block
	events = append(events, eventOf("content_block_start", object{"index": s.index(), "content_block": block}))
	if s.index() == 0 {
		events = append(events, eventOf("ping", object{}))
	}
	return events
}

func (s *anthropicAnswer) index() int { return len(s.turn.blocks) }

func (s *anthropicAnswer) delta(d object) sseEvent {
	return eventOf("content_block_delta", object{"index": s.index(), "delta": d})
}

// leave closes the open block and remembers it.
func (s *anthropicAnswer) leave() []sseEvent {
	if s.open == "" {
		return nil
	}
	var events []sseEvent
	switch s.open {
	case script.SayReasoning:
		signature := s.seal(s.block["thinking"].(string))
		s.block["signature"] = signature
		events = append(events, s.delta(object{"type": "signature_delta", "signature": signature}))
	case script.MakeCall:
		s.block["input"] = inputOf(s.input)
	}
	events = append(events, eventOf("content_block_stop", object{"index": s.index()}))
	s.d.remember(s.turn, s.block)
	s.open = ""
	return events
}

// inputOf returns arguments as a JSON value; those that are not JSON, which only
// a stream can express, as a string.
func inputOf(arguments string) any {
	switch {
	case arguments == "":
		return object{}
	case json.Valid([]byte(arguments)):
		return json.RawMessage(arguments)
	}
	return arguments
}

// seal returns opaque bytes that no other block of the story has.
func (s *anthropicAnswer) seal(text string) string { return seal(s.number, s.index(), text) }

func seal(number, index int, text string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s", number, index, text))
	return base64.StdEncoding.EncodeToString(append([]byte("\x12\x0b"), append(sum[:], sum[:]...)...))
}

// begin sends message_start once.
func (s *anthropicAnswer) begin() []sseEvent {
	if s.begun {
		return nil
	}
	s.begun = true
	message := s.message()
	message["usage"] = anthropicUsage(model.Usage{Input: s.usage.Input, Output: min(s.usage.Output, 1)})
	return []sseEvent{eventOf("message_start", object{"message": message})}
}

func (s *anthropicAnswer) message() object {
	return object{
		"id": fmt.Sprintf("msg_script_%d", s.number), "type": "message", "role": "assistant", "model": s.model,
		"content": []object{}, "stop_reason": nil, "stop_sequence": nil,
	}
}

func anthropicUsage(u model.Usage) object {
	return object{
		"input_tokens": u.Input, "output_tokens": u.Output,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
	}
}

func (s *anthropicAnswer) end() []sseEvent {
	events := append(s.begin(), s.leave()...)
	return append(events,
		eventOf("message_delta", object{"delta": object{"stop_reason": s.reason(), "stop_sequence": nil}, "usage": anthropicUsage(s.usage)}),
		eventOf("message_stop", object{}))
}

func (s *anthropicAnswer) reason() string {
	calls := false
	for _, b := range s.turn.blocks {
		calls = calls || b["type"] == "tool_use"
	}
	switch {
	case s.stop == model.StopLength:
		return "max_tokens"
	case s.stop == model.StopFilter, s.stop == "" && s.refused:
		return "refusal"
	case s.stop == model.StopCalls, s.stop == "" && calls:
		return "tool_use"
	}
	return "end_turn"
}

func (s *anthropicAnswer) fail(f script.Failure) []sseEvent {
	return []sseEvent{{"error", anthropicErrorBody(anthropicError(f.Status), f.Words())}}
}

func (s *anthropicAnswer) whole() []byte {
	message := s.message()
	message["content"], message["stop_reason"], message["usage"] = s.turn.blocks, s.reason(), anthropicUsage(s.usage)
	if s.turn.blocks == nil {
		message["content"] = []object{}
	}
	return encode(message)
}

// eventOf returns an event whose data begin with its name as type.
func eventOf(name string, data object) sseEvent {
	data["type"] = name
	return sseEvent{name, encode(data)}
}

// remember adds a block to a turn.
func (d *anthropicDialect) remember(t *anthropicTurn, block object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.blocks = append(t.blocks, block)
	switch block["type"] {
	case "thinking":
		d.thinking[block["signature"].(string)] = t
	case "redacted_thinking":
		d.thinking[block["data"].(string)] = t
	case "tool_use":
		id := block["id"].(string)
		d.calls[id] = append(d.calls[id], t)
	}
}
