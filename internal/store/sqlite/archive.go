package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

const summaryColumns = `org, run_id, principal, surface, grade, model, status, finish_reason, rounds, calls, tokens, created_at, finished_at, aside`

// Runs implements run.Archive.
func (r *Reader) Runs(ctx context.Context, orgID string, q run.Query) ([]run.Summary, error) {
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

// Head implements run.Archive.
func (r *Reader) Head(ctx context.Context, orgID, runID string) (run.Head, error) {
	var h run.Head
	row := r.db.QueryRowContext(ctx, `SELECT next_seq - 1,
		(SELECT coalesce(max(at), 0) FROM run_facts f WHERE f.org = r.org AND f.run_id = r.run_id),
		(SELECT coalesce(sum(octet_length(body)), 0) FROM run_facts f WHERE f.org = r.org AND f.run_id = r.run_id) +
		(SELECT coalesce(sum(octet_length(body)), 0) FROM run_rows w WHERE w.org = r.org AND w.run_id = r.run_id), `+
		summaryColumns+` FROM runs r WHERE org = ? AND run_id = ?`, orgID, runID)
	var err error
	h.Summary, err = scanSummary(prefixedRow{row, []any{&h.Seq, &h.At, &h.Bytes}})
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("run %s: %w", runID, org.ErrNotFound)
	}
	return h, r.wrap("read the head of a run", err)
}

// Load implements run.Archive.
func (r *Reader) Load(ctx context.Context, orgID, runID string) (*run.Story, error) {
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

func load(ctx context.Context, tx querier, key runKey) (*run.Story, error) {
	summary, err := scanSummary(tx.QueryRowContext(ctx, `SELECT `+summaryColumns+` FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run))
	if err != nil {
		return nil, err
	}
	stored, err := readStored(ctx, tx, key, 0)
	if err != nil {
		return nil, err
	}
	rows, err := list(ctx, tx, scanRow, `SELECT ref, body FROM run_rows WHERE org = ? AND run_id = ?`, key.org, key.run)
	if err != nil {
		return nil, err
	}
	story := &run.Story{Summary: summary, Rows: make(map[string]json.RawMessage, len(rows))}
	for _, r := range rows {
		story.Rows[r.ref] = r.body
	}
	var bad *run.Unreadable
	for _, one := range stored {
		f, err := one.decode()
		if err == nil {
			story.Facts = append(story.Facts, f)
		} else if bad == nil {
			bad = &run.Unreadable{Seq: f.Seq, Kind: one.kind, Version: f.Version, Err: err, Story: story, Last: stored[len(stored)-1].Seq}
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("run %s: %w", key.run, bad)
	}
	return story, nil
}

// readHead returns the summary of a run, its epoch, and the number of its last fact.
// It returns sql.ErrNoRows if there is no such run.
func readHead(ctx context.Context, db querier, key runKey) (s run.Summary, epoch, seq int64, err error) {
	var next int64
	row := db.QueryRowContext(ctx, `SELECT epoch, next_seq, `+summaryColumns+` FROM runs WHERE org = ? AND run_id = ?`, key.org, key.run)
	s, err = scanSummary(prefixedRow{row, []any{&epoch, &next}})
	return s, epoch, max(next-1, 0), err
}

// readFacts returns the facts of a run with a number above after.
func readFacts(ctx context.Context, db querier, key runKey, after int64) ([]loop.Fact, error) {
	stored, err := readStored(ctx, db, key, after)
	if err != nil {
		return nil, err
	}
	facts := make([]loop.Fact, len(stored))
	for i, one := range stored {
		if facts[i], err = one.decode(); err != nil {
			return nil, fmt.Errorf("fact %d: %w", one.Seq, err)
		}
	}
	return facts, nil
}

func readStored(ctx context.Context, db querier, key runKey, after int64) ([]storedFact, error) {
	return list(ctx, db, scanFact, `SELECT seq, epoch, at, v, kind, body FROM run_facts
		WHERE org = ? AND run_id = ? AND seq > ? ORDER BY seq`, key.org, key.run, after)
}

// storedFact is a fact with an undecoded body.
type storedFact struct {
	loop.Fact
	kind loop.Kind
	body []byte
}

func scanFact(row scanner) (storedFact, error) {
	var f storedFact
	err := row.Scan(&f.Seq, &f.Epoch, &f.At, &f.Version, &f.kind, &f.body)
	return f, err
}

func (f storedFact) decode() (loop.Fact, error) {
	body, err := loop.Decode(f.Version, f.kind, f.body)
	f.Body = body
	return f.Fact, err
}

func scanSummary(row scanner) (run.Summary, error) {
	var s run.Summary
	err := row.Scan(&s.Org, &s.RunID, &s.Principal, &s.Surface, &s.Grade, &s.Model, &s.Status, &s.Reason,
		&s.Rounds, &s.Calls, &s.Tokens, &s.CreatedAt, &s.FinishedAt, asJSON{&s.Aside})
	return s, err
}

func scanRow(r scanner) (row, error) {
	var out row
	err := r.Scan(&out.ref, &out.body)
	return out, err
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
