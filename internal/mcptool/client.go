package mcptool

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/tool"
)

// errClosed ends what is still under way when a Client is closed.
var errClosed = errors.New("client closed")

var _ tool.Source = (*Client)(nil)

// Client speaks to one MCP server. It connects on first use, keeps one session
// for all calls and replaces it when it is lost. It is safe for concurrent use;
// close it after use.
type Client struct {
	server Server
	log    *slog.Logger
	http   *http.Client // the caller's client around our transport; nil for a command
	direct *http.Client // the same, with answers as they come
	sdk    *mcp.Client

	life    context.Context // ends with Close; carries no values
	stop    context.CancelCauseFunc
	work    sync.WaitGroup  // handshakes, sessions and their streams, child processes
	changes chan struct{}   // holds one when OnListChanged is to be called
	hearing context.Context // ends with Retire or Close: nothing is announced any more
	deafen  context.CancelFunc
	parting context.Context // ends with Kill: nobody waits until the server knows that a session is over
	part    context.CancelFunc
	places  *semaphore.Weighted // one for each call that may be under way

	mu       sync.Mutex // guards what follows
	closed   bool
	retired  bool
	inFlight int      // requests under way, with the waiting between their tries
	current  *session // nil: none, or being made
	making   *attempt // the handshake under way
	sessions int      // how many there were
	terms    terms
	starts   starts
	status   Status
}

// New returns a Client for s that connects through client only. client should
// be a guarded one of package egress; it must have a transport, and without a
// redirect rule of its own it follows none. A server with a command needs none.
// A nil log discards.
func New(s Server, client *http.Client, log *slog.Logger) *Client {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s = s.withDefaults()
	c := &Client{
		server:  s,
		log:     log.With("server", s.Name),
		changes: make(chan struct{}, 1),
		places:  semaphore.NewWeighted(int64(s.MaxConcurrent)),
		status:  Status{State: Unknown, Since: time.Now()},
	}
	c.life, c.stop = context.WithCancelCause(context.Background())
	c.hearing, c.deafen = context.WithCancel(c.life)
	c.parting, c.part = context.WithCancel(context.Background())
	if s.URL != "" {
		t := &transport{client: c, next: client.Transport}
		c.http, c.direct = wrap(client, t), wrap(client, direct{t})
		c.direct.Timeout = 0 // streams live as long as their session
	}
	c.sdk = mcp.NewClient(us(), &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{}, // no roots, no sampling, no elicitation
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	if s.OnListChanged != nil {
		c.work.Go(c.announce)
	}
	return c
}

// us is what servers are told about who calls them.
func us() *mcp.Implementation { return &mcp.Implementation{Name: "turnpike", Version: "1"} }

// wrap puts a transport of ours into a copy of the caller's client.
func wrap(client *http.Client, t http.RoundTripper) *http.Client {
	wrapped := *client
	wrapped.Transport = t
	wrapped.Jar = nil // cookies would tie the calls of one org together
	if wrapped.CheckRedirect == nil {
		wrapped.CheckRedirect = func(*http.Request, []*http.Request) error {
			return errors.New("redirect not followed")
		}
	}
	return &wrapped
}

// Retire says that only runs that began with the client still use it. It announces
// no changes any more and keeps a session only while a request is under way: without
// one it holds no connection and no process. It may be called more than once, and
// does not wait.
func (c *Client) Retire() {
	c.deafen()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.closeIdle()
}

// closeIdle ends the session of a retired client that has no request under way.
// The caller holds mu.
func (c *Client) closeIdle() {
	if s := c.current; c.retired && c.inFlight == 0 && s != nil && !c.closed {
		c.current = nil
		c.work.Go(s.close)
	}
}

// begin counts a request that is under way. Call end when it is over.
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

// Kill is Close without telling the server that its session is over. It waits for
// nothing but a child process.
func (c *Client) Kill() {
	c.part()
	_ = c.Close()
}

// Close ends the session and everything that is under way, and waits for it. A
// remote server that does not answer delays it by two seconds at most; a child
// process by four, and is then killed. Later calls fail. Close may be called
// more than once.
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
	c.deafen()
	c.part()
	return nil
}

// spawn runs f in the background until Close at the latest, and reports whether
// it did: not after Close.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// bound returns a context that ends with ctx or with the client.
func (c *Client) bound(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return bound, func() {
		unwatch()
		cancel(nil)
	}
}
