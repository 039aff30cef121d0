package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"syscall"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Errors of an answer. They fail one request and not the session.
var (
	errTooLarge  = errors.New("the answer is too large")
	errNoAnswer  = errors.New("the connection closed before the answer")
	errMalformed = errors.New("the answer is not valid JSON-RPC")
	errEncoded   = errors.New("the answer has a content encoding that the gateway did not request")
)

// notJSONRPC is an answer of another media type. Most often the URL is wrong.
type notJSONRPC struct{ media string }

func (e *notJSONRPC) Error() string {
	return fmt.Sprintf("the server answered with %s, not JSON-RPC. Is the URL right?", e.media)
}

func (e *notJSONRPC) Unwrap() error { return errMalformed }

// malformed returns the error of an answer that cannot be decoded. Of the answer it contains
// only the content type.
func malformed(contentType string) error {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || media == "application/json" || media == "text/event-stream" {
		return fmt.Errorf("%w (content type %.100q)", errMalformed, contentType)
	}
	return &notJSONRPC{fmt.Sprintf("%.100s", media)}
}

// statusError is an HTTP status other than 2xx, without a JSON-RPC error.
type statusError struct {
	status int
	body   string // the beginning of the answer, only to decide what it means
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP status %d (%s)", e.status, http.StatusText(e.status))
}

// unauthorized returns a message if the server refused the credentials, else "". The answer may
// also have a JSON-RPC error.
func (o outcome) unauthorized() string {
	status := o.status
	var s *statusError
	if errors.As(o.err, &s) {
		status = s.status
	}
	if status != http.StatusUnauthorized && status != http.StatusForbidden || o.result != nil {
		return ""
	}
	return fmt.Sprintf("HTTP status %d (%s): set its credentials in the server's headers", status, http.StatusText(status))
}

// outcome is the outcome of a request. At most one of result, rpc and err is set.
type outcome struct {
	method     string
	sent       bool // the request may have been written, at least in part, so it may have arrived
	found      bool // the request had a connection and may have been written to it
	left       bool // this attempt or an earlier one of the same call may have been executed; set by do
	hadSession bool // the request had a session id
	connecting bool // the request was part of the handshake, so no call was sent
	status     int  // of the HTTP answer; 0 = none

	result json.RawMessage // unchanged
	rpc    *rpcError       // the server's error
	err    error           // why there is no answer
}

// failed reports whether the server gave no JSON-RPC answer.
func (o outcome) failed() bool { return o.err != nil }

// fatal returns the error that ends the run, or nil.
func (o outcome) fatal() error {
	var f tool.Blocked
	if errors.As(o.err, &f) {
		return f
	}
	return nil
}

// refused reports whether the server answered the request with an HTTP status that means that
// it was not executed.
func (o outcome) refused() bool {
	return !o.connecting && o.status/100 == 4 && o.result == nil && o.rpc == nil
}

// mayHaveRun reports whether the server may have executed the request, although there is no
// answer.
func (o outcome) mayHaveRun() bool {
	return o.sent && !o.connecting && o.result == nil && o.rpc == nil && !o.refused()
}

// unreachable reports whether the outcome of a call says that the server cannot be used now: there
// is no session, the call was not sent, its connection broke, or a proxy found no server. A call
// that takes too long says nothing about the server.
func (o outcome) unreachable() bool {
	var number syscall.Errno
	switch {
	case o.result != nil, errors.Is(o.err, errClosed):
		return false
	case o.connecting:
		return true
	case o.rpc != nil:
		return false
	case o.status == http.StatusBadGateway, o.status == http.StatusServiceUnavailable, o.status == http.StatusGatewayTimeout:
		return true
	case o.status != 0:
		return false
	}
	return !o.sent || errors.Is(o.err, io.EOF) || errors.Is(o.err, io.ErrUnexpectedEOF) ||
		errors.As(o.err, &number) || errors.As(o.err, new(*exitError))
}

// gone reports whether the server has said that it does not know the session, or that it waits
// for initialize. The request was then not executed, and must be sent in a new session.
func (o outcome) gone() bool {
	switch {
	case errors.Is(o.err, errSessionLost) && !o.sent:
		return true
	case o.connecting || o.result != nil:
		return false
	case o.rpc != nil && o.rpc.beforeInitialize():
		return true
	case o.status == http.StatusNotFound && o.hadSession:
		return o.rpc == nil || !o.rpc.aboutRequest()
	case o.status == http.StatusForbidden, o.status == http.StatusTooManyRequests, o.status == http.StatusRequestTimeout:
		return false
	case o.status/100 == 4 && o.rpc != nil:
		return aboutSession(o.rpc.Message)
	}
	var status *statusError
	return errors.As(o.err, &status) && status.status/100 == 4 && aboutSession(status.body)
}

// transient reports whether another attempt may succeed.
func (o outcome) transient() bool {
	if o.status >= 500 || o.status == http.StatusTooManyRequests {
		return o.status != http.StatusNotImplemented && o.result == nil
	}
	switch {
	case o.err == nil, o.fatal() != nil, o.status/100 > 2:
		return false
	case errors.Is(o.err, errTooLarge), errors.Is(o.err, errMalformed), errors.Is(o.err, errEncoded),
		errors.Is(o.err, errRedirect), errors.Is(o.err, errHeaders), errors.Is(o.err, errClosed),
		errors.Is(o.err, errServer), errors.Is(o.err, errEnv), errors.Is(o.err, errStart), errors.Is(o.err, errEndpoint):
		return false
	}
	return true
}

// repeatable reports whether to make another attempt. call is whether the call may be executed
// twice.
func (o outcome) repeatable(call bool) bool {
	return o.transient() && (call || o.connecting || !o.sent)
}

// exchange collects the outcome of one request while the transport performs it. The transport
// gets it from the request's context.
type exchange struct {
	key    string      // the idempotency key to send; "" = none
	memory tool.Memory // charged with the answer; nil = not charged
	writes bool        // the tool may write, so net/http must not repeat the request

	mu      sync.Mutex // guards what follows
	out     outcome
	sending bool // a transport is writing the request now
	over    bool // the outcome was returned: the request must not be sent any more
}

// exchangeKey is the context key of an *exchange.
type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// exchangeOf returns the exchange of ctx, or a new one if ctx has none.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// begin resets the outcome for the next request. A handshake has several requests.
func (x *exchange) begin(method string, hadSession bool) {
	x.update(func(o *outcome) { *o = outcome{method: method, hadSession: hadSession} })
}

// method returns the method of the latest request.
func (x *exchange) method() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.method
}

// startSending must be called before the request is written, and endSending after it.
// startSending returns false if the outcome was already returned. The request must then not be
// sent: its caller may have been told that it was not.
func (x *exchange) startSending() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sending = !x.over
	return x.sending
}

func (x *exchange) endSending() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sending = false
}

func (x *exchange) update(f func(*outcome)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.out)
}

// finish returns the outcome; err is what the layer above made of it and counts
// only where the transport saw nothing wrong. A request that is being written at
// this moment counts as sent.
func (x *exchange) finish(err error) outcome {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	o := x.out
	o.sent = o.sent || x.sending
	if o.err == nil && o.rpc == nil && o.result == nil {
		o.err = err
		if err == nil {
			o.err = errNoAnswer
		}
	}
	return o
}

// handshaken returns the outcome of a handshake that failed with err, also where
// the server's last answer was well formed.
func (x *exchange) handshaken(err error) outcome {
	o := x.finish(err)
	if o.result != nil {
		o.result, o.err = nil, err
	}
	o.connecting = true
	return o
}
