package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
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
// and, over HTTP, in the header Idempotency-Key. What the server answered is a
// result, also where it is a refusal. An error says that there was no answer; it
// wraps [tool.ErrNotSent] if no try can have reached the server, and [tool.Fatal]
// or the cause of ctx where one of them was the reason.
func (r *remote) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	leave, err := r.client.enter(ctx)
	if err != nil {
		return tool.Result{}, fmt.Errorf("%w: server %q: %w", tool.ErrNotSent, r.client.server.Name, err)
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, r.client.server.Timeout)
	defer cancel()
	p := callParams{Name: r.definition.Name, Arguments: call.Arguments, memory: call.Memory}
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
	if o.result != nil {
		if err := charge(call.Memory, len(o.result)); err != nil { // it is decoded into a copy
			o.result, o.err = nil, err
		}
	}
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

// callError is a call without an answer. Its text is for the model: it holds no
// address and none of the server's own words. What it wraps is for errors.Is and
// the log.
type callError struct {
	text  string
	cause error
}

func (e *callError) Error() string { return e.text }

func (e *callError) Unwrap() error { return e.cause }

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
	var refused *ledger.Refused
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
