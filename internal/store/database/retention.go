package database

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Limits of one write of retention. Other writes wait for it.
const (
	deleteBatch = 100                   // runs
	deleteTime  = 10 * time.Millisecond // after this time, no further run is deleted
	vacuumBatch = 256                   // pages
	sweepBatch  = 100                   // expired rows of a table; also limits the writes that delete some of them
)

// forgetBatch is how many runs that are to be forgotten are looked for at a time.
const forgetBatch = 10_000

// FinishedBefore returns the number of runs that ended before the given time.
func (r *Reader) FinishedBefore(ctx context.Context, before time.Time) (n int, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT count(*) FROM runs INDEXED BY runs_finished WHERE status = 'done' AND finished_at < ?`,
		before.UnixMilli()).Scan(&n)
	return n, r.wrap("count finished runs", err)
}

// DeleteFinished deletes the runs that ended before the given time, with their facts
// and rows, and returns the freed pages to the file system. It also deletes expired
// idempotency keys and conversations, and windows of budgets that ended before that time, and it does so first: no key may refer to a deleted
// run. For the same reason it keeps runs that are younger than journal.SubmitKeyTTL. Audit
// rows are not deleted.
//
// It uses many small transactions, so that other writes can run in between. After an
// error, what was deleted stays deleted.
func (s *Store) DeleteFinished(ctx context.Context, before time.Time) (deleted int, err error) {
	now := s.now()
	if youngest := now.Add(-journal.SubmitKeyTTL); before.After(youngest) {
		before = youngest
	}
	for _, d := range []due{
		expired("submit_keys", now, "principal", "key"), expired("conversations", now, "principal", "key"), expired("tool_cache", now, "name"),
		{
			table: "budgets", index: "budgets_ended", keys: []string{"scope"}, args: []any{before.UnixMilli()},
			condition: `ends_at > 0 AND ends_at <= ? AND reserved_tokens = 0 AND reserved_nano_usd = 0
				AND NOT EXISTS (SELECT 1 FROM reservations r WHERE r.org = budgets.org AND r.scope = budgets.scope)`,
		},
	} {
		if _, err := s.deleteDue(ctx, d); err != nil {
			return 0, s.wrap("delete what has expired from the "+d.table, err)
		}
	}
	deleted, err = s.deleteDue(ctx, due{
		table: "runs", index: "runs_finished", keys: []string{"run_id"}, order: "finished_at",
		condition: `status = 'done' AND finished_at < ? AND created_at <= ?`,
		args:      []any{before.UnixMilli(), now.Add(-journal.SubmitKeyTTL).UnixMilli()},
	})
	if err == nil {
		err = s.clean(ctx)
	}
	return deleted, s.wrap("delete finished runs", err)
}

// DeleteOrgData deletes what is stored of the orgs that were deleted before the given time,
// except runs that have not ended and audit rows: runs, also those that were set aside,
// conversations, and sums of usage. It calls progress after each org with the number of its runs and
// conversations that are gone.
func (s *Store) DeleteOrgData(ctx context.Context, before time.Time, progress func(orgID string, deleted int)) error {
	ids, err := list(ctx, s.db, scanText, `SELECT org FROM deleted_orgs WHERE deleted_at < ?
		AND NOT EXISTS (SELECT 1 FROM orgs WHERE id = org) ORDER BY org`, before.UnixMilli())
	if err != nil {
		return s.wrap("find deleted orgs", err)
	}
	for _, id := range ids {
		deleted := 0
		for _, d := range []due{ // in the order of their keys, so that no server reads what others have
			{
				table: "runs", keys: []string{"run_id"}, order: "run_id", args: []any{id},
				condition: `org = ? AND status NOT IN ('queued', 'running', 'waiting', 'paused')`,
			},
			{table: "conversations", keys: []string{"principal", "key"}, order: "principal, key", condition: `org = ?`, args: []any{id}},
		} {
			n, err := s.deleteDue(ctx, d)
			if deleted += n; err != nil {
				return s.wrap("delete the data of org "+id, err)
			}
		}
		if deleted > 0 {
			progress(id, deleted)
		}
		if _, err := s.PruneUsage(ctx, id, math.MaxInt64); err != nil {
			return fmt.Errorf("delete the data of org %s: %w", id, err)
		}
		if err := s.writer.perform(ctx, id, func(t *tx) error {
			left, err := t.leftOf(id, 0)
			if err != nil || slices.ContainsFunc(left, func(what string) bool { return what != org.LeftAudit }) {
				return err
			}
			return t.dropOrg(id)
		}); err != nil {
			return s.wrap("delete the data of org "+id, err)
		}
	}
	if len(ids) > 0 {
		err = s.clean(ctx)
	}
	return s.wrap("delete the data of deleted orgs", err)
}

// DeleteLater implements journal.LaterDeleter.
func (s *Store) DeleteLater(ctx context.Context, orgID, runID string) error {
	return s.wrap("forget a run", s.writer.perform(ctx, orgID, func(t *tx) error {
		_, err := t.exec(insertForgotten, orgID, runID)
		return err
	}))
}

// DeleteForgotten deletes the runs that are to be forgotten and whose time is over, as
// [Store.DeleteFinished] deletes others, and returns their number. It looks for them outside
// of its writes: many others can be waiting for the end of their keys. It also deletes what nothing uses any more.
func (s *Store) DeleteForgotten(ctx context.Context) (deleted int, err error) {
	for {
		forgotten, err := s.dueForgotten(ctx)
		if err != nil {
			return deleted, err
		}
		n, err := s.deleteRows(ctx, forgotten, `DELETE FROM runs WHERE org = ? AND run_id = ?`)
		deleted += n
		if err == nil && len(forgotten) == forgetBatch {
			continue
		}
		unused := deleted > 0
		if err == nil && !unused { // those of what was deleted otherwise, or by a process that ended meanwhile
			unused, err = s.unusedLists(ctx)
		}
		if err == nil && unused {
			err = s.clean(ctx)
		}
		return deleted, s.wrap("delete forgotten runs", err)
	}
}

// dueForgotten returns some of the runs that are to be forgotten and whose time is over.
func (s *Store) dueForgotten(ctx context.Context) (found []rowKey, err error) {
	now := s.now()
	found, err = list(ctx, s.db, scanRowKey(1), `SELECT r.org, r.run_id FROM forgotten_runs f
		JOIN runs r ON r.org = f.org AND r.run_id = f.run_id WHERE r.status = 'done' AND r.finished_at < ?
		AND NOT EXISTS (SELECT 1 FROM submit_keys k WHERE k.org = f.org AND k.run_id = f.run_id AND k.expires_at > ?) LIMIT ?`,
		now.Add(-journal.DeleteAfter).UnixMilli(), now.UnixMilli(), forgetBatch)
	return found, s.wrap("find forgotten runs", err)
}

// clean deletes the lists that were used by what was deleted, and returns free pages to the file system.
func (s *Store) clean(ctx context.Context) error {
	if err := s.dropLists(ctx); err != nil {
		return err
	}
	if s.onServer() {
		return nil // its autovacuum does it
	}
	return s.repeatWrite(ctx, noOrg, (*tx).vacuum)
}

// repeatWrite performs the write of an org until it changes no row.
func (s *Store) repeatWrite(ctx context.Context, orgID string, do func(*tx) (int64, error)) error {
	for {
		var n int64
		err := s.writer.perform(ctx, orgID, func(t *tx) (err error) {
			n, err = do(t)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// due are rows of a table that are to be deleted.
type due struct {
	table, index string   // the index is named if SQLite would take another one
	keys         []string // the columns of the primary key after the org
	condition    string   // on rows that are due
	order        string   // which ones come first; "" = any
	args         []any    // of condition
}

// expired are the rows of a table with the column expires_at.
func expired(table string, now time.Time, keys ...string) due {
	return due{table: table, keys: keys, condition: `expires_at <= ?`, order: "expires_at", args: []any{now.UnixMilli()}}
}

// rowKey is the primary key of a row that is of an org.
type rowKey struct {
	org  string
	rest []any
}

func scanRowKey(columns int) func(scanner) (rowKey, error) {
	return func(row scanner) (rowKey, error) {
		key := rowKey{rest: make([]any, columns)}
		to := []any{&key.org}
		for i := range key.rest {
			to = append(to, &key.rest[i])
		}
		err := row.Scan(to...)
		return key, err
	}
}

// dueBatch is how many rows that are due are looked for at a time.
const dueBatch = 1000

// deleteDue deletes rows that are due, and returns their number. It looks for them outside of its writes, each of which is of one
// org: a row that is not due any more when its write is performed stays.
func (s *Store) deleteDue(ctx context.Context, d due) (deleted int, err error) {
	find := `SELECT org, ` + strings.Join(d.keys, ", ") + ` FROM ` + d.table
	if d.index != "" {
		find += ` INDEXED BY ` + d.index
	}
	find += ` WHERE ` + d.condition
	if d.order != "" {
		find += ` ORDER BY ` + d.order
	}
	text := `DELETE FROM ` + d.table + ` WHERE org = ? AND ` + strings.Join(d.keys, " = ? AND ") + ` = ? AND ` + d.condition
	for {
		found, err := list(ctx, s.db, scanRowKey(len(d.keys)), find+` LIMIT ?`, append(slices.Clip(d.args), dueBatch)...)
		if err != nil || len(found) == 0 {
			return deleted, err
		}
		n, err := s.deleteRows(ctx, found, text, d.args...)
		if deleted += n; err != nil || n == 0 {
			return deleted, err
		}
	}
}

// deleteRows deletes rows with a statement for each, whose first arguments are its key, and returns how many were there.
func (s *Store) deleteRows(ctx context.Context, rows []rowKey, text string, args ...any) (deleted int, err error) {
	type result struct {
		deleted int64
		left    []rowKey
	}
	for len(rows) > 0 {
		results, err := inLanes(ctx, s.writer, rows, func(key rowKey) string { return key.org }, func(t *tx, of []rowKey) ([]result, error) {
			var r result
			n := 0
			for began := time.Now(); n < min(len(of), deleteBatch) && (n == 0 || time.Since(began) < deleteTime); n++ {
				changed, err := t.exec(text, slices.Concat([]any{of[n].org}, of[n].rest, args)...)
				if err != nil {
					return nil, err
				}
				r.deleted += changed
			}
			r.left = of[n:]
			return []result{r}, nil
		})
		if err != nil {
			return deleted, err
		}
		rows = nil
		for _, r := range results {
			deleted, rows = deleted+int(r.deleted), append(rows, r.left...)
		}
	}
	return deleted, nil
}

// swept returns the condition on rows that a write of an org deletes by the way: on a server those of the org, and on a file those
// of all. Its argument is the org.
func (t *tx) swept() string {
	if t.remote == nil {
		return `? IS NOT NULL`
	}
	return `org = ?`
}

// vacuum returns some of the file's free pages to the file system, and returns their
// number.
func (t *tx) vacuum() (int64, error) {
	var before, after int64
	if err := t.queryRow(`PRAGMA freelist_count`, nil, &before); err != nil || before == 0 {
		return 0, err
	}
	s, err := t.statement(fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, vacuumBatch))
	if err != nil {
		return 0, err
	}
	rows, err := s.QueryContext(context.Background())
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() { // one page per row
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	err = t.queryRow(`PRAGMA freelist_count`, nil, &after)
	return before - after, err
}
