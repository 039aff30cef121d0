package mcptool

import (
	"context"
	"net/http"

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
	c.mu.Lock()
	c.making = nil
	if a.session != nil && c.closed {
		c.work.Go(a.session.close)
		a.session, a.failed = nil, outcome{err: errClosed, connecting: true}
	}
	c.current = a.session
	c.mu.Unlock()
	close(a.done)
}

// connect agrees with the server on how to talk. What was agreed on is kept, so
// that a later session does not probe again.
func (c *Client) connect(ctx context.Context) (*session, outcome) {
	version, isBare := c.agreed()
	if isBare {
		return c.bareSession(), outcome{}
	}
	x := &exchange{}
	sdk, err := c.sdk.Connect(withExchange(ctx, x), &mcp.StreamableClientTransport{
		Endpoint:             c.server.URL,
		HTTPClient:           c.http,
		MaxRetries:           -1, // the transport resumes streams itself
		MaxEventSize:         -1, // and caps them
		DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		c.agree(sdk.InitializeResult().ProtocolVersion, false)
		return &session{sdk: sdk}, outcome{}
	}
	o := x.handshaken(err)
	if refusesInitialize(o) {
		c.log.Info("mcp server refuses initialize and is called without a session")
		c.agree("", true)
		return c.bareSession(), outcome{}
	}
	c.agree("", false)
	return nil, o
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
	return &session{bare: &bare{http: c.http, url: c.server.URL}}
}

// agreed returns what was last agreed on.
func (c *Client) agreed() (version string, isBare bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version, c.bare
}

func (c *Client) agree(version string, isBare bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.bare = version, isBare
}

// retire replaces s: the next request makes a new session. Requests under way in
// s may still end.
func (c *Client) retire(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != s || c.closed {
		return
	}
	c.current = nil
	c.work.Go(s.close)
}
