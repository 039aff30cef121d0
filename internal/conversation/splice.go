package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// MintedPrefix begins the call ids that the gateway makes. Ids without it are the provider's and have no
// handover.
const MintedPrefix = "call_tp_"

// Ref is what a request continues. The zero value is nothing.
type Ref struct {
	ID string // of a segment, or of a named conversation

	// Named says that ID is that of a named conversation, to which the run adds its segment: one of
	// /v1/conversations, or a session of an agent.
	Named bool

	// Resent says that ID is that of a session of the key, whose client resends the messages that it saw. The run
	// adds its segment when it ends with an answer. These are chat sessions. TTL is how long the session is kept after
	// that.
	Resent bool
	TTL    time.Duration

	// Since is when that session began, in Unix milliseconds: one that was deleted and one that has its id now differ in it.
	// It is known when the run is stored.
	Since int64

	// Remembered are the tools that need no approval again in that session. They are known when Since is. Cut is that of the
	// [Beginning].
	Remembered []loop.Remembered
	Cut        map[string]int

	// Member is the member of the request that has ID, for errors.
	Member string

	// Code is the code of the error that says that nothing is stored under ID.
	Code string
}

// ErrNotStored is wrapped by the errors of NotStored.
var ErrNotStored = errors.New("not stored")

// NotStored is the error for something that is not stored. It wraps ErrNotStored.
func (r Ref) NotStored() error {
	refused := fault.New(fault.Invalid, r.Code, "%s: no stored response has the id %q; it was not stored, or it was deleted, or its time is over", r.Member, r.ID).In(r.Member)
	if ofConversation := r.Code; r.Named {
		refused = fault.New(fault.NotFound, ofConversation, "no conversation has the id %q; it was deleted, or its time is over", r.ID).In(r.Member)
	}
	refused.Err = ErrNotStored
	return refused
}

// Request is what Begin needs to know of a request.
type Request struct {
	Org, Principal string
	System         []item.Item // in front of the conversation
	Items          []item.Item // of the request
	Places         []string    // of each of Items in the request, for errors; shorter = the others are in the input
	Continues      Ref
	Sees           Sees
}

// place returns where the request has one of its Items.
func (r Request) place(i int) string {
	if i < len(r.Places) {
		return r.Places[i]
	}
	return "input"
}

// Beginning is the transcript that a request begins with.
type Beginning struct {
	Items  []item.Item
	Before int // how many items are not the request's own: of System, and of the conversation

	// Full are results that were cut, whole, by the id that the model knows. Inherited are the ids of
	// those that belong to earlier runs.
	Full      map[string]string
	Inherited map[string]bool

	// Listed are the labels of the servers whose tools were listed in the conversation.
	Listed []string

	// Session is the session that the request continues, as it is stored; nil = there is none. Cut says how many items are
	// left of those of its Parts of which not all are.
	Session *journal.Conversation
	Cut     map[string]int

	Parts      []string      // of the named conversation, or that are left of the session
	Version    int64         // of the named conversation or session; 0 = it is none
	Place      journal.Place // behind the conversation that the request continues
	LastTarget event.Target  // that answered the conversation last; zero = not known

	// Early says that a run whose end decides what it adds had not ended, or is not stored any more.
	Early bool

	callIDs map[string]string // ids of the provider's, by ours
}

// Begin returns the items of the request with the stored items of each handover in place of
// the turn that the caller got, and the provider's call ids in place of the gateway's. Ids
// without a handover for this principal are unchanged. In front are the items of System, and
// those of the conversation that the request continues, with which memory is charged. It returns a
// [fault.Error] if the request does not fit what it continues, or if that is not stored. ends says how
// the runs of what it continues have ended; nil = nobody knows.
func Begin(ctx context.Context, kept journal.Conversations, ends Ends, req Request, memory *memlimit.Share) (*Beginning, error) {
	w := &Beginning{Before: len(req.System)}
	continues := req.Continues.ID != ""
	if w.Before == 0 && !continues && !slices.ContainsFunc(req.Items, minted) {
		w.Items = req.Items
		return w, nil
	}
	h := history{full: map[string]string{}, callIDs: map[string]string{}}
	fresh, answers := req.Items, []item.Item(nil)
	switch {
	case req.Continues.Resent:
		var err error
		if w.Session, err = findSession(ctx, kept, SessionName{req.Org, req.Principal, req.Continues.ID}); err != nil {
			return nil, fmt.Errorf("session %s: %w", req.Continues.ID, err)
		}
		if h, fresh, err = resume(ctx, kept, w.Session, req, memory); err != nil {
			return nil, err
		}
		w.Cut = h.cut
	case continues:
		var err error
		if h, err = readHistory(ctx, kept, ends, req, memory); err != nil {
			return nil, err
		}
		if fresh, answers, err = newItems(h, req); err != nil {
			return nil, err
		}
		if answersHidden(h, answers) || answersHidden(h, fresh) {
			h.seen = h.items
		}
	}
	w.Place, w.Version, w.Early = h.place, h.version, h.early
	w.Full, w.Inherited, w.Listed, w.Parts, w.LastTarget, w.callIDs = h.full, h.inherited, h.listed, h.parts, h.lastTarget, h.callIDs
	var out transcript
	out.add(req.System)
	out.add(h.seen)
	w.Before = len(out.items)
	out.add(answers)
	for turn := range item.Turns(fresh) {
		h, err := handoverOf(ctx, kept, req, turn)
		if err != nil {
			return nil, err
		}
		if h == nil {
			out.add(turn)
			if it := &out.items[len(out.items)-1]; it.Kind == item.ToolResult && w.callIDs[it.CallID] != "" {
				it.CallID, it.Native = w.callIDs[it.CallID], item.Native{}
			}
			continue
		}
		out.add(h.Items)
		maps.Copy(w.Full, h.Full)
		maps.Copy(w.callIDs, h.CallIDs)
	}
	inCallOrder(out.items[w.Before:]) // what is in front is stored already, and its results must not become the request's own
	w.Items = out.items
	return w, nil
}

// answersHidden reports whether a result is for a call that a compaction hides.
func answersHidden(h history, items []item.Item) bool {
	has := func(items []item.Item, id string) bool {
		return slices.ContainsFunc(items, func(it item.Item) bool { return it.Kind == item.ToolCall && it.CallID == id })
	}
	return slices.ContainsFunc(items, func(it item.Item) bool {
		id := cmp.Or(h.callIDs[it.CallID], it.CallID)
		return it.Kind == item.ToolResult && !has(h.seen, id) && has(h.items, id)
	})
}

// minted reports whether the item is a tool call with an id that the gateway has made.
func minted(i item.Item) bool {
	return i.Kind == item.ToolCall && strings.HasPrefix(i.CallID, MintedPrefix)
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
func handoverOf(ctx context.Context, kept journal.Conversations, req Request, answer []item.Item) (*journal.Conversation, error) {
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
