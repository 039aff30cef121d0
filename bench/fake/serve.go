package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Serve serves h on a free port of 127.0.0.1 until ctx ends. As its one line of
// output it writes the address, host:port, once connections are taken. Requests
// that are still running when ctx ends get one second.
func Serve(ctx context.Context, h http.Handler, out io.Writer) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if _, err := fmt.Fprintln(out, ln.Addr()); err != nil {
		return errors.Join(fmt.Errorf("writing the address: %w", err), srv.Close(), closed(<-served))
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(last) != nil { // out of time: the rest is cut off
		_ = srv.Close()
	}
	return closed(<-served)
}

func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// readAll reads a request's whole body; most say beforehand how long it is.
func readAll(r *http.Request) ([]byte, error) {
	const most = 8 << 20
	if r.ContentLength < 0 || r.ContentLength > most {
		return io.ReadAll(io.LimitReader(r.Body, most))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// refuse answers with an error of the chat dialect.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, err.Error()) // the caller may be gone
}
