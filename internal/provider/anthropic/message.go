package anthropic

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// block is a block of content that the gateway writes.
type block struct {
	Type      string  `json:"type"`
	Text      string  `json:"text,omitempty"`
	ID        string  `json:"id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Input     any     `json:"input,omitempty"`
	ToolUseID string  `json:"tool_use_id,omitempty"`
	Content   []any   `json:"content,omitempty"` // blocks, and blocks of the provider as JSON
	IsError   bool    `json:"is_error,omitempty"`
	Source    *source `json:"source,omitempty"`
	Title     string  `json:"title,omitempty"`

	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

// messages sets the system text and the messages of the transcript.
func (t *translation) messages() {
	w := &writer{t, pixelLimit(t.req.Items)}
	limits := wire.BinaryLimits{Data: maxRequestData, Images: maxImages}
	d := wire.Dialogue[any]{
		Blocks: w, Losses: &t.Losses, Marks: t.marks, Request: t.req, Dialect: model.DialectAnthropic,
		IDs: wire.CallIDs{Allowed: wire.IsWord}, FirstShown: limits.FirstShown(t.req.Items),
	}
	d.Write(wire.WithoutLastSpace(t.req.Items))
	t.System, t.Messages = d.System, d.Messages
}

// writer writes blocks. It implements wire.Blocks.
type writer struct {
	*translation
	maxPixels int // of one side of an image
}

func (w *writer) Text(text string) any { return block{Type: "text", Text: text} }

func (w *writer) Native(raw json.RawMessage) any { return raw }

func (w *writer) Call(id string, it *item.Item) any {
	return block{Type: "tool_use", ID: id, Name: it.Name, Input: wire.Input(it.Arguments)}
}

func (w *writer) Result(id string, it *item.Item, content []any) any {
	return block{Type: "tool_result", ToolUseID: id, IsError: it.IsError, Content: content}
}

func (w *writer) Marked(blocks []any, c *item.Cache) []any {
	b := blocks[len(blocks)-1].(block)
	b.CacheControl = cacheControlOf(c)
	blocks[len(blocks)-1] = b
	return blocks
}
