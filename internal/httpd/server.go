package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The limits of the server, from reference/reliability 4.6.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeader         = 64 << 10
	drainTimeout      = 25 * time.Second
)

// Serve answers on l until ctx is done, then lets requests that are under way
// finish for a while. It returns nil after a clean stop.
func (a *API) Serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
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
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		log.Warn("requests did not finish in time and were cut off", "error", err)
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
