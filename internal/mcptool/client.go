package mcptool

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Defaults of a [Server].
const (
	defaultTimeout = 30 * time.Second
	defaultRetries = 2
)

// errClosed ends what is still under way when a Client is closed.
var errClosed = errors.New("client closed")

var _ tool.Source = (*Client)(nil)

// Server is an MCP server as an org declared it.
type Server struct {
	Name string // what messages call it
	URL  string // the MCP endpoint, http or https

	// Headers returns the headers to send with every request, resolved at that
	// moment; nil means none. Its context carries the values of the call that it
	// is asked for, and none during the handshake, because the session belongs
	// to nobody's call. Headers of [ForbiddenHeader] are left out. It is called
	// concurrently.
	Headers func(ctx context.Context) (http.Header, error)

	// Timeout bounds each discovery and each call, retries included; 0 = 30 s.
	Timeout time.Duration

	// MaxRetries is how often discovery, calls that may be repeated and calls
	// that were provably not sent are tried again; 0 = 2, negative = never.
	MaxRetries int

	// Trust believes the annotations of the server's tools: one that says it
	// only reads is of class [tool.Read]. All others are [tool.Once].
	Trust bool
}

// Client speaks to one MCP server. It connects on first use, keeps one session
// for all calls and replaces it when it is lost. It is safe for concurrent use;
// close it after use.
type Client struct {
	server Server
	log    *slog.Logger
	http   *http.Client // the caller's client around our transport
	sdk    *mcp.Client

	life context.Context // ends with Close; carries no values
	stop context.CancelCauseFunc
	work sync.WaitGroup // handshakes, closing sessions, cancel notifications

	mu      sync.Mutex // guards what follows
	closed  bool
	current *session // nil: none, or being made
	making  *attempt // the handshake under way
	version string   // the protocol revision last agreed on; "" = unknown
	bare    bool     // the server refuses initialize
}

// New returns a Client for s that connects through client only. client should
// be a guarded one of package egress; it must have a transport, and without a
// redirect rule of its own it follows none. A nil log discards.
func New(s Server, client *http.Client, log *slog.Logger) *Client {
	if s.Timeout <= 0 {
		s.Timeout = defaultTimeout
	}
	switch {
	case s.MaxRetries == 0:
		s.MaxRetries = defaultRetries
	case s.MaxRetries < 0:
		s.MaxRetries = 0
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Client{server: s, log: log.With("server", s.Name)}
	c.life, c.stop = context.WithCancelCause(context.Background())
	c.http = c.wrap(client)
	c.sdk = mcp.NewClient(&mcp.Implementation{Name: "turnpike", Version: "1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{}, // no roots, no sampling, no elicitation
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	return c
}

// wrap puts our transport into a copy of the caller's client.
func (c *Client) wrap(client *http.Client) *http.Client {
	wrapped := *client
	wrapped.Transport = &transport{client: c, next: client.Transport}
	wrapped.Jar = nil // cookies would tie the calls of one org together
	if wrapped.CheckRedirect == nil {
		wrapped.CheckRedirect = func(*http.Request, []*http.Request) error {
			return errors.New("redirect not followed")
		}
	}
	return &wrapped
}

// Close ends the session and everything that is under way, and waits for it. A
// server that does not answer delays it by two seconds at most. Later calls
// fail. Close may be called more than once.
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
