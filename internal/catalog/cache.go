package catalog

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

const (
	// retryAfter is the shortest time for which a failure of a server is cached. If the
	// failed attempt took long, it is cached for twice that long.
	retryAfter = 5 * time.Second

	// keepUnused is how long an entry stays that no run uses, if the ttl is not longer.
	keepUnused = 10 * time.Minute

	// sweepEvery is how often entries that no run uses are looked for.
	sweepEvery = time.Minute

	// MaxFromRequest is how many servers that requests brought an org keeps. The least
	// recently used are dropped.
	MaxFromRequest = 64

	// MaxFromRequestBytes is how many bytes of names, titles, descriptions and schemas an org
	// keeps of the tools of these servers.
	MaxFromRequestBytes = 8 << 20

	// maxSets is how many lists of servers an org keeps the assembled tools of. The least
	// recently used is dropped. Each key with other tools has a list.
	maxSets = 64
)

// key identifies a server within its org.
type key struct {
	brought     bool
	name        string
	url, origin string // of a brought server; a server of the org is found by its name
	revision    uint64 // the same
}

func (s Server) key() key {
	if s.FromRequest {
		return key{true, s.Name, s.URL, s.Origin, s.Revision}
	}
	return key{name: s.Name}
}

// entry is what is cached of one server. An entry that was replaced is not used any more,
// also if a list in progress is stored in it later.
type entry struct {
	revision uint64
	list     *listing // nil = none
	found    time.Time
	until    time.Time
	pending  *pending // a list in progress; nil = none
	used     time.Time
	unused   time.Duration // drop the entry if it was not used for so long
	health   *health       // shared with the entry that replaces this one
}

// pending is a list in progress. Its results are set when done is closed.
type pending struct {
	requested
	done chan struct{}
	list *listing
	err  error // ends the runs that wait
}

// health is the failure of a server that was logged last.
type health struct {
	down  bool
	error string // of a list; "" = a call has failed
}

// fresh returns the listing if it has not expired. The ttl may be shorter than it was when
// the listing was stored.
func (e *entry) fresh(now time.Time, ttl time.Duration) *listing {
	if e.list == nil || !now.Before(e.until) || !now.Before(e.found.Add(ttl)) {
		return nil
	}
	return e.list
}

// outdated reports whether the server has announced a change since its list, or the one in
// progress, was requested.
func (e *entry) outdated() bool {
	return e.list != nil && e.list.outdated() || e.pending != nil && e.pending.outdated()
}

// successor returns an empty entry for the same server.
func (e *entry) successor(revision uint64) *entry {
	return &entry{revision: revision, used: e.used, unused: e.unused, health: e.health}
}

// orgCache is what is cached of an org's servers.
type orgCache struct {
	log *slog.Logger

	mu      sync.Mutex
	entries map[key]*entry
	sets    []assembled // the most recently used first; their lists are in entries
}

// assembled is the set of a list of servers.
type assembled struct {
	servers []Server
	lists   []*listing
	set     *Set
}

// entry returns the entry of the server and notes that it is used. It is called with mu
// held.
func (k *orgCache) entry(s Server, now time.Time, ttl time.Duration) *entry {
	id := s.key()
	e := k.entries[id]
	switch {
	case s.FromRequest && s.Origin == "", e != nil && s.Revision < e.revision:
		// Without an origin, it could have other credentials than the next server. With
		// an earlier revision, it is of a request that began before a change.
		other := &entry{health: &health{}}
		if e != nil {
			other.health = e.health
		}
		return other
	case e == nil:
		e = &entry{revision: s.Revision, health: &health{}}
		k.entries[id] = e
	case s.Revision > e.revision:
		e = k.replace(id, e, s.Revision)
	}
	e.used, e.unused = now, max(ttl, keepUnused)
	return e
}

// replace puts an empty entry in place of e.
func (k *orgCache) replace(id key, e *entry, revision uint64) *entry {
	k.dropSets(e.list)
	next := e.successor(revision)
	k.entries[id] = next
	return next
}

// finish stores what a server listed, and logs once that a server is down, and once that
// it works again.
func (k *orgCache) finish(e *entry, server string, p *pending, now time.Time, took, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.pending = nil
	if p.err != nil {
		return
	}
	e.health.log(k.log.With("server", server), p.list.err)
	if p.list.err != nil {
		ttl = min(ttl, max(retryAfter, 2*took))
	}
	if ttl <= 0 {
		return
	}
	k.dropSets(e.list)
	e.list, e.found, e.until = p.list, now, now.Add(ttl)
	k.dropBrought()
}

func (h *health) log(log *slog.Logger, err error) {
	switch {
	case err == nil && h.down:
		log.Info("mcp_server_available")
		*h = health{}
	case err != nil && h.down && h.error == "":
		h.error = err.Error() // logged when the call failed
	case err != nil && (!h.down || h.error != err.Error()):
		*h = health{true, err.Error()}
		log.Warn("mcp_server_unavailable", "error", h.error)
	}
}

// dropBrought drops servers that requests brought until the rest is within the bounds. It
// is called with mu held.
func (k *orgCache) dropBrought() {
	for {
		n, bytes, oldest := 0, 0, key{}
		for id, e := range k.entries {
			if !id.brought {
				continue
			}
			if n++; e.list != nil {
				bytes += e.list.bytes
			}
			if n == 1 || e.used.Before(k.entries[oldest].used) {
				oldest = id
			}
		}
		if n <= MaxFromRequest && bytes <= MaxFromRequestBytes {
			return
		}
		k.drop(oldest)
	}
}

func (k *orgCache) drop(id key) {
	k.dropSets(k.entries[id].list)
	delete(k.entries, id)
}

// dropSets drops the sets with tools of a listing that is not cached any more.
func (k *orgCache) dropSets(l *listing) {
	if l != nil {
		k.sets = slices.DeleteFunc(k.sets, func(a assembled) bool { return slices.Contains(a.lists, l) })
	}
}

// set returns the set of the servers with these lists. It is called with mu held.
func (k *orgCache) set(servers []Server, lists []*listing) *Set {
	i := slices.IndexFunc(k.sets, func(a assembled) bool {
		return slices.Equal(a.lists, lists) && slices.EqualFunc(a.servers, servers, sameSettings)
	})
	if i == 0 {
		return k.sets[0].set
	}
	var a assembled
	if i > 0 {
		a = k.sets[i]
		k.sets = slices.Delete(k.sets, i, i+1)
	} else {
		a = assembled{slices.Clone(servers), lists, assemble(servers, lists, k.log)}
		if !k.caches(servers, lists) {
			return a.set
		}
	}
	k.sets = slices.Insert(k.sets, 0, a)
	if len(k.sets) > maxSets {
		k.sets = slices.Delete(k.sets, maxSets, len(k.sets))
	}
	return a.set
}

// caches reports whether all lists are cached: a set must not outlive the lists that it
// was made of.
func (k *orgCache) caches(servers []Server, lists []*listing) bool {
	for i, s := range servers {
		if e := k.entries[s.key()]; e == nil || e.list != lists[i] {
			return false
		}
	}
	return true
}

// sameSettings reports whether two servers with the same listing give the same tools.
func sameSettings(a, b Server) bool {
	return a.Name == b.Name && a.FromRequest == b.FromRequest && a.Origin == b.Origin && a.Revision == b.Revision &&
		a.Naming == b.Naming && a.Prefix == b.Prefix && a.Required == b.Required &&
		(a.Tools == nil) == (b.Tools == nil) && slices.Equal(a.Tools, b.Tools) && (a.Only == nil) == (b.Only == nil) && slices.Equal(a.Only, b.Only) && a.Reads == b.Reads && slices.Equal(a.Polling, b.Polling) &&
		a.Shown == b.Shown && a.Forms == b.Forms && sameFlag(a.ReadOnly, b.ReadOnly) &&
		samePrice(a.Price, b.Price) && maps.Equal(a.Prices, b.Prices) &&
		a.Cache.Mode == b.Cache.Mode && slices.Equal(a.Cache.Names, b.Cache.Names)
}

func samePrice(a, b *money.Nano) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameFlag(a, b *bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// forget empties the entries of servers of that name.
func (k *orgCache) forget(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, e := range k.entries {
		if id.name == server {
			k.replace(id, e, e.revision)
		}
	}
}

// unreachable empties the entries of the server and notes that it is down.
func (k *orgCache) unreachable(server, origin string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, e := range k.entries {
		if origin == "" && id != (key{name: server}) || origin != "" && id.origin != origin {
			continue
		}
		if !e.health.down {
			k.log.Warn("mcp_server_unavailable", "server", server, "error", err.Error())
			*e.health = health{down: true}
		}
		k.replace(id, e, e.revision)
	}
}

// sweep drops entries that were not used for long. It reports whether one is left.
func (k *orgCache) sweep(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, e := range k.entries {
		if now.Sub(e.used) > e.unused && e.pending == nil {
			k.drop(id)
		}
	}
	return len(k.entries) > 0
}
