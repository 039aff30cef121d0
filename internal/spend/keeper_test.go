package spend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a store that counts its calls and can be away.
type counted struct {
	memory.Journal
	mu     sync.Mutex
	calls  int
	away   error  // that Exchange returns; nil = it is there
	after  error  // that Exchange returns after it has stored
	during func() // is called once, while Exchange stores; nil = nothing
}

func (c *counted) Exchange(ctx context.Context, org, owner string, uses []journal.SliceUse) ([]journal.Slice, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.during != nil {
		c.during()
		c.during = nil
	}
	if c.away != nil {
		return nil, c.away
	}
	got, err := c.Journal.Exchange(ctx, org, owner, uses)
	if err == nil && c.after != nil {
		return nil, c.after
	}
	return got, err
}

func (c *counted) used(t *testing.T, scope string) journal.Used {
	t.Helper()
	u, err := c.Used(t.Context(), "o", scope)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func tokens(n int64) budget.Amount { return budget.Amount{Tokens: n} }

func limited(scope string, n int64) []budget.Window {
	return []budget.Window{{Scope: scope, Limit: tokens(n)}}
}

func newKeeper() (*spend.Keeper, *counted) {
	store := &counted{}
	return spend.New(store, "p", slog.New(slog.DiscardHandler)), store
}

func reserve(t *testing.T, k *spend.Keeper, w []budget.Window, n int64) *spend.Reservation {
	t.Helper()
	h, err := k.Reserve(t.Context(), "o", w, tokens(n))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The store is asked less than once in 100 calls while more than 5 % of the cap is left. // P03
func TestFewCallsAskTheStore(t *testing.T) {
	k, store := newKeeper()
	w := limited("org", 10_000_000)
	if _, err := store.Exchange(t.Context(), "o", "other", []journal.SliceUse{{Budget: w[0], Spent: tokens(9_400_000), Return: true}}); err != nil {
		t.Fatal(err)
	}
	const calls = 10_000 // one percent of the budget
	for range calls {
		reserve(t, k, w, 10).Settle(tokens(9))
	}
	if store.calls > calls/100 {
		t.Errorf("%d calls of the store for %d model calls", store.calls, calls)
	}
	k.Stop(t.Context())
	if u := store.used(t, "org"); u.Spent != tokens(9_400_000+9*calls) || u.Reserved != tokens(0) {
		t.Errorf("%+v", u)
	}
}

// What is spent and reserved never exceeds the cap, whatever the calls cost in the end. // P03 P57
func TestConcurrentCallsStayWithinTheCap(t *testing.T) {
	k, store := newKeeper()
	windows := append(limited("org", 50_000), limited("end_user/u", 30_000)...)
	var g sync.WaitGroup
	var refused, granted int
	var mu sync.Mutex
	for range 200 {
		g.Go(func() {
			h, err := k.Reserve(context.Background(), "o", windows, tokens(300))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if over := (*journal.OverBudget)(nil); !errors.As(err, &over) || over.Budget.Scope != "end_user/u" {
					t.Error(err)
				}
				refused++
				return
			}
			granted++
			defer h.Settle(tokens(200))
			for _, w := range windows {
				if u := store.used(t, w.Scope); !w.Limit.Covers(u.Spent.Add(u.Reserved)) {
					t.Errorf("%s: %+v", w.Scope, u)
				}
			}
		})
	}
	g.Wait()
	if granted < 100 || granted+refused != 200 {
		t.Errorf("%d granted, %d refused", granted, refused)
	}
	k.Stop(t.Context())
	for _, w := range windows {
		if u := store.used(t, w.Scope); u.Spent != tokens(int64(200*granted)) || u.Reserved != tokens(0) {
			t.Errorf("%s: %+v, %d granted", w.Scope, u, granted)
		}
	}
}

// A slice is used while the store is away, and nothing is drawn then. // P03
func TestTheStoreIsAway(t *testing.T) {
	k, store := newKeeper()
	w := limited("org", 1_000_000)
	reserve(t, k, w, 100).Settle(tokens(0)) // nothing of its slice is spent
	store.away = errors.New("the disk is full")
	reserve(t, k, w, 100).Settle(tokens(100))
	h, err := k.Reserve(t.Context(), "o", w, tokens(1))
	if f := fault.From(err); f.Code != fault.Unavailable || f.Reason != "store_unavailable" {
		t.Errorf("a store that is away is told as %v", f)
	}
	if !errors.Is(err, store.away) || h != nil {
		t.Errorf("%v %v", h, err)
	}
	store.away = nil
	reserve(t, k, w, 1).Settle(tokens(1))
	k.Stop(t.Context())
	if u := store.used(t, "org"); u.Spent != tokens(101) || u.Reserved != tokens(0) {
		t.Errorf("%+v", u)
	}
}

// An exchange whose outcome is not known is neither lost nor counted twice.
func TestAnExchangeOfUnknownOutcome(t *testing.T) {
	k, store := newKeeper()
	w := limited("org", 1_000_000)
	reserve(t, k, w, 100).Settle(tokens(90))
	store.after = context.DeadlineExceeded
	for range 3 {
		if _, err := k.Reserve(t.Context(), "o", w, tokens(500)); !errors.Is(err, store.after) {
			t.Error(err)
		}
	}
	store.after = nil
	reserve(t, k, w, 500).Settle(tokens(400))
	k.Stop(t.Context())
	if u := store.used(t, "org"); u.Spent != tokens(490) || u.Reserved != tokens(0) || u.Overrun != tokens(0) {
		t.Errorf("%+v", u)
	}
}

func TestAnOverrunIsSeenByTheNextCall(t *testing.T) {
	k, store := newKeeper()
	w := limited("org", 1_000)
	reserve(t, k, w, 900).Settle(tokens(1_050))
	var over *journal.OverBudget
	if _, err := k.Reserve(t.Context(), "o", w, tokens(1)); !errors.As(err, &over) {
		t.Error(err)
	}
	k.Stop(t.Context())
	if u := store.used(t, "org"); u.Spent != tokens(1_050) || u.Overrun != tokens(150) || u.Reserved != tokens(0) {
		t.Errorf("%+v", u)
	}
}

func TestAnIdleSliceIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := newKeeper()
		k.Start()
		w := limited("org", 1_000)
		open := reserve(t, k, w, 100)
		reserve(t, k, w, 50).Settle(tokens(20))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if u := store.used(t, "org"); u.Spent != tokens(20) || u.Reserved != tokens(100) {
			t.Errorf("with an open call: %+v", u)
		}
		open.Settle(tokens(10))
		open.Settle(tokens(10)) // does nothing
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if u := store.used(t, "org"); u.Spent != tokens(30) || u.Reserved != tokens(0) {
			t.Errorf("after all calls: %+v", u)
		}
		if orgs, _ := spend.Kept(k); orgs != 0 {
			t.Errorf("%d orgs are kept", orgs)
		}
		calls := store.calls
		time.Sleep(time.Hour)
		k.Stop(t.Context())
		if store.calls != calls {
			t.Errorf("%d calls of the store while nothing happens", store.calls-calls)
		}
	})
}

// Each end user has slices of its own, and their number is bounded. // P57
func TestManyEndUsers(t *testing.T) {
	k, store := newKeeper()
	for i := range spend.MaxSlices + 500 {
		reserve(t, k, limited(fmt.Sprint("end_user/", i), 1_000), 10).Settle(tokens(5))
	}
	if _, n := spend.Kept(k); n > spend.MaxSlices {
		t.Errorf("%d slices", n)
	}
	k.Stop(t.Context())
	for i := range spend.MaxSlices + 500 {
		if u := store.used(t, fmt.Sprint("end_user/", i)); u.Spent != tokens(5) || u.Reserved != tokens(0) {
			t.Fatalf("end user %d: %+v", i, u)
		}
	}
}

// The slices of an org are bounded while the store is away, too, and those that were drawn are used
// without asking it.
func TestManyEndUsersWhileTheStoreIsAway(t *testing.T) {
	k, store := newKeeper()
	drawn := limited("org", 1_000_000)
	reserve(t, k, drawn, 10).Settle(tokens(0)) // nothing of its slice is spent
	store.away = errors.New("away")
	for i := range spend.MaxSlices + 20 {
		if _, err := k.Reserve(t.Context(), "o", limited(fmt.Sprintf("end_user/%d", i), 1000), tokens(10)); err == nil {
			t.Fatal("reserved while the store is away")
		}
		if _, n := spend.Kept(k); n > spend.MaxSlices {
			t.Fatalf("%d slices", n)
		}
		if i%100 == 0 {
			reserve(t, k, drawn, 10).Settle(tokens(0))
		}
	}
	calls := store.calls
	reserve(t, k, drawn, 10).Settle(tokens(0))
	if store.calls != calls {
		t.Error("a call with a slice asked the store")
	}
	store.away = nil
	reserve(t, k, limited("end_user/new", 1000), 10).Settle(tokens(1))
}

// A budget that gets another limit while calls are under way: what they hold is given back as it was taken.
func TestABudgetThatChanges(t *testing.T) {
	k, store := newKeeper()
	both := budget.Amount{Tokens: 100, NanoUSD: 1_000}
	windows := []budget.Window{{Scope: "org", Limit: budget.Amount{NanoUSD: 1_000_000}}, {Scope: "org", Limit: budget.Amount{NanoUSD: 1_000_000, Tokens: 10_000}}}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		first, err := k.Reserve(t.Context(), "o", windows[order[0]:order[0]+1], both)
		if err != nil {
			t.Fatal(err)
		}
		second, err := k.Reserve(t.Context(), "o", windows[order[1]:order[1]+1], both)
		if err != nil {
			t.Fatal(err)
		}
		first.Settle(both)
		second.Settle(both)
		k.Stop(t.Context())
		if u := store.used(t, "org"); u.Reserved != (budget.Amount{}) {
			t.Errorf("%+v", u)
		}
	}
	if u := store.used(t, "org"); u.Spent != (budget.Amount{Tokens: 400, NanoUSD: 4_000}) {
		t.Errorf("%+v", u)
	}
}

// What a budget does not limit needs no slice.
func TestABudgetOfMoneyAlone(t *testing.T) {
	k, store := newKeeper()
	w := []budget.Window{{Scope: "org", Limit: budget.Amount{NanoUSD: 1_000_000_000}}}
	for range 1_000 {
		h, err := k.Reserve(t.Context(), "o", w, budget.Amount{Tokens: 100, NanoUSD: 1_000})
		if err != nil {
			t.Fatal(err)
		}
		h.Settle(budget.Amount{Tokens: 90, NanoUSD: 900})
	}
	if store.calls > 20 {
		t.Errorf("%d calls of the store", store.calls)
	}
}

// A call that holds more than its budget has left keeps no other slice from being reported.
func TestAnOverrunDoesNotKeepOthersFromBeingReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := newKeeper()
		k.Start()
		w := limited("end_user/z", 1_000)
		open := reserve(t, k, w, 500)
		reserve(t, k, w, 500).Settle(tokens(2_000))
		synctest.Wait() // an overrun is stored at once
		if u := store.used(t, "end_user/z"); u.Spent != tokens(2_000) {
			t.Errorf("%+v", u)
		}
		reserve(t, k, limited("end_user/y", 1_000), 100).Settle(tokens(50))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if u := store.used(t, "end_user/y"); u.Spent != tokens(50) || u.Reserved != tokens(0) {
			t.Errorf("%+v", u)
		}
		open.Settle(tokens(1))
		k.Stop(t.Context())
		if u := store.used(t, "end_user/z"); u.Spent != tokens(2_001) || u.Reserved != tokens(0) {
			t.Errorf("%+v", u)
		}
	})
}

// A slice that was closed, or perhaps not, is neither lost nor counted twice.
func TestACloseOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := newKeeper()
		k.Start()
		w := limited("org", 1_000_000)
		reserve(t, k, w, 100).Settle(tokens(90))
		store.mu.Lock()
		store.after = context.DeadlineExceeded
		store.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := k.Reserve(t.Context(), "o", w, tokens(10)); err == nil {
			t.Error("reserved from a slice that may be closed")
		}
		store.mu.Lock()
		store.after = nil
		store.mu.Unlock()
		reserve(t, k, w, 10).Settle(tokens(10))
		k.Stop(t.Context())
		if u := store.used(t, "org"); u.Spent != tokens(100) || u.Reserved != tokens(0) {
			t.Errorf("%+v", u)
		}
	})
}

// A limit that was lowered holds for the next call, whatever was drawn before.
func TestALoweredLimit(t *testing.T) {
	k, store := newKeeper()
	for range 50 { // so that slices become large
		reserve(t, k, limited("org", 10_000_000), 100).Settle(tokens(100))
	}
	var over *journal.OverBudget
	if _, err := k.Reserve(t.Context(), "o", limited("org", 5_000), tokens(1)); !errors.As(err, &over) {
		t.Errorf("%v", err)
	}
	reserve(t, k, limited("org", 5_100), 100).Settle(tokens(100))
	k.Stop(t.Context())
	if u := store.used(t, "org"); u.Spent != tokens(5_100) || u.Reserved != tokens(0) {
		t.Errorf("%+v", u)
	}
}

// In steady use, the store is told once a minute, and not asked anew each time. // P03
func TestSteadyCallsAskTheStoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := newKeeper()
		k.Start()
		windows := append(limited("org", 1_000_000_000), limited("key", 500_000_000)...)
		const calls = 6_000 // in ten minutes
		for range calls {
			reserve(t, k, windows, 100).Settle(tokens(30))
			time.Sleep(100 * time.Millisecond)
		}
		if store.calls > calls/100 {
			t.Errorf("%d calls of the store for %d model calls", store.calls, calls)
		}
		if u := store.used(t, "org"); u.Spent.Tokens < 30*calls*85/100 {
			t.Errorf("after ten minutes the store knows of %d tokens", u.Spent.Tokens)
		}
		k.Stop(t.Context())
		for _, w := range windows {
			if u := store.used(t, w.Scope); u.Spent != tokens(30*calls) || u.Reserved != tokens(0) {
				t.Errorf("%s: %+v", w.Scope, u)
			}
		}
	})
}

// An overrun is told, and does not make the process begin with small slices again. // P03
func TestCallsAfterAnOverrunAskTheStoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := newKeeper()
		k.Start()
		w := limited("org", 1_000_000_000)
		for range 1_000 {
			reserve(t, k, w, 100).Settle(tokens(30))
		}
		reserve(t, k, w, 100).Settle(tokens(1_000_000))
		synctest.Wait() // an overrun is stored at once
		if u := store.used(t, "org"); u.Spent != tokens(1_030_000) {
			t.Errorf("%+v", u)
		}
		before := store.calls
		for range 1_000 {
			reserve(t, k, w, 100).Settle(tokens(30))
		}
		if n := store.calls - before; n > 2 {
			t.Errorf("%d calls of the store after an overrun", n)
		}
		k.Stop(t.Context())
	})
}

// A call that ends while its slice is returned does not make the process forget what the store was told:
// the next slice would count from 0, and its spending would be lost.
func TestACallThatEndsWhileItsSliceIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := newKeeper()
		k.Start()
		w := limited("org", 1_000)
		reserve(t, k, w, 10).Settle(tokens(10))
		open := reserve(t, k, w, 0)
		store.mu.Lock()
		store.during = func() { open.Settle(tokens(0)) }
		store.mu.Unlock()
		time.Sleep(90 * time.Second)
		synctest.Wait()
		reserve(t, k, w, 10).Settle(tokens(10))
		k.Stop(t.Context())
		if u := store.used(t, "org"); u.Spent != tokens(20) || u.Reserved != tokens(0) {
			t.Errorf("%+v", u)
		}
	})
}
