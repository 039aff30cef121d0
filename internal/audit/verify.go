package audit

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
)

// Finding is something that is not as it was recorded.
type Finding struct {
	Org         string
	First, Last int64 // the rows that it is about
	Text        string
}

// String returns the finding in one line.
func (f Finding) String() string {
	if f.First == f.Last {
		return fmt.Sprintf("org %s, row %d: %s", f.Org, f.First, f.Text)
	}
	return fmt.Sprintf("org %s, rows %d to %d: %s", f.Org, f.First, f.Last, f.Text)
}

// MaxFindings is where a verification of a chain ends: there is nothing left to
// trust in it.
const MaxFindings = 100

// Report is what a verification of one chain has seen.
type Report struct {
	Org         string
	First, Last int64 // rows; 0 = there are none
	Rows        int64
	Checkpoints int    // with a good signature
	CheckedTo   int64  // the row of the last of these; what follows it could be cut off unseen
	Losses      []Loss // of data, accepted by the operator and signed; they are no findings
	Findings    []Finding
}

// Unsigned reports whether there are rows of which no checkpoint speaks: that they
// fit together does not show that they are those that were recorded.
func (r Report) Unsigned() bool { return r.Rows > 0 && r.CheckedTo == 0 }

// Chain is one org's rows and checkpoints, in order, as they are read.
type Chain interface {
	AuditRows(ctx context.Context, org string, q Query) ([]Row, error)
	Checkpoints(ctx context.Context, org string, after int64, limit int) ([]Checkpoint, error)
}

// Verify reads the whole chain of an org and reports what is not as it was
// recorded. The witness holds checkpoints from another place, such as the file
// beside the store; nil = none. The error says that something could not be read.
func Verify(ctx context.Context, org string, chain Chain, key ed25519.PublicKey, witness []Checkpoint) (Report, error) {
	v := &verifier{Report: Report{Org: org}, key: key}
	if err := v.marks(ctx, chain, witness); err != nil {
		return v.Report, err
	}
	q := Query{Limit: MaxRows}
	for {
		rows, err := chain.AuditRows(ctx, org, q)
		if err != nil {
			return v.Report, err
		}
		for _, row := range rows {
			v.row(row)
		}
		if len(rows) == 0 || v.full() {
			break
		}
		q.After = rows[len(rows)-1].Number
	}
	v.end()
	return v.Report, nil
}

type verifier struct {
	Report
	key   ed25519.PublicKey
	at    map[int64][]Checkpoint // by row, each with a good signature
	above int64                  // the last row of which a checkpoint speaks

	next int64 // the number that is due
	hash Hash  // of the row before
}

func (v *verifier) full() bool { return len(v.Findings) >= MaxFindings }

func (v *verifier) find(first, last int64, format string, args ...any) {
	if !v.full() {
		v.Findings = append(v.Findings, Finding{v.Org, first, last, fmt.Sprintf(format, args...)})
	}
}

const changed = "changed or moved, or the row before it was"

// findChanged makes one finding of rows that stand one behind the other: where
// one was put in or taken out, all that follow have other numbers.
func (v *verifier) findChanged(number int64) {
	if n := len(v.Findings); n > 0 {
		if last := &v.Findings[n-1]; last.Text == changed && last.Last == number-1 {
			last.Last = number
			return
		}
	}
	v.find(number, number, changed)
}

// marks reads the checkpoints. The latest cut says where the chain begins.
func (v *verifier) marks(ctx context.Context, chain Chain, witness []Checkpoint) error {
	v.at, v.next = map[int64][]Checkpoint{}, 1
	marks, losses := standing(v.Org, witness, v.key)
	v.Losses = losses
	for _, c := range marks {
		v.mark(c)
	}
	for after := int64(0); ; {
		list, err := chain.Checkpoints(ctx, v.Org, after, MaxRows)
		if err != nil {
			return err
		}
		for _, c := range list {
			v.mark(c)
			after = c.Number
		}
		if len(list) < MaxRows {
			return nil
		}
		after-- // a cut and a checkpoint may stand at one row
	}
}

func (v *verifier) mark(c Checkpoint) {
	for _, known := range v.at[c.Number] {
		if known.Hash == c.Hash && known.Cut == c.Cut && known.Lost == c.Lost && known.At == c.At && string(known.Signature) == string(c.Signature) {
			return // it stands in both places
		}
	}
	if err := c.Check(v.key); err != nil {
		what := "a checkpoint"
		switch {
		case c.Lost:
			what = "the record of an accepted loss"
		case c.Cut:
			what = "the record of a deletion"
		}
		v.find(c.Number, c.Number, "%s: %v", what, errors.Unwrap(err))
		return
	}
	v.Checkpoints++
	v.at[c.Number] = append(v.at[c.Number], c)
	v.above = max(v.above, c.Number)
	if c.Cut && c.Number >= v.next {
		v.next, v.hash = c.Number+1, c.Hash
	}
}

func (v *verifier) row(r Row) {
	if v.full() {
		return
	}
	switch {
	case r.Number < v.next && v.Rows == 0: // a removal that has not come to its end
		return
	case r.Number > v.next:
		v.find(v.next, r.Number-1, "missing")
	case r.Hash != r.after(v.hash):
		v.findChanged(r.Number)
	}
	if v.First == 0 {
		v.First = r.Number
	}
	v.Rows++
	v.Last, v.next, v.hash = r.Number, r.Number+1, r.Hash
	for _, c := range v.at[r.Number] {
		if c.Hash != r.Hash {
			v.find(r.Number, r.Number, "differs from the checkpoint of %s: the rows up to here were replaced", day(c.At))
			continue
		}
		v.CheckedTo = r.Number
	}
}

func (v *verifier) end() {
	if v.above > v.next-1 && !v.full() {
		v.find(v.next, v.above, "missing: removed from the end, but covered by a checkpoint")
	}
}
