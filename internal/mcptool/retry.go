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

// once performs request once. If the server answers that it does not know the session, which it
// does before it executes anything, once performs it again in a new session.
func (c *Client) once(ctx context.Context, request func(*session) outcome) outcome {
	s, o := c.session(ctx)
	if s != nil && s.doubted.Swap(false) && c.isUnknown(ctx, s) {
		c.replace(s)
		s, o = c.session(ctx)
	}
	if s == nil {
		return o
	}
	o = request(s)
	switch {
	case o.result != nil:
		s.worked.Store(true)
	case o.gone(), o.method == methodList && o.rpc != nil && s.worked.Load():
		return c.again(ctx, s, request)
	case o.rpc != nil && o.rpc.Code == mcp.CodeHeaderMismatch:
		// The session must repeat arguments of the tool in headers, and does not know its
		// definition or has an old one. The server has executed nothing.
		if _, o := c.pages(ctx, s); o.failed() || o.rpc != nil {
			o.connecting = true // the call itself was refused
			return o
		}
		return request(s)
	case s.sdk == nil && o.status/100 == 4 && o.status != http.StatusTooManyRequests:
		c.setTerms(terms{}) // the server may support initialize by now
		c.replace(s)
	default:
		c.judge(s, o)
	}
	return o
}

// again performs request in a new session, in place of s.
func (c *Client) again(ctx context.Context, s *session, request func(*session) outcome) outcome {
	if s.sdk == nil {
		c.setTerms(terms{}) // the server may support initialize by now
	}
	c.log.Info("mcp server does not know its session, which is replaced", "transport", s.transport)
	c.replace(s)
	s, o := c.session(ctx)
	if s == nil {
		return o
	}
	if o = request(s); o.result != nil {
		s.worked.Store(true)
	}
	return o
}

// judge looks at an error that may mean that the server has lost the session. The request may
// have been executed, so it is not repeated. If the error says nothing about the request, the
// next request gets a new session. If it says something, it is probably an error of the tool:
// the session may have state that must not be lost, so the next request first checks whether
// the server still knows it.
func (c *Client) judge(s *session, o outcome) {
	if s.sdk == nil || s.link != nil || !s.worked.Load() || o.connecting {
		return
	}
	switch {
	case o.rpc != nil && o.rpc.vague(), o.rpc == nil && o.status == http.StatusBadRequest:
		c.replace(s)
	case o.rpc != nil && !o.rpc.aboutRequest():
		s.doubted.Store(true)
	}
}

// isUnknown reports whether the server refuses to list its tools in session s.
func (c *Client) isUnknown(ctx context.Context, s *session) bool {
	o, _ := s.list(ctx, "")
	return o.rpc != nil || o.gone()
}
