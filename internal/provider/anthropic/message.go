package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
)

// message is an entry of messages. Roles alternate, beginning with the user.
type message struct {
	Role    string            `json:"role"`
	Content []json.RawMessage `json:"content"`
}

// block is a block of content that the gateway writes.
type block struct {
	Type      string            `json:"type"`
	Text      string            `json:"text,omitempty"`
	ID        string            `json:"id,omitempty"`
	Name      string            `json:"name,omitempty"`
	Input     json.RawMessage   `json:"input,omitempty"`
	ToolUseID string            `json:"tool_use_id,omitempty"`
	Content   []json.RawMessage `json:"content,omitempty"`
	IsError   bool              `json:"is_error,omitempty"`
	Source    *source           `json:"source,omitempty"`
	Title     string            `json:"title,omitempty"`
}

// source is where the bytes of an image or a document are.
type source struct {
	Type      string `json:"type"` // base64, url, text or file
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
	FileID    string `json:"file_id,omitempty"`
}

// begin stands for the user's first message where a transcript begins with the
// model's: the dialect demands one.
const begin = "(The conversation begins with your message.)"

// messages returns the system text and the messages of a transcript. Adjacent
// items of one side become one message; the results of a turn with several calls
// come back in one, as the dialect demands.
func messages(items []item.Item) (system []json.RawMessage, out []message) {
	w := writer{ids: map[string][]string{}, used: map[string]bool{}}
	for i := range items {
		it := &items[i]
		switch {
		case it.Kind == item.Message && (it.Role == item.System || it.Role == item.Developer):
			system = append(system, texts(it.Parts)...)
		case it.Kind == item.ToolResult:
			w.add("user", encoded(w.result(it)))
		case it.Kind == item.Message && it.Role != item.Assistant:
			w.add("user", contents(it.Parts)...)
		default:
			w.add("assistant", w.said(it)...)
		}
	}
	if len(w.out) > 0 && w.out[0].Role == "assistant" {
		w.out = append([]message{{"user", []json.RawMessage{encoded(block{Type: "text", Text: begin})}}}, w.out...)
	}
	return system, w.out
}

// writer collects messages.
type writer struct {
	out []message

	// ids are the ids under which calls were written, by the transcript's id: the
	// dialect allows few characters, and an id once.
	ids  map[string][]string
	used map[string]bool
}

// add appends blocks to the last message, or begins another one.
func (w *writer) add(role string, blocks ...json.RawMessage) {
	if len(blocks) == 0 {
		return
	}
	if n := len(w.out); n > 0 && w.out[n-1].Role == role {
		w.out[n-1].Content = append(w.out[n-1].Content, blocks...)
		return
	}
	w.out = append(w.out, message{role, blocks})
}

// said returns the blocks of what the model said. Reasoning and other blocks that
// only another dialect understands have no place here.
func (w *writer) said(it *item.Item) []json.RawMessage {
	raw := native(*it)
	switch it.Kind {
	case item.ToolCall:
		id := w.callID(it.CallID)
		if raw != nil && id == it.CallID {
			return []json.RawMessage{raw}
		}
		return []json.RawMessage{encoded(block{Type: "tool_use", ID: id, Name: it.Name, Input: input(it.Arguments)})}
	case item.Message:
		if raw != nil {
			return []json.RawMessage{raw}
		}
		return texts(it.Parts)
	}
	if raw == nil {
		return nil
	}
	return []json.RawMessage{raw}
}

// native returns the block as this dialect wrote it; nil if it did not.
func native(it item.Item) json.RawMessage {
	if it.Native.Dialect != Dialect {
		return nil
	}
	return it.Native.JSON
}

// callID returns the id under which a call is written.
func (w *writer) callID(id string) string {
	written := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
	for n := len(w.used); written == "" || w.used[written]; n++ {
		written = fmt.Sprintf("call_%d", n)
	}
	w.used[written] = true
	w.ids[id] = append(w.ids[id], written)
	return written
}

// resultID returns the id of the call that a result answers: the first with that
// id that has no result.
func (w *writer) resultID(id string) string {
	written := w.ids[id]
	if len(written) == 0 {
		return id
	}
	w.ids[id] = written[1:]
	return written[0]
}

func (w *writer) result(it *item.Item) block {
	return block{Type: "tool_result", ToolUseID: w.resultID(it.CallID), Content: contents(it.Parts), IsError: it.IsError}
}

// input returns the arguments of a call as an object. Arguments that are none
// were answered with an error; they are shown as they were.
func input(arguments string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) == nil && object != nil {
		return json.RawMessage(arguments)
	}
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage(`{}`)
	}
	return encoded(map[string]string{"invalid_json": arguments})
}

// texts returns the text parts and refusals as blocks. Empty ones are refused.
func texts(parts []item.Part) []json.RawMessage {
	var out []json.RawMessage
	for _, p := range parts {
		if (p.Kind == item.Text || p.Kind == item.Refusal) && strings.TrimSpace(p.Text) != "" {
			out = append(out, encoded(block{Type: "text", Text: p.Text}))
		}
	}
	return out
}

// contents returns the parts of a user's message or of a result as blocks.
func contents(parts []item.Part) []json.RawMessage {
	var out []json.RawMessage
	for _, p := range parts {
		switch {
		case p.Kind == item.Text || p.Kind == item.Refusal:
			out = append(out, texts([]item.Part{p})...)
		case p.Kind == item.Image:
			out = append(out, encoded(block{Type: "image", Source: sourceOf(p)}))
		case p.Kind == item.File && p.Text == "":
			out = append(out, encoded(block{Type: "document", Source: sourceOf(p), Title: p.Name}))
		case p.Text != "": // a resource, or a file that is text
			out = append(out, encoded(block{Type: "text", Text: p.Text}))
		default:
			out = append(out, encoded(block{Type: "text", Text: fmt.Sprintf("[%s %s: not shown, this model does not take it]", p.Kind, p.MIMEType)}))
		}
	}
	return out
}

// sourceOf returns where a part's bytes are: a data URL is taken apart.
func sourceOf(p item.Part) *source {
	url := p.URL
	if strings.HasPrefix(p.Data, "data:") { // the chat dialect's file_data
		url = p.Data
	}
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		kind, data, _ := strings.Cut(rest, ",")
		return bytesOf(strings.TrimSuffix(kind, ";base64"), data)
	}
	switch {
	case p.FileID != "":
		return &source{Type: "file", FileID: p.FileID}
	case p.URL != "":
		return &source{Type: "url", URL: p.URL}
	}
	return bytesOf(p.MIMEType, p.Data)
}

func bytesOf(mime, data string) *source {
	return &source{Type: "base64", MediaType: mime, Data: data}
}

// encoded returns v as JSON without escapes for HTML.
func encoded(v any) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return json.RawMessage(`{}`) // strings and raw JSON that was checked: cannot fail
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}
