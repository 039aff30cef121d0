// Package catalog decides which tools a run sees: it asks every server of an
// org at the same time, drops what is no valid tool, gives names, settles
// collisions and keeps the outcome for a while.
//
//	servers ──List, in parallel──► schema rules ──► names ──► first server wins ──► Set, sorted
//
// A Set never changes. A run keeps the one that it began with.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// retryAfter is how long the absence of a server that failed is remembered, at
// least; one that let everybody wait is remembered for twice as long as it did.
const retryAfter = 5 * time.Second

// Server is a tool source as an org has set it up.
type Server struct {
	Name     string // unique in its org
	Source   tool.Source
	Tools    []string // the names that may be offered; nil = all
	Naming   Naming
	Prefix   string // for Prefixed; empty = from the name
	Required bool   // a run without it fails
	Polling  []string
	Cache    org.Cache

	// Origin says in any words what Source is connected to: another origin is
	// another server, whatever its name, and nothing that the one has answered
	// is used for the other.
	Origin string

	// Revision is another number after every change of the server's settings.
	// What was found with one is not used for another.
	Revision uint64

	// URL is where the server is, for errors and the log; "" for a program.
	URL string
}

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
	log    *slog.Logger
	now    func() time.Time
	flight singleflight.Group
	base   context.Context // of discoveries: they serve whoever comes, not one caller
	stop   context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	kept   map[string]*kept             // by org
	number int                          // of the last kept
	failed map[string]map[string]string // by org and server: the error that was logged
}

// kept is what is known of an org's servers. It is given up when one of them has
// changed: a discovery that began before fills it, and nobody looks at it.
type kept struct {
	number  int
	servers []Server
	set     *Set // nil = nothing
	found   time.Time
	until   time.Time
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
	return &Catalog{log: o.Log, now: o.Now, base: base, stop: stop, kept: map[string]*kept{}, failed: map[string]map[string]string{}}
}

// Close ends discoveries that are under way and waits for them.
func (c *Catalog) Close() {
	c.stop()
	c.tasks.Wait()
}

// For returns the tools of the org's servers, which are in configuration order.
// A set is kept for ttl (0 = ask every time), and asked for again after a few
// seconds while a server is down. A server that fails is left out and stands in
// Set.Servers with its error; only a refusal of the outbound policy
// ([tool.Fatal]) and the end of ctx are errors.
func (c *Catalog) For(ctx context.Context, org string, servers []Server, ttl time.Duration) (*Set, error) {
	known, set := c.known(org, servers, ttl)
	if set != nil {
		return set, nil
	}
	c.tasks.Add(1)
	done := c.flight.DoChan(strconv.Itoa(known.number), func() (any, error) {
		begun := c.now()
		set, err := c.discover(c.base, org, servers)
		if err == nil && set.incomplete() {
			ttl = min(ttl, max(retryAfter, 2*c.now().Sub(begun)))
		}
		if err == nil {
			c.keep(known, set, ttl)
		}
		return set, err
	})
	result := make(chan singleflight.Result, 1)
	go func() {
		defer c.tasks.Done()
		result <- <-done
	}()
	select {
	case r := <-result:
		set, _ := r.Val.(*Set)
		return set, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Forget drops what is kept of an org: a server of it has other tools.
func (c *Catalog) Forget(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, org)
}

// Remove drops everything about an org that is gone.
func (c *Catalog) Remove(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, org)
	delete(c.failed, org)
}

// known returns what is kept of the org with these servers, and its set if there
// is one that is young enough. A request that began before a change comes with
// the servers of then: what it finds is not for those that come after it.
func (c *Catalog) known(org string, servers []Server, ttl time.Duration) (*kept, *Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kept[org]
	if k == nil || !slices.EqualFunc(k.servers, servers, func(a, b Server) bool { return a.Name == b.Name && a.Revision == b.Revision }) {
		c.number++
		k = &kept{number: c.number, servers: servers}
		c.kept[org] = k
	}
	if now := c.now(); k.set == nil || !now.Before(k.until) || !now.Before(k.found.Add(ttl)) { // the ttl may have changed
		return k, nil
	}
	return k, k.set
}

func (c *Catalog) keep(k *kept, set *Set, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.set, k.found, k.until = set, c.now(), c.now().Add(ttl)
}

// listing is one server's answer.
type listing struct {
	tools []tool.Tool
	err   error
}

func (c *Catalog) discover(ctx context.Context, org string, servers []Server) (*Set, error) {
	listings := make([]listing, len(servers))
	group, listing := errgroup.WithContext(ctx)
	for i, s := range servers {
		group.Go(func() error {
			listings[i].tools, listings[i].err = s.Source.List(listing)
			var fatal tool.Fatal
			if errors.As(listings[i].err, &fatal) { // ends the run: the others are not waited for
				return &ServerError{s.Name, listings[i].err}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.logFailures(org, servers, listings)
	return assemble(servers, listings, c.log.With("org", org)), nil
}

// logFailures says once that a server is down, and once that it is back.
// Servers that the org has no longer are forgotten.
func (c *Catalog) logFailures(org string, servers []Server, listings []listing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, now := c.failed[org], map[string]string{}
	for i, l := range listings {
		server := servers[i].Name
		text, was := before[server]
		switch {
		case l.err != nil && (!was || text != l.err.Error()):
			now[server] = l.err.Error()
			c.log.Warn("mcp_server_unavailable", "org", org, "server", server, "error", now[server])
		case l.err != nil:
			now[server] = text
		case was:
			c.log.Info("mcp_server_available", "org", org, "server", server)
		}
	}
	if c.failed[org] = now; len(now) == 0 {
		delete(c.failed, org)
	}
}

func (s Server) offers(name string) bool {
	return s.Tools == nil || slices.Contains(s.Tools, name)
}
