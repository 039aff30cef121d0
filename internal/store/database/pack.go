package database

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// A pack is one row of run_facts that holds consecutive facts of a run, and rows that were
// stored with them. The facts and rows that one write adds to a light run become packs: one
// row in place of about twenty, each with one or two index entries. Its columns are those
// of its last fact, except kind, call_key and v. So the packs with facts after a number are
// found by their seq. The index run_facts_call does not see the facts of a pack, and the key
// of run_rows does not see its rows: the head of the run checks both (see names).
//
// Facts and rows of a durable run are not packed. Its writes are small, and its rows are
// looked up by ref while it is long.
const (
	kindPack    = "pack" // in the column kind; no fact has it
	packVersion = 1      // in the column v

	maxPacked   = 8 << 10  // bytes of a body; a larger one is a row of its own
	maxPackSize = 64 << 10 // bytes of the bodies of a pack; it is read as a whole
)

// packed returns the facts and rows as they are stored: as packs, and those that are not
// packed.
func packed(facts []fact, rows []row) ([]fact, []row) {
	var small, large []row
	for _, r := range rows {
		if len(r.body) <= maxPacked && r.rest == nil {
			small = append(small, r)
		} else {
			large = append(large, r)
		}
	}
	out := make([]fact, 0, 1)
	for len(facts) > 0 {
		n, size := 0, 0
		for n < len(facts) && len(facts[n].body) <= maxPacked && size+len(facts[n].body) <= maxPackSize {
			size += len(facts[n].body)
			n++
		}
		m := 0
		for n > 0 && m < len(small) && size+len(small[m].body) <= maxPackSize {
			size += len(small[m].body)
			m++
		}
		if n+m < 2 { // a large fact, or one alone
			out, facts = append(out, facts[0]), facts[1:]
			continue
		}
		out = append(out, newPack(facts[:n], small[:m], size))
		facts, small = facts[n:], small[m:]
	}
	return out, append(large, small...)
}

// newPack returns the row of the facts and rows, whose bodies have so many bytes.
func newPack(facts []fact, rows []row, size int) fact {
	const perFact, perRow = 100, 50 // bytes beside a body, about
	b := make([]byte, 0, size+perFact*len(facts)+perRow*len(rows)+len(`{"facts":[],"rows":[]}`))
	b = append(b, `{"facts":[`...)
	for i, f := range facts {
		b = appendFact(appendComma(b, i), f)
	}
	b = append(b, ']')
	if len(rows) > 0 {
		b = append(b, `,"rows":[`...)
		for i, r := range rows {
			b = append(appendComma(b, i), `{"ref":`...)
			b = jsonscan.AppendString(b, r.ref)
			b = append(append(append(b, `,"body":`...), r.body...), '}')
		}
		b = append(b, ']')
	}
	last := facts[len(facts)-1]
	return fact{
		Fact: loop.Fact{Seq: last.Seq, Epoch: last.Epoch, At: last.At, Version: packVersion},
		kind: kindPack, body: append(b, '}'),
	}
}

func appendComma(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ',')
}

// appendFact appends a fact in the form of packedFact.
func appendFact(b []byte, f fact) []byte {
	b = jsonscan.AppendString(append(b, `{"kind":`...), f.kind)
	b = strconv.AppendInt(append(b, `,"epoch":`...), f.Epoch, 10)
	b = strconv.AppendInt(append(b, `,"at":`...), f.At, 10)
	b = strconv.AppendInt(append(b, `,"v":`...), int64(f.Version), 10)
	if f.callKey != "" {
		b = jsonscan.AppendString(append(b, `,"call":`...), f.callKey)
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(f.attempt), 10)
	}
	return append(append(append(b, `,"body":`...), f.body...), '}')
}

// pack is the body of a pack.
type pack struct {
	Facts []packedFact `json:"facts"`
	Rows  []packedRow  `json:"rows"`
}

type packedFact struct {
	Kind    loop.Kind       `json:"kind"`
	Epoch   int64           `json:"epoch"`
	At      int64           `json:"at"`
	Version int             `json:"v"`
	Call    loop.CallKey    `json:"call"`
	Attempt int             `json:"attempt"`
	Body    json.RawMessage `json:"body"`
}

type packedRow struct {
	Ref  string          `json:"ref"`
	Body json.RawMessage `json:"body"`
}

func decodePack(version int, body []byte) (p pack, err error) {
	if version > packVersion {
		return p, fmt.Errorf("pack: %w: %d", loop.ErrUnknownVersion, version)
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return p, fmt.Errorf("pack: %w", err)
	}
	return p, nil
}

// unpack returns the facts of a stored row: its own or, if it is a pack, those of the pack
// with a number above after. It also returns the rows of the pack.
func (f storedFact) unpack(after int64) ([]storedFact, []packedRow) {
	if f.kind != kindPack {
		return []storedFact{f}, nil
	}
	p, err := decodePack(f.Version, f.body)
	if err != nil {
		f.err = err
		return []storedFact{f}, nil
	}
	first := f.Seq - int64(len(p.Facts)) + 1
	out := make([]storedFact, 0, len(p.Facts))
	for i, one := range p.Facts {
		if seq := first + int64(i); seq > after {
			out = append(out, storedFact{Fact: loop.Fact{Seq: seq, Epoch: one.Epoch, At: one.At, Version: one.Version}, kind: one.Kind, body: one.Body})
		}
	}
	return out, p.Rows
}

// unpackAll is unpack for several rows.
func unpackAll(stored []storedFact, after int64) (facts []storedFact, rows []packedRow) {
	facts = make([]storedFact, 0, len(stored))
	for _, one := range stored {
		f, r := one.unpack(after)
		facts, rows = append(facts, f...), append(rows, r...)
	}
	return facts, rows
}
