package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

type budgetKey struct{ org, scope string }

type holdKey struct{ id, scope string }

// sliceKey is whose slice of a budget it is.
type sliceKey struct {
	budgetKey
	owner string
}

// charge is the effect of a batch on the budgets of its org and the holds of its
// run.
type charge struct {
	budgets map[budgetKey]journal.Used // the new values
	steps   []chargeStep               // to them, in order: each one can reach a part of the limit that it knows
	settled map[holdKey]bool
	holds   map[holdKey]budget.Amount // the new holds
}

type chargeStep struct {
	key  budgetKey
	used journal.Used
}

func (c *charge) set(k budgetKey, u journal.Used) {
	c.budgets[k] = u
	c.steps = append(c.steps, chargeStep{k, u})
}

// Used implements journal.Archive.
func (j *Journal) Used(_ context.Context, orgID, scope string) (journal.Used, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.budgets[budgetKey{orgID, scope}], nil
}

// UsedAll implements journal.Archive.
func (j *Journal) UsedAll(_ context.Context, orgID, prefix, after string, limit int) ([]journal.Used, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []journal.Used
	for k, u := range j.budgets {
		if k.org == orgID && k.scope > after && strings.HasPrefix(k.scope, prefix) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b journal.Used) int { return cmp.Compare(a.Budget.Scope, b.Budget.Scope) })
	return out[:min(limit, len(out))], nil
}

// Exchange implements journal.Slices.
func (j *Journal) Exchange(_ context.Context, orgID, owner string, uses []journal.SliceUse) ([]journal.Slice, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	budgets, next, out := map[budgetKey]journal.Used{}, map[sliceKey]journal.Slice{}, make([]journal.Slice, len(uses))
	for i, use := range uses {
		key := sliceKey{budgetKey{orgID, use.Budget.Scope}, owner}
		slice, known := next[key]
		if !known {
			if slice, known = j.slices[key]; !known && use.Close {
				continue
			}
		}
		used, known := budgets[key.budgetKey]
		if !known {
			used = j.budgets[key.budgetKey]
		}
		used, slice, err := used.Exchange(slice, use)
		if err != nil {
			if over, ok := errors.AsType[*journal.OverBudget](err); ok {
				j.tellRefused(orgID, over)
			}
			return nil, err
		}
		budgets[key.budgetKey], next[key], out[i] = used, slice, slice
	}
	for k, u := range budgets {
		j.setUsed(k, u, false)
	}
	if j.slices == nil {
		j.slices = map[sliceKey]journal.Slice{}
	}
	maps.Copy(j.slices, next)
	for _, use := range uses {
		if use.Close {
			delete(j.slices, sliceKey{budgetKey{orgID, use.Budget.Scope}, owner})
		}
	}
	return out, nil
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
		for _, h := range slices.SortedFunc(maps.Keys(r.holds), func(a, b holdKey) int { return cmp.Compare(a.scope, b.scope) }) {
			if h.id == s.ID && !c.settled[h] {
				k, u := used(h.scope)
				c.set(k, u.Settle(r.holds[h], s.Amount))
				c.settled[h] = true
			}
		}
	}
	for _, h := range b.Reservations {
		k, u := used(h.Budget.Scope)
		u, err := u.Reserve(h)
		if over, ok := errors.AsType[*journal.OverBudget](err); ok {
			j.tellRefused(key.org, over)
			return c, over
		}
		id := holdKey{h.ID, h.Budget.Scope}
		_, twice := c.holds[id]
		if _, open := r.holds[id]; twice || open && !c.settled[id] {
			return c, fmt.Errorf("hold %s in budget %s: %w", h.ID, h.Budget.Scope, org.ErrExists)
		}
		c.holds[id] = h.Amount
		c.set(k, u)
	}
	return c, nil
}

// applyCharge applies a planned charge.
func (j *Journal) applyCharge(r *runRecord, c charge) {
	for _, s := range c.steps {
		s.used.Told = j.budgets[s.key].Told
		j.setUsed(s.key, s.used, false)
	}
	for h := range c.settled {
		delete(r.holds, h)
	}
	maps.Copy(r.holds, c.holds)
}

// settleAll settles all holds of the run at their full amount.
func (j *Journal) settleAll(orgID string, r *runRecord) {
	for h, amount := range r.holds {
		k := budgetKey{orgID, h.scope}
		j.setUsed(k, j.budgets[k].Settle(amount, amount), false)
	}
	clear(r.holds)
}

// setUsed stores what is used of a budget, and tells the audit log what of its limit is reached.
func (j *Journal) setUsed(k budgetKey, u journal.Used, refused bool) {
	if j.budgets == nil {
		j.budgets = map[budgetKey]journal.Used{}
	}
	if u.Budget.Scope == "" {
		u.Budget.Scope = k.scope
	}
	percent, u := u.Tell(refused)
	j.budgets[k] = u
	if percent == 0 {
		return
	}
	rows, _ := j.audit.nextRows(k.org, []audit.Entry{u.TellEntry(percent, j.now().UnixMilli())}) // numbers and a text: cannot fail
	j.audit.add(rows)
}

// tellRefused tells the audit log that a budget has refused a model call, unless the log says so
// already.
func (j *Journal) tellRefused(orgID string, over *journal.OverBudget) {
	k := budgetKey{orgID, over.Budget.Scope}
	used := j.budgets[k]
	if percent, _ := used.Tell(true); percent == 0 {
		return
	}
	used.Budget = over.Budget
	j.setUsed(k, used, true)
}
