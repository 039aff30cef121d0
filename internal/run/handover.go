package run

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// mintedPrefix begins the call ids that the gateway makes. Ids without it are the provider's
// and have no handover.
const mintedPrefix = "call_tp_"

// beginning is the transcript that a request begins with.
type beginning struct {
	history
	before int // how many items are not the request's own: of System, and of the conversation

	memory *memlimit.Share // charged with the conversation, for the holder of the beginning
}

// beginning returns the transcript that the request begins with. The stored conversation is read once:
// the run begins with what was read before it. The account of the request is charged with it until
// forget, which the last user calls.
func (r *Request) beginning(ctx context.Context, kept journal.Conversations) (*beginning, error) {
	if r.begins == nil {
		memory := r.Account.Share()
		read, err := splice(ctx, kept, r, memory)
		if err != nil {
			memory.Close()
			return nil, err
		}
		read.memory, r.begins = memory, &read
	}
	return r.begins, nil
}

// forget drops what beginning has read.
func (r *Request) forget() {
	if r.begins != nil {
		r.begins.memory.Close()
		r.begins = nil
	}
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
