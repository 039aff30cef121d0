package memory

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

type budgetKey struct{ org, scope string }

type holdKey struct{ id, scope string }

// charge is the effect of a batch on the budgets of its org and the holds of its
// run.
type charge struct {
	budgets map[budgetKey]journal.Used // the new values
	settled map[holdKey]bool
	holds   map[holdKey]budget.Amount // the new holds
}

// Used implements journal.Archive.
func (j *Journal) Used(_ context.Context, orgID, scope string) (journal.Used, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.budgets[budgetKey{orgID, scope}], nil
}

// planCharge computes the charge of a batch without applying it. It returns a
// *journal.OverBudget if a hold does not fit.
func (j *Journal) planCharge(key runKey, r *runRecord, b journal.Batch) (charge, error) {
	c := charge{budgets: map[budgetKey]journal.Used{}, settled: map[holdKey]bool{}, holds: map[holdKey]budget.Amount{}}
	used := func(scope string) (budgetKey, journal.Used) {
		k := budgetKey{key.org, scope}
		if u, ok := c.budgets[k]; ok {
			return k, u
		}
		return k, j.budgets[k]
	}
	for _, s := range b.Settled {
		for h, held := range r.holds {
			if h.id == s.ID && !c.settled[h] {
				k, u := used(h.scope)
				c.budgets[k] = u.Settle(held, s.Amount)
				c.settled[h] = true
			}
		}
	}
	for _, h := range b.Reservations {
		k, u := used(h.Budget.Scope)
		u, err := u.Reserve(h)
		if err != nil {
			return c, err
		}
		id := holdKey{h.ID, h.Budget.Scope}
		_, twice := c.holds[id]
		if _, open := r.holds[id]; twice || open && !c.settled[id] {
			return c, fmt.Errorf("hold %s in budget %s: %w", h.ID, h.Budget.Scope, org.ErrExists)
		}
		c.holds[id] = h.Amount
		c.budgets[k] = u
	}
	return c, nil
}

// applyCharge applies a planned charge.
func (j *Journal) applyCharge(r *runRecord, c charge) {
	for k, u := range c.budgets {
		j.setUsed(k, u)
	}
	for h := range c.settled {
		delete(r.holds, h)
	}
	for h, amount := range c.holds {
		r.holds[h] = amount
	}
}

// settleAll settles all holds of the run at their full amount.
func (j *Journal) settleAll(orgID string, r *runRecord) {
	for h, amount := range r.holds {
		k := budgetKey{orgID, h.scope}
		u := j.budgets[k]
		j.setUsed(k, u.Settle(amount, amount))
	}
	clear(r.holds)
}

func (j *Journal) setUsed(k budgetKey, u journal.Used) {
	if j.budgets == nil {
		j.budgets = map[budgetKey]journal.Used{}
	}
	j.budgets[k] = u
}
