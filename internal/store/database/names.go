package database

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// name is what a run has once: a fact of a kind about a call and attempt, or the ref of a
// row.
type name struct {
	kind    string // of the fact; nameOfRow for a row
	what    string // the key of the call, or the ref
	attempt int
}

const nameOfRow = "row" // no fact has this kind

// exists returns the error for a name that the run has.
func (n name) exists() error {
	if n.kind == nameOfRow {
		return fmt.Errorf("row %s: %w", n.what, org.ErrExists)
	}
	return fmt.Errorf("fact %s of call %s, attempt %d: %w", n.kind, n.what, n.attempt, org.ErrExists)
}

// names returns the names in the batch.
func (b batch) names() []name {
	out := make([]name, 0, len(b.facts)+len(b.rows))
	for _, f := range b.facts {
		if f.callKey != "" {
			out = append(out, name{f.kind, string(f.callKey), f.attempt})
		}
	}
	for _, r := range b.rows {
		out = append(out, name{nameOfRow, r.ref, 0})
	}
	return out
}

// checkNames returns an error that wraps org.ErrExists if the run has one of the names, or
// if one is there twice. Names of rows that are not in packs are unique by the indexes of the
// file; the head knows the names of a light run and those in packs. It is called with h
// locked.
func (h *head) checkNames(ctx context.Context, db querier, key runKey, names []name) error {
	if len(names) == 0 {
		return nil
	}
	if h.names == nil {
		if err := h.loadNames(ctx, db, key); err != nil {
			return err
		}
	}
	for i, n := range names {
		if _, taken := h.names[n]; taken {
			return n.exists()
		}
		for _, other := range names[:i] {
			if n == other {
				return n.exists()
			}
		}
	}
	return nil
}

// addNames adds the names of a batch that was taken. It is called with h locked, after
// checkNames.
func (h *head) addNames(names []name) {
	for _, n := range names {
		h.names[n] = struct{}{}
	}
}

// loadNames reads the names of a run that this process did not write from its beginning. It
// is called with h locked.
func (h *head) loadNames(ctx context.Context, db querier, key runKey) error {
	names := map[name]struct{}{}
	if h.Seq == 0 {
		h.names = names
		return nil
	}
	if err := h.drain(ctx); err != nil {
		return err
	}
	stored, err := list(ctx, db, scanFact, `SELECT seq, epoch, at, v, kind, body FROM run_facts WHERE org = ? AND run_id = ? AND kind = ?`, key.org, key.run, kindPack)
	if err != nil {
		return err
	}
	for _, one := range stored {
		p, err := decodePack(one.Version, one.body)
		if err != nil {
			continue // a reader of the run gets the error
		}
		for _, f := range p.Facts {
			names[name{string(f.Kind), string(f.Call), f.Attempt}] = struct{}{}
		}
		for _, r := range p.Rows {
			names[name{nameOfRow, r.Ref, 0}] = struct{}{}
		}
	}
	if packs(h.Summary.Grade) {
		others, err := list(ctx, db, scanName, `SELECT kind, call_key, attempt FROM run_facts WHERE org = ?1 AND run_id = ?2 AND call_key IS NOT NULL
			UNION ALL SELECT ?3, ref, 0 FROM run_rows WHERE org = ?1 AND run_id = ?2`, key.org, key.run, nameOfRow)
		if err != nil {
			return err
		}
		for _, n := range others {
			names[n] = struct{}{}
		}
	}
	h.names = names
	return nil
}

func scanName(row scanner) (n name, err error) {
	err = row.Scan(&n.kind, &n.what, &n.attempt)
	return n, err
}

// packs reports whether the facts and rows of a run are packed; see pack.go.
func packs(grade loop.Grade) bool { return grade != loop.Durable }
