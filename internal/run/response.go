package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// The limits on the conversation that a request continues.
const (
	maxHistoryItems     = 10_000
	maxHistoryResponses = 1_000
)

// responsePrefix begins the ids of responses. The rest is that of the id of their run.
const responsePrefix = "resp_"

// ResponseOf returns the id of the response that a run gives.
func ResponseOf(runID string) string { return responsePrefix + strings.TrimPrefix(runID, "run_") }

// Keep is what a surface stores with the conversation of a response.
type Keep struct {
	// Echo is JSON of the surface, from which it makes the response again.
	Echo json.RawMessage `json:"echo"`

	// FinalOnly says that the client gets the text of the last round only.
	FinalOnly bool `json:"final_only,omitempty"`

	// For is how long the conversation is stored.
	For time.Duration `json:"for_ns"`
}

// responseKey is the key of a stored response. Responses belong to their org: every key of
// the org can continue them.
func responseKey(id string) ConversationKey { return ConversationKey{ResponseID, id} }

// FindResponse returns a stored response of the org, or nil.
func FindResponse(ctx context.Context, kept Conversations, orgID, id string) (*Conversation, error) {
	return kept.Find(ctx, orgID, "", responseKey(id))
}

// DeleteResponse deletes a stored response of the org, with its run. It reports whether there
// was one.
func DeleteResponse(ctx context.Context, kept Conversations, runs Forgetter, orgID, id string) (bool, error) {
	c, err := FindResponse(ctx, kept, orgID, id)
	if err != nil || c == nil {
		return false, err
	}
	if err := runs.Forget(ctx, orgID, c.RunID); err != nil {
		return false, err
	}
	return kept.Delete(ctx, orgID, "", responseKey(id))
}

// history is a stored conversation that a request continues.
type history struct {
	items   []item.Item
	full    map[string]string // results that were truncated, whole, by the id that the model knows
	callIDs map[string]string // ids of the provider's, by ours
	listed  []string
	parts   []string // of the session

	inherited map[string]bool // the ids of full
}

// conversationSize counts what a conversation has.
type conversationSize struct {
	member, remedy string // of the request that names the conversation, and of one that is too long
	memory         *ledger.Part
	items, parts   int
}

// add counts a part, of which the caller keeps the items. It returns an error if the
// conversation is now too long, or too large for the memory of the request.
func (s *conversationSize) add(c *Conversation) error {
	s.items += len(c.Items)
	s.parts++
	if s.items > maxHistoryItems || s.parts > maxHistoryResponses {
		return s.tooLong()
	}
	c.Echo = nil
	n := heldBytes(c.Items)
	for _, text := range c.Full {
		n += len(text)
	}
	return s.memory.Charge(n)
}

func (s *conversationSize) tooLong() error {
	return fault.New(fault.Invalid, "conversation_too_long", "%s: the conversation has more than %d items or %d responses; %s",
		s.member, maxHistoryItems, maxHistoryResponses, s.remedy).In(s.member)
}

// readHistory reads the conversation that the request continues, from its begin. Its account is
// charged with the conversation.
func readHistory(ctx context.Context, kept Conversations, req *Request, memory *ledger.Part) (history, error) {
	h := history{full: map[string]string{}, callIDs: map[string]string{}, inherited: map[string]bool{}}
	var found []*Conversation
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
	for _, c := range found {
		all.add(c.Items)
		for id, text := range c.Full {
			h.full[id], h.inherited[id] = text, true
		}
		for ours, theirs := range c.CallIDs {
			h.callIDs[ours] = theirs
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
func readResponses(ctx context.Context, kept Conversations, req *Request, memory *ledger.Part) ([]*Conversation, error) {
	const member = "previous_response_id"
	size := &conversationSize{member: member, remedy: "send a shorter one as input", memory: memory}
	last := req.Previous
	var found []*Conversation
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

// keepResponse stores the conversation of the response before the run ends. handedOver are
// the ids of the calls that the client executes.
func (d *driver) keepResponse(callIDs map[string]string) error {
	run := &d.run
	keep := run.req.Keep
	if keep == nil || run.relay {
		return nil
	}
	input := run.projection.items["input"]
	input = input[min(run.req.notOwn, len(input)):]
	c := Conversation{
		RunID: run.lease.RunID, Items: append(slices.Clip(input), run.projection.transcript(run.state().HiddenRefs())...),
		Full: map[string]string{}, CallIDs: callIDs, Listed: run.state().Listed(), Previous: run.req.Previous, Parts: run.req.parts, Echo: keep.Echo, FinalOnly: keep.FinalOnly,
	}
	for id, text := range run.projection.full {
		if !run.req.inherited[id] {
			c.Full[id] = text
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	err := d.o.Conversations.Save(ctx, run.req.Org, "", c, keep.For, responseKey(ResponseOf(run.lease.RunID)))
	if err == nil || errors.Is(err, org.ErrExists) { // an owner before this one has stored it
		err = appendToSession(ctx, d.o.Conversations, run.req, ResponseOf(run.lease.RunID))
	}
	if err == nil {
		return nil
	}
	run.storeFailed(err)
	return unavailable(fmt.Errorf("run %s: store the response: %w", run.lease.RunID, err))
}
