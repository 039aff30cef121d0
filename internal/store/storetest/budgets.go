package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func budgetCases() []rule {
	return []rule{
		{"a hold takes room until it is settled", "then the actual amount is spent, and the rest is free", holdAndSettle},
		{"a hold that does not fit is refused with its batch", "OverBudget has the scope; a limit can be reached but not exceeded, in tokens and in money", overBudget},
		{"holds in several budgets are all or nothing", "if one budget refuses, the others do not change", severalBudgets},
		{"a settled hold makes room in its own batch", "a run settles one call and holds for the next in one step", settleFirst},
		{"a call may cost more than its hold", "the whole amount is spent, and the next hold is refused", overspent},
		{"a hold is settled once", "settling an unknown id has no effect", settledTwice},
		{"an open hold cannot be made again", "ErrExists; when it is settled, its id is free", holdTwice},
		{"the end of a run settles its holds at their full amount", "the actual cost is unknown and may be all of it", finishSettles},
		{"a claim settles the run's holds at their full amount", "the old owner may have made the calls", claimSettles},
		{"a parked run keeps its holds", "it has not ended", parkHolds},
		{"budgets belong to their org", "the same scope in another org is another budget, and the same id in another run another hold", foreignBudgets},
		{"64 concurrent runs never exceed a budget", "checking and holding is one transaction", budgetRace},
	}
}

func tokens(n int64) budget.Amount { return budget.Amount{Tokens: n} }

// hold returns a hold in the budget with this scope and limit.
func hold(id, scope string, limit, amount budget.Amount) journal.Reservation {
	return journal.Reservation{ID: id, Budget: budget.Window{Scope: scope, Limit: limit}, Amount: amount}
}

func (a *author) hold(holds ...journal.Reservation) error {
	return a.append(a.Context(), journal.Batch{Sync: true, Reservations: holds})
}

func (a *author) settle(id string, amount budget.Amount) {
	a.Helper()
	a.ok(a.append(a.Context(), journal.Batch{Sync: true, Settled: []journal.Settled{{ID: id, Amount: amount}}}))
}

// checkUsed fails the case unless the budget has these values.
func (b *testBench) checkUsed(orgID, scope string, spent, held budget.Amount) {
	b.Helper()
	got, err := b.Archive.Used(b.Context(), orgID, scope)
	b.ok(err)
	b.equal([]budget.Amount{got.Spent, got.Reserved}, []budget.Amount{spent, held})
}

// checkOverBudget fails the case unless err is a *journal.OverBudget for the scope.
func (b *testBench) checkOverBudget(err error, scope string) {
	b.Helper()
	var over *journal.OverBudget
	if !errors.As(err, &over) || over.Budget.Scope != scope {
		b.Errorf("got error %v, want a *journal.OverBudget of %s", err, scope)
	}
}

func holdAndSettle(b *testBench) {
	a := b.begin("a", "r")
	b.checkUsed("a", "s", tokens(0), tokens(0))
	cost := budget.Amount{Tokens: 100, NanoUSD: 7}
	b.ok(a.hold(hold("0.1", "s", budget.Amount{}, cost)))
	b.checkUsed("a", "s", tokens(0), cost)
	b.ok(a.hold(hold("1.1", "s", budget.Amount{}, cost)))
	b.checkUsed("a", "s", tokens(0), cost.Add(cost))
	a.settle("0.1", budget.Amount{Tokens: 30, NanoUSD: 2})
	b.checkUsed("a", "s", budget.Amount{Tokens: 30, NanoUSD: 2}, cost)
	a.settle("1.1", cost)
	b.checkUsed("a", "s", budget.Amount{Tokens: 130, NanoUSD: 9}, tokens(0))
}

func overBudget(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(60))))
	batch := journal.Batch{Sync: true, Reservations: []journal.Reservation{hold("1.1", "s", tokens(100), tokens(41))}, Rows: []journal.Row{{Ref: "x", Value: 1}}}
	b.checkOverBudget(a.append(b.Context(), batch, input("x")), "s")
	if story := a.checkStored(); len(story.Rows) > 0 {
		b.Errorf("rows of a refused batch: %s", story.Rows)
	}
	b.checkUsed("a", "s", tokens(0), tokens(60))
	b.ok(a.hold(hold("1.1", "s", tokens(100), tokens(40))))
	b.checkOverBudget(a.hold(hold("2.1", "s", tokens(100), tokens(1))), "s")
	money := budget.Amount{NanoUSD: 10}
	b.ok(a.hold(hold("2.1", "money", money, budget.Amount{Tokens: 1e6, NanoUSD: 10})))
	b.checkOverBudget(a.hold(hold("3.1", "money", money, budget.Amount{NanoUSD: 1})), "money")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true}, input("x"))) // the run can continue
	a.checkStored()
}

func severalBudgets(b *testBench) {
	a := b.begin("a", "r")
	b.checkOverBudget(a.hold(
		hold("0.1", "org", tokens(100), tokens(50)),
		hold("0.1", "key", tokens(40), tokens(50)),
		hold("0.1", "agent", tokens(100), tokens(50)),
	), "key")
	for _, scope := range []string{"org", "key", "agent"} {
		b.checkUsed("a", scope, tokens(0), tokens(0))
	}
	b.checkOverBudget(a.hold(hold("0.1", "org", tokens(100), tokens(60)), hold("0.2", "org", tokens(100), tokens(60))), "org")
	b.checkUsed("a", "org", tokens(0), tokens(0))
	b.ok(a.hold(hold("0.1", "org", tokens(100), tokens(50)), hold("0.1", "key", tokens(60), tokens(50))))
	a.settle("0.1", tokens(20))
	b.checkUsed("a", "org", tokens(20), tokens(0))
	b.checkUsed("a", "key", tokens(20), tokens(0))
}

func settleFirst(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(100))))
	next := journal.Batch{
		Sync: true, Settled: []journal.Settled{{ID: "0.1", Amount: tokens(30)}},
		Reservations: []journal.Reservation{hold("1.1", "s", tokens(100), tokens(70))},
	}
	b.ok(a.append(b.Context(), next, input("x")))
	b.checkUsed("a", "s", tokens(30), tokens(70))
}

func overspent(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(50))))
	a.settle("0.1", tokens(120))
	b.checkUsed("a", "s", tokens(120), tokens(0))
	b.checkOverBudget(a.hold(hold("1.1", "s", tokens(100), tokens(1))), "s")
	b.ok(a.hold(hold("1.1", "s", tokens(200), tokens(1)))) // the limit comes with each hold
}

func settledTwice(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(50))))
	a.settle("nobody's", tokens(40))
	twice := []journal.Settled{{ID: "0.1", Amount: tokens(10)}, {ID: "0.1", Amount: tokens(20)}}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Settled: twice}))
	a.settle("0.1", tokens(10))
	b.checkUsed("a", "s", tokens(10), tokens(0))
}

func holdTwice(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(50))))
	b.checkError(a.hold(hold("0.1", "s", tokens(100), tokens(5))), org.ErrExists)
	b.checkUsed("a", "s", tokens(0), tokens(50))
	a.settle("0.1", tokens(10))
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(5))))
	b.checkUsed("a", "s", tokens(10), tokens(5))
}

func finishSettles(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(20)), hold("0.1", "t", tokens(100), tokens(20))))
	b.ok(a.hold(hold("0.2", "s", tokens(100), tokens(30))))
	a.settle("0.1", tokens(5))
	b.ok(a.hold(hold("1.1", "s", tokens(100), tokens(7)), hold("1.1", "t", tokens(100), tokens(7))))
	a.write(loop.Finished{Reason: event.Complete})
	b.checkUsed("a", "s", tokens(42), tokens(0))
	b.checkUsed("a", "t", tokens(12), tokens(0))
}

func claimSettles(b *testBench) {
	old := b.begin("a", "r")
	b.ok(old.hold(hold("0.1", "s", tokens(100), tokens(20)), hold("0.1", "t", tokens(100), tokens(20))))
	other := b.begin("a", "other")
	b.ok(other.hold(hold("0.1", "s", tokens(100), tokens(9))))
	b.advance(journal.LeaseTTL)
	b.renew("nobody")
	other.write(input("still here"))
	b.checkLeases(b.claim("new", 10), "a/r@2")
	b.checkUsed("a", "s", tokens(20), tokens(9))
	b.checkUsed("a", "t", tokens(20), tokens(0))
	b.checkError(old.append(b.Context(), journal.Batch{Sync: true, Settled: []journal.Settled{{ID: "0.1", Amount: tokens(1)}}}), journal.ErrFenced)
	next := old.with(journal.Lease{Org: "a", RunID: "r", Epoch: 2, Owner: "new"})
	next.settle("0.1", tokens(1)) // already settled by the claim: no effect
	b.checkUsed("a", "s", tokens(20), tokens(9))
	b.ok(next.hold(hold("0.1", "s", tokens(100), tokens(3)))) // the new owner repeats the call
	b.checkUsed("a", "s", tokens(20), tokens(12))
}

func parkHolds(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(20))))
	a.write(loop.Parked{})
	b.checkUsed("a", "s", tokens(0), tokens(20))
	a.write(loop.Resumed{})
	a.write(loop.Finished{Reason: event.Complete})
	b.checkUsed("a", "s", tokens(20), tokens(0))
}

func foreignBudgets(b *testBench) {
	a, other, foreign := b.begin("a", "r"), b.begin("a", "other"), b.begin("b", "r")
	for _, x := range []*author{a, other, foreign} {
		b.ok(x.hold(hold("0.1", "s", tokens(100), tokens(40))))
	}
	b.checkOverBudget(other.hold(hold("1.1", "s", tokens(100), tokens(40))), "s")
	b.ok(foreign.hold(hold("1.1", "s", tokens(100), tokens(40))))
	a.settle("0.1", tokens(1))
	b.checkUsed("a", "s", tokens(1), tokens(40))
	b.checkUsed("b", "s", tokens(0), tokens(80))
}

func budgetRace(b *testBench) {
	const runs, limit, each = 64, 1000, 90
	var group errgroup.Group
	var spent, refused atomic.Int64
	for i := range runs {
		a := b.begin("a", fmt.Sprint("run ", i))
		group.Go(func() error {
			for round := range 4 {
				id := fmt.Sprint(round, ".1")
				err := a.hold(hold(id, "s", tokens(limit), tokens(each)))
				if errors.As(err, new(*journal.OverBudget)) {
					refused.Add(1)
					continue
				} else if err != nil {
					return err
				}
				used, err := b.Archive.Used(b.Context(), "a", "s")
				if err != nil || used.Spent.Add(used.Reserved).Tokens > limit {
					return fmt.Errorf("used %+v of %d: %w", used, limit, err)
				}
				cost := int64(10 + i%each/2)
				if err := a.append(b.Context(), journal.Batch{Settled: []journal.Settled{{ID: id, Amount: tokens(cost)}}}); err != nil {
					return err
				}
				spent.Add(cost)
			}
			return a.append(b.Context(), journal.Batch{Sync: true}, loop.Finished{Reason: event.Complete})
		})
	}
	b.ok(group.Wait())
	b.checkUsed("a", "s", tokens(spent.Load()), tokens(0))
	if spent.Load() > limit || refused.Load() == 0 {
		b.Errorf("%d of %d were spent, and %d refused", spent.Load(), limit, refused.Load())
	}
}
