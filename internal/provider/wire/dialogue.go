package wire

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Message is an entry of the messages of a [Dialogue].
type Message[B any] struct {
	Role    string `json:"role"`
	Content []B    `json:"content"`
}

// Blocks is how a dialect writes the blocks of a [Dialogue].
type Blocks[B any] interface {
	Text(text string) B
	// Native returns a block as the provider wrote it.
	Native(raw json.RawMessage) B
	Call(id string, it *item.Item) B
	// Result returns the block of a tool result. The dialect may refuse an empty content.
	Result(id string, it *item.Item, content []B) B
	// Part returns a part of a user's message that is not text, or what keeps the dialect from taking it.
	Part(p item.Part) (b B, problem string)
	// ResultPart returns a part of a tool result that is not text. ok is false if a text is all that is
	// shown of it, titled if the block says the name or the URL of the part.
	ResultPart(p item.Part) (b B, titled, ok bool)
	// Marked marks the last of the blocks for the provider's cache.
	Marked(blocks []B, c *item.Cache) []B
}

// Dialogue writes a transcript for dialects in which a user and an assistant take turns, beginning with
// the user, and each message is a list of blocks. Adjacent items of one side become one message; the
// results of a turn with several calls come back in one.
type Dialogue[B any] struct {
	Blocks[B]
	*Losses
	*Marks
	Request *model.Request
	Dialect string // of the native forms that are sent
	IDs     CallIDs
	// FirstShown is the index of the first item whose binary content is sent in a tool result.
	FirstShown int

	System   []B
	Messages []Message[B]
}

// Begin is the text of the user's first message for a transcript that begins with a message of the model,
// or has only system messages.
const Begin = "(The conversation begins with your message.)"

// Write writes the items: those of the request, or others in their place.
func (d *Dialogue[B]) Write(items []item.Item) {
	unit := -1 // the index of the message in the client's request
	for i := range items {
		it := &items[i]
		if BeginsMessage(items, i) {
			unit++
		}
		d.DropItem(d.Request, it)
		switch {
		case it.Kind == item.Message && (it.Role == item.System || it.Role == item.Developer):
			d.System = append(d.System, d.texts(it)...)
		case it.Kind == item.ToolResult:
			d.add("user", d.result(it, i >= d.FirstShown))
		case it.Kind == item.Message && it.Role != item.Assistant:
			d.add("user", d.asked(unit, it))
		default:
			d.add("assistant", d.said(it))
		}
	}
	if len(d.Messages) == 0 || d.Messages[0].Role == "assistant" {
		d.Messages = append([]Message[B]{{"user", []B{d.Text(Begin)}}}, d.Messages...)
	}
}

// add appends blocks to the last message, or begins another one.
func (d *Dialogue[B]) add(role string, blocks []B) {
	if len(blocks) == 0 {
		return
	}
	if n := len(d.Messages); n > 0 && d.Messages[n-1].Role == role {
		d.Messages[n-1].Content = append(d.Messages[n-1].Content, blocks...)
		return
	}
	d.Messages = append(d.Messages, Message[B]{role, blocks})
}

// said returns the blocks of what the model said. Reasoning and other blocks that only another dialect
// understands have no place here.
func (d *Dialogue[B]) said(it *item.Item) []B {
	raw := NativeOf(it, d.Dialect)
	if it.Kind == item.ToolCall {
		id := d.IDs.Call(it.CallID)
		if raw == nil || id != it.CallID {
			return []B{d.Call(id, it)}
		}
	}
	switch {
	case raw != nil:
		return []B{d.Native(raw)}
	case it.Kind == item.Message:
		return d.texts(it)
	}
	return nil
}

// texts returns the text parts and refusals as blocks. Empty ones are refused.
func (d *Dialogue[B]) texts(it *item.Item) (out []B) {
	for _, p := range it.Parts {
		text := p.Kind == item.Text || p.Kind == item.Refusal
		d.Drop(NameOfPart(d.Request, it, p.Kind), !text)
		if !text {
			p.Text = ""
		}
		out = d.addText(out, p.Text, p.Cache)
	}
	return out
}

// addText adds a text, unless it is empty, with its mark.
func (d *Dialogue[B]) addText(out []B, text string, c *item.Cache) []B {
	if strings.TrimSpace(text) == "" {
		d.Drop("cache_control", d.Mark(c))
		return out
	}
	return d.addMarked(out, d.Text(text), c)
}

// addMarked adds a block with its mark.
func (d *Dialogue[B]) addMarked(out []B, b B, c *item.Cache) []B {
	if out = append(out, b); d.Mark(c) {
		return d.Marked(out, c)
	}
	return out
}

// asked returns the parts of a user's message as blocks. What the dialect cannot take is refused; of
// audio a text says that it is not shown.
func (d *Dialogue[B]) asked(unit int, it *item.Item) (out []B) {
	for i, p := range it.Parts {
		switch {
		case p.Kind == item.Audio:
			d.Drop(NameOfPart(d.Request, it, p.Kind), true)
			out = d.addText(out, p.Describe(), p.Cache)
			continue
		case p.Text != "" || p.Kind == item.Text || p.Kind == item.Refusal: // also of a resource or a file
			out = d.addText(out, p.Text, p.Cache)
			continue
		case p.Kind == item.Resource && p.Data == "" && p.FileID == "":
			out = d.addText(out, p.Describe(), p.Cache)
			continue
		}
		b, problem := d.Part(p)
		if problem != "" {
			d.Refuse(PlaceOf(d.Request, unit, it, i), problem)
			continue
		}
		d.Drop(NameOf(d.Request, MemberDetail), p.Kind == item.Image && p.Detail != "" && p.Detail != "auto")
		out = d.addMarked(out, b, p.Cache)
	}
	return out
}

// result returns the block of a tool result, with or without its binary content. In a result that is an
// error the dialects take only text. The result is what can be marked, not its parts.
func (d *Dialogue[B]) result(it *item.Item, shown bool) []B {
	var content []B
	var mark *item.Cache
	for _, p := range it.Parts {
		if d.Mark(p.Cache) {
			mark = p.Cache
		}
		if shown && !it.IsError {
			content = d.addResult(content, it, Embedded(p))
		}
	}
	if !shown || it.IsError {
		content = d.plain(item.PlainText(it.Parts))
	}
	out := []B{d.Result(d.IDs.Result(it.CallID), it, content)}
	if mark != nil {
		out = d.Marked(out, mark)
	}
	return out
}

// addResult adds a part of a tool result: as it is, or else as a text that says what it is.
func (d *Dialogue[B]) addResult(content []B, it *item.Item, p item.Part) []B {
	if p.Kind == item.Text || p.Kind == item.Refusal {
		return append(content, d.plain(p.Text)...)
	}
	b, titled, ok := d.ResultPart(p)
	if !ok {
		d.Drop(NameOfPart(d.Request, it, p.Kind), it.Native.Dialect != "") // the client's own
		return append(content, d.plain(p.Describe())...)
	}
	if p.Data = ""; !titled && (p.URL != "" || p.Name != "") { // which the block has no place for
		content = append(content, d.plain(p.Describe())...)
	}
	return append(content, b)
}

// plain returns a text as a block; none for an empty one, which is refused.
func (d *Dialogue[B]) plain(text string) []B {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []B{d.Text(text)}
}

// NativeOf returns an item as the dialect wrote it; nil if it did not.
func NativeOf(it *item.Item, dialect string) json.RawMessage {
	if it.Native.Dialect != dialect {
		return nil
	}
	return it.Native.JSON
}

// Marks are the cache markers that a request has.
type Marks struct {
	*Losses
	unmarked int // those that are left out, the first ones
}

// MarksOf returns the markers of a request. It may have most of them; 0 = none. Of too many the first are left
// out: a later one caches what is before it, too.
func MarksOf(req *model.Request, most int, l *Losses) *Marks {
	if most == 0 {
		return &Marks{l, math.MaxInt}
	}
	return &Marks{l, max(0, req.CacheMarkers()-most)}
}

// Mark reports whether the next marker is sent; nil is none.
func (m *Marks) Mark(c *item.Cache) bool {
	if c == nil {
		return false
	}
	if m.unmarked > 0 {
		m.unmarked--
		m.Drop("cache_control", true)
		return false
	}
	return true
}

// BinaryLimits are how much binary content a request may have.
type BinaryLimits struct {
	Data      int // bytes of base64
	Images    int
	Documents int // 0 = any number
}

// FirstShown returns the index of the first item whose binary content is sent: as many of the latest as a
// request can hold. What earlier tool results hold is shown as text.
func (l BinaryLimits) FirstShown(items []item.Item) int {
	data, images, documents := 0, 0, 0
	for i := len(items) - 1; i >= 0; i-- {
		for _, p := range items[i].Parts {
			data += len(p.Data)
			switch {
			case p.Kind == item.Image || strings.HasPrefix(p.MIMEType, "image/"):
				images++
				data += len(p.URL) // which may be a data URL
			case (p.Kind == item.File || p.Kind == item.Resource) && p.Data+p.Text != "":
				documents++
			}
		}
		if data > l.Data || images > l.Images || l.Documents > 0 && documents > l.Documents {
			return i + 1
		}
	}
	return 0
}
