package database

import (
	"crypto/ed25519"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// recordRelay records a relayed request and waits until it is committed, but not synced.
func recordRelay(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Record(t.Context(), "a", audit.Entry{Kind: audit.KindRequest, Body: audit.Request{}}); err != nil {
		t.Fatal(err)
	}
	if err := s.recorder.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := &write{awaited: true, deferSync: true, do: func(*tx) error { return nil }}
	if err := s.writer.submit(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := last.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func openInBubble(t *testing.T) (*Store, func() int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	return s, func() int { return disk.of(path) }
}

func TestARunIsSyncedAfterARelayWasNot(t *testing.T) { // K03
	synctest.Test(t, func(t *testing.T) {
		s, syncs := openInBubble(t)
		beginRun(t, s, "a", "first")
		for i := range 3 {
			before := syncs()
			recordRelay(t, s)
			if n := syncs() - before; n != 0 {
				t.Fatalf("relay %d was synced %d times at once, want a deferred sync", i, n)
			}
			beginRun(t, s, "a", fmt.Sprint("run ", i))
			if n := syncs() - before; n != 1 {
				t.Fatalf("the run after relay %d was synced %d times, want 1", i, n)
			}
		}
	})
}

func TestAGroupIsSyncedIfOneOfItsWritesMustBe(t *testing.T) {
	must := func() *write {
		return &write{awaited: true, do: func(t *tx) error {
			_, err := t.exec(`INSERT OR REPLACE INTO probes (id, body) VALUES (1, zeroblob(10))`)
			return err
		}}
	}
	deferred := func() *write {
		one := must()
		one.deferSync = true
		return one
	}
	for name, c := range map[string]struct {
		group []*write
		syncs int
	}{
		"the first one": {[]*write{must(), deferred(), deferred()}, 1},
		"one of them":   {[]*write{deferred(), must(), deferred()}, 1},
		"the last one":  {[]*write{deferred(), deferred(), must()}, 1},
		"none of them":  {[]*write{deferred(), deferred(), deferred()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, syncs := openInBubble(t)
				beginRun(t, s, "a", "r")
				before := syncs()
				release := blockWriter(t, s)
				for _, one := range c.group {
					if err := s.writer.submit(t.Context(), one); err != nil {
						t.Fatal(err)
					}
				}
				release()
				for _, one := range c.group {
					if err := one.wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if n := syncs() - before; n != c.syncs {
					t.Errorf("%d syncs, want %d", n, c.syncs)
				}
			})
		})
	}
}

// The row of a relay is on disk within a second, whatever the writer does.
func TestARelayIsSyncedWithinASecond(t *testing.T) { // L07
	for name, meanwhile := range map[string]func(*testing.T, *Store){
		"while nothing else happens": func(*testing.T, *Store) {},
		"while others change nothing": func(t *testing.T, s *Store) {
			for range 19 {
				time.Sleep(50 * time.Millisecond)
				if _, err := s.Claim(t.Context(), "o", 1); err != nil {
					t.Fatal(err)
				}
			}
		},
		"while others fail": func(t *testing.T, s *Store) {
			for range 19 {
				time.Sleep(50 * time.Millisecond)
				if err := s.RevokeKey(t.Context(), "a", "none", 1, org.Author{}); err == nil {
					t.Fatal("a key that does not exist was deleted")
				}
			}
		},
		"while there are more relays": func(t *testing.T, s *Store) {
			for range 19 {
				time.Sleep(50 * time.Millisecond)
				recordRelay(t, s)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, syncs := openInBubble(t)
				beginRun(t, s, "a", "r")
				before, began := syncs(), time.Now()
				recordRelay(t, s)
				meanwhile(t, s)
				time.Sleep(time.Second - time.Since(began))
				synctest.Wait()
				if n := syncs() - before; n == 0 {
					t.Error("a relay's row is not on disk after a second")
				}
				after := syncs()
				time.Sleep(time.Minute)
				if n := syncs() - after; n > 1 {
					t.Errorf("%d syncs while the store is idle, want at most one", n)
				}
			})
		})
	}
}

// A sync that fails because the disk is full is tried again.
func TestAFailedSyncIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, syncs := openInBubble(t)
		beginRun(t, s, "a", "r")
		synctest.Wait()
		var failing atomic.Bool
		var tried atomic.Int32
		commit := s.writer.tx.commitNow
		s.writer.tx.commit = func() error { // addUsage from the next relay on
			if failing.Load() && tried.Add(1) < 4 {
				return codeError(13) // SQLITE_FULL
			}
			return commit()
		}
		recordRelay(t, s)
		synctest.Wait()
		before := syncs()
		failing.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := syncs() - before; n != 1 || tried.Load() != 4 {
			t.Errorf("%d commits were tried and %d synced, want four tries and the last one synced", tried.Load(), n)
		}
	})
}

// A checkpoint in the witness never refers to a row that a power failure can undo.
func TestACheckpointFollowsTheDisk(t *testing.T) { // P09
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "turnpike.db")
		disk.watch(t, filepath.Dir(path))
		s := openStore(t, Options{Path: path})
		beginRun(t, s, "a", "r")
		recordRelay(t, s)
		recordRelay(t, s)
		seen := 0
		k := audit.NewKeeper(audit.KeeperOptions{
			Log: s, Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Witness: func(c audit.Checkpoint) error {
				seen++
				heads, err := openStore(t, Options{Path: disk.cutPower(t, path)}).AuditHeads(t.Context())
				if err != nil || len(heads) != 1 || heads[0].Number < c.Number {
					t.Errorf("after a power failure the disk has %+v, %v; the checkpoint is for row %d", heads, err, c.Number)
				}
				return nil
			},
		})
		k.Start()
		if err := k.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen != 1 {
			t.Errorf("%d checkpoints, want 1", seen)
		}
	})
}

// Under constant load there is no idle time in which to sync.
func TestALazyGroupIsSyncedWhenAnEarlierOneIsOld(t *testing.T) {
	for name, c := range map[string]struct {
		age time.Duration
		may bool
	}{"young": {maxUnsynced / 2, true}, "old": {maxUnsynced, false}} {
		t.Run(name, func(t *testing.T) {
			tx := tx{unsynced: time.Now().Add(-c.age)}
			if may := tx.mayDeferSync([]*write{{deferSync: true}}); may != c.may {
				t.Errorf("the sync may be deferred: %v, want %v", may, c.may)
			}
		})
	}
}
