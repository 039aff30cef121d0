package mcptool

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The delays between two attempts.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// do performs request in the current session. It repeats it after a transient failure, if the
// request may be executed twice or was provably not sent. The outcome is that of the last
// attempt; its field left is for all attempts together.
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

// pause returns the delay after an attempt; the first is 0.
func pause(try int) time.Duration { return backoff(try, maxPause) }

// backoff returns a random delay from the upper half of a range that doubles with each attempt,
// up to longest. It is random so that the callers of a restarted server do not all retry at the
// same time.
func backoff(try int, longest time.Duration) time.Duration {
	d := min(firstPause<<min(try, 10), longest)
	return d/2 + rand.N(d/2)
}

// once performs request once. If the server answers that the session is gone, which it does
// before it executes anything, once performs it again in a new session.
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
		// The session must repeat arguments of the tool in headers, and does not know its
		// definition or has an old one. The server has executed nothing.
		if _, o := c.pages(ctx, s); o.failed() || o.rpc != nil {
			o.connecting = true // the call itself was refused
			return o
		}
		return request(s)
	case s.bare != nil && o.status/100 == 4 && o.status != http.StatusTooManyRequests:
		c.setTerms(terms{}) // the server may support initialize by now
		c.replace(s)
	}
	return o
}
