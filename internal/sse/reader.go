package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// The default limits of a Reader, in bytes.
const (
	DefaultMaxLine  = 1 << 20
	DefaultMaxEvent = 4 << 20
)

// ReaderOptions are the limits of a Reader. The zero value has the default limits.
type ReaderOptions struct {
	MaxLine  int // bytes of a line without its line end; 0 means DefaultMaxLine
	MaxEvent int // bytes of an event's data; 0 means DefaultMaxEvent
}

// LimitError reports a line or an event that exceeds its limit.
type LimitError struct {
	What string // "line" or "event"
	Max  int    // bytes
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("event stream: %s is larger than %d bytes", e.What, e.Max)
}

// Event is one server-sent event. Its byte slices are valid until the next
// call of Next.
type Event struct {
	Name []byte // the event field; empty means "message"
	Data []byte // the data lines, joined with \n
	ID   string // the latest id field of the stream, in this event or an earlier one
	// Retry is the retry field of this event; 0 = none.
	Retry time.Duration
	// Partial is true for an event at the end of the stream without an empty line
	// after it. Its last line may be truncated.
	Partial bool
}

// Reader reads events as the HTML standard defines them (section "Server-sent events"),
// except that it returns an incomplete last event as Partial. It is not safe for
// concurrent use.
type Reader struct {
	src      io.Reader
	maxLine  int
	maxEvent int

	buf        []byte // buf[start:end] is read and not consumed
	start, end int
	scanned    int   // buf[start:scanned] contains no line end
	skipLF     bool  // the last line ended with CR: a following LF belongs to it
	bomChecked bool  // a byte order mark was skipped or is not there
	err        error // of the source, or of the Reader; sticky

	name    []byte
	data    []byte
	hasData bool
	id      string
	retry   time.Duration

	from *buffers // where buf, name and data go back to; nil after Release
}

// buffers are the memory of a Reader, which the next one uses.
type buffers struct{ buf, name, data []byte }

// maxKept is the largest size of buffers that are used again, in bytes.
const maxKept = 64 << 10

var spareBuffers = sync.Pool{New: func() any { return &buffers{} }}

var errReleased = errors.New("event stream: the reader was released")

// NewReader returns a Reader that reads from r. A Reader that is released after use gives its
// memory to the next one.
func NewReader(r io.Reader, o ReaderOptions) *Reader {
	if o.MaxLine <= 0 {
		o.MaxLine = DefaultMaxLine
	}
	if o.MaxEvent <= 0 {
		o.MaxEvent = DefaultMaxEvent
	}
	b := spareBuffers.Get().(*buffers)
	taken := *b
	*b = buffers{}
	return &Reader{
		src: r, maxLine: o.MaxLine, maxEvent: o.MaxEvent,
		buf: taken.buf, name: taken.name[:0], data: taken.data[:0], from: b,
	}
}

// Release ends the use of the Reader. The slices of its events must not be used any more, and
// Next returns an error. Release may be called more than once.
func (r *Reader) Release() {
	b := r.from
	if b == nil {
		return
	}
	if cap(r.buf)+cap(r.name)+cap(r.data) <= maxKept {
		*b = buffers{r.buf, r.name, r.data}
		b.overwrite()
		spareBuffers.Put(b)
	}
	r.buf, r.name, r.data, r.hasData, r.from = nil, nil, nil, false, nil
	_ = r.fail(errReleased)
}

// Next returns the next event. At the end of the stream it returns io.EOF or the error
// of the source; an incomplete event is returned before it, with Partial set. If the
// stream exceeds a limit, Next returns a *[LimitError]. After an error, Next returns the
// same error again.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		line, err := r.line()
		if err != nil {
			return r.finish(line, err)
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

// finish handles the end of the stream. line is its unterminated last line.
func (r *Reader) finish(line []byte, err error) (Event, error) {
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

// fail sets the sticky error and discards the buffer.
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

// field processes one line that is not empty.
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
	return nil // comments and unknown fields are ignored
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
