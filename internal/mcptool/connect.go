package mcptool

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// attempt is a handshake that callers wait for together.
type attempt struct {
	done    chan struct{} // closed when the rest is set
	session *session
	failed  outcome
}

// session returns the live session, or makes one. The handshake belongs to the
// client: a caller that leaves does not spoil it for the others, and no caller's
// values stay in it.
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
	a := c.making
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		c.making = a
		c.work.Go(func() { c.make(a) })
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.session, a.failed
	case <-ctx.Done():
		return nil, outcome{err: context.Cause(ctx), connecting: true}
	}
}

// make performs the handshake of a and publishes its result.
func (c *Client) make(a *attempt) {
	ctx, cancel := context.WithTimeout(c.life, c.server.Timeout)
	defer cancel()
	a.session, a.failed = c.connect(ctx)
	if a.session == nil {
		c.noteFailure(c.describe(ctx, a.failed))
	}
	c.mu.Lock()
	c.making = nil
	switch {
	case a.session != nil && c.closed:
		c.work.Go(a.session.close)
		a.session, a.failed = nil, outcome{err: errClosed, connecting: true}
	case a.session != nil:
		c.publish(a.session)
		c.closeIdle() // those who asked for it may have left
	}
	c.mu.Unlock()
	close(a.done)
}

// publish makes s the session of all calls. The caller holds mu.
func (c *Client) publish(s *session) {
	c.current = s
	c.terms = terms{s.transport, s.protocol()}
	c.status.connected(c.terms)
	if s.announcesChanges() && c.sessions > 0 {
		c.changed() // nobody listened in between
	}
	c.sessions++
}

// replace drops s: the next request makes a new session. Requests under way in
// s may still end.
func (c *Client) replace(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != s || c.closed {
		return
	}
	c.current = nil
	c.work.Go(s.close)
}

// connect agrees with the server on how to talk.
func (c *Client) connect(ctx context.Context) (*session, outcome) {
	t := c.agreed()
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
			c.agree(terms{}) // the server may have learnt streamable HTTP since
		}
		return s, o
	}
	s, o := c.connectStreamable(ctx, t.version)
	if s != nil {
		return s, o
	}
	c.agree(terms{})
	return c.connectOlder(ctx, o)
}

// connectStreamable makes a session over streamable HTTP.
func (c *Client) connectStreamable(ctx context.Context, version string) (*session, outcome) {
	x := &exchange{}
	sdk, err := c.sdk.Connect(withExchange(ctx, x), &mcp.StreamableClientTransport{
		Endpoint:             c.server.URL,
		HTTPClient:           c.http,
		MaxRetries:           -1,   // the transport resumes streams itself
		MaxEventSize:         -1,   // and caps them
		DisableStandaloneSSE: true, // one that fails would end the session: we listen ourselves
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, x.handshaken(err)
	}
	s := &session{transport: StreamableHTTP, sdk: sdk}
	c.listen(s)
	return s, outcome{}
}

// connectOlder tries what servers spoke before streamable HTTP, where one
// answered initialize as they do. o is that answer.
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

// probeTimeout is what a server that knows no streamable HTTP gets to begin its
// event stream.
const probeTimeout = 5 * time.Second

// predatesStreamable reports an answer to initialize after which the event
// stream of revision 2024-11-05 is tried.
func predatesStreamable(o outcome) bool {
	if o.method != methodInitialize {
		return false
	}
	return o.status == http.StatusBadRequest || o.status == http.StatusNotFound || o.status == http.StatusMethodNotAllowed
}

// refusesInitialize reports that the server answered initialize itself with a
// no. Asking for credentials or for patience is no such answer.
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
	return &session{transport: BareHTTP, bare: &bare{http: c.http, url: c.server.URL}}
}
