package httpd

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Limits of a Front, which holds nothing for anybody.
const (
	frontConnections = 256
	frontTimeout     = 5 * time.Second        // for a request and its answer
	frontEnd         = 200 * time.Millisecond // for what is under way when the front stops
	startRetry       = 5 * time.Second        // how long a client is asked to wait
)

// Front answers on a listener while the gateway starts: health checks (/readyz with
// 503), and every other request with 503. Stop it.
type Front struct {
	listener *borrowed
	server   *http.Server
	served   chan struct{}
}

// Starting begins to answer on l, in the error formats of the routes, whose endpoints are not
// called. Why says what the start waits for, in words for everybody; "" = nothing in
// particular.
func Starting(l net.Listener, routes []surface.Route, why func() string, log *slog.Logger) *Front {
	front := newRoutes(routes, func(rt surface.Route) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			refused := fault.New(fault.Unavailable, "starting", "%s; nothing was done, try again", starting(why))
			refused.RetryAfter = startRetry
			rt.Errors.Write(w, refused)
		}
	})
	front.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, http.StatusOK, "ok") })
	front.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, http.StatusServiceUnavailable, "not ready: "+starting(why))
	})
	f := &Front{listener: &borrowed{Listener: l}, served: make(chan struct{}), server: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			setRequestID(w.Header())
			setSecurityHeaders(w.Header())
			front.mux.ServeHTTP(w, r)
		}),
		ReadTimeout: frontTimeout, WriteTimeout: frontTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
	f.server.SetKeepAlivesEnabled(false)
	gate := &limitListener{Listener: f.listener, limit: limitToOpenFiles(frontConnections), stallTimeout: frontTimeout, log: log}
	go func() {
		defer close(f.served)
		_ = f.server.Serve(gate)
	}()
	return f
}

func starting(why func() string) string {
	if reason := why(); reason != "" {
		return "the gateway is starting: " + reason
	}
	return "the gateway is starting"
}

// Stop ends the answering and leaves the listener open: connections that come
// later wait for the next Accept.
func (f *Front) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), frontEnd)
	defer cancel()
	if f.server.Shutdown(ctx) != nil {
		_ = f.server.Close()
	}
	<-f.served
	f.listener.giveBack()
}

// borrowed is a listener that stays open when it is closed: Accept returns, and
// works again after giveBack.
type borrowed struct {
	net.Listener
	closed atomic.Bool
}

// Accept implements net.Listener.
func (b *borrowed) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if b.closed.Load() {
		if err == nil {
			_ = c.Close()
		}
		return nil, net.ErrClosed
	}
	return c, err
}

// Close implements net.Listener.
func (b *borrowed) Close() error {
	b.closed.Store(true)
	return b.deadline(time.Unix(1, 0))
}

func (b *borrowed) giveBack() { _ = b.deadline(time.Time{}) }

func (b *borrowed) deadline(t time.Time) error {
	return b.Listener.(interface{ SetDeadline(time.Time) error }).SetDeadline(t)
}
