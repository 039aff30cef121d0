package openai

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendMessages appends the messages of a transcript as an array. A turn of which
// only another dialect understands anything is left out.
func appendMessages(dst []byte, items []item.Item) []byte {
	var ids callIDs
	images, at := newResultImages(items), 0
	begin := len(dst)
	for unit := range messages(items) {
		at += len(unit)
		if hasNoForm(unit) {
			continue
		}
		if unit[0].Kind == item.ToolResult {
			if i := images.take(&unit[0], at-1); i != &unit[0] {
				unit = []item.Item{*i}
			}
		} else {
			dst = images.appendTo(dst)
		}
		dst = append(dst, "[,"[min(len(dst)-begin, 1)])
		dst = ids.appendMessage(dst, unit)
	}
	dst = images.appendTo(dst)
	if len(dst) == begin {
		dst = append(dst, '[')
	}
	return append(dst, ']')
}

// messages yields the items of each message: those of an answer together, and every other item alone. Texts of an answer
// that another dialect wrote are messages of their own, unless a call keeps them together.
func messages(items []item.Item) iter.Seq[[]item.Item] {
	return func(yield func([]item.Item) bool) {
		for unit := range item.Turns(items) {
			one := isNative(&unit[0]) || slices.ContainsFunc(unit, func(i item.Item) bool { return i.Kind == item.ToolCall })
			for start, i := 0, 0; i < len(unit); i++ {
				if last := i == len(unit)-1; !last && (one || unit[i].Kind != item.Message) {
					continue
				}
				if !yield(unit[start : i+1]) {
					return
				}
				start = i + 1
			}
		}
	}
}

// hasNoForm reports whether the items have no form in this dialect: reasoning and
// provider-run tools of another one.
func hasNoForm(unit []item.Item) bool {
	for _, i := range unit {
		if i.Kind != item.Reasoning && i.Kind != item.Other || isNative(&i) {
			return false
		}
	}
	return true
}

// native returns the message that an item begins, as this dialect wrote it; nil if it did not.
func native(i *item.Item) []byte { return wire.NativeOf(i, model.DialectChat) }

// isNative reports whether this dialect wrote the item.
func isNative(i *item.Item) bool { return len(native(i)) > 0 }

// appendMessage appends the items of one answer, or any other single item, as a
// message: unchanged where this dialect wrote it, otherwise made from the plain
// fields. Reasoning of other dialects is left out.
func (c *callIDs) appendMessage(dst []byte, unit []item.Item) []byte {
	i := &unit[0]
	if i.Kind == item.ToolResult {
		return c.appendResult(dst, i)
	}
	var ids []string
	if i.Kind != item.Message || i.Role == item.Assistant {
		ids = c.turn(unit)
	}
	switch {
	case isNative(i) && ids != nil:
		return appendWithIDs(dst, i.Native.JSON, ids)
	case isNative(i):
		return append(dst, i.Native.JSON...)
	}
	role := i.Role
	if i.Kind != item.Message {
		role = item.Assistant
	}
	dst = jsonscan.AppendString(append(dst, `{"role":`...), roleOf(role))
	if i.Kind == item.Message {
		dst = appendText(dst, "name", i.Name)
	}
	dst = append(dst, `,"content":`...)
	if role == item.Assistant {
		dst = appendAnswer(dst, unit, ids)
	} else {
		dst = appendContent(dst, i)
	}
	return append(dst, '}')
}

func (c *callIDs) appendResult(dst []byte, i *item.Item) []byte {
	id := c.answered(i.CallID)
	switch {
	case isNative(i) && id == i.CallID:
		return append(dst, i.Native.JSON...)
	case isNative(i):
		return appendWith(dst, i.Native.JSON, "tool_call_id", id)
	}
	dst = jsonscan.AppendString(append(dst, `{"role":"tool","tool_call_id":`...), id)
	return append(jsonscan.AppendString(append(dst, `,"content":`...), item.PlainText(i.Parts)), '}')
}

// roleOf returns the role as the dialect spells it. Few compatible providers know
// developer, all know system, and OpenAI's reasoning models read system as
// developer. One request must not have both.
func roleOf(r item.Role) item.Role {
	if r == item.Developer {
		return item.System
	}
	return r
}

// callIDs gives calls of a turn ids under which they can be answered. Some
// providers send calls without an id, or several with the same one, and refuse
// both in a request. Ids of other dialects can be too long. The nth result with an
// id answers the nth call with it.
type callIDs struct {
	calls int // of the turns so far

	// The calls of the last turn: their ids in the transcript, and those in the
	// request, "" for a call that has its result. Empty where both are the same.
	original, written []string
}

// maxCallID is how many characters OpenAI takes in the id of a call.
const maxCallID = 40

// turn begins a turn. It returns the ids of the turn's calls in the request; nil
// where they are those of the transcript. What a client wrote stays as it is.
func (c *callIDs) turn(unit []item.Item) []string {
	c.original, c.written = c.original[:0], nil
	first, native := c.calls, isNative(&unit[0])
	refused := func(id string) bool { return id == "" || len(id) > maxCallID && !native }
	change, seen := false, map[string]bool{}
	for i := range unit {
		if id := unit[i].CallID; unit[i].Kind == item.ToolCall {
			change = change || refused(id) || seen[id]
			seen[id] = true
			c.original = append(c.original, id)
		}
	}
	c.calls += len(c.original)
	if !change || native && unit[0].Native.Provider == "" {
		c.original = c.original[:0]
		return nil
	}
	for i, id := range c.original {
		for n := first + i; refused(id) || slices.Contains(c.written, id); n += len(c.original) {
			id = fmt.Sprintf("call%05d", n) // nine letters and digits: Mistral takes no others
			if slices.Contains(c.original, id) {
				id = ""
			}
		}
		c.written = append(c.written, id)
	}
	return slices.Clone(c.written)
}

// answered returns the id that a result has in the request.
func (c *callIDs) answered(id string) string {
	for i := range c.original {
		if c.original[i] == id && c.written[i] != "" {
			id, c.written[i] = c.written[i], ""
			return id
		}
	}
	return id
}

// appendWithIDs appends an assistant's message with other ids of its calls.
func appendWithIDs(dst, message []byte, ids []string) []byte {
	dst = append(dst, '{')
	for name, v := range jsonscan.Members(jsonscan.TrimSpace(message)) {
		if string(name) != "tool_calls" || !jsonscan.IsKind(v, '[') {
			dst = jsonscan.AppendMember(dst, name, v)
			continue
		}
		dst = jsonscan.AppendMember(dst, name, nil)
		start := len(dst)
		for i, call := range jsonscan.Elements(v) {
			dst = append(dst, "[,"[min(len(dst)-start, 1)])
			if i < len(ids) {
				dst = appendWith(dst, call, "id", ids[i])
			} else {
				dst = append(dst, call...)
			}
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendWith appends an object with one string member that is new or changed.
func appendWith(dst, object []byte, name, text string) []byte {
	dst = jsonscan.AppendString(jsonscan.AppendMember(append(dst, '{'), name, nil), text)
	for n, v := range jsonscan.Members(jsonscan.TrimSpace(object)) {
		if string(n) != name {
			dst = jsonscan.AppendMember(dst, n, v)
		}
	}
	return append(dst, '}')
}

// appendAnswer appends an assistant's content, refusal and calls. Without ids, the
// calls have those of the transcript.
func appendAnswer(dst []byte, unit []item.Item, ids []string) []byte {
	var said, refusal strings.Builder
	calls := 0
	for _, i := range unit {
		switch i.Kind {
		case item.ToolCall:
			calls++
		case item.Message:
			if text := i.Text(); text != "" {
				if said.Len() > 0 {
					said.WriteString("\n\n")
				}
				said.WriteString(text)
			}
			for _, p := range i.Parts {
				if p.Kind == item.Refusal {
					refusal.WriteString(p.Text)
				}
			}
		}
	}
	if said.Len() > 0 || calls == 0 && refusal.Len() == 0 {
		dst = jsonscan.AppendString(dst, said.String())
	} else {
		dst = append(dst, `null`...)
	}
	dst = appendText(dst, "refusal", refusal.String())
	if calls == 0 {
		return dst
	}
	dst = append(dst, `,"tool_calls":`...)
	n := 0
	for _, c := range unit {
		if c.Kind != item.ToolCall {
			continue
		}
		id := c.CallID
		if ids != nil {
			id = ids[n]
		}
		dst = jsonscan.AppendString(append(append(dst, "[,"[min(n, 1)]), `{"id":`...), id)
		dst = jsonscan.AppendString(append(dst, `,"type":"function","function":{"name":`...), c.Name)
		dst = jsonscan.AppendString(append(dst, `,"arguments":`...), c.Arguments)
		dst = append(dst, `}}`...)
		n++
	}
	return append(dst, ']')
}

// appendContent appends the content of a system or user message.
func appendContent(dst []byte, i *item.Item) []byte {
	if len(i.Parts) == 0 || len(i.Parts) == 1 && i.Parts[0].Kind == item.Text {
		return jsonscan.AppendString(dst, i.Text())
	}
	for n, p := range i.Parts {
		dst = append(dst, "[,"[min(n, 1)])
		dst = appendPart(dst, p)
	}
	return append(dst, ']')
}

// appendPart appends a part of a message. What the dialect has no form for is
// described in a text.
func appendPart(dst []byte, p item.Part) []byte {
	bytes := p.Data != "" || p.URL != ""
	switch {
	case p.Kind == item.Image && bytes:
		dst = jsonscan.AppendString(append(dst, `{"type":"image_url","image_url":{"url":`...), dataURL(wire.Embedded(p)))
		dst = appendText(dst, "detail", p.Detail)
	case p.Kind == item.Audio && p.Data != "":
		dst = jsonscan.AppendString(append(dst, `{"type":"input_audio","input_audio":{"data":`...), p.Data)
		dst = appendText(dst, "format", audioFormat(p.MIMEType))
	case p.Kind == item.File && p.FileID != "":
		dst = jsonscan.AppendString(append(dst, `{"type":"file","file":{"file_id":`...), p.FileID)
	case p.Kind == item.File && bytes && p.Text == "":
		dst = jsonscan.AppendString(append(dst, `{"type":"file","file":{"file_data":`...), dataURL(p))
		dst = appendText(dst, "filename", p.Name)
	default:
		dst = jsonscan.AppendString(append(dst, `{"type":"text","text":`...), p.Describe())
		return append(dst, '}')
	}
	return append(dst, `}}`...)
}

// dataURL returns the URL of a part's bytes.
func dataURL(p item.Part) string {
	switch {
	case p.URL != "":
		return p.URL
	case strings.HasPrefix(p.Data, "data:"): // as this dialect writes files
		return p.Data
	}
	return "data:" + p.MIMEType + ";base64," + p.Data
}

// audioFormat returns the dialect's name for a media type.
func audioFormat(mime string) string {
	switch mime {
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	case "audio/wav", "audio/x-wav", "audio/wave", "":
		return "wav"
	}
	return strings.TrimPrefix(mime, "audio/")
}
