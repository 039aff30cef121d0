package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// mintedPrefix begins the call ids that are ours, so that nobody looks for a
// provider's ids.
const mintedPrefix = "call_tp_"

// handOver returns the calls that are the caller's. When the run has items that
// the caller does not see, the calls get ids of ours, and the items are stored
// under them first.
func (d *drive) handOver() ([]loop.Handed, error) {
	h := Handover{RunID: d.lease.RunID, CallIDs: map[string]string{}}
	hides := d.state.HidesItems()
	var calls []loop.Handed
	for _, c := range d.state.ClientCalls() {
		id := c.ProviderID
		if hides {
			id = d.o.NewID(mintedPrefix)
			h.CallIDs[id] = c.ProviderID
		}
		calls = append(calls, loop.Handed{Key: c.Key, ID: id})
	}
	if !hides {
		return calls, nil
	}
	h.Full = d.full
	h.Items = d.transcript(d.state.HiddenRefs())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), appendTimeout)
	defer cancel()
	if err := d.o.Handovers.Save(ctx, d.req.Org, d.req.Principal, h); err != nil {
		d.trouble(err)
		return nil, unavailable(fmt.Errorf("run %s: hand over: %w", d.lease.RunID, err))
	}
	return calls, nil
}

// splice replaces each assistant item whose calls carry ids of ours by the
// items that were kept for it, and gives the results the provider's ids back.
// Ids that nobody kept for this principal are passed on as they are.
func (d *drive) splice(items []item.Item) ([]item.Item, error) {
	var out []item.Item
	original := map[string]string{}
	for i, it := range items {
		h, err := d.handoverOf(it)
		if err != nil {
			return nil, err
		}
		switch {
		case h != nil:
			if out == nil {
				out = append(out, items[:i]...)
			}
			out = append(out, h.Items...)
			d.keepAll(h.Full)
			for ours, theirs := range h.CallIDs {
				original[ours] = theirs
			}
		case it.Role == item.Tool && original[it.CallID] != "":
			it.CallID, it.Native = original[it.CallID], item.Native{}
			out = append(out, it)
		case out != nil:
			out = append(out, it)
		}
	}
	if out == nil {
		return items, nil
	}
	inCallOrder(out)
	return out, nil
}

// inCallOrder puts the results that follow each assistant item into the order
// of its calls: ours were kept, the caller's come after them.
func inCallOrder(items []item.Item) {
	for i := 0; i < len(items); i++ {
		calls := items[i].Calls
		end := i + 1
		for end < len(items) && items[end].Role == item.Tool {
			end++
		}
		place := func(result item.Item) int {
			return slices.IndexFunc(calls, func(c item.Call) bool { return c.ID == result.CallID })
		}
		slices.SortStableFunc(items[i+1:end], func(a, b item.Item) int { return cmp.Compare(place(a), place(b)) })
		i = end - 1
	}
}

func (d *drive) handoverOf(it item.Item) (*Handover, error) {
	for _, c := range it.Calls {
		if !strings.HasPrefix(c.ID, mintedPrefix) {
			continue
		}
		h, err := d.o.Handovers.Find(d.ctx, d.req.Org, d.req.Principal, c.ID)
		if err != nil {
			return nil, fmt.Errorf("run %s: hand over: %w", d.lease.RunID, err)
		}
		return h, nil
	}
	return nil, nil
}
