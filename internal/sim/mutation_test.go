package sim

import (
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
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
)

func mutations() []mutation {
	return []mutation{noFencing, noIntent, freshKeys, retriesOnce, checkThenAct, refunds, noSubmitKey, countsSlots, lateHolds, deafOwners, openDoors}
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
	if s.w.mutation == refunds {
		wr.batch.Holds = append([]run.Hold(nil), wr.batch.Holds...)
		for i := range wr.batch.Holds {
			h := &wr.batch.Holds[i]
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
		return run.ErrNoSlot
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
	for _, h := range wr.batch.Holds {
		u := s.used(budgetKey{wr.lease.Org, h.Budget.Scope})
		if !h.Budget.Fits(u.Spent.Add(u.Held), h.Amount) {
			return &run.OverBudget{Scope: h.Budget.Scope}
		}
	}
	return nil
}

// unlimited returns the batch as one whose budgets were checked.
func unlimited(b run.Batch) run.Batch {
	b.Holds = append([]run.Hold(nil), b.Holds...)
	for i := range b.Holds {
		b.Holds[i].Budget.Limit.Tokens = 0
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

// kinds names what a batch holds.
func kinds(b run.Batch) string {
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
