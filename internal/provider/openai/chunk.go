package openai

import (
	"bytes"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// assembly puts a turn together from the chunks of a stream, or from the one
// object of an answer that is not streamed, and reports deltas as they come.
type assembly struct {
	wire.Emit

	id, model string
	content   content
	reasoning []byte
	source    int // the member that reasoning is read from, once known
	refusal   []byte
	extra     object // members that the provider may want back, such as its reasoning
	others    int    // bytes of extra, and of parts that are not text
	calls     calls
	citations []item.Citation
	cited     int                    // how many citations were reported
	citing    map[item.Citation]bool // those of citations, without their part
	usage     model.Usage
	counts    bool   // the chunk has the usage
	counted   bool   // the usage is that of the end, and not a sum so far
	tier      string // the service tier, in the provider's words
	raw       string // the finish reason

	begun int // how many items have begun
	// The numbers of the items that are not calls, and the parts of the message,
	// from 1 in the order in which they began; 0 = not yet.
	reasoningItem, messageItem, textPart, refusalPart int

	// unstreamed is true for an answer of one object, which may have an empty
	// delta beside its message.
	unstreamed bool
	ended      bool // a finish reason came, or [DONE] without one
	late       bool // calls came after the finish reason

	last    template
	pieces  int    // how many pieces of content the current chunk has; 2 = not only text
	piece   []byte // its last piece of text or reasoning, a part of the chunk
	into    target
	scratch []byte
}

// target is where a piece of text belongs.
type target struct {
	kind     model.DeltaKind
	field    int  // in extra.fields, for reasoning
	reported bool // as a delta, too
}

// reportText reports a piece of text, reasoning or refusal as a delta.
func (a *assembly) reportText(kind model.DeltaKind, piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	d := model.Delta{Kind: kind, Text: string(piece)}
	switch kind {
	case model.ReasoningDelta:
		d.Item = a.number(&a.reasoningItem)
	case model.TextDelta:
		d.Item, d.Part = a.number(&a.messageItem), partIndex(&a.textPart, a.refusalPart)
	case model.RefusalDelta:
		d.Item, d.Part = a.number(&a.messageItem), partIndex(&a.refusalPart, a.textPart)
	}
	return a.Report(d)
}

// number returns the number of an item, from 0. An item that begins with this
// call gets the next one, which is stored plus 1.
func (a *assembly) number(stored *int) int {
	if *stored == 0 {
		a.begun++
		*stored = a.begun
	}
	return *stored - 1
}

// partIndex does the same for the two parts of the message; other is that of the
// other part.
func partIndex(stored *int, other int) int {
	if *stored == 0 {
		*stored = 1 + min(other, 1)
	}
	return *stored - 1
}

// chunk takes the JSON of one event, without white space around it.
func (a *assembly) chunk(data []byte) error {
	if v := a.last.match(data); v != nil {
		return a.add(a.last.into, v)
	}
	if !jsonscan.Valid(data) || data[0] != '{' {
		return wire.Garbage(data)
	}
	a.last.known, a.pieces, a.piece = false, 0, nil
	if err := a.object(data); err != nil {
		return err
	}
	if a.pieces == 1 && a.piece != nil {
		a.last.learn(data, a.piece, a.into)
	}
	return nil
}

func (a *assembly) object(data []byte) error {
	a.counts = false
	defer func() { a.counted = a.ended && (a.counted || a.counts) }()
	for name, v := range jsonscan.Members(data) {
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
			a.id = latest(a.id, v)
		case "model":
			a.model = latest(a.model, v)
		case "service_tier":
			a.tier = latest(a.tier, v)
		case "usage":
			a.addUsage(v)
		case "x_groq":
			a.addUsage(jsonscan.Member(v, "usage"))
		case "choices":
			for i, choice := range jsonscan.Elements(v) {
				if err := a.choice(i, choice, data); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// latest returns the text of v, or have if v has no text or the same.
func latest(have string, v []byte) string {
	if !jsonscan.HasText(v) || string(v[1:len(v)-1]) == have {
		return have
	}
	return jsonscan.Text(v)
}

// choice reads the choice with index 0 and ignores any other.
func (a *assembly) choice(at int, choice, data []byte) error {
	var delta, message, finish []byte
	index := int64(at)
	for name, v := range jsonscan.Members(choice) {
		switch string(name) {
		case "index":
			index = jsonscan.Number(v, index)
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
	if a.unstreamed && !jsonscan.IsNull(message) || jsonscan.IsNull(delta) && !a.hasOutput() {
		delta = message // beside deltas it repeats them
		a.pieces += 2
	}
	if err := a.message(delta); err != nil {
		return err
	}
	return a.finish(finish, data)
}

func (a *assembly) hasOutput() bool {
	return len(a.content.text) > 0 || len(a.reasoning) > 0 || len(a.refusal) > 0 || len(a.calls.list) > 0
}

func (a *assembly) finish(v, data []byte) error {
	if !jsonscan.HasText(v) {
		return nil
	}
	a.raw = latest(a.raw, v)
	if a.raw == "error" {
		return wire.AnswerError(data)
	}
	a.endCalls()
	return nil
}

// endCalls notes that the turn has ended, with all of its calls.
func (a *assembly) endCalls() {
	a.ended, a.late = true, false
	stop := stopOf(a.raw)
	a.calls.end(stop != model.StopLength && stop != model.StopFilter)
}

// message adds a delta or a whole message. Reasoning is reported before text of
// the same delta.
func (a *assembly) message(m []byte) error {
	var content, refusal, calls, legacy, annotations []byte
	var reasoning reasoningMembers
	for name, v := range jsonscan.Members(m) {
		switch string(name) {
		case "content":
			content = v
		case "refusal":
			refusal = v
		case "tool_calls":
			calls = v
		case "role":
		case "function_call": // the old form of calls, with one call at most
			if jsonscan.IsKind(v, '{') {
				legacy = append(append([]byte(`[{"index":0,"function":`), v...), `}]`...)
			}
		case "annotations":
			annotations = v
			a.addOther(name, v, &reasoning)
		case "channel": // Groq labels deltas with it and refuses it in messages
		default:
			a.addOther(name, v, &reasoning)
		}
	}
	if err := a.addReasoning(reasoning); err != nil {
		return err
	}
	if err := a.addContent(content); err != nil {
		return err
	}
	if err := a.annotate(annotations); err != nil {
		return err
	}
	if jsonscan.HasText(refusal) {
		a.pieces += 2
		at := len(a.refusal)
		a.refusal = jsonscan.AppendText(a.refusal, refusal)
		if err := a.reportText(model.RefusalDelta, a.refusal[at:]); err != nil {
			return err
		}
	}
	if !jsonscan.IsKind(calls, '[') || len(calls) == len("[]") {
		calls = legacy
	}
	return a.addCalls(calls)
}

func (a *assembly) addCalls(list []byte) error {
	for i, v := range jsonscan.Elements(list) {
		a.pieces += 2
		if !jsonscan.IsKind(v, '{') {
			continue
		}
		c := a.calls.add(i, v)
		if c == nil {
			return wire.Broken(fmt.Sprintf("sent a turn with more than %d tool calls", wire.MaxCalls), nil)
		}
		a.late = a.ended
		a.number(&c.item)
		if err := a.reportCall(c, false); err != nil {
			return err
		}
	}
	return nil
}

// reportCall reports what has been added to a call since the last time. The first
// time waits until id and name can no longer change: a name may come in pieces
// until the arguments begin, and an id may come late or never. At the end of the
// turn nothing is waited for.
func (a *assembly) reportCall(c *call, end bool) error {
	d := model.Delta{Kind: model.CallDelta, Item: c.item - 1}
	if !c.opened {
		if !end && (c.id == "" || c.name == "" || len(c.args) == 0) {
			return nil
		}
		c.opened = true
		d.CallID, d.Name = c.id, c.name
	} else if c.reported == len(c.args) {
		return nil
	}
	d.Text = string(c.args[c.reported:])
	c.reported = len(c.args)
	return a.Report(d)
}

// reportRest reports, at the end of the turn, the calls that had to wait.
func (a *assembly) reportRest() error {
	if err := a.reportCitations(); err != nil {
		return err
	}
	for i := range a.calls.list {
		if err := a.reportCall(&a.calls.list[i], true); err != nil {
			return err
		}
	}
	return nil
}

// add appends a piece of text, a JSON string, to its target.
func (a *assembly) add(to target, v []byte) error {
	a.scratch = jsonscan.AppendText(a.scratch[:0], v)
	if to.kind == model.TextDelta {
		a.content.add(a.scratch)
		return a.reportText(model.TextDelta, a.scratch)
	}
	f := &a.extra.fields[to.field]
	f.text = append(f.text, a.scratch...)
	a.others += len(a.scratch)
	if !to.reported {
		return nil
	}
	a.reasoning = append(a.reasoning, a.scratch...)
	return a.reportText(model.ReasoningDelta, a.scratch)
}

// template is the last chunk that only added a piece of text. Most chunks differ
// from it only in that piece. They are not decoded again.
type template struct {
	prefix, suffix []byte
	into           target
	known          bool
}

// learn keeps what is before and after the piece, which must be a slice of data.
func (t *template) learn(data, piece []byte, into target) {
	at := cap(data) - cap(piece)
	t.prefix = append(t.prefix[:0], data[:at]...)
	t.suffix = append(t.suffix[:0], data[at+len(piece):]...)
	t.into, t.known = into, true
}

// match returns the JSON string in the place of the piece if data is otherwise the
// same; nil if it is not.
func (t *template) match(data []byte) []byte {
	if !t.known || len(data) < len(t.prefix)+len(t.suffix)+2 ||
		!bytes.HasPrefix(data, t.prefix) || !bytes.HasSuffix(data, t.suffix) {
		return nil
	}
	v := data[len(t.prefix) : len(data)-len(t.suffix)]
	if v[0] != '"' || !jsonscan.Valid(v) {
		return nil
	}
	return v
}
