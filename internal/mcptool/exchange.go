package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"sync"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Failures of an answer. They belong to one request and leave the session alone.
var (
	errTooLarge  = errors.New("the answer is too large")
	errNoAnswer  = errors.New("the connection closed before the answer")
	errMalformed = errors.New("the answer is not valid JSON-RPC")
	errEncoded   = errors.New("the answer has a content encoding that the gateway did not request")
)

// notJSONRPC is an answer of another media type: most often the URL is that of
// something else.
type notJSONRPC struct{ media string }

func (e *notJSONRPC) Error() string {
	return fmt.Sprintf("the server answered with %s, not JSON-RPC. Is the URL right?", e.media)
}

func (e *notJSONRPC) Unwrap() error { return errMalformed }

// malformed is the failure of an answer of the content type that cannot be decoded.
// It repeats nothing else of the answer.
func malformed(contentType string) error {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || media == "application/json" || media == "text/event-stream" {
		return fmt.Errorf("%w (content type %.100q)", errMalformed, contentType)
	}
	return &notJSONRPC{fmt.Sprintf("%.100s", media)}
}

// statusError is an HTTP status that is no success, without a JSON-RPC error.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP status %d (%s)", e.status, http.StatusText(e.status))
}

// unauthorized says that the server refuses our credentials, and where to set
// them; "" if it did not. A server may say so with a JSON-RPC error in the body.
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

// outcome is what became of a request. At most one of result, rpc and err is set.
type outcome struct {
	method     string
	sent       bool // it may have been written, if only in part: the request may have arrived
	found      bool // it had a connection, on which it may have been written
	left       bool // this try or an earlier one of the same call may have been carried out; set by do
	hadSession bool // it named a session
	connecting bool // it belongs to what precedes a call, so that no call was sent
	status     int  // of the HTTP answer; 0 = none

	result json.RawMessage // as the server sent it
	rpc    *rpcError       // the server's own refusal
	err    error           // why there is neither
}

// failed reports whether the server gave no JSON-RPC answer.
func (o outcome) failed() bool { return o.err != nil }

// fatal returns the error that ends the run, or nil.
func (o outcome) fatal() error {
	var f tool.Fatal
	if errors.As(o.err, &f) {
		return f
	}
	return nil
}

// refused reports that the server answered the request itself with an HTTP
// status that says that it was not carried out.
func (o outcome) refused() bool {
	return !o.connecting && o.status/100 == 4 && o.result == nil && o.rpc == nil
}

// mayHaveRun reports whether the server may have carried the request out without
// saying so.
func (o outcome) mayHaveRun() bool {
	return o.sent && !o.connecting && o.result == nil && o.rpc == nil && !o.refused()
}

// gone reports that the session is no more, so that the request was not carried
// out and belongs to a new session.
func (o outcome) gone() bool {
	if o.connecting || !o.hadSession {
		return errors.Is(o.err, errSessionLost) && !o.sent
	}
	switch o.status {
	case http.StatusNotFound:
		return o.rpc == nil || !o.rpc.aboutRequest()
	case http.StatusBadRequest:
		return o.rpc != nil && o.rpc.aboutSession()
	}
	return errors.Is(o.err, errSessionLost) && !o.sent
}

// transient reports a failure that another try may not meet.
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

// repeatable reports whether to try again, given whether the call itself may be
// repeated.
func (o outcome) repeatable(call bool) bool {
	return o.transient() && (call || o.connecting || !o.sent)
}

// exchange collects the outcome of one request while the transport performs it.
// It travels to the transport in the request's context.
type exchange struct {
	key    string      // the idempotency key to send; "" = none
	memory tool.Memory // charged with the answer; nil = nothing is
	writes bool        // the tool may write, so that net/http must not send the request again

	mu      sync.Mutex // guards what follows
	out     outcome
	sending bool // a transport is writing the request now
	over    bool // the outcome was taken: nothing may be sent any more
}

// exchangeKey is the key under which a context carries an *exchange.
type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// exchangeOf returns the exchange that ctx carries, or one that nobody reads.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// begin opens the record of a request; a handshake has several.
func (x *exchange) begin(method string, hadSession bool) {
	x.update(func(o *outcome) { *o = outcome{method: method, hadSession: hadSession} })
}

// method returns the method of the latest request.
func (x *exchange) method() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.method
}

// startSending is called right before the request is written, and endSending
// after it. It returns false if the outcome was taken already: then the request
// must not be sent, because its caller may have been told that it was not.
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
