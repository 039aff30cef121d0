package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// recorder collects the audit entries of relays: many become one write, and the
// writer is woken once for all of them.
type recorder struct {
	w *writer

	mu      sync.Mutex
	entries []recorded
	timer   *time.Timer // runs while there are entries
	err     error       // entries could not be stored; nil = nobody has to be told
}

type recorded struct {
	org   string
	entry audit.Entry
}

// Record implements run.Recorder.
func (s *Store) Record(ctx context.Context, orgID string, e audit.Entry) error {
	e, err := e.Encoded()
	if err != nil {
		return err
	}
	return s.wrap("record", s.recorder.add(ctx, recorded{orgID, e}))
}

// add keeps the entry for the next write. Whoever brings the last one that fits
// into it waits until the queue has room. An error is that of an earlier entry.
func (r *recorder) add(ctx context.Context, e recorded) error {
	r.mu.Lock()
	err := r.err
	r.err = nil
	r.entries = append(r.entries, e)
	n := len(r.entries)
	if n == 1 {
		r.timer = time.AfterFunc(linger, func() { r.fail(r.flush(context.Background())) })
	}
	r.mu.Unlock()
	if err == nil && n >= maxGroup {
		err = r.flush(ctx)
	}
	return err
}

// flush puts what was collected into the queue.
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
	one := &write{waits: true, lazy: true, told: r.fail, do: func(t *tx) error {
		rows := make([]audit.Row, 0, len(entries))
		for _, e := range entries {
			var err error
			if rows, err = t.follow(rows, e.org, []audit.Entry{e.entry}); err != nil {
				return err
			}
		}
		return t.insertAudit(rows)
	}}
	return r.w.submit(ctx, one)
}

func (r *recorder) fail(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}
