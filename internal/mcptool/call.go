package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/replica"
	"github.com/turnpike-gateway/turnpike/tool"
)

var _ tool.Classed = (*remote)(nil)

// remote is a tool of an MCP server.
type remote struct {
	client     *Client
	definition tool.Definition
	class      tool.Class
}

// Tool returns the server's tool with the definition, which a client of the same server has
// listed. Nothing is sent.
func (c *Client) Tool(d tool.Definition) tool.Tool {
	return &remote{client: c, definition: d, class: c.class(d)}
}

// Definition implements [tool.Tool].
func (r *remote) Definition() tool.Definition { return r.definition }

// Class implements [tool.Classed]: how often a call may be executed, as [Server] says.
func (r *remote) Class() tool.Class { return r.class }

// Call implements [tool.Tool]. It first waits for [Server.MaxConcurrent]. A call of a tool
// that does not only read has an idempotency key, the same in every attempt: in _meta and,
// over HTTP, in the header Idempotency-Key. Every answer of the server is a result, also a
// refusal. An error means that there is no answer. It wraps [tool.ErrNotSent] if no attempt
// can have reached the server, and [tool.Blocked] or the cause of ctx if that was the reason.
func (r *remote) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	release, err := r.client.acquire(ctx)
	if err != nil {
		return tool.Result{}, fmt.Errorf("%w: server %q: %w", tool.ErrNotSent, r.client.server.Name, err)
	}
	defer release()
	limited, cancel := context.WithTimeout(ctx, r.client.server.Timeout)
	defer cancel()
	p := callParams{Name: r.definition.Name, Arguments: call.Arguments, memory: call.Memory, tracer: r.client.server.Tracer}
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
	switch {
	case o.result != nil:
		r.client.noteAnswer()
	case ctx.Err() == nil && o.unreachable():
		r.client.noteUnreachable(r.client.describe(limited, o), r.client.failure(ctx, limited, o))
	}
	if o.result != nil {
		if err := charge(call.Memory, len(o.result)); err != nil { // it is decoded into a copy
			o.result, o.err = nil, err
		}
	}
	return r.settle(ctx, limited, o)
}

// acquire waits until fewer than [Server.MaxConcurrent] calls are in progress, or this replica's part of them. Calls wait in
// the order in which they came. The error is the cause of the end of ctx, or errClosed. The
// caller must call release after the call.
func (c *Client) acquire(ctx context.Context) (release func(), err error) {
	weight := replica.Weight(c.server.MaxConcurrent, c.server.Living())
	release = func() { c.calls.Release(weight) }
	if c.calls.TryAcquire(weight) { // fails while other calls wait
		return release, nil
	}
	ctx, unbind := c.bound(ctx)
	defer unbind()
	if c.calls.Acquire(ctx, weight) != nil {
		return nil, context.Cause(ctx)
	}
	return release, nil
}

// repeatable reports whether the call may be sent again if its outcome is unknown. A keyed
// call without a key may not.
func (r *remote) repeatable(call tool.Call) bool {
	if r.class == tool.Read || call.Class == tool.Read {
		return true
	}
	return call.IdempotencyKey != "" && (r.class.Repeatable() || call.Class.Repeatable())
}

// settle returns the outcome of a call as the result or error of Call.
func (r *remote) settle(ctx, limited context.Context, o outcome) (tool.Result, error) {
	name, server := r.definition.Name, r.client.server.Name
	switch {
	case o.result != nil:
		return decodeResult(name, server, o.result), nil
	case o.rpc != nil && !o.connecting:
		return tool.Error(fmt.Sprintf("tool %q of server %q failed: %s", name, server, o.rpc.text())), nil
	case o.refused() && !o.left:
		return tool.Error(fmt.Sprintf("tool %q of server %q gave no result: %s", name, server, o.reason())), nil
	}
	err := &callError{fmt.Sprintf("server %q: %s", server, r.client.describe(limited, o)), r.client.failure(ctx, limited, o)}
	r.client.log.Debug("mcp call without an answer", "tool", name, "may_have_run", o.left, "error", err.cause)
	if !o.left {
		return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, err)
	}
	return tool.Result{}, err
}

// callError is the error of a call without an answer. Its text is for the model: it contains
// no address and no text of the server. The error that it wraps is for errors.Is and the
// log.
type callError struct {
	text  string
	cause error
}

func (e *callError) Error() string { return e.text }

func (e *callError) Unwrap() error { return e.cause }

// failure returns an error with the name of the server and the reason. ctx is the caller's
// context, limited is ctx with the timeout of the server.
func (c *Client) failure(ctx, limited context.Context, o outcome) error {
	switch {
	case o.fatal() != nil:
		return fmt.Errorf("server %q: %w", c.server.Name, plain(o.err))
	case ctx.Err() != nil:
		return fmt.Errorf("server %q: %w", c.server.Name, context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("server %q did not answer within %s: %w", c.server.Name, c.server.Timeout, limited.Err())
	case o.unauthorized() != "":
		said := ""
		if o.rpc != nil {
			said = " (" + o.rpc.text() + ")"
		}
		return fmt.Errorf("server %q answered with %s%s", c.server.Name, o.unauthorized(), said)
	case o.rpc != nil:
		return fmt.Errorf("server %q answered %s: %s", c.server.Name, o.method, o.rpc.text())
	}
	return fmt.Errorf("server %q: %w", c.server.Name, plain(o.err))
}

// plain returns an error of net/http without the URL, whose query may contain a secret.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// reason describes the failure for the model, without addresses.
func (o outcome) reason() string {
	var status *statusError
	var exit *exitError
	var refused *memlimit.Refused
	switch {
	case errors.As(o.err, &status):
		return "the server answered with " + status.Error()
	case errors.As(o.err, &exit):
		return fmt.Sprintf("the server process ended (%s) before it answered", exit.status)
	case o.status/100 == 3, errors.Is(o.err, errRedirect):
		return "the server redirected the request, which is not followed"
	case errors.As(o.err, &refused):
		return "the answer needs more memory than the run may retain"
	case errors.Is(o.err, errTooLarge):
		return fmt.Sprintf("the answer is larger than %d MiB", maxAnswer>>20)
	case errors.Is(o.err, errFlood):
		return "the server sent too many messages that the gateway did not request"
	case errors.Is(o.err, errMalformed), errors.Is(o.err, errEncoded):
		return o.err.Error()
	}
	return "the server closed the connection before it answered"
}

// text returns the error's message with its code.
func (e *rpcError) text() string {
	if e.Message == "" {
		return fmt.Sprintf("error %.0f", e.Code)
	}
	return fmt.Sprintf("%s (%.0f)", e.Message, e.Code)
}
