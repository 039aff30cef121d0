package sqlite

import (
	"context"
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
	timer   *time.Timer // runs while there are entries
	err     error       // entries could not be stored, and no caller knows yet
}

type recordedEntry struct {
	org   string
	entry audit.Entry
}

// Record implements run.Recorder.
func (s *Store) Record(ctx context.Context, orgID string, e audit.Entry) error {
	e, err := e.Encoded()
	if err != nil {
		return err
	}
	return s.wrap("record", s.recorder.add(ctx, recordedEntry{orgID, e}))
}

// add adds the entry to the next write. The caller that fills the write submits it,
// and waits until the queue has room. A returned error is that of an earlier entry.
func (r *recorder) add(ctx context.Context, e recordedEntry) error {
	r.mu.Lock()
	err := r.err
	r.err = nil
	r.entries = append(r.entries, e)
	n := len(r.entries)
	if n == 1 {
		r.timer = time.AfterFunc(collectTime, func() { r.setError(r.flush(context.Background())) })
	}
	r.mu.Unlock()
	if err == nil && n >= maxGroup {
		err = r.flush(ctx)
	}
	return err
}

// flush submits the collected entries. It does not wait until they are stored.
func (r *recorder) flush(ctx context.Context) error {
	r.mu.Lock()
	entries := r.entries
	r.entries = nil
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	one := &write{awaited: true, deferSync: true, onDone: r.setError, do: func(t *tx) error {
		rows := make([]audit.Row, 0, len(entries))
		for _, e := range entries {
			var err error
			if rows, err = t.nextRows(rows, e.org, []audit.Entry{e.entry}); err != nil {
				return err
			}
		}
		return t.insertAudit(rows)
	}}
	return r.w.submit(ctx, one)
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
