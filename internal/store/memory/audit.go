package memory

import (
	"context"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// auditLog holds the audit chains of all orgs. The zero value is empty. The owner's
// mutex guards it.
type auditLog struct {
	last map[string]audit.Row // the last row ever, by org
	rows []audit.Row          // of all orgs, oldest first
}

// nextRows returns the next rows of the org's chain, one per entry. It stores nothing.
func (l *auditLog) nextRows(org string, entries []audit.Entry) ([]audit.Row, error) {
	rows := make([]audit.Row, len(entries))
	last := l.last[org]
	for i, e := range entries {
		row, err := audit.NextRow(org, last.Number, last.Hash, e)
		if err != nil {
			return nil, err
		}
		rows[i], last = row, row
	}
	return rows, nil
}

func (l *auditLog) add(rows []audit.Row) {
	if l.last == nil {
		l.last = map[string]audit.Row{}
	}
	for _, row := range rows {
		if len(l.rows) >= MaxAuditRows {
			l.rows[0] = audit.Row{}
			l.rows = l.rows[1:]
		}
		l.rows = append(l.rows, row)
		l.last[row.Org] = row
	}
}

// AuditRows implements journal.Archive.
func (j *Journal) AuditRows(_ context.Context, org string, q audit.Query) ([]audit.Row, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	q = q.Bounded()
	var out []audit.Row
	bytes := 0
	all := slices.All(j.audit.rows)
	if q.Latest {
		all = slices.Backward(j.audit.rows)
	}
	for _, row := range all {
		if q.Full(len(out), bytes) {
			break
		}
		if row.Org == org && q.Matches(row) {
			row.Body = slices.Clone(row.Body)
			out = append(out, row)
			bytes += row.Size()
		}
	}
	return out, nil
}
