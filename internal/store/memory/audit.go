package memory

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// auditLog holds the rows for auditors. The zero value is empty.
type auditLog struct {
	last map[string]int64 // number by org
	rows []auditRow       // oldest first
}

type auditRow struct {
	org string
	run.AuditRow
}

func (l *auditLog) add(key runKey, a run.Audit, body json.RawMessage) {
	if l.last == nil {
		l.last = map[string]int64{}
	}
	if len(l.rows) >= MaxAuditRows {
		l.rows[0] = auditRow{}
		l.rows = l.rows[1:]
	}
	l.last[key.org]++
	l.rows = append(l.rows, auditRow{key.org, run.AuditRow{Number: l.last[key.org], RunID: key.run, At: a.At, Kind: a.Kind, Body: body}})
}

// Audited implements run.Archive.
func (j *Journal) Audited(_ context.Context, orgID, runID string) ([]run.AuditRow, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []run.AuditRow
	for _, row := range j.audit.rows {
		if row.org == orgID && row.RunID == runID {
			row.Body = slices.Clone(row.Body)
			out = append(out, row.AuditRow)
		}
	}
	return out, nil
}
