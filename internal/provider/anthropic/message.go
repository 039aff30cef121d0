package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// message is an entry of messages. Roles alternate, beginning with the user.
type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"` // blocks, and blocks of the provider as JSON
}

// block is a block of content that the gateway writes.
type block struct {
	Type      string  `json:"type"`
	Text      string  `json:"text,omitempty"`
	ID        string  `json:"id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Input     any     `json:"input,omitempty"`
	ToolUseID string  `json:"tool_use_id,omitempty"`
	Content   []any   `json:"content,omitempty"`
	IsError   bool    `json:"is_error,omitempty"`
	Source    *source `json:"source,omitempty"`
	Title     string  `json:"title,omitempty"`

	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

// begin is the text of the user's first message for a transcript that begins with a
// message of the model, or has only system messages. The dialect requires a message of
// the user.
const begin = "(The conversation begins with your message.)"

// messages sets the system text and the messages of the transcript. Adjacent items
// of one side become one message; the results of a turn with several calls come back
// in one, as the dialect demands.
func (t *translation) messages() {
	w := writer{translation: t, ids: wire.CallIDs{Allowed: inCallID}, maxPixels: pixelLimit(t.req.Items), firstShown: firstShown(t.req.Items)}
	items := wire.WithoutLastSpace(t.req.Items)
	unit := -1
	for i := range items {
		it := &items[i]
		if wire.BeginsMessage(items, i) {
			unit++
		}
		w.unit = unit
		t.Drop(t.req.NameOf(model.MemberItemName), it.Kind == item.Message && it.Name != "")
		switch {
		case it.Kind == item.Message && (it.Role == item.System || it.Role == item.Developer):
			t.System = append(t.System, w.texts(it)...)
		case it.Kind == item.ToolResult:
			w.add("user", w.result(it, i >= w.firstShown))
		case it.Kind == item.Message && it.Role != item.Assistant:
			w.add("user", w.contents(it)...)
		default:
			t.Drop(t.req.NameOf(model.MemberItems), it.Kind == item.Other && it.Native.Dialect == t.req.Dialect)
			w.add("assistant", w.said(it)...)
		}
	}
	if len(w.out) == 0 || w.out[0].Role == "assistant" {
		w.out = append([]message{{"user", []any{block{Type: "text", Text: begin}}}}, w.out...)
	}
	t.Messages = w.out
}

// writer collects messages.
type writer struct {
	*translation
	unit int // the index of the message in the client's request
	out  []message

	ids wire.CallIDs

	maxPixels  int // of one side of an image
	firstShown int // index of the first item whose result is sent with binary content
}

// add appends blocks to the last message, or begins another one.
func (w *writer) add(role string, blocks ...any) {
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
func (w *writer) said(it *item.Item) []any {
	raw := native(*it)
	switch it.Kind {
	case item.ToolCall:
		id := w.ids.Call(it.CallID)
		if raw != nil && id == it.CallID {
			return []any{raw}
		}
		return []any{block{Type: "tool_use", ID: id, Name: it.Name, Input: wire.Input(it.Arguments)}}
	case item.Message:
		if raw != nil {
			return []any{raw}
		}
		return w.texts(it)
	}
	if raw == nil {
		return nil
	}
	return []any{raw}
}

// native returns the block as this dialect wrote it; nil if it did not.
func native(it item.Item) json.RawMessage {
	if it.Native.Dialect != model.DialectAnthropic {
		return nil
	}
	return it.Native.JSON
}

// inCallID reports whether the dialect allows a character in the id of a call.
func inCallID(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// texts returns the text parts and refusals as blocks. Empty ones are refused.
func (w *writer) texts(it *item.Item) []any {
	var out []any
	for _, p := range it.Parts {
		text := p.Kind == item.Text || p.Kind == item.Refusal
		w.Drop(w.req.NameOfPart(it, p.Kind), !text)
		if mark := w.mark(p.Cache); text && strings.TrimSpace(p.Text) != "" {
			out = append(out, block{Type: "text", Text: p.Text, CacheControl: mark})
		} else {
			w.Drop("cache_control", mark != nil)
		}
	}
	return out
}

// contents returns the parts of a user's message as blocks. What the dialect cannot
// take is refused.
func (w *writer) contents(it *item.Item) []any {
	var out []any
	for i, p := range it.Parts {
		mark := w.mark(p.Cache)
		b, problem := w.blockOf(p)
		switch {
		case p.Kind == item.Audio:
			w.Drop(w.req.NameOfPart(it, p.Kind), true)
			b = block{Type: "text", Text: p.Describe()}
		case problem != "":
			w.Refuse(wire.PlaceOf(w.req, w.unit, it, i), problem)
		case b.Type == "": // an empty text, which is refused
			w.Drop("cache_control", mark != nil)
			continue
		}
		w.Drop(w.req.NameOf(model.MemberDetail), b.Type == "image" && p.Detail != "" && p.Detail != "auto")
		b.CacheControl = mark
		out = append(out, b)
	}
	return out
}
