package memory

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// auditLog holds the audit chains of all orgs. The zero value is empty. The owner's
// mutex guards it.
type auditLog struct {
	last        map[string]audit.Row // the last row ever, by org
	rows        []audit.Row          // of all orgs, oldest first
	checkpoints []audit.Checkpoint   // by number, one with Pruned after one without
	sums        usageSums
}

// nextRow is a row to store, and what it adds to the sums of usage.
type nextRow struct {
	audit.Row
	usage  audit.Usage
	counts bool
}

// nextRows returns the next rows of the org's chain, one per entry. It stores nothing.
func (l *auditLog) nextRows(org string, entries []audit.Entry) ([]nextRow, error) {
	rows := make([]nextRow, len(entries))
	last := l.last[org]
	for i, e := range entries {
		row, err := audit.NextRow(org, last.Number, last.Hash, e)
		if err != nil {
			return nil, err
		}
		rows[i].Row, last = row, row
		rows[i].usage, rows[i].counts = e.Counted()
	}
	return rows, nil
}

func (l *auditLog) add(rows []nextRow) {
	if l.last == nil {
		l.last = map[string]audit.Row{}
	}
	for _, row := range rows {
		if len(l.rows) >= MaxAuditRows {
			l.rows[0] = audit.Row{}
			l.rows = l.rows[1:]
		}
		l.rows = append(l.rows, row.Row)
		l.last[row.Org] = row.Row
		if row.counts {
			l.sums.add(row.Org, row.Number, row.usage)
		}
	}
}

// Record implements journal.Recorder.
func (j *Journal) Record(_ context.Context, org string, e audit.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	rows, err := j.audit.nextRows(org, []audit.Entry{e})
	j.audit.add(rows)
	return err
}

// SyncAudit implements audit.Log: there is no disk.
func (j *Journal) SyncAudit(context.Context) error { return nil }

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

// AuditHeads implements audit.Log.
func (j *Journal) AuditHeads(context.Context) ([]audit.Head, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []audit.Head
	for org, last := range j.audit.last {
		if !slices.ContainsFunc(j.audit.rows, func(r audit.Row) bool { return r.Org == org }) {
			continue
		}
		h := audit.Head{Org: org, Number: last.Number, At: last.At, Hash: last.Hash}
		for _, c := range j.audit.checkpoints {
			if c.Org == org && !c.Pruned {
				h.Signed, h.SignedAt = c.Number, c.At
			}
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b audit.Head) int { return strings.Compare(a.Org, b.Org) })
	return out, nil
}

// AddCheckpoint implements audit.Log.
func (j *Journal) AddCheckpoint(_ context.Context, c audit.Checkpoint) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.audit.addCheckpoint(c)
	return nil
}

func (l *auditLog) addCheckpoint(c audit.Checkpoint) {
	same := func(o audit.Checkpoint) bool { return o.Org == c.Org && o.Number == c.Number && o.Pruned == c.Pruned }
	if slices.ContainsFunc(l.checkpoints, same) {
		return
	}
	at := slices.IndexFunc(l.checkpoints, func(o audit.Checkpoint) bool {
		return o.Number > c.Number || o.Number == c.Number && o.Pruned && !c.Pruned
	})
	if at < 0 {
		at = len(l.checkpoints)
	}
	l.checkpoints = slices.Insert(l.checkpoints, at, c)
}

// Checkpoints implements audit.Log.
func (j *Journal) Checkpoints(_ context.Context, org string, after int64, limit int) ([]audit.Checkpoint, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []audit.Checkpoint
	for _, c := range j.audit.checkpoints {
		if c.Org == org && c.Number > after && len(out) < limit {
			out = append(out, c)
		}
	}
	return out, nil
}

var errNotPruned = errors.New("the checkpoint does not record a removal")

// PruneAudit implements audit.Log.
func (j *Journal) PruneAudit(_ context.Context, c audit.Checkpoint) (removed int64, err error) {
	if !c.Pruned {
		return 0, errNotPruned
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.audit.addCheckpoint(c)
	had := len(j.audit.rows)
	j.audit.rows = slices.DeleteFunc(j.audit.rows, func(r audit.Row) bool { return r.Org == c.Org && r.Number <= c.Number })
	j.audit.checkpoints = slices.DeleteFunc(j.audit.checkpoints, func(o audit.Checkpoint) bool { return o.Org == c.Org && o.Number < c.Number })
	return int64(had - len(j.audit.rows)), nil
}
