package conversation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// The limits on the conversation that a request continues.
const (
	maxHistoryItems    = 10_000
	maxHistorySegments = 1_000
)

// history is a stored conversation that a request continues.
type history struct {
	items   []item.Item
	seen    []item.Item       // what the model sees of items
	place   journal.Place     // behind all of them
	full    map[string]string // results that were truncated, whole, by the id that the model knows
	callIDs map[string]string // ids of the provider's, by ours
	listed  []string
	parts   []string // of the session
	early   bool     // the end of a run was not known that decides what its part adds
	version int64    // of the session

	cut map[string]int // of a chat session: how many items are left of those of parts of which not all are

	lastTarget event.Target // that answered last; zero = not known

	inherited map[string]bool // the ids of full
}

// conversationSize counts what a conversation has.
type conversationSize struct {
	member, remedy string // of the request that names the conversation, and of one that is too long; "" = its length has no limit
	memory         *memlimit.Share
	items, parts   int
	compacted      bool // a compaction was read
}

// add counts a part, of which the caller keeps the items. It returns an error if the
// conversation is now too long, or too large for the memory of the request.
func (s *conversationSize) add(c *journal.Conversation) error {
	s.items += len(c.Items)
	s.parts++
	if s.member != "" && (s.items > maxHistoryItems || s.parts > maxHistorySegments) {
		return s.tooLong()
	}
	n := eventlog.HeldBytes(c.Items)
	for _, text := range c.Full {
		n += len(text)
	}
	if c.Compaction != nil && s.compacted {
		c.Compaction = nil // the latest is read first, and only that one counts
	} else if c.Compaction != nil {
		n, s.compacted = n+eventlog.HeldBytes(c.Compaction.Items), true
	}
	return s.memory.Acquire(n)
}

func (s *conversationSize) tooLong() error {
	return fault.New(fault.Invalid, "conversation_too_long", "%s: the conversation has more than %d items or %d responses; %s",
		s.member, maxHistoryItems, maxHistorySegments, s.remedy).In(s.member)
}

// readHistory reads the conversation that the request continues, from its begin. Its account is
// charged with the conversation.
func readHistory(ctx context.Context, kept journal.Conversations, ends Ends, req Request, memory *memlimit.Share) (history, error) {
	h := history{full: map[string]string{}, callIDs: map[string]string{}, inherited: map[string]bool{}}
	var found []part
	var err error
	if req.Continues.Named {
		var named *journal.Conversation
		if named, found, err = readNamed(ctx, kept, req, memory); err == nil {
			h.parts, h.version = named.Parts, named.Version
		}
	} else {
		found, err = readSegments(ctx, kept, req, memory)
	}
	if err != nil {
		return h, err
	}
	reasons, err := reasonsOf(ctx, ends, req.Org, found)
	if err != nil {
		return h, err
	}
	var all transcript
	h.early = slices.ContainsFunc(found, func(p part) bool { return !isSettled(p.Conversation) && reasons[p.RunID] == "" })
	added := additions(found, reasons)
	for i, c := range found {
		added := added[i]
		if added.superseded {
			continue
		}
		if (added.Aside && len(added.Items) == 0 || added.Unanswered) && !req.Continues.Named && i == len(found)-1 {
			return h, notUsable(req.Continues, c.Conversation, reasons[c.RunID])
		}
		all.add(added.Items)
		if added.Aside {
			continue
		}
		h.take(c.Conversation)
	}
	h.items = all.items
	h.seen = h.items
	if items, ok := seen(found, added, req.Sees); ok {
		h.seen = items
	}
	h.place = placeBehind(found, added)
	return h, nil
}

// take adds what a part has beside its items.
func (h *history) take(c *journal.Conversation) {
	for id, text := range c.Full {
		h.full[id], h.inherited[id] = text, true
	}
	maps.Copy(h.callIDs, c.CallIDs)
	if c.Target != (event.Target{}) {
		h.lastTarget = c.Target
	}
	for _, label := range c.Listed {
		if !slices.Contains(h.listed, label) {
			h.listed = append(h.listed, label)
		}
	}
}

// placeBehind returns the place behind parts of a conversation that are in front of all others.
func placeBehind(found []part, added []Addition) journal.Place {
	if len(found) == 0 {
		return journal.Place{}
	}
	ids := sha256.New()
	for i, p := range found {
		fmt.Fprintf(ids, "%s %d %t\n", p.id, len(added[i].Items), added[i].Aside)
	}
	return journal.Place{Parts: len(found), Digest: hex.EncodeToString(ids.Sum(nil)[:16])}
}

// part is a stored part of a conversation, with its id.
type part struct {
	id string
	*journal.Conversation
}

// additions returns what each part adds.
func additions(found []part, reasons map[string]event.Reason) []Addition {
	out := make([]Addition, len(found))
	last := map[string]int{} // the index of the last part of each run
	for i, c := range found {
		last[c.RunID] = i
	}
	for i, c := range found {
		if c.RunID != "" && c.Part > 0 && last[c.RunID] > i {
			out[i].superseded = true // a later part of the run has all items
		} else {
			out[i] = addedBy(c.Conversation, reasons[c.RunID])
		}
	}
	return out
}

// seen returns what the model sees of a conversation: the items of its compaction, and what is behind them. It returns
// false if there is none, or none that holds and may be seen.
func seen(found []part, added []Addition, sees Sees) ([]item.Item, bool) {
	for i, p := range slices.Backward(found) {
		c := p.Compaction
		switch {
		case c == nil:
			continue
		case sees == SeesAll || sees == SeesPlaceholders && c.Summarized || !holds(found, added, i):
			return nil, false
		}
		var out transcript
		out.add(p.Compaction.Items)
		for k := p.Compaction.After.Parts; k < len(found); k++ {
			items := added[k].Items
			if k == i {
				items = items[p.Compaction.Own:]
			}
			out.add(items)
		}
		return out.items, true
	}
	return nil, false
}

// Sees says what of the compactions of a conversation a model may see.
type Sees int

// What a model may see.
const (
	SeesAll          Sees = iota // no compaction
	SeesPlaceholders             // placeholders in place of old results
	SeesSummaries                // these, and summaries
)

// holds reports whether the compaction of a part replaces what it was made of: nothing of that was deleted since, its
// turn is not left out, and a part that was added while its run was in progress does not stand in what it replaces.
func holds(found []part, added []Addition, i int) bool {
	c := found[i].Compaction
	if added[i].superseded || c.After.Parts > i || c.After != placeBehind(found[:c.After.Parts], added) {
		return false
	}
	if c.Own > 0 && added[i].Aside || len(added[i].Items) < c.Own {
		return false
	}
	for k := c.After.Parts; k < i; k++ {
		if c.Own > 0 && !added[k].superseded {
			return false
		}
	}
	return true
}

// notUsable is the error for a request that continues a segment which adds nothing.
func notUsable(r Ref, c *journal.Conversation, why event.Reason) error {
	before := ""
	if c.Previous != "" {
		before = fmt.Sprintf("the response before it, %q, or ", c.Previous)
	}
	return fault.New(fault.Invalid, "previous_response_not_usable", "%s: the response %q has ended without an answer (%s); continue %sanother response, "+
		"or send the conversation as input", r.Member, r.ID, cmp.Or(why, "its run is not stored any more"), before).In(r.Member)
}

// readSegments reads a segment with those that it follows. It reads the last one first, and returns the first one first.
func readSegments(ctx context.Context, kept journal.Conversations, req Request, memory *memlimit.Share) ([]part, error) {
	member, last := req.Continues.Member, req.Continues.ID
	size := &conversationSize{member: member, remedy: "send a shorter one as input", memory: memory}
	var chain []part // the last one first
	next := last     // "" = the chain is complete
	err := kept.FindChain(ctx, req.Org, "", last, func(c *journal.Conversation) error {
		if c.Owner != "" {
			return errOwned
		}
		chain, next = append(chain, part{next, c}), c.Previous
		return size.add(c)
	})
	if _, err = ofOwner("", nil, err); err != nil && !errors.Is(err, errOwned) {
		return nil, err
	}
	switch {
	case len(chain) == 0:
		return nil, req.Continues.NotStored()
	case next != "":
		return nil, fault.New(fault.Invalid, req.Continues.Code, "%s: the conversation of %q is not complete: "+
			"its response %q is not stored any more; send the conversation as input", member, last, next).In(member)
	}
	var found []part
	for _, c := range chain {
		before, err := readParts(ctx, kept, req.Org, false, c.Parts, size)
		if err != nil {
			return nil, err
		}
		found = append(append(found, c), before...)
	}
	slices.Reverse(found)
	return found, nil
}

// errOwned says that a segment has an owner: for a request that continues it, it is not stored.
var errOwned = errors.New("the segment has an owner")
