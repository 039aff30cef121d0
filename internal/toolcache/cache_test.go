package toolcache

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type storeKey struct {
	org  string
	name Name
}

// fakeStore is a Store with faults and delays. Tests modify entries directly to
// simulate an attacker.
type fakeStore struct {
	mu      sync.Mutex
	entries map[storeKey]Entry
	dropped int
	bounds  Bounds

	readErr error             // returned by CachedResult
	hangs   bool              // CachedResult blocks until its context ends
	holds   bool              // KeepResult queues the entries in held
	held    []func()          // stores the queued entries
	saveErr func(Entry) error // error of KeepResult; nil = none
}

func (s *fakeStore) CachedResult(ctx context.Context, org string, name Name) (*Entry, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr != nil {
		return nil, s.readErr
	}
	if e, ok := s.entries[storeKey{org, name}]; ok {
		return &e, nil
	}
	return nil, nil
}

func (s *fakeStore) KeepResult(org string, e Entry, b Bounds, done func(error)) {
	keep := func() {
		if s.saveErr != nil {
			if err := s.saveErr(e); err != nil {
				done(err)
				return
			}
		}
		s.mu.Lock()
		if s.entries == nil {
			s.entries = map[storeKey]Entry{}
		}
		s.entries[storeKey{org, e.Name}], s.bounds = e, b
		s.mu.Unlock()
		done(nil)
	}
	if s.holds {
		s.held = append(s.held, keep)
		return
	}
	keep()
}

func (s *fakeStore) DropResult(org string, e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.entries[storeKey{org, e.Name}].MAC, e.MAC) {
		delete(s.entries, storeKey{org, e.Name})
		s.dropped++
	}
}

// release stores the queued entries.
func (s *fakeStore) release() {
	for _, keep := range s.held {
		keep()
	}
	s.held = nil
}

func call() run.CacheKey {
	return run.CacheKey{Org: "o", Server: "s", Tool: "t", Digest: "d", Arguments: `{"a":1}`}
}

// fixture is a Cache over a fakeStore.
type fixture struct {
	*testing.T
	*Cache
	store *fakeStore
	clock time.Time
	log   bytes.Buffer
}

func newFixture(t *testing.T, s *fakeStore, pepper string) *fixture {
	b := &fixture{T: t, store: s, clock: time.UnixMilli(1_700_000_000_000)}
	b.Cache = New(s, Options{Pepper: pepper, Now: func() time.Time { return b.clock }, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
	return b
}

func (b *fixture) hit(k run.CacheKey, want string) {
	b.Helper()
	if got, ok := b.Get(b.Context(), k); !ok || got != want {
		b.Errorf("Get(%+v) = %q, %v; want %q", k, got, ok, want)
	}
}

func (b *fixture) miss(k run.CacheKey) {
	b.Helper()
	if got, ok := b.Get(b.Context(), k); ok || got != "" {
		b.Errorf("Get(%+v) = %q, want none", k, got)
	}
}

// F01
func TestResultIsScopedToOneCallAndOrg(t *testing.T) {
	b := newFixture(t, &fakeStore{}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	b.hit(call(), "42")
	for _, other := range []run.CacheKey{
		{Org: "p", Server: "s", Tool: "t", Digest: "d", Arguments: `{"a":1}`},
		{Org: "o", Server: "r", Tool: "t", Digest: "d", Arguments: `{"a":1}`},
		{Org: "o", Server: "s", Tool: "u", Digest: "d", Arguments: `{"a":1}`},
		{Org: "o", Server: "s", Tool: "t", Digest: "e", Arguments: `{"a":1}`},
		{Org: "o", Server: "s", Tool: "t", Digest: "d", Arguments: `{"a":2}`},
		{Org: "o", Server: "st", Tool: "", Digest: "d", Arguments: `{"a":1}`}, // the same characters, split elsewhere
		{Org: "o", Server: "s", Tool: "td", Digest: "", Arguments: `{"a":1}`},
		{Org: "os", Server: "", Tool: "t", Digest: "d", Arguments: `{"a":1}`},
		{},
	} {
		b.miss(other)
	}
}

// F02
func TestResultExpires(t *testing.T) {
	b := newFixture(t, &fakeStore{}, "pepper")
	b.Put(t.Context(), call(), "never", 0)
	b.Put(t.Context(), call(), "never", -time.Second)
	b.miss(call())
	b.Put(t.Context(), call(), "42", time.Minute)
	b.clock = b.clock.Add(time.Minute - time.Millisecond)
	b.hit(call(), "42")
	b.clock = b.clock.Add(time.Millisecond)
	b.miss(call())
	if b.store.dropped != 1 || b.log.Len() > 0 {
		t.Errorf("%d entries deleted, want 1; log: %q", b.store.dropped, b.log.String())
	}
	b.Put(t.Context(), call(), "43", time.Minute)
	b.hit(call(), "43")
}

// A step of the wall clock does not extend the lifetime of an entry. // F02
func TestEntryStoredInTheFutureIsNotUsed(t *testing.T) {
	b := newFixture(t, &fakeStore{}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	b.clock = b.clock.Add(-time.Hour)
	b.miss(call())
	b.Put(t.Context(), call(), "43", time.Minute)
	b.hit(call(), "43")
	b.clock = b.clock.Add(time.Hour)
	b.miss(call())
}

// F03
func TestEntryWithInvalidMACIsIgnored(t *testing.T) {
	const cached = "cached-result" // must not be in the log
	other := call()
	other.Arguments = `{"a":2}`
	foreign := call()
	foreign.Org = "p"
	here, there := storeKey{"o", nameOf(call())}, storeKey{"o", nameOf(other)}
	for name, c := range map[string]struct {
		attack func(map[storeKey]Entry)
		ask    run.CacheKey
	}{
		"another value":           {func(m map[storeKey]Entry) { e := m[here]; e.Value = "43"; m[here] = e }, call()},
		"a truncated value":       {func(m map[storeKey]Entry) { e := m[here]; e.Value = e.Value[:1]; m[here] = e }, call()},
		"an extended value":       {func(m map[storeKey]Entry) { e := m[here]; e.Value += "0"; m[here] = e }, call()},
		"a later expiry":          {func(m map[storeKey]Entry) { e := m[here]; e.ExpiresAt += 1 << 40; m[here] = e }, call()},
		"an earlier expiry":       {func(m map[storeKey]Entry) { e := m[here]; e.ExpiresAt--; m[here] = e }, call()},
		"no MAC":                  {func(m map[storeKey]Entry) { e := m[here]; e.MAC = nil; m[here] = e }, call()},
		"half a MAC":              {func(m map[storeKey]Entry) { e := m[here]; e.MAC = e.MAC[:16]; m[here] = e }, call()},
		"a wrong MAC":             {func(m map[storeKey]Entry) { e := m[here]; e.MAC = make([]byte, 32); m[here] = e }, call()},
		"moved to another call":   {func(m map[storeKey]Entry) { e := m[here]; e.Name = there.name; m[there] = e }, other},
		"moved with its old name": {func(m map[storeKey]Entry) { m[there] = m[here] }, other},
		"moved to another org":    {func(m map[storeKey]Entry) { m[storeKey{"p", here.name}] = m[here] }, foreign},
		"moved to another org with its name": {func(m map[storeKey]Entry) {
			e := m[here]
			e.Name = nameOf(foreign)
			m[storeKey{"p", e.Name}] = e
		}, foreign},
		"two entries swapped": {func(m map[storeKey]Entry) {
			one, two := m[here], m[there]
			one.Name, two.Name = two.Name, one.Name
			m[here], m[there] = two, one
		}, call()},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, &fakeStore{}, "pepper")
			b.Put(t.Context(), call(), cached, time.Minute)
			b.Put(t.Context(), other, "two", time.Minute)
			b.hit(call(), cached)
			c.attack(b.store.entries)
			_, met := b.store.entries[storeKey{c.ask.Org, nameOf(c.ask)}]
			b.miss(c.ask)
			if strings.Contains(b.log.String(), "tool_cache_entry_dropped") != met || strings.Contains(b.log.String(), cached) {
				t.Errorf("log: %q", b.log.String())
			}
			b.Put(t.Context(), c.ask, "right", time.Minute)
			b.hit(c.ask, "right")
		})
	}
}

func TestInvalidEntryIsDeletedOnRead(t *testing.T) {
	b := newFixture(t, &fakeStore{}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	here := storeKey{"o", nameOf(call())}
	e := b.store.entries[here]
	e.Value = "43"
	b.store.entries[here] = e
	b.miss(call())
	if len(b.store.entries) != 0 {
		t.Errorf("the store still has %+v", b.store.entries)
	}
}

// F04
func TestEntriesOfAnotherPepperAreIgnored(t *testing.T) {
	shelf := &fakeStore{}
	newFixture(t, shelf, "one").Put(t.Context(), call(), "42", time.Minute)
	newFixture(t, shelf, "one").hit(call(), "42")
	newFixture(t, shelf, "two").miss(call())
	newFixture(t, shelf, "one").miss(call()) // it was deleted
	drawn := newFixture(t, shelf, "")
	drawn.Put(t.Context(), call(), "43", time.Minute)
	drawn.hit(call(), "43")
	newFixture(t, shelf, "").miss(call())
}

func TestPendingResultIsUsable(t *testing.T) {
	b := newFixture(t, &fakeStore{holds: true}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	b.hit(call(), "42")
	b.Put(t.Context(), call(), "43", time.Minute)
	b.hit(call(), "43")
	b.store.held[0]()
	b.hit(call(), "43")
	b.store.held[1]()
	b.hit(call(), "43")
	b.store.held = nil
	b.Put(t.Context(), call(), "44", time.Second)
	b.clock = b.clock.Add(time.Second)
	b.miss(call())
}

func TestPendingWritesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		fits int
	}{
		"by number": {"x", maxPending},
		"by bytes":  {strings.Repeat("x", MaxValue), maxPendingBytes / MaxValue},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, &fakeStore{holds: true}, "pepper")
			for range c.fits + 5 {
				b.Put(t.Context(), call(), c.text, time.Minute)
			}
			if len(b.store.held) != c.fits {
				t.Errorf("%d entries are pending, want %d", len(b.store.held), c.fits)
			}
			b.store.release()
			b.Put(t.Context(), call(), "42", time.Minute)
			b.store.release()
			b.hit(call(), "42")
		})
	}
}

func TestOversizedResultIsNotCached(t *testing.T) {
	b := newFixture(t, &fakeStore{}, "pepper")
	b.Put(t.Context(), call(), strings.Repeat("x", MaxValue+1), time.Minute)
	b.miss(call())
	b.Put(t.Context(), call(), strings.Repeat("x", MaxValue), time.Minute)
	b.hit(call(), strings.Repeat("x", MaxValue))
	b.Put(t.Context(), call(), "", time.Minute)
	b.hit(call(), "")
	if want := (Bounds{Entries: MaxEntries, Bytes: MaxBytes}); b.store.bounds != want {
		t.Errorf("bounds %+v, want %+v", b.store.bounds, want)
	}
}

func TestStoreErrorsAreLoggedAndDoNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, &fakeStore{readErr: errors.New("disk gone"), saveErr: func(Entry) error { return errors.New("disk full") }}, "pepper")
		b.Put(t.Context(), call(), "42", time.Minute)
		b.miss(call())
		for _, want := range []string{"tool_cache_write_failed", "disk full", "tool_cache_read_failed", "disk gone", "server=s", "tool=t", "org=o"} {
			if !strings.Contains(b.log.String(), want) {
				t.Errorf("the log does not contain %s: %s", want, b.log.String())
			}
		}
		b = newFixture(t, &fakeStore{hangs: true}, "pepper")
		began := time.Now()
		b.miss(call())
		if took := time.Since(began); took != readTimeout {
			t.Errorf("Get took %v, want %v", took, readTimeout)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		b.log.Reset()
		if _, ok := b.Get(ended, call()); ok || b.log.Len() > 0 {
			t.Errorf("Get with an ended context: %v, log: %s", ok, b.log.String())
		}
	})
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	b := newFixture(t, &fakeStore{}, "pepper")
	b.Cache.log = slog.New(slog.DiscardHandler)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			k := call()
			k.Arguments = string(rune('a' + i%3))
			for range 50 {
				b.Put(t.Context(), k, k.Arguments, time.Minute)
				if got, ok := b.Get(t.Context(), k); !ok || got != k.Arguments {
					t.Errorf("got %q, %v", got, ok)
				}
			}
		})
	}
	all.Wait()
	if b.pending.count != 0 || b.pending.bytes != 0 || len(b.pending.entries) != 0 {
		t.Errorf("%d entries of %d bytes are still pending", b.pending.count, b.pending.bytes)
	}
}
