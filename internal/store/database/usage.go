package database

import (
	"context"
	"database/sql"
	"errors"
)

// Estimated size of a row beside its body, in bytes: other columns, index entries and
// free space in pages. The triggers of the baseline subtract the same numbers. A
// change needs a migration that changes the triggers and recomputes org_usage.
const (
	sizeOfRun             = 500
	sizeOfFact            = 250
	sizeOfRow             = 160
	sizeOfConversation    = 250
	sizeOfConversationKey = 300
	sizeOfList            = 250
)

// addUsage adds to the org's usage. Triggers subtract deleted rows.
func (t *tx) addUsage(orgID string, bytes, conversations, handovers int) error {
	_, err := t.exec(`INSERT INTO org_usage (org, bytes, conversations, handovers) VALUES (?, ?, ?, ?)
		ON CONFLICT (org) DO UPDATE SET bytes = org_usage.bytes + excluded.bytes,
			conversations = org_usage.conversations + excluded.conversations, handovers = org_usage.handovers + excluded.handovers`,
		orgID, bytes, conversations, handovers)
	return err
}

// usage returns the size of the org's runs and conversations, in bytes, the number of its
// conversations, and how many of them are handovers.
func (t *tx) usage(orgID string) (bytes, conversations, handovers int64, err error) {
	err = t.queryRow(`SELECT bytes, conversations, handovers FROM org_usage WHERE org = ?`, []any{orgID}, &bytes, &conversations, &handovers)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return bytes + t.later.bytes[orgID], conversations, handovers, err
}

// Usage returns the estimated size of the org's runs and conversations, in bytes,
// including indexes and without the audit log.
func (r *Reader) Usage(ctx context.Context, orgID string) (bytes int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT bytes FROM org_usage WHERE org = ?`, orgID).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return bytes, r.wrap("read what an org has stored", err)
}

// size returns the usage of the facts and rows as they are stored, and of the run if the
// change creates it, in bytes.
func size(facts []fact, rows []row, c headChange) int {
	n := 0
	if c.from.Seq == 0 {
		n = sizeOfRun
	}
	for i := range facts {
		n += sizeOfFact + len(facts[i].body)
	}
	for i := range rows {
		n += sizeOfRow + len(rows[i].body)
	}
	return n
}

// size returns the memory that the batch occupies, in bytes, about.
func (b batch) size(c headChange) int {
	n := size(b.facts, b.rows, c)
	for _, r := range b.rows {
		if r.rest != nil {
			n += r.rest.bytes
		}
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
