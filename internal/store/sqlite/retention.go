package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The bounds of one write of retention: others wait for it.
const (
	deleteAtOnce = 100                   // runs
	deleteFor    = 10 * time.Millisecond // no further run is begun after this
	vacuumAtOnce = 256                   // pages
)

// FinishedBefore returns how many runs have ended before the time.
func (r *Reader) FinishedBefore(ctx context.Context, before time.Time) (n int, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT count(*) FROM runs INDEXED BY runs_finished WHERE status = 'done' AND finished_at < ?`,
		before.UnixMilli()).Scan(&n)
	return n, r.wrap("count finished runs", err)
}

// DeleteFinished deletes the runs that have ended before the time, with their
// facts and rows, and gives the space back to the disk. Runs that have not ended
// stay, and so do audit rows. Idempotency keys and handovers that have expired go
// first: no key is left that stands for a run that is gone, which is why no run
// is deleted that is younger than a key may become.
//
// It writes many small transactions, between which others are written. After a
// failure, what was deleted until then stays deleted.
func (s *Store) DeleteFinished(ctx context.Context, before time.Time) (deleted int, err error) {
	now := s.now()
	if youngest := now.Add(-run.SubmitKeyTTL); before.After(youngest) {
		before = youngest
	}
	for _, text := range []string{
		`DELETE FROM submit_keys WHERE rowid IN (SELECT rowid FROM submit_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`,
		`DELETE FROM handovers WHERE rowid IN (SELECT rowid FROM handovers WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`,
	} {
		err := s.repeat(ctx, func(t *tx) (int64, error) { return t.exec(text, now.UnixMilli(), maxSwept) })
		if err != nil {
			return 0, s.wrap("delete what has expired", err)
		}
	}
	err = s.repeat(ctx, func(t *tx) (int64, error) {
		n, err := t.deleteFinished(before.UnixMilli(), now.Add(-run.SubmitKeyTTL).UnixMilli())
		deleted += int(n)
		return n, err
	})
	if err == nil {
		err = s.repeat(ctx, (*tx).vacuum)
	}
	return deleted, s.wrap("delete finished runs", err)
}

// repeat performs the write until it changes nothing.
func (s *Store) repeat(ctx context.Context, do func(*tx) (int64, error)) error {
	for {
		var n int64
		err := s.writer.perform(ctx, func(t *tx) (err error) {
			n, err = do(t)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// deleteFinished deletes a few of the runs that ended before the time, those that
// ended first.
func (t *tx) deleteFinished(before, createdBefore int64) (deleted int64, err error) {
	for began := time.Now(); deleted < deleteAtOnce && time.Since(began) < deleteFor; {
		n, err := t.exec(`DELETE FROM runs WHERE rowid = (SELECT rowid FROM runs INDEXED BY runs_finished
			WHERE status = 'done' AND finished_at < ? AND created_at <= ? ORDER BY finished_at LIMIT 1)`, before, createdBefore)
		if err != nil || n == 0 {
			return deleted, err
		}
		deleted += n
	}
	return deleted, nil
}

// vacuum gives some of the file's unused pages back to the disk, and returns how
// many.
func (t *tx) vacuum() (int64, error) {
	var before, after int64
	if err := t.get(`PRAGMA freelist_count`, nil, &before); err != nil || before == 0 {
		return 0, err
	}
	s, err := t.statement(fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, vacuumAtOnce)) //nolint:sqlclosecheck // it is used again, and closed with t
	if err != nil {
		return 0, err
	}
	rows, err := s.QueryContext(context.Background())
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() { // each is a page
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	err = t.get(`PRAGMA freelist_count`, nil, &after)
	return before - after, err
}
