package openai

import (
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendMessages(dst []byte, items []item.Item) []byte {
	begin := len(dst)
	for turn := range item.Turns(items) {
		dst = append(dst, "[,"[min(len(dst)-begin, 1)])
		dst = appendMessage(dst, turn)
	}
	if len(dst) == begin {
		dst = append(dst, '[')
	}
	return append(dst, ']')
}

// appendMessage appends the items of one answer, or any other single item, as a
// message: unchanged where this dialect wrote it, otherwise made from the plain
// fields. Reasoning of other dialects has no place here.
func appendMessage(dst []byte, unit []item.Item) []byte {
	i := &unit[0]
	if i.Native.Dialect == Dialect && len(i.Native.JSON) > 0 {
		return append(dst, i.Native.JSON...)
	}
	role := i.Role
	switch {
	case i.Kind == item.ToolResult:
		role = "tool"
	case i.Kind != item.Message:
		role = item.Assistant
	}
	dst = wire.AppendString(append(dst, `{"role":`...), roleOf(role))
	if i.Kind == item.Message && i.Name != "" {
		dst = wire.AppendString(append(dst, `,"name":`...), i.Name)
	}
	if i.Kind == item.ToolResult {
		dst = wire.AppendString(append(dst, `,"tool_call_id":`...), i.CallID)
	}
	dst = append(dst, `,"content":`...)
	switch {
	case i.Kind == item.ToolResult:
		dst = wire.AppendString(dst, resultText(i.Parts))
	case role == item.Assistant:
		dst = appendAnswer(dst, unit)
	default:
		dst = appendContent(dst, i)
	}
	return append(dst, '}')
}

// roleOf spells a role. Developer is understood by few compatible providers,
// and system by all.
func roleOf(r item.Role) item.Role {
	if r == item.Developer {
		return item.System
	}
	return r
}

// appendAnswer appends an assistant's content, refusal and calls.
func appendAnswer(dst []byte, unit []item.Item) []byte {
	said, refusal, calls := "", "", 0
	for _, i := range unit {
		switch i.Kind {
		case item.ToolCall:
			calls++
		case item.Message:
			said += i.Text()
			for _, p := range i.Parts {
				if p.Kind == item.Refusal {
					refusal += p.Text
				}
			}
		}
	}
	if said != "" || calls == 0 && refusal == "" {
		dst = wire.AppendString(dst, said)
	} else {
		dst = append(dst, `null`...)
	}
	if refusal != "" {
		dst = wire.AppendString(append(dst, `,"refusal":`...), refusal)
	}
	if calls == 0 {
		return dst
	}
	dst = append(dst, `,"tool_calls":[`...)
	for _, c := range unit {
		if c.Kind != item.ToolCall {
			continue
		}
		dst = wire.AppendString(append(dst, `{"id":`...), c.CallID)
		dst = wire.AppendString(append(dst, `,"type":"function","function":{"name":`...), c.Name)
		dst = wire.AppendString(append(dst, `,"arguments":`...), c.Arguments)
		dst = append(dst, `}},`...)
	}
	dst[len(dst)-1] = ']' // in place of the last comma
	return dst
}

// resultText is a tool's result: this dialect takes text only, so the model is
// told what else there was.
func resultText(parts []item.Part) string {
	if len(parts) == 1 && parts[0].Kind == item.Text {
		return parts[0].Text
	}
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Kind == item.Text:
			b.WriteString(p.Text)
		case p.URL != "":
			b.WriteString("[" + string(p.Kind) + ": " + p.URL + "]")
		default:
			b.WriteString("[" + string(p.Kind) + " " + p.MIMEType + ": not shown, this model takes text results only]")
		}
	}
	return b.String()
}

// appendContent appends the content of a system or user message.
func appendContent(dst []byte, i *item.Item) []byte {
	plain := true
	for _, p := range i.Parts {
		plain = plain && p.Kind == item.Text
	}
	if plain {
		return wire.AppendString(dst, i.Text())
	}
	for n, p := range i.Parts {
		dst = append(dst, "[,"[min(n, 1)])
		dst = appendPart(dst, p)
	}
	return append(dst, ']')
}

func appendPart(dst []byte, p item.Part) []byte {
	switch p.Kind {
	case item.Image:
		dst = wire.AppendString(append(dst, `{"type":"image_url","image_url":{"url":`...), dataURL(p))
		if p.Detail != "" {
			dst = wire.AppendString(append(dst, `,"detail":`...), p.Detail)
		}
	case item.Audio:
		dst = wire.AppendString(append(dst, `{"type":"input_audio","input_audio":{"data":`...), p.Data)
		dst = wire.AppendString(append(dst, `,"format":`...), audioFormat(p.MIMEType))
	case item.File:
		if p.FileID != "" {
			dst = wire.AppendString(append(dst, `{"type":"file","file":{"file_id":`...), p.FileID)
			break
		}
		dst = wire.AppendString(append(dst, `{"type":"file","file":{"file_data":`...), dataURL(p))
		if p.Name != "" {
			dst = wire.AppendString(append(dst, `,"filename":`...), p.Name)
		}
	default:
		dst = wire.AppendString(append(dst, `{"type":"text","text":`...), p.Text)
		return append(dst, '}')
	}
	return append(dst, `}}`...)
}

// dataURL returns the address of a part's bytes.
func dataURL(p item.Part) string {
	if p.URL != "" {
		return p.URL
	}
	return "data:" + p.MIMEType + ";base64," + p.Data
}

func audioFormat(mime string) string {
	switch mime {
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	case "audio/wav", "audio/x-wav", "audio/wave", "":
		return "wav"
	}
	return strings.TrimPrefix(mime, "audio/")
}
