package run

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
)

// priceReservation is the reservation of the price of a call in flight.
type priceReservation struct {
	id     string             // in the journal, of a durable run
	slices *spend.Reservation // of any other run
	price  budget.Amount
}

// priceOf returns what the call costs if it is executed.
func priceOf(c loop.Call) budget.Amount { return budget.Amount{NanoUSD: int64(c.Prepared.PriceNano)} }

// sharesPrice reports whether the price of the call counts in budgets of the org.
func (t *toolCaller) sharesPrice(c loop.Call) bool {
	return c.Prepared.PriceNano > 0 && len(t.run.state().Budgets) > 0
}

// pay appends that a call is about to be sent, and reserves its price in the budgets that the run
// spends from. It returns false for a call that one of them has no room for, which gets that as its
// answer.
//
// As with model calls, a durable run reserves in the batch that starts the call, and the others
// reserve from slices.
func (t *toolCaller) pay(c loop.Call, started loop.CallStarted) (bool, error) {
	hold := priceReservation{price: priceOf(c)}
	var batch journal.Batch
	var windows []budget.Window
	for _, b := range t.run.state().Budgets {
		windows = append(windows, journal.WindowAt(b, t.run.now()))
	}
	var err error
	if t.spend == nil || t.run.durable() {
		hold.id = "call " + string(started.Key) + "." + strconv.Itoa(started.Attempt)
		for _, w := range windows {
			batch.Reservations = append(batch.Reservations, journal.Reservation{ID: hold.id, Budget: w, Amount: hold.price})
		}
	} else {
		hold.slices, err = t.spend.Reserve(t.run.ctx, t.run.lease.Org, windows, hold.price)
	}
	if err == nil {
		err = t.run.commit(batch, started)
	}
	if err == nil {
		if t.holds == nil {
			t.holds = map[loop.CallKey]priceReservation{}
		}
		t.holds[started.Key] = hold
		return true, nil
	}
	hold.slices.Settle(budget.Amount{})
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
	cost := t.run.state().CallCost(end)
	if hold.slices != nil {
		hold.slices.Settle(cost)
		return nil
	}
	return []journal.Settled{{ID: hold.id, Amount: cost}}
}

// settleHolds counts calls that have no result here as executed: nobody knows better. The store
// does the same for the reservations of durable runs.
func (t *toolCaller) settleHolds() {
	for _, hold := range t.holds {
		hold.slices.Settle(hold.price)
	}
	t.holds = nil
}
