package openai

import (
	"bytes"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// content is the visible text of a message. Some providers send it as parts;
// these are kept as well, to be returned in the form in which they came.
type content struct {
	text  []byte // all of it
	parts []part // nil while content came as strings only
}

// part is one part of content: text, thinking, or one that is kept as it is.
type part struct {
	kind string // "text", "thinking" or ""
	text []byte
	raw  []byte
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

// divide begins the list of parts with the text that came before it.
func (c *content) divide() {
	if c.parts == nil {
		c.parts = []part{}
		if len(c.text) > 0 {
			c.join("text", c.text)
		}
	}
}

// addContent takes the member "content": a string, parts, or null.
func (a *assembly) addContent(v []byte) error {
	switch {
	case wire.IsKind(v, '"'):
		if !wire.HasText(v) {
			return nil
		}
		a.pieces++
		a.piece, a.into = v, target{kind: model.TextDelta}
		return a.add(a.into, v)
	case wire.IsKind(v, '['):
		a.pieces += 2
		a.content.divide()
		for _, p := range wire.Elements(v) {
			if err := a.addPart(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *assembly) addPart(p []byte) error {
	switch wire.Text(wire.Member(p, "type")) {
	case "text":
		return a.add(target{kind: model.TextDelta}, wire.Member(p, "text"))
	case "thinking":
		piece := thinking(wire.Member(p, "thinking"))
		a.content.join("thinking", piece)
		a.reasoning = append(a.reasoning, piece...)
		return a.say(model.ReasoningDelta, piece)
	}
	a.content.parts = append(a.content.parts, part{raw: bytes.Clone(p)})
	return nil
}

// thinking returns the text of a thinking part: a string or text parts.
func thinking(v []byte) []byte {
	piece := wire.AppendText(nil, v)
	for _, p := range wire.Elements(v) {
		piece = wire.AppendText(piece, wire.Member(p, "text"))
	}
	return piece
}

// appendTo appends the content in the form in which it came.
func (c *content) appendTo(dst []byte) []byte {
	if len(c.parts) == 0 {
		return wire.AppendString(dst, c.text)
	}
	for i, p := range c.parts {
		dst = append(dst, "[,"[min(i, 1)])
		switch p.kind {
		case "text":
			dst = append(dst, `{"type":"text","text":`...)
			dst = append(wire.AppendString(dst, p.text), '}')
		case "thinking":
			dst = append(dst, `{"type":"thinking","thinking":[{"type":"text","text":`...)
			dst = append(wire.AppendString(dst, p.text), `}]}`...)
		default:
			dst = append(dst, p.raw...)
		}
	}
	return append(dst, ']')
}
