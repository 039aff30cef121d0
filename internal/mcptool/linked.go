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
		_ = l.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, x.handshaken(err)
	}
	s := &session{transport: t, sdk: sdk, link: l}
	if s.announcesChanges() && s.protocol() >= statelessVersion && c.server.OnListChanged != nil {
		l.tell(ctx, listenRequest(s.protocol()))
	}
	return s, outcome{}
}

// given is a transport whose connection is there already.
type given struct{ connection mcp.Connection }

// Connect implements [mcp.Transport].
func (g given) Connect(context.Context) (mcp.Connection, error) { return g.connection, nil }

// linkEnded gives up the session of a link that did not end on our wish.
func (c *Client) linkEnded(l *link) {
	why := l.why()
	if errors.Is(why, errClosed) || errors.Is(why, errSessionLost) {
		return
	}
	var exit *exitError
	if errors.As(why, &exit) {
		c.log.Warn("mcp server process ended", "status", exit.status, "stderr", exit.said)
	} else {
		c.log.Info("mcp session ended", "error", plain(why))
	}
	c.mu.Lock()
	if l.client.isStdio() {
		c.starts.ended(time.Now())
	}
	s := c.current
	c.mu.Unlock()
	if s != nil && s.link == l {
		c.noteFailure(c.describe(c.life, outcome{err: why, sent: true}))
		c.retire(s)
	}
}

func (c *Client) isStdio() bool { return len(c.server.Command) > 0 }
