package database

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// recorder collects the audit entries of relays into one write, to wake the writer
// once for many of them.
type recorder struct {
	w *writer

	mu      sync.Mutex // guards the fields below
	entries []recordedEntry
	spare   []recordedEntry // empty; its room is used for the next write
	timer   *time.Timer     // runs while there are entries
	err     error           // entries are lost, and no caller knows yet
	full    error           // the disk had no space for entries of left, and no caller knows yet
	left    []recordedEntry // entries that no write has stored, for the next one

	rows []audit.Row // room for the rows of a write; owned by the writer's goroutine
}

type recordedEntry struct {
	org   string
	entry audit.Entry
}

// Record implements journal.Recorder.
func (s *Store) Record(ctx context.Context, orgID string, e audit.Entry) error {
	e, err := e.Encoded()
	if err != nil {
		return err
	}
	return s.wrap("record", s.recorder.add(ctx, recordedEntry{orgID, e}))
}

// RecordNow implements mcpserver.Audit.
func (s *Store) RecordNow(ctx context.Context, orgID string, e audit.Entry) error {
	if err := s.recorder.flush(ctx); err != nil { // the row comes after those that were recorded before
		return s.wrap("record", err)
	}
	return s.wrap("record", s.writer.perform(ctx, orgID, func(t *tx) error { return t.addAudit(orgID, []audit.Entry{e}) }))
}

// leftRetry is how often entries that were left are written again. Without it, they would wait
// for the next relay, which would get an error of a time that is over.
const leftRetry = time.Second

// recordTimeout limits how long a caller of add waits for room in the queue.
const recordTimeout = 30 * time.Second

// add adds the entry to the next write. The caller that fills the write submits it,
// and waits until the queue has room. A returned error is that of an earlier entry.
func (r *recorder) add(ctx context.Context, e recordedEntry) error {
	r.mu.Lock()
	err := cmp.Or(r.err, r.full)
	r.err, r.full = nil, nil
	if r.entries == nil {
		r.entries, r.spare = r.spare, nil
	}
	r.entries = append(r.entries, e)
	n := len(r.entries)
	if n == 1 {
		r.flushAfter(collectTime)
	}
	r.mu.Unlock()
	if err == nil && n >= maxGroup {
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		err = r.flush(ctx)
	}
	return err
}

// flushAfter submits the entries after the delay. It is called with mu held.
func (r *recorder) flushAfter(delay time.Duration) {
	if r.timer == nil {
		r.timer = time.AfterFunc(delay, func() { r.setError(r.flush(context.Background())) })
		return
	}
	r.timer.Reset(delay)
}

// flush submits the collected entries. It does not wait until they are stored. If ctx ends first,
// it keeps them for the next flush.
func (r *recorder) flush(ctx context.Context) error {
	r.mu.Lock()
	entries := r.entries
	r.entries = nil
	if len(r.left) > 0 {
		entries, r.left = slices.Concat(r.left, entries), nil
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	var first error
	for orgID, of := range r.byLane(entries) {
		one := &write{awaited: true, deferSync: true, plain: true, org: orgID, do: func(t *tx) error { return r.store(t, of) }}
		one.onDone = func(err error) { r.done(of, err) }
		err := r.w.submit(ctx, one)
		if err != nil && ctx.Err() != nil { // the queue had no room in time: they are written later
			r.mu.Lock()
			r.keep(of)
			r.mu.Unlock()
		}
		first = cmp.Or(first, err)
	}
	return first
}

// byLane returns the entries of each write: one of all on a file, and one of each org on a server.
func (r *recorder) byLane(entries []recordedEntry) map[string][]recordedEntry {
	if r.w.lanes == nil {
		return map[string][]recordedEntry{noOrg: entries}
	}
	out := map[string][]recordedEntry{}
	for _, e := range entries {
		out[e.org] = append(out[e.org], e)
	}
	return out
}

// store stores the entries, in the writer's goroutine.
func (r *recorder) store(t *tx, entries []recordedEntry) error {
	rows := r.rows[:0]
	if t.remote != nil { // writes of several orgs use it at the same time
		rows = nil
	}
	for i := range entries {
		var err error
		if rows, err = t.nextRows(rows, entries[i].org, []audit.Entry{entries[i].entry}); err != nil {
			return err
		}
	}
	err := t.insertAudit(rows)
	if t.remote == nil {
		clear(rows) // their texts are not needed any longer
		r.rows = rows
	}
	return err
}

// maxLeft is how many entries wait for space on the disk, or for room in the queue. Relays are
// refused while the disk is full, so there are few more than were under way.
const maxLeft = maxQueue * maxGroup / 10

// done takes the result of a write, and the room of its entries. After a write for which the disk
// had no space it keeps the entries for the next one. A write that succeeds ends the error of
// those before it: the disk has space again.
func (r *recorder) done(entries []recordedEntry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case isLackOfSpace(err) && r.keep(entries):
		r.full = err
		return
	case err != nil:
		r.err = err
	default:
		r.full = nil
		r.writeLeft(collectTime)
	}
	clear(entries)
	if r.spare == nil {
		r.spare = entries[:0]
	}
}

// keep keeps the entries for the next write, or returns false if too many wait. It is called with
// mu held.
func (r *recorder) keep(entries []recordedEntry) bool {
	if len(r.left)+len(entries) > maxLeft {
		return false
	}
	r.left = append(r.left, entries...)
	r.writeLeft(leftRetry)
	return true
}

// writeLeft submits the entries of left after the delay, unless new entries do so earlier. It is
// called with mu held.
func (r *recorder) writeLeft(delay time.Duration) {
	if len(r.left) > 0 && len(r.entries) == 0 {
		r.flushAfter(delay)
	}
}

// setError keeps err for the next caller of add.
func (r *recorder) setError(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}
