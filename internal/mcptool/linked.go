package mcptool

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// connectLink makes a session over w, which it takes over.
func (c *Client) connectLink(ctx context.Context, t Transport, w wire, version string) (*session, outcome) {
	l := newLink(c, w)
	x := &exchange{}
	sdk, err := c.sdk.Connect(withExchange(ctx, x), given{l}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, l.handshaken(ctx, x, err)
	}
	s := &session{transport: t, sdk: sdk, link: l}
	if s.announcesChanges() && s.protocol() >= statelessVersion && c.server.OnListChanged != nil {
		l.tell(ctx, listenRequest(s.protocol()))
	}
	return s, outcome{}
}

// handshaken ends a link whose handshake failed with err and returns what became
// of it: the link knows better than the SDK why it ended.
func (l *link) handshaken(ctx context.Context, x *exchange, err error) outcome {
	why := l.why()
	_ = l.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	o := x.handshaken(err)
	if o.rpc == nil && why != nil && !errors.Is(why, errSessionLost) {
		o.err = why
	}
	return o
}

// given is a transport whose connection is there already.
type given struct{ connection mcp.Connection }

// Connect implements [mcp.Transport].
func (g given) Connect(context.Context) (mcp.Connection, error) { return g.connection, nil }

// linkEnds gives up the session of a link that ends by itself. It comes before
// anybody is told, so that who is told and asks again finds a new session.
func (c *Client) linkEnds(l *link, why error) {
	var exit *exitError
	if errors.As(why, &exit) {
		c.log.Warn("mcp server process ended", "status", exit.status, "stderr", exit.said)
	} else {
		c.log.Info("mcp session ended", "error", plain(why))
	}
	c.mu.Lock()
	if len(c.server.Command) > 0 {
		c.starts.ended(time.Now())
	}
	s := c.current
	c.mu.Unlock()
	if s != nil && s.link == l {
		c.noteFailure(c.describe(c.life, outcome{err: why, sent: true}))
		c.replace(s)
	}
}
