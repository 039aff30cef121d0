package directory

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/database/sqlitetest"
)

// troubled is a store of orgs whose keys can be made unreadable, and that counts
// how often they are read.
type troubled struct {
	*database.Store

	mu    sync.Mutex
	err   error
	reads map[string]int
	hold  map[string]chan struct{} // a read of the org's keys waits for it
}

func (s *troubled) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Keys implements org.Store.
func (s *troubled) Keys(ctx context.Context, orgID string) ([]org.Key, error) {
	keys, err := s.Store.Keys(ctx, orgID)
	s.mu.Lock()
	s.reads[orgID]++
	hold := s.hold[orgID]
	if s.err != nil {
		err = s.err
	}
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return keys, err
}

// testDirectory returns the directory of the orgs a and b, each of which has the
// key of its name.
func testDirectory(t *testing.T) (*Directory, *troubled) {
	t.Helper()
	store := &troubled{Store: sqlitetest.Open(t, database.Options{}), reads: map[string]int{}, hold: map[string]chan struct{}{}}
	for _, id := range []string{"a", "b"} {
		if err := store.CreateOrg(t.Context(), org.Record{ID: id}, org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := store.CreateKey(t.Context(), org.Key{Org: id, ID: "k", Hash: sha256.Sum256([]byte(id))}, org.Author{}); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	tools := catalog.New(catalog.Options{})
	d, err := New(t.Context(), Options{Store: store, Pool: mcppool.New(mcppool.Options{Log: log}), Catalog: tools, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		tools.Close()
	})
	return d, store
}

func (d *Directory) knows(key string) bool {
	_, ok := d.Authenticate(context.Background(), key)
	return ok
}

func TestAChangeWhoseReloadFailsIsReloadedUntilItHolds(t *testing.T) { // A07
	synctest.Test(t, func(t *testing.T) {
		d, store := testDirectory(t)
		if err := store.RevokeKey(t.Context(), "a", "k", 1, org.Author{}); err != nil {
			t.Fatal(err)
		}
		trouble := errors.New("the disk is slow")
		store.fail(trouble)
		if err := d.Reload(t.Context(), "a"); !errors.Is(err, trouble) {
			t.Errorf("the failed reload returned %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_ = d.Reload(gone, "a") // who asked again has left
		time.Sleep(time.Minute)
		if !d.knows("a") {
			t.Error("the key is gone before the store could be read")
		}
		store.fail(nil)
		time.Sleep(longPause)
		if d.knows("a") {
			t.Error("the revoked key still works after the store can be read")
		}
		reads := store.reads["a"]
		time.Sleep(time.Minute)
		if store.reads["a"] != reads || !d.knows("b") {
			t.Error("the directory goes on reading, or has lost another org")
		}
	})
}

func TestChangesOfOneOrgShareReloadsAndLeaveOthersAlone(t *testing.T) { // A07
	synctest.Test(t, func(t *testing.T) {
		d, store := testDirectory(t)
		before := store.reads["b"]
		hold := make(chan struct{})
		store.mu.Lock()
		store.hold["a"], store.reads["a"] = hold, 0
		store.mu.Unlock()
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				if err := d.Reload(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // one load is under way, and 99 wait for the next at most
		if err := d.Reload(t.Context(), "b"); err != nil {
			t.Errorf("the reload of another org: %v", err)
		}
		if !d.knows("a") || !d.knows("b") {
			t.Error("a key does not work during a reload")
		}
		close(hold)
		group.Wait()
		if got := store.reads["a"]; got > 3 {
			t.Errorf("100 reloads at the same time read the org %d times", got)
		}
		if got := store.reads["b"] - before; got != 1 {
			t.Errorf("the other org was read %d times for one reload", got)
		}
	})
}

func TestADeletedOrgLeavesNothingBehindInTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := testDirectory(t)
		if err := store.DeleteOrg(t.Context(), "a", org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := d.Reload(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, kept := d.entries["a"]; kept || d.knows("a") {
			t.Error("the deleted org is still there")
		}
		if _, ok := d.keys.Load(sha256.Sum256([]byte("a"))); ok {
			t.Error("its key is still in the index")
		}
		if err := store.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := store.CreateKey(t.Context(), org.Key{Org: "a", ID: "k", Hash: sha256.Sum256([]byte("again"))}, org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := d.Reload(t.Context(), "a"); err != nil || !d.knows("again") || d.knows("a") {
			t.Errorf("created again, the org has %v %v, %v", d.knows("again"), d.knows("a"), err)
		}
	})
}

// A key that another replica has added is looked up once, however many requests come with it. // A01
func TestAnUnknownKeyIsLookedUpInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := testDirectory(t)
		var mu sync.Mutex
		asked := 0
		find := func(_ context.Context, hash [sha256.Size]byte) (string, error) {
			mu.Lock()
			asked++
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			for _, id := range []string{"a", "b"} {
				keys, err := store.Keys(context.Background(), id)
				if err != nil {
					return "", err
				}
				for _, k := range keys {
					if k.Hash == hash {
						return id, nil
					}
				}
			}
			return "", org.ErrNotFound
		}
		d.options.Find, d.unknown.find = find, find
		added := org.Key{Org: "b", ID: "new", Hash: sha256.Sum256([]byte("new"))}
		if err := store.CreateKey(t.Context(), added, org.Author{}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if !d.knows("new") {
					t.Error("a key that is stored is not known")
				}
			})
		}
		all.Wait()
		if asked != 1 {
			t.Errorf("the store was asked %d times", asked)
		}
		if err := store.RevokeKey(t.Context(), "b", "new", 1, org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := d.ReloadAll(t.Context(), []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		asked = 0
		for range 10 {
			if d.knows("new") {
				t.Error("a key that was revoked is known")
			}
		}
		if asked != 1 {
			t.Errorf("the store was asked %d times for a key that was revoked", asked)
		}
		time.Sleep(time.Minute)
		asked = 0
		for range 5 {
			if d.knows("guess") {
				t.Error("a key that is not stored is known")
			}
			time.Sleep(missedFor - 1)
		}
		if asked != 3 {
			t.Errorf("the store was asked %d times for a key that it does not have, in 8 seconds", asked)
		}
	})
}

// Guesses of keys do not load the store. // A01 S05
func TestFewUnknownKeysAreLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := testDirectory(t)
		asked := 0
		find := func(context.Context, [sha256.Size]byte) (string, error) {
			asked++
			return "", org.ErrNotFound
		}
		d.options.Find, d.unknown.find = find, find
		for i := range 10_000 {
			d.knows(fmt.Sprint("guess", i))
			time.Sleep(time.Millisecond)
		}
		if asked < 110 || asked > 120 {
			t.Errorf("the store was asked %d times in 10 seconds, want 20 and then 10 each second", asked)
		}
		if n := len(d.unknown.missed); n > maxMissed {
			t.Errorf("%d keys are remembered", n)
		}
		if !d.knows("a") {
			t.Error("a key that is known is not")
		}
	})
}

// The settings of agents are never in the file: what is stored of them holds, whatever the file has of the org.
func TestTheFileKeepsTheStoredSettingsOfAgents(t *testing.T) {
	d, store := testDirectory(t)
	set := func(steps int) {
		t.Helper()
		if err := store.ChangeSettings(t.Context(), "a", func(a *org.Agents) { a.MaxSteps = steps }, org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := d.Reload(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	check := func(steps, concurrency int) {
		t.Helper()
		if got := d.Runtime("a"); got.Agents.MaxSteps != steps || got.Concurrency != concurrency {
			t.Errorf("the settings are %+v, want %d steps and a concurrency of %d", got, steps, concurrency)
		}
	}
	set(3)
	check(3, 0)
	for n := range 3 { // a reload of the file
		file := org.File{Orgs: map[string]org.FromFile{"a": {
			Org: true, Runtime: true, Record: org.Record{ID: "a", Runtime: org.Runtime{Concurrency: 7 + n}},
		}}}
		if err := d.SetFromFile(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		check(3+n, 7+n)
		set(4 + n)
		check(4+n, 7+n)
	}
	if err := d.SetFromFile(t.Context(), org.File{}); err != nil {
		t.Fatal(err)
	}
	check(6, 0)
}
