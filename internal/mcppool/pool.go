// Package mcppool keeps the MCP clients of all orgs: one for each enabled server of each
// org, made when a server appears or changes, and closed some time after it is gone. It also keeps
// the HTTP tools of orgs, whose headers are looked up in the same way.
package mcppool

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Pool keeps one MCP client for each enabled server of each org. A client whose
// server was changed or switched off is retired: it serves the runs that began with
// it, for linger, and holds a connection or a process only while one of their calls
// is under way. An org has at most MaxRetired of them; one more closes the oldest,
// and its calls under way fail.
type Pool struct {
	options Options
	key     [32]byte // of the digests that identify declared servers

	mu        sync.Mutex
	revisions uint64                        // the last one given out
	clients   map[string]map[string]*pooled // by org and server
	retired   map[string][]*retired         // by org, the oldest first
	http      map[string]*endpoints         // by org
	declared  map[string]*declared          // by what Dial returns as origin
	closing   sync.WaitGroup
}

// linger is how long a replaced client lives on.
const linger = 5 * time.Minute

// MaxRetired is how many replaced clients an org has at most.
const MaxRetired = 16

// retired is a replaced client, which its timer closes.
type retired struct {
	client *mcptool.Client
	timer  *time.Timer
}

type pooled struct {
	server     org.MCPServer
	refused    error // why the server is not used, though it is stored; nil = it is used
	client     *mcptool.Client
	shown      catalog.Server         // to the catalogue, last
	unresolved atomic.Pointer[string] // what the last look into the vault lacked; nil = nothing
}

// Options are what a pool needs. All fields but Changed, Unreachable, Tracer and Living are required.
type Options struct {
	Out     *egress.Egress
	Secrets *secret.Resolver // of what the configuration file refers to
	Vaults  Vaults
	Refused func(org.MCPServer) error // why a server is not used; nil = it is used
	Log     *slog.Logger

	Changed func(orgID, server string) // is called when the server's tools have changed; nil = not called
	// Unreachable is called when a server could not be reached; nil = not called. The origin
	// is that of a server that a request declares, see [Pool.Dial]; "" = a server of the org.
	Unreachable func(orgID, server, origin string, err error)

	Tracer mcptool.Tracer // nil = calls carry no trace context

	// Living returns the number of living replicas of the gateway, which share the calls that may be made at a
	// time. Nil = there is one.
	Living func() int
}

// New returns a pool without clients. Close it.
func New(o Options) *Pool {
	if o.Changed == nil {
		o.Changed = func(_, _ string) {}
	}
	if o.Unreachable == nil {
		o.Unreachable = func(_, _, _ string, _ error) {}
	}
	p := &Pool{options: o, clients: map[string]map[string]*pooled{}, retired: map[string][]*retired{}, http: map[string]*endpoints{}, declared: map[string]*declared{}}
	_, _ = rand.Read(p.key[:]) // never returns an error: it ends the process instead
	return p
}

// Keep makes the org's clients those of its enabled servers and returns them as
// the catalogue wants them. A server that did not change keeps its client. The
// secrets are those of the org's vault. Of two servers with one name the first is
// used, which the file declares.
func (p *Pool) Keep(ctx context.Context, orgID string, servers []org.MCPServer, secrets []org.Secret) []catalog.Server {
	refused := p.refusals(orgID, servers)
	origins := make([]string, len(servers))
	for i, s := range servers {
		origins[i] = p.origin(ctx, s, secrets) // may read files: before the lock, which all orgs share
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before, now := p.clients[orgID], map[string]*pooled{}
	var out []catalog.Server
	for i, s := range servers {
		if !s.Enabled || now[s.Name] != nil {
			continue
		}
		c := before[s.Name]
		if c == nil || !sameConnection(c.server, s) || (c.refused == nil) != (refused[i] == nil) {
			c = p.connect(s, refused[i], p.options.Living)
		} else {
			delete(before, s.Name)
		}
		c.server = s
		now[s.Name] = c
		out = append(out, p.revised(c, catalogServer(s, c.client, origins[i])))
	}
	for _, c := range before {
		p.retire(orgID, c.client)
	}
	p.clients[orgID] = now
	if len(now) == 0 {
		delete(p.clients, orgID)
	}
	return out
}

// refusals returns for each server why it is not used. To judge one takes long
// for a lock that all orgs share, so it is done before, and once.
func (p *Pool) refusals(orgID string, servers []org.MCPServer) []error {
	refused := make([]error, len(servers))
	var judge []int
	p.mu.Lock()
	for i, s := range servers {
		if c := p.clients[orgID][s.Name]; c != nil && reflect.DeepEqual(c.server, s) {
			refused[i] = c.refused
		} else if s.Enabled {
			judge = append(judge, i)
		}
	}
	p.mu.Unlock()
	for _, i := range judge {
		refused[i] = p.options.Refused(servers[i])
	}
	return refused
}

// Drop retires the clients of the org's servers that refer to the secret.
func (p *Pool) Drop(orgID string, ref secret.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, c := range p.clients[orgID] {
		if refersTo(c.server.Headers, ref) || refersTo(c.server.Env, ref) {
			delete(p.clients[orgID], name)
			p.retire(orgID, c.client)
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
	return a.URL == b.URL && a.FromFile == b.FromFile && maps.Equal(a.Headers, b.Headers) && a.Timeout == b.Timeout &&
		a.MaxRetries == b.MaxRetries && a.Trust == b.Trust && slices.Equal(a.Command, b.Command) && maps.Equal(a.Env, b.Env) &&
		slices.Equal(a.Reads, b.Reads) && slices.Equal(a.Keyed, b.Keyed) && a.MaxConcurrentCalls == b.MaxConcurrentCalls
}

func catalogServer(s org.MCPServer, source *mcptool.Client, origin string) catalog.Server {
	return catalog.Server{
		Name: s.Name, Source: source, Tools: s.Tools, Naming: catalog.Naming(s.Naming), Prefix: s.Prefix,
		Required: s.Required, Polling: s.Polling, Cache: s.Cache, Hosted: s.HostedTools(), Named: s.ToolLists(), Origin: origin, URL: s.URL, Place: catalog.PlaceOf(s.CreatedAt, s.URL, s.Command...),
		Approval: ApprovalRule(s.RequireApproval), ApprovalTimeout: s.ApprovalTimeout, Trust: s.Trust,
		Price: priceOf(s), Prices: pricesOf(s),
	}
}

// priceOf returns what an execution of the server's tools costs; nil = nobody has said.
func priceOf(s org.MCPServer) *money.Nano {
	if s.Price == nil {
		return nil
	}
	price := money.Nano(*s.Price)
	return &price
}

func pricesOf(s org.MCPServer) map[string]money.Nano {
	var out map[string]money.Nano
	for name, price := range s.ToolPrices {
		if out == nil {
			out = map[string]money.Nano{}
		}
		out[name] = money.Nano(price)
	}
	return out
}

// ApprovalRule returns the rule of a server's settings. Tools that its maps do not select need
// no approval, unless it says which tools never do.
func ApprovalRule(a org.Approval) policy.Approval {
	switch a.Mode {
	case org.ApproveWrites:
		reads := true
		return policy.Approval{Never: &policy.Tools{ReadOnly: &reads}, Rest: true}
	case org.ApproveRules:
	default:
		return policy.Approval{Rest: a.Mode == org.ApproveAll}
	}
	selected := func(f *org.ToolFilter) *policy.Tools {
		if f == nil {
			return nil
		}
		return &policy.Tools{Names: f.ToolNames, ReadOnly: f.ReadOnly}
	}
	return policy.Approval{Always: selected(a.Always), Never: selected(a.Never), Rest: a.Never != nil}
}

// revised gives the server another revision if anything of it has changed since
// it was last kept. It is called with mu held.
func (p *Pool) revised(c *pooled, s catalog.Server) catalog.Server {
	s.Revision = c.shown.Revision
	if !reflect.DeepEqual(s, c.shown) {
		p.revisions++
		s.Revision = p.revisions
		c.shown = s
	}
	return s
}

// Connect returns a client of the server that is not part of the pool. Close it.
func (p *Pool) Connect(s org.MCPServer) *mcptool.Client {
	return p.connect(s, p.options.Refused(s), nil).client
}

// OwnListTimeout is how long a run waits for the lists of its own servers, all of them together.
const OwnListTimeout = 30 * time.Second

// Own returns the server as one of a single run, with a client of its own: its tools are listed when the run
// begins, within [OwnListTimeout]. The caller must call release when the run has ended.
func (p *Pool) Own(s org.MCPServer) (server catalog.Server, release func()) {
	client := p.Connect(s)
	server = catalogServer(s, client, "")
	server.FromRequest, server.ListWithin = true, OwnListTimeout
	return server, func() { _ = client.Close() } // a session that was not ended ends by itself
}

func (p *Pool) connect(s org.MCPServer, refused error, living func() int) *pooled {
	retries := s.MaxRetries
	if retries == 0 {
		retries = -1
	}
	c := &pooled{server: s, refused: refused}
	if c.refused != nil {
		p.options.Log.Error("a stored MCP server is not used", "org", s.Org, "server", s.Name, "error", c.refused)
	}
	c.client = mcptool.New(mcptool.Server{
		Name: s.Name, URL: s.URL, Command: s.Command, Env: p.environment(c), Headers: p.headers(c),
		Timeout: s.Timeout, MaxRetries: retries, Trust: s.Trust,
		Reads: s.Reads, Keyed: s.Keyed, MaxConcurrent: s.MaxConcurrentCalls, Living: living,
		OnListChanged: func() { p.options.Changed(s.Org, s.Name) },
		OnUnreachable: func(err error) { p.options.Unreachable(s.Org, s.Name, "", err) }, Tracer: p.options.Tracer,
	}, p.options.Out.Guarded(egress.GuardedOptions{}), p.options.Log.With("org", s.Org))
	return c
}

// headers returns what looks a server's headers up, just in time. For a server
// that is refused it fails, before anything is sent.
func (p *Pool) headers(c *pooled) func(context.Context) (http.Header, error) {
	if c.refused != nil {
		return func(context.Context) (http.Header, error) {
			c.note(c.refused)
			return nil, c.refused
		}
	}
	s := c.server
	if len(s.Headers) == 0 {
		return nil
	}
	return func(ctx context.Context) (http.Header, error) {
		out := make(http.Header, len(s.Headers))
		err := p.resolve(ctx, s, s.Headers, out.Set)
		c.note(err)
		return out, err
	}
}

// environment returns what looks the variables of a server's program up.
func (p *Pool) environment(c *pooled) func(context.Context) (map[string]string, error) {
	s := c.server
	if len(s.Env) == 0 {
		return nil
	}
	return func(ctx context.Context) (map[string]string, error) {
		out := make(map[string]string, len(s.Env))
		err := p.resolve(ctx, s, s.Env, func(name, value string) { out[name] = value })
		c.note(err)
		return out, err
	}
}

// note remembers what the vault lacked, and why a stored server is refused, for
// the status. Other references are the operator's own: an org is not told about
// them.
func (c *pooled) note(err error) {
	var missing *vaultError
	if errors.As(err, &missing) || errors.Is(err, secret.ErrNoVault) || err != nil && errors.Is(err, c.refused) {
		text := err.Error()
		c.unresolved.Store(&text)
		return
	}
	c.unresolved.Store(nil)
}

// resolver returns what looks up the references of a server: all of them for
// one that the file declares, and only those to the org's vault for one that is
// stored. Who can write the store must not be able to read the gateway's
// variables and files.
func (p *Pool) resolver(s org.MCPServer) *secret.Resolver {
	if s.FromFile {
		return p.options.Secrets.WithVault(p.options.Vaults.of(s.Org))
	}
	return secret.VaultOnly(p.options.Vaults.of(s.Org))
}

// resolve looks up what the texts of a server refer to.
func (p *Pool) resolve(ctx context.Context, s org.MCPServer, texts map[string]string, set func(name, value string)) error {
	secrets := p.resolver(s)
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
func (p *Pool) retire(orgID string, c *mcptool.Client) {
	c.Retire()
	r := &retired{client: c}
	r.timer = time.AfterFunc(linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end(orgID, r)
	})
	p.retired[orgID] = append(p.retired[orgID], r)
	if all := p.retired[orgID]; len(all) > MaxRetired {
		p.end(orgID, all[0])
	}
}

// end closes a retired client in the background, unless that has been done. The
// caller holds mu.
func (p *Pool) end(orgID string, r *retired) {
	i := slices.Index(p.retired[orgID], r)
	if i < 0 {
		return
	}
	r.timer.Stop()
	p.retired[orgID] = slices.Delete(p.retired[orgID], i, i+1)
	if len(p.retired[orgID]) == 0 {
		delete(p.retired, orgID)
	}
	p.closing.Go(r.client.Kill)
}

// Status returns the state of a server, and what its client has found last.
func (p *Pool) Status(orgID, name string) org.ServerStatus {
	p.mu.Lock()
	c := p.clients[orgID][name]
	var server org.MCPServer
	if c != nil {
		server = c.server
	}
	p.mu.Unlock()
	if c == nil {
		return org.ServerStatus{State: string(mcptool.Unknown)}
	}
	s := c.client.Status()
	if missing := c.unresolved.Load(); missing != nil && s.State == mcptool.Failed {
		s.Error = *missing
	}
	status := org.ServerStatus{State: string(s.State), Tools: s.Tools, Error: s.Error}
	if s.Names != nil {
		has := func(name string) bool { return slices.Contains(s.Names, name) }
		status.UnmatchedApprovals = ApprovalRule(server.RequireApproval).Unmatched(has)
		status.UnmatchedTools = org.Unmatched(server.ToolLists(), has)
	}
	return status
}

// Tools returns the names of the tools that a server has listed; false if it has not listed them.
func (p *Pool) Tools(orgID, name string) (names []string, known bool) {
	p.mu.Lock()
	c, e := p.clients[orgID][name], p.http[orgID]
	p.mu.Unlock()
	switch {
	case name == org.HTTPTools && e != nil:
		return e.names, true
	case c == nil:
		return nil, false
	}
	names = c.client.Status().Names
	return names, names != nil
}

// Used calls yield for each server that was asked for its tools, or called, with whether it
// could be used. yield must not use the Pool.
func (p *Pool) Used(yield func(orgID, server string, up bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for orgID, clients := range p.clients {
		for name, c := range clients {
			if state := c.client.Status().State; state != mcptool.Unknown {
				yield(orgID, name, state == mcptool.Connected)
			}
		}
	}
}

// Close closes all clients at the same time: a server may take seconds to end.
func (p *Pool) Close() {
	p.mu.Lock()
	for orgID, all := range p.retired {
		for _, r := range slices.Clone(all) {
			p.end(orgID, r)
		}
	}
	for _, clients := range p.clients {
		for _, c := range clients {
			p.closing.Go(func() { _ = c.client.Close() })
		}
	}
	p.clients = map[string]map[string]*pooled{}
	for _, c := range p.declared {
		p.closing.Go(func() { _ = c.client.Close() })
	}
	p.declared = map[string]*declared{}
	p.mu.Unlock()
	p.closing.Wait()
}
