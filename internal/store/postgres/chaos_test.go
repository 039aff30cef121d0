package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// folder is an owner of a run, or somebody who writes without a lease, with what it has folded of the journal.
type folder struct {
	*pen
	folded []string
}

// read folds the journal anew.
func (d *folder) read() error {
	story, err := d.store.Load(d.Context(), d.lease.Org, d.lease.RunID)
	if err != nil {
		return err
	}
	d.folded, d.seq = said(story.Facts), story.Last()
	return nil
}

// add appends a fact, and folds what others have appended before. It returns an error if what is stored is not what was folded.
func (d *folder) add(ref string, synced bool) error {
	for {
		err := d.append(journal.Batch{Sync: synced}, input(ref))
		if err == nil {
			d.folded = append(d.folded, ref)
			break
		}
		behind, ok := errors.AsType[*journal.Behind](err)
		if !ok {
			return err
		}
		if len(behind.Facts) == 0 || behind.Facts[0].Seq > d.seq+1 || behind.Facts[0].Seq <= d.seq && d.lease.Epoch == 0 {
			return fmt.Errorf("behind fact %d by %v, of %w", d.seq, said(behind.Facts), errWrong)
		}
		known := behind.Facts[0].Seq - 1
		d.folded, d.seq = append(d.folded[:known], said(behind.Facts)...), known+int64(len(behind.Facts))
	}
	if !synced {
		return nil
	}
	story, err := d.stores[0].Load(d.Context(), d.lease.Org, d.lease.RunID)
	if err != nil {
		return err
	}
	if stored := said(story.Facts); len(stored) < len(d.folded) || !slices.Equal(stored[:len(d.folded)], d.folded) {
		return fmt.Errorf("%q is stored, and the writer has folded %q: %w", stored, d.folded, errWrong)
	}
	return nil
}

var errWrong = errors.New("the store has broken its word")

// take claims the run for another process.
func (d *folder) take(owner string) error {
	_ = d.store.Release(d.Context(), d.lease)
	d.store = d.of(rand.IntN(len(d.stores)))
	lease, ok, err := d.store.ClaimRun(d.Context(), owner, d.lease.Key())
	if err == nil && !ok {
		err = errors.New("the run cannot be claimed")
	}
	if err != nil {
		return err
	}
	d.lease = lease
	return d.read()
}

// Owners come and go, and others append without a lease, on all replicas: what each has folded is what is stored, from the
// beginning on.
func TestRunsOfManyWriters(t *testing.T) {
	r := newReplicas(t, 3, org.Caps{})
	r.withOrgs("a", "b")
	const runs = 6
	var lost, added atomic.Int64
	r.each(3*runs, func(i int) error {
		run := i / 3
		p := r.pen(r.of(rand.IntN(3)), []string{"a", "b"}[run%2], fmt.Sprint("run ", run))
		d := &folder{pen: p}
		if i%3 > 0 { // without a lease
			p.lease.Epoch, p.lease.Owner = 0, ""
			for n := 0; n < 15; {
				d.store = r.of(rand.IntN(3))
				err := d.read()
				if err == nil {
					err = d.add(fmt.Sprint("foreign ", i, " ", n), true)
				}
				if err == nil {
					n++
				} else if !errors.Is(err, org.ErrNotFound) {
					return fmt.Errorf("run %d, without a lease: %w", run, err)
				}
			}
			return nil
		}
		if err := p.append(journal.Batch{Sync: true}, p.accepted(grades()[run/2%2])); err != nil {
			return err
		}
		d.folded = []string{"accepted"}
		for n := range 50 {
			err := d.add(fmt.Sprint("owner ", n), rand.IntN(2) == 0)
			if errors.Is(err, errWrong) {
				return fmt.Errorf("run %d, owner: %w", run, err)
			}
			added.Add(1)
			if err != nil {
				lost.Add(1)
			}
			if err != nil || rand.IntN(10) == 0 {
				if err := d.take(fmt.Sprint("owner ", n)); err != nil {
					return fmt.Errorf("run %d, after %w: %w", run, errors.Join(err), err)
				}
			}
		}
		return nil
	})
	if lost.Load() > 0 {
		t.Errorf("%d of %d owners have lost an append to others", lost.Load(), added.Load())
	}
	r.checkUsage()
}
