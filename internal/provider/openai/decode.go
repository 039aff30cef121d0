package openai

import (
	"io"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decode reads one answer, streamed or whole, reports its deltas and returns
// the turn. It returns a partial turn with the error if something came before it.
// The turn is charged to memory, if there is one. The error is a *model.Error, a
// [wire.Stopped], or that of src.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &assembly{Emit: emit}
	err := wire.Decode(src, memory, sse.ReaderOptions{}, a)
	if err == nil {
		err = a.reportRest()
	}
	if err != nil && a.empty() {
		return nil, err
	}
	return wire.Announced(a.turn(), stopOf(a.raw), err)
}

// empty reports whether the turn has no content yet.
func (a *assembly) empty() bool {
	return a.id == "" && a.model == "" && !a.hasOutput() && !a.ended
}

// Event implements wire.Decoder.
func (a *assembly) Event(ev sse.Event) (last bool, err error) {
	switch {
	case string(ev.Data) == "[DONE]":
		a.done()
		return true, nil
	case string(ev.Name) == "error":
		return false, wire.AnswerError(ev.Data)
	case wire.Truncated(ev):
		return false, nil
	}
	return false, a.chunk(ev.Data)
}

// Ends implements wire.Decoder. Some providers send a finish reason with each chunk. The end is
// [DONE], or that of the stream.
func (a *assembly) Ends(sse.Event) bool { return false }

// Ended implements wire.Decoder. After a finish reason only [DONE] and the usage may
// be missing.
func (a *assembly) Ended() bool { return a.ended && !a.late }

// Size implements wire.Decoder.
func (a *assembly) Size() (content, others int) {
	return len(a.content.text) + len(a.reasoning) + len(a.refusal) + a.calls.bytes, a.others + a.calls.others
}

// done ends a turn at [DONE], or at the end of an answer of one object. A finish
// reason may be missing, and calls may come after it.
func (a *assembly) done() {
	a.counted = true
	if !a.ended || a.late {
		a.endCalls()
	}
}

// isEmpty reports whether a member is missing, null or an empty array.
func isEmpty(value []byte) bool {
	switch string(value) {
	case "", "null", "[]":
		return true
	}
	return false
}

// Whole implements wire.Decoder.
func (a *assembly) Whole(data []byte) error {
	if data[0] != '{' || isEmpty(jsonscan.Member(data, "choices")) {
		return wire.Foreign(data, "the answer has no choices")
	}
	a.unstreamed = true
	if err := a.object(data); err != nil {
		return err
	}
	a.done()
	return nil
}
