package sse

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned by the methods of a Writer after Close.
var ErrClosed = errors.New("event stream: the writer is closed")

const (
	defaultWriteTimeout = 30 * time.Second
	maxKeptBuffer       = 16 << 10 // bytes; a larger buffer is released after its frame
)

// Options configure a Writer. The zero value is valid.
type Options struct {
	// Header is added to the response header. It does not override the fields that
	// a Writer sets itself.
	Header http.Header
	// WriteTimeout is the limit on the time to write one event. A client that does
	// not read ends the stream after it. 0 means 30 s.
	WriteTimeout time.Duration
	// Heartbeats sends heartbeats while the stream is silent; nil = none.
	Heartbeats *Heartbeats
}

// Writer writes events to an HTTP response. It sends each event with one write and one
// flush. It sends the status and the header with the first event, comment or heartbeat:
// until then the handler may send another response. All methods are safe for concurrent
// use.
//
// The handler must call Close before it returns.
type Writer struct {
	rw       http.ResponseWriter
	control  *http.ResponseController
	o        Options
	started  atomic.Bool
	created  time.Time
	lastSent atomic.Int64 // time of the last write, in nanoseconds after created

	mu  sync.Mutex // guards rw, control and the fields below
	buf []byte     // the frame to send
	err error      // the first error; nothing is written after it

	heartbeatsStopped bool
}

// NewWriter returns a Writer that writes to rw. It sends nothing itself.
func NewWriter(rw http.ResponseWriter, o Options) *Writer {
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	w := &Writer{rw: rw, control: http.NewResponseController(rw), o: o, created: time.Now()}
	if o.Heartbeats != nil {
		o.Heartbeats.add(w)
	}
	return w
}

// SetHeader sets a field of the response header. It returns false and does nothing if
// the header has been sent.
func (w *Writer) SetHeader(name, value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started.Load() {
		return false
	}
	w.rw.Header().Set(name, value)
	return true
}

// Event sends an event without a name. Each line of data becomes one data line. After an
// error, Event, Named, Identified and Comment send nothing and return the same error.
func (w *Writer) Event(data []byte) error { return w.Named("", data) }

// Named sends an event with a name. It removes line ends from the name.
func (w *Writer) Named(event string, data []byte) error { return w.Identified("", event, data) }

// Identified sends an event with an id and a name. A client that connects again sends the
// latest id that it has got. It removes line ends from the id and the name.
func (w *Writer) Identified(id, event string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(id, event, data)
	return w.send(w.o.WriteTimeout)
}

// Prepend keeps an event without a name, to be sent in one write with the next event or
// comment, in front of it. An event that nothing follows is not sent.
func (w *Writer) Prepend(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add("", "", data)
	w.buf = append(w.buf, '\n')
}

// add appends an event without its empty line to buf. mu is held.
func (w *Writer) add(id, event string, data []byte) {
	if id != "" {
		w.buf = append(w.buf, "id: "...)
		w.buf = appendName(w.buf, id)
		w.buf = append(w.buf, '\n')
	}
	if event != "" {
		w.buf = append(w.buf, "event: "...)
		w.buf = appendName(w.buf, event)
		w.buf = append(w.buf, '\n')
	}
	w.buf = appendLines(w.buf, "data: ", data)
}

// Comment sends text as comment lines, which clients ignore.
func (w *Writer) Comment(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = appendLines(w.buf, ": ", []byte(text))
	return w.send(w.o.WriteTimeout)
}

// Started reports whether the status and the header have been sent. After that only
// events can follow.
func (w *Writer) Started() bool { return w.started.Load() }

// StopHeartbeats stops the heartbeats of this Writer. After it has returned, Started changes only
// through calls of Event, Named or Comment.
func (w *Writer) StopHeartbeats() {
	if w.o.Heartbeats != nil {
		w.o.Heartbeats.remove(w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heartbeatsStopped = true
}

// Close ends the use of the ResponseWriter. It waits for a write in progress and sends
// nothing. It may be called more than once.
func (w *Writer) Close() {
	if w.o.Heartbeats != nil {
		w.o.Heartbeats.remove(w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = ErrClosed
	}
	w.buf = nil
}

// send ends the frame in buf with an empty line and writes it. mu is held.
func (w *Writer) send(timeout time.Duration) error {
	w.buf = append(w.buf, '\n')
	frame := w.buf
	w.buf = frame[:0]
	if cap(frame) > maxKeptBuffer {
		w.buf = nil
	}
	if w.err == nil {
		w.err = w.write(frame, timeout)
	}
	return w.err
}

func (w *Writer) write(frame []byte, timeout time.Duration) error {
	w.start()
	if err := w.supported(w.control.SetWriteDeadline(time.Now().Add(timeout))); err != nil {
		return err
	}
	if _, err := w.rw.Write(frame); err != nil {
		return err
	}
	if err := w.supported(w.control.Flush()); err != nil {
		return err
	}
	w.lastSent.Store(int64(time.Since(w.created)))
	// Clear the deadline: if it expires before the next event, it resets an HTTP/2
	// stream and fails the next request on an HTTP/1 connection.
	return w.supported(w.control.SetWriteDeadline(time.Time{}))
}

// supported returns err, or nil for http.ErrNotSupported: a ResponseWriter without
// deadlines or flushes is used without them.
func (w *Writer) supported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// silence returns the time since the last write, or since the Writer was created.
func (w *Writer) silence(now time.Time) time.Duration {
	return now.Sub(w.created) - time.Duration(w.lastSent.Load())
}

func (w *Writer) start() {
	if w.started.Swap(true) {
		return
	}
	h := w.rw.Header()
	maps.Copy(h, w.o.Header)
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	h.Del("Content-Length")
	w.rw.WriteHeader(http.StatusOK)
}

// appendLines appends each line of text with the prefix and an LF. A line of text can
// therefore not be parsed as another field. LF, CRLF and CR end a line.
func appendLines(dst []byte, prefix string, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\n')
		if j := bytes.IndexByte(text[:max(i, 0)], '\r'); j >= 0 {
			i = j
		} else if i < 0 {
			i = bytes.IndexByte(text, '\r')
		}
		dst = append(dst, prefix...)
		if i < 0 {
			return append(append(dst, text...), '\n')
		}
		dst = append(append(dst, text[:i]...), '\n')
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			i++
		}
		text = text[i+1:]
	}
}

// appendName appends a name or an id without its line ends.
func appendName(dst []byte, name string) []byte {
	for i := range len(name) {
		if c := name[i]; c != '\n' && c != '\r' {
			dst = append(dst, c)
		}
	}
	return dst
}
