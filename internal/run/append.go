package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// errDecideAgain says that somebody else's fact came in between, after which
// what was to be appended is no longer allowed.
var errDecideAgain = errors.New("decide again")

// appendTimeout bounds one append: it is not cut short by the caller's leaving,
// which is itself a fact to be stored.
const appendTimeout = 30 * time.Second

// append stores the bodies as the next facts, together with rows, and folds
// them.
func (d *drive) append(rows []Row, bodies ...loop.Body) error {
	return d.commit(Batch{Rows: rows}, bodies...)
}

// commit stores the bodies as the next facts, together with what else is in the
// batch, and folds them. Every fact is asked for at the rules first. If somebody
// else has written in between, their facts are folded, and the bodies follow if
// the rules still allow them; otherwise it returns errDecideAgain.
func (d *drive) commit(batch Batch, bodies ...loop.Body) error {
	for behind := false; ; behind = true {
		next, err := d.number(&batch, bodies)
		if err != nil && behind {
			return errDecideAgain
		} else if err != nil {
			return fmt.Errorf("run %s: %w", d.lease.RunID, err)
		}
		sent := time.Now() // the lease is extended at some time after
		err = d.write(batch)
		var b *Behind
		switch {
		case err == nil:
			d.state, d.written = next, sent
			d.recorded(batch.Audit...)
			if d.suspect && !d.state.Suspect() {
				d.clear()
			}
			return nil
		case !errors.As(err, &b):
			return d.judged(err)
		}
		for _, f := range b.Facts {
			d.state = loop.Apply(d.state, f)
		}
		if d.state.Ended != "" {
			d.cancel(errNobody)
		}
	}
}

// judged returns a verdict of the journal as it is; everything else is the
// store's trouble, and the caller is told to come back.
func (d *drive) judged(err error) error {
	var known *Submitted
	var over *OverBudget
	switch {
	case errors.As(err, &known), errors.As(err, &over), errors.As(err, new(*org.CapError)), errors.Is(err, ErrNoSlot), errors.Is(err, ErrFenced), errors.Is(err, org.ErrExists):
		return fmt.Errorf("run %s: journal: %w", d.lease.RunID, err)
	}
	d.trouble(err)
	return unavailable(fmt.Errorf("run %s: journal: %w", d.lease.RunID, err))
}

// number makes facts of the bodies and folds them into a state to be.
func (d *drive) number(b *Batch, bodies []loop.Body) (loop.State, error) {
	b.Facts, b.Sync, b.Audit = make([]loop.Fact, len(bodies)), d.mustSync(*b, bodies), nil
	s, at := d.state, d.now()
	for i, body := range bodies {
		f := loop.Fact{Seq: s.Seq + 1, Epoch: d.lease.Epoch, At: at, Version: loop.Version, Body: body}
		if err := loop.Allowed(s, f); err != nil {
			return s, err
		}
		b.Audit = append(b.Audit, d.entries(s, f)...)
		s = loop.Apply(s, f)
		b.Facts[i] = f
	}
	return s, nil
}

// mustSync says which facts must be on disk before the run goes on. Of a light
// run these are its beginning, its end, the intent of every call that must not
// be made twice, and what is set aside in shared budgets: no model is asked
// before all of them have said yes. Of a durable run it is all of them.
func (d *drive) mustSync(batch Batch, bodies []loop.Body) bool {
	if d.state.Grade == loop.Durable || len(batch.Holds) > 0 {
		return true
	}
	for _, body := range bodies {
		switch b := body.(type) {
		case loop.Accepted, loop.Finished, loop.CallWaiting, loop.Parked:
			return true
		case loop.CallStarted:
			if c, ok := d.state.Call(b.Key); ok && c.Prepared.Class != tool.Read {
				return true
			}
		}
	}
	return false
}

// write stores the batch. A relay has no stored run.
func (d *drive) write(b Batch) error {
	if d.req.Grade == loop.Relay {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), appendTimeout)
	defer cancel()
	return d.o.Journal.Append(ctx, d.lease, d.state.Seq, b)
}

// store keeps items for the rest of the run and returns the row that stores
// them for longer.
func (d *drive) store(ref string, items []item.Item) []Row {
	if d.items == nil {
		d.items = map[string][]item.Item{}
	}
	d.items[ref] = items
	if !d.retelling { // what a replay decodes is dropped when it has been told
		d.account.Add(int(textBytes(items)))
	}
	return []Row{{ref, item.List(items)}}
}

// transcript resolves refs to items.
func (d *drive) transcript(refs []string) []item.Item {
	var out []item.Item
	for _, ref := range refs {
		out = append(out, d.items[ref]...)
	}
	return out
}
