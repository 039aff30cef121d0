package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
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
// them. Every fact is asked for at the rules first. If somebody else has
// written in between, their facts are folded, and the bodies follow if the
// rules still allow them; otherwise it returns errDecideAgain.
func (d *drive) append(rows []Row, bodies ...loop.Body) error {
	for behind := false; ; behind = true {
		batch, next, err := d.batch(rows, bodies)
		if err != nil && behind {
			return errDecideAgain
		} else if err != nil {
			return fmt.Errorf("run %s: %w", d.lease.RunID, err)
		}
		err = d.write(batch)
		var b *Behind
		switch {
		case err == nil:
			d.state = next
			return nil
		case !errors.As(err, &b):
			return fmt.Errorf("run %s: journal: %w", d.lease.RunID, err)
		}
		for _, f := range b.Facts {
			d.state = loop.Apply(d.state, f)
		}
		if d.state.Ended != "" {
			d.cancel(errNobody)
		}
	}
}

// batch numbers the bodies and folds them into a state to be.
func (d *drive) batch(rows []Row, bodies []loop.Body) (Batch, loop.State, error) {
	b := Batch{Rows: rows, Facts: make([]loop.Fact, len(bodies)), Sync: d.mustSync(bodies)}
	s, at := d.state, d.o.Now().UnixMilli()
	for i, body := range bodies {
		f := loop.Fact{Seq: s.Seq + 1, Epoch: d.lease.Epoch, At: at, Version: loop.Version, Body: body}
		if err := loop.Allowed(s, f); err != nil {
			return b, s, err
		}
		s = loop.Apply(s, f)
		b.Facts[i] = f
	}
	return b, s, nil
}

// mustSync says which facts must be on disk before the run goes on. Of a light
// run these are its beginning, its end, and the intent of every call that must
// not be made twice; of a durable run all of them.
func (d *drive) mustSync(bodies []loop.Body) bool {
	if d.req.Grade == loop.Durable {
		return true
	}
	for _, body := range bodies {
		switch b := body.(type) {
		case loop.Accepted, loop.Finished, loop.CallWaiting:
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
	return []Row{{ref, items}}
}

// transcript resolves refs to items.
func (d *drive) transcript(refs []string) []item.Item {
	var out []item.Item
	for _, ref := range refs {
		out = append(out, d.items[ref]...)
	}
	return out
}
