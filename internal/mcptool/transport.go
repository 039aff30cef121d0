package mcptool

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

// Time limits of messages that nobody waits for.
const (
	notifyTimeout = 5 * time.Second
	deleteTimeout = 2 * time.Second // the farewell of a session
)

// errRedirect is a redirect that was not followed.
var errRedirect = errors.New("redirected")

// transport performs the HTTP requests of the SDK and of bare sessions. What it
// returns for a call is always a well-formed JSON-RPC answer or an error of
// sending; the outcome goes to the exchange of the request's context.
type transport struct {
	client *Client
	next   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	if r.URL.String() != t.client.server.URL {
		return nil, fmt.Errorf("%w to %s", errRedirect, r.URL.Host) // the headers are for one server only
	}
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(t.client.parting, cancel)()
		return t.tell(ctx, r, nil, deleteTimeout)
	default: // no stream of the server's own is kept
		return respond(r, http.StatusMethodNotAllowed, "", nil), nil
	}
	f, err := decodeFrame(body)
	if err != nil {
		return nil, err
	}
	if f.Method != nil && present(f.ID) {
		return t.call(r, body, f.ID, *f.Method)
	}
	if f.Method != nil && *f.Method == methodCancelled {
		return t.cancelled(r, body), nil
	}
	ctx, release := t.client.bound(r.Context())
	defer release()
	return t.tell(ctx, r, body, notifyTimeout)
}

// call sends a request that has an answer and turns what comes into one frame.
func (t *transport) call(r *http.Request, body []byte, id json.RawMessage, method string) (*http.Response, error) {
	x := exchangeOf(r.Context())
	x.begin(method, r.Header.Get("Mcp-Session-Id") != "")
	ctx, release := t.client.bound(r.Context())
	resp, err := t.send(ctx, r, r.Method, body, x)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		release()
		x.update(func(o *outcome) { o.err = err })
		return nil, err
	}
	x.update(func(o *outcome) { o.status = resp.StatusCode })
	if redirects(resp) {
		resp.Body = &closing{resp.Body, release}
		return resp, nil // the client's own rule says what is wrong with it
	}
	a := &answer{transport: t, request: r, exchange: x, id: id, method: method}
	return a.read(ctx, resp, release)
}

// send performs one HTTP request with the configured headers and the key of x.
// It is sent once where x writes: net/http repeats a request by itself, over
// HTTP/1.1 if it carries an idempotency key and its connection breaks, over
// HTTP/2 also if the server resets it with PROTOCOL_ERROR; but never one whose
// body it cannot get again.
func (t *transport) send(ctx context.Context, r *http.Request, method string, body []byte, x *exchange) (*http.Response, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			x.update(func(o *outcome) { o.found, o.sent = true, o.sent || isHTTP2(i.Conn) })
		},
		WroteHeaders: func() { x.update(func(o *outcome) { o.sent = true }) }, // the body comes after them
	})
	out := r.Clone(ctx)
	out.Method = method
	out.Body, out.GetBody, out.ContentLength = http.NoBody, nil, 0
	if body != nil {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if !x.writes {
			out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		}
		if x.key != "" {
			out.Header.Set("Idempotency-Key", x.key)
		}
	}
	if err := t.addHeaders(out); err != nil {
		return nil, err
	}
	if t.next == nil {
		return nil, errors.New("http client without a transport") // net/http's own would dial past the policy
	}
	if !x.startSending() {
		return nil, errNoAnswer
	}
	defer x.endSending()
	resp, err := t.next.RoundTrip(out)
	if err != nil && ctx.Err() != nil {
		// Another goroutine writes, and nothing promises that it has stopped.
		x.update(func(o *outcome) { o.sent = o.sent || o.found })
	}
	return resp, err
}

// isHTTP2 reports whether requests on the connection are written independently of
// how RoundTrip returns.
func isHTTP2(c net.Conn) bool {
	secure, ok := c.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// tell sends a message that has no answer. Whatever status comes back, the
// session goes on: the next call will show what is wrong.
func (t *transport) tell(ctx context.Context, r *http.Request, body []byte, limit time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := t.send(ctx, r, r.Method, body, &exchange{})
	if err != nil {
		return nil, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody) // so that the connection can be kept
	_ = resp.Body.Close()
	return respond(r, http.StatusAccepted, "", nil), nil
}

// cancelled sends a cancel notification in the background: whoever gave up must
// not wait for the server that made him do so.
func (t *transport) cancelled(r *http.Request, body []byte) *http.Response {
	ctx := context.WithoutCancel(r.Context())
	if exchangeOf(ctx).method() == methodInitialize { // the one request that may not be cancelled
		return respond(r, http.StatusAccepted, "", nil)
	}
	t.client.spawn(func() {
		ctx, release := t.client.bound(ctx)
		defer release()
		if _, err := t.tell(ctx, r, body, notifyTimeout); err != nil {
			t.client.log.Debug("cancel notification not delivered", "error", err)
		}
	})
	return respond(r, http.StatusAccepted, "", nil)
}

// readBody takes the request's body, which is closed in any case.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// redirects reports whether the http.Client would go elsewhere.
func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// respond makes the answer that the layer above sees.
func respond(r *http.Request, status int, contentType string, body io.ReadCloser) *http.Response {
	if body == nil {
		body = http.NoBody
	}
	header := http.Header{}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: -1, Request: r,
	}
}

// closing is a body that releases something when it is closed.
type closing struct {
	io.ReadCloser
	release func()
}

// Close implements [io.Closer].
func (c *closing) Close() error {
	defer c.release()
	return c.ReadCloser.Close()
}
