package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// chainEnd is the last row of a chain.
type chainEnd struct {
	number int64
	hash   audit.Hash
}

// addAudit appends the entries to the org's chain, in the transaction. If the
// savepoint is rolled back, so are the rows.
func (t *tx) addAudit(orgID string, entries []audit.Entry) error {
	rows, err := t.nextRows(nil, orgID, entries)
	if err != nil {
		return err
	}
	return t.insertAudit(rows)
}

// nextRows appends to rows the next rows of the org's chain, one per entry. It does not
// store them. What they add to the sums of usage is stored at the end of the write.
func (t *tx) nextRows(rows []audit.Row, orgID string, entries []audit.Entry) ([]audit.Row, error) {
	for _, e := range entries {
		last, err := t.chainEnd(orgID)
		if err != nil {
			return rows, err
		}
		row, err := audit.NextRow(orgID, last.number, last.hash, e)
		if err != nil {
			return rows, err
		}
		t.ends[orgID] = chainEnd{row.Number, row.Hash}
		t.later.sums.add(orgID, row.Number, e)
		rows = append(rows, row)
	}
	return rows, nil
}

// insertBatch is the most rows that one INSERT statement stores.
const insertBatch = 64

// together returns how many facts or rows of runs one statement stores.
func (t *tx) together() int {
	if t.singly {
		return 1
	}
	return insertBatch
}

// insertParts divides what is stored into parts of at most so many rows, in order, for one INSERT statement each. The
// size of a part is a power of two, so that few statements are prepared.
func insertParts[T any](all []T, most int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := min(most, 1<<(bits.Len(uint(len(all)))-1))
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// insert returns the statement that inserts n rows.
func (t *tx) insert(one string, n int) string {
	key := insertKey{one, n}
	text, ok := t.inserts[key]
	if !ok {
		_, values, _ := strings.Cut(one, " VALUES ")
		text = one + strings.Repeat(", "+values, n-1)
		t.inserts[key] = text
	}
	return text
}

// insertKey is a statement that inserts one row, and a number of rows.
type insertKey struct {
	one string
	n   int
}

const insertAudit = `INSERT INTO audit_log (org, n, at, kind, principal, run_id, request_id, body, hash) VALUES (?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?)`

// insertAudit stores the rows, several per statement.
func (t *tx) insertAudit(rows []audit.Row) error {
	for some := range insertParts(rows, insertBatch) {
		args := make([]any, 0, len(some)*9)
		for i := range some {
			r := &some[i]
			args = append(args, r.Org, r.Number, r.At, string(r.Kind), r.Principal, r.RunID, r.RequestID, []byte(r.Body), r.Hash[:])
		}
		if _, err := t.exec(t.insert(insertAudit, len(some)), args...); err != nil {
			return err
		}
	}
	return nil
}

// chainEnd returns the end of an org's chain: the number and hash of its last row or, if
// retention has removed that row, of the last checkpoint with Pruned set.
func (t *tx) chainEnd(orgID string) (chainEnd, error) {
	if last, ok := t.ends[orgID]; ok {
		return last, nil
	}
	if err := t.remote.own(t, orgID); err != nil {
		return chainEnd{}, err
	}
	var last chainEnd
	var hash []byte
	err := t.queryRow(`SELECT n, hash FROM (
			SELECT n, hash FROM (SELECT n, hash FROM audit_log WHERE org = ?1 ORDER BY n DESC LIMIT 1) AS last
			UNION ALL
			SELECT n, hash FROM (SELECT n, hash FROM audit_checkpoints WHERE org = ?1 AND cut = 1 ORDER BY n DESC LIMIT 1) AS cut
		) AS ends ORDER BY n DESC LIMIT 1`, []any{orgID}, &last.number, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return chainEnd{}, nil
	}
	copy(last.hash[:], hash)
	return last, err
}

// rareKinds is the condition of the index audit_log_rare.
const rareKinds = `kind NOT IN ('audit_log.request', 'audit_log.agent.tool_call', 'audit_log.mcp.tool_call', 'audit_log.resource.call')`

// AuditRows implements journal.Archive.
func (r *Reader) AuditRows(ctx context.Context, orgID string, q audit.Query) ([]audit.Row, error) {
	q = q.Bounded()
	table, where, args := `audit_log`, []string{"org = ?", "n > ?"}, []any{orgID, q.After}
	for _, c := range []struct{ column, value string }{
		{"run_id", q.RunID}, {"principal", q.Principal}, {"kind", string(q.Kind)},
	} {
		if c.value != "" {
			where, args = append(where, c.column+" = ?"), append(args, c.value)
		}
	}
	switch {
	case q.RunID != "" || len(q.RequestIDs) > 0: // SQLite would read all rows of the org instead, because they are sorted by n
		table = `audit_log INDEXED BY audit_log_request`
	case q.Kind.Rare():
		table, where = `audit_log INDEXED BY audit_log_rare`, append(where, rareKinds)
	}
	if q.RunID != "" { // request ids of a run are the run's id, or start with it and a dot
		where, args = append(where, "request_id >= ? AND request_id < ?"), append(args, q.RunID, q.RunID+"/")
	}
	if len(q.RequestIDs) > 0 {
		where = append(where, "request_id IN (?"+strings.Repeat(", ?", len(q.RequestIDs)-1)+")")
		for _, id := range q.RequestIDs {
			args = append(args, id)
		}
	}
	if q.From > 0 {
		where, args = append(where, "at >= ?"), append(args, q.From)
	}
	if q.To > 0 {
		where, args = append(where, "at < ?"), append(args, q.To)
	}
	if q.Before > 0 {
		where, args = append(where, "n < ?"), append(args, q.Before)
	}
	order := "n"
	if q.Latest {
		order = "n DESC"
	}
	text := `SELECT org, n, at, kind, principal, run_id, request_id, body, hash FROM ` + table + ` WHERE ` +
		strings.Join(where, " AND ") + ` ORDER BY ` + order + ` LIMIT ?`
	rows, err := r.db.QueryContext(ctx, text, append(args, q.Limit)...)
	if err != nil {
		return nil, r.wrap("list audit rows", err)
	}
	defer rows.Close()
	var out []audit.Row
	for bytes := 0; !q.Full(len(out), bytes) && rows.Next(); {
		row, err := scanAudit(rows)
		if err != nil {
			return nil, r.wrap("list audit rows", err)
		}
		out = append(out, row)
		bytes += row.Size()
	}
	return out, r.wrap("list audit rows", rows.Err())
}

func scanAudit(row scanner) (audit.Row, error) {
	var a audit.Row
	var body, hash []byte
	err := row.Scan(&a.Org, &a.Number, &a.At, &a.Kind, &a.Principal, &a.RunID, &a.RequestID, &body, &hash)
	a.Body = body
	copy(a.Hash[:], hash)
	return a, err
}

// AuditHeads implements audit.Log.
func (r *Reader) AuditHeads(ctx context.Context) ([]audit.Head, error) {
	heads, err := list(ctx, r.db, scanAuditHead, `
		WITH RECURSIVE known (org) AS (
			SELECT min(org) FROM audit_log
			UNION ALL
			SELECT (SELECT min(org) FROM audit_log WHERE org > known.org) FROM known WHERE known.org IS NOT NULL
		)
		SELECT a.org, a.n, a.at, a.hash, coalesce(c.n, 0), coalesce(c.at, 0)
		FROM known
		JOIN audit_log a ON a.org = known.org AND a.n = (SELECT max(n) FROM audit_log WHERE org = known.org)
		LEFT JOIN audit_checkpoints c ON c.org = known.org AND c.cut = 0
			AND c.n = (SELECT max(n) FROM audit_checkpoints WHERE org = known.org AND cut = 0)
		ORDER BY known.org`)
	return heads, r.wrap("read the ends of the audit chains", err)
}

func scanAuditHead(row scanner) (audit.Head, error) {
	var h audit.Head
	var hash []byte
	err := row.Scan(&h.Org, &h.Number, &h.At, &hash, &h.Signed, &h.SignedAt)
	copy(h.Hash[:], hash)
	return h, err
}

// AuditOrgs returns the orgs that have rows or checkpoints.
func (r *Reader) AuditOrgs(ctx context.Context) ([]string, error) {
	orgs, err := list(ctx, r.db, scanText, `SELECT org FROM audit_log GROUP BY org UNION SELECT org FROM audit_checkpoints GROUP BY org ORDER BY 1`)
	return orgs, r.wrap("list the orgs of the audit", err)
}

// Checkpoints implements audit.Log.
func (r *Reader) Checkpoints(ctx context.Context, orgID string, after int64, limit int) ([]audit.Checkpoint, error) {
	out, err := list(ctx, r.db, scanCheckpoint, `SELECT org, n, cut, at, hash, signature FROM audit_checkpoints
		WHERE org = ? AND n > ? ORDER BY n, cut LIMIT ?`, orgID, after, limit)
	return out, r.wrap("list checkpoints", err)
}

func scanCheckpoint(row scanner) (audit.Checkpoint, error) {
	var c audit.Checkpoint
	var hash []byte
	err := row.Scan(&c.Org, &c.Number, &c.Pruned, &c.At, &hash, &c.Signature)
	copy(c.Hash[:], hash)
	return c, err
}

// SyncAudit implements audit.Log.
func (s *Store) SyncAudit(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return s.wrap("record", err)
	}
	return s.wrap("sync the audit", s.writer.barrier(ctx))
}

// AddCheckpoint implements audit.Log.
func (s *Store) AddCheckpoint(ctx context.Context, c audit.Checkpoint) error {
	if err := s.flush(ctx); err != nil { // the checkpoint comes after the rows that were recorded before
		return s.wrap("record", err)
	}
	return s.wrap("store a checkpoint", s.writer.perform(ctx, c.Org, func(t *tx) error { return t.addCheckpoint(c) }))
}

func (t *tx) addCheckpoint(c audit.Checkpoint) error {
	_, err := t.exec(`INSERT INTO audit_checkpoints (org, n, cut, at, hash, signature) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (org, n, cut) DO NOTHING`, c.Org, c.Number, c.Pruned, c.At, c.Hash[:], c.Signature)
	return err
}

// pruneBatch is how many rows one transaction removes. Other writes wait for it.
const pruneBatch = 500

// PruneAudit implements audit.Log.
func (s *Store) PruneAudit(ctx context.Context, c audit.Checkpoint) (removed int64, err error) {
	if !c.Pruned {
		return 0, fmt.Errorf("checkpoint at row %d of org %s does not record a removal", c.Number, c.Org)
	}
	if err := s.AddCheckpoint(ctx, c); err != nil {
		return 0, err
	}
	for {
		var n int64
		err := s.writer.perform(ctx, c.Org, func(t *tx) (err error) {
			n, err = t.exec(`DELETE FROM audit_log WHERE org = ?1 AND n IN (SELECT n FROM audit_log WHERE org = ?1 AND n <= ?2 ORDER BY n LIMIT ?3)`,
				c.Org, c.Number, pruneBatch)
			if err != nil || n > 0 {
				return err
			}
			_, err = t.exec(`DELETE FROM audit_checkpoints WHERE org = ? AND n < ?`, c.Org, c.Number)
			return err
		})
		removed += n
		if err != nil || n == 0 {
			return removed, s.wrap("remove audit rows", err)
		}
	}
}
