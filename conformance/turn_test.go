package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// turn is what the scripted model answers to one call.
type turn struct {
	Text  string
	Calls []seenCall
	Usage usage
	Hold  *gate  // when set, a streamed turn stops behind its text until the gate opens
	Break string // how a streamed turn ends behind its text: "" well, "error" with an error member, "cut" with a lost connection
	Piece int    // bytes per write of a streamed turn; 0 = one event per write

	Status     int    // when set, the answer is this status with an error of OpenAI's shape
	Message    string // the error's message
	RetryAfter string // the error's Retry-After header
}

// usage counts tokens as the chat-completions dialect does.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func tokens(prompt, completion int) usage {
	return usage{Prompt: prompt, Completion: completion, Total: prompt + completion}
}

// seenCall is a tool call without the wrapping of the wire.
type seenCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// object is a JSON object that is written by hand.
type object = map[string]any

func (m turn) finishReason() string {
	if len(m.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

func (m turn) errorBody() []byte {
	return marshal(object{"error": object{"message": m.Message, "type": "scripted_error", "param": nil, "code": fmt.Sprint("scripted_", m.Status)}})
}

// completion is the turn as one JSON answer.
func (m turn) completion(model string) []byte {
	message := object{"role": "assistant", "content": nil}
	if m.Text != "" {
		message["content"] = m.Text
	}
	if len(m.Calls) > 0 {
		var calls []object
		for _, c := range m.Calls {
			calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}})
		}
		message["tool_calls"] = calls
	}
	return marshal(object{
		"id": "chatcmpl-scripted", "object": "chat.completion", "created": 1700000000, "model": model,
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": m.finishReason()}},
		"usage":   m.Usage,
	})
}

// events is the turn as server-sent events: those up to the end of its text, and
// the rest.
func (m turn) events(model string, withUsage bool) (head, rest [][]byte) {
	chunk := func(choices []object, used any) []byte {
		fields := object{"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1700000000, "model": model, "choices": choices}
		if withUsage {
			fields["usage"] = used
		}
		return event(marshal(fields))
	}
	delta := func(delta object, finish any) []byte {
		return chunk([]object{{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
	}
	head = append(head, delta(object{"role": "assistant", "content": ""}, nil))
	for part := range chunked(m.Text, 4) {
		head = append(head, delta(object{"content": part}, nil))
	}
	for i, c := range m.Calls {
		first := object{"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""}}
		rest = append(rest, delta(object{"tool_calls": []object{first}}, nil))
		for part := range chunked(c.Arguments, 5) {
			rest = append(rest, delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": part}}}}, nil))
		}
	}
	rest = append(rest, delta(object{}, m.finishReason()))
	if withUsage {
		rest = append(rest, chunk([]object{}, m.Usage))
	}
	return head, append(rest, event([]byte("[DONE]")))
}

// chunked yields text in parts of size characters.
func chunked(text string, size int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		runes := []rune(text)
		for len(runes) > 0 {
			n := min(size, len(runes))
			if !yield(string(runes[:n])) {
				return
			}
			runes = runes[n:]
		}
	}
}

// write answers a request for the turn.
func (m turn) write(w http.ResponseWriter, r *http.Request, ask chatRequest) {
	switch {
	case m.Status != 0:
		if m.RetryAfter != "" {
			w.Header().Set("Retry-After", m.RetryAfter)
		}
		writeJSON(w, m.Status, m.errorBody())
	case !ask.Stream:
		if m.Hold == nil || m.Hold.pass(r.Context()) {
			writeJSON(w, http.StatusOK, m.completion(ask.Model))
		}
	default:
		m.stream(w, r, ask)
	}
}

func (m turn) stream(w http.ResponseWriter, r *http.Request, ask chatRequest) {
	w.Header().Set("Content-Type", "text/event-stream")
	head, rest := m.events(ask.Model, ask.StreamOptions.IncludeUsage)
	m.send(w, head)
	if m.Hold != nil && !m.Hold.pass(r.Context()) {
		return
	}
	switch m.Break {
	case "error":
		m.send(w, [][]byte{event(m.errorBody())})
	case "cut":
		panic(http.ErrAbortHandler) // the documented way to cut the connection
	default:
		m.send(w, rest)
	}
}

// send writes and flushes event by event, or in pieces of m.Piece bytes that
// regard neither events nor characters.
func (m turn) send(w http.ResponseWriter, events [][]byte) {
	pieces := events
	if m.Piece > 0 {
		pieces = nil
		for all := bytes.Join(events, nil); len(all) > 0; {
			n := min(m.Piece, len(all))
			pieces = append(pieces, all[:n])
			all = all[n:]
		}
	}
	flusher := http.NewResponseController(w)
	for _, piece := range pieces {
		if _, err := w.Write(piece); err != nil {
			return
		}
		_ = flusher.Flush()
	}
}

func event(data []byte) []byte { return fmt.Appendf(nil, "data: %s\n\n", data) }

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// marshal encodes what is always encodable. It leaves < > & as they are, as
// providers do.
func marshal(value any) []byte {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return []byte(strings.TrimSuffix(out.String(), "\n"))
}
