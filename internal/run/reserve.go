package run

import (
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/spend"
)

// reserver reserves what the model calls of a run may cost in the budgets of its org, and settles it.
type reserver struct {
	run   *runState
	spend *spend.Keeper // nil = every run reserves in its journal

	hold *spend.Reservation // of the call that is under way, from slices; nil = there is none
}

// reservation returns the batch that reserves an amount in the journal, for a run that does, and the windows of its budgets.
func (r *reserver) reservation(id string, most budget.Amount) (batch journal.Batch, windows []budget.Window, scopes []string) {
	scopes = []string{"run"}
	for _, b := range r.run.state().Budgets {
		w := journal.WindowAt(b, r.run.now())
		windows, scopes = append(windows, w), append(scopes, w.Scope)
		if r.spend == nil || r.run.durable() {
			batch.Reservations = append(batch.Reservations, journal.Reservation{ID: id, Budget: w, Amount: most})
		}
	}
	return batch, windows, scopes
}

// settled returns the settlement of the model call that ends with the fact, for the batch that
// stores the fact. A reservation from slices it settles at once.
func (r *reserver) settled(end loop.Body) []journal.Settled {
	reserved := r.run.state().Reserved
	if reserved == nil || len(r.run.state().Budgets) == 0 {
		return nil
	}
	cost := r.run.state().Cost(end)
	if r.hold != nil {
		r.hold.Settle(cost)
		r.hold = nil
		return nil
	}
	id := attemptID(reserved.Round, reserved.Attempt)
	if reserved.Compaction > 0 {
		id = compactionID(reserved.Compaction)
	}
	return []journal.Settled{{ID: id, Amount: cost}}
}
