package mcptool

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/tool"
)

// errClosed is the cause of requests that end because the Client is closed.
var errClosed = errors.New("client closed")

var _ tool.Announcer = (*Client)(nil)

// Client is a client of one MCP server. It connects on first use, uses one session for
// all calls, and replaces the session when it is lost. It is safe for concurrent use.
// Close it after use.
type Client struct {
	server Server
	log    *slog.Logger
	http   *http.Client // the caller's client with [transport]; nil for a command
	direct *http.Client // the caller's client with [direct]; nil for a command
	sdk    *mcp.Client

	life          context.Context // ends with Close; carries no values
	stop          context.CancelCauseFunc
	work          sync.WaitGroup  // handshakes, sessions and their streams, child processes
	changes       chan struct{}   // has an element when OnListChanged must be called
	changeCount   atomic.Uint64   // see Changes
	notifying     context.Context // of OnListChanged and the streams for it; ends with Retire or Close
	stopNotifying context.CancelFunc
	deleting      context.Context // of the requests that end sessions at the server; ends with Kill
	stopDeleting  context.CancelFunc
	calls         *semaphore.Weighted // limits the calls in progress to Server.MaxConcurrent

	mu        sync.Mutex // guards what follows
	closed    bool
	retired   bool
	inFlight  int        // requests in progress, including the waits between their attempts
	current   *session   // nil = none, or the handshake is in progress
	handshake *handshake // in progress; nil = none
	sessions  int        // number of sessions so far
	terms     terms
	starts    starts
	status    Status
	listed    bool // the tools were listed, and no call failed to reach the server since
}

// New returns a Client for s. It makes every HTTP request with client, which should be a
// guarded client of package egress and must have a transport. If client has no
// CheckRedirect, redirects are not followed. client is not used, and may be nil, if s has
// a command. A nil log discards.
func New(s Server, client *http.Client, log *slog.Logger) *Client {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s = s.withDefaults()
	c := &Client{
		server:  s,
		log:     log.With("server", s.Name),
		changes: make(chan struct{}, 1),
		calls:   semaphore.NewWeighted(int64(s.MaxConcurrent)),
		status:  Status{State: Unknown, Since: time.Now()},
		listed:  s.Listed,
	}
	c.life, c.stop = context.WithCancelCause(context.Background())
	c.notifying, c.stopNotifying = context.WithCancel(c.life)
	c.deleting, c.stopDeleting = context.WithCancel(context.Background())
	if s.URL != "" {
		t := &transport{client: c, next: client.Transport}
		c.http, c.direct = wrap(client, t), wrap(client, direct{t})
		c.direct.Timeout = 0 // streams live as long as their session
	}
	c.sdk = mcp.NewClient(clientInfo(), &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{}, // no roots, no sampling, no elicitation
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	if s.OnListChanged != nil {
		c.work.Go(c.announce)
	}
	return c
}

// clientInfo returns the name and version that the client sends to servers.
func clientInfo() *mcp.Implementation { return &mcp.Implementation{Name: "turnpike", Version: "1"} }

// wrap returns a copy of the caller's client that uses the transport t.
func wrap(client *http.Client, t http.RoundTripper) *http.Client {
	wrapped := *client
	wrapped.Transport = t
	wrapped.Jar = nil // cookies would connect calls of different runs
	if wrapped.CheckRedirect == nil {
		wrapped.CheckRedirect = func(*http.Request, []*http.Request) error {
			return errors.New("redirect not followed")
		}
	}
	return &wrapped
}

// Retire is called when another Client replaces this one, and only runs that began before
// still use it. From then on OnListChanged is not called, and the session ends when no
// request is in progress: the client then has no connection and no process. A later
// request makes a new session. Retire does not wait and may be called more than once.
func (c *Client) Retire() {
	c.stopNotifying()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.closeIdle()
}

// closeIdle ends the session of a retired client that has no request in progress. It is
// called with mu held.
func (c *Client) closeIdle() {
	if s := c.current; c.retired && c.inFlight == 0 && s != nil && !c.closed {
		c.current = nil
		c.work.Go(s.close)
	}
}

// begin counts a request in progress. The caller must call end after it.
func (c *Client) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inFlight--
		c.closeIdle()
	}
}

// Kill is Close without the request that ends the session at the server. It waits only
// for a child process.
func (c *Client) Kill() {
	c.stopDeleting()
	_ = c.Close()
}

// Close ends the session and all requests in progress, and waits for them. It waits at most
// two seconds for a remote server. It waits at most four seconds for a child process, which
// is then killed. Later calls fail. Close may be called more than once.
func (c *Client) Close() error {
	c.stop(errClosed)
	c.mu.Lock()
	s := c.current
	c.current = nil
	if s != nil && !c.closed {
		c.work.Go(s.close)
	}
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
	c.stopNotifying()
	c.stopDeleting()
	return nil
}

// spawn runs f in a goroutine that Close waits for. It returns false, and does not run f,
// after Close.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// bound returns a context that ends when ctx ends or the client is closed.
func (c *Client) bound(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return bound, func() {
		unwatch()
		cancel(nil)
	}
}
