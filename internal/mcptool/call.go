package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/turnpike-gateway/turnpike/tool"
)

var _ tool.Tool = (*remote)(nil)

// remote is a tool of an MCP server.
type remote struct {
	client     *Client
	definition tool.Definition
	class      tool.Class
}

// Definition implements [tool.Tool].
func (r *remote) Definition() tool.Definition { return r.definition }

// Class returns how often a call may be executed, as [Server] says.
func (r *remote) Class() tool.Class { return r.class }

// Call implements [tool.Tool]. It waits for its turn first. A call that does not
// only read carries its idempotency key, the same bytes for every try, in _meta
// and, over HTTP, in the header Idempotency-Key. An error wraps [tool.Fatal],
// [tool.ErrNotSent] or the cause of ctx; all else that goes wrong is a result
// that tells the model about it.
func (r *remote) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	leave, err := r.client.enter(ctx)
	if err != nil {
		return tool.Result{}, fmt.Errorf("tool %q: %w: server %q: %w", r.definition.Name, tool.ErrNotSent, r.client.server.Name, err)
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, r.client.server.Timeout)
	defer cancel()
	p := callParams{Name: r.definition.Name, Arguments: call.Arguments}
	if !present(p.Arguments) {
		p.Arguments = json.RawMessage("{}")
	}
	writes := r.class != tool.Read && call.Class != tool.Read
	if writes {
		p.key = call.IdempotencyKey
	}
	o := r.client.do(limited, r.repeatable(call), func(s *session) outcome {
		return s.call(limited, p, writes)
	})
	return r.settle(ctx, limited, o)
}

// repeatable reports whether the call may be sent again when nobody knows what
// became of it. A server can honour no key that is not there.
func (r *remote) repeatable(call tool.Call) bool {
	if r.class == tool.Read || call.Class == tool.Read {
		return true
	}
	return call.IdempotencyKey != "" && (r.class.Repeatable() || call.Class.Repeatable())
}

// settle turns the outcome of a call into what the run is told.
func (r *remote) settle(ctx, limited context.Context, o outcome) (tool.Result, error) {
	name, server := r.definition.Name, r.client.server.Name
	switch {
	case o.result != nil:
		return decodeResult(name, server, o.result), nil
	case o.rpc != nil && !o.connecting:
		return tool.Error(fmt.Sprintf("tool %q of server %q failed: %s", name, server, o.rpc.text())), nil
	case o.fatal() == nil && ctx.Err() == nil && limited.Err() != nil:
		return tool.Error(fmt.Sprintf("tool %q of server %q did not answer within %s", name, server, r.client.server.Timeout)), nil
	case o.fatal() != nil, ctx.Err() != nil, o.ours():
		return tool.Result{}, fmt.Errorf("tool %q: %w", name, r.client.failure(ctx, limited, o))
	case o.connecting, !o.sent:
		return tool.Result{}, fmt.Errorf("tool %q: %w: %w", name, tool.ErrNotSent, r.client.failure(ctx, limited, o))
	}
	text := fmt.Sprintf("tool %q of server %q gave no result: %s", name, server, o.reason())
	if o.status == 0 || o.status/100 == 2 {
		text += "; it may have been carried out"
	}
	return tool.Error(text), nil
}

// failure names the server and what went wrong, for errors. ctx is the caller's
// context, limited the same with our timeout.
func (c *Client) failure(ctx, limited context.Context, o outcome) error {
	switch {
	case o.fatal() != nil:
		return fmt.Errorf("server %q: %w", c.server.Name, plain(o.err))
	case ctx.Err() != nil:
		return fmt.Errorf("server %q: %w", c.server.Name, context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("server %q did not answer within %s: %w", c.server.Name, c.server.Timeout, limited.Err())
	case o.rpc != nil:
		return fmt.Errorf("server %q answered %s: %s", c.server.Name, o.method, o.rpc.text())
	}
	return fmt.Errorf("server %q: %w", c.server.Name, plain(o.err))
}

// plain takes the URL off an error of net/http: its query may hold a secret.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// reason says for the model what went wrong, without addresses.
func (o outcome) reason() string {
	var status *statusError
	var exit *exitError
	switch {
	case errors.As(o.err, &status):
		return "the server answered with " + status.Error()
	case errors.As(o.err, &exit):
		return fmt.Sprintf("the server process ended (%s) before it answered", exit.status)
	case o.status/100 == 3, errors.Is(o.err, errRedirect):
		return "the server redirected the request, which is not followed"
	case errors.Is(o.err, errTooLarge):
		return fmt.Sprintf("the answer is larger than %d MiB", maxAnswer>>20)
	case errors.Is(o.err, errFlood):
		return "the server sent too much that nobody had asked for"
	case errors.Is(o.err, errMalformed), errors.Is(o.err, errEncoded):
		return "the server sent an " + o.err.Error()
	}
	return "the server closed the connection before it answered"
}

// ours reports a failure that the server has no part in.
func (o outcome) ours() bool {
	return errors.Is(o.err, errHeaders) || errors.Is(o.err, errEnv) || errors.Is(o.err, errServer) || errors.Is(o.err, errClosed)
}

// text returns the error's message with its code.
func (e *rpcError) text() string {
	if e.Message == "" {
		return fmt.Sprintf("error %.0f", e.Code)
	}
	return fmt.Sprintf("%s (%.0f)", e.Message, e.Code)
}
