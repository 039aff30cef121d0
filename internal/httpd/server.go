package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	drainTimeout = 25 * time.Second // for requests to finish
	lastWords    = 2 * time.Second  // for those that were cut off to say so
)

// StopsWithin is how long Serve takes at most after its context is done. What ends
// processes from outside must wait longer.
const StopsWithin = drainTimeout + lastWords

// Serve answers on l until ctx is done, then lets requests that are under way
// finish for a while. Beside that it calls drain, whose context ends when what
// is still under way must be cut off, and waits for it. Until both have ended,
// health checks are still answered (/readyz with 503) and other requests are
// refused with 503; then l is closed. It returns nil after a clean stop. It is
// called once.
//
// It speaks HTTP/1.1 only, without encryption: what speaks HTTP/2 with clients
// stands before it.
func (a *API) Serve(ctx context.Context, l net.Listener, log *slog.Logger, drain func(context.Context)) error {
	limits := a.o.Limits.withDefaults()
	server := &http.Server{
		Handler:           a,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: limits.HeaderTimeout,
		IdleTimeout:       limits.IdleTimeout,
		MaxHeaderBytes:    maxHeader, // admit counts exactly
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(newGate(l, limits, log)) }()
	a.SetReady(true)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.SetReady(false)
	log.Info("stopping: requests that are under way get time to finish", "at_most", drainTimeout)
	server.SetKeepAlivesEnabled(false)
	idle := a.under.stop()
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		drain(hard)
	}()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopsWithin)
	defer cancel()
	for _, ended := range []<-chan struct{}{idle, drained} {
		select {
		case <-ended:
		case <-late.Done():
		}
	}
	if err := server.Shutdown(late); err != nil {
		log.Warn("requests did not finish in time and were cut off", "error", err)
		_ = server.Close()
	}
	<-drained
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
