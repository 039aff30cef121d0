package mcptool

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Every way in which a call can go without an answer: whether the transport says
// that it provably never left.
func TestATransportSaysWhetherACallMayHaveLeft(t *testing.T) { // D19 K05
	keyed := tool.Call{Class: tool.Keyed, IdempotencyKey: "k"}
	for _, tt := range []struct {
		name    string
		call    tool.Call
		answers []http.HandlerFunc // of the tries of the call; nil = the connection is refused
		notSent bool
		refused bool // the server answered with a refusal: a result
	}{
		{"refused connections", toolCall(), []http.HandlerFunc{nil, nil, nil}, true, false},
		{"broken connection", toolCall(), []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { die(w) }}, false, false},
		{"status 500", toolCall(), []http.HandlerFunc{status(500)}, false, false},
		{"status 403", toolCall(), []http.HandlerFunc{status(403)}, false, true},
		{"keyed: broken, then refused connections", keyed, []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { die(w) }, nil, nil}, false, false},
		{"keyed: status 502, then status 403", keyed, []http.HandlerFunc{status(502), status(403)}, false, false},
		{"keyed: status 429, then refused connections", keyed, []http.HandlerFunc{status(429), nil, nil}, true, false},
		{"keyed: refused connections", keyed, []http.HandlerFunc{nil, nil, nil}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			var try atomic.Int32 // the tries come one after the other
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			gate := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("X-Call") == "" {
					return base.RoundTrip(r)
				}
				if tt.answers[try.Add(1)-1] == nil {
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				}
				return base.RoundTrip(r)
			})
			f.override["x"] = func(w http.ResponseWriter, r *http.Request) { tt.answers[try.Load()-1](w, r) }
			c := New(Server{Name: "fake", URL: f.URL, Headers: func(ctx context.Context) (http.Header, error) {
				if exchangeOf(ctx).method() == methodCall {
					return http.Header{"X-Call": {"1"}}, nil
				}
				return nil, nil
			}}, &http.Client{Transport: gate}, nil)
			defer c.Close()
			x := named(c, "x")
			if tt.call.Class != "" {
				x.class = tt.call.Class
			}
			r, err := x.Call(t.Context(), tt.call)
			if (err == nil) != tt.refused || r.IsError != tt.refused || errors.Is(err, tool.ErrNotSent) != tt.notSent {
				t.Errorf("%v, %v", r, err)
			}
			if n := int(try.Load()); n != len(tt.answers) {
				t.Errorf("%d tries, want %d", n, len(tt.answers))
			}
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A TLS handshake that fails sends no request.
func TestACallWhoseTLSHandshakeFailsIsNotSent(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	srv.Config.ErrorLog = nil
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := New(Server{Name: "tls", URL: srv.URL, MaxRetries: -1}, &http.Client{Transport: base}, nil)
	defer c.Close()
	c.setTerms(terms{transport: BareHTTP}) // so that the first request is the call
	if _, err := named(c, "x").Call(t.Context(), toolCall()); !errors.Is(err, tool.ErrNotSent) {
		t.Error(err)
	}
}

// A call that is given up while it waits for its turn to be written must not be
// written afterwards: its caller was told that it was not sent.
func TestARequestIsNotWrittenAfterItsOutcomeWasTaken(t *testing.T) {
	x := &exchange{}
	x.begin(methodCall, true)
	if o := x.finish(context.Canceled); o.sent {
		t.Error("a request that nobody has written counts as sent")
	}
	if x.startSending() {
		t.Error("the request may still be written")
	}
	x = &exchange{}
	x.begin(methodCall, true)
	if !x.startSending() {
		t.Fatal("the request may not be written")
	}
	if o := x.finish(context.Canceled); !o.sent {
		t.Error("a request that is being written counts as not sent")
	}
}

// The caller leaves while the connection is being made, and while the server
// works: the one call was not sent, the other may have been.
func TestACallThatIsCancelledSaysWhetherItMayHaveLeft(t *testing.T) {
	for name, sent := range map[string]bool{"connecting": false, "working": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					if sent {
						traceConn(r)
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				c := New(Server{Name: "s", URL: "http://192.0.2.1/mcp"}, &http.Client{Transport: transport}, nil)
				defer c.Close()
				c.setTerms(terms{transport: BareHTTP})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := named(c, "x").Call(ctx, toolCall())
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tool.ErrNotSent) == sent {
					t.Error(err)
				}
			})
		})
	}
}

// A kept connection that breaks before the request is written has carried
// nothing: even a once-call is sent again.
func TestACallOnAConnectionThatBrokeBeforeItIsSentAgain(t *testing.T) { // D19
	f := newFake(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	broken := 0
	c := New(Server{Name: "fake", URL: f.URL}, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if exchangeOf(r.Context()).method() == methodCall && broken == 0 {
			broken++
			traceConn(r)
			return nil, errors.New("http: server closed idle connection")
		}
		return base.RoundTrip(r)
	})}, nil)
	defer c.Close()
	if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || textOf(r) != "ok" || f.count(methodCall) != 1 {
		t.Errorf("%v %v, %d calls arrived", r, err, f.count(methodCall))
	}
}

// traceConn tells r's trace that a connection was found, as net/http does.
func traceConn(r *http.Request) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
}
