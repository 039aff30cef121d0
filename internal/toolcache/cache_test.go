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

type place struct {
	org  string
	name Name
}

// shelf is a store that does what its fields say, and that an attacker can reach
// into.
type shelf struct {
	mu      sync.Mutex
	entries map[place]Entry
	dropped int
	bounds  Bounds

	read  error             // of every reading
	hangs bool              // a reading takes until its context is done
	held  []func()          // what is to be kept, until released; nil = it is kept at once
	holds bool              // for held
	keeps func(Entry) error // nil = everything is kept
}

func (s *shelf) CachedResult(ctx context.Context, org string, name Name) (*Entry, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read != nil {
		return nil, s.read
	}
	if e, ok := s.entries[place{org, name}]; ok {
		return &e, nil
	}
	return nil, nil
}

func (s *shelf) KeepResult(org string, e Entry, b Bounds, done func(error)) {
	keep := func() {
		if s.keeps != nil {
			if err := s.keeps(e); err != nil {
				done(err)
				return
			}
		}
		s.mu.Lock()
		if s.entries == nil {
			s.entries = map[place]Entry{}
		}
		s.entries[place{org, e.Name}], s.bounds = e, b
		s.mu.Unlock()
		done(nil)
	}
	if s.holds {
		s.held = append(s.held, keep)
		return
	}
	keep()
}

func (s *shelf) DropResult(org string, e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.entries[place{org, e.Name}].MAC, e.MAC) {
		delete(s.entries, place{org, e.Name})
		s.dropped++
	}
}

// release keeps what was held.
func (s *shelf) release() {
	for _, keep := range s.held {
		keep()
	}
	s.held = nil
}

func call() run.CacheKey {
	return run.CacheKey{Org: "o", Server: "s", Tool: "t", Digest: "d", Arguments: `{"a":1}`}
}

// bench is a cache over a shelf.
type bench struct {
	*testing.T
	*Cache
	shelf *shelf
	clock time.Time
	log   bytes.Buffer
}

func newBench(t *testing.T, s *shelf, pepper string) *bench {
	b := &bench{T: t, shelf: s, clock: time.UnixMilli(1_700_000_000_000)}
	b.Cache = New(s, Options{Pepper: pepper, Now: func() time.Time { return b.clock }, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
	return b
}

func (b *bench) hit(k run.CacheKey, want string) {
	b.Helper()
	if got, ok := b.Get(b.Context(), k); !ok || got != want {
		b.Errorf("%+v: got %q, %v; want %q", k, got, ok, want)
	}
}

func (b *bench) miss(k run.CacheKey) {
	b.Helper()
	if got, ok := b.Get(b.Context(), k); ok || got != "" {
		b.Errorf("%+v: got %q, want nothing", k, got)
	}
}

// F01
func TestAResultIsThatOfOneCallOfOneOrg(t *testing.T) {
	b := newBench(t, &shelf{}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	b.hit(call(), "42")
	for _, other := range []run.CacheKey{
		{Org: "p", Server: "s", Tool: "t", Digest: "d", Arguments: `{"a":1}`},
		{Org: "o", Server: "r", Tool: "t", Digest: "d", Arguments: `{"a":1}`},
		{Org: "o", Server: "s", Tool: "u", Digest: "d", Arguments: `{"a":1}`},
		{Org: "o", Server: "s", Tool: "t", Digest: "e", Arguments: `{"a":1}`},
		{Org: "o", Server: "s", Tool: "t", Digest: "d", Arguments: `{"a":2}`},
		{Org: "o", Server: "st", Tool: "", Digest: "d", Arguments: `{"a":1}`}, // the same letters, cut elsewhere
		{Org: "o", Server: "s", Tool: "td", Digest: "", Arguments: `{"a":1}`},
		{Org: "os", Server: "", Tool: "t", Digest: "d", Arguments: `{"a":1}`},
		{},
	} {
		b.miss(other)
	}
}

// F02
func TestAResultLastsForItsTime(t *testing.T) {
	b := newBench(t, &shelf{}, "pepper")
	b.Put(t.Context(), call(), "never", 0)
	b.Put(t.Context(), call(), "never", -time.Second)
	b.miss(call())
	b.Put(t.Context(), call(), "42", time.Minute)
	b.clock = b.clock.Add(time.Minute - time.Millisecond)
	b.hit(call(), "42")
	b.clock = b.clock.Add(time.Millisecond)
	b.miss(call())
	if b.shelf.dropped != 1 || b.log.Len() > 0 {
		t.Errorf("%d entries were dropped, want 1; the log says %q", b.shelf.dropped, b.log.String())
	}
	b.Put(t.Context(), call(), "43", time.Minute)
	b.hit(call(), "43")
}

// F02: a step of the wall clock makes no entry live longer.
func TestAnEntryThatWasKeptInTheFutureIsNotUsed(t *testing.T) {
	b := newBench(t, &shelf{}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	b.clock = b.clock.Add(-time.Hour)
	b.miss(call())
	b.Put(t.Context(), call(), "43", time.Minute)
	b.hit(call(), "43")
	b.clock = b.clock.Add(time.Hour)
	b.miss(call())
}

// F03
func TestAnEntryThatWeDidNotSealIsNone(t *testing.T) {
	const cached = "cached-result" // not in the log, whatever time that tells
	other := call()
	other.Arguments = `{"a":2}`
	foreign := call()
	foreign.Org = "p"
	here, there := place{"o", nameOf(call())}, place{"o", nameOf(other)}
	for name, c := range map[string]struct {
		attack func(map[place]Entry)
		ask    run.CacheKey
	}{
		"another value":             {func(m map[place]Entry) { e := m[here]; e.Value = "43"; m[here] = e }, call()},
		"a value that was cut":      {func(m map[place]Entry) { e := m[here]; e.Value = e.Value[:1]; m[here] = e }, call()},
		"more at its end":           {func(m map[place]Entry) { e := m[here]; e.Value += "0"; m[here] = e }, call()},
		"a later end":               {func(m map[place]Entry) { e := m[here]; e.ExpiresAt += 1 << 40; m[here] = e }, call()},
		"an earlier end":            {func(m map[place]Entry) { e := m[here]; e.ExpiresAt--; m[here] = e }, call()},
		"no seal":                   {func(m map[place]Entry) { e := m[here]; e.MAC = nil; m[here] = e }, call()},
		"half a seal":               {func(m map[place]Entry) { e := m[here]; e.MAC = e.MAC[:16]; m[here] = e }, call()},
		"a seal of the same length": {func(m map[place]Entry) { e := m[here]; e.MAC = make([]byte, 32); m[here] = e }, call()},
		"moved to another call":     {func(m map[place]Entry) { e := m[here]; e.Name = there.name; m[there] = e }, other},
		"moved, under its old name": {func(m map[place]Entry) { m[there] = m[here] }, other},
		"moved to another org":      {func(m map[place]Entry) { m[place{"p", here.name}] = m[here] }, foreign},
		"moved to another org, under its name": {func(m map[place]Entry) {
			e := m[here]
			e.Name = nameOf(foreign)
			m[place{"p", e.Name}] = e
		}, foreign},
		"the two swapped": {func(m map[place]Entry) {
			one, two := m[here], m[there]
			one.Name, two.Name = two.Name, one.Name
			m[here], m[there] = two, one
		}, call()},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, &shelf{}, "pepper")
			b.Put(t.Context(), call(), cached, time.Minute)
			b.Put(t.Context(), other, "two", time.Minute)
			b.hit(call(), cached)
			c.attack(b.shelf.entries)
			_, met := b.shelf.entries[place{c.ask.Org, nameOf(c.ask)}]
			b.miss(c.ask)
			if strings.Contains(b.log.String(), "tool_cache_entry_dropped") != met || strings.Contains(b.log.String(), cached) {
				t.Errorf("the log is %q", b.log.String())
			}
			b.Put(t.Context(), c.ask, "right", time.Minute)
			b.hit(c.ask, "right")
		})
	}
}

func TestABadEntryIsDroppedWhenItIsMet(t *testing.T) {
	b := newBench(t, &shelf{}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	here := place{"o", nameOf(call())}
	e := b.shelf.entries[here]
	e.Value = "43"
	b.shelf.entries[here] = e
	b.miss(call())
	if len(b.shelf.entries) != 0 {
		t.Errorf("the store has %+v", b.shelf.entries)
	}
}

// F04
func TestAnotherPepperKnowsNothing(t *testing.T) {
	shelf := &shelf{}
	newBench(t, shelf, "one").Put(t.Context(), call(), "42", time.Minute)
	newBench(t, shelf, "one").hit(call(), "42")
	newBench(t, shelf, "two").miss(call())
	newBench(t, shelf, "one").miss(call()) // it was dropped
	drawn := newBench(t, shelf, "")
	drawn.Put(t.Context(), call(), "43", time.Minute)
	drawn.hit(call(), "43")
	newBench(t, shelf, "").miss(call())
}

func TestAResultCanBeUsedBeforeItIsStored(t *testing.T) {
	b := newBench(t, &shelf{holds: true}, "pepper")
	b.Put(t.Context(), call(), "42", time.Minute)
	b.hit(call(), "42")
	b.Put(t.Context(), call(), "43", time.Minute)
	b.hit(call(), "43")
	b.shelf.held[0]()
	b.hit(call(), "43")
	b.shelf.held[1]()
	b.hit(call(), "43")
	b.shelf.held = nil
	b.Put(t.Context(), call(), "44", time.Second)
	b.clock = b.clock.Add(time.Second)
	b.miss(call())
}

func TestAStoreThatIsBehindIsNotGivenMore(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		fits int
	}{
		"by number": {"x", maxWaiting},
		"by bytes":  {strings.Repeat("x", MaxValue), maxWaitingBytes / MaxValue},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, &shelf{holds: true}, "pepper")
			for range c.fits + 5 {
				b.Put(t.Context(), call(), c.text, time.Minute)
			}
			if len(b.shelf.held) != c.fits {
				t.Errorf("%d entries wait, want %d", len(b.shelf.held), c.fits)
			}
			b.shelf.release()
			b.Put(t.Context(), call(), "42", time.Minute)
			b.shelf.release()
			b.hit(call(), "42")
		})
	}
}

func TestALongResultIsNotKept(t *testing.T) {
	b := newBench(t, &shelf{}, "pepper")
	b.Put(t.Context(), call(), strings.Repeat("x", MaxValue+1), time.Minute)
	b.miss(call())
	b.Put(t.Context(), call(), strings.Repeat("x", MaxValue), time.Minute)
	b.hit(call(), strings.Repeat("x", MaxValue))
	b.Put(t.Context(), call(), "", time.Minute)
	b.hit(call(), "")
	if want := (Bounds{Entries: MaxEntries, Bytes: MaxBytes}); b.shelf.bounds != want {
		t.Errorf("the bounds are %+v, want %+v", b.shelf.bounds, want)
	}
}

func TestAStoreInTroubleIsLoggedAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &shelf{read: errors.New("disk gone"), keeps: func(Entry) error { return errors.New("disk full") }}, "pepper")
		b.Put(t.Context(), call(), "42", time.Minute)
		b.miss(call())
		for _, want := range []string{"tool_cache_not_kept", "disk full", "tool_cache_unreadable", "disk gone", "server=s", "tool=t", "org=o"} {
			if !strings.Contains(b.log.String(), want) {
				t.Errorf("the log lacks %s: %s", want, b.log.String())
			}
		}
		b = newBench(t, &shelf{hangs: true}, "pepper")
		began := time.Now()
		b.miss(call())
		if took := time.Since(began); took != patience {
			t.Errorf("the run was held up for %v, want %v", took, patience)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		b.log.Reset()
		if _, ok := b.Get(ended, call()); ok || b.log.Len() > 0 {
			t.Errorf("a caller that has gone found something (%v), or was logged: %s", ok, b.log.String())
		}
	})
}

func TestManyRunsMayUseOneCache(t *testing.T) {
	b := newBench(t, &shelf{}, "pepper")
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
	if b.waiting.count != 0 || b.waiting.bytes != 0 || len(b.waiting.entries) != 0 {
		t.Errorf("%d entries of %d bytes wait still", b.waiting.count, b.waiting.bytes)
	}
}
