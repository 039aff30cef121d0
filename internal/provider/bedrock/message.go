package bedrock

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// message is an entry of messages. Roles alternate, beginning with the user.
type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a block of content: one of its members, or JSON as the provider wrote it.
type block struct {
	Text       string      `json:"text,omitempty"`
	Image      *media      `json:"image,omitempty"`
	Document   *media      `json:"document,omitempty"`
	ToolUse    *toolUse    `json:"toolUse,omitempty"`
	ToolResult *toolResult `json:"toolResult,omitempty"`
	CachePoint *cachePoint `json:"cachePoint,omitempty"`

	raw json.RawMessage // instead of all others
}

// MarshalJSON implements [json.Marshaler].
func (b block) MarshalJSON() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	type plain block
	return wire.AsJSON(plain(b)), nil
}

type toolUse struct {
	ID    string     `json:"toolUseId"`
	Name  string     `json:"name"`
	Input wire.Input `json:"input"`
}

type toolResult struct {
	ID      string  `json:"toolUseId"`
	Content []block `json:"content"`
	Status  string  `json:"status,omitempty"` // error; "" = success
}

// cachePoint ends a part of the prompt that the provider caches.
type cachePoint struct {
	Type string `json:"type"` // default
	TTL  string `json:"ttl,omitempty"`
}

const (
	// begin is the text of the user's first message for a transcript that begins with a
	// message of the model, or has only system messages. The dialect requires a message
	// of the user.
	begin = "(The conversation begins with your message.)"
	// attached is the text of a message that has documents and no text, which the
	// dialect refuses.
	attached = "(A document is attached.)"
	// empty is the text of a tool result without content, which the dialect refuses.
	empty = "(empty)"
)

// messages sets the system text and the messages of the transcript. Adjacent items of one
// side become one message; the results of a turn with several calls come back in one, as
// the dialect demands.
func (t *translation) messages() {
	w := writer{translation: t, ids: t.traits.callIDs(), names: map[string]bool{}, firstShown: firstShown(t.req.Items)}
	items := t.req.Items
	if t.traits.vendor == anthropicModel {
		items = wire.WithoutLastSpace(items)
	}
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
			w.add("user", w.result(it, i >= w.firstShown)...)
		case it.Kind == item.Message && it.Role != item.Assistant:
			w.add("user", w.contents(it)...)
		default:
			t.Drop(t.req.NameOf(model.MemberItems), it.Kind == item.Other && it.Native.Dialect == t.req.Dialect)
			w.add("assistant", w.said(it)...)
		}
	}
	if len(w.out) == 0 || w.out[0].Role == "assistant" {
		w.out = append([]message{{"user", []block{{Text: begin}}}}, w.out...)
	}
	for i := range w.out {
		w.out[i].Content = withText(w.out[i].Content)
	}
	t.Messages = w.out
}

// withText returns the blocks of a message with a text, if they have a document and none.
func withText(blocks []block) []block {
	document := false
	for _, b := range blocks {
		if b.Text != "" {
			return blocks
		}
		document = document || b.Document != nil
	}
	if !document {
		return blocks
	}
	return append(blocks, block{Text: attached})
}

// writer collects messages.
type writer struct {
	*translation
	unit int // the index of the message in the client's request
	out  []message

	ids   wire.CallIDs
	names map[string]bool // of documents, each of which may be there once

	firstShown int // index of the first item whose result is sent with binary content
}

// add appends blocks to the last message, or begins another one.
func (w *writer) add(role string, blocks ...block) {
	if len(blocks) == 0 {
		return
	}
	if n := len(w.out); n > 0 && w.out[n-1].Role == role {
		w.out[n-1].Content = append(w.out[n-1].Content, blocks...)
		return
	}
	w.out = append(w.out, message{role, blocks})
}

// said returns the blocks of what the model said. Reasoning and other blocks that only
// another dialect understands have no place here.
func (w *writer) said(it *item.Item) []block {
	raw := native(it)
	switch it.Kind {
	case item.ToolCall:
		id := w.ids.Call(it.CallID)
		if raw != nil && id == it.CallID {
			return []block{{raw: raw}}
		}
		return []block{{ToolUse: &toolUse{ID: id, Name: it.Name, Input: wire.Input(it.Arguments)}}}
	case item.Message:
		if raw != nil {
			return []block{{raw: raw}}
		}
		return w.texts(it)
	}
	if raw == nil {
		return nil
	}
	return []block{{raw: raw}}
}

// texts returns the text parts and refusals as blocks. Empty ones are refused.
func (w *writer) texts(it *item.Item) []block {
	var out []block
	for _, p := range it.Parts {
		text := p.Kind == item.Text || p.Kind == item.Refusal
		w.Drop(w.req.NameOfPart(it, p.Kind), !text)
		mark := w.mark(p.Cache)
		if !text || strings.TrimSpace(p.Text) == "" {
			w.Drop("cache_control", mark != nil)
			continue
		}
		out = marked(out, block{Text: p.Text}, mark)
	}
	return out
}

// marked appends a block, and the cache point after it if there is one.
func marked(out []block, b block, mark *block) []block {
	out = append(out, b)
	if mark != nil {
		out = append(out, *mark)
	}
	return out
}

// contents returns the parts of a user's message as blocks. What the dialect cannot take
// is refused.
func (w *writer) contents(it *item.Item) []block {
	var out []block
	for i, p := range it.Parts {
		mark := w.mark(p.Cache)
		b, problem := w.blockOf(p)
		switch {
		case p.Kind == item.Audio:
			w.Drop(w.req.NameOfPart(it, p.Kind), true)
			b = block{Text: p.Describe()}
		case problem != "":
			w.Refuse(wire.PlaceOf(w.req, w.unit, it, i), problem)
			continue
		case b.Text == "" && b.Image == nil && b.Document == nil: // an empty text, which is refused
			w.Drop("cache_control", mark != nil)
			continue
		}
		w.Drop(w.req.NameOf(model.MemberDetail), b.Image != nil && p.Detail != "" && p.Detail != "auto")
		out = marked(out, b, mark)
	}
	return out
}
