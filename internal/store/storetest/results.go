package storetest

import (
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/toolcache"
)

func resultCases() []rule {
	return []rule{
		{"a result is stored unchanged", "any bytes, every field", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			for _, value := range []string{"", "one", "\x00\xff<&>", strings.Repeat("long ", 1<<17)} {
				e := b.entry("name of "+value, value)
				b.keep("a", e)
				b.kept("a", e)
			}
			b.gone("a", "nobody's")
		}},
		{"a new result replaces the old one of its name", "the latest is returned", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.keep("a", b.entry("n", "one"))
			b.advance(time.Second)
			second := b.entry("n", "two")
			b.keep("a", second)
			b.kept("a", second)
		}},
		{"a result belongs to its org", "the same name in another org is another result", func(b *bench) { // F01
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			mine, theirs := b.entry("n", "mine"), b.entry("n", "theirs")
			b.keep("a", mine)
			b.gone("b", "n")
			b.keep("b", theirs)
			b.kept("a", mine)
			b.Results.DropResult("a", theirs)
			b.Results.DropResult("b", theirs)
			b.keep("b", b.entry("after", "the drops"))
			b.gone("b", "n")
			b.kept("a", mine)
		}},
		{"a result needs its org and is deleted with it", "ErrNotFound; a new org with the same id finds nothing", func(b *bench) {
			b.refused(b.tryKeep("a", b.entry("n", "one"), roomy()), org.ErrNotFound)
			b.gone("a", "n")
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.keep("a", b.entry("n", "one"))
			b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
			b.gone("a", "n")
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.gone("a", "n")
			b.keep("a", b.entry("m", "two"))
			b.kept("a", b.entry("m", "two"))
		}},
		{"a drop removes only the entry that was read", "it compares the MAC, so a newer valid entry stays", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			bad, good := b.entry("n", "bad"), b.entry("n", "good")
			b.keep("a", good)
			b.Results.DropResult("a", bad)
			b.keep("a", b.entry("after", "the drop"))
			b.kept("a", good)
			b.Results.DropResult("a", good)
			b.Results.DropResult("a", good)
			b.Results.DropResult("nobody", good)
			b.keep("a", b.entry("after", "the drop"))
			b.gone("a", "n")
		}},
	}
}

func resultBoundCases() []rule {
	return []rule{
		{"the oldest results are dropped first", "a result that is stored again counts as new", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			bounds := toolcache.Bounds{Entries: 3, Bytes: 100}
			other := b.entry("1", "another org's")
			b.keep("b", other)
			for _, name := range []string{"1", "2", "3", "1", "4", "5"} {
				b.ok(b.tryKeep("a", b.entry(name, name), bounds))
			}
			b.gone("a", "2", "3")
			for _, name := range []string{"1", "4", "5"} {
				b.kept("a", b.entry(name, name))
			}
			b.kept("b", other)
		}},
		{"the bytes of an org's results are limited", "as many of the oldest are dropped as needed", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			bounds := toolcache.Bounds{Entries: 100, Bytes: 10}
			for _, e := range []toolcache.Entry{b.entry("1", "aaaa"), b.entry("2", "bbb"), b.entry("3", "ccc")} {
				b.ok(b.tryKeep("a", e, bounds))
			}
			b.kept("a", b.entry("1", "aaaa"), b.entry("2", "bbb"), b.entry("3", "ccc"))
			b.ok(b.tryKeep("a", b.entry("1", "aaaa"), bounds))
			b.kept("a", b.entry("1", "aaaa"), b.entry("2", "bbb"), b.entry("3", "ccc"))
			b.ok(b.tryKeep("a", b.entry("4", "d"), bounds))
			b.gone("a", "2")
			b.kept("a", b.entry("3", "ccc"), b.entry("1", "aaaa"), b.entry("4", "d"))
			b.ok(b.tryKeep("a", b.entry("5", "eeeeeeeeee"), bounds))
			b.gone("a", "1", "2", "3", "4")
			b.kept("a", b.entry("5", "eeeeeeeeee"))
		}},
		{"expired results are dropped first", "before the oldest that has not expired", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			bounds := toolcache.Bounds{Entries: 2, Bytes: 100}
			old := b.entry("old", "one")
			b.ok(b.tryKeep("a", old, bounds))
			short := b.entry("short", "two")
			short.ExpiresAt = b.now().Add(time.Second).UnixMilli()
			b.ok(b.tryKeep("a", short, bounds))
			b.advance(time.Second)
			b.kept("a", short) // expired entries are dropped only when another is stored
			b.ok(b.tryKeep("a", b.entry("new", "three"), bounds))
			b.gone("a", "short")
			b.kept("a", old)
		}},
		{"a caller may modify a result", "the store copies entries", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			e := b.entry("n", "one")
			b.keep("a", e)
			e.MAC[0]++
			got, err := b.Results.CachedResult(b.Context(), "a", e.Name)
			b.ok(err)
			got.MAC[0]++
			b.kept("a", b.entry("n", "one"))
		}},
	}
}

func roomy() toolcache.Bounds { return toolcache.Bounds{Entries: 1000, Bytes: 1 << 30} }

// entry returns an entry that is created now and expires in an hour.
func (b *bench) entry(name, value string) toolcache.Entry {
	mac := sha256.Sum256([]byte(value))
	return toolcache.Entry{
		Name: sha256.Sum256([]byte(name)), Value: value, MAC: mac[:], KeptAt: b.clock.Load(), ExpiresAt: b.now().Add(time.Hour).UnixMilli(),
	}
}

// tryKeep stores the entry and returns the result of the write.
func (b *bench) tryKeep(orgID string, e toolcache.Entry, bounds toolcache.Bounds) error {
	b.Helper()
	done := make(chan error, 2)
	b.Results.KeepResult(orgID, e, bounds, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		return errors.New("done was not called within 10 s")
	}
}

func (b *bench) keep(orgID string, e toolcache.Entry) {
	b.Helper()
	b.ok(b.tryKeep(orgID, e, roomy()))
}

// kept fails the case unless the org has these entries.
func (b *bench) kept(orgID string, want ...toolcache.Entry) {
	b.Helper()
	for _, e := range want {
		got, err := b.Results.CachedResult(b.Context(), orgID, e.Name)
		b.ok(err)
		b.same(got, &e)
	}
}

// gone fails the case if the org has an entry with one of these names.
func (b *bench) gone(orgID string, names ...string) {
	b.Helper()
	for _, name := range names {
		got, err := b.Results.CachedResult(b.Context(), orgID, sha256.Sum256([]byte(name)))
		b.ok(err)
		if got != nil {
			b.Errorf("org %s has %q under the name %q", orgID, got.Value, name)
		}
	}
}
