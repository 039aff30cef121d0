package app

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// pool keeps one MCP client for each enabled server of each org. A client whose
// server was changed or switched off lives on until the runs that began with it
// must have ended.
type pool struct {
	out     *egress.Egress
	secrets *secret.Resolver
	log     *slog.Logger
	changed func(orgID string) // a server's tools have changed
	linger  time.Duration      // how long a replaced client lives on

	mu      sync.Mutex
	clients map[string]map[string]*pooled // by org and server
	retired map[*mcptool.Client]*time.Timer
	closing sync.WaitGroup
}

type pooled struct {
	server org.MCPServer
	client *mcptool.Client
}

func newPool(out *egress.Egress, secrets *secret.Resolver, log *slog.Logger, changed func(orgID string)) *pool {
	return &pool{
		out: out, secrets: secrets, log: log, changed: changed, linger: 5 * time.Minute,
		clients: map[string]map[string]*pooled{}, retired: map[*mcptool.Client]*time.Timer{},
	}
}

// keep makes the org's clients those of its enabled servers and returns them as
// the catalogue wants them. A server that did not change keeps its client.
func (p *pool) keep(orgID string, servers []org.MCPServer) []catalog.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, now := p.clients[orgID], map[string]*pooled{}
	var out []catalog.Server
	for _, s := range servers {
		if !s.Enabled {
			continue
		}
		c := before[s.Name]
		if c == nil || !sameConnection(c.server, s) {
			c = &pooled{client: p.connect(s)}
		} else {
			delete(before, s.Name)
		}
		c.server = s
		now[s.Name] = c
		out = append(out, catalogServer(s, c.client))
	}
	for _, c := range before {
		p.retire(c.client)
	}
	p.clients[orgID] = now
	return out
}

// sameConnection reports whether a client for a serves b.
func sameConnection(a, b org.MCPServer) bool {
	return a.URL == b.URL && maps.Equal(a.Headers, b.Headers) && a.Timeout == b.Timeout &&
		a.MaxRetries == b.MaxRetries && a.Trust == b.Trust && reflect.DeepEqual(a.Command, b.Command) && maps.Equal(a.Env, b.Env)
}

func catalogServer(s org.MCPServer, source *mcptool.Client) catalog.Server {
	return catalog.Server{
		Name: s.Name, Source: source, Tools: s.Tools, Naming: catalog.Naming(s.Naming), Prefix: s.Prefix,
		Required: s.Required, Polling: s.Polling,
	}
}

func (p *pool) connect(s org.MCPServer) *mcptool.Client {
	retries := s.MaxRetries
	if retries == 0 {
		retries = -1
	}
	return mcptool.New(mcptool.Server{
		Name: s.Name, URL: s.URL, Command: s.Command, Env: p.environment(s), Headers: p.headers(s),
		Timeout: s.Timeout, MaxRetries: retries, Trust: s.Trust,
		OnListChanged: func() { p.changed(s.Org) },
	}, p.out.Guarded(egress.GuardedOptions{}), p.log.With("org", s.Org))
}

// headers returns what looks a server's headers up, just in time.
func (p *pool) headers(s org.MCPServer) func(context.Context) (http.Header, error) {
	if len(s.Headers) == 0 {
		return nil
	}
	return func(ctx context.Context) (http.Header, error) {
		out := make(http.Header, len(s.Headers))
		err := p.resolve(ctx, s.Headers, out.Set)
		return out, err
	}
}

// environment returns what looks the variables of a server's program up.
func (p *pool) environment(s org.MCPServer) func(context.Context) (map[string]string, error) {
	if len(s.Env) == 0 {
		return nil
	}
	return func(ctx context.Context) (map[string]string, error) {
		out := make(map[string]string, len(s.Env))
		err := p.resolve(ctx, s.Env, func(name, value string) { out[name] = value })
		return out, err
	}
}

// resolve looks up what the texts refer to.
func (p *pool) resolve(ctx context.Context, texts map[string]string, set func(name, value string)) error {
	for name, text := range texts {
		reference, err := secret.Parse(text)
		if err != nil {
			return err
		}
		value, err := p.secrets.Resolve(ctx, reference)
		if err != nil {
			return err
		}
		set(name, value.Reveal())
	}
	return nil
}

// retire closes the client after a while. The caller holds mu.
func (p *pool) retire(c *mcptool.Client) {
	p.closing.Add(1)
	p.retired[c] = time.AfterFunc(p.linger, func() {
		defer p.closing.Done()
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.retired, c)
	})
}

func (p *pool) status(orgID, name string) admin.ServerStatus {
	p.mu.Lock()
	c := p.clients[orgID][name]
	p.mu.Unlock()
	if c == nil {
		return admin.ServerStatus{State: string(mcptool.Unknown)}
	}
	s := c.client.Status()
	return admin.ServerStatus{State: string(s.State), Tools: s.Tools, Error: s.Error}
}

// close closes every client.
func (p *pool) close() {
	p.mu.Lock()
	for c, timer := range p.retired {
		if timer.Stop() {
			_ = c.Close()
			p.closing.Done()
		}
	}
	for _, clients := range p.clients {
		for _, c := range clients {
			_ = c.client.Close()
		}
	}
	p.clients = map[string]map[string]*pooled{}
	p.mu.Unlock()
	p.closing.Wait()
}
