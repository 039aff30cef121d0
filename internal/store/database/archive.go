package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const summaryColumns = `org, run_id, principal, surface, grade, model, status, finish_reason, rounds, calls, tokens, created_at, finished_at, waits, slots, aside`

const headColumns = `next_seq - 1, updated_at, epoch, owner, lease_until, ` + summaryColumns

// Runs implements journal.Archive.
func (r *Reader) Runs(ctx context.Context, orgID string, q journal.Query) ([]journal.Summary, error) {
	at := int64(1<<63 - 1)
	if q.Before != "" {
		err := r.db.QueryRowContext(ctx, `SELECT created_at FROM runs WHERE org = ? AND run_id = ?`, orgID, q.Before).Scan(&at)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("run %s: %w", q.Before, org.ErrNotFound)
		} else if err != nil {
			return nil, r.wrap("list runs", err)
		}
	}
	states, err := json.Marshal(q.States) // null for none
	if err != nil {
		return nil, err
	}
	runs, err := list(ctx, r.db, scanSummary, `SELECT `+summaryColumns+` FROM runs
		WHERE org = ?1 AND (created_at, run_id) < (?2, ?3) AND created_at >= ?4
		AND (?5 = 0 OR CASE finish_reason WHEN '' THEN status ELSE finish_reason END IN (SELECT value FROM json_each(?6)))
		AND (?7 = '' OR principal = ?7)
		ORDER BY created_at DESC, run_id DESC LIMIT ?8`,
		orgID, at, q.Before, q.Since, len(q.States), string(states), q.Principal, max(q.Limit, 0))
	return runs, r.wrap("list runs", err)
}

// Head implements journal.Archive.
func (r *Reader) Head(ctx context.Context, orgID, runID string) (journal.Head, error) {
	row := r.db.QueryRowContext(ctx, `SELECT
		(SELECT CAST(coalesce(sum(octet_length(body)), 0) AS BIGINT) FROM run_facts f WHERE f.org = r.org AND f.run_id = r.run_id) +
		(SELECT CAST(coalesce(sum(octet_length(w.body) + coalesce(l.bytes, 0)), 0) AS BIGINT) FROM run_rows w
			LEFT JOIN shared_lists l ON l.org = w.org AND l.digest = w.rest WHERE w.org = r.org AND w.run_id = r.run_id), `+
		headColumns+` FROM runs r WHERE org = ? AND run_id = ?`, orgID, runID)
	var bytes int64
	h, err := scanHead(prefixedRow{row, []any{&bytes}})
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	h.Bytes = bytes
	return h, r.wrap("read the head of a run", err)
}

// Reasons implements journal.Archive.
func (r *Reader) Reasons(ctx context.Context, orgID string, runIDs []string) (map[string]event.Reason, error) {
	ids, err := json.Marshal(runIDs) // null for none
	if err != nil {
		return nil, err
	}
	type end struct {
		run    string
		reason event.Reason
	}
	ends, err := list(ctx, r.db, func(row scanner) (e end, err error) {
		return e, row.Scan(&e.run, &e.reason)
	}, `SELECT r.run_id, r.finish_reason FROM json_each(?2) j CROSS JOIN runs r ON r.org = ?1 AND r.run_id = j.value WHERE r.finish_reason <> ''`, orgID, string(ids))
	out := make(map[string]event.Reason, len(ends))
	for _, e := range ends {
		out[e.run] = e.reason
	}
	return out, r.wrap("find the ends of runs", err)
}

// Load implements journal.Archive.
func (r *Reader) Load(ctx context.Context, orgID, runID string) (*journal.Story, error) {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // all queries see one snapshot
	if err != nil {
		return nil, r.wrap("load a run", err)
	}
	defer tx.Rollback() //nolint:errcheck // a read-only transaction has nothing to undo
	story, err := load(ctx, tx, runKey{orgID, runID})
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	return story, r.wrap("load a run", err)
}

func load(ctx context.Context, tx querier, key runKey) (*journal.Story, error) {
	summary, err := scanSummary(tx.QueryRowContext(ctx, `SELECT `+summaryColumns+` FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run))
	if err != nil {
		return nil, err
	}
	stored, packedRows, err := readStored(ctx, tx, key, 0)
	if err != nil {
		return nil, err
	}
	rows, err := list(ctx, tx, scanRow, `SELECT ref, body, coalesce(rest, '') FROM run_rows WHERE org = ? AND run_id = ?`, key.org, key.run)
	if err != nil {
		return nil, err
	}
	story := &journal.Story{Summary: summary, Rows: make(map[string]json.RawMessage, len(rows)+len(packedRows))}
	for _, r := range rows {
		if story.Rows[r.ref], err = r.whole(ctx, tx, key.org); err != nil {
			return nil, err
		}
	}
	for _, r := range packedRows {
		story.Rows[r.Ref] = r.Body
	}
	var bad *journal.Unreadable
	for _, one := range stored {
		f, err := one.decode()
		if err == nil {
			story.Facts = append(story.Facts, f)
		} else if bad == nil {
			bad = &journal.Unreadable{Seq: f.Seq, Kind: one.kind, Version: f.Version, Err: err, Story: story, Last: stored[len(stored)-1].Seq}
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("run %s: %w", key.run, bad)
	}
	return story, nil
}

// Facts implements journal.Archive. A body that is too large is not read.
func (r *Reader) Facts(ctx context.Context, orgID, runID string, after int64, limit int) ([]loop.Fact, error) {
	facts, err := r.facts(ctx, runKey{orgID, runID}, after, limit)
	if len(facts) == 0 && err == nil {
		err = r.exists(ctx, runKey{orgID, runID})
	}
	return facts, r.wrapPage("read facts", runID, err)
}

func (r *Reader) facts(ctx context.Context, key runKey, after int64, limit int) (out []loop.Fact, err error) {
	rows, err := r.db.QueryContext(ctx, `SELECT octet_length(body), seq, epoch, at, v, kind, CASE WHEN octet_length(body) <= ? OR kind = ? THEN body END FROM run_facts
		WHERE org = ? AND run_id = ? AND seq > ? ORDER BY seq`, limit, kindPack, key.org, key.run, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for size := 0; rows.Next(); {
		var n int
		stored, err := scanFact(prefixedRow{rows, []any{&n}})
		if err != nil {
			return nil, err
		}
		facts, _ := stored.unpack(after)
		for _, one := range facts {
			if one.kind != kindPack && stored.kind == kindPack {
				n = len(one.body)
			}
			size += n
			if size > limit && len(out) > 0 {
				return out, nil
			} else if size > limit {
				return nil, fmt.Errorf("fact %d: %w", one.Seq, &journal.TooLarge{Bytes: size})
			}
			f, err := one.decode()
			if err != nil && len(out) > 0 {
				return out, nil
			} else if err != nil {
				if err := rows.Close(); err != nil { // its connection may be the last one
					return nil, err
				}
				bad := &journal.Unreadable{Seq: f.Seq, Kind: one.kind, Version: f.Version, Err: err}
				lastSeq := r.db.QueryRowContext(ctx, `SELECT next_seq - 1 FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run)
				if err := lastSeq.Scan(&bad.Last); err != nil {
					return nil, err
				}
				return nil, bad
			}
			out = append(out, f)
		}
	}
	return out, rows.Err()
}

// Rows implements journal.Archive. A body that is too large is not read.
func (r *Reader) Rows(ctx context.Context, orgID, runID string, refs []string, limit int) ([]json.RawMessage, error) {
	rows, err := r.rows(ctx, runKey{orgID, runID}, refs, limit)
	if len(rows) == 0 && err == nil {
		err = r.exists(ctx, runKey{orgID, runID})
	}
	return rows, r.wrapPage("read rows", runID, err)
}

func (r *Reader) rows(ctx context.Context, key runKey, refs []string, limit int) (out []json.RawMessage, err error) {
	found, err := r.findRows(ctx, key, refs, limit)
	if err != nil {
		return nil, err
	}
	size := 0
	for i, one := range found {
		size += one.size
		switch {
		case !one.stored, size > limit && len(out) > 0:
			return out, nil
		case size > limit:
			return nil, fmt.Errorf("row %s: %w", refs[i], &journal.TooLarge{Bytes: size})
		}
		body, err := one.whole(ctx, r.db, key.org)
		if err != nil {
			return nil, err
		}
		out = append(out, body)
	}
	return out, nil
}

// foundRow is a row that was looked up.
type foundRow struct {
	stored    bool
	size      int
	storedRow // without its body if it is larger than the limit
}

// findRows looks rows up, in the order of refs, until their bodies exceed the limit.
func (r *Reader) findRows(ctx context.Context, key runKey, refs []string, limit int) ([]foundRow, error) {
	found, missing, err := r.findOwnRows(ctx, key, refs, limit)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	packs, err := r.db.QueryContext(ctx, `SELECT seq, epoch, at, v, kind, body FROM run_facts WHERE org = ? AND run_id = ? AND kind = ? ORDER BY seq`, key.org, key.run, kindPack)
	if err != nil {
		return nil, err
	}
	defer packs.Close()
	for len(missing) > 0 && packs.Next() {
		stored, err := scanFact(packs)
		if err != nil {
			return nil, err
		}
		_, rows := stored.unpack(0)
		for _, one := range rows {
			for _, place := range missing[one.Ref] {
				found[place] = foundRow{true, len(one.Body), storedRow{body: one.Body}}
			}
			delete(missing, one.Ref)
		}
	}
	return found, packs.Err()
}

// findOwnRows is findRows for rows that are not in packs. It returns the places of the others,
// by ref.
func (r *Reader) findOwnRows(ctx context.Context, key runKey, refs []string, limit int) (found []foundRow, missing map[string][]int, err error) {
	list, err := json.Marshal(append([]string{}, refs...)) // [] for none
	if err != nil {
		return nil, nil, err
	}
	rows, err := r.db.QueryContext(ctx, r.ordered(`SELECT e.key, octet_length(w.body) + coalesce(l.bytes, 0),
		CASE WHEN octet_length(w.body) <= ?1 THEN w.body END, coalesce(w.rest, '')
		FROM json_each(?2) e LEFT JOIN run_rows w ON w.org = ?3 AND w.run_id = ?4 AND w.ref = e.value
		LEFT JOIN shared_lists l ON l.org = w.org AND l.digest = w.rest`, `e.key`),
		limit, string(list), key.org, key.run)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	missing = map[string][]int{}
	for size := 0; size <= limit && rows.Next(); {
		var place int
		var n sql.NullInt64
		var one storedRow
		if err := rows.Scan(&place, &n, &one.body, &one.rest); err != nil {
			return nil, nil, err
		}
		if place != len(found) {
			return nil, nil, fmt.Errorf("row %d came in place of row %d", place, len(found))
		}
		if !n.Valid {
			missing[refs[place]] = append(missing[refs[place]], place)
		}
		found = append(found, foundRow{n.Valid, int(n.Int64), one})
		size += int(n.Int64)
	}
	return found, missing, rows.Err()
}

// exists returns an error if the org has no such run.
func (r *Reader) exists(ctx context.Context, key runKey) error {
	var one int
	return r.db.QueryRowContext(ctx, `SELECT 1 FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run).Scan(&one)
}

// wrapPage is wrap for Facts and Rows: what is not an error of the file stays what it is.
func (r *Reader) wrapPage(op, runID string, err error) error {
	var bad *journal.Unreadable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	case errors.As(err, &bad), errors.As(err, new(*journal.TooLarge)):
		return fmt.Errorf("run %s: %w", runID, err)
	}
	return r.wrap(op, err)
}

// readHead returns the head of a run without Bytes, or sql.ErrNoRows.
func readHead(ctx context.Context, db querier, key runKey) (journal.Head, error) {
	return scanHead(db.QueryRowContext(ctx, `SELECT `+headColumns+` FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run))
}

// readFacts returns the facts of a run with a number above after.
func readFacts(ctx context.Context, db querier, key runKey, after int64) ([]loop.Fact, error) {
	stored, _, err := readStored(ctx, db, key, after)
	if err != nil {
		return nil, err
	}
	facts := make([]loop.Fact, len(stored))
	for i, one := range stored {
		if facts[i], err = one.decode(); err != nil {
			return nil, &journal.Unreadable{Seq: one.Seq, Kind: one.kind, Version: one.Version, Err: err}
		}
	}
	return facts, nil
}

// readStored returns the facts with a number above after, and the rows of their packs.
func readStored(ctx context.Context, db querier, key runKey, after int64) ([]storedFact, []packedRow, error) {
	stored, err := list(ctx, db, scanFact, `SELECT seq, epoch, at, v, kind, body FROM run_facts
		WHERE org = ? AND run_id = ? AND seq > ? ORDER BY seq`, key.org, key.run, after)
	if err != nil {
		return nil, nil, err
	}
	facts, rows := unpackAll(stored, after)
	return facts, rows, nil
}

// storedFact is a fact with an undecoded body, or a row of run_facts.
type storedFact struct {
	loop.Fact
	kind loop.Kind
	body []byte
	err  error // of a pack that cannot be decoded
}

func scanFact(row scanner) (storedFact, error) {
	var f storedFact
	err := row.Scan(&f.Seq, &f.Epoch, &f.At, &f.Version, &f.kind, &f.body)
	return f, err
}

func (f storedFact) decode() (loop.Fact, error) {
	if f.err != nil {
		return f.Fact, f.err
	}
	body, err := loop.Decode(f.Version, f.kind, f.body)
	f.Body = body
	return f.Fact, err
}

func scanSummary(row scanner) (journal.Summary, error) {
	var s journal.Summary
	err := row.Scan(&s.Org, &s.RunID, &s.Principal, &s.Surface, &s.Grade, &s.Model, &s.Status, &s.Reason,
		&s.Rounds, &s.Calls, &s.Tokens, &s.CreatedAt, &s.FinishedAt, &s.Waits, &s.Slots, asJSON{&s.Aside})
	return s, err
}

// scanHead scans headColumns.
func scanHead(row scanner) (h journal.Head, err error) {
	h.Summary, err = scanSummary(prefixedRow{row, []any{&h.Seq, &h.At, &h.Epoch, &h.Owner, &h.LeaseUntil}})
	return h, err
}

func scanRow(r scanner) (out storedRow, err error) {
	return out, r.Scan(&out.ref, &out.body, &out.rest)
}

// prefixedRow is a row with extra columns before those that its reader scans.
type prefixedRow struct {
	scanner
	prefix []any
}

// Scan implements scanner.
func (w prefixedRow) Scan(dest ...any) error {
	return w.scanner.Scan(append(w.prefix[:len(w.prefix):len(w.prefix)], dest...)...)
}
