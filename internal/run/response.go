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
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
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

// ResponseOf returns the id of the response that tells a run, or a part of it: see
// [event.Started].Part.
func ResponseOf(runID, part string) string {
	return responsePrefix + strings.TrimPrefix(runID, "run_") + part
}

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
func responseKey(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
}

// FindResponse returns a stored response of the org, or nil.
func FindResponse(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	return kept.Find(ctx, orgID, "", responseKey(id))
}

// isAlone reports whether no other part of the response's run is stored.
func isAlone(ctx context.Context, kept journal.Conversations, orgID string, c *journal.Conversation) (bool, error) {
	self := max(c.Part, 1) - 1
	for part := range self + 2 {
		if part == self && c.Waiting == nil {
			continue
		}
		other, err := FindResponse(ctx, kept, orgID, responseID(c.RunID, part, 0))
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
	c.Echo = nil
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

// keepResponse stores the conversation of the response before the run ends or waits. callIDs
// are the ids of the calls that the client executes.
//
// The error wraps an *[journal.Unreadable] if the session of a durable run cannot be decoded. A light
// run, which nobody could go on with, ends nevertheless, without its response in the session. So
// does a run that is ended from outside or by a limit.
func (d *driver) keepResponse(callIDs map[string]string) error {
	run := &d.run
	keep := run.req.Keep
	if c := run.state().Cancelled; keep == nil || run.relay || c != nil && journal.GoneReason(*c) == loop.Deleted {
		return nil
	}
	input := run.events.Items("input")
	input = input[min(run.req.notOwn, len(input)):]
	c := journal.Conversation{
		RunID: run.lease.RunID, Items: append(slices.Clip(input), run.events.Transcript(run.state().HiddenRefs())...), Part: run.state().Parks + 1,
		Full: map[string]string{}, CallIDs: callIDs, Listed: run.state().Listed(), Previous: run.req.Previous, Parts: run.req.parts, Echo: keep.Echo, FinalOnly: keep.FinalOnly,
		Target: lastTarget(run.state()),
	}
	c.Items = append(c.Items, run.unansweredCalls()...)
	for id, text := range run.results.full {
		if !run.req.inherited[id] {
			c.Full[id] = text
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	encoded := eventlog.HeldBytes(c.Items) + len(c.Echo) // also beyond the limit: the run is at its end
	run.req.Account.Add(encoded)
	defer run.req.Account.Release(encoded)
	id := responseID(run.lease.RunID, run.state().Parks, 0)
	err := d.o.Conversations.Save(ctx, run.req.Org, "", c, keep.For, responseKey(id))
	if err == nil || errors.Is(err, org.ErrExists) { // an owner before this one has stored it
		err = appendToSession(ctx, d.o.Conversations, run.req, id)
	}
	var bad *journal.Unreadable
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad) && (run.state().Ended != "" || !run.durable()):
		run.log.Error("a response is not added to its conversation", "response", id, "error", err)
		return nil
	case bad != nil:
		return err
	}
	run.storeFailed(err)
	return journal.Unavailable(fmt.Errorf("run %s: store the response: %w", run.lease.RunID, err))
}

// dropResponse deletes the response that was stored for a run which does not wait after all.
func dropResponse(d *driver) {
	run := &d.run
	if run.req.Keep == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	id := responseID(run.lease.RunID, run.state().Parks, 0)
	if _, err := d.o.Conversations.Delete(ctx, run.req.Org, "", responseKey(id)); err != nil {
		run.log.Error("the response of a run that does not wait is not deleted", "response", id, "error", err)
	}
}

// unansweredCalls returns results for the calls of a turn that waits for approvals: those that
// there are, and for the others that they were not made. They are for a client that goes on
// without answering.
func (s *runState) unansweredCalls() (out []item.Item) {
	if !slices.ContainsFunc(s.state().Calls, func(c loop.Call) bool { return c.Prepared != nil && c.Prepared.Verdict == loop.Ask && !c.Done }) {
		return nil
	}
	for _, c := range s.state().Calls {
		if c.Done {
			out = append(out, s.events.Items(c.ResultRef)...)
			continue
		}
		out = append(out, item.NewResult(c.ProviderID, "Not run: nobody has approved the call.", true))
	}
	return out
}

// Unfinished is a durable run whose response is not stored yet: it has not ended.
type Unfinished struct {
	RunID string
	Keep  Keep
}

// UnfinishedResponse returns the run that will give a response of the caller's org, or nil if the org
// has no such run, or one that has ended, is not durable or does not store its response. A run that
// has waited for approvals has given its first response. What it reads is charged to the caller's
// account.
func (r *Runner) UnfinishedResponse(ctx context.Context, caller Caller, id string) (*Unfinished, error) {
	orgID := caller.Org.ID
	runID := "run_" + strings.TrimPrefix(id, responsePrefix)
	head, err := r.o.Archive.Head(ctx, orgID, runID)
	switch {
	case errors.Is(err, org.ErrNotFound), err == nil && (head.Summary.Status == journal.Done || head.Summary.Grade != loop.Durable || id != ResponseOf(runID, "")):
		return nil, nil
	case err != nil:
		return nil, journal.ReadError(runID, err)
	}
	var rows []json.RawMessage
	err = journal.ReadBatch(caller.Account, func(limit int) (err error) {
		rows, err = r.o.Archive.Rows(ctx, orgID, runID, []string{requestRef}, limit)
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, journal.ReadError(runID, err)
	}
	var q storedRequest
	if err := json.Unmarshal(rows[0], &q); err != nil {
		return nil, journal.AsideError(runID, journal.Damaged(requestRef, err).Error())
	}
	if q.Keep == nil {
		return nil, nil
	}
	state, err := journal.Fold(ctx, r.o.Archive, caller.Account, orgID, runID, loop.State{}, nil)
	if err != nil {
		return nil, journal.ReadError(runID, err)
	}
	if state.Parks > 0 {
		return nil, nil
	}
	return &Unfinished{runID, *q.Keep}, nil
}

// HasPieces reports whether the pieces of what the model said in a run are stored, so that its
// events are the same whenever they are followed. The error wraps org.ErrNotFound if the org has
// no such run.
func (r *Runner) HasPieces(ctx context.Context, orgID, runID string) (bool, error) {
	head, err := r.o.Archive.Head(ctx, orgID, runID)
	if err != nil {
		return false, journal.ReadError(runID, err)
	}
	return head.Summary.Grade == loop.Durable, nil
}
