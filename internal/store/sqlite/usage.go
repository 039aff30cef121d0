package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// Estimated size of a row beside its body, in bytes: other columns, index entries and
// free space in pages. The triggers of migration 00009 subtract the same numbers. A
// change needs a migration that changes the triggers and recomputes org_usage.
const (
	sizeOfRun          = 500
	sizeOfFact         = 250
	sizeOfRow          = 160
	sizeOfHandover     = 250
	sizeOfHandoverCall = 300
)

// addUsage adds to the org's usage. Triggers subtract deleted rows.
func (t *tx) addUsage(orgID string, bytes, handovers int) error {
	_, err := t.exec(`INSERT INTO org_usage (org, bytes, handovers) VALUES (?, ?, ?)
		ON CONFLICT (org) DO UPDATE SET bytes = bytes + excluded.bytes, handovers = handovers + excluded.handovers`, orgID, bytes, handovers)
	return err
}

// usage returns the size of the org's runs and handovers, in bytes, and the number of
// its handovers.
func (t *tx) usage(orgID string) (bytes, handovers int64, err error) {
	err = t.queryRow(`SELECT bytes, handovers FROM org_usage WHERE org = ?`, []any{orgID}, &bytes, &handovers)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return bytes, handovers, err
}

// Usage returns the estimated size of the org's runs and handovers, in bytes,
// including indexes and without the audit log.
func (r *Reader) Usage(ctx context.Context, orgID string) (bytes int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT bytes FROM org_usage WHERE org = ?`, orgID).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return bytes, r.wrap("read what an org has stored", err)
}

// size returns the usage of the batch, in bytes.
func (b batch) size(c headChange) int {
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

// checkCap returns refused() if the query counts most rows or more. most 0 is no limit.
func (t *tx) checkCap(most int, refused func() error, count string, args ...any) error {
	if most == 0 {
		return nil
	}
	var n int
	if err := t.queryRow(count, args, &n); err != nil {
		return err
	}
	if n >= most {
		return refused()
	}
	return nil
}
