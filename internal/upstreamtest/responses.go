package upstreamtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/model"
)

// responsesDialect is the OpenAI Responses API. It remembers what it sent, so
// that a request can be checked against it, and stores responses where the
// request does not forbid it.
type responsesDialect struct {
	mu     sync.Mutex            // guards what follows
	issued map[string]issuedItem // by id
	sealed map[string]string     // the id of a reasoning item, by its encrypted content
	stored map[string][]any      // input and output of stored responses, by id
}

// issuedItem is an item of an output, and what stood beside it.
type issuedItem struct {
	item   object
	before object // nil for the first
	after  object // nil for the last
	stored bool
}

func newResponses() *responsesDialect {
	return &responsesDialect{issued: map[string]issuedItem{}, sealed: map[string]string{}, stored: map[string][]any{}}
}

func (*responsesDialect) path() string { return "/responses" }

func (*responsesDialect) name() string { return "responses" }

func (*responsesDialect) refuse(r refusal) []byte { return openAIRefusal(r) }

func (*responsesDialect) failed(f script.Failure) (http.Header, []byte) {
	kind, code := "invalid_request_error", ""
	switch {
	case f.Status == http.StatusUnauthorized:
		code = "invalid_api_key"
	case f.Status == http.StatusNotFound:
		code = "model_not_found"
	case f.Status == http.StatusTooManyRequests:
		kind, code = "rate_limit_error", "rate_limit_exceeded"
	case f.Status >= 500:
		kind, code = "server_error", "server_error"
	case strings.Contains(f.Message, "context window"):
		code = "context_length_exceeded"
	}
	return f.Header(), script.OpenAIError(f.Words(), kind, "", code)
}

// responsesRequest is what the answer repeats of the request.
type responsesRequest struct {
	Include  []string
	Store    *bool
	Previous string `json:"previous_response_id"`
	Input    json.RawMessage
}

func (d *responsesDialect) answer(number int, a asked, t script.Turn) answer {
	r := responsesRequest{}
	_ = json.Unmarshal(a.body, &r) // what is wrong in it counts only where the Upstream is strict
	members, _ := decode(a.body)
	s := &responsesAnswer{
		d: d, number: number, usage: t.Usage(), created: time.Now().Unix(),
		store: r.Store == nil || *r.Store, request: r,
	}
	s.echo, _ = members.(object)
	for _, i := range r.Include {
		s.encrypted = s.encrypted || i == "reasoning.encrypted_content"
	}
	return s
}

// responsesAnswer is one response.
type responsesAnswer struct {
	d         *responsesDialect
	number    int
	created   int64
	usage     model.Usage
	echo      object // the request
	request   responsesRequest
	store     bool
	encrypted bool // reasoning comes with its encrypted content

	sequence int
	begun    bool
	open     script.Verb // what the open item says; "" = no item is open
	part     script.Verb // what the open part of a message says
	text     string      // of the open part, summary or arguments
	item     object      // the open item
	output   []object
	stop     model.Stop
}

func (s *responsesAnswer) take(st script.Step) []sseEvent {
	switch st.Verb {
	case script.SayText, script.SayRefusal:
		return s.say(st)
	case script.SayReasoning:
		return s.think(st.Text)
	case script.MakeCall:
		return s.call(st.Call)
	case script.SetStop:
		s.stop = st.Stop
	}
	return nil
}

// event numbers an event.
func (s *responsesAnswer) event(name string, data object) sseEvent {
	data["sequence_number"] = s.sequence
	s.sequence++
	return eventOf(name, data)
}

// at is the place of the open item in events.
func (s *responsesAnswer) at(more object) object {
	more["item_id"], more["output_index"] = s.item["id"], len(s.output)
	return more
}

// begin sends the first events once.
func (s *responsesAnswer) begin() []sseEvent {
	if s.begun {
		return nil
	}
	s.begun = true
	return []sseEvent{
		s.event("response.created", object{"response": s.response("in_progress")}),
		s.event("response.in_progress", object{"response": s.response("in_progress")}),
	}
}

// enter opens an item.
func (s *responsesAnswer) enter(what script.Verb, prefix string, item object) []sseEvent {
	events := append(s.begin(), s.leave("completed")...)
	item["id"] = fmt.Sprintf("%s_script_%d_%d", prefix, s.number, len(s.output))
	s.open, s.item, s.text = what, item, ""
	return append(events, s.event("response.output_item.added", object{"item": maps.Clone(item), "output_index": len(s.output)}))
}

// say adds to a message; a refusal is a part of its own.
func (s *responsesAnswer) say(st script.Step) []sseEvent {
	var events []sseEvent
	if s.open != script.SayText {
		events = s.enter(script.SayText, "msg", object{"type": "message", "role": "assistant", "status": "in_progress", "content": []object{}})
		s.part = ""
	}
	if s.part != st.Verb {
		events = append(events, s.leavePart()...)
		s.part, s.text = st.Verb, ""
		events = append(events, s.event("response.content_part.added", s.at(object{"content_index": s.parts(), "part": s.partObject()})))
	}
	s.text += st.Text
	if st.Verb == script.SayRefusal {
		return append(events, s.event("response.refusal.delta", s.at(object{"content_index": s.parts(), "delta": st.Text})))
	}
	return append(events, s.event("response.output_text.delta", s.at(object{"content_index": s.parts(), "delta": st.Text, "logprobs": []any{}})))
}

func (s *responsesAnswer) parts() int { return len(s.item["content"].([]object)) }

func (s *responsesAnswer) partObject() object {
	if s.part == script.SayRefusal {
		return object{"type": "refusal", "refusal": s.text}
	}
	return object{"type": "output_text", "text": s.text, "annotations": []any{}, "logprobs": []any{}}
}

func (s *responsesAnswer) leavePart() []sseEvent {
	if s.part == "" {
		return nil
	}
	name, done := "response.output_text.done", object{"text": s.text, "logprobs": []any{}}
	if s.part == script.SayRefusal {
		name, done = "response.refusal.done", object{"refusal": s.text}
	}
	done["content_index"] = s.parts()
	events := []sseEvent{
		s.event(name, s.at(done)),
		s.event("response.content_part.done", s.at(object{"content_index": s.parts(), "part": s.partObject()})),
	}
	s.item["content"] = append(s.item["content"].([]object), s.partObject())
	s.part = ""
	return events
}

// think adds to the summary of reasoning. A line without words is reasoning that
// the provider hides: an item without a summary.
func (s *responsesAnswer) think(text string) []sseEvent {
	if text == "" {
		events := s.enter(script.SayReasoning, "rs", object{"type": "reasoning", "summary": []object{}})
		return append(events, s.leave("completed")...)
	}
	var events []sseEvent
	if s.open != script.SayReasoning {
		events = s.enter(script.SayReasoning, "rs", object{"type": "reasoning", "summary": []object{}})
		events = append(events, s.event("response.reasoning_summary_part.added", s.at(object{"summary_index": 0, "part": summaryText("")})))
	}
	s.text += text
	return append(events, s.event("response.reasoning_summary_text.delta", s.at(object{"summary_index": 0, "delta": text})))
}

func summaryText(text string) object { return object{"type": "summary_text", "text": text} }

func (s *responsesAnswer) call(c model.Call) []sseEvent {
	events := s.enter(script.MakeCall, "fc", object{"type": "function_call", "status": "in_progress", "call_id": c.ID, "name": c.Name, "arguments": ""})
	s.text = c.Arguments
	for _, part := range script.Halves(c.Arguments) {
		events = append(events, s.event("response.function_call_arguments.delta", s.at(object{"delta": part})))
	}
	return events
}

// leave closes the open item and remembers it.
func (s *responsesAnswer) leave(status string) []sseEvent {
	if s.open == "" {
		return nil
	}
	var events []sseEvent
	switch s.open {
	case script.SayText:
		events = s.leavePart()
		s.item["status"] = status
	case script.SayReasoning:
		events = s.leaveSummary()
	case script.MakeCall:
		if status == "completed" {
			events = append(events, s.event("response.function_call_arguments.done", s.at(object{"arguments": s.text, "name": s.item["name"]})))
		}
		s.item["arguments"], s.item["status"] = s.text, status
	}
	s.open = ""
	events = append(events, s.event("response.output_item.done", object{"item": s.item, "output_index": len(s.output)}))
	s.output = append(s.output, s.item)
	s.d.issue(s.output)
	return events
}

func (s *responsesAnswer) leaveSummary() []sseEvent {
	if s.encrypted {
		s.item["encrypted_content"] = seal(s.number, len(s.output), s.text)
	}
	if s.text == "" {
		return nil
	}
	s.item["summary"] = []object{summaryText(s.text)}
	return []sseEvent{
		s.event("response.reasoning_summary_text.done", s.at(object{"summary_index": 0, "text": s.text})),
		s.event("response.reasoning_summary_part.done", s.at(object{"summary_index": 0, "part": summaryText(s.text)})),
	}
}

// response is the response as it stands.
func (s *responsesAnswer) response(status string) object {
	r := object{
		"background": false, "max_output_tokens": nil, "max_tool_calls": nil, "metadata": object{}, "instructions": nil,
		"parallel_tool_calls": true, "previous_response_id": nil, "prompt_cache_key": nil, "safety_identifier": nil,
		"reasoning": object{"effort": nil, "summary": nil}, "service_tier": "default", "temperature": 1.0, "top_p": 1.0,
		"presence_penalty": 0.0, "frequency_penalty": 0.0, "text": object{"format": object{"type": "text"}, "verbosity": "medium"},
		"tool_choice": "auto", "tools": []any{}, "top_logprobs": 0, "truncation": "disabled", "user": nil, "model": nil,
	}
	for name, v := range s.echo {
		if _, echoed := r[name]; echoed && v != nil {
			r[name] = v
		}
	}
	maps.Copy(r, object{
		"id": fmt.Sprintf("resp_script_%d", s.number), "object": "response", "created_at": s.created, "completed_at": nil,
		"status": status, "error": nil, "incomplete_details": nil, "store": s.store, "output": []object{}, "usage": nil,
	})
	if s.output != nil {
		r["output"] = s.output
	}
	return r
}

// final is the response at its end.
func (s *responsesAnswer) final() object {
	status := s.status()
	r := s.response(status)
	if status == "completed" {
		r["completed_at"] = s.created
	}
	if reason := s.incomplete(); reason != "" {
		r["incomplete_details"] = object{"reason": reason}
	}
	r["usage"] = object{
		"input_tokens": s.usage.Input, "input_tokens_details": object{"cached_tokens": 0, "cache_write_tokens": 0},
		"output_tokens": s.usage.Output, "output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens": s.usage.Total,
	}
	return r
}

func (s *responsesAnswer) incomplete() string {
	switch s.stop {
	case model.StopLength:
		return "max_output_tokens"
	case model.StopFilter:
		return "content_filter"
	}
	return ""
}

func (s *responsesAnswer) status() string {
	if s.incomplete() != "" {
		return "incomplete"
	}
	return "completed"
}

func (s *responsesAnswer) end() []sseEvent {
	events := append(s.begin(), s.leave(s.status())...)
	s.d.remember(s)
	return append(events, s.event("response."+s.status(), object{"response": s.final()}))
}

func (s *responsesAnswer) fail(f script.Failure) []sseEvent {
	code := "server_error"
	if f.Status == http.StatusTooManyRequests {
		code = "rate_limit_exceeded"
	}
	r := s.response("failed")
	r["error"] = object{"code": code, "message": f.Words()}
	return []sseEvent{s.event("response.failed", object{"response": r})}
}

func (s *responsesAnswer) whole() []byte { return encode(s.final()) }

// issue remembers the last item of a response that is under way: it was sent, also
// where the response breaks off later.
func (d *responsesDialect) issue(output []object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(output) - 1
	sent := issuedItem{item: output[last]}
	if last > 0 {
		sent.before = output[last-1]
		id := sent.before["id"].(string)
		before := d.issued[id]
		before.after = sent.item
		d.issued[id] = before
	}
	id := sent.item["id"].(string)
	d.issued[id] = sent
	if sealed, ok := sent.item["encrypted_content"].(string); ok {
		d.sealed[sealed] = id
	}
}

// remember stores a response that is complete, if the request asks for it.
func (d *responsesDialect) remember(s *responsesAnswer) {
	if !s.store {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var items []any
	for _, item := range s.output {
		id := item["id"].(string)
		kept := d.issued[id]
		kept.stored = true
		d.issued[id] = kept
		v, _ := decode(encode(item))
		items = append(items, v)
	}
	d.stored[fmt.Sprintf("resp_script_%d", s.number)] = append(d.history(s.request.Previous, s.request.Input), items...)
}

// history returns the items that a request continues: those of a stored response
// and its own. Called with mu held.
func (d *responsesDialect) history(previous string, input json.RawMessage) []any {
	all := append([]any(nil), d.stored[previous]...)
	v, _ := decode(input)
	if items, ok := v.([]any); ok {
		all = append(all, items...)
	}
	return all
}
