package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/tool"
)

// A stream of notifications that ends is opened again after a delay, which grows up to
// maxListenDelay. After a stream that lasted stableStream, the delay is short again.
const (
	stableStream   = time.Minute
	maxListenDelay = time.Minute
)

// listener keeps open the stream of notifications of a streamable HTTP server. Calls do not
// depend on it.
type listener struct {
	client  *Client
	version string
	session string // id of the session; "" = none
	lastID  string // of the last event
	noise   noise
}

// listen keeps a stream of notifications open as long as the session s, if the server
// announces changes of its tools and OnListChanged is set.
func (c *Client) listen(s *session) {
	if c.server.OnListChanged == nil || !s.announcesChanges() {
		return
	}
	ctx, cancel := context.WithCancel(c.notifying)
	s.stopListening = cancel
	l := &listener{client: c, version: s.protocol(), session: s.sdk.ID()}
	c.work.Go(func() { // c.work cannot reach zero here: the handshake is in progress
		defer cancel()
		l.run(ctx)
	})
}

// run opens the stream and reads it, again and again, until ctx ends or the server offers no
// stream.
func (l *listener) run(ctx context.Context) {
	for try := 0; ; try++ {
		began := time.Now()
		if !l.once(ctx) {
			return
		}
		if time.Since(began) >= stableStream {
			try = 0
		}
		if sleep(ctx, backoff(try, maxListenDelay)) != nil {
			return
		}
	}
}

// once opens the stream and reads it to its end. It reports whether to open another.
func (l *listener) once(ctx context.Context) (again bool) {
	resp, err := l.open(ctx)
	var fatal tool.Blocked
	switch {
	case ctx.Err() != nil, errors.As(err, &fatal), errors.Is(err, errRedirect):
		if resp != nil {
			_ = resp.Body.Close()
		}
		return false
	case err != nil:
		l.client.log.Debug("mcp notifications are not available", "error", plain(err))
		if noServer(err) { // that is known before any call needs the server
			o := outcome{method: methodListen, err: err}
			l.client.noteUnreachable(l.client.describe(ctx, o), l.client.failure(ctx, ctx, o))
		}
		return true
	}
	defer resp.Body.Close()
	switch {
	case success(resp) && mediaType(resp.Header.Get("Content-Type")) == "text/event-stream":
		return l.read(ctx, resp.Body)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= 500:
		return true
	}
	return false // the server offers no stream
}

// noServer reports whether err says that no connection could be made.
func noServer(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, new(*net.DNSError))
}

// open sends the request for the stream that the protocol revision defines.
func (l *listener) open(ctx context.Context) (*http.Response, error) {
	if l.version >= statelessVersion {
		r, err := l.request(ctx, http.MethodPost, listenRequest(l.version))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Mcp-Method", methodListen)
		return l.client.direct.Do(r)
	}
	r, err := l.request(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if l.lastID != "" {
		r.Header.Set("Last-Event-ID", l.lastID)
	}
	return l.client.direct.Do(r)
}

func (l *listener) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, l.client.server.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", l.version)
	if l.session != "" {
		r.Header.Set("Mcp-Session-Id", l.session)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// read reads events until the stream ends. It reports whether to open another stream.
func (l *listener) read(ctx context.Context, body io.Reader) (again bool) {
	src := sse.NewReader(body, sse.ReaderOptions{})
	for {
		event, err := src.Next()
		if err != nil {
			return true
		}
		l.lastID = event.ID
		if l.noise.add(len(event.Data)+1, time.Now()) != nil {
			l.client.log.Warn("mcp server floods its notifications")
			return true
		}
		f, err := decodeFrame(event.Data)
		switch {
		case err != nil: // not JSON-RPC: such events are ignored
		case f.asks():
			l.reply(ctx, f)
		case f.Method == nil && present(f.Error):
			return false // the server refuses to announce anything
		case f.announces():
			l.client.changed()
		}
	}
}

// reply answers a request of the server.
func (l *listener) reply(ctx context.Context, f frame) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	r, err := l.request(ctx, http.MethodPost, replyTo(f))
	if err != nil {
		return
	}
	resp, err := l.client.direct.Do(r)
	if err != nil {
		l.client.log.Debug("mcp server's request not answered", "error", plain(err))
		return
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	_ = resp.Body.Close()
}

// listenRequest returns the request that asks a server without sessions to announce changes
// of its tools. The server answers it only when it stops.
func listenRequest(version string) []byte {
	return encode(map[string]any{
		"jsonrpc": "2.0", "id": json.RawMessage(`"listen"`), "method": methodListen,
		"params": map[string]any{
			"_meta":         addRequestMeta(nil, version),
			"notifications": map[string]bool{"toolsListChanged": true},
		},
	})
}

// methodListChanged is the notification that a server's tools have changed.
const methodListChanged = "notifications/tools/list_changed"

// notifyInterval is the minimum time between two calls of [Server.OnListChanged].
const notifyInterval = time.Second

// Changes implements [tool.Announcer]. An announcement that arrives before the result of a call
// is counted before Call returns.
func (c *Client) Changes() uint64 { return c.changeCount.Load() }

// changed counts a change and requests a call of OnListChanged. It never blocks.
func (c *Client) changed() {
	c.changeCount.Add(1)
	select {
	case c.changes <- struct{}{}:
	default: // a call is already requested
	}
}

// announce calls OnListChanged when changed was called, until the client is retired or
// closed.
func (c *Client) announce() {
	for {
		select {
		case <-c.changes:
			c.server.OnListChanged()
		case <-c.notifying.Done():
			return
		}
		if sleep(c.notifying, notifyInterval) != nil {
			return
		}
	}
}
