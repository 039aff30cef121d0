package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// maxHeads is how many heads a store keeps, not counting those with queued writes.
const maxHeads = 4096

type runKey struct{ org, run string }

func (k runKey) orgOf() string { return k.org }

// head is the end of a run's journal as it will be after all queued writes. It allows
// a batch to be refused at once, before it is written. It stays correct because only
// this process writes to the file.
type head struct {
	mu           sync.Mutex           // guards the fields below
	removed      bool                 // removed from the table; get a new head
	loaded       bool                 // the fields below are valid
	journal.Head                      // except Owner, LeaseUntil and Bytes, which other statements change
	mayReserve   bool                 // the run may have reservations
	names        map[name]struct{}    // see checkNames; nil = not loaded
	assumed      bool                 // the run was not looked up, because it should be new
	pending      []*write             // queued writes in order; some may have ended
	held         *held                // batches that are not queued yet, after pending; nil = none
	broken       int64                // the epoch of an owner that does not know that its batches were lost; 0 = none. See Store.fence
	writer       *writer              // of held
	moved        atomic.Pointer[move] // what the run's owner is to be told at its next append; nil = nothing
}

// heads are the heads by run. The zero value is empty. Lock order: a head's mu may be
// taken before heads.mu; with heads.mu held, only TryLock on a head is allowed.
type heads struct {
	mu    sync.Mutex
	byRun map[runKey]*head
}

// lock returns the run's head, locked. The caller unlocks it.
func (t *heads) lock(key runKey) *head {
	for {
		h := t.get(key)
		h.mu.Lock()
		if !h.removed {
			return h
		}
		h.mu.Unlock()
	}
}

func (t *heads) get(key runKey) *head {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.byRun[key]; ok {
		return h
	}
	if t.byRun == nil {
		t.byRun = map[runKey]*head{}
	}
	if len(t.byRun) >= maxHeads {
		t.sweep()
	}
	h := &head{}
	t.byRun[key] = h
	return h
}

// claimed sets a higher epoch in the run's head, if there is one, and that it runs. Until then, an
// append with the old epoch is refused only when it is written.
func (t *heads) claimed(key runKey, epoch int64) {
	t.mu.Lock()
	h := t.byRun[key]
	t.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Epoch = max(h.Epoch, epoch)
	if h.Summary.Status == journal.Queued {
		h.Summary.Status = journal.Running
	}
}

// reload makes the run's head, if there is one, be loaded again when all batches of the run that are on their way have a result.
func (t *heads) reload(ctx context.Context, key runKey) {
	t.mu.Lock()
	h := t.byRun[key]
	t.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.drain(ctx) // the run's next append gets the error
	if !h.dropSucceeded() && h.idle() {
		h.names, h.loaded = nil, false
	}
}

// restored sets in the run's head, if there is one, that the run is not set aside any more. What
// it holds back was appended before: that leaves the status alone, and is queued first.
func (t *heads) restored(ctx context.Context, key runKey) error {
	t.mu.Lock()
	h := t.byRun[key]
	t.mu.Unlock()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.flush(ctx)
	h.Head, _ = h.Head.Restore()
	return err
}

// flush queues what the run holds back, if there is such a run.
func (t *heads) flush(ctx context.Context, key runKey) error {
	t.mu.Lock()
	h := t.byRun[key]
	t.mu.Unlock()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flush(ctx)
}

// flushAll queues what all runs hold back.
func (t *heads) flushAll(ctx context.Context) error {
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.byRun))
	t.mu.Unlock()
	for _, key := range keys {
		if err := t.flush(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the heads without queued writes, which can be loaded again. It is
// called with t.mu held.
func (t *heads) sweep() {
	for key, h := range t.byRun {
		if !h.mu.TryLock() {
			continue
		}
		h.dropSucceeded()
		if h.idle() && !h.tells() {
			h.removed = true
			delete(t.byRun, key)
		}
		h.mu.Unlock()
	}
}

// remove removes the head if it has no queued writes. It is called with h locked.
func (t *heads) remove(key runKey, h *head) {
	h.dropSucceeded()
	if h.removed || !h.idle() || h.tells() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h.removed = true
	delete(t.byRun, key)
}

// tells reports whether the owner of the run has yet to be told of facts that were moved. It is called with h locked.
func (h *head) tells() bool {
	m := h.moved.Load()
	return m != nil && !(h.loaded && (m.epoch < h.Epoch || h.Summary.Status == journal.Done))
}

// dropSucceeded drops succeeded writes from pending, and reports whether a write has failed.
// A write that a full disk has left unstored has not failed: a later one includes it, and it
// is dropped when that one has a result. It is called with h locked.
func (h *head) dropSucceeded() (failed bool) {
	last := len(h.pending) - 1 // of the writes with a result
	for last >= 0 && !h.pending[last].ended() {
		last--
	}
	kept := h.pending[:0]
	for i, one := range h.pending {
		left := i <= last && one.err != nil && one.unstored != nil
		if i <= last && (one.err == nil || left && i < last) {
			continue
		}
		failed = failed || i <= last && !left
		kept = append(kept, one)
	}
	clear(h.pending[len(kept):])
	h.pending = kept
	return failed
}

// ended reports whether the write was performed or has failed.
func (one *write) ended() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// idle reports whether no batch of the run is on its way to the file. It is called with
// h locked, after dropSucceeded.
func (h *head) idle() bool { return len(h.pending) == 0 && h.held == nil && h.broken == 0 }

// assumeNew makes the head that of a new run if nothing is known about the run. It is
// called with h locked.
func (h *head) assumeNew() {
	if !h.loaded && h.idle() {
		h.Head, h.mayReserve, h.names, h.assumed, h.loaded = journal.Head{}, false, nil, true, true
	}
}

// lastEpoch returns the epoch of the last batch that may not have been written yet, and
// false if there is none. It is called with h locked.
func (h *head) lastEpoch() (epoch int64, ok bool) {
	switch n := len(h.pending); {
	case h.held != nil:
		return h.held.last().lease.Epoch, true
	case n > 0:
		return h.pending[n-1].epoch, true
	}
	return 0, false
}

// drain waits until all batches of the run are written or have failed. If the disk is still
// full, it returns that error. It is called with h locked.
func (h *head) drain(ctx context.Context) error {
	if err := h.flush(ctx); err != nil {
		return err
	}
	for _, one := range h.pending {
		select {
		case <-one.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if h.unstored() != nil {
		return h.pending[len(h.pending)-1].err
	}
	return nil
}

// discard forgets what a full disk has left unstored of a former owner's batches. It is called
// with h locked, after all writes have a result.
func (h *head) discard() {
	for _, p := range h.unstored() {
		p.release()
	}
	h.pending, h.names, h.loaded = nil, nil, false
}

// reset discards the head after a failed write, so that it is loaded again. It
// returns the first error of a write whose caller did not wait for it. ErrFenced is
// not returned: the epoch check already tells the old owner, and the new owner is
// not concerned. It is called with h locked.
func (h *head) reset(ctx context.Context) error {
	if err := h.drain(ctx); err != nil {
		return err
	}
	var first error
	for _, one := range h.pending {
		if one.err == nil || errors.Is(one.err, journal.ErrFenced) {
			continue
		}
		if !one.awaited && first == nil {
			first = earlier(one.err)
		}
		if !one.awaited || errors.Is(one.err, errEarlier) || one.epoch != one.told && !isRefusal(one.err) {
			h.broken = max(h.broken, one.told)
		}
	}
	h.pending, h.names, h.loaded = nil, nil, false
	return first
}

// earlier returns the error for a write that comes after one that has failed with err. That another process has appended
// meanwhile is not told to it: what it was to follow is lost.
func earlier(err error) error {
	if errors.As(err, new(*journal.Behind)) {
		err = fmt.Errorf("%w: another process has appended", journal.ErrAhead)
	}
	return fmt.Errorf("%w: %w", errEarlier, err)
}

var errEarlier = errors.New("an earlier append")

// distrust makes the head be loaded again, unless the lease's owner, which is in this process, has appended last: other processes
// append, too. It is called with h locked.
func (h *head) distrust(lease journal.Lease) {
	if h.dropSucceeded() || !h.idle() || lease.Epoch != 0 && h.loaded && h.Epoch == lease.Epoch {
		return
	}
	h.names, h.loaded = nil, false
}

// load makes the head valid. It is called with h locked.
func (h *head) load(ctx context.Context, db querier, key runKey) error {
	if h.dropSucceeded() {
		if err := h.reset(ctx); err != nil {
			return err
		}
	}
	if h.loaded {
		return nil
	}
	stored, err := readHead(ctx, db, key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	h.Head, h.mayReserve, h.names, h.assumed, h.loaded = stored, stored.Seq > 0, nil, false, true
	return nil
}
