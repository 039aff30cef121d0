package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// maxHeads is how many runs a store remembers the end of. Those that have
// something in the queue come on top.
const maxHeads = 4096

type runKey struct{ org, run string }

// head is the end of a run's journal as it will be when everything in the queue
// is written. It makes it possible to refuse a writer at once whose batch is not
// waited for: since one process has the file, nobody else writes.
type head struct {
	mu      sync.Mutex
	gone    bool // no longer in the table
	loaded  bool
	epoch   int64
	seq     int64
	summary run.Summary
	held    bool     // something may be set aside for the run
	pending []*write // in order; some may have ended
}

// heads is the table of them. The zero value is empty.
type heads struct {
	mu    sync.Mutex
	byRun map[runKey]*head
}

// lock returns the run's head, locked.
func (t *heads) lock(key runKey) *head {
	for {
		h := t.get(key)
		h.mu.Lock()
		if !h.gone {
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

// raise tells the run's head, if there is one, of a new epoch in the file. Until
// then an append of the old one is refused when it is written.
func (t *heads) raise(key runKey, epoch int64) {
	t.mu.Lock()
	h := t.byRun[key]
	t.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch = max(h.epoch, epoch)
}

// sweep forgets every head that the file can give back. It is called with mu
// held.
func (t *heads) sweep() {
	for key, h := range t.byRun {
		if !h.mu.TryLock() {
			continue
		}
		h.prune()
		if len(h.pending) == 0 {
			h.gone = true
			delete(t.byRun, key)
		}
		h.mu.Unlock()
	}
}

// forget drops a locked head if nothing is left to be written for it.
func (t *heads) forget(key runKey, h *head) {
	h.prune()
	if h.gone || len(h.pending) > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h.gone = true
	delete(t.byRun, key)
}

// prune forgets the writes that have succeeded and reports whether one has
// failed.
func (h *head) prune() (failed bool) {
	kept := h.pending[:0]
	for _, one := range h.pending {
		if one.ended() && one.err == nil {
			continue
		}
		failed = failed || one.ended()
		kept = append(kept, one)
	}
	clear(h.pending[len(kept):])
	h.pending = kept
	return failed
}

func (one *write) ended() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// drain waits until nothing of the run is in the queue.
func (h *head) drain(ctx context.Context) error {
	for _, one := range h.pending {
		select {
		case <-one.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// reset goes back to what the file holds, after a write has failed. It returns
// the first failure that nobody has been told of. Who was fenced off is told so
// by the epoch that the file holds; his successor is not to hear of it.
func (h *head) reset(ctx context.Context) error {
	if err := h.drain(ctx); err != nil {
		return err
	}
	var first error
	for _, one := range h.pending {
		if one.err != nil && !one.waits && first == nil && !errors.Is(one.err, run.ErrFenced) {
			first = fmt.Errorf("an earlier append: %w", one.err)
		}
	}
	h.pending, h.loaded = nil, false
	return first
}

// ready brings a locked head up to date.
func (h *head) ready(ctx context.Context, db querier, key runKey) error {
	if h.prune() {
		if err := h.reset(ctx); err != nil {
			return err
		}
	}
	if h.loaded {
		return nil
	}
	s, epoch, seq, err := readHead(ctx, db, key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	h.summary, h.epoch, h.seq, h.held, h.loaded = s, epoch, seq, seq > 0, true
	return nil
}
