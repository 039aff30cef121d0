// Package fake has the servers that the gateway calls in a benchmark, and the two
// programs that it is compared with. Each is a process, so that its CPU time is not
// counted as the gateway's.
//
//	relay cases   client ──► [Baseline] or gateway ──► [Upstream] or [PausingUpstream]
//	loop cases    client ──► [BareLoop] or gateway ──┬──► [ScriptedModel]  answers as the user message says
//	                                                 └──► [SlowTool]       MCP, sleeps as long as its argument says
//
// The two servers of the loop keep a [Ledger] of their calls. The client takes the
// ledgers after each pass and verifies its runs by them.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Serve serves h on a free port of 127.0.0.1 until ctx ends. It writes one line to
// out, the address host:port, when it accepts connections. When ctx ends, requests in
// progress have one second to end.
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

// readAll reads the whole body of a request.
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

// CountOpen wraps h and counts the POST requests that h is answering. GET /open
// returns their number, in decimal.
func CountOpen(h http.Handler) http.Handler {
	var open atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/open":
			_, _ = fmt.Fprintln(w, open.Load()) // the caller may be gone
		case r.Method == http.MethodPost:
			open.Add(1)
			defer open.Add(-1)
			h.ServeHTTP(w, r)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// maxEntries bounds a ledger.
const maxEntries = 100_000

// Ledger collects entries until a request takes them: as a handler it answers with
// the entries as a JSON array, in the order in which they were added, and removes
// them. The zero value is empty and ready.
type Ledger[E any] struct {
	mu      sync.Mutex // guards entries
	entries []E
}

// Add adds one entry. A ledger of 100,000 entries drops further ones.
func (l *Ledger[E]) Add(e E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) < maxEntries {
		l.entries = append(l.entries, e)
	}
}

// Take returns the entries and removes them.
func (l *Ledger[E]) Take() []E {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.entries
	l.entries = nil
	return taken
}

func (l *Ledger[E]) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	entries := l.Take()
	if entries == nil {
		entries = []E{} // [] and not null
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(entries) // the caller may be gone
}
