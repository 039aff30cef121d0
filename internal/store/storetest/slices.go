package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

func sliceCases() []rule {
	return []rule{
		{"a slice counts as reserved until it is spent or returned", "a process draws a part of a budget before it spends it", sliceOfBudget},
		{"an exchange can be repeated", "its amounts are absolute: a process that does not know whether it was stored asks again", repeatedExchange},
		{"a slice that does not fit changes nothing", "several budgets are all or nothing", sliceOverBudget},
		{"a process draws at most 1 % of what is left beyond what it needs", "and only what it needs where little is left", sizeOfSlice},
		{"a slice is filled up ahead of need", "where another budget of the call must be drawn anyway; it refuses nothing and repeats nothing", sliceAhead},
		{"what is spent beyond a slice is an overrun", "it is spent, and the next slice does not fit", sliceOverrun},
		{"reservations and slices share a budget", "64 processes and runs at once never exceed it", sliceRace},
		{"the audit log says once that 80 and 100 percent are spent", "for each window; a refusal counts as 100 percent", budgetThresholds},
		{"the budgets of an org are listed by scope", "by prefix, after a scope", listedBudgets},
	}
}

// exchange returns the slice of one budget after a use.
func (b *testBench) exchange(owner string, use journal.SliceUse) budget.Amount {
	b.Helper()
	got, err := b.Slices.Exchange(b.Context(), "a", owner, []journal.SliceUse{use})
	b.ok(err)
	if len(got) != 1 {
		b.Fatalf("%d slices, want 1", len(got))
	}
	return got[0].Drawn
}

func window(scope string, limit int64) budget.Window {
	return budget.Window{Scope: scope, Limit: tokens(limit)}
}

func sliceOfBudget(b *testBench) {
	w := window("s", 1000)
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Need: tokens(100)}), tokens(100))
	b.checkUsed("a", "s", tokens(0), tokens(100))
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Spent: tokens(30), Need: tokens(70)}), tokens(70))
	b.checkUsed("a", "s", tokens(30), tokens(70))
	b.equal(b.exchange("q", journal.SliceUse{Budget: w, Need: tokens(200)}), tokens(200))
	b.checkUsed("a", "s", tokens(30), tokens(270))
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Spent: tokens(50), Return: true, Close: true}), tokens(0))
	b.checkUsed("a", "s", tokens(50), tokens(200))
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Spent: tokens(50), Return: true, Close: true}), tokens(0)) // closed already
	b.checkUsed("a", "s", tokens(50), tokens(200))
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Need: tokens(5)}), tokens(5)) // a new slice
	b.checkUsed("a", "s", tokens(50), tokens(205))
}

func repeatedExchange(b *testBench) {
	w := window("s", 1000)
	for range 3 {
		b.equal(b.exchange("p", journal.SliceUse{Budget: w, Need: tokens(100)}), tokens(100))
	}
	for range 3 {
		b.equal(b.exchange("p", journal.SliceUse{Budget: w, Spent: tokens(60), Need: tokens(80)}), tokens(80))
	}
	b.checkUsed("a", "s", tokens(60), tokens(80))
}

func sliceOverBudget(b *testBench) {
	_, err := b.Slices.Exchange(b.Context(), "a", "p", []journal.SliceUse{
		{Budget: window("org", 1000), Need: tokens(100)}, {Budget: window("key", 99), Need: tokens(100)},
	})
	b.checkOverBudget(err, "key")
	b.checkUsed("a", "org", tokens(0), tokens(0))
	b.equal(b.exchange("p", journal.SliceUse{Budget: window("org", 1000), Need: tokens(1000)}), tokens(1000))
	_, err = b.Slices.Exchange(b.Context(), "a", "q", []journal.SliceUse{{Budget: window("org", 1000), Need: tokens(1)}})
	b.checkOverBudget(err, "org")
}

func sizeOfSlice(b *testBench) {
	w := window("s", 10_000)
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Need: tokens(5), Want: tokens(40)}), tokens(40))
	b.equal(b.exchange("q", journal.SliceUse{Budget: w, Need: tokens(5), Want: tokens(4000)}), tokens(99))
	b.equal(b.exchange("r", journal.SliceUse{Budget: w, Need: tokens(1000), Want: tokens(4000)}), tokens(1000)) // less than ten calls are left
}

func sliceAhead(b *testBench) {
	w := window("s", 10_000)
	ahead := journal.SliceUse{Budget: w, Need: tokens(5), Want: tokens(40), Ahead: true}
	b.equal(b.exchange("p", ahead), tokens(40))
	for range 3 {
		b.equal(b.exchange("p", ahead), tokens(45))
	}
	ahead.Want = tokens(4000)
	b.equal(b.exchange("p", ahead), tokens(104)) // 1 % of what is left
	b.checkUsed("a", "s", tokens(0), tokens(104))
	ahead.Return = true
	b.equal(b.exchange("p", ahead), tokens(5))
	b.checkUsed("a", "s", tokens(0), tokens(5))
	b.equal(b.exchange("q", journal.SliceUse{Budget: w, Need: tokens(9_995)}), tokens(9_995))
	ahead.Return = false
	b.equal(b.exchange("p", ahead), tokens(5)) // there is no room
	b.checkUsed("a", "s", tokens(0), tokens(10_000))
}

func sliceOverrun(b *testBench) {
	w := window("s", 100)
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Need: tokens(100)}), tokens(100))
	b.equal(b.exchange("p", journal.SliceUse{Budget: w, Spent: tokens(120)}), tokens(0))
	got, err := b.Archive.Used(b.Context(), "a", "s")
	b.ok(err)
	b.equal([]budget.Amount{got.Spent, got.Reserved, got.Overrun}, []budget.Amount{tokens(120), tokens(0), tokens(20)})
	_, err = b.Slices.Exchange(b.Context(), "a", "p", []journal.SliceUse{{Budget: w, Spent: tokens(120), Need: tokens(1)}})
	b.checkOverBudget(err, "s")
}

func sliceRace(b *testBench) {
	const limit, each = 500, 10
	var granted atomic.Int64
	var g errgroup.Group
	for i := range 64 {
		g.Go(func() error {
			var err error
			if i%2 == 0 {
				_, err = b.Slices.Exchange(b.Context(), "a", fmt.Sprint("p", i), []journal.SliceUse{{Budget: window("s", limit), Need: tokens(each)}})
			} else {
				err = b.begin("a", fmt.Sprint("r", i)).hold(hold("0.1", "s", tokens(limit), tokens(each)))
			}
			if err == nil {
				granted.Add(each)
			} else if !errors.As(err, new(*journal.OverBudget)) {
				return err
			}
			return nil
		})
	}
	b.ok(g.Wait())
	b.checkUsed("a", "s", tokens(0), tokens(limit))
	b.equal(granted.Load(), int64(limit))
}

// budgetEvents returns what the audit log of the org says of budgets.
func (b *testBench) budgetEvents() (all []string) {
	b.Helper()
	for _, kind := range []audit.Kind{audit.KindBudgetThreshold, audit.KindBudgetExceeded} {
		rows, err := b.Archive.AuditRows(b.Context(), "a", audit.Query{Kind: kind})
		b.ok(err)
		for _, r := range rows {
			var body audit.Budget
			b.ok(json.Unmarshal(r.Body, &body))
			all = append(all, fmt.Sprint(kind.Short(), " ", body.Budget, " ", body.Percent))
		}
	}
	return all
}

func budgetThresholds(b *testBench) {
	a := b.begin("a", "r")
	spend := func(id string, scope string, n int64) {
		b.ok(a.hold(hold(id, scope, tokens(100), tokens(n))))
		a.settle(id, tokens(n))
	}
	spend("0.1", "s", 79)
	b.equal(b.budgetEvents(), []string(nil))
	spend("1.1", "s", 1)
	spend("2.1", "s", 1)
	b.equal(b.budgetEvents(), []string{"budget.threshold s 80"})
	for range 2 {
		b.checkOverBudget(a.hold(hold("3.1", "s", tokens(100), tokens(20))), "s")
	}
	b.equal(b.budgetEvents(), []string{"budget.threshold s 80", "budget.exceeded s 100"})
	spend("3.1", "s", 19)
	for range 2 {
		_, err := b.Slices.Exchange(b.Context(), "a", "p", []journal.SliceUse{{Budget: window("s", 100), Need: tokens(1)}})
		b.checkOverBudget(err, "s")
	}
	b.equal(b.budgetEvents(), []string{"budget.threshold s 80", "budget.exceeded s 100"})
	b.exchange("p", journal.SliceUse{Budget: window("t", 100), Need: tokens(90)})
	b.exchange("p", journal.SliceUse{Budget: window("t", 100), Spent: tokens(100), Return: true, Close: true})
	b.equal(b.budgetEvents(), []string{"budget.threshold s 80", "budget.exceeded s 100", "budget.exceeded t 100"})
}

func listedBudgets(b *testBench) {
	for _, scope := range []string{"end_user/b/day/2026-11-25", "end_user/a/day/2026-11-25", "org/total", "key/k/total"} {
		b.exchange("p", journal.SliceUse{Budget: budget.Window{Scope: scope, Limit: tokens(100), EndsAt: 7}, Need: tokens(1)})
	}
	b.ok(b.begin("b", "r").hold(hold("0.1", "org/total", tokens(100), tokens(1))))
	list := func(prefix, after string, limit int) (scopes []string) {
		all, err := b.Archive.UsedAll(b.Context(), "a", prefix, after, limit)
		b.ok(err)
		for _, u := range all {
			b.equal(u.Budget, budget.Window{Scope: u.Budget.Scope, Limit: tokens(100), EndsAt: 7})
			scopes = append(scopes, u.Budget.Scope)
		}
		return scopes
	}
	b.equal(list("", "", 2), []string{"end_user/a/day/2026-11-25", "end_user/b/day/2026-11-25"})
	b.equal(list("", "end_user/b/day/2026-11-25", 9), []string{"key/k/total", "org/total"})
	b.equal(list("end_user/", "end_user/a/day/2026-11-25", 9), []string{"end_user/b/day/2026-11-25"})
}
