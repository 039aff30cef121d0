package sqlite

import (
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
	err     error           // entries could not be stored, and no caller knows yet
	left    []recordedEntry // entries that a full disk has left unstored, for the next write

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

// recordTimeout limits how long a caller of add waits for room in the queue.
const recordTimeout = 30 * time.Second

// add adds the entry to the next write. The caller that fills the write submits it,
// and waits until the queue has room. A returned error is that of an earlier entry.
func (r *recorder) add(ctx context.Context, e recordedEntry) error {
	r.mu.Lock()
	err := r.err
	r.err = nil
	if r.entries == nil {
		r.entries, r.spare = r.spare, nil
	}
	r.entries = append(r.entries, e)
	n := len(r.entries)
	if n == 1 {
		r.startTimer()
	}
	r.mu.Unlock()
	if err == nil && n >= maxGroup {
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		err = r.flush(ctx)
	}
	return err
}

// startTimer makes the collected entries be submitted after collectTime. It is called with
// mu held.
func (r *recorder) startTimer() {
	if r.timer == nil {
		r.timer = time.AfterFunc(collectTime, func() { r.setError(r.flush(context.Background())) })
		return
	}
	r.timer.Reset(collectTime)
}

// flush submits the collected entries. It does not wait until they are stored.
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
	one := &write{awaited: true, deferSync: true, plain: true, do: func(t *tx) error { return r.store(t, entries) }}
	one.onDone = func(err error) { r.done(entries, err) }
	return r.w.submit(ctx, one)
}

// store stores the entries, in the writer's goroutine.
func (r *recorder) store(t *tx, entries []recordedEntry) error {
	rows := r.rows[:0]
	for i := range entries {
		var err error
		if rows, err = t.nextRows(rows, entries[i].org, []audit.Entry{entries[i].entry}); err != nil {
			return err
		}
	}
	err := t.insertAudit(rows)
	clear(rows) // their texts are not needed any longer
	r.rows = rows
	return err
}

// maxLeft is how many entries wait for space on the disk. Relays are refused while it is full, so
// there are few more than were under way.
const maxLeft = maxQueue * maxGroup / 10

// done keeps the error of a write, and the room of its entries. After a write for which the disk
// had no space it keeps the entries; the next write includes them, and its success ends the error.
func (r *recorder) done(entries []recordedEntry, err error) {
	r.setError(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if isLackOfSpace(err) && len(r.left)+len(entries) <= maxLeft {
		r.left = append(r.left, entries...)
		return
	}
	if err == nil && len(r.left) == 0 && isLackOfSpace(r.err) {
		r.err = nil
	}
	clear(entries)
	if r.spare == nil {
		r.spare = entries[:0]
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
