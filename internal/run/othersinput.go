package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// othersInput reads the items that other writers add to a run while its owner performs it. The
// model sees them in its next turn.
type othersInput struct {
	archive journal.Archive // nil = there is none: nobody else can write to the runs
}

// read reads what the facts of other writers have added. The error is an *[journal.Unreadable] for
// what cannot be decoded, or that of the store.
func (o othersInput) read(run *runState, facts []loop.Fact) error {
	for _, f := range facts {
		b, ok := f.Body.(loop.InputAdded)
		if !ok || o.archive == nil || run.events.Stored(b.ItemsRef) {
			continue
		}
		items, err := o.items(run, b.ItemsRef)
		if err != nil {
			return err
		}
		run.events.Store(b.ItemsRef, items)
	}
	return nil
}

func (o othersInput) items(run *runState, ref string) (items item.List, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	var rows []json.RawMessage
	var uncounted *memlimit.Share // Store counts the items
	err = journal.ReadBatch(uncounted, func(limit int) (err error) {
		rows, err = o.archive.Rows(ctx, run.lease.Org, run.lease.RunID, []string{ref}, limit)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, journal.Damaged(ref, errors.New("it is missing"))
	}
	if err := json.Unmarshal(rows[0], &items); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	return items, nil
}
