package mcptool

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Transport is how messages travel between the client and a server.
type Transport string

// The transports.
const (
	StreamableHTTP Transport = "streamable_http" // one POST for each request
	LegacySSE      Transport = "sse"             // revision 2024-11-05: POSTs, and one stream for all answers
	Stdio          Transport = "stdio"           // a child's standard input and output
	BareHTTP       Transport = "http"            // plain tools/list and tools/call, without a session
)

// terms are what the last handshake has negotiated, so that the next one does not have to
// probe. The zero value is unknown.
type terms struct {
	transport Transport
	version   string // the protocol revision; "" = none
}

// lastTerms returns what the last handshake has negotiated.
func (c *Client) lastTerms() terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms
}

func (c *Client) setTerms(t terms) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terms = t
}

// handshake is the making of a session, which all callers without a session wait for.
type handshake struct {
	done    chan struct{} // closed when session or failed is set
	session *session
	failed  outcome
}

// session returns the current session, or makes one. The handshake runs under the client's
// context: it continues if this caller's context ends, and has none of its values.
func (c *Client) session(ctx context.Context) (*session, outcome) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, outcome{err: errClosed, connecting: true}
	}
	if c.current != nil {
		defer c.mu.Unlock()
		return c.current, outcome{}
	}
	h := c.handshake
	if h == nil {
		h = &handshake{done: make(chan struct{})}
		c.handshake = h
		c.work.Go(func() { c.performHandshake(h) })
	}
	c.mu.Unlock()
	select {
	case <-h.done:
		return h.session, h.failed
	case <-ctx.Done():
		return nil, outcome{err: context.Cause(ctx), connecting: true}
	}
}

// performHandshake performs the handshake and publishes its result.
func (c *Client) performHandshake(h *handshake) {
	ctx, cancel := context.WithTimeout(c.life, c.server.Timeout)
	defer cancel()
	h.session, h.failed = c.connect(ctx)
	if h.session == nil {
		c.noteFailure(c.describe(ctx, h.failed))
	}
	c.mu.Lock()
	c.handshake = nil
	switch {
	case h.session != nil && c.closed:
		c.work.Go(h.session.close)
		h.session, h.failed = nil, outcome{err: errClosed, connecting: true}
	case h.session != nil:
		c.publish(h.session)
		c.closeIdle() // the callers may have given up
	}
	c.mu.Unlock()
	close(h.done)
}

// publish makes s the current session. It is called with mu held.
func (c *Client) publish(s *session) {
	c.current = s
	c.terms = terms{s.transport, s.protocol()}
	c.status.connected(c.terms)
	if s.announcesChanges() && c.sessions > 0 {
		c.changed() // notifications may have been lost between the sessions
	}
	c.sessions++
}

// replace removes s as the current session: the next request makes a new one. Requests in
// progress in s may still end.
func (c *Client) replace(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != s || c.closed {
		return
	}
	c.current = nil
	c.work.Go(s.close)
}

// connect makes a session with the transport and revision that the server supports.
func (c *Client) connect(ctx context.Context) (*session, outcome) {
	t := c.lastTerms()
	switch {
	case !c.server.reachable():
		return nil, outcome{err: errServer, connecting: true}
	case len(c.server.Command) > 0:
		return c.connectStdio(ctx, t.version)
	case t.transport == BareHTTP:
		return c.bareSession(), outcome{}
	case t.transport == LegacySSE:
		s, o := c.connectSSE(ctx)
		if s == nil && !o.transient() {
			c.setTerms(terms{}) // the server may support streamable HTTP by now
		}
		return s, o
	}
	s, o := c.connectStreamable(ctx, t.version)
	if s != nil {
		return s, o
	}
	c.setTerms(terms{})
	return c.connectOlder(ctx, o)
}

// connectStreamable makes a session over streamable HTTP.
func (c *Client) connectStreamable(ctx context.Context, version string) (*session, outcome) {
	x := &exchange{}
	sdk, err := c.sdk.Connect(withExchange(ctx, x), &mcp.StreamableClientTransport{
		Endpoint:             c.server.URL,
		HTTPClient:           c.http,
		MaxRetries:           -1,   // package mcptool resumes streams itself
		MaxEventSize:         -1,   // and limits them
		DisableStandaloneSSE: true, // if it failed, the SDK would end the session; see listen
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, x.handshaken(err)
	}
	s := &session{transport: StreamableHTTP, sdk: sdk, posts: newPoster(c, sdk)}
	c.listen(s)
	return s, outcome{}
}

// connectOlder tries legacy SSE and then plain HTTP, if the answer o to initialize is one
// that older servers give.
func (c *Client) connectOlder(ctx context.Context, o outcome) (*session, outcome) {
	if predatesStreamable(o) {
		w, legacy := c.openEvents(ctx, min(probeTimeout, c.server.Timeout))
		switch {
		case w != nil:
			return c.connectEvents(ctx, w)
		case legacy.fatal() != nil:
			return nil, legacy
		}
	}
	if refusesInitialize(o) {
		c.log.Info("mcp server refuses initialize and is called without a session")
		return c.bareSession(), outcome{}
	}
	return nil, o
}

// probeTimeout is how long a server may take to begin the event stream of legacy SSE, if it
// is not known to support that.
const probeTimeout = 5 * time.Second

// predatesStreamable reports whether the answer to initialize may come from a server that
// supports only legacy SSE.
func predatesStreamable(o outcome) bool {
	if o.method != methodInitialize {
		return false
	}
	return o.status == http.StatusBadRequest || o.status == http.StatusNotFound || o.status == http.StatusMethodNotAllowed
}

// refusesInitialize reports whether the server refused the method initialize. An answer
// that asks for credentials or for a later attempt is not such a refusal.
func refusesInitialize(o outcome) bool {
	if o.method != methodInitialize {
		return false
	}
	switch o.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return o.status/100 == 4 || o.status/100 == 2 && o.rpc != nil
}

func (c *Client) bareSession() *session {
	return &session{transport: BareHTTP, posts: &poster{client: c}}
}

// connectLink makes a session over w. It closes w if that fails.
func (c *Client) connectLink(ctx context.Context, t Transport, w wire, version string) (*session, outcome) {
	l := newLink(c, w)
	x := &exchange{}
	sdk, err := c.sdk.Connect(withExchange(ctx, x), opened{l}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, l.handshaken(ctx, x, err)
	}
	s := &session{transport: t, sdk: sdk, link: l}
	if s.announcesChanges() && s.protocol() >= statelessVersion && c.server.OnListChanged != nil {
		l.tell(ctx, listenRequest(s.protocol()))
	}
	return s, outcome{}
}

// opened is a transport of the SDK whose connection is already open.
type opened struct{ connection mcp.Connection }

// Connect implements [mcp.Transport].
func (o opened) Connect(context.Context) (mcp.Connection, error) { return o.connection, nil }
