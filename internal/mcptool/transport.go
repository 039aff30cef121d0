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
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/egress"
)

// Time limits of messages without an answer.
const (
	notifyTimeout = 5 * time.Second
	deleteTimeout = 2 * time.Second // of the request that ends a session
)

// errRedirect is a redirect that was not followed.
var errRedirect = errors.New("redirected")

// transport performs the HTTP requests of the SDK and of posters. For a call it returns
// a well-formed JSON-RPC answer, or an error if the request could not be sent. It stores the
// outcome in the exchange of the request's context.
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
		return nil, fmt.Errorf("%w to %s", errRedirect, r.URL.Host) // the configured headers are for this server only
	}
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(t.client.deleting, cancel)()
		return t.tell(ctx, r, nil, deleteTimeout)
	default: // a stream of notifications; see listen
		return respond(r, http.StatusMethodNotAllowed, "", nil), nil
	}
	method, id := requested(body)
	if method != "" && present(id) {
		return t.call(r, body, id, method)
	}
	if method == methodCancelled {
		return t.cancelled(r, body), nil
	}
	ctx, release := t.client.bound(r.Context())
	defer release()
	return t.tell(ctx, r, body, notifyTimeout)
}

// call sends a request and returns the answer as one JSON-RPC message.
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
		return resp, nil // CheckRedirect of the http.Client returns the error
	}
	a := &answer{transport: t, request: r, exchange: x, id: id, method: method}
	return a.read(ctx, resp, release)
}

// send performs one HTTP request with the configured headers and the key of x. A request that
// may write is sent at most once. net/http repeats some requests by itself: over HTTP/1.1 those
// with an idempotency key whose connection breaks, over HTTP/2 also those that the server resets
// with PROTOCOL_ERROR. It never repeats a request without GetBody.
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
		return nil, errors.New("http client without a transport") // the default transport would bypass the outbound policy
	}
	if !x.startSending() {
		return nil, errNoAnswer
	}
	defer x.endSending()
	resp, err := t.next.RoundTrip(out)
	if err != nil && ctx.Err() != nil {
		// Another goroutine of net/http may still be writing.
		x.update(func(o *outcome) { o.sent = o.sent || o.found })
	}
	return resp, err
}

// isHTTP2 reports whether the connection uses HTTP/2, where a request may be written after
// RoundTrip has returned.
func isHTTP2(c net.Conn) bool {
	secure, ok := c.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// tell sends a message without an answer. The HTTP status is ignored: if the session is
// broken, the next call fails.
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

// cancelled sends a cancel notification in the background, because its caller must not wait
// for a slow server.
func (t *transport) cancelled(r *http.Request, body []byte) *http.Response {
	if exchangeOf(r.Context()).method() != methodInitialize { // the one request that may not be cancelled
		t.tellLater(r, body, "cancel notification not delivered")
	}
	return respond(r, http.StatusAccepted, "", nil)
}

// tellLater sends a message without an answer in the background, also after the end of r's
// context. Close waits for it as long as for the end of a session: a client that only one run
// uses is closed when the run ends, right after its last call was cancelled. If that fails, it
// logs what.
func (t *transport) tellLater(r *http.Request, body []byte, what string) {
	t.client.spawn(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(t.client.deleting, cancel)()
		defer context.AfterFunc(t.client.life, func() {
			select {
			case <-time.After(deleteTimeout):
				cancel()
			case <-ctx.Done():
			}
		})()
		if _, err := t.tell(ctx, r, body, notifyTimeout); err != nil {
			t.client.log.Debug(what, "error", err)
		}
	})
}

// readBody reads and closes the body of the request.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	if r.ContentLength < 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// redirects reports whether the http.Client would follow a redirect.
func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// respond returns a response to r.
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

// closing is a body that calls release when it is closed.
type closing struct {
	io.ReadCloser
	release func()
}

// Close implements [io.Closer].
func (c *closing) Close() error {
	defer c.release()
	return c.ReadCloser.Close()
}

// errHeaders wraps an error of [Server.Headers]. Nothing was sent.
var errHeaders = errors.New("headers")

// addHeaders adds the configured headers to the request.
func (t *transport) addHeaders(r *http.Request) error {
	configured := t.client.server.Headers
	if configured == nil {
		return nil
	}
	extra, err := configured(r.Context())
	if err != nil {
		return errors.Join(errHeaders, err)
	}
	for name, values := range extra {
		if !egress.ForbiddenHeader(name) {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return nil
}

// direct performs requests whose answer is not one message: streams of notifications, and the
// messages of legacy SSE. It refuses other origins than the server's, because it adds the
// configured headers.
type direct struct{ transport *transport }

// RoundTrip implements [http.RoundTripper].
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	home, err := url.Parse(d.transport.client.server.URL)
	if err != nil {
		return nil, err
	}
	if !sameOrigin(home, r.URL) {
		return nil, fmt.Errorf("%w to %s", errRedirect, r.URL.Host)
	}
	return d.transport.send(r.Context(), r, r.Method, body, exchangeOf(r.Context()))
}

// sameOrigin reports whether two URLs name the same scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	}
	return "80"
}
