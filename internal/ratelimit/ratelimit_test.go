package ratelimit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
)

func rate(perMinute, burst int) org.Rate { return org.Rate{PerMinute: perMinute, Burst: burst} }

// take asks n times and returns how many were allowed, with the last verdict.
func take(l *ratelimit.Limiter, ask ratelimit.Ask, n int) (allowed int, last ratelimit.Verdict) {
	for range n {
		if last = l.Take(context.Background(), ask); last.Allowed {
			allowed++
		}
	}
	return allowed, last
}

// K08: a limit of N in a minute allows N at once, and then one every 60/N s.
func TestAKeyHasItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		ask := ratelimit.Ask{Org: "a", Key: "k", OfKey: rate(60, 0)}
		n, refused := take(l, ask, 100)
		if n != 60 {
			t.Errorf("%d were allowed at once, want 60", n)
		}
		want := ratelimit.Verdict{Scope: ratelimit.Key, Limit: rate(60, 0), Reset: time.Minute, RetryAfter: time.Second}
		if refused != want {
			t.Errorf("refused with %+v, want %+v", refused, want)
		}
		time.Sleep(time.Second - 1)
		if n, _ := take(l, ask, 1); n != 0 {
			t.Error("allowed a nanosecond too early")
		}
		time.Sleep(time.Nanosecond)
		if n, _ := take(l, ask, 2); n != 1 {
			t.Errorf("%d were allowed after a second, want 1", n)
		}
		time.Sleep(time.Hour)
		if n, _ := take(l, ask, 100); n != 60 {
			t.Errorf("%d were allowed after an hour, want 60: what is not used is not saved up", n)
		}
	})
}

// K08: a burst may be smaller and larger than the rate.
func TestABurstIsWhatMayComeAtOnce(t *testing.T) {
	for _, burst := range []int{1, 5, 200} {
		ask := ratelimit.Ask{Org: "a", OfOrg: rate(60, burst)}
		if n, _ := take(ratelimit.New(), ask, 300); n != burst {
			t.Errorf("%d were allowed at once, want %d", n, burst)
		}
	}
}

// K08: a refusal of one of the two limits takes nothing of the other.
func TestARequestIsTakenFromBothOrFromNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		small := ratelimit.Ask{Org: "a", Key: "small", OfOrg: rate(10, 0), OfKey: rate(3, 0)}
		n, refused := take(l, small, 50)
		if n != 3 || refused.Scope != ratelimit.Key {
			t.Fatalf("%d were allowed and then refused by %q, want 3 by the key", n, refused.Scope)
		}
		other := ratelimit.Ask{Org: "a", Key: "other", OfOrg: rate(10, 0), OfKey: rate(100, 0)}
		n, refused = take(l, other, 50)
		if n != 7 || refused.Scope != ratelimit.Org {
			t.Fatalf("%d were allowed and then refused by %q, want the org's 7 others", n, refused.Scope)
		}
		alone := ratelimit.Ask{Org: "a", Key: "other", OfKey: rate(100, 0)}
		if n, _ := take(l, alone, 200); n != 93 {
			t.Errorf("the key has %d left, want 93: the org's refusals have taken nothing of it", n)
		}
	})
}

// K07: limits of the same name in another org, and of another key, are others.
func TestNobodyUsesUpAnothersLimit(t *testing.T) {
	l := ratelimit.New()
	for _, of := range []struct{ org, key string }{{"a", "k"}, {"b", "k"}, {"a", "j"}, {"ak", ""}, {"", "ak"}} {
		ask := ratelimit.Ask{Org: of.org, Key: of.key, OfKey: rate(5, 0)}
		if n, _ := take(l, ask, 9); n != 5 {
			t.Errorf("%v: %d were allowed, want 5", of, n)
		}
	}
}

// K08: a changed limit holds for the next request, whatever was taken before.
func TestAChangedLimitHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		ask := func(r org.Rate) ratelimit.Ask { return ratelimit.Ask{Org: "a", OfOrg: r} }
		take(l, ask(rate(60, 0)), 60)
		if n, _ := take(l, ask(rate(60, 70)), 20); n != 10 {
			t.Errorf("%d were allowed after the burst grew by 10", n)
		}
		if n, _ := take(l, ask(org.Rate{}), 500); n != 500 {
			t.Errorf("%d of 500 were allowed without a limit", n)
		}
		n, v := take(l, ask(rate(6, 2)), 1)
		if n != 0 || v.RetryAfter != 10*time.Second {
			t.Errorf("under a smaller limit %d were allowed and the next is after %v, want 10 s", n, v.RetryAfter)
		}
	})
}

// What is told on the way: how much is left of the limit that binds.
func TestAVerdictSpeaksOfTheTighterLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		ask := ratelimit.Ask{Org: "a", Key: "k", OfOrg: rate(60, 4), OfKey: rate(120, 3)}
		want := ratelimit.Verdict{Allowed: true, Scope: ratelimit.Key, Limit: rate(120, 3), Remaining: 2, Reset: time.Second / 2}
		if _, got := take(l, ask, 1); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got := l.Take(t.Context(), ratelimit.Ask{Org: "a", Key: "k"}); got != (ratelimit.Verdict{Allowed: true}) {
			t.Errorf("without a limit: %+v", got)
		}
		if _, v := take(l, ratelimit.Ask{Org: "b", OfOrg: rate(60, 4), N: 5}, 1); v.Allowed {
			t.Error("more than the burst was allowed at once")
		}
	})
}

// K08: many ask at a time, and exactly so many are allowed.
func TestManyAtOnceAreCountedExactly(t *testing.T) {
	l := ratelimit.New()
	var allowed atomic.Int64
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for range 500 {
				ask := ratelimit.Ask{Org: "a", Key: fmt.Sprint("k", g%2), OfOrg: rate(1, 300), OfKey: rate(1, 200)}
				if l.Take(context.Background(), ask).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := allowed.Load(); n != 300 {
		t.Errorf("%d were allowed, want 300", n)
	}
}

// K08: what a request costs whose limits allow it.
func BenchmarkTake(b *testing.B) {
	for name, ask := range map[string]ratelimit.Ask{
		"no limit": {Org: "a", Key: "k"},
		"both":     {Org: "a", Key: "k", OfOrg: rate(1_000_000, 0), OfKey: rate(1_000_000, 0)},
		"refused":  {Org: "a", Key: "k", OfOrg: rate(1, 0), OfKey: rate(1, 0)},
	} {
		b.Run(name, func(b *testing.B) {
			l := ratelimit.New()
			b.ReportAllocs()
			for b.Loop() {
				l.Take(context.Background(), ask)
			}
		})
	}
}

// K08: the check is on the way of every request and leaves nothing behind.
func TestAskingAllocatesNothing(t *testing.T) {
	l := ratelimit.New()
	ask := ratelimit.Ask{Org: "a", Key: "k", OfOrg: rate(1_000_000, 0), OfKey: rate(1_000_000, 0)}
	l.Take(t.Context(), ask)
	if n := testing.AllocsPerRun(100, func() { l.Take(context.Background(), ask) }); n != 0 {
		t.Errorf("a request allocates %v times", n)
	}
}
