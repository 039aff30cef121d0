package openai

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// assembly puts a turn together from the chunks of a stream, or from the one
// object of an answer that is not streamed, and reports deltas as they come.
type assembly struct {
	emit func(model.Delta) error

	memory  tool.Memory // nil = nothing is charged
	charged int         // bytes

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

// emitError is an error of the caller's emit, to be returned as it is.
type emitError struct{ error }

func (a *assembly) say(kind model.DeltaKind, piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	if err := a.emit(model.Delta{Kind: kind, Text: string(piece)}); err != nil {
		return emitError{err}
	}
	return nil
}

// chunk takes the JSON of one event, without white space around it.
func (a *assembly) chunk(data []byte) error {
	if v := a.same.match(data); v != nil {
		return a.add(a.same.into, v)
	}
	if !valid(data) || data[0] != '{' {
		return garbage(data)
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

// turnGrain is how many bytes of a turn are charged at a time.
const turnGrain = 16 << 10

// tooLarge returns an error when the turn has more than a model writes, or more
// than may be kept. It is kept twice: in what it is put together in, and in the
// turn.
func (a *assembly) tooLarge() error {
	size := len(a.content.text) + len(a.reasoning) + len(a.refusal) + a.calls.bytes
	if size > maxTurn {
		return brokenAnswer(fmt.Sprintf("sent a turn larger than %d MiB", maxTurn>>20), nil)
	}
	if a.memory == nil || 2*size <= a.charged {
		return nil
	}
	more := 2*size - a.charged + turnGrain
	if err := a.memory.Charge(more); err != nil {
		return unkept(err)
	}
	a.charged += more
	return nil
}

// unkept is an answer for which there is no memory. One that is beyond the bound
// of a run is the provider's failure, as one beyond maxAnswer is. Where the org or
// the process has no room, the run ends.
func unkept(err error) error {
	var refused *ledger.Refused
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Bound == ledger.Run {
		return brokenAnswer("the answer is too large: it needs more memory than the run may retain", nil)
	}
	return &model.Error{Class: model.Target, Status: http.StatusOK, Message: "there is no memory for the answer", Err: err}
}

func (a *assembly) object(data []byte) error {
	for name, v := range members(data) {
		switch string(name) {
		case "error":
			if saysError(v) {
				return answerError(data)
			}
		case "object":
			if string(v) == `"error"` {
				return answerError(data)
			}
		case "id":
			a.id = keep(a.id, v)
		case "model":
			a.model = keep(a.model, v)
		case "usage":
			a.addUsage(v)
		case "x_groq":
			a.addUsage(member(v, "usage"))
		case "choices":
			for i, choice := range elements(v) {
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
	if !hasText(v) || string(v[1:len(v)-1]) == have {
		return have
	}
	return text(v)
}

// choice takes the first choice; others are not asked for.
func (a *assembly) choice(at int, choice, data []byte) error {
	var delta, message, finish []byte
	index := int64(at)
	for name, v := range members(choice) {
		switch string(name) {
		case "index":
			index = number(v, index)
		case "delta":
			delta = v
		case "message":
			message = v
		case "finish_reason":
			finish = v
		case "usage":
			a.addUsage(v)
		case "error":
			if index == 0 && saysError(v) {
				return answerError(choice)
			}
		}
	}
	if index != 0 {
		return nil
	}
	if a.unstreamed && !isNull(message) || isNull(delta) && !a.spoken() {
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
	if !hasText(v) {
		return nil
	}
	a.raw = keep(a.raw, v)
	if a.raw == "error" {
		return answerError(data)
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
	for name, v := range members(m) {
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
	if hasText(refusal) {
		a.pieces += 2
		at := len(a.refusal)
		a.refusal = appendText(a.refusal, refusal)
		if err := a.say(model.RefusalDelta, a.refusal[at:]); err != nil {
			return err
		}
	}
	return a.addCalls(calls)
}

func (a *assembly) addCalls(list []byte) error {
	for i, v := range elements(list) {
		a.pieces += 2
		if !a.calls.add(i, v) {
			return brokenAnswer(fmt.Sprintf("sent a turn with more than %d tool calls", maxCalls), nil)
		}
	}
	return nil
}

// add appends a piece of text, a JSON string, to where it belongs.
func (a *assembly) add(to target, v []byte) error {
	a.scratch = appendText(a.scratch[:0], v)
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
	if v[0] != '"' || !valid(v) {
		return nil
	}
	return v
}
