package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// The limits on the conversation that a request continues.
const (
	maxHistoryItems     = 10_000
	maxHistoryResponses = 1_000
)

// responsePrefix begins the ids of responses. The rest is that of the id of their run.
const responsePrefix = "resp_"

// ResponseOf returns the id of the response that tells a run, or a part of it: see
// [event.Started].Part.
func ResponseOf(runID, part string) string {
	return responsePrefix + strings.TrimPrefix(runID, "run_") + part
}

// StoreOptions is what a surface stores with the conversation of a response.
type StoreOptions struct {
	// RequestJSON is JSON of the surface, from which it makes the response again.
	RequestJSON json.RawMessage `json:"echo"`

	// FinalOnly says that the client gets the text of the last round only.
	FinalOnly bool `json:"final_only,omitempty"`

	// For is how long the conversation is stored.
	For time.Duration `json:"for_ns"`
}

// responseKey is the key of a stored response. Responses belong to their org: every key of
// the org can continue them.
func responseKey(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
}

// FindResponse returns a stored response of the org, or nil.
func FindResponse(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	return kept.Find(ctx, orgID, "", responseKey(id))
}

// deletable returns what is known of a stored conversation that is to be deleted: one that cannot be
// decoded can be deleted too. Its arguments are the results of a Find.
func deletable(c *journal.Conversation, err error) (*journal.Conversation, error) {
	if bad, is := errors.AsType[*journal.Unreadable](err); is && bad.Conversation != nil {
		return bad.Conversation, nil
	}
	return c, err
}

// isAlone reports whether no other part of the response's run is stored.
func isAlone(ctx context.Context, kept journal.Conversations, orgID string, c *journal.Conversation) (bool, error) {
	self := max(c.Part, 1) - 1
	for part := range self + 2 {
		if part == self && c.Waiting == nil {
			continue
		}
		other, err := deletable(FindResponse(ctx, kept, orgID, responseID(c.RunID, part, 0)))
		if err != nil || other != nil {
			return false, err
		}
	}
	return true, nil
}

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
	if s.items > maxHistoryItems || s.parts > maxHistoryResponses {
		return s.tooLong()
	}
	c.RequestJSON = nil
	n := eventlog.HeldBytes(c.Items)
	for _, text := range c.Full {
		n += len(text)
	}
	return s.memory.Acquire(n)
}

func (s *conversationSize) tooLong() error {
	return fault.New(fault.Invalid, "conversation_too_long", "%s: the conversation has more than %d items or %d responses; %s",
		s.member, maxHistoryItems, maxHistoryResponses, s.remedy).In(s.member)
}

// readHistory reads the conversation that the request continues, from its begin. Its account is
// charged with the conversation.
func readHistory(ctx context.Context, kept journal.Conversations, req *Request, memory *memlimit.Share) (history, error) {
	h := history{full: map[string]string{}, callIDs: map[string]string{}, inherited: map[string]bool{}}
	var found []*journal.Conversation
	var err error
	if req.Session != "" {
		h.parts, found, err = readSession(ctx, kept, req, memory)
	} else {
		found, err = readResponses(ctx, kept, req, memory)
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

// readResponses reads a response with those that it follows, the first one first.
func readResponses(ctx context.Context, kept journal.Conversations, req *Request, memory *memlimit.Share) ([]*journal.Conversation, error) {
	const member = "previous_response_id"
	size := &conversationSize{member: member, remedy: "send a shorter one as input", memory: memory}
	last := req.Previous
	var found []*journal.Conversation
	for id := last; id != ""; {
		c, err := FindResponse(ctx, kept, req.Org, id)
		switch {
		case err != nil:
			return nil, fmt.Errorf("response %s: %w", id, err)
		case c == nil && id == last:
			return nil, fault.New(fault.Invalid, "previous_response_not_found", "previous_response_id: no stored response has the id %q; "+
				"it was not stored, or it was deleted, or its time is over", id).In(member)
		case c == nil:
			return nil, fault.New(fault.Invalid, "previous_response_not_found", "previous_response_id: the conversation of %q is not complete: "+
				"its response %q is not stored any more; send the conversation as input", last, id).In(member)
		}
		found = append(found, c)
		before, err := readParts(ctx, kept, req.Org, c.Parts, size)
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

// dropResponse deletes the response that was stored for a run which does not wait after all, or is deleted.
func dropResponse(d *driver) {
	run := &d.run
	if run.req.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	id := responseID(run.lease.RunID, run.state().Parks, 0)
	if _, err := d.o.Conversations.Delete(ctx, run.req.Org, "", responseKey(id)); err != nil {
		run.log.Error("the response of a run is not deleted", "response", id, "error", err)
	}
}
