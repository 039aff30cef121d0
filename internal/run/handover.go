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
func (d *drive) handOver() ([]loop.HandedOverCall, error) {
	h := Handover{RunID: d.lease.RunID, CallIDs: map[string]string{}}
	hides := d.state.HidesItems()
	var calls []loop.HandedOverCall
	for _, c := range d.state.ClientCalls() {
		id := c.ProviderID
		if hides {
			id = d.o.NewID(mintedPrefix)
			h.CallIDs[id] = c.ProviderID
		}
		calls = append(calls, loop.HandedOverCall{Key: c.Key, ID: id})
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

// splice replaces each answer whose calls carry ids of ours by the items that
// were kept for it, and gives the results the provider's ids back. Ids that were
// not kept for this principal are passed on unchanged.
func (d *drive) splice(items []item.Item) ([]item.Item, error) {
	if !slices.ContainsFunc(items, minted) {
		return items, nil
	}
	var out transcript
	original := map[string]string{}
	spliced := false
	for turn := range item.Turns(items) {
		h, err := d.handoverOf(turn)
		if err != nil {
			return nil, err
		}
		if h == nil {
			out.add(turn)
			if it := &out.items[len(out.items)-1]; it.Kind == item.ToolResult && original[it.CallID] != "" {
				it.CallID, it.Native = original[it.CallID], item.Native{}
			}
			continue
		}
		spliced = true
		out.add(h.Items)
		d.keepAll(h.Full)
		for ours, theirs := range h.CallIDs {
			original[ours] = theirs
		}
	}
	if !spliced {
		return items, nil
	}
	inCallOrder(out.items)
	return out.items, nil
}

// minted reports whether the item is a tool call with an id of ours.
func minted(i item.Item) bool {
	return i.Kind == item.ToolCall && strings.HasPrefix(i.CallID, mintedPrefix)
}

// transcript is put together from items of several sources.
type transcript struct {
	items []item.Item
	turns int
}

// add appends items with the Turn numbers that follow.
func (t *transcript) add(items []item.Item) {
	for turn := range item.Turns(items) {
		if turn[0].Turn != 0 {
			t.turns++
		}
		for _, it := range turn {
			if it.Turn != 0 {
				it.Turn = t.turns
			}
			t.items = append(t.items, it)
		}
	}
}

// inCallOrder puts the results that follow each answer into the order of its
// calls: ours were kept, the caller's come after them.
func inCallOrder(items []item.Item) {
	for end := 0; end < len(items); {
		first := item.TurnEnd(items, end)
		calls := items[end:first]
		end = first
		for end < len(items) && items[end].Kind == item.ToolResult {
			end++
		}
		place := func(result item.Item) int {
			return slices.IndexFunc(calls, func(c item.Item) bool { return c.Kind == item.ToolCall && c.CallID == result.CallID })
		}
		slices.SortStableFunc(items[first:end], func(a, b item.Item) int { return cmp.Compare(place(a), place(b)) })
	}
}

// handoverOf returns what was kept for an answer, nil if nothing was.
func (d *drive) handoverOf(answer []item.Item) (*Handover, error) {
	for _, c := range answer {
		if !minted(c) {
			continue
		}
		h, err := d.o.Handovers.Find(d.ctx, d.req.Org, d.req.Principal, c.CallID)
		if err != nil {
			return nil, fmt.Errorf("run %s: hand over: %w", d.lease.RunID, err)
		}
		return h, nil
	}
	return nil, nil
}
