package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// The limits of a Reader that names none.
const (
	DefaultMaxLine  = 1 << 20
	DefaultMaxEvent = 4 << 20
)

// ReaderOptions limit what a Reader takes.
type ReaderOptions struct {
	MaxLine  int // bytes of one line without its end; 0 means DefaultMaxLine
	MaxEvent int // bytes of one event's data; 0 means DefaultMaxEvent
}

// LimitError says that a stream has a line or an event that is too large.
type LimitError struct {
	What string // "line" or "event"
	Max  int    // bytes
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("event stream: %s of more than %d bytes", e.What, e.Max)
}

// Event is one server-sent event. Its byte slices are valid until the next
// call of Next.
type Event struct {
	Name []byte // the event field; empty means "message"
	Data []byte // the data lines, joined with \n
	ID   string // the last id that the stream has named, in this event or before it
	// Retry is the reconnection time that this event asks for; 0 when it does not.
	Retry time.Duration
	// Partial is true for an event at the end of the stream that was not closed
	// by an empty line: its last line may have been cut.
	Partial bool
}

// Reader reads events. The events do not depend on how the bytes arrive.
// It is for one goroutine.
type Reader struct {
	src      io.Reader
	maxLine  int
	maxEvent int

	buf        []byte // buf[start:end] is read and not yet consumed
	start, end int
	scanned    int  // buf[start:scanned] has no line end
	skipLF     bool // the last line ended with CR: a LF now belongs to it
	begun      bool // the byte order mark is behind us
	err        error

	name    []byte
	data    []byte
	hasData bool
	id      string
	retry   time.Duration
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader, o ReaderOptions) *Reader {
	if o.MaxLine <= 0 {
		o.MaxLine = DefaultMaxLine
	}
	if o.MaxEvent <= 0 {
		o.MaxEvent = DefaultMaxEvent
	}
	return &Reader{src: r, maxLine: o.MaxLine, maxEvent: o.MaxEvent}
}

// Next returns the next event. At the end of the stream it returns io.EOF, and
// the source's own error where there is one; an event that was still open then
// is returned first, marked Partial. A stream beyond a limit ends with a
// *[LimitError]. Errors are sticky.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		line, err := r.line()
		if err != nil {
			return r.last(line, err)
		}
		if len(line) == 0 {
			if r.hasData {
				return r.event(), nil
			}
			r.reset()
			continue
		}
		if err := r.field(line); err != nil {
			return Event{}, r.fail(err)
		}
	}
}

// last ends the stream with the unterminated line that was left.
func (r *Reader) last(line []byte, err error) (Event, error) {
	var limit *LimitError
	if errors.As(err, &limit) {
		return Event{}, err
	}
	if len(line) > 0 {
		if err := r.field(line); err != nil {
			return Event{}, r.fail(err)
		}
	}
	err = r.fail(err)
	if !r.hasData {
		return Event{}, err
	}
	ev := r.event()
	ev.Partial = true
	return ev, nil
}

// fail ends the stream: what is still in the buffer is not read.
func (r *Reader) fail(err error) error {
	r.err = err
	r.start, r.end, r.scanned = 0, 0, 0
	return err
}

func (r *Reader) event() Event {
	return Event{Name: r.name, Data: r.data, ID: r.id, Retry: r.retry}
}

func (r *Reader) reset() {
	r.name, r.data, r.hasData, r.retry = r.name[:0], r.data[:0], false, 0
}

// field takes one line that is not empty.
func (r *Reader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		return r.addData(value)
	case "event":
		r.name = append(r.name[:0], value...)
	case "id":
		if string(value) != r.id && bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			r.retry = time.Duration(ms) * time.Millisecond
		}
	}
	return nil // comments and unknown fields mean nothing
}

func (r *Reader) addData(value []byte) error {
	if r.hasData {
		r.data = append(r.data, '\n')
	}
	if len(r.data)+len(value) > r.maxEvent {
		return &LimitError{What: "event", Max: r.maxEvent}
	}
	r.data, r.hasData = append(r.data, value...), true
	return nil
}
