package mcptool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// Limits of an event stream.
const (
	maxAsked    = 16                     // requests of the server that are answered during one call
	maxResumes  = 8                      // times a stream that the server closed is taken up again
	resumeDelay = 200 * time.Millisecond // where the server names none
	maxDelay    = 5 * time.Second
	drainTime   = 100 * time.Millisecond // what a stream gets to end after the answer
)

// events is an event stream as the SDK sees it: requests of the server, reduced
// to what must be answered, then exactly one frame that answers the call, also
// where the stream has none. It reads from the server as it is read.
type events struct {
	answer   *answer
	body     *closing // the server's present stream
	limit    *capped  // the cap over all streams of the answer
	src      *sse.Reader
	failure  func(error) error // names the error of a read
	resume   func(lastID string, delay time.Duration) (io.ReadCloser, error)
	lastID   string // of the events seen so far
	delay    time.Duration
	asked    int
	resumes  int
	answered bool
	drained  bool
	out      bytes.Buffer
}

// stream returns the events of an answer that src reads from body within limit.
// ctx bounds their reading.
func (a *answer) stream(ctx context.Context, src io.Reader, body *closing, limit *capped) *events {
	return &events{
		answer: a, body: body, limit: limit, src: eventReader(src),
		failure: func(err error) error { return readFailure(ctx, err) },
		resume:  func(id string, d time.Duration) (io.ReadCloser, error) { return a.resume(ctx, id, d) },
	}
}

func eventReader(src io.Reader) *sse.Reader {
	return sse.NewReader(src, sse.ReaderOptions{MaxLine: maxAnswer, MaxEvent: maxAnswer})
}

// Read implements [io.Reader].
func (e *events) Read(p []byte) (int, error) {
	for e.out.Len() == 0 {
		if e.answered {
			e.drain()
			return 0, io.EOF
		}
		e.next()
	}
	return e.out.Read(p)
}

// Close implements [io.Closer].
func (e *events) Close() error { return e.body.Close() }

// next takes one event of the server.
func (e *events) next() {
	event, err := e.src.Next()
	if err != nil {
		e.ended(err)
		return
	}
	e.lastID = event.ID
	if event.Retry > 0 {
		e.delay = event.Retry
	}
	f, err := decodeFrame(event.Data)
	switch {
	case err != nil: // a priming event, or noise
	case f.answers(e.answer.id):
		e.finish(e.answer.settle(f))
	case f.announces():
		e.answer.transport.client.changed()
	case f.asks() && e.asked < maxAsked:
		e.asked++
		e.emit(encode(map[string]any{"jsonrpc": "2.0", "id": f.ID, "method": *f.Method}))
	}
}

// ended goes on with a stream that has ended without the answer, or gives up.
func (e *events) ended(err error) {
	var limit *sse.LimitError
	switch {
	case errors.As(err, &limit), errors.Is(err, errTooLarge):
		e.finish(e.answer.fail(tooLarge(err)))
	case e.lastID == "" || e.resumes >= maxResumes:
		e.finish(e.answer.fail(e.failure(err)))
	default:
		e.resumes++
		body, err := e.resume(e.lastID, e.delay)
		if err != nil {
			e.finish(e.answer.fail(e.failure(err)))
			return
		}
		_ = e.body.ReadCloser.Close() // the context that it would release is still in use
		e.body = &closing{body, e.body.release}
		e.limit.Reader = body
		e.src = eventReader(e.limit)
	}
}

// tooLarge returns err as an error that wraps errTooLarge.
func tooLarge(err error) error {
	if errors.Is(err, errTooLarge) {
		return err
	}
	return errTooLarge
}

func (e *events) finish(frame []byte) {
	e.emit(frame)
	e.answered = true
}

// only waits for the first frame and returns it if it answers the call. The stream is
// then over. Otherwise it returns nil, and the frame is the first that Read returns.
func (e *events) only() []byte {
	for e.out.Len() == 0 {
		e.next()
	}
	if !e.answered {
		return nil
	}
	e.drain()
	_ = e.Close()
	frame := bytes.TrimPrefix(e.out.Bytes(), []byte(dataField))
	return bytes.TrimSuffix(frame, []byte(eventEnd))
}

// What surrounds the data of an event.
const (
	dataField = "data: "
	eventEnd  = "\n\n"
)

func (e *events) emit(frame []byte) {
	e.out.WriteString(dataField)
	e.out.Write(frame)
	e.out.WriteString(eventEnd)
}

// drain reads the end of the stream, so that the connection can be kept; one
// that does not end soon is closed.
func (e *events) drain() {
	if e.drained {
		return
	}
	e.drained = true
	body := e.body
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, maxErrorBody)
}

// resume asks for the rest of a stream that the server closed on purpose, as
// revisions before 2026-07-28 allow.
func (a *answer) resume(ctx context.Context, lastID string, delay time.Duration) (io.ReadCloser, error) {
	if a.request.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
		return nil, io.ErrUnexpectedEOF
	}
	if delay == 0 {
		delay = resumeDelay
	}
	if err := sleep(ctx, min(delay, maxDelay)); err != nil {
		return nil, err
	}
	r := a.request.Clone(ctx)
	r.Header.Set("Last-Event-ID", lastID)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Del("Content-Type")
	resp, err := a.transport.send(ctx, r, http.MethodGet, nil, a.exchange)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp.Header.Get("Content-Type")) != "text/event-stream" {
		_ = resp.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return resp.Body, nil
}

func mediaType(contentType string) string {
	t, _, _ := mime.ParseMediaType(contentType)
	return t
}

// sleep waits for d or for the end of ctx, whose cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
