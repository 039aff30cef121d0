package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// mutation is a mistake that the gateway could make, made at its ports. The
// simulator must notice each of them, or its silence means nothing.
type mutation string

const (
	correct      mutation = ""
	noFencing    mutation = "the journal ignores epochs"
	noIntent     mutation = "the intent of a call is written behind"
	freshKeys    mutation = "every attempt at a call has a key of its own"
	retriesOnce  mutation = "calls that must not be repeated are repeated"
	checkThenAct mutation = "a budget is checked first and charged afterwards"
	refunds      mutation = "what a dead owner had set aside is given back"
	noSubmitKey  mutation = "nobody looks at the keys of requests"
	countsSlots  mutation = "slots are counted up and down"
	lateHolds    mutation = "a model is asked before its budgets have said yes"
	deafOwners   mutation = "what others write to a journal is dropped"
	openDoors    mutation = "a run is read without asking whose it is"
	setLeases    mutation = "leases follow the wall clock"
	ownRules     mutation = "a run is steered by the numbers of the process that goes on with it"
	setDates     mutation = "facts are dated by the wall clock"
	noDenials    mutation = "a denial is stored as an approval"
	lostFacts    mutation = "facts of calls are missing when a run is resumed"
	lastWriters  mutation = "the version of a conversation is not looked at"
	lostParts    mutation = "what a run adds to a chat session is not stored"
	allComplete  mutation = "every run that has ended counts as complete"
	lateForks    mutation = "a fork gets what its origin gets later"
	deafRewinds  mutation = "a rewind is answered, and not stored"
	noneBusy     mutation = "nobody asks whether a run adds to a conversation"
	noSummaries  mutation = "a compaction ends with its run"
	cutSummaries mutation = "of what follows a summary the last item is not stored"
	keptTurns    mutation = "a rewind leaves the turn that has compacted"
)

func mutations() []mutation {
	return append(ofTalks(), noFencing, noIntent, freshKeys, retriesOnce, checkThenAct, refunds, noSubmitKey, countsSlots, lateHolds, deafOwners, openDoors, setLeases, ownRules, setDates, noDenials, lostFacts)
}

// ofTalks are those that are looked for in worlds with talks.
func ofTalks() []mutation {
	return []mutation{lastWriters, lostParts, allComplete, lateForks, deafRewinds, noneBusy, noSummaries, cutSummaries, keptTurns}
}

// shows reports whether the violation is one by which the mistake must be noticed.
// A run whose journal has a gap is given up: if it were gone on with, its calls
// would be repeated. Calls that may have started are accounted for then, also one
// that the whole journal says had not.
func (m mutation) shows(violation string) bool {
	return m != lostFacts || strings.Contains(violation, "journal_refused") || strings.Contains(violation, "call_done is not allowed")
}

// drop leaves facts of calls out of the journal of a run that is under way.
func (m mutation) drop(story *journal.Story) {
	started := func(f loop.Fact) bool { return f.Body.Kind() == loop.KindCallStarted } // and so there is a gap before it
	if m == lostFacts && story.Summary.Status == journal.Running && slices.ContainsFunc(story.Facts, started) {
		story.Facts = slices.DeleteFunc(story.Facts, func(f loop.Fact) bool { return f.Body.Kind() == loop.KindCallPrepared })
	}
}

// rule makes the numbers of a run those of the process that loads its journal.
func (p *process) rule(story *journal.Story) {
	if p.w.mutation != ownRules || p.build == (loop.Rules{}) {
		return
	}
	story.Facts = slices.Clone(story.Facts)
	accepted := story.Facts[0].Body.(loop.Accepted)
	accepted.Rules = p.build
	story.Facts[0].Body = accepted
}

// dated returns the batch as the mutation has its process date it.
func (p *process) dated(b journal.Batch) journal.Batch {
	if p.w.mutation != setDates {
		return b
	}
	b.Facts = slices.Clone(b.Facts)
	for i := range b.Facts {
		b.Facts[i].At = p.now().UnixMilli()
	}
	return b
}

// mutate makes the mistakes that can be made with one Append.
func (s *store) mutate(wr writing) writing {
	if s.w.mutation == noFencing && wr.lease.Epoch > 0 {
		wr.lease.Epoch = max(wr.lease.Epoch, s.w.book.of(runKey{wr.lease.Org, wr.lease.RunID}).epoch)
	}
	if o := wr.batch.Opening; o != nil {
		changed := *o
		if s.w.mutation == noSubmitKey {
			changed.Key = nil
		}
		if s.w.mutation == countsSlots {
			changed.Slots = 0
		}
		wr.batch.Opening = &changed
	}
	if s.w.mutation == noDenials {
		wr.batch.Facts = slices.Clone(wr.batch.Facts)
		for i := range wr.batch.Facts {
			if body, ok := wr.batch.Facts[i].Body.(loop.CallResolved); ok {
				body.Approved = true
				wr.batch.Facts[i].Body = body
			}
		}
	}
	if s.w.mutation == refunds {
		wr.batch.Reservations = append([]journal.Reservation(nil), wr.batch.Reservations...)
		for i := range wr.batch.Reservations {
			h := &wr.batch.Reservations[i]
			h.Budget.Limit.Tokens += s.refunded[budgetKey{wr.lease.Org, h.Budget.Scope}]
		}
	}
	return wr
}

// count takes a slot from a counter, if slots are counted.
func (s *store) count(p *process, wr writing) error {
	if s.w.mutation != countsSlots {
		return nil
	}
	if wr.batch.Opening.Slots > 0 && s.running[wr.lease.Org] >= wr.batch.Opening.Slots {
		return journal.ErrNoSlot
	}
	s.running[wr.lease.Org]++
	s.counted[runKey{wr.lease.Org, wr.lease.RunID}] = p
	return nil
}

// uncount gives the slot back, if it is the process's that took it: another one
// does not know of it.
func (s *store) uncount(p *process, wr writing) {
	key := runKey{wr.lease.Org, wr.lease.RunID}
	if s.counted[key] == p && p != nil {
		s.running[key.org]--
		delete(s.counted, key)
	}
}

// room is the check of a budget that is checked first.
func (s *store) room(wr writing) error {
	for _, h := range wr.batch.Reservations {
		u := s.used(budgetKey{wr.lease.Org, h.Budget.Scope})
		if !h.Budget.Fits(u.Spent.Add(u.Reserved), h.Amount) {
			return &journal.OverBudget{Budget: h.Budget}
		}
	}
	return nil
}

// unlimited returns the batch as one whose budgets were checked.
func unlimited(b journal.Batch) journal.Batch {
	b.Reservations = append([]journal.Reservation(nil), b.Reservations...)
	for i := range b.Reservations {
		b.Reservations[i].Budget.Limit.Tokens = 0
	}
	return b
}

// claims is what a tool says of its class.
func (m mutation) claims(class tool.Class) tool.Class {
	if m == retriesOnce && class == tool.Once {
		return tool.Keyed
	}
	return class
}

// key is what a tool is sent as the key of a call.
func (m mutation) key(c tool.Call, name string) string {
	if m == freshKeys && c.IdempotencyKey != "" {
		return c.IdempotencyKey + "/" + name
	}
	return c.IdempotencyKey
}

// saved makes the mistakes of a process that stores a conversation.
func (s *store) saved(orgID string, one journal.Conversation, key journal.ConversationKey) journal.Conversation {
	stored, _ := s.conversations.Find(context.Background(), orgID, "", key)
	switch {
	case s.w.mutation == lastWriters && stored != nil && one.Version > 0:
		one.Version = stored.Version
	case one.Compaction == nil:
	case s.w.mutation == noSummaries:
		one.Compaction = nil
	case s.w.mutation == cutSummaries:
		cut := *one.Compaction
		cut.Items = cut.Items[:max(len(cut.Items)-1, 1)]
		one.Compaction = &cut
	}
	return one
}

// late gives the forks of a conversation its last part.
func (s *store) late(orgID, id string, one journal.Conversation) {
	for _, fork := range s.forks[id] {
		key := journal.ConversationKey{Kind: journal.SessionID, ID: fork}
		if c, _ := s.conversations.Find(context.Background(), orgID, "", key); c != nil && len(one.Parts) > 0 && s.w.mutation == lateForks {
			c.Parts = append(c.Parts, one.Parts[len(one.Parts)-1])
			_ = s.conversations.Save(context.Background(), orgID, "", *c, journal.Kept, key)
		}
	}
}

// left returns a conversation after a rewind, with what a mistake leaves of the parts that it has taken out.
func (s *store) left(orgID string, one journal.Conversation, dropped []journal.ConversationKey) journal.Conversation {
	for _, key := range dropped {
		if c, _ := s.conversations.Find(context.Background(), orgID, "", key); s.w.mutation == keptTurns && c != nil && c.Compaction != nil {
			one.Parts = append(one.Parts, key.ID)
		}
	}
	return one
}

// kinds names what a batch holds.
func kinds(b journal.Batch) string {
	names := make([]string, len(b.Facts))
	for i, f := range b.Facts {
		names[i] = string(f.Body.Kind())
		switch body := f.Body.(type) {
		case loop.CallDone:
			names[i] += fmt.Sprintf("(%s %s)", body.Key, body.Outcome)
		case loop.Reserved:
			names[i] += fmt.Sprintf("(%d)", body.Amount.Tokens)
		case loop.Turn:
			names[i] += fmt.Sprintf("(%d+%d)", body.Usage.Input, body.Usage.Output)
		case loop.Finished:
			names[i] += fmt.Sprintf("(%s)", body.Reason)
		}
	}
	return strings.Join(names, "+")
}
