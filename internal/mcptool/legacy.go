package mcptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// errEndpoint is the error of an event stream without a valid endpoint of the same origin.
var errEndpoint = errors.New("the server did not open a legacy SSE session")

// eventWire is the wire of legacy SSE: each message is a POST, and all answers come on one event
// stream.
type eventWire struct {
	client   *Client
	life     context.Context // ends with the wire; carries no values
	cancel   context.CancelCauseFunc
	body     io.Closer
	src      *sse.Reader
	endpoint string // where messages are posted
}

// connectSSE makes a session with a server that is known to support legacy SSE.
func (c *Client) connectSSE(ctx context.Context) (*session, outcome) {
	w, o := c.openEvents(ctx, c.server.Timeout)
	if w == nil {
		return nil, o
	}
	return c.connectEvents(ctx, w)
}

func (c *Client) connectEvents(ctx context.Context, w *eventWire) (*session, outcome) {
	return c.connectLink(ctx, LegacySSE, w, sessionVersion)
}

// openEvents opens the event stream and waits for the event with the endpoint, at most for
// limit. The stream does not end with ctx.
func (c *Client) openEvents(ctx context.Context, limit time.Duration) (*eventWire, outcome) {
	ctx, done := context.WithTimeout(ctx, limit)
	defer done()
	w := &eventWire{client: c}
	w.life, w.cancel = context.WithCancelCause(c.life)
	unwatch := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
	defer unwatch()
	o := w.open()
	if o.err == nil && !unwatch() {
		o.err = context.Cause(ctx)
	}
	if o.err != nil {
		if w.life.Err() != nil {
			o.err = context.Cause(w.life)
		}
		w.close()
		o.connecting = true
		return nil, o
	}
	return w, outcome{}
}

// open performs the request and reads the first event.
func (w *eventWire) open() outcome {
	r, err := http.NewRequestWithContext(w.life, http.MethodGet, w.client.server.URL, http.NoBody)
	if err != nil {
		return outcome{err: err}
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := w.client.direct.Do(r) //nolint:bodyclose // close of the wire does it
	if err != nil {
		return outcome{err: err}
	}
	w.body = resp.Body
	switch {
	case !success(resp):
		return outcome{status: resp.StatusCode, err: &statusError{status: resp.StatusCode}}
	case mediaType(resp.Header.Get("Content-Type")) != "text/event-stream":
		return outcome{status: resp.StatusCode, err: fmt.Errorf("%w: content type %.100q", errEndpoint, resp.Header.Get("Content-Type"))}
	}
	w.src = eventReader(resp.Body)
	event, err := w.src.Next()
	if err != nil {
		return outcome{status: resp.StatusCode, err: fmt.Errorf("%w: %w", errEndpoint, readFailure(w.life, err))}
	}
	if string(event.Name) != "endpoint" {
		return outcome{status: resp.StatusCode, err: fmt.Errorf("%w: the first one is called %.100q", errEndpoint, event.Name)}
	}
	w.endpoint, err = resolveEndpoint(w.client.server.URL, string(event.Data))
	return outcome{status: resp.StatusCode, err: err}
}

// resolveEndpoint returns the URL of an endpoint event. It must have the server's origin, because
// requests to it contain the configured headers and the arguments of calls.
func resolveEndpoint(server, endpoint string) (string, error) {
	home, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	there, err := home.Parse(endpoint)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: no URL", errEndpoint)
	case !sameOrigin(home, there), there.User != nil:
		return "", fmt.Errorf("%w: messages would go to another origin", errEndpoint)
	}
	there.Fragment = ""
	return there.String(), nil
}

// next implements [wire].
func (w *eventWire) next() (message, error) {
	for {
		event, err := w.src.Next()
		var limit *sse.LimitError
		switch {
		case errors.As(err, &limit):
			return message{}, errTooLarge
		case err != nil:
			return message{}, readFailure(w.life, err)
		case len(event.Name) == 0 || string(event.Name) == "message":
			return message{data: bytes.Clone(event.Data)}, nil
		}
	}
}

// send implements [wire].
func (w *eventWire) send(ctx context.Context, data []byte, x *exchange) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unwatch := context.AfterFunc(w.life, func() { cancel(context.Cause(w.life)) })
	defer unwatch()
	r, err := http.NewRequestWithContext(withExchange(ctx, x), http.MethodPost, w.endpoint, bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.client.direct.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // so that the connection can be kept
	if success(resp) {
		return nil
	}
	x.update(func(o *outcome) { o.status = resp.StatusCode })
	return &statusError{resp.StatusCode, beginning(body)}
}

// close implements [wire].
func (w *eventWire) close() {
	w.cancel(errSessionLost)
	if w.body != nil {
		_ = w.body.Close()
	}
}
