package bedrock

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

type message = wire.Message[block]

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
	// attached is the text of a message that has documents and no text, which the
	// dialect refuses.
	attached = "(A document is attached.)"
	// empty is the text of a tool result without content, which the dialect refuses.
	empty = "(empty)"
)

// messages sets the system text and the messages of the transcript.
func (t *translation) messages() {
	w := &writer{t, map[string]bool{}}
	limits := wire.BinaryLimits{Data: maxRequestData, Images: maxImages, Documents: maxDocuments}
	d := wire.Dialogue[block]{
		Blocks: w, Losses: &t.Losses, Marks: t.marks, Request: t.req, Dialect: model.DialectBedrock,
		IDs: t.traits.callIDs(), FirstShown: limits.FirstShown(t.req.Items),
	}
	items := t.req.Items
	if t.traits.vendor == anthropicModel {
		items = wire.WithoutLastSpace(items)
	}
	d.Write(items)
	for i := range d.Messages {
		d.Messages[i].Content = withText(d.Messages[i].Content)
	}
	t.System, t.Messages = d.System, d.Messages
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

// writer writes blocks. It implements wire.Blocks.
type writer struct {
	*translation
	names map[string]bool // of documents, each of which may be there once
}

func (w *writer) Text(text string) block { return block{Text: text} }

func (w *writer) Native(raw json.RawMessage) block { return block{raw: raw} }

func (w *writer) Call(id string, it *item.Item) block {
	return block{ToolUse: &toolUse{ID: id, Name: it.Name, Input: wire.Input(it.Arguments)}}
}

func (w *writer) Result(id string, it *item.Item, content []block) block {
	r := &toolResult{ID: id, Content: content}
	if it.IsError && w.traits.status {
		r.Status = "error"
	}
	if len(content) == 0 {
		r.Content = []block{{Text: empty}}
	}
	return block{ToolResult: r}
}

func (w *writer) Marked(blocks []block, c *item.Cache) []block {
	return append(blocks, block{CachePoint: w.cachePoint(c)})
}
