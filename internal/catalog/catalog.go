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
}

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
	sets   map[string]kept
	drops  map[string]int    // how often an org was forgotten: a discovery that began before is not kept
	failed map[string]string // server → the error that was logged
}

type kept struct {
	set   *Set
	until time.Time
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
	return &Catalog{log: o.Log, now: o.Now, base: base, stop: stop, sets: map[string]kept{}, drops: map[string]int{}, failed: map[string]string{}}
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
	set, drops := c.kept(org)
	if set != nil {
		return set, nil
	}
	c.tasks.Add(1)
	done := c.flight.DoChan(org+"\x00"+strconv.Itoa(drops), func() (any, error) {
		begun := c.now()
		set, err := c.discover(c.base, org, servers)
		if err == nil && set.incomplete() {
			ttl = min(ttl, max(retryAfter, 2*c.now().Sub(begun)))
		}
		if err == nil {
			c.keep(org, set, ttl, drops)
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

// Forget drops what is kept of an org: a server of it has changed.
func (c *Catalog) Forget(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sets, org)
	c.drops[org]++
}

func (c *Catalog) kept(org string) (set *Set, drops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.sets[org]; ok && c.now().Before(k.until) {
		set = k.set
	}
	return set, c.drops[org]
}

func (c *Catalog) keep(org string, set *Set, ttl time.Duration, drops int) {
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drops[org] != drops {
		return
	}
	c.sets[org] = kept{set, c.now().Add(ttl)}
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
				return fmt.Errorf("server %s: %w", s.Name, listings[i].err)
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
	for i, l := range listings {
		c.logFailure(org, servers[i].Name, l.err)
	}
	return assemble(servers, listings, c.log.With("org", org)), nil
}

// logFailure says once that a server is down, and once that it is back.
func (c *Catalog) logFailure(org, server string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, text := org+"/"+server, ""
	if err != nil {
		text = err.Error()
	}
	switch before, was := c.failed[key]; {
	case err != nil && (!was || before != text):
		c.failed[key] = text
		c.log.Warn("mcp_server_unavailable", "org", org, "server", server, "error", text)
	case err == nil && was:
		delete(c.failed, key)
		c.log.Info("mcp_server_available", "org", org, "server", server)
	}
}

func (s Server) offers(name string) bool {
	return s.Tools == nil || slices.Contains(s.Tools, name)
}
