package run

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// mintedPrefix begins the call ids that the gateway makes. Ids without it are the provider's
// and have no handover.
const mintedPrefix = "call_tp_"

// handOver returns the calls with the ids under which the caller gets them. If the run
// has items that the caller cannot send back, the ids are new, and the items are stored
// under them first; callIDs maps them to the provider's.
func (d *driver) handOver(keys []loop.CallKey) (calls []loop.HandedOverCall, callIDs map[string]string, err error) {
	run := &d.run
	h := journal.Conversation{RunID: run.lease.RunID, CallIDs: map[string]string{}}
	hides := run.state().HidesItems()
	var ids []journal.ConversationKey
	for _, key := range keys {
		c, _ := run.state().Call(key)
		id := c.ProviderID
		if hides {
			id = d.o.NewID(mintedPrefix)
			h.CallIDs[id] = c.ProviderID
			ids = append(ids, journal.ConversationKey{Kind: journal.CallID, ID: id})
		}
		calls = append(calls, loop.HandedOverCall{Key: c.Key, ID: id})
	}
	if !hides {
		return calls, nil, nil
	}
	h.Full = run.results.full
	h.Items = run.events.Transcript(run.state().HiddenRefs())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	if err := d.o.Conversations.Save(ctx, run.req.Org, run.req.Principal, h, journal.HandoverTTL, ids...); err != nil {
		run.storeFailed(err)
		return nil, nil, journal.Unavailable(fmt.Errorf("run %s: hand over: %w", run.lease.RunID, err))
	}
	return calls, h.CallIDs, nil
}

// beginning is the transcript that a request begins with.
type beginning struct {
	history
	before int // how many items are not the request's own: of System, and of the conversation
}

// splice returns the items of the request with the stored items of each handover in place of
// the turn that the caller got, and the provider's call ids in place of the gateway's. Ids
// without a handover for this principal are unchanged. In front are the items of System, and
// those of the conversation that the request continues, with which memory is charged.
func splice(ctx context.Context, kept journal.Conversations, req *Request, memory *memlimit.Share) (beginning, error) {
	w := beginning{before: len(req.System)}
	if req.continued() != "" {
		var err error
		if w.history, err = readHistory(ctx, kept, req, memory); err != nil {
			return w, err
		}
		w.before += len(w.items)
	}
	if w.before == 0 && req.continued() == "" && !slices.ContainsFunc(req.Items, minted) {
		w.items = req.Items
		return w, nil
	}
	if w.full == nil {
		w.full, w.callIDs = map[string]string{}, map[string]string{}
	}
	fresh, answers := req.Items, []item.Item(nil)
	if req.continued() != "" {
		var err error
		if fresh, answers, err = newItems(w.history, req); err != nil {
			return w, err
		}
	}
	var out transcript
	out.add(req.System)
	out.add(w.items)
	w.before = len(out.items)
	out.add(answers)
	for turn := range item.Turns(fresh) {
		h, err := handoverOf(ctx, kept, req, turn)
		if err != nil {
			return w, err
		}
		if h == nil {
			out.add(turn)
			if it := &out.items[len(out.items)-1]; it.Kind == item.ToolResult && w.callIDs[it.CallID] != "" {
				it.CallID, it.Native = w.callIDs[it.CallID], item.Native{}
			}
			continue
		}
		out.add(h.Items)
		maps.Copy(w.full, h.Full)
		maps.Copy(w.callIDs, h.CallIDs)
	}
	inCallOrder(out.items)
	w.items = out.items
	return w, nil
}

// minted reports whether the item is a tool call with an id that the gateway has made.
func minted(i item.Item) bool {
	return i.Kind == item.ToolCall && strings.HasPrefix(i.CallID, mintedPrefix)
}

// transcript is a list of items from several sources.
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

// inCallOrder puts the results that follow each turn into the order of its calls: the stored
// results of the gateway come first, then those of the caller.
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

// handoverOf returns the handover of a turn, or nil.
func handoverOf(ctx context.Context, kept journal.Conversations, req *Request, answer []item.Item) (*journal.Conversation, error) {
	for _, c := range answer {
		if !minted(c) {
			continue
		}
		h, err := kept.Find(ctx, req.Org, req.Principal, journal.ConversationKey{Kind: journal.CallID, ID: c.CallID})
		if err != nil {
			return nil, fmt.Errorf("handover of call %s: %w", c.CallID, err)
		}
		return h, nil
	}
	return nil, nil
}
