package upstreamtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/model"
)

// geminiDialect is both methods of Google's generateContent API. It remembers what it
// sent, so that a request can be checked against it.
type geminiDialect struct {
	model   string // of the request
	streams bool   // the request asks for a stream
	*geminiMemory
}

// geminiMemory is what was sent.
type geminiMemory struct {
	mu     sync.Mutex             // guards what follows
	signed map[string]*geminiTurn // by thought signature
}

// geminiTurn is one answer as it was sent. Its parts are guarded by the memory's mu.
type geminiTurn struct{ parts []object }

const (
	generate       = ":generateContent"
	streamGenerate = ":streamGenerateContent"
)

func newGemini() geminiDialect {
	return geminiDialect{geminiMemory: &geminiMemory{signed: map[string]*geminiTurn{}}}
}

func (geminiDialect) path() string { return generate }

// serves implements inPath.
func (geminiDialect) serves(path string) bool {
	return strings.HasSuffix(path, generate) || strings.HasSuffix(path, streamGenerate)
}

// at implements inPath.
func (d geminiDialect) at(path string) dialect {
	method := path[strings.LastIndex(path, ":"):]
	d.model, d.streams = strings.TrimSuffix(path[strings.LastIndex(path, "/")+1:], method), method == streamGenerate
	return d
}

// ask implements inPath.
func (d geminiDialect) ask(a *asked) { a.Model, a.Stream = d.model, d.streams }

func (geminiDialect) name() string { return "gemini" }

// geminiStatus returns the canonical code of an error by its HTTP status, from
// https://ai.google.dev/gemini-api/docs/troubleshooting.
func geminiStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusConflict:
		return "ABORTED"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	case http.StatusInternalServerError:
		return "INTERNAL"
	}
	if status >= 500 {
		return "UNAVAILABLE"
	}
	return "INVALID_ARGUMENT"
}

func geminiErrorBody(f script.Failure) []byte {
	e := object{"code": f.Status, "message": f.Words(), "status": geminiStatus(f.Status)}
	if f.RetryAfter > 0 {
		e["details"] = []object{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fmt.Sprintf("%ds", f.RetryAfter)}}
	}
	return encode(object{"error": e})
}

// failed returns an error, which says only in its body how long to wait.
func (geminiDialect) failed(f script.Failure) (http.Header, []byte) {
	header := f.Header()
	header.Del("Retry-After")
	return header, geminiErrorBody(f)
}

func (geminiDialect) refuse(r refusal) []byte {
	return geminiErrorBody(script.Failure{Status: http.StatusBadRequest, Message: r.message})
}

func (d geminiDialect) answer(number int, a asked, t script.Turn) answer {
	return &geminiAnswer{d: d, number: number, model: a.Model, usage: t.Usage(), turn: &geminiTurn{}}
}

// geminiAnswer is one answer.
type geminiAnswer struct {
	d      geminiDialect
	number int
	model  string
	usage  model.Usage
	turn   *geminiTurn

	pending *model.Call // a call that was made and is not sent
	open    *model.Call // a call that was sent in part
	thought bool        // the turn has reasoning
	called  bool        // a call has the signature of the turn
	refused bool
	stop    model.Stop
}

func (s *geminiAnswer) take(st script.Step) []sseEvent {
	switch st.Verb {
	case script.SayText, script.SayRefusal:
		s.refused = s.refused || st.Verb == script.SayRefusal
		return append(s.leave(), s.say(object{"text": st.Text}))
	case script.SayReasoning:
		s.thought = true
		if st.Text == "" { // reasoning that the provider hides
			return append(s.leave(), s.say(object{"text": "", "thoughtSignature": s.seal("hidden")}))
		}
		return append(s.leave(), s.say(object{"thought": true, "text": st.Text}))
	case script.MakeCall:
		events := s.leave()
		if st.Call.Arguments != "" && !json.Valid([]byte(st.Call.Arguments)) {
			s.open = &st.Call
			return append(events, s.event(s.callPart(object{"name": st.Call.Name, "willContinue": true}, st.Call), ""))
		}
		s.pending = &st.Call
		return events
	case script.SetStop:
		s.stop = st.Stop
	}
	return nil
}

// callPart is a call. The first of a turn has the signature.
func (s *geminiAnswer) callPart(f object, c model.Call) object {
	if c.ID != "" {
		f["id"] = c.ID
	}
	part := object{"functionCall": f}
	if !s.called {
		part["thoughtSignature"] = s.seal("call")
	}
	return part
}

// leave sends the call that was made, or the end of one that was sent in part: the
// arguments that are not an object.
func (s *geminiAnswer) leave() []sseEvent {
	switch {
	case s.pending != nil:
		c := *s.pending
		s.pending = nil
		f := object{"name": c.Name, "args": inputOf(c.Arguments)}
		part := s.callPart(f, c)
		s.called = true
		return []sseEvent{s.say(part)}
	case s.open != nil:
		c := *s.open
		s.open = nil
		sent := s.callPart(object{"name": c.Name, "args": object{"invalid_json": c.Arguments}}, c) // as it comes back
		s.called = true
		s.d.remember(s.turn, sent)
		return []sseEvent{s.event(object{"functionCall": object{"args": c.Arguments}}, "")}
	}
	return nil
}

// seal returns opaque bytes that no other part of the story has.
func (s *geminiAnswer) seal(text string) string { return seal(s.number, len(s.turn.parts), text) }

// say sends a part and remembers it.
func (s *geminiAnswer) say(part object) sseEvent {
	s.d.remember(s.turn, part)
	return s.event(part, "")
}

// event is a chunk with a part, or with the reason of the end.
func (s *geminiAnswer) event(part object, reason string) sseEvent {
	var parts []object
	if part != nil {
		parts = []object{part}
	}
	return sseEvent{data: encode(s.chunk(parts, reason))}
}

func (s *geminiAnswer) chunk(parts []object, reason string) object {
	candidate := object{"content": object{"parts": parts, "role": "model"}, "index": 0}
	usage := object{"promptTokenCount": s.usage.Input, "totalTokenCount": s.usage.Input, "promptTokensDetails": []object{{"modality": "TEXT", "tokenCount": s.usage.Input}}}
	if parts == nil {
		candidate["content"] = object{}
	}
	if reason != "" {
		candidate["finishReason"] = reason
		usage["candidatesTokenCount"], usage["totalTokenCount"] = s.usage.Output, s.usage.Total
	}
	return object{"candidates": []object{candidate}, "usageMetadata": usage, "modelVersion": s.model, "responseId": fmt.Sprintf("script-%d", s.number)}
}

func (s *geminiAnswer) end() []sseEvent {
	var events []sseEvent
	if s.stop != model.StopLength || s.pending != nil {
		events = s.leave()
	}
	if s.thought && !s.called && s.open == nil { // the signature of a text comes after it
		part := object{"text": "", "thoughtSignature": s.seal("text")}
		s.d.remember(s.turn, part)
		return append(events, s.event(part, s.reason()))
	}
	return append(events, s.event(nil, s.reason()))
}

func (s *geminiAnswer) reason() string {
	switch {
	case s.stop == model.StopLength:
		return "MAX_TOKENS"
	case s.stop == model.StopFilter, s.stop == "" && s.refused:
		return "SAFETY"
	}
	return "STOP"
}

func (s *geminiAnswer) fail(f script.Failure) []sseEvent {
	return []sseEvent{{data: geminiErrorBody(f)}}
}

// whole is the answer as one object, with adjacent texts joined.
func (s *geminiAnswer) whole() []byte {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return encode(s.chunk(geminiJoined(s.turn.parts), s.reason()))
}

// geminiJoined joins adjacent texts, and adjacent thoughts, that have no signature.
func geminiJoined(parts []object) []object {
	var out []object
	for _, p := range parts {
		text, isText := p["text"].(string)
		n := len(out) - 1
		before := ""
		if isText = isText && n >= 0 && p["thoughtSignature"] == nil && out[n]["thoughtSignature"] == nil && out[n]["thought"] == p["thought"]; isText {
			before, isText = out[n]["text"].(string)
		}
		if isText {
			joined := object{"text": before + text}
			if p["thought"] != nil {
				joined["thought"] = p["thought"]
			}
			out[n] = joined
			continue
		}
		out = append(out, p)
	}
	return out
}

// remember adds a part to a turn.
func (m *geminiMemory) remember(t *geminiTurn, part object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.parts = append(t.parts, part)
	if signature, ok := part["thoughtSignature"].(string); ok {
		m.signed[signature] = t
	}
}
