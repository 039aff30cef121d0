package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decode reads one answer, streamed or whole, reports its deltas and returns
// the turn. The turn stands beside an error where something had come before
// it. What the turn takes is charged to memory, if there is one. The error is a
// *model.Error, an emitError, or what reading returned.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &assembly{emit: emit, memory: memory}
	whole, src, err := sniff(src)
	switch {
	case errors.Is(err, io.EOF):
		err = cut()
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

// sniff looks at the first byte that is not white space. Servers that ignore
// "stream", or fail before they stream, answer with JSON under any content type.
func sniff(src io.Reader) (whole bool, rest io.Reader, err error) {
	buf := make([]byte, 0, 512)
	for {
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		start := afterSpace(bytes.TrimPrefix(buf, []byte("\xef\xbb\xbf")))
		if len(start) > 0 && start[0] != 0xef {
			if start[0] == '<' {
				return false, nil, page()
			}
			rest := io.MultiReader(bytes.NewReader(buf), src)
			if err != nil {
				rest = io.MultiReader(bytes.NewReader(buf), failing{err})
			}
			return start[0] == '{' || start[0] == '[', rest, nil
		}
		if err != nil {
			return false, nil, err
		}
		if len(buf) == cap(buf) {
			buf = buf[:0] // nothing but white space
		}
	}
}

// failing repeats an error that came together with the first bytes.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// stream reads events until the turn has ended.
func (a *assembly) stream(src io.Reader) error {
	r := sse.NewReader(src, sse.ReaderOptions{})
	for {
		ev, err := r.Next()
		if err != nil {
			return a.close(err)
		}
		data := trimSpace(ev.Data)
		switch {
		case len(data) == 0:
		case string(data) == "[DONE]":
			a.done()
			return nil
		case string(ev.Name) == "error":
			return answerError(data)
		case ev.Partial && !valid(data): // the rest follows as the reader's error
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
		return cut()
	case errors.As(err, &limit):
		return brokenAnswer("sent a stream that is too large", err)
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
	err := answerError(data)
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
	data, err := ledger.ReadAll(src, -1, a.memory)
	if err != nil {
		return unkept(err)
	}
	data = trimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	switch {
	case !valid(data):
		return garbage(data)
	case data[0] != '{' || isNothing(member(data, "choices")):
		return noChoices(data)
	}
	a.unstreamed = true
	if err := a.object(data); err != nil {
		return err
	}
	a.done()
	return a.tooLarge()
}
