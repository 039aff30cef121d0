package openai

import (
	"bytes"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// assembly puts a turn together from the chunks of a stream, or from the one
// object of an answer that is not streamed, and reports deltas as they come.
type assembly struct {
	emit func(model.Delta) error

	size wire.Size

	id, model string
	content   content
	reasoning []byte
	source    int // the member that reasoning is read from, once known
	refusal   []byte
	extra     object // members for the provider, such as its reasoning
	calls     calls
	usage     model.Usage
	raw       string // the finish reason
	// unstreamed is true for an answer of one object, which may have an empty
	// delta beside its message.
	unstreamed bool
	ended      bool // a finish reason came, or [DONE] without one

	same    template
	pieces  int    // what the present chunk has added
	piece   []byte // its last piece of plain text, where it stands in the chunk
	into    target
	scratch []byte
}

// target says where a piece of text belongs.
type target struct {
	kind  model.DeltaKind
	field int  // in extra.fields, for reasoning
	said  bool // the caller hears it
}

func (a *assembly) say(kind model.DeltaKind, piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	if err := a.emit(model.Delta{Kind: kind, Text: string(piece)}); err != nil {
		return wire.Stopped{Err: err}
	}
	return nil
}

// chunk takes the JSON of one event, without white space around it.
func (a *assembly) chunk(data []byte) error {
	if v := a.same.match(data); v != nil {
		return a.add(a.same.into, v)
	}
	if !wire.Valid(data) || data[0] != '{' {
		return wire.Garbage(data)
	}
	a.same.known, a.pieces, a.piece = false, 0, nil
	if err := a.object(data); err != nil {
		return err
	}
	if a.pieces == 1 && a.piece != nil {
		a.same.learn(data, a.piece, a.into)
	}
	return nil
}

// tooLarge returns an error when the turn has more than a model writes, or more
// than may be kept.
func (a *assembly) tooLarge() error {
	return a.size.Check(len(a.content.text) + len(a.reasoning) + len(a.refusal) + a.calls.bytes)
}

func (a *assembly) object(data []byte) error {
	for name, v := range wire.Members(data) {
		switch string(name) {
		case "error":
			if wire.SaysError(v) {
				return wire.AnswerError(data)
			}
		case "object":
			if string(v) == `"error"` {
				return wire.AnswerError(data)
			}
		case "id":
			a.id = keep(a.id, v)
		case "model":
			a.model = keep(a.model, v)
		case "usage":
			a.addUsage(v)
		case "x_groq":
			a.addUsage(wire.Member(v, "usage"))
		case "choices":
			for i, choice := range wire.Elements(v) {
				if err := a.choice(i, choice, data); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// keep returns the text of v, or what is there where v says nothing new.
func keep(have string, v []byte) string {
	if !wire.HasText(v) || string(v[1:len(v)-1]) == have {
		return have
	}
	return wire.Text(v)
}

// choice takes the first choice; others are not asked for.
func (a *assembly) choice(at int, choice, data []byte) error {
	var delta, message, finish []byte
	index := int64(at)
	for name, v := range wire.Members(choice) {
		switch string(name) {
		case "index":
			index = wire.Number(v, index)
		case "delta":
			delta = v
		case "message":
			message = v
		case "finish_reason":
			finish = v
		case "usage":
			a.addUsage(v)
		case "error":
			if index == 0 && wire.SaysError(v) {
				return wire.AnswerError(choice)
			}
		}
	}
	if index != 0 {
		return nil
	}
	if a.unstreamed && !wire.IsNull(message) || wire.IsNull(delta) && !a.spoken() {
		delta = message // which otherwise repeats what the deltas have said
		a.pieces += 2
	}
	if err := a.message(delta); err != nil {
		return err
	}
	return a.finish(finish, data)
}

func (a *assembly) spoken() bool {
	return len(a.content.text) > 0 || len(a.reasoning) > 0 || len(a.refusal) > 0 || len(a.calls.list) > 0
}

func (a *assembly) finish(v, data []byte) error {
	if !wire.HasText(v) {
		return nil
	}
	a.raw = keep(a.raw, v)
	if a.raw == "error" {
		return wire.AnswerError(data)
	}
	a.ended = true
	stop := stopOf(a.raw)
	a.calls.end(stop != model.StopLength && stop != model.StopFilter)
	return nil
}

// message takes a delta or a whole message. Reasoning is said before the
// text that follows from it.
func (a *assembly) message(m []byte) error {
	var content, refusal, calls []byte
	var thoughts thoughts
	for name, v := range wire.Members(m) {
		switch string(name) {
		case "content":
			content = v
		case "refusal":
			refusal = v
		case "tool_calls":
			calls = v
		case "role", "function_call":
		case "channel": // Groq labels deltas with it and refuses it in messages
		default:
			a.other(name, v, &thoughts)
		}
	}
	if err := a.think(thoughts); err != nil {
		return err
	}
	if err := a.addContent(content); err != nil {
		return err
	}
	if wire.HasText(refusal) {
		a.pieces += 2
		at := len(a.refusal)
		a.refusal = wire.AppendText(a.refusal, refusal)
		if err := a.say(model.RefusalDelta, a.refusal[at:]); err != nil {
			return err
		}
	}
	return a.addCalls(calls)
}

func (a *assembly) addCalls(list []byte) error {
	for i, v := range wire.Elements(list) {
		a.pieces += 2
		if !a.calls.add(i, v) {
			return wire.Broken(fmt.Sprintf("sent a turn with more than %d tool calls", wire.MaxCalls), nil)
		}
	}
	return nil
}

// add appends a piece of text, a JSON string, to where it belongs.
func (a *assembly) add(to target, v []byte) error {
	a.scratch = wire.AppendText(a.scratch[:0], v)
	if to.kind == model.TextDelta {
		a.content.add(a.scratch)
		return a.say(model.TextDelta, a.scratch)
	}
	f := &a.extra.fields[to.field]
	f.text = append(f.text, a.scratch...)
	if !to.said {
		return nil
	}
	a.reasoning = append(a.reasoning, a.scratch...)
	return a.say(model.ReasoningDelta, a.scratch)
}

// template is the last chunk that only added a piece of text. Most chunks are
// the same but for that piece; they need no decoding.
type template struct {
	prefix, suffix []byte
	into           target
	known          bool
}

// learn remembers data around its piece, which is a part of data's own memory.
func (t *template) learn(data, piece []byte, into target) {
	at := cap(data) - cap(piece)
	t.prefix = append(t.prefix[:0], data[:at]...)
	t.suffix = append(t.suffix[:0], data[at+len(piece):]...)
	t.into, t.known = into, true
}

// match returns the JSON string in the place of the piece where data is
// otherwise the same, nil where it is not.
func (t *template) match(data []byte) []byte {
	if !t.known || len(data) < len(t.prefix)+len(t.suffix)+2 ||
		!bytes.HasPrefix(data, t.prefix) || !bytes.HasSuffix(data, t.suffix) {
		return nil
	}
	v := data[len(t.prefix) : len(data)-len(t.suffix)]
	if v[0] != '"' || !wire.Valid(v) {
		return nil
	}
	return v
}
