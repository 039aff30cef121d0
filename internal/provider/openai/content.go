package openai

import (
	"bytes"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// content is the visible text of a message. Some providers send it as parts. The
// parts are kept too: they go back to the provider in the same form.
type content struct {
	text  []byte // all of it
	parts []part // nil if all content came as strings
}

// part is one part of content: text, thinking, or one that is kept unchanged.
type part struct {
	kind  string // "text", "thinking" or ""
	text  []byte
	extra object // members of a text or thinking part that the provider may want back
	raw   []byte
}

func (c *content) add(piece []byte) {
	c.text = append(c.text, piece...)
	if c.parts != nil {
		c.join("text", piece)
	}
}

// join appends a piece to the last part where that is of the same kind.
func (c *content) join(kind string, piece []byte) {
	if n := len(c.parts); n == 0 || c.parts[n-1].kind != kind {
		c.parts = append(c.parts, part{kind: kind})
	}
	last := &c.parts[len(c.parts)-1]
	last.text = append(last.text, piece...)
}

// startParts begins the list of parts. Text that came before is its first part.
func (c *content) startParts() {
	if c.parts == nil {
		c.parts = []part{}
		if len(c.text) > 0 {
			c.join("text", c.text)
		}
	}
}

// addContent adds the member "content": a string, parts, or null.
func (a *assembly) addContent(v []byte) error {
	switch {
	case jsonscan.IsKind(v, '"'):
		if !jsonscan.HasText(v) {
			return nil
		}
		a.pieces++
		a.piece, a.into = v, target{kind: model.TextDelta}
		return a.add(a.into, v)
	case jsonscan.IsKind(v, '['):
		a.pieces += 2
		a.content.startParts()
		for _, p := range jsonscan.Elements(v) {
			if err := a.addPart(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *assembly) addPart(p []byte) error {
	a.others += len(p)
	kind := jsonscan.Text(jsonscan.Member(p, "type"))
	switch kind {
	case "text":
		if err := a.add(target{kind: model.TextDelta}, jsonscan.Member(p, "text")); err != nil {
			return err
		}
	case "thinking":
		piece := thinking(jsonscan.Member(p, "thinking"))
		a.content.join("thinking", piece)
		a.reasoning = append(a.reasoning, piece...)
		if err := a.reportText(model.ReasoningDelta, piece); err != nil {
			return err
		}
	default:
		a.content.parts = append(a.content.parts, part{raw: bytes.Clone(p)})
		return nil
	}
	last := &a.content.parts[len(a.content.parts)-1]
	for name, v := range jsonscan.Members(p) {
		if string(name) != "type" && string(name) != kind {
			last.extra.add(name, v)
		}
	}
	return nil
}

// thinking returns the text of a thinking part: a string or text parts.
func thinking(v []byte) []byte {
	piece := jsonscan.AppendText(nil, v)
	for _, p := range jsonscan.Elements(v) {
		piece = jsonscan.AppendText(piece, jsonscan.Member(p, "text"))
	}
	return piece
}

// appendTo appends the content in the form in which it came.
func (c *content) appendTo(dst []byte) []byte {
	if len(c.parts) == 0 {
		return jsonscan.AppendString(dst, c.text)
	}
	for i, p := range c.parts {
		dst = append(dst, "[,"[min(i, 1)])
		switch p.kind {
		case "text":
			dst = append(dst, `{"type":"text","text":`...)
			dst = append(p.extra.appendTo(jsonscan.AppendString(dst, p.text)), '}')
		case "thinking":
			dst = append(dst, `{"type":"thinking","thinking":[{"type":"text","text":`...)
			dst = append(jsonscan.AppendString(dst, p.text), `}]`...)
			dst = append(p.extra.appendTo(dst), '}')
		default:
			dst = append(dst, p.raw...)
		}
	}
	return append(dst, ']')
}
