package audit

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
)

// Finding is evidence that rows were changed or removed.
type Finding struct {
	Org         string
	First, Last int64 // the affected rows
	Text        string
}

// String returns the finding as one line.
func (f Finding) String() string {
	if f.First == f.Last {
		return fmt.Sprintf("org %s, row %d: %s", f.Org, f.First, f.Text)
	}
	return fmt.Sprintf("org %s, rows %d to %d: %s", f.Org, f.First, f.Last, f.Text)
}

// MaxFindings is the number of findings after which Verify stops: a chain with so
// many cannot be trusted anywhere.
const MaxFindings = 100

// Report is the result of verifying one chain.
type Report struct {
	Org         string
	First, Last int64 // addRow numbers; 0 = no rows
	Rows        int64
	Checkpoints int    // with a valid signature
	SignedTo    int64  // the last row that a checkpoint covers; removing later rows cannot be detected
	Losses      []Loss // accepted by the operator; not findings
	Findings    []Finding
}

// Unsigned reports whether there are rows but no checkpoint that covers one. An
// intact chain without checkpoints may have been recomputed.
func (r Report) Unsigned() bool { return r.Rows > 0 && r.SignedTo == 0 }

// Chain reads the rows and checkpoints of an org, in order. [Log] implements it.
type Chain interface {
	AuditRows(ctx context.Context, org string, q Query) ([]Row, error)
	Checkpoints(ctx context.Context, org string, after int64, limit int) ([]Checkpoint, error)
}

// Verify reads the whole chain of an org and reports every sign of a change. The
// witness contains checkpoints from a second place, such as the file beside the
// store; nil = none. An error means that something could not be read.
func Verify(ctx context.Context, org string, chain Chain, key ed25519.PublicKey, witness []Checkpoint) (Report, error) {
	v := &verifier{Report: Report{Org: org}, key: key}
	if err := v.readCheckpoints(ctx, chain, witness); err != nil {
		return v.Report, err
	}
	q := Query{Limit: MaxRows}
	for {
		rows, err := chain.AuditRows(ctx, org, q)
		if err != nil {
			return v.Report, err
		}
		for _, row := range rows {
			v.addRow(row)
		}
		if len(rows) == 0 || v.tooManyFindings() {
			break
		}
		q.After = rows[len(rows)-1].Number
	}
	v.finish()
	return v.Report, nil
}

type verifier struct {
	Report
	key         ed25519.PublicKey
	checkpoints map[int64][]Checkpoint // by row number, each with a valid signature
	lastSigned  int64                  // the highest number in a checkpoint

	next int64 // the number that the next row must have
	hash Hash  // of the previous row
}

func (v *verifier) tooManyFindings() bool { return len(v.Findings) >= MaxFindings }

func (v *verifier) addFinding(first, last int64, format string, args ...any) {
	if !v.tooManyFindings() {
		v.Findings = append(v.Findings, Finding{v.Org, first, last, fmt.Sprintf(format, args...)})
	}
}

const changedText = "changed or moved, or the row before it was"

// addChanged reports consecutive changed rows as one finding: after an inserted or
// deleted row, every later row has a wrong number.
func (v *verifier) addChanged(number int64) {
	if n := len(v.Findings); n > 0 {
		if last := &v.Findings[n-1]; last.Text == changedText && last.Last == number-1 {
			last.Last = number
			return
		}
	}
	v.addFinding(number, number, changedText)
}

// readCheckpoints reads the checkpoints. The latest one with Pruned set is the start of the chain.
func (v *verifier) readCheckpoints(ctx context.Context, chain Chain, witness []Checkpoint) error {
	v.checkpoints, v.next = map[int64][]Checkpoint{}, 1
	marks, losses := validCheckpoints(v.Org, witness, v.key)
	v.Losses = losses
	for _, c := range marks {
		v.addCheckpoint(c)
	}
	for after := int64(0); ; {
		list, err := chain.Checkpoints(ctx, v.Org, after, MaxRows)
		if err != nil {
			return err
		}
		for _, c := range list {
			v.addCheckpoint(c)
			after = c.Number
		}
		if len(list) < MaxRows {
			return nil
		}
		after-- // a row can have both a plain checkpoint and one with Pruned
	}
}

func (v *verifier) addCheckpoint(c Checkpoint) {
	for _, known := range v.checkpoints[c.Number] {
		if known.Hash == c.Hash && known.Pruned == c.Pruned && known.LossAccepted == c.LossAccepted && known.At == c.At && string(known.Signature) == string(c.Signature) {
			return // the store and the witness have the same checkpoint
		}
	}
	if err := c.Check(v.key); err != nil {
		what := "a checkpoint"
		switch {
		case c.LossAccepted:
			what = "the record of an accepted loss"
		case c.Pruned:
			what = "the record of a deletion"
		}
		v.addFinding(c.Number, c.Number, "%s: %v", what, errors.Unwrap(err))
		return
	}
	v.Checkpoints++
	v.checkpoints[c.Number] = append(v.checkpoints[c.Number], c)
	v.lastSigned = max(v.lastSigned, c.Number)
	if c.Pruned && c.Number >= v.next {
		v.next, v.hash = c.Number+1, c.Hash
	}
}

func (v *verifier) addRow(r Row) {
	if v.tooManyFindings() {
		return
	}
	switch {
	case r.Number < v.next && v.Rows == 0: // left over from an interrupted removal
		return
	case r.Number > v.next:
		v.addFinding(v.next, r.Number-1, "missing")
	case r.Hash != r.chainHash(v.hash):
		v.addChanged(r.Number)
	}
	if v.First == 0 {
		v.First = r.Number
	}
	v.Rows++
	v.Last, v.next, v.hash = r.Number, r.Number+1, r.Hash
	for _, c := range v.checkpoints[r.Number] {
		if c.Hash != r.Hash {
			v.addFinding(r.Number, r.Number, "differs from the checkpoint of %s: the rows up to here were replaced", formatTime(c.At))
			continue
		}
		v.SignedTo = r.Number
	}
}

func (v *verifier) finish() {
	if v.lastSigned > v.next-1 && !v.tooManyFindings() {
		v.addFinding(v.next, v.lastSigned, "missing: removed from the end, but covered by a checkpoint")
	}
}
