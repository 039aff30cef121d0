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

// ErrClosed is returned by a Writer after Close.
var ErrClosed = errors.New("event stream: closed")

const (
	defaultWriteTimeout = 30 * time.Second
	keptBuffer          = 16 << 10 // a larger frame's memory is not kept
)

// Options configure a Writer.
type Options struct {
	// Header is sent beside the stream's own fields; nil means nothing more.
	Header http.Header
	// WriteTimeout is how long one event may take to leave, so that a client
	// that has stopped reading ends the stream; 0 means 30 s.
	WriteTimeout time.Duration
	// Heartbeats keeps the stream alive while it is silent; nil means that
	// nobody does.
	Heartbeats *Heartbeats
}

// Writer writes events to an HTTP answer. Each event leaves in one write and
// one flush. Status and header are sent with the first event or heartbeat:
// until then the handler may still answer something else. All methods are safe
// for concurrent use.
//
// The handler calls Close before it returns.
type Writer struct {
	rw      http.ResponseWriter
	control *http.ResponseController
	o       Options
	started atomic.Bool
	made    time.Time
	touched atomic.Int64 // when something last left, in ns after made

	mu  sync.Mutex
	buf []byte
	err error // the first one; nothing is written after it

	quiet bool // no heartbeat any more
}

// NewWriter returns a Writer on rw. It sends nothing yet.
func NewWriter(rw http.ResponseWriter, o Options) *Writer {
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	w := &Writer{rw: rw, control: http.NewResponseController(rw), o: o, made: time.Now()}
	if o.Heartbeats != nil {
		o.Heartbeats.add(w)
	}
	return w
}

// SetHeader adds a field to what is sent before the first event. It reports
// whether there was still time.
func (w *Writer) SetHeader(name, value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started.Load() {
		return false
	}
	w.rw.Header().Set(name, value)
	return true
}

// Event sends data without a name. Data with line ends becomes several data
// lines. The first error of a stream is returned by all calls after it.
func (w *Writer) Event(data []byte) error { return w.Named("", data) }

// Named sends data as an event of the given name. Line ends in the name are
// left out.
func (w *Writer) Named(event string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if event != "" {
		w.buf = append(w.buf, "event: "...)
		w.buf = appendName(w.buf, event)
		w.buf = append(w.buf, '\n')
	}
	w.buf = appendLines(w.buf, "data: ", data)
	return w.send(w.o.WriteTimeout)
}

// Comment sends text as comment lines, which clients ignore.
func (w *Writer) Comment(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = appendLines(w.buf, ": ", []byte(text))
	return w.send(w.o.WriteTimeout)
}

// Started reports whether status and header have left, so that nothing but
// events can be answered.
func (w *Writer) Started() bool { return w.started.Load() }

// Quiet ends the heartbeats: when it has returned, only the caller's own events
// can begin the stream.
func (w *Writer) Quiet() {
	if w.o.Heartbeats != nil {
		w.o.Heartbeats.remove(w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = true
}

// Close ends the use of the ResponseWriter. It waits for a write that is under
// way. It sends nothing.
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

// send closes the frame in buf with an empty line and lets it leave.
// The caller holds mu.
func (w *Writer) send(timeout time.Duration) error {
	w.buf = append(w.buf, '\n')
	frame := w.buf
	w.buf = frame[:0]
	if cap(frame) > keptBuffer {
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
	w.touched.Store(int64(time.Since(w.made)))
	// A deadline that is left would outlive the silence after this event: it
	// resets an HTTP/2 stream and fails the next request on an HTTP/1 connection.
	return w.supported(w.control.SetWriteDeadline(time.Time{}))
}

// supported takes an error of a ResponseController. Not every ResponseWriter
// has deadlines or flushes; one without them is still written to.
func (w *Writer) supported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// silence is how long nothing has left.
func (w *Writer) silence(now time.Time) time.Duration {
	return now.Sub(w.made) - time.Duration(w.touched.Load())
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

// appendLines appends text line by line, each with the prefix, so that no line
// of it can be read as a field of its own.
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

func appendName(dst []byte, name string) []byte {
	for i := range len(name) {
		if c := name[i]; c != '\n' && c != '\r' {
			dst = append(dst, c)
		}
	}
	return dst
}
