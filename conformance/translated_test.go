package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// serveMessages answers POST …/messages, Anthropic's dialect, by the upstream's script.
// The gateway asks it for streams only.
func (u *upstream) serveMessages(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	var asked messagesRequest
	if err := json.Unmarshal(body, &asked); err != nil || asked.MaxTokens == 0 || !asked.Stream || r.Header.Get("X-Api-Key") != upKey || r.Header.Get("Anthropic-Version") == "" {
		writeMessagesError(w, turn{Status: http.StatusBadRequest, Message: "scripted upstream: not a Messages request: " + string(body)})
		return
	}
	seen := recorded{Header: r.Header.Clone(), Body: body, Chat: asked.chat()}
	u.mu.Lock()
	u.seen = append(u.seen, seen)
	u.mu.Unlock()
	answer := u.play(seen.Chat)
	if answer.Status != 0 {
		writeMessagesError(w, answer)
		return
	}
	answer.writeMessages(w, asked.Model)
}

// messagesRequest is a request of the dialect, as far as scripts look.
type messagesRequest struct {
	Model     string `json:"model"`
	MaxTokens int    `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Messages  []struct {
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

// chat returns the request in the form that scripts know.
func (m messagesRequest) chat() chatRequest {
	chat := chatRequest{Model: m.Model}
	for _, t := range m.Tools {
		var o offered
		o.Function.Name = t.Name
		chat.Tools = append(chat.Tools, o)
	}
	for _, message := range m.Messages {
		var blocks []struct {
			Type    string  `json:"type"`
			Content content `json:"content"`
		}
		_ = json.Unmarshal(message.Content, &blocks) // a text has no tool results
		for _, b := range blocks {
			if b.Type == "tool_result" {
				chat.Messages = append(chat.Messages, messageOf("tool", b.Content))
			}
		}
	}
	return chat
}

func messageOf(role string, c content) message { return message{Role: role, Content: c} }

func writeMessagesError(w http.ResponseWriter, m turn) {
	kind := map[int]string{400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}[m.Status]
	if kind == "" {
		kind = "api_error"
	}
	if m.RetryAfter != "" {
		w.Header().Set("Retry-After", m.RetryAfter)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(m.Status)
	_, _ = w.Write(marshal(object{"type": "error", "error": object{"type": kind, "message": m.Message}}))
}

// writeMessages streams the turn as Anthropic does.
func (m turn) writeMessages(w http.ResponseWriter, model string) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(name string, data object) {
		data["type"] = name
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, marshal(data))
		_ = http.NewResponseController(w).Flush()
	}
	send("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []object{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": m.Usage.Prompt, "output_tokens": 1},
	}})
	index := 0
	block := func(start, delta object) {
		send("content_block_start", object{"index": index, "content_block": start})
		send("content_block_delta", object{"index": index, "delta": delta})
	}
	if m.Text != "" {
		block(object{"type": "text", "text": ""}, object{"type": "text_delta", "text": m.Text})
		switch m.Break {
		case "error":
			send("error", object{"error": object{"type": "overloaded_error", "message": m.Message}})
			return
		case "cut":
			panic(http.ErrAbortHandler)
		}
		send("content_block_stop", object{"index": index})
		index++
	}
	stop := "end_turn"
	for _, c := range m.Calls {
		stop = "tool_use"
		block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, object{"type": "input_json_delta", "partial_json": c.Arguments})
		send("content_block_stop", object{"index": index})
		index++
	}
	send("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": m.Usage.Completion}})
	send("message_stop", object{})
}

// clientLoopInMessages is clientLoopScript with ids that this dialect accepts.
func clientLoopInMessages(ask chatRequest) turn {
	kind := strings.TrimPrefix(ask.Model, "claude-")
	if status, err := strconv.Atoi(kind); err == nil {
		return turn{Status: status, Message: "the scripted provider says " + kind, RetryAfter: "7"}
	}
	if how, found := strings.CutPrefix(kind, "break-"); found {
		return turn{Text: "It was a dark and stormy", Break: how, Message: "the scripted provider broke"}
	}
	answer := clientLoopScript(ask)
	for i := range answer.Calls {
		answer.Calls[i].ID = "toolu_" + strconv.Itoa(i)
	}
	return answer
}

// testTranslatedRelay: the loop is off, the provider is Anthropic, and the official
// clients of OpenAI notice neither.
func testTranslatedRelay(t *testing.T, s *site) { // A14
	r := s.newRig(t, clientLoopInMessages)
	const called = `{ "place":"Łódź – <old town>" }`
	eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
		question := r.ask("claude-test", "What time is it in Łódź? 🕰", stream)
		question.Key = plainKey
		question.Request["tools"] = []object{clientTool(localTimeTool)}
		got := answer(t, c, question)
		wantEqual(t, "text", "Let me see.", got.Text)
		wantEqual(t, "tool calls", []seenCall{{"toolu_0", localTimeTool, called}}, got.ToolCalls)
		wantEqual(t, "finish reasons", []string{"tool_calls"}, got.FinishReasons)
		wantEqual(t, "usage", &usage{12, 8, 20}, got.Usage)

		question.Request["messages"] = []object{
			{"role": "user", "content": "What time is it in Łódź? 🕰"},
			{"role": "assistant", "content": got.Text, "tool_calls": []object{{"id": "toolu_0", "type": "function", "function": object{"name": localTimeTool, "arguments": called}}}},
			{"role": "tool", "tool_call_id": "toolu_0", "content": "noon"},
		}
		got = answer(t, c, question)
		wantEqual(t, "text after the result", "It is noon.", got.Text)
		wantEqual(t, "finish reasons", []string{"stop"}, got.FinishReasons)
		wantEqual(t, "requests at the upstream", 2, len(r.upstream.take()))
	})
	for _, failed := range []errorCase{
		{name: "400", status: 400, node: "BadRequestError", code: "invalid_request_error"},
		{name: "429", status: 429, node: "RateLimitError", code: "rate_limit_error", retry: "7"},
		{name: "500", status: 500, node: "InternalServerError", code: "api_error"},
		{name: "529", status: 529, node: "InternalServerError", code: "overloaded_error", retry: "7"},
	} {
		failed.message = "provider says " + failed.name
		failed.ask = func(r *rig) ask {
			question := r.ask("claude-"+failed.name, "Hello?", false)
			question.Key = plainKey
			return question
		}
		eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
			t.Run("status "+failed.name, func(t *testing.T) { failed.check(t, r, c, stream) })
		})
	}
	r.upstream.take()
	for _, how := range []string{"error", "cut"} {
		for _, c := range r.clients {
			t.Run("upstream ends with "+how+" in "+c.name(), func(t *testing.T) {
				question := r.ask("claude-break-"+how, "Tell me a story.", true)
				question.Key, question.NoRetries = plainKey, true
				got := run(t, c, question)
				wantEqual(t, "text before the failure", "It was a dark and stormy", got.Text)
				if got.Error == nil {
					t.Fatal("no error was raised")
				}
				wantEqual(t, "class", map[string]string{"Node": "APIError", "Go": "ssestream.StreamError"}[c.name()], got.Error.Class)
				wantEqual(t, "requests at the upstream", 1, len(r.upstream.take()))
			})
		}
	}
}
