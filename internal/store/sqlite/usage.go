package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// What a row takes beside its body: its other columns, its keys, its places in
// indexes, and what pages leave free. The triggers of the migration that made
// org_usage subtract the same; whoever changes one changes the others, in a new
// migration that counts again.
const (
	sizeOfRun          = 500
	sizeOfFact         = 250
	sizeOfRow          = 160
	sizeOfHandover     = 250
	sizeOfHandoverCall = 300
)

// used adds to what the org has stored. What is deleted is subtracted by
// triggers.
func (t *tx) used(orgID string, bytes, handovers int) error {
	_, err := t.exec(`INSERT INTO org_usage (org, bytes, handovers) VALUES (?, ?, ?)
		ON CONFLICT (org) DO UPDATE SET bytes = bytes + excluded.bytes, handovers = handovers + excluded.handovers`, orgID, bytes, handovers)
	return err
}

// usage returns how many bytes of runs and handovers, and how many handovers the
// org has stored.
func (t *tx) usage(orgID string) (bytes, handovers int64, err error) {
	err = t.get(`SELECT bytes, handovers FROM org_usage WHERE org = ?`, []any{orgID}, &bytes, &handovers)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return bytes, handovers, err
}

// Usage returns how many bytes of runs and handovers the org has stored, as
// near as can be told without looking at each: with what they take in indexes,
// and without the audit.
func (r *Reader) Usage(ctx context.Context, orgID string) (bytes int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT bytes FROM org_usage WHERE org = ?`, orgID).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return bytes, r.wrap("read what an org has stored", err)
}

// size returns what the batch adds to what the org has stored.
func (b batch) size(c change) int {
	n := 0
	if c.seq == 0 {
		n = sizeOfRun
	}
	for _, f := range b.facts {
		n += sizeOfFact + len(f.body)
	}
	for _, r := range b.rows {
		n += sizeOfRow + len(r.body)
	}
	return n
}

// below returns refused if the query counts as many as most; most = 0 is no cap.
func (t *tx) below(most int, refused func() error, count string, args ...any) error {
	if most == 0 {
		return nil
	}
	var n int
	if err := t.get(count, args, &n); err != nil {
		return err
	}
	if n >= most {
		return refused()
	}
	return nil
}
