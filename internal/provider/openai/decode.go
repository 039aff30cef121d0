package openai

import (
	"errors"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decode reads one answer, streamed or whole, reports its deltas and returns
// the turn. The turn stands beside an error where something had come before
// it. What the turn takes is charged to memory, if there is one. The error is a
// *model.Error, a [wire.Stopped], or what reading returned.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &assembly{emit: emit, size: wire.Size{Memory: memory}}
	whole, src, err := wire.Sniff(src)
	switch {
	case errors.Is(err, io.EOF):
		err = wire.Cut()
	case err != nil:
	case whole:
		err = a.whole(src)
	default:
		err = a.stream(src)
	}
	if err != nil && a.empty() {
		return nil, err
	}
	return a.turn(), err
}

// empty reports whether nothing of the turn has come.
func (a *assembly) empty() bool {
	return a.id == "" && a.model == "" && !a.spoken() && !a.ended
}

// stream reads events until the turn has ended.
func (a *assembly) stream(src io.Reader) error {
	r := sse.NewReader(src, sse.ReaderOptions{})
	for {
		ev, err := r.Next()
		if err != nil {
			return a.close(err)
		}
		data := wire.TrimSpace(ev.Data)
		switch {
		case len(data) == 0:
		case string(data) == "[DONE]":
			a.done()
			return nil
		case string(ev.Name) == "error":
			return wire.AnswerError(data)
		case ev.Partial && !wire.Valid(data): // the rest follows as the reader's error
		default:
			if err := a.chunk(data); err != nil {
				return err
			}
			if err := a.tooLarge(); err != nil {
				return err
			}
		}
	}
}

// close ends a stream without [DONE]. Once there was a finish reason the turn
// is all there; only its usage may be missing.
func (a *assembly) close(err error) error {
	var limit *sse.LimitError
	switch {
	case a.ended:
		return nil
	case errors.Is(err, io.EOF):
		return wire.Cut()
	case errors.As(err, &limit):
		return wire.Broken("sent a stream that is too large", err)
	}
	return err
}

// done ends a turn whose end the provider marked with [DONE], or by closing
// the one object of its answer; a finish reason may be missing.
func (a *assembly) done() {
	if !a.ended {
		a.ended = true
		a.calls.end(true)
	}
}

// noChoices is a JSON answer that is an error, or nothing that we know.
func noChoices(data []byte) error {
	err := wire.AnswerError(data)
	if err.Message == "" {
		err.Message = "the answer has no choices"
	}
	return err
}

// isNothing reports whether a member is missing, null or an empty array.
func isNothing(value []byte) bool {
	switch string(value) {
	case "", "null", "[]":
		return true
	}
	return false
}

// whole reads an answer that is one JSON object.
func (a *assembly) whole(src io.Reader) error {
	data, err := wire.ReadWhole(src, a.size.Memory)
	switch {
	case err != nil:
		return err
	case data[0] != '{' || isNothing(wire.Member(data, "choices")):
		return noChoices(data)
	}
	a.unstreamed = true
	if err := a.object(data); err != nil {
		return err
	}
	a.done()
	return a.tooLarge()
}
