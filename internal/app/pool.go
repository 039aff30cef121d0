package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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
	vaults  vaults
	log     *slog.Logger
	changed func(orgID string) // a server's tools have changed
	linger  time.Duration      // how long a replaced client lives on

	mu      sync.Mutex
	clients map[string]map[string]*pooled // by org and server
	retired map[*mcptool.Client]*time.Timer
	closing sync.WaitGroup
}

type pooled struct {
	server     org.MCPServer
	client     *mcptool.Client
	unresolved atomic.Pointer[string] // what the last look into the vault lacked; nil = nothing
}

func newPool(out *egress.Egress, secrets *secret.Resolver, vaults vaults, log *slog.Logger, changed func(orgID string)) *pool {
	return &pool{
		out: out, secrets: secrets, vaults: vaults, log: log, changed: changed, linger: 5 * time.Minute,
		clients: map[string]map[string]*pooled{}, retired: map[*mcptool.Client]*time.Timer{},
	}
}

// keep makes the org's clients those of its enabled servers and returns them as
// the catalogue wants them. A server that did not change keeps its client. The
// secrets are those of the org's vault.
func (p *pool) keep(ctx context.Context, orgID string, servers []org.MCPServer, secrets []org.Secret) []catalog.Server {
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
			c = p.connect(s)
		} else {
			delete(before, s.Name)
		}
		c.server = s
		now[s.Name] = c
		out = append(out, catalogServer(s, c.client, p.origin(ctx, s, secrets)))
	}
	for _, c := range before {
		p.retire(c.client)
	}
	p.clients[orgID] = now
	return out
}

// drop retires the clients of the org's servers that refer to the secret.
func (p *pool) drop(orgID string, ref secret.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, c := range p.clients[orgID] {
		if refersTo(c.server.Headers, ref) || refersTo(c.server.Env, ref) {
			delete(p.clients[orgID], name)
			p.retire(c.client)
		}
	}
}

func refersTo(texts map[string]string, ref secret.Ref) bool {
	for _, text := range texts {
		if t, err := secret.Parse(text); err == nil && t.Ref() == ref {
			return true
		}
	}
	return false
}

// sameConnection reports whether a client for a serves b.
func sameConnection(a, b org.MCPServer) bool {
	return a.URL == b.URL && maps.Equal(a.Headers, b.Headers) && a.Timeout == b.Timeout &&
		a.MaxRetries == b.MaxRetries && a.Trust == b.Trust && slices.Equal(a.Command, b.Command) && maps.Equal(a.Env, b.Env) &&
		slices.Equal(a.Reads, b.Reads) && slices.Equal(a.Keyed, b.Keyed) && a.Concurrency == b.Concurrency
}

func catalogServer(s org.MCPServer, source *mcptool.Client, origin string) catalog.Server {
	return catalog.Server{
		Name: s.Name, Source: source, Tools: s.Tools, Naming: catalog.Naming(s.Naming), Prefix: s.Prefix,
		Required: s.Required, Polling: s.Polling, Cache: s.Cache, Origin: origin,
	}
}

func (p *pool) connect(s org.MCPServer) *pooled {
	retries := s.MaxRetries
	if retries == 0 {
		retries = -1
	}
	c := &pooled{server: s}
	c.client = mcptool.New(mcptool.Server{
		Name: s.Name, URL: s.URL, Command: s.Command, Env: p.environment(c), Headers: p.headers(c),
		Timeout: s.Timeout, MaxRetries: retries, Trust: s.Trust,
		Reads: s.Reads, Keyed: s.Keyed, MaxConcurrent: s.Concurrency,
		OnListChanged: func() { p.changed(s.Org) },
	}, p.out.Guarded(egress.GuardedOptions{}), p.log.With("org", s.Org))
	return c
}

// headers returns what looks a server's headers up, just in time.
func (p *pool) headers(c *pooled) func(context.Context) (http.Header, error) {
	if len(c.server.Headers) == 0 {
		return nil
	}
	orgID, texts := c.server.Org, c.server.Headers
	return func(ctx context.Context) (http.Header, error) {
		out := make(http.Header, len(texts))
		err := p.resolve(ctx, orgID, texts, out.Set)
		c.note(err)
		return out, err
	}
}

// environment returns what looks the variables of a server's program up.
func (p *pool) environment(c *pooled) func(context.Context) (map[string]string, error) {
	if len(c.server.Env) == 0 {
		return nil
	}
	orgID, texts := c.server.Org, c.server.Env
	return func(ctx context.Context) (map[string]string, error) {
		out := make(map[string]string, len(texts))
		err := p.resolve(ctx, orgID, texts, func(name, value string) { out[name] = value })
		c.note(err)
		return out, err
	}
}

// note remembers what the vault lacked, for the status. Other references are the
// operator's own: an org is not told about them.
func (c *pooled) note(err error) {
	var missing *vaultError
	if errors.As(err, &missing) || errors.Is(err, secret.ErrNoVault) {
		text := err.Error()
		c.unresolved.Store(&text)
		return
	}
	c.unresolved.Store(nil)
}

// resolve looks up what the texts of an org's server refer to.
func (p *pool) resolve(ctx context.Context, orgID string, texts map[string]string, set func(name, value string)) error {
	secrets := p.secrets.With(p.vaults.of(orgID))
	for name, text := range texts {
		reference, err := secret.Parse(text)
		if err != nil {
			return err
		}
		value, err := secrets.Resolve(ctx, reference)
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
	if missing := c.unresolved.Load(); missing != nil && s.State == mcptool.Failed {
		s.Error = *missing
	}
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
