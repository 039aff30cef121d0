package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// The limits of the server, from reference/reliability 4.6 and R10.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeader         = 64 << 10

	drainTimeout = 25 * time.Second // for requests to finish
	lastWords    = 2 * time.Second  // for those that were cut off to say so
)

// Serve answers on l until ctx is done, then lets requests that are under way
// finish for a while. Beside that it calls drain, whose context ends when what
// is still under way must be cut off, and waits for it. It returns nil after a
// clean stop.
func (a *API) Serve(ctx context.Context, l net.Listener, log *slog.Logger, drain func(context.Context)) error {
	server := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	a.SetReady(true)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.SetReady(false)
	log.Info("stopping: requests that are under way get time to finish", "at_most", drainTimeout)
	var draining sync.WaitGroup
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	draining.Go(func() { drain(hard) })
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout+lastWords)
	defer cancel()
	if err := server.Shutdown(late); err != nil {
		log.Warn("requests did not finish in time and were cut off", "error", err)
		_ = server.Close()
	}
	draining.Wait()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
