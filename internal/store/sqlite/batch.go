package sqlite

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// batch is a run.Batch in its stored form.
type batch struct {
	key     runKey
	facts   []fact
	rows    []row
	opening *run.Opening
	holds   []run.Hold
	settled []run.Settled
	audit   []audit.Entry
}

// fact is a row of run_facts.
type fact struct {
	loop.Fact
	callKey loop.CallKey
	attempt int
	body    []byte
}

// row is a row of run_rows.
type row struct {
	ref  string
	body []byte
}

func encodeBatch(lease run.Lease, b run.Batch) (batch, error) {
	out := batch{
		key:   runKey{lease.Org, lease.RunID},
		facts: make([]fact, len(b.Facts)), rows: make([]row, len(b.Rows)),
		opening: b.Opening, holds: b.Holds, settled: b.Settled, audit: b.Audited(lease),
	}
	for i, f := range b.Facts {
		body, err := loop.Encode(f.Body)
		if err != nil {
			return out, fmt.Errorf("fact %d: %w", f.Seq, err)
		}
		key, attempt := run.CallOf(f.Body)
		out.facts[i] = fact{f, key, attempt, body}
	}
	for i, r := range b.Rows {
		body, err := r.JSON()
		if err != nil {
			return out, err
		}
		out.rows[i] = row{r.Ref, body}
	}
	return out, nil
}

// write stores the batch. The checks of the opening come first, then the head, whose
// update fails if the run has another end or a higher epoch.
func (b batch) write(t *tx, c headChange) error {
	if c.seq == 0 && b.opening != nil {
		if err := b.checkOpening(t, c); err != nil {
			return err
		}
	}
	if err := b.writeHead(t, c); err != nil {
		return err
	}
	for _, f := range b.facts {
		if err := b.writeFact(t, f); err != nil {
			return err
		}
	}
	for _, r := range b.rows {
		if err := b.writeRow(t, r); err != nil {
			return err
		}
	}
	if err := t.addUsage(b.key.org, b.size(c), 0); err != nil {
		return err
	}
	if err := b.charge(t, c); err != nil {
		return err
	}
	return t.addAudit(b.key.org, b.audit)
}

func (b batch) writeFact(t *tx, f fact) error {
	var call any // NULL
	if f.callKey != "" {
		call = string(f.callKey)
	}
	_, err := t.exec(`INSERT INTO run_facts (org, run_id, seq, epoch, kind, call_key, attempt, at, v, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		b.key.org, b.key.run, f.Seq, f.Epoch, string(f.Body.Kind()), call, f.attempt, f.At, f.Version, string(f.body))
	if isUniqueViolation(err) {
		return fmt.Errorf("fact %s of call %s, attempt %d: %w", f.Body.Kind(), f.callKey, f.attempt, org.ErrExists)
	}
	return err
}

func (b batch) writeRow(t *tx, r row) error {
	_, err := t.exec(`INSERT INTO run_rows (org, run_id, ref, body) VALUES (?, ?, ?, ?)`, b.key.org, b.key.run, r.ref, string(r.body))
	if isUniqueViolation(err) {
		return fmt.Errorf("row %s: %w", r.ref, org.ErrExists)
	}
	return err
}
