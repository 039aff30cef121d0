package database

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// fullError is SQLite's error for a full disk.
type fullError struct{}

func (fullError) Error() string { return "database or disk is full" }
func (fullError) Code() int     { return sqlite3.SQLITE_FULL }

// fullStore is a store whose commits fail while full is set.
type fullStore struct {
	*Store
	full     atomic.Bool
	failed   atomic.Int64 // commits
	retained atomic.Int64 // bytes that are charged to runs
	onFail   func()       // called by a commit that fails; nil = not called
}

func newFullStore(t *testing.T) *fullStore {
	t.Helper()
	f := &fullStore{Store: openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})}
	perform(t, f.Store, func(tx *tx) error {
		tx.commit = func() error {
			if !f.full.Load() {
				return tx.commitNow()
			}
			f.failed.Add(1)
			if f.onFail != nil {
				f.onFail()
			}
			return fullError{}
		}
		return nil
	})
	return f
}

func (f *fullStore) append(ctx context.Context, lease journal.Lease, seq int64, sync bool) error {
	b := unsyncedBatch(seq, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})
	b.Sync = sync
	if !sync {
		b.Retain = func(bytes int) { f.retained.Add(int64(bytes)) }
	}
	return f.Append(ctx, lease, seq-1, b)
}

// fallDue queues what the run holds back, as its timer does, and waits for the result.
func (f *fullStore) fallDue(t *testing.T, key runKey) {
	t.Helper()
	h := f.heads.lock(key)
	defer h.mu.Unlock()
	if h.held == nil {
		return
	}
	if err := h.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, one := range h.pending {
		<-one.done
	}
}

func (f *fullStore) checkNothingRetained(t *testing.T) {
	t.Helper()
	if n := f.retained.Load(); n != 0 {
		t.Errorf("%d bytes are still charged to the run", n)
	}
}

// A disk that is full between any two moments of a light run, in which nothing waits for
// the disk, costs the run nothing: no later append returns an error, and every batch is stored. // R18
func TestALightRunDoesNotNoticeThatTheDiskWasFull(t *testing.T) {
	const steps = 4 // batches without Sync, numbers 2 to 5
	for begin := range steps {
		for end := begin + 1; end <= steps; end++ {
			for due := range steps { // after which step the first batches fall due
				for _, probed := range []bool{false, true} {
					t.Run(fmt.Sprintf("from %d to %d, due at %d, probed %t", begin, end, due, probed), func(t *testing.T) {
						f := newFullStore(t)
						lease := beginHeld(t, f.Store)
						key := runKey{lease.Org, lease.RunID}
						for i := range steps {
							if i == end {
								f.recover(t, probed)
							}
							f.full.Store(i >= begin && i < end)
							if err := f.append(t.Context(), lease, int64(i+2), false); err != nil {
								t.Fatalf("batch %d: %v", i, err)
							}
							if i >= due {
								f.fallDue(t, key)
							}
							if i >= begin && i < end && i >= due && f.retained.Load() == 0 {
								t.Error("the run is not charged for what waits for space")
							}
						}
						f.recover(t, probed)
						if err := f.append(t.Context(), lease, steps+2, true); err != nil {
							t.Fatalf("the store is healthy again, and says %v", err)
						}
						checkStory(t, f.Store, steps+2, steps+1)
						f.checkNothingRetained(t)
					})
				}
			}
		}
	}
}

// recover gives the disk space again. The keeper of leases may notice before the run does.
func (f *fullStore) recover(t *testing.T, probed bool) {
	t.Helper()
	f.full.Store(false)
	if !probed {
		return
	}
	if err := f.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	f.checkNothingRetained(t)
}

// The run's next batch is in the queue already when the disk has space again.
func TestABatchInTheQueueBringsTheOneThatFailed(t *testing.T) { // R18
	f := newFullStore(t)
	lease := beginHeld(t, f.Store)
	key := runKey{lease.Org, lease.RunID}
	if err := f.append(t.Context(), lease, 2, false); err != nil {
		t.Fatal(err)
	}
	queued := make(chan error, 1)
	f.onFail = func() { // in the middle of the commit of the first
		go func() { queued <- f.append(context.WithoutCancel(t.Context()), lease, 3, true) }()
		for len(f.writer.queue) == 0 {
			runtime.Gosched()
		}
		f.full.Store(false)
	}
	f.full.Store(true)
	h := f.heads.lock(key)
	err := h.flush(t.Context())
	h.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-queued:
		if err != nil {
			t.Errorf("the store is healthy again, and says %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("no result")
	}
	if n := f.failed.Load(); n != 1 {
		t.Errorf("%d commits failed, want 1", n)
	}
	checkStory(t, f.Store, 3, 2)
	f.checkNothingRetained(t)
}

// While the disk is full, a caller that waits for it gets the error.
func TestAWriteThatIsAwaitedSaysThatTheDiskIsFull(t *testing.T) { // R18
	f := newFullStore(t)
	lease := beginHeld(t, f.Store)
	key := runKey{lease.Org, lease.RunID}
	if err := f.append(t.Context(), lease, 2, false); err != nil {
		t.Fatal(err)
	}
	f.full.Store(true)
	f.fallDue(t, key)
	if err := f.append(t.Context(), lease, 3, true); !errors.Is(err, org.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	f.checkNothingRetained(t)
	f.full.Store(false)
	if err := f.append(t.Context(), lease, 2, true); err != nil {
		t.Errorf("the run cannot continue: %v", err)
	}
	checkStory(t, f.Store, 2, 1)
}

// A new owner of the run does not get what the former one could not write.
func TestANewOwnerGetsNothingThatWaitsForSpace(t *testing.T) {
	f := newFullStore(t)
	lease := beginHeld(t, f.Store)
	if err := f.append(t.Context(), lease, 2, false); err != nil {
		t.Fatal(err)
	}
	f.full.Store(true)
	f.fallDue(t, runKey{lease.Org, lease.RunID})
	f.full.Store(false)
	next := lease
	next.Epoch, next.Owner = 2, "other"
	b := unsyncedBatch(2, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})
	b.Sync = true
	var behind *journal.Behind
	if err := f.Append(t.Context(), next, 1, b); err != nil && !errors.As(err, &behind) {
		t.Errorf("got %v", err)
	}
	f.checkNothingRetained(t)
}

// relay records the row of a relay.
func (f *fullStore) relay(t *testing.T, n int64) error {
	t.Helper()
	return f.Record(t.Context(), "a", audit.Entry{Kind: "k", At: n, Body: n})
}

// relayOnFullDisk records row 1 while the disk is full, and calls meanwhile in the middle of its
// write, after which the disk has space again. It returns when the write has failed.
func (f *fullStore) relayOnFullDisk(t *testing.T, meanwhile func()) {
	t.Helper()
	f.onFail = func() {
		meanwhile()
		f.full.Store(false)
	}
	f.full.Store(true)
	if err := f.relay(t, 1); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * collectTime)
	synctest.Wait()
	if n := f.failed.Load(); n != 1 {
		t.Fatalf("%d commits failed, want 1", n)
	}
}

// checkRelays records the row of another relay, which must see no error, and checks that all
// rows are stored.
func (f *fullStore) checkRelays(t *testing.T, n int) {
	t.Helper()
	if err := f.relay(t, int64(n)); err != nil {
		t.Errorf("the store is healthy again, and says %v", err)
	}
	time.Sleep(2 * collectTime)
	synctest.Wait()
	rows, err := f.AuditRows(t.Context(), "a", audit.Query{})
	if err != nil || len(rows) != n {
		t.Errorf("%d rows, %v, want %d", len(rows), err, n)
	}
}

// The rows of relays wait for space, too, and their error ends when the keeper of leases finds
// that the store can be written, also if it looks while the write of the rows is about to fail.
func TestTheRowsOfRelaysWaitForSpace(t *testing.T) { // R18
	for name, during := range map[string]bool{"probed after the write": false, "probed during the write": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFullStore(t)
				probed := make(chan error, 1)
				probe := func() { probed <- f.Probe(t.Context()) }
				f.relayOnFullDisk(t, func() {
					if !during {
						return
					}
					go probe()
					for len(f.writer.queue) == 0 {
						runtime.Gosched()
					}
				})
				if !during {
					probe()
				}
				if err := <-probed; err != nil {
					t.Fatal(err)
				}
				f.checkRelays(t, 2)
			})
		})
	}
}

// A relay whose row is stored although it follows one that was not ends the error of that.
func TestARowThatIsStoredEndsTheErrorOfTheOneBefore(t *testing.T) { // R18
	synctest.Test(t, func(t *testing.T) {
		f := newFullStore(t)
		f.relayOnFullDisk(t, func() {
			if err := f.relay(t, 2); err != nil {
				t.Error(err)
			}
			if err := f.recorder.flush(t.Context()); err != nil { // its write is queued behind the one that fails
				t.Error(err)
			}
		})
		f.checkRelays(t, 3)
	})
}

// Rows that wait for space are stored without another relay: the next one, which may come hours
// later, gets no error of this time.
func TestRowsThatWaitForSpaceNeedNoOtherRelay(t *testing.T) { // R18
	synctest.Test(t, func(t *testing.T) {
		f := newFullStore(t)
		f.relayOnFullDisk(t, func() {})
		time.Sleep(time.Hour)
		synctest.Wait()
		f.checkRelays(t, 2)
	})
}

// While the disk stays full, each failed write is reported once, to the next relay.
func TestARelayLearnsThatTheDiskIsFull(t *testing.T) { // R18
	synctest.Test(t, func(t *testing.T) {
		f := newFullStore(t)
		f.relayOnFullDisk(t, func() {})
		f.full.Store(true)
		if err := f.relay(t, 2); !errors.Is(err, org.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if err := f.relay(t, 3); err != nil {
			t.Errorf("the same error again: %v", err)
		}
		f.full.Store(false)
		time.Sleep(2 * collectTime)
		f.checkRelays(t, 4)
	})
}

// The rows of relays wait for room in the queue as well: a caller whose time ends before loses none.
func TestTheRowsOfRelaysWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFullStore(t)
		for range maxQueue {
			f.writer.slots <- struct{}{}
		}
		if err := f.relay(t, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.SyncAudit(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		for range maxQueue {
			<-f.writer.slots
		}
		f.checkRelays(t, 2)
	})
}
