package mcptool

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Waiting times between two tries.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// do performs request in the live session and repeats it as far as it may be
// repeated: after failures that another try may not meet, if the request may be
// executed twice or was provably not sent. The outcome is that of the last try;
// its left is that of all tries together.
func (c *Client) do(ctx context.Context, repeatable bool, request func(*session) outcome) outcome {
	defer c.begin()()
	left := false
	for try := 0; ; try++ {
		o := c.once(ctx, request)
		left = left || o.mayHaveRun()
		o.left = left
		if !o.repeatable(repeatable) || try >= c.server.MaxRetries || ctx.Err() != nil {
			return o
		}
		c.log.Debug("mcp request failed and is tried again", "method", o.method, "try", try+1, "status", o.status)
		if sleep(ctx, pause(try)) != nil {
			return o
		}
	}
}

// pause returns the waiting time after a try, the first being 0.
func pause(try int) time.Duration { return backoff(try, maxPause) }

// backoff doubles with each try up to the longest and is drawn from the upper
// half of its range, so that many callers of a server that comes back do not
// meet.
func backoff(try int, longest time.Duration) time.Duration {
	d := min(firstPause<<min(try, 10), longest)
	return d/2 + rand.N(d/2)
}

// once performs request once, in a second session where the first one is gone,
// which the server says before it executes anything.
func (c *Client) once(ctx context.Context, request func(*session) outcome) outcome {
	s, o := c.session(ctx)
	if s == nil {
		return o
	}
	o = request(s)
	switch {
	case o.gone():
		c.replace(s)
		if s, o = c.session(ctx); s == nil {
			return o
		}
		return request(s)
	case o.rpc != nil && o.rpc.Code == mcp.CodeHeaderMismatch:
		// This session has not seen the tool whose arguments it must repeat in
		// headers, or it has changed. The server refused before it ran anything.
		if _, o := c.pages(ctx, s); o.failed() || o.rpc != nil {
			o.connecting = true // the call itself was refused
			return o
		}
		return request(s)
	case s.bare != nil && o.status/100 == 4 && o.status != http.StatusTooManyRequests:
		c.agree(terms{}) // the server may have learnt initialize since
		c.replace(s)
	}
	return o
}
