package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func TestCollectReturnsTheQueuedWrites(t *testing.T) {
	waited, loose := &write{awaited: true}, &write{}
	for name, c := range map[string]struct {
		first *write
		queue []*write
		size  int
		took  time.Duration
	}{
		"a write that a caller waits for is written at once":          {waited, nil, 1, 0},
		"with the writes that are queued":                             {waited, []*write{loose, waited, loose}, 4, 0},
		"a write that no caller waits for waits for others":           {loose, nil, 1, collectTime},
		"until one arrives that a caller waits for":                   {loose, []*write{loose, waited}, 3, 0},
		"a group has at most a hundred writes":                        {loose, repeat(loose, 150), maxGroup, 0},
		"also if a caller waits for some of them":                     {waited, repeat(waited, 150), maxGroup, 0},
		"a group that no caller waits for does not wait for the next": {loose, repeat(loose, 10), 11, collectTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &writer{queue: make(chan *write, maxQueue)}
				for _, one := range c.queue {
					w.queue <- one
				}
				began := time.Now()
				group := w.collect(c.first)
				if len(group) != c.size || time.Since(began) != c.took {
					t.Errorf("%d writes after %v, want %d after %v", len(group), time.Since(began), c.size, c.took)
				}
			})
		})
	}
}

func TestAClosedQueueCompletesAGroup(t *testing.T) {
	w := &writer{queue: make(chan *write, 1)}
	w.queue <- &write{}
	close(w.queue)
	if group := w.collect(&write{}); len(group) != 2 {
		t.Errorf("%d writes, want 2", len(group))
	}
}

func repeat(one *write, n int) []*write {
	out := make([]*write, n)
	for i := range out {
		out[i] = one
	}
	return out
}

// blockWriter blocks the writer until release is called.
func blockWriter(t *testing.T, s *Store) (release func()) {
	t.Helper()
	busy, free := make(chan struct{}), make(chan struct{})
	one := &write{do: func(*tx) error {
		close(busy)
		<-free
		return nil
	}}
	if err := s.writer.submit(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	<-busy
	return func() { close(free) }
}

func TestAFailedWriteDoesNotAffectItsGroup(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	release := blockWriter(t, s)
	group := make([]*write, 5)
	for i := range group {
		group[i] = &write{do: func(tx *tx) error {
			if _, err := tx.exec(`INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES (?, 'null', '{}', 0, 0)`, fmt.Sprint(i)); err != nil {
				return err
			}
			if i == 2 {
				return errors.New("no")
			}
			return nil
		}}
		if err := s.writer.submit(t.Context(), group[i]); err != nil {
			t.Fatal(err)
		}
	}
	release()
	for i, one := range group {
		if err := one.wait(t.Context()); (err != nil) != (i == 2) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	orgs, err := s.Orgs(t.Context())
	if err != nil || len(orgs) != 4 {
		t.Errorf("got %+v, %v, want all but the third", orgs, err)
	}
}

func TestACallerWhoseContextEndsDoesNotWaitForTheDisk(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	beginRun(t, s, "a", "r")
	release := blockWriter(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	batch := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 2, Body: loop.InputAdded{ItemsRef: "x", By: loop.ByClient}}}}
	if err := s.Append(ctx, journal.Lease{Org: "a", RunID: "r"}, 1, batch); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	release()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFullQueueBlocksAndLosesNothing(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	release := blockWriter(t, s)
	nothing := func(*tx) error { return nil }
	for range maxQueue - 1 { // the writer has taken one more
		if err := s.writer.submit(t.Context(), &write{do: nothing}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.writer.submit(ctx, &write{do: nothing}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.DeadlineExceeded from a full queue", err)
	}
	release()
	if err := s.writer.perform(t.Context(), noOrg, nothing); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskIsAnErrorAndNothingIsHalfStored(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Log: slog.New(slog.DiscardHandler)})
	beginRun(t, s, "a", "r")
	setMaxPages(t, s, "1")
	lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1}
	big := journal.Batch{
		Facts: []loop.Fact{{Seq: 2, At: 2, Body: loop.InputAdded{ItemsRef: "big", By: loop.ByClient}}},
		Rows:  []journal.Row{{Ref: "big", Value: make([]byte, 1<<20)}},
	}
	if err := s.Append(t.Context(), lease, 1, big); err != nil {
		t.Fatal(err) // unsynced, so the error comes later
	}
	next := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 3, At: 3, Body: loop.InputAdded{ItemsRef: "next", By: loop.ByClient}}}}
	var failure *Error
	if err := s.Append(t.Context(), lease, 2, next); !errors.As(err, &failure) || failure.Op != "append" {
		t.Fatalf("got %v, want an *Error of append", err)
	}
	story, err := s.Load(t.Context(), "a", "r")
	if err != nil || len(story.Facts) != 1 || len(story.Rows) != 0 {
		t.Fatalf("got %+v, %v, want the journal as before", story, err)
	}
	setMaxPages(t, s, "1000000")
	big.Sync = true
	if err := s.Append(t.Context(), lease, 1, big); err != nil {
		t.Errorf("with free space again: %v", err)
	}
}

func TestAFullDiskRefusesEveryWriterAndIsNotFatal(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Fatal: func(err error) { t.Errorf("Fatal: %v", err) }})
	beginRun(t, s, "a", "r")
	setMaxPages(t, s, "1")
	var failure *Error
	if err := s.Probe(t.Context()); !errors.As(err, &failure) {
		t.Errorf("a probe got %v, want an *Error", err)
	}
	batch := journal.Batch{
		Sync: true, Opening: &journal.Opening{Slots: 2, Key: &journal.SubmitKey{Principal: "p", Key: "k", Hash: "h"}},
		Facts: []loop.Fact{{Seq: 1, At: 1, Body: loop.Accepted{Org: "a", RunID: "next"}}},
		Rows:  []journal.Row{{Ref: "big", Value: make([]byte, 1<<20)}},
		Audit: []audit.Entry{{Kind: "k", Body: "x"}},
	}
	lease := journal.Lease{Org: "a", RunID: "next", Epoch: 1, Owner: "o"}
	for range 3 {
		if err := s.Append(t.Context(), lease, 0, batch); !errors.As(err, &failure) {
			t.Errorf("an opening got %v, want an *Error", err)
		}
	}
	setMaxPages(t, s, "1000000")
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("with free space again: %v", err)
	}
	if err := s.Append(t.Context(), lease, 0, batch); err != nil {
		t.Errorf("the slot and the key must be free: %v", err)
	}
	rows, err := s.AuditRows(t.Context(), "a", audit.Query{RunID: "next"})
	if err != nil || len(rows) != 1 || rows[0].Number != 1 {
		t.Errorf("got the audit rows %+v, %v, want the first", rows, err)
	}
}

// setMaxPages sets the maximum number of pages of the file, which then has no free pages.
// A smaller number than it has stops it from growing.
func setMaxPages(t *testing.T, s *Store, pages string) {
	t.Helper()
	if err := s.repeatWrite(t.Context(), noOrg, (*tx).vacuum); err != nil {
		t.Fatal(err)
	}
	err := s.writer.perform(t.Context(), noOrg, func(tx *tx) error {
		var n int
		return tx.queryRow(`PRAGMA max_page_count = `+pages, nil, &n)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheNumberOfHeadsIsLimited(t *testing.T) {
	var table heads
	pending := &write{done: make(chan struct{})}
	for i := range maxHeads + 10 {
		h := table.lock(runKey{"a", fmt.Sprint(i)})
		if i == 0 {
			h.pending = []*write{pending}
		}
		h.mu.Unlock()
	}
	if n := len(table.byRun); n > 20 {
		t.Errorf("%d heads are left, want those since the sweep", n)
	}
	if h := table.byRun[runKey{"a", "0"}]; h == nil || h.removed {
		t.Error("a head with a queued write was removed")
	}
}

func TestTheHeadOfAFinishedRunIsRemovedAndReloaded(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	beginRun(t, s, "a", "r")
	if len(s.heads.byRun) != 1 {
		t.Fatalf("%d heads, want that of the run", len(s.heads.byRun))
	}
	lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1}
	if err := s.Append(t.Context(), lease, 1, journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 2, Body: loop.Parked{}}}}); err != nil {
		t.Fatal(err)
	}
	if len(s.heads.byRun) != 0 {
		t.Errorf("%d heads, want none for a parked run", len(s.heads.byRun))
	}
	if err := s.Append(t.Context(), lease, 2, journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 3, Body: loop.Resumed{}}}}); err != nil {
		t.Error(err)
	}
}

func TestTheNamesOfStoredSettingsAreStable(t *testing.T) {
	text, _ := encode(org.Runtime{})
	want := []string{
		"max_rounds", "max_calls", "deadline_ns", "concurrency", "stream_mode", "tool_parallelism", "catalog_ttl_ns",
		"tool_result_max_bytes", "tool_arg_validation", "tool_error_mode", "on_limit", "doom_loop", "doom_threshold", "doom_failures", "dropped_params", "rate",
	}
	var got map[string]any
	if err := (asJSON{&got}).Scan(text); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing: renaming a setting needs a migration of orgs.runtime", name)
		}
	}
}

// Lag returns how long the oldest write waits. The gateway refuses work if that
// is too long. // R11
func TestLagIsTheAgeOfTheOldestWrite(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "store.db")})
	waitForNoLag(t, s) // opening the store also writes
	release := blockWriter(t, s)
	second := &write{do: func(*tx) error { return nil }, awaited: true}
	if err := s.writer.submit(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	waited := time.Since(second.since) // the first one, longer
	if lag := s.Lag("a"); lag < waited {
		t.Errorf("it is behind by %v, want at least %v", lag, waited)
	}
	release()
	if err := second.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitForNoLag(t, s)
}

// Small writes wait for one large write at most, the large writes of orgs have their turns, and
// their time counts for their orgs only. // K07
func TestLargeWritesKeepNoOtherOrgWaiting(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "store.db")})
	waitForNoLag(t, s)
	release := blockWriter(t, s)
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	lags := map[string]time.Duration{}
	submit := func(org string, size int) {
		one := &write{org: org, size: size, awaited: true, do: func(*tx) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, org)
			if org == "large" && len(order) == 1 {
				time.Sleep(time.Millisecond)
				lags["large"], lags["small"] = s.Lag("large"), s.Lag("small")
			}
			return nil
		}}
		all.Go(func() {
			if err := errors.Join(s.writer.submit(t.Context(), one), one.wait(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	waiting := func(org string, n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			s.writer.gate.mu.Lock()
			got := len(s.writer.gate.waiting[org])
			s.writer.gate.mu.Unlock()
			if got == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d large writes of %s wait, want %d", got, org, n)
			}
		}
	}
	for range 5 {
		submit("large", 2*gateRoom)
	}
	waiting("large", 4)
	submit("other", gateRoom)
	waiting("other", 1)
	small := &write{org: "small", size: 100, awaited: true, do: func(*tx) error { order = append(order, "small"); return nil }}
	if err := s.writer.submit(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	release()
	all.Wait()
	waitForNoLag(t, s)
	want := []string{"large", "small", "large", "other", "large", "large", "large"}
	if !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if lags["large"] == 0 || lags["small"] != 0 {
		t.Errorf("while a large write was written, the lag was %v", lags)
	}
}

// A large write that gives up, or is refused, leaves its turn and its room to others.
func TestALargeWriteThatGivesUpLeavesItsTurn(t *testing.T) {
	var g gate
	first, second, third := &write{org: "a", size: gateRoom}, &write{org: "b", size: gateRoom}, &write{org: "c", size: largeWrite}
	if err := g.enter(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.enter(gone, second); !errors.Is(err, context.Canceled) || g.tryEnter(third) || g.waited("b") != 0 {
		t.Errorf("%v, waiting %v", err, g.waiting)
	}
	if !g.tryEnter(&write{org: "c", size: largeWrite - 1}) {
		t.Error("a small write waits")
	}
	g.leave(first)
	if err := g.enter(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	g.leave(third)
	if g.used != 0 || len(g.turns)+len(g.waiting) != 0 {
		t.Errorf("%d bytes, turns %v, waiting %v", g.used, g.turns, g.waiting)
	}
}

// waitForNoLag waits until everything is stored.
func waitForNoLag(t *testing.T, s *Store) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); s.Lag("a") != 0; {
		if time.Now().After(end) {
			t.Fatalf("the store is behind by %v without work", s.Lag("a"))
		}
		time.Sleep(time.Millisecond)
	}
}
