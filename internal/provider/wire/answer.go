package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const byteOrderMark = "\xef\xbb\xbf"

// Decoder puts together the turn of one answer in one dialect. Its errors are a
// *[model.Error] or a [Stopped].
type Decoder interface {
	// Whole takes an answer that is one JSON value, without white space around it.
	Whole(data []byte) error
	// Event takes an event of a stream, and reports whether it is the last one. The
	// data is not empty and has no white space around it. It may be [Truncated].
	Event(ev sse.Event) (last bool, err error)
	// Ends reports whether an event is the end of what came before it, so that no later event
	// continues a string of an earlier one. It is asked for few events. All of them are JSON.
	Ends(ev sse.Event) bool
	// Ended reports whether the turn is complete where a stream ends without its last
	// event.
	Ended() bool
	// Size returns how many bytes of content the turn has so far, and how many bytes
	// of other members it keeps for the provider.
	Size() (content, others int)
}

// Decode reads one answer, streamed or whole, into d. The content is limited to
// [MaxTurn] and charged to memory, if there is one. The error is one of d, a
// *[model.Error], or what reading returned.
func Decode(src io.Reader, memory tool.Memory, limits sse.ReaderOptions, d Decoder) error {
	var events *sse.Reader
	err := DecodeEvents(src, memory, func(src io.Reader) Events {
		events = sse.NewReader(src, limits)
		return events
	}, d)
	if events != nil {
		events.Release()
	}
	return err
}

// Events reads the events of a stream. The data of an event is valid until the next one
// is read.
type Events interface {
	Next() (sse.Event, error) // io.EOF after the last one
}

// DecodeEvents is [Decode] for streams of another framing, which open reads. The first
// byte of such a stream is neither white space nor the first of a JSON value.
func DecodeEvents(src io.Reader, memory tool.Memory, open func(io.Reader) Events, d Decoder) error {
	whole, src, err := sniff(src)
	switch {
	case errors.Is(err, io.EOF):
		return Cut()
	case err != nil:
		return err
	case !whole:
		return decodeStream(open(src), d, &size{memory: memory})
	}
	data, err := readWhole(src, memory)
	if err != nil {
		return err
	}
	if err := d.Whole(data); err != nil {
		return err
	}
	total := size{memory: memory}
	return total.check(d.Size())
}

// decodeStream reads events up to the last one.
func decodeStream(r Events, d Decoder, total *size) error {
	var cut halves
	for {
		ev, failed := r.Next()
		var ready []sse.Event
		if failed != nil {
			ready = cut.rest()
		} else {
			if ev.Data = jsonscan.TrimSpace(ev.Data); len(ev.Data) == 0 {
				continue
			}
			if err := total.checkEvent(len(ev.Data) + cut.bytes); err != nil {
				return err
			}
			ready = cut.add(ev, d.Ends)
		}
		for _, ev := range ready {
			last, err := d.Event(ev)
			if err == nil {
				err = total.check(d.Size())
			}
			if last || err != nil {
				return err
			}
		}
		switch {
		case failed == nil:
		case d.Ended():
			return nil
		case errors.Is(failed, io.EOF):
			return Cut()
		case errors.As(failed, new(*sse.LimitError)):
			return Broken("sent a stream that is too large", failed)
		default:
			return failed
		}
	}
}

// Truncated reports whether the stream ended within the data of the event. Decode
// returns the error of the stream then, and no further event.
func Truncated(ev sse.Event) bool { return ev.Partial && !jsonscan.Valid(ev.Data) }

// sniff looks at the first byte that is not white space. whole is true for JSON:
// servers that do not support "stream", or fail before the stream, answer with one
// JSON value under any content type. An HTML page is an error.
func sniff(src io.Reader) (whole bool, rest io.Reader, err error) {
	buf := make([]byte, 0, 512)
	for {
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		start := jsonscan.AfterSpace(bytes.TrimPrefix(buf, []byte(byteOrderMark)))
		if len(start) > 0 && start[0] != byteOrderMark[0] {
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

// failing is a reader that returns an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// readWhole reads an answer that is one JSON value, and returns it without white
// space around it. It is charged to memory, if there is one.
func readWhole(src io.Reader, memory tool.Memory) ([]byte, error) {
	data, err := memlimit.ReadAll(src, -1, memory)
	if err != nil {
		return nil, unkept(err)
	}
	data = jsonscan.TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	if !jsonscan.Valid(data) {
		err := Garbage(data)
		if n := len(data); n > 0 && data[n-1] != '}' && data[n-1] != ']' {
			err.Class = model.Transient // the connection has broken
		}
		return nil, err
	}
	return data, nil
}

// size limits the content of one turn to [MaxTurn] and charges it to memory. It is
// charged twice: the decoder holds it, and the turn has a copy.
type size struct {
	memory  tool.Memory // nil = nothing is charged
	charged int         // bytes of the turn
	buffers int         // bytes of the reader's buffers that are charged
}

// turnGrain is how many bytes of a turn are charged at a time.
const turnGrain = 16 << 10

// check returns an error if a turn with that many bytes of content, and of other
// members, exceeds a limit.
func (s *size) check(content, others int) error {
	bytes := content + others
	if content > MaxTurn {
		return Broken(fmt.Sprintf("sent a turn larger than %d MiB", MaxTurn>>20), nil)
	}
	if s.memory == nil || 2*bytes <= s.charged {
		return nil
	}
	more := 2*bytes - s.charged + turnGrain
	if err := s.memory.Acquire(more); err != nil {
		return unkept(err)
	}
	s.charged += more
	return nil
}

// checkEvent charges the buffers of the reader of a stream, which has read an event of
// that many bytes. It keeps them until the stream ends.
func (s *size) checkEvent(bytes int) error {
	buffers := 2 * bytes // a line, and the data of an event
	if s.memory == nil || bytes <= turnGrain || buffers <= s.buffers {
		return nil
	}
	if err := s.memory.Acquire(buffers - s.buffers); err != nil {
		return unkept(err)
	}
	s.buffers = buffers
	return nil
}

// unkept returns the error of an answer for which there is not enough memory. An
// answer that exceeds the limit of a run is the provider's failure, as one beyond
// MaxAnswer is. If the org or the process has no memory left, the run ends.
func unkept(err error) error {
	var refused *memlimit.Refused
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Bound == memlimit.Run {
		return Broken("the answer is too large: it needs more memory than the run may retain", nil)
	}
	return &model.Error{Class: model.Target, Status: http.StatusOK, Message: "the answer needs more memory than the gateway may use", Err: err}
}

// Settled returns the stop reason of a turn with so many calls. Some providers mix up the
// end and calls: the calls decide.
func Settled(stop model.Stop, calls int) model.Stop {
	switch {
	case stop == model.StopEnd && calls > 0:
		return model.StopCalls
	case stop == model.StopCalls && calls == 0:
		return model.StopEnd
	}
	return stop
}

// Announced returns the turn and the error of an answer whose stop reason is announced. One that
// ends because the model calls tools, and has no call that can be read, is an error: its calls
// are lost, and the answer of the model is still to come.
func Announced(t *model.Turn, announced model.Stop, err error) (*model.Turn, error) {
	if err != nil || announced != model.StopCalls {
		return t, err
	}
	for _, c := range t.Calls {
		if c.Complete && c.Name != "" {
			return t, nil
		}
	}
	t.Stop = ""
	return t, Broken("ended the answer for tool calls, and sent none that can be read", nil)
}
