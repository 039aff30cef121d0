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
	drainTimeout = 25 * time.Second // the default of Limits.DrainTimeout
	cutOffGrace  = 2 * time.Second  // then for cut-off requests to send their error
)

// StopsWithin is the longest time that Serve takes after its context ends, with the
// default of [Limits.DrainTimeout]. A process manager must wait longer before it
// kills the process.
const StopsWithin = drainTimeout + cutOffGrace

// Serve accepts connections on l until ctx ends. Then it answers health checks (/readyz with
// 503), after [Limits.Linger] refuses new requests with 503, waits for the requests in
// progress, and closes l. While it waits it calls drain, and it returns only
// after drain has returned; drain's context ends after [Limits.DrainTimeout], when the
// work that is left must be cut off. Serve returns nil after a clean stop. It may be
// called once.
//
// It serves HTTP/1.1 without TLS. Put a reverse proxy in front of it for TLS and
// HTTP/2.
func (a *API) Serve(ctx context.Context, l net.Listener, log *slog.Logger, drain func(context.Context)) error {
	limits := a.o.Limits.withDefaults()
	server := &http.Server{
		Handler:           a,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: limits.HeaderTimeout,
		IdleTimeout:       limits.IdleTimeout,
		MaxHeaderBytes:    maxHeader, // checkHeader applies the exact limit
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	a.SetReady(true) // before the first connection is accepted
	go func() { served <- server.Serve(newLimitListener(l, limits, log)) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	if limits.Linger > 0 {
		a.leaving.Store(true)
		log.Info("stopping: requests are taken until load balancers have noticed", "for", limits.Linger)
		select {
		case err := <-served:
			return err
		case <-time.After(limits.Linger):
		}
	}
	a.SetReady(false)
	log.Info("stopping: waiting for requests in progress", "at_most", limits.DrainTimeout)
	server.SetKeepAlivesEnabled(false)
	idle := a.inFlight.stop()
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.DrainTimeout)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		drain(hard)
	}()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.DrainTimeout+cutOffGrace)
	defer cancel()
	for _, ended := range []<-chan struct{}{idle, drained} {
		select {
		case <-ended:
		case <-late.Done():
		}
	}
	if err := server.Shutdown(late); err != nil {
		log.Warn("requests in progress did not finish in time and were cut off", "error", err)
		_ = server.Close()
	}
	<-drained
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
