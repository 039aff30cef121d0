package sqlite

import (
	"context"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// auditRow is a row of audit_log, before it has a number.
type auditRow struct {
	run.Audit
	body string
}

// Audited implements run.Archive.
func (r *Reader) Audited(ctx context.Context, orgID, runID string) ([]run.AuditRow, error) {
	rows, err := list(ctx, r.db, scanAudit, `SELECT n, run_id, at, kind, body FROM audit_log
		WHERE org = ? AND run_id = ? ORDER BY n`, orgID, runID)
	return rows, wrap("list audit rows", err)
}

func scanAudit(row scanner) (run.AuditRow, error) {
	var a run.AuditRow
	var body []byte
	err := row.Scan(&a.Number, &a.RunID, &a.At, &a.Kind, &body)
	a.Body = body
	return a, err
}

// writeAudit numbers the rows: one writer and its savepoints leave no gap.
func (b batch) writeAudit(t *tx) error {
	for _, a := range b.audit {
		_, err := t.exec(`INSERT INTO audit_log (org, n, at, kind, run_id, body)
			SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5 FROM audit_log WHERE org = ?1`,
			b.key.org, a.At, a.Kind, b.key.run, a.body)
		if err != nil {
			return err
		}
	}
	return nil
}
