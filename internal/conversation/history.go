package conversation

import (
	"context"
	"fmt"
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
	full    map[string]string // results that were truncated, whole, by the id that the model knows
	callIDs map[string]string // ids of the provider's, by ours
	listed  []string
	parts   []string // of the session

	lastTarget event.Target // that answered last; zero = not known

	inherited map[string]bool // the ids of full
}

// conversationSize counts what a conversation has.
type conversationSize struct {
	member, remedy string // of the request that names the conversation, and of one that is too long
	memory         *memlimit.Share
	items, parts   int
}

// add counts a part, of which the caller keeps the items. It returns an error if the
// conversation is now too long, or too large for the memory of the request.
func (s *conversationSize) add(c *journal.Conversation) error {
	s.items += len(c.Items)
	s.parts++
	if s.items > maxHistoryItems || s.parts > maxHistorySegments {
		return s.tooLong()
	}
	c.Input, c.RequestJSON = nil, nil
	n := eventlog.HeldBytes(c.Items)
	for _, text := range c.Full {
		n += len(text)
	}
	return s.memory.Acquire(n)
}

func (s *conversationSize) tooLong() error {
	return fault.New(fault.Invalid, "conversation_too_long", "%s: the conversation has more than %d items or %d responses; %s",
		s.member, maxHistoryItems, maxHistorySegments, s.remedy).In(s.member)
}

// readHistory reads the conversation that the request continues, from its begin. Its account is
// charged with the conversation.
func readHistory(ctx context.Context, kept journal.Conversations, req Request, memory *memlimit.Share) (history, error) {
	h := history{full: map[string]string{}, callIDs: map[string]string{}, inherited: map[string]bool{}}
	var found []*journal.Conversation
	var err error
	if req.Continues.Named {
		h.parts, found, err = readNamed(ctx, kept, req, memory)
	} else {
		found, err = readSegments(ctx, kept, req, memory)
	}
	if err != nil {
		return h, err
	}
	var all transcript
	for i, c := range found {
		if slices.ContainsFunc(found[i+1:], func(later *journal.Conversation) bool { return later.RunID == c.RunID && c.RunID != "" && c.Part > 0 }) {
			continue // a later part of the run has all items
		}
		all.add(c.Items)
		for id, text := range c.Full {
			h.full[id], h.inherited[id] = text, true
		}
		for ours, theirs := range c.CallIDs {
			h.callIDs[ours] = theirs
		}
		if c.Target != (event.Target{}) {
			h.lastTarget = c.Target
		}
		for _, label := range c.Listed {
			if !slices.Contains(h.listed, label) {
				h.listed = append(h.listed, label)
			}
		}
	}
	h.items = all.items
	return h, nil
}

// readSegments reads a segment with those that it follows, the first one first.
func readSegments(ctx context.Context, kept journal.Conversations, req Request, memory *memlimit.Share) ([]*journal.Conversation, error) {
	member, last := req.Continues.Member, req.Continues.ID
	size := &conversationSize{member: member, remedy: "send a shorter one as input", memory: memory}
	var found []*journal.Conversation
	for id := last; id != ""; {
		c, err := FindSegment(ctx, kept, req.Org, id)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s %s: %w", member, id, err)
		case c == nil && id == last:
			return nil, req.Continues.NotStored()
		case c == nil:
			return nil, fault.New(fault.Invalid, req.Continues.Code, "%s: the conversation of %q is not complete: "+
				"its response %q is not stored any more; send the conversation as input", member, last, id).In(member)
		}
		found = append(found, c)
		before, err := readParts(ctx, kept, req.Org, "", c.Parts, size)
		if err != nil {
			return nil, err
		}
		slices.Reverse(before)
		found = append(found, before...)
		if err := size.add(c); err != nil {
			return nil, err
		}
		id = c.Previous
	}
	slices.Reverse(found)
	return found, nil
}
