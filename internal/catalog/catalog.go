// Package catalog decides which tools a run sees.
//
// It asks every MCP server by itself and keeps its list by itself. A run brings a list of
// servers; the catalogue puts together the tools of exactly these servers.
//
//	            one entry per (org, server, credentials)               per list of servers
//
//	server a ──► List ──► examine: schema, name, texts ──► listing a ─┐
//	server b ──► List ──► examine ───────────────────────► listing b ─┼─► names, first server wins, bounds, sort ──► Set
//	server c ──► List ──► examine ───────────────────────► listing c ─┘
//
// The servers that are missing or expired are asked in parallel. Runs that wait for the
// same server share one List. Lists expire by themselves: a server that fails, changes or
// says that its tools have changed ([Catalog.Invalidate]) is asked again, and the others are
// not. So is a server that a call could not reach ([Catalog.Unreachable]).
//
// A Set never changes. A run keeps the Set with which it began. Only calls that a person has
// approved are compared with a later one ([Catalog.Renew]).
package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Server is a tool source with its settings.
type Server struct {
	Name     string // unique among the servers of a run
	Source   tool.Source
	Tools    []string // the names that may be offered; nil = all
	Only     []string // globs over the names that the key of the run may use; nil = all. Other tools do not exist for the run
	Reads    bool     // the key of the run may use only tools of class read. Other tools do not exist for the run
	Naming   Naming
	Prefix   string // for Prefixed; empty = from the name
	Required bool   // a run without it fails
	Polling  []string
	Cache    org.Cache

	// Price is what an execution of a tool costs, and Prices what one of these tools costs
	// instead; nil = nobody has said.
	Price  *money.Nano
	Prices map[string]money.Nano

	// Forms says that the server offers tools in their forms: see [Form]. Then a tool that has forms is not offered itself.
	// Its calls are executed all the same.
	Forms bool

	// MaxUses is how often a run may call tools of these names; nil = as often as it likes.
	MaxUses map[string]int

	// ListWithin bounds how long the server may take to list its tools, beside what Source does
	// itself; 0 = no more than that. All servers of a run are asked at the same moment, so one
	// value on several servers bounds them together.
	ListWithin time.Duration

	// Named are the settings of an org's server that name tools, for the log: a name that
	// the server has no tool for is probably misspelt.
	Named []org.ToolList

	// Hosted has the server's own names of the tools that answer hosted tools of requests, by
	// the type of the hosted tool, such as web_search; nil = none.
	Hosted map[string]string

	// HostedToo has further tools whose calls are calls of the hosted tool of a type, such as the one that reads the
	// pages that a search has found; nil = none.
	HostedToo map[string]string

	// HostedOptions reads what a request says of the hosted tool of a type, a JSON object, and returns it as the tool
	// gets it with each call: see [tool.Call].Options. An error of the type [OptionError] names what the tool cannot
	// honour. nil = the tools of the server get no options.
	HostedOptions func(kind string, options json.RawMessage) (json.RawMessage, error)

	// GivesFiles reports whether the tool that answers the hosted tool of a type gets the files of the conversation; nil = none
	// does.
	GivesFiles func(kind string) bool

	// Approval says which calls wait for approval, by the settings of the server, and
	// ApprovalTimeout how long; 0 = the default. Trust says that annotations are believed.
	Approval        policy.Approval
	ApprovalTimeout time.Duration
	Trust           bool

	// ReadOnly leaves only the tools whose annotations say that they only read, if it is
	// true, and only the others, if it is false; nil = all.
	ReadOnly *bool

	// Shown says that the caller sees the tools and the calls of the server.
	Shown bool

	// FromRequest says that a request or an agent brought the server, for its own runs. The
	// zero value is a server of the org, of which there is one per name.
	//
	// Servers of requests with the same Name, URL, Origin and Revision share one list of
	// tools, and calls go to the Source that was asked for it. Such servers must have the
	// same Source, or sources that do the same. The list of a brought server without an
	// Origin is not cached.
	FromRequest bool

	// Origin identifies what Source is connected to, including its credentials, in any
	// form that has no secrets. Servers with different origins are different servers,
	// also under the same name: results of one are not used for the other.
	Origin string

	// Revision increases with every change of the server's settings. Tools that were
	// found with one revision are not used for another.
	Revision uint64

	// URL is where the server is, for errors and the log; "" for a program.
	URL string

	// Place is what approvals of the server's calls are bound to, and Places that of single tools, by the server's
	// own names.
	Place  Place
	Places map[string]Place
}

// Place is where calls of a tool go.
type Place struct {
	ID   string // identifies the server by its creation and its URL or command: approvals hold for no other; "" = it is the gateway itself
	Host string // for the person who decides; "" = none, such as of a program
}

// PlaceOf returns the place of a server with a URL or a command, which was created at a time: the zero time for one
// of the configuration file.
func PlaceOf(created time.Time, address string, command ...string) Place {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = u.Host
	}
	at := int64(0)
	if !created.IsZero() {
		at = created.UnixMilli()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q", at, address, command))
	return Place{hex.EncodeToString(sum[:16]), host}
}

// placeOf returns the place of a tool.
func (s Server) placeOf(name string) Place {
	if place, ok := s.Places[name]; ok {
		return place
	}
	return s.Place
}

// priceOf returns what an execution of the tool costs; nil = nobody has said.
func (s Server) priceOf(name string) *money.Nano {
	if price, ok := s.Prices[name]; ok {
		return &price
	}
	return s.Price
}

func (s Server) offers(d tool.Definition) bool {
	reads := d.Annotations.ReadOnly != nil && *d.Annotations.ReadOnly
	return (s.Tools == nil || slices.Contains(s.Tools, d.Name)) && (s.ReadOnly == nil || *s.ReadOnly == reads)
}

// exists reports whether the key of the run may use the tool.
func (s Server) exists(u usable) bool {
	return org.Access{Tools: s.Only}.AllowsTool(u.definition.Name) && (!s.Reads || tool.ClassOf(u.tool) == tool.Read)
}

// Within returns those of the servers of an org that a key may use, with the tools that it may
// use of them.
func Within(servers []Server, a org.Access) []Server {
	if a.IsFull() {
		return servers
	}
	out := make([]Server, 0, len(servers))
	for _, s := range servers {
		if a.AllowsServer(s.Name) {
			s.Only, s.Reads = a.Tools, a.ReadOnly
			out = append(out, s)
		}
	}
	return out
}

// OptionError says which option of a hosted tool cannot be honoured.
type OptionError struct {
	Member string // such as filters.allowed_domains; "" = the options as a whole
	Reason string
}

func (e *OptionError) Error() string { return strings.TrimPrefix(e.Member+": "+e.Reason, ": ") }

// ServerError says which server's failure ends a run.
type ServerError struct {
	Server string
	Err    error
}

func (e *ServerError) Error() string { return fmt.Sprintf("server %s: %v", e.Server, e.Err) }

// Unwrap returns the failure.
func (e *ServerError) Unwrap() error { return e.Err }

// Options configure a Catalog. The zero value is useful.
type Options struct {
	Log *slog.Logger     // nil = discard
	Now func() time.Time // nil = time.Now
}

// Catalog finds and keeps the tools of orgs. It is safe for concurrent use.
type Catalog struct {
	log   *slog.Logger
	now   func() time.Time
	base  context.Context // of lists, which do not end with one caller
	stop  context.CancelFunc
	tasks sync.WaitGroup

	listed atomic.Uint64 // the number of the last listing

	mu    sync.Mutex
	orgs  map[string]*orgCache
	swept time.Time // when sweep last looked for unused entries
}

// New returns an empty Catalog. Close it.
func New(o Options) *Catalog {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	base, stop := context.WithCancel(context.Background())
	return &Catalog{log: o.Log, now: o.Now, base: base, stop: stop, orgs: map[string]*orgCache{}}
}

// Close cancels lists in progress and waits for them.
func (c *Catalog) Close() {
	c.stop()
	c.tasks.Wait()
}

// For returns the tools of exactly these servers, in whose order names and bounds are
// decided. What a server lists is cached for ttl (0 = not at all), and its failure for a
// few seconds. A server that fails is left out, and Set.Servers has its error. For itself
// returns an error only if the outbound policy refuses a server ([tool.Blocked]), ctx ends
// or the Catalog is closed.
func (c *Catalog) For(ctx context.Context, org string, servers []Server, ttl time.Duration) (*Set, error) {
	return c.find(ctx, org, servers, nil, ttl)
}

// maxRenewals is how often Renew asks a server that announces changes while it lists its tools.
const maxRenewals = 3

// Renew returns the tools of the same servers as For does. It keeps the lists of old, which may
// be older than ttl, except those of servers that have announced a change since: what it uses of
// these was requested after the last announcement.
func (c *Catalog) Renew(ctx context.Context, org string, servers []Server, old *Set, ttl time.Duration) (*Set, error) {
	for n := 1; ; n++ {
		set, err := c.find(ctx, org, servers, old, ttl)
		if err != nil || n == maxRenewals || !set.Outdated() {
			return set, err
		}
		old = set
	}
}

// find is For; old is that of Renew, or nil.
func (c *Catalog) find(ctx context.Context, org string, servers []Server, old *Set, ttl time.Duration) (*Set, error) {
	cache, lists := c.of(org), make([]*listing, len(servers))
	waits, set := c.take(cache, servers, lists, old, ttl)
	if set != nil {
		return set, nil
	}
	c.sweep()
	group, waiting := errgroup.WithContext(ctx) // a refusal ends the run: the others are not waited for
	for i, p := range waits {
		if p == nil {
			continue
		}
		group.Go(func() error {
			select {
			case <-p.done:
				lists[i] = p.list
				return p.err
			case <-waiting.Done():
				return waiting.Err()
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	return cache.set(servers, lists), nil
}

// take fills lists with what is known of the servers, and starts to ask the others. It
// returns what to wait for, by server, or the set if all servers are known.
//
// It takes the lists of old that are not out of date; then it takes no cached list that is.
func (c *Catalog) take(k *orgCache, servers []Server, lists []*listing, old *Set, ttl time.Duration) (waits []*pending, set *Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := c.now()
	for i, server := range servers {
		if lists[i] = old.current(server.Name); lists[i] != nil {
			continue
		}
		e := k.entry(server, now, ttl)
		if old != nil && e.outdated() && k.entries[server.key()] == e {
			e = k.replace(server.key(), e, e.revision)
		}
		if lists[i] = e.fresh(now, ttl); lists[i] != nil {
			continue
		}
		if waits == nil {
			waits = make([]*pending, len(servers))
		}
		waits[i] = c.ask(k, e, server, ttl)
	}
	if waits != nil {
		k.dropBrought()
		return waits, nil
	}
	return nil, k.set(servers, lists)
}

// ask starts to list the server's tools, unless that is in progress. It is called with
// k.mu held.
func (c *Catalog) ask(k *orgCache, e *entry, server Server, ttl time.Duration) *pending {
	if e.pending != nil {
		return e.pending
	}
	p := &pending{requested: requestOf(server.Source), done: make(chan struct{})}
	e.pending = p
	c.tasks.Go(func() {
		defer close(p.done)
		begun := c.now()
		p.list, p.err = c.list(server, k.log)
		if p.list != nil {
			p.list.requested = p.requested
		}
		k.finish(e, server.Name, p, c.now(), c.now().Sub(begun), ttl)
	})
	return p
}

// list asks the server. A failure of the server is part of the listing.
func (c *Catalog) list(server Server, log *slog.Logger) (*listing, error) {
	ctx, cancel := c.base, func() {}
	if server.ListWithin > 0 {
		ctx, cancel = context.WithTimeout(c.base, server.ListWithin)
	}
	defer cancel()
	tools, err := server.Source.List(ctx)
	if c.base.Err() != nil {
		return nil, c.base.Err()
	}
	var fatal tool.Blocked
	switch {
	case errors.As(err, &fatal):
		return nil, &ServerError{server.Name, err}
	case err != nil && ctx.Err() != nil:
		return &listing{err: fmt.Errorf("it did not list its tools within %s: %w", server.ListWithin, err)}, nil
	case err != nil:
		return &listing{err: err}, nil
	}
	l := examineAll(server, tools, log.With("server", server.Name))
	l.number = c.listed.Add(1)
	return l, nil
}

// Invalidate removes what is cached of the org's servers of that name, because they have
// other tools now. Other servers are not asked again. A list that began before is not
// used for requests that begin afterwards.
func (c *Catalog) Invalidate(org, server string) {
	c.mu.Lock()
	k := c.orgs[org]
	c.mu.Unlock()
	if k != nil {
		k.forget(server)
	}
}

// Unreachable says that a server could not be reached: the org's, or with an origin the brought
// one (Server.Origin). Its tools are forgotten, so that the next request asks it again, and the
// log says once that it is down.
func (c *Catalog) Unreachable(org, server, origin string, err error) {
	c.mu.Lock()
	k := c.orgs[org]
	c.mu.Unlock()
	if k != nil {
		k.unreachable(server, origin, err)
	}
}

// Remove removes everything about an org that was deleted.
func (c *Catalog) Remove(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.orgs, org)
}

// of returns the cache of the org.
func (c *Catalog) of(org string) *orgCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.orgs[org]
	if k == nil {
		k = &orgCache{log: c.log.With("org", org), entries: map[key]*entry{}}
		c.orgs[org] = k
	}
	return k
}

// sweep drops entries that nobody uses, of all orgs, at most once in sweepEvery.
func (c *Catalog) sweep() {
	now := c.now()
	c.mu.Lock()
	if now.Sub(c.swept) < sweepEvery {
		c.mu.Unlock()
		return
	}
	c.swept = now
	orgs := maps.Clone(c.orgs)
	c.mu.Unlock()
	for name, k := range orgs {
		if k.sweep(now) {
			continue
		}
		c.mu.Lock()
		if c.orgs[name] == k {
			delete(c.orgs, name)
		}
		c.mu.Unlock()
	}
}
