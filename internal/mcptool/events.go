package mcptool

import (
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

// events reads the event stream with the answer to a request. It answers what the server asks
// before.
type events struct {
	answer  *answer
	body    *closing // the server's present stream
	limit   *capped  // the cap over all streams of the answer
	src     *sse.Reader
	failure func(error) error // names the error of a read
	resume  func(lastID string, delay time.Duration) (io.ReadCloser, error)
	lastID  string // of the events seen so far
	delay   time.Duration
	asked   int
	resumes int
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

// read returns the frame that answers the request, or an error frame if the stream has none. The
// stream is then over.
func (e *events) read() []byte {
	frame := e.next()
	for frame == nil {
		frame = e.next()
	}
	e.drain()
	_ = e.body.Close()
	e.src.Release()
	return frame
}

// next takes one event of the server. It returns the frame for the answer, or nil.
func (e *events) next() []byte {
	event, err := e.src.Next()
	if err != nil {
		return e.ended(err)
	}
	e.lastID = event.ID
	if event.Retry > 0 {
		e.delay = event.Retry
	}
	f, err := decodeFrame(event.Data)
	switch {
	case err != nil: // a priming event, or noise
	case f.answers(e.answer.id):
		return e.answer.settle(f)
	case f.announces():
		e.answer.transport.client.changed()
	case f.asks() && e.asked < maxAsked:
		e.asked++
		e.answer.respond(f)
	}
	return nil
}

// ended goes on with a stream that has ended without the answer, or gives up.
func (e *events) ended(err error) []byte {
	var limit *sse.LimitError
	switch {
	case errors.As(err, &limit), errors.Is(err, errTooLarge):
		return e.answer.fail(tooLarge(err))
	case e.lastID == "" || e.resumes >= maxResumes:
		return e.answer.fail(e.failure(err))
	}
	e.resumes++
	body, err := e.resume(e.lastID, e.delay)
	if err != nil {
		return e.answer.fail(e.failure(err))
	}
	_ = e.body.ReadCloser.Close() // the context that it would release is still in use
	e.body = &closing{body, e.body.release}
	e.limit.Reader = body
	e.src.Release()
	e.src = eventReader(e.limit)
	return nil
}

// tooLarge returns err as an error that wraps errTooLarge.
func tooLarge(err error) error {
	if errors.Is(err, errTooLarge) {
		return err
	}
	return errTooLarge
}

// drain reads the end of the stream, so that the connection can be kept; one
// that does not end soon is closed.
func (e *events) drain() {
	body := e.body
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, maxErrorBody)
}

// respond answers a request of the server in the stream. It does not wait for the server.
func (a *answer) respond(f frame) {
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for _, name := range []string{"Mcp-Protocol-Version", "Mcp-Session-Id"} {
		if v := a.request.Header.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	if a.method == methodInitialize && a.session != "" {
		header.Set("Mcp-Session-Id", a.session)
	}
	r := a.request.WithContext(a.request.Context())
	r.Header = header
	a.transport.tellLater(r, replyTo(f), "mcp server's request not answered")
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
