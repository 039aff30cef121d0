package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const approvalColumns = `org, id, run_id, call_key, principal, surface, name, server, tool, asker, tool_digest, args_ref, args_digest, policy,
	status, created_at, expires_at, decided_at, decided_by, reason, caller_at, host`

func scanApproval(row scanner) (a journal.Approval, err error) {
	err = row.Scan(&a.Org, &a.ID, &a.RunID, &a.Call, &a.Principal, &a.Surface, &a.Name, &a.Server, &a.Tool, &a.Asker, &a.ToolDigest, &a.ArgsRef, &a.ArgsDigest, &a.Policy,
		&a.Status, &a.CreatedAt, &a.ExpiresAt, &a.DecidedAt, &a.DecidedBy, &a.Reason, &a.CallerAt, &a.Host)
	return a, err
}

// Approval implements journal.Archive.
func (r *Reader) Approval(ctx context.Context, orgID, id string) (journal.Approval, error) {
	a, err := scanApproval(r.db.QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approvals WHERE org = ? AND id = ? AND call_key <> ''`, orgID, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("approval %s: %w", id, org.ErrNotFound)
	}
	return a, r.wrap("read an approval", err)
}

// Approvals implements journal.Archive.
func (r *Reader) Approvals(ctx context.Context, orgID string, q journal.ApprovalQuery) ([]journal.Approval, error) {
	at := int64(1<<63 - 1)
	if q.Before != "" {
		before, err := r.Approval(ctx, orgID, q.Before)
		if err != nil {
			return nil, err
		}
		at = before.CreatedAt
	}
	// The partial index of those that wait is used only for a condition without a parameter.
	waiting := ""
	if len(q.Statuses) == 1 && q.Statuses[0] == journal.ApprovalWaiting {
		waiting = ` AND status = 'waiting'`
	}
	statuses, err := json.Marshal(q.Statuses) // null for none
	if err != nil {
		return nil, err
	}
	var found []journal.Approval
	for { // the rows of one query after the other, until enough are within q.Access
		page, err := r.approvals(ctx, orgID, q, at, waiting, string(statuses))
		if err != nil || q.Access.IsFull() || q.Limit <= 0 {
			return page, err
		}
		for _, a := range page {
			if a.Within(q.Access) && len(found) < q.Limit {
				found = append(found, a)
			}
		}
		if len(found) == q.Limit || len(page) < q.Limit {
			return found, nil
		}
		last := page[len(page)-1]
		at, q.Before = last.CreatedAt, last.ID
	}
}

// approvals returns the approvals that q selects, apart from q.Access, before the time at and the
// id q.Before.
func (r *Reader) approvals(ctx context.Context, orgID string, q journal.ApprovalQuery, at int64, waiting, statuses string) ([]journal.Approval, error) {
	found, err := list(ctx, r.db, scanApproval, `SELECT `+approvalColumns+` FROM approvals
		WHERE org = ?1 AND (created_at, id) < (?2, ?3) AND (?4 = 0 OR status IN (SELECT value FROM json_each(?5)))
		AND (?6 = '' OR run_id = ?6) AND (?7 = '' OR server = ?7) AND (?9 = 1 OR call_key <> '')`+waiting+`
		ORDER BY created_at DESC, id DESC LIMIT ?8`,
		orgID, at, q.Before, len(q.Statuses), statuses, q.RunID, q.Server, max(q.Limit, 0), q.Pauses)
	return found, r.wrap("list approvals", err)
}

// DueApprovals implements journal.Archive.
func (r *Reader) DueApprovals(ctx context.Context, now int64, limit int) ([]journal.Approval, error) {
	found, err := list(ctx, r.db, scanApproval, `SELECT `+approvalColumns+` FROM approvals INDEXED BY approvals_due
		WHERE status = 'waiting' AND expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?`, now, max(limit, 0))
	return found, r.wrap("find expired approvals", err)
}

// QueuedRuns implements journal.Archive.
func (r *Reader) QueuedRuns(ctx context.Context) ([]journal.QueuedRuns, error) {
	found, err := list(ctx, r.db, func(row scanner) (q journal.QueuedRuns, err error) {
		err = row.Scan(&q.Org, &q.Principal, &q.Runs)
		return q, err
	}, `SELECT org, principal, count(*) FROM runs INDEXED BY runs_queued WHERE status = 'queued' GROUP BY org, principal ORDER BY org, principal`)
	return found, r.wrap("count queued runs", err)
}

// WaitingRuns implements journal.Archive.
func (r *Reader) WaitingRuns(ctx context.Context) ([]journal.WaitingRun, error) {
	found, err := list(ctx, r.db, func(row scanner) (w journal.WaitingRun, err error) {
		err = row.Scan(&w.Org, &w.RunID, &w.Principal, &w.CallerAt)
		return w, err
	}, `SELECT DISTINCT org, run_id, principal, caller_at FROM approvals INDEXED BY approvals_waiting WHERE status = 'waiting' ORDER BY org, run_id`)
	return found, r.wrap("list runs that wait", err)
}

// WaitingApprovals returns how many approvals of all orgs wait, and the time of the oldest in
// Unix milliseconds; 0 if none waits.
func (r *Reader) WaitingApprovals(ctx context.Context) (n int, oldest int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT count(*), coalesce(min(created_at), 0) FROM approvals INDEXED BY approvals_waiting WHERE status = 'waiting' AND call_key <> ''`).Scan(&n, &oldest)
	return n, oldest, r.wrap("count approvals", err)
}

// writeApprovals applies what the batch changes in the approvals of its run: see
// journal.Approval.After.
func (b batch) writeApprovals(t *tx) error {
	for _, c := range b.approvals {
		var err error
		switch {
		case c.Asked != nil:
			err = t.addApproval(*c.Asked)
		case c.ID != "":
			_, err = t.exec(`UPDATE approvals SET status = ?, decided_at = ?, decided_by = ?, reason = ? WHERE org = ? AND id = ? AND run_id = ? AND status = 'waiting'`,
				string(c.Status), c.At, c.By, c.Reason, b.key.org, c.ID, b.key.run)
		case c.Call != "":
			_, err = t.exec(`UPDATE approvals SET status = ? WHERE org = ? AND run_id = ? AND call_key = ? AND status IN ('waiting', 'approved')`,
				string(c.Status), b.key.org, b.key.run, string(c.Call))
		case c.All:
			_, err = t.exec(`UPDATE approvals SET status = ?, reason = ? WHERE org = ? AND run_id = ? AND status = 'waiting'`, string(c.Status), c.Reason, b.key.org, b.key.run)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkApprovals returns an error if too many approvals wait for one more: of the org, or of the key
// whose run asks. Those of the key are counted, which no index does, only if the org has that many.
func (t *tx) checkApprovals(a journal.Approval) error {
	if t.caps.Approvals == 0 {
		return nil
	}
	const ofOrg = `SELECT count(*) FROM approvals WHERE org = ? AND status = 'waiting'`
	var all int
	if err := t.queryRow(ofOrg, []any{a.Org}, &all); err != nil {
		return err
	}
	switch {
	case all >= t.caps.Approvals:
		return t.caps.ApprovalsError()
	case all >= t.caps.KeyApprovals():
		return t.checkCap(t.caps.KeyApprovals(), t.caps.KeyApprovalsError, ofOrg+` AND principal = ?`, a.Org, a.Principal)
	}
	return nil
}

// addApproval stores an approval that waits, unless too many wait.
func (t *tx) addApproval(a journal.Approval) error {
	if err := t.checkApprovals(a); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO approvals (`+approvalColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.Org, a.ID, a.RunID, string(a.Call), a.Principal, a.Surface, a.Name, a.Server, a.Tool, string(a.Asker), a.ToolDigest, a.ArgsRef, a.ArgsDigest, a.Policy,
		string(a.Status), a.CreatedAt, a.ExpiresAt, a.DecidedAt, a.DecidedBy, a.Reason, a.CallerAt, a.Host)
	if isUniqueViolation(err) {
		err = fmt.Errorf("approval %s: %w", a.ID, org.ErrExists)
	}
	return err
}
