package run

import (
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/spend"
)

// reserver reserves what calls of a run may cost in the budgets of its org.
type reserver struct {
	run   *runState
	spend *spend.Keeper // nil = every run reserves in its journal

	hold *reservation // of the model call that is under way; nil = there is none, or an owner before this one has made it
}

// reservation is what a call may cost, until it is settled.
type reservation struct {
	id     string             // in the journal, of a run that reserves there
	slices *spend.Reservation // of any other run
	most   budget.Amount
}

// reserve reserves the most that a call may cost in all budgets of the run, and appends the facts that begins makes of what it
// reserves in. The error wraps a *[journal.OverBudget] if a budget has no room: nothing is appended.
//
// A durable run reserves in the batch that stores the facts. The others reserve from slices, in memory: nobody continues
// them after a crash, which counts slices as spent.
func (r *reserver) reserve(id string, most budget.Amount, begins func(scopes []string) []loop.Body) (*reservation, error) {
	held := &reservation{id: id, most: most}
	var batch journal.Batch
	var windows []budget.Window
	scopes := []string{"run"}
	for _, b := range r.run.state().Budgets {
		w := journal.WindowAt(b, r.run.now())
		windows, scopes = append(windows, w), append(scopes, w.Scope)
	}
	var err error
	if r.spend != nil && !r.run.durable() {
		held.slices, err = r.spend.Reserve(r.run.ctx, r.run.lease.Org, windows, most)
	} else {
		for _, w := range windows {
			batch.Reservations = append(batch.Reservations, journal.Reservation{ID: id, Budget: w, Amount: most})
		}
	}
	if err == nil {
		err = r.run.commit(batch, begins(scopes)...)
	}
	if err != nil {
		held.slices.Settle(budget.Amount{})
		return nil, err
	}
	return held, nil
}

// settle ends the reservation: the call has cost this much. It returns what the batch with the end of the call settles.
func (h *reservation) settle(cost budget.Amount) []journal.Settled {
	if h.slices != nil {
		h.slices.Settle(cost)
		return nil
	}
	return []journal.Settled{{ID: h.id, Amount: cost}}
}

// settled returns the settlement of the model call that ends with the fact, for the batch that
// stores the fact. A reservation from slices it settles at once.
func (r *reserver) settled(end loop.Body) []journal.Settled {
	reserved := r.run.state().Reserved
	if reserved == nil || len(r.run.state().Budgets) == 0 {
		return nil
	}
	held := r.hold
	r.hold = nil
	if held == nil {
		held = &reservation{id: attemptID(reserved.Round, reserved.Attempt)}
		if reserved.Compaction > 0 {
			held.id = compactionID(reserved.Compaction)
		}
	}
	return held.settle(r.run.state().Cost(end))
}
