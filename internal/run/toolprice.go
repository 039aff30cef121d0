package run

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
)

// priceOf returns what the call costs if it is executed.
func priceOf(c loop.Call) budget.Amount { return budget.Amount{NanoUSD: int64(c.Prepared.PriceNano)} }

// sharesPrice reports whether the price of the call counts in budgets of the org.
func (t *toolCaller) sharesPrice(c loop.Call) bool {
	return c.Prepared.PriceNano > 0 && len(t.run.state().Budgets) > 0
}

// pay appends that a call is about to be sent, and reserves its price in the budgets that the run
// spends from. It returns false for a call that one of them has no room for, which gets that as its
// answer.
func (t *toolCaller) pay(c loop.Call, started loop.CallStarted) (bool, error) {
	id := "call " + string(started.Key) + "." + strconv.Itoa(started.Attempt)
	hold, err := t.reserver.reserve(id, priceOf(c), func([]string) []loop.Body { return []loop.Body{started} })
	if err == nil {
		if t.holds == nil {
			t.holds = map[loop.CallKey]*reservation{}
		}
		t.holds[started.Key] = hold
		return true, nil
	}
	if over, ok := errors.AsType[*journal.OverBudget](err); ok {
		return false, t.refuse(c, over)
	}
	return false, err
}

// refuse prepares a call again that a budget has no room for.
func (t *toolCaller) refuse(c loop.Call, over *journal.OverBudget) error {
	p := *c.Prepared
	p.Revision++
	p.Verdict, p.Answer = loop.Answer, toolexec.Refusal(fmt.Sprintf("the call costs %s USD, and the budget %s has no room for it", p.PriceNano, over.Budget.Scope))
	t.run.log.Warn("a tool call is not executed: a budget has no room for its price", "call", c.Key, "tool", c.Name, "server", p.Server,
		"usd", p.PriceNano.String(), "budget", over.Budget.Scope)
	return t.run.append(nil, p)
}

// paid settles the reservation of a call that ends with the fact, and returns what the batch that
// stores the fact settles. It must be called before the fact is applied.
func (t *toolCaller) paid(end loop.CallDone) []journal.Settled {
	hold, ok := t.holds[end.Key]
	if !ok {
		return nil
	}
	delete(t.holds, end.Key)
	return hold.settle(t.run.state().CallCost(end))
}

// settleHolds counts calls that have no result here as executed: nobody knows better. The store
// does the same for the reservations of durable runs.
func (t *toolCaller) settleHolds() {
	for _, hold := range t.holds {
		hold.slices.Settle(hold.most)
	}
	t.holds = nil
}
