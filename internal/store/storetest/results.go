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
		{"a result is stored unchanged", "any bytes, every field", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			for _, value := range []string{"", "one", "\x00\xff<&>", strings.Repeat("long ", 1<<17)} {
				e := b.entry("name of "+value, value)
				b.keepResult("a", e)
				b.checkResult("a", e)
			}
			b.checkNoResult("a", "nobody's")
		}},
		{"a new result replaces the old one of its name", "the latest is returned", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.keepResult("a", b.entry("n", "one"))
			b.advance(time.Second)
			second := b.entry("n", "two")
			b.keepResult("a", second)
			b.checkResult("a", second)
		}},
		{"a result belongs to its org", "the same name in another org is another result", func(b *testBench) { // F01
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			mine, theirs := b.entry("n", "mine"), b.entry("n", "theirs")
			b.keepResult("a", mine)
			b.checkNoResult("b", "n")
			b.keepResult("b", theirs)
			b.checkResult("a", mine)
			b.Results.DropResult("a", theirs)
			b.Results.DropResult("b", theirs)
			b.keepResult("b", b.entry("after", "the drops"))
			b.checkNoResult("b", "n")
			b.checkResult("a", mine)
		}},
		{"a result needs its org and is deleted with it", "ErrNotFound; a new org with the same id finds nothing", func(b *testBench) {
			b.checkError(b.tryKeep("a", b.entry("n", "one"), wideBounds()), org.ErrNotFound)
			b.checkNoResult("a", "n")
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.keepResult("a", b.entry("n", "one"))
			b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
			b.checkNoResult("a", "n")
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.checkNoResult("a", "n")
			b.keepResult("a", b.entry("m", "two"))
			b.checkResult("a", b.entry("m", "two"))
		}},
		{"a drop removes only the entry that was read", "it compares the MAC, so a newer valid entry stays", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			bad, good := b.entry("n", "bad"), b.entry("n", "good")
			b.keepResult("a", good)
			b.Results.DropResult("a", bad)
			b.keepResult("a", b.entry("after", "the drop"))
			b.checkResult("a", good)
			b.Results.DropResult("a", good)
			b.Results.DropResult("a", good)
			b.Results.DropResult("nobody", good)
			b.keepResult("a", b.entry("after", "the drop"))
			b.checkNoResult("a", "n")
		}},
	}
}

func resultBoundCases() []rule {
	return []rule{
		{"the oldest results are dropped first", "a result that is stored again counts as new", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			bounds := toolcache.Bounds{Entries: 3, Bytes: 100}
			other := b.entry("1", "another org's")
			b.keepResult("b", other)
			for _, name := range []string{"1", "2", "3", "1", "4", "5"} {
				b.ok(b.tryKeep("a", b.entry(name, name), bounds))
			}
			b.checkNoResult("a", "2", "3")
			for _, name := range []string{"1", "4", "5"} {
				b.checkResult("a", b.entry(name, name))
			}
			b.checkResult("b", other)
		}},
		{"the bytes of an org's results are limited", "as many of the oldest are dropped as needed", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			bounds := toolcache.Bounds{Entries: 100, Bytes: 10}
			for _, e := range []toolcache.Entry{b.entry("1", "aaaa"), b.entry("2", "bbb"), b.entry("3", "ccc")} {
				b.ok(b.tryKeep("a", e, bounds))
			}
			b.checkResult("a", b.entry("1", "aaaa"), b.entry("2", "bbb"), b.entry("3", "ccc"))
			b.ok(b.tryKeep("a", b.entry("1", "aaaa"), bounds))
			b.checkResult("a", b.entry("1", "aaaa"), b.entry("2", "bbb"), b.entry("3", "ccc"))
			b.ok(b.tryKeep("a", b.entry("4", "d"), bounds))
			b.checkNoResult("a", "2")
			b.checkResult("a", b.entry("3", "ccc"), b.entry("1", "aaaa"), b.entry("4", "d"))
			b.ok(b.tryKeep("a", b.entry("5", "eeeeeeeeee"), bounds))
			b.checkNoResult("a", "1", "2", "3", "4")
			b.checkResult("a", b.entry("5", "eeeeeeeeee"))
		}},
		{"expired results are dropped first", "before the oldest that has not expired", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			bounds := toolcache.Bounds{Entries: 2, Bytes: 100}
			old := b.entry("old", "one")
			b.ok(b.tryKeep("a", old, bounds))
			short := b.entry("short", "two")
			short.ExpiresAt = b.now().Add(time.Second).UnixMilli()
			b.ok(b.tryKeep("a", short, bounds))
			b.advance(time.Second)
			b.checkResult("a", short) // expired entries are dropped only when another is stored
			b.ok(b.tryKeep("a", b.entry("new", "three"), bounds))
			b.checkNoResult("a", "short")
			b.checkResult("a", old)
		}},
		{"a caller may modify a result", "the store copies entries", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			e := b.entry("n", "one")
			b.keepResult("a", e)
			e.MAC[0]++
			got, err := b.Results.CachedResult(b.Context(), "a", e.Name)
			b.ok(err)
			got.MAC[0]++
			b.checkResult("a", b.entry("n", "one"))
		}},
	}
}

func wideBounds() toolcache.Bounds { return toolcache.Bounds{Entries: 1000, Bytes: 1 << 30} }

// entry returns an entry that is created now and expires in an hour.
func (b *testBench) entry(name, value string) toolcache.Entry {
	mac := sha256.Sum256([]byte(value))
	return toolcache.Entry{
		Name: sha256.Sum256([]byte(name)), Value: value, MAC: mac[:], KeptAt: b.clock.Load(), ExpiresAt: b.now().Add(time.Hour).UnixMilli(),
	}
}

// tryKeep stores the entry and returns the result of the write.
func (b *testBench) tryKeep(orgID string, e toolcache.Entry, bounds toolcache.Bounds) error {
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

func (b *testBench) keepResult(orgID string, e toolcache.Entry) {
	b.Helper()
	b.ok(b.tryKeep(orgID, e, wideBounds()))
}

// checkResult fails the case unless the org has these entries.
func (b *testBench) checkResult(orgID string, want ...toolcache.Entry) {
	b.Helper()
	for _, e := range want {
		got, err := b.Results.CachedResult(b.Context(), orgID, e.Name)
		b.ok(err)
		b.equal(got, &e)
	}
}

// checkNoResult fails the case if the org has an entry with one of these names.
func (b *testBench) checkNoResult(orgID string, names ...string) {
	b.Helper()
	for _, name := range names {
		got, err := b.Results.CachedResult(b.Context(), orgID, sha256.Sum256([]byte(name)))
		b.ok(err)
		if got != nil {
			b.Errorf("org %s has %q under the name %q", orgID, got.Value, name)
		}
	}
}
