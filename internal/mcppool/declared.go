package mcppool

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/tool"
)

var (
	_ run.Dialer     = (*Pool)(nil)
	_ tool.Announcer = (*declaredSource)(nil)
)

// declared is the client of a server that requests declare, while runs use it.
type declared struct {
	client *mcptool.Client
	users  int // runs, and requests in progress
}

// Dial implements [run.Dialer]. Runs of an org that declare the same server with the same
// credentials share a client. When the last one has ended, the client is closed, and the
// pool has nothing of the server any more.
func (p *Pool) Dial(orgID string, d run.RequestServer) (source tool.Source, origin string, release func()) {
	key := p.digest(orgID, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.declared[key]
	if c == nil {
		c = &declared{client: p.newDeclared(orgID, key, d)}
		p.declared[key] = c
	}
	c.users++
	return &declaredSource{p, key, d.Label}, key, func() { p.release(key) }
}

// newDeclared returns a client that trusts no annotation: each call is sent at most once.
func (p *Pool) newDeclared(orgID, origin string, d run.RequestServer) (client *mcptool.Client) {
	header := http.Header{}
	for name, value := range d.Headers {
		header.Set(name, value.Reveal())
	}
	client = mcptool.New(mcptool.Server{
		Name: d.Label, URL: d.URL.Reveal(), Listed: true, Tracer: p.options.Tracer,
		Headers:       func(context.Context) (http.Header, error) { return header.Clone(), nil },
		OnListChanged: func() { p.options.Changed(orgID, d.Server()) },
		OnUnreachable: func(error) { // whose text could repeat the credentials
			p.options.Unreachable(orgID, d.Server(), origin, errors.New(client.Status().Error))
		},
	}, p.options.Out.Guarded(egress.GuardedOptions{}), p.options.Log.With("org", orgID))
	return client
}

// digest identifies a server with its credentials, without them: it cannot be computed
// without the key, which only this process has.
func (p *Pool) digest(orgID string, d run.RequestServer) string {
	headers := map[string]string{}
	for name, value := range d.Headers {
		headers[http.CanonicalHeaderKey(name)] = value.Reveal()
	}
	text, _ := json.Marshal([]any{orgID, d.Label, d.URL.Reveal(), headers}) // strings: cannot fail
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// hold returns the client of a server for one request. The caller must release it.
func (p *Pool) hold(key string) (*mcptool.Client, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.declared[key]
	if c == nil {
		return nil, false
	}
	c.users++
	return c.client, true
}

func (p *Pool) release(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.declared[key]
	if c == nil { // the pool was closed
		return
	}
	if c.users--; c.users == 0 {
		delete(p.declared, key)
		p.closing.Go(func() { _ = c.client.Close() })
	}
}

// declaredSource lists the tools of a server that a request declared. It and its tools find
// the client when they need it: lists are cached longer than the client and its credentials.
type declaredSource struct {
	pool        *Pool
	key, server string
}

// List implements [tool.Source]. Its errors have no text of the server, which could repeat
// the credentials.
func (s *declaredSource) List(ctx context.Context) ([]tool.Tool, error) {
	client, ok := s.pool.hold(s.key)
	if !ok {
		return nil, errEnded
	}
	defer s.pool.release(s.key)
	tools, err := client.List(ctx)
	var fatal tool.Blocked
	switch {
	case errors.As(err, &fatal):
		return nil, err
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("server %q: %s", s.server, client.Status().Error)
	}
	for i, t := range tools {
		tools[i] = declaredTool{s, t.Definition(), tool.ClassOf(t)}
	}
	return tools, nil
}

// Changes implements [tool.Announcer].
func (s *declaredSource) Changes() uint64 {
	client, ok := s.pool.hold(s.key)
	if !ok {
		return 0
	}
	defer s.pool.release(s.key)
	return client.Changes()
}

// errEnded is the error of a request after the end of the run.
var errEnded = errors.New("the run that declared the server has ended")

// declaredTool is a tool of a declaredSource.
type declaredTool struct {
	source     *declaredSource
	definition tool.Definition
	class      tool.Class
}

// Definition implements [tool.Tool].
func (t declaredTool) Definition() tool.Definition { return t.definition }

// Class implements [tool.Classed].
func (t declaredTool) Class() tool.Class { return t.class }

// Call implements [tool.Tool].
func (t declaredTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	client, ok := t.source.pool.hold(t.source.key)
	if !ok {
		return tool.Result{}, fmt.Errorf("%w: server %q: %w", tool.ErrNotSent, t.source.server, errEnded)
	}
	defer t.source.pool.release(t.source.key)
	return client.Tool(t.definition).Call(ctx, c)
}
