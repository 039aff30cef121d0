package httptool

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/replica"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The delays between two attempts.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// errHeaders reports headers whose references lead to nothing.
var errHeaders = errors.New("its headers could not be resolved")

// attempt is what became of one request.
type attempt struct {
	result *tool.Result // nil = there was no response, or another attempt may have a better one
	err    error        // without a result
	status int          // 0 = there was no response
	sent   bool         // the endpoint may have got it
}

// transient reports whether another attempt may succeed.
func (a attempt) transient() bool {
	var fatal tool.Blocked
	switch {
	case a.status != 0:
		return a.status >= 500 && a.status != http.StatusNotImplemented || a.status == http.StatusTooManyRequests || a.err != nil && a.status/100 == 2
	case errors.As(a.err, &fatal), errors.Is(a.err, errHeaders):
		return false
	}
	return true
}

// Call implements [tool.Tool]. It first waits for MaxConcurrentCalls. Every response is a result. An
// error means that there is none. It wraps [tool.ErrNotSent] if no attempt can have reached the
// endpoint, and [tool.Blocked] or the cause of ctx if that was the reason.
func (t *Tool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	r, err := t.request(c)
	if err != nil {
		return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, err)
	}
	weight := replica.Weight(t.settings.MaxConcurrentCalls, t.o.Living())
	if t.calls.Acquire(ctx, weight) != nil {
		return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, context.Cause(ctx))
	}
	defer t.calls.Release(weight)
	if c.Memory != nil {
		if err := c.Memory.Acquire(t.most()); err != nil {
			return tool.Result{}, fmt.Errorf("%w: its response needs more memory than the run may retain: %w", tool.ErrNotSent, err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, t.settings.Timeout)
	defer cancel()
	if t.reads(c) {
		r.key = ""
	}
	sent := false
	for try := 0; ; try++ {
		a := t.once(limited, r, t.reads(c))
		sent = sent || a.sent
		again := a.transient() && (t.repeatable(c) || !a.sent) && try < t.settings.MaxRetries
		if again && sleep(limited, pause(try)) == nil {
			t.o.Log.Debug("an HTTP tool is called again", "tool", t.settings.Name, "try", try+1, "status", a.status, "error", plain(a.err))
			continue
		}
		if a.result != nil {
			t.giveBack(c.Memory, *a.result)
			return *a.result, nil
		}
		err := &callError{t.describe(ctx, limited, a), failure(ctx, a)}
		t.o.Log.Debug("an HTTP tool has not answered", "tool", t.settings.Name, "may_have_run", sent, "error", err.cause)
		if !sent {
			return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, err)
		}
		return tool.Result{}, err
	}
}

// giveBack releases the memory that a result does not need.
func (t *Tool) giveBack(m tool.Memory, r tool.Result) {
	if m != nil {
		m.Release(max(0, t.most()-len(r.Parts[0].Text)))
	}
}

// callError is the error of a call without a response. Its text is for the model: it contains no
// address. The error that it wraps is for errors.Is and the log.
type callError struct {
	text  string
	cause error
}

func (e *callError) Error() string { return e.text }

func (e *callError) Unwrap() error { return e.cause }

// failure returns the cause of an attempt without a response.
func failure(ctx context.Context, a attempt) error {
	var fatal tool.Blocked
	if ctx.Err() != nil && !errors.As(a.err, &fatal) {
		return context.Cause(ctx)
	}
	return plain(a.err)
}

// plain returns an error of net/http without the URL, which may contain arguments and a credential.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// describe says why there is no response, without addresses.
func (t *Tool) describe(ctx, limited context.Context, a attempt) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var fatal tool.Blocked
	switch {
	case errors.As(a.err, &fatal):
		reason, _ := fatal.Blocked()
		return "refused by the outbound policy: " + reason
	case errors.Is(a.err, errHeaders):
		return errHeaders.Error()
	case ctx.Err() == nil && limited.Err() != nil:
		return fmt.Sprintf("did not answer within %s", t.settings.Timeout)
	case errors.As(a.err, &name):
		return "its host name could not be resolved"
	case errors.As(a.err, &certificate):
		return "its certificate is not trusted"
	case !a.sent:
		return "could not be reached"
	case a.status != 0:
		return fmt.Sprintf("the connection was closed in the middle of its response with status %d", a.status)
	}
	return "the connection was closed before it answered"
}

// once makes one attempt.
func (t *Tool) once(ctx context.Context, r request, reads bool) attempt {
	var found, wrote atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			found.Store(true)
			if c, secure := i.Conn.(*tls.Conn); secure && c.ConnectionState().NegotiatedProtocol == "h2" {
				wrote.Store(true) // a request may be written after Do has returned
			}
		},
		WroteHeaders: func() { wrote.Store(true) }, // the body comes after them
	})
	req, err := t.httpRequest(traced, r, reads)
	if err != nil {
		return attempt{err: err}
	}
	resp, err := t.o.Client.Do(req)
	a := attempt{err: err, sent: wrote.Load() || err != nil && ctx.Err() != nil && found.Load()}
	if resp == nil {
		return a
	}
	defer resp.Body.Close()
	a.sent, a.status = true, resp.StatusCode
	var fatal tool.Blocked
	switch {
	case errors.As(err, &fatal):
	case err != nil: // of CheckRedirect
		result := tool.Error(fmt.Sprintf("the endpoint answered with %s to another URL; redirects are not followed", statusText(resp.StatusCode)))
		a.result, a.err = &result, nil
	default:
		a.result, a.err = t.read(resp)
	}
	return a
}

// httpRequest returns the request. A request that may write is sent at most once: net/http repeats
// some by itself, and never one with a body and without GetBody.
func (t *Tool) httpRequest(ctx context.Context, r request, reads bool) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, t.settings.Method, r.url, nil)
	if err != nil {
		return nil, err
	}
	if r.body != nil || !reads {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	if reads && r.body != nil {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.body)), nil }
	}
	if t.o.Headers != nil {
		own, err := t.o.Headers(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errHeaders, err)
		}
		for name, values := range own {
			req.Header[name] = values
		}
	}
	req.Header.Set("Accept", "application/json, text/*")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "turnpike-tools")
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if t.dispatch != nil {
		return req, t.dispatch.sign(req.Header, r)
	}
	return req, nil
}

// pause returns the delay after an attempt; the first is 0. It is random, so that the callers of an
// endpoint that was restarted do not all come at the same time.
func pause(try int) time.Duration {
	d := min(firstPause<<min(try, 10), maxPause)
	return d/2 + rand.N(d/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
