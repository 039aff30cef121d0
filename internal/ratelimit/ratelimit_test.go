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

// take makes the request n times. It returns how many were allowed, and the last
// verdict.
func take(l *ratelimit.Limiter, req ratelimit.Request, n int) (allowed int, last ratelimit.Verdict) {
	for range n {
		if last = l.Take(context.Background(), req); last.Allowed {
			allowed++
		}
	}
	return allowed, last
}

// A limit of N per minute allows N at once, then one every 60/N seconds. // K08
func TestKeyRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		req := ratelimit.Request{Org: "a", Key: "k", KeyRate: rate(60, 0)}
		n, refused := take(l, req, 100)
		if n != 60 {
			t.Errorf("%d were allowed at once, want 60", n)
		}
		want := ratelimit.Verdict{Scope: ratelimit.Key, Limit: rate(60, 0), Reset: time.Minute, RetryAfter: time.Second}
		if refused != want {
			t.Errorf("refused with %+v, want %+v", refused, want)
		}
		time.Sleep(time.Second - 1)
		if n, _ := take(l, req, 1); n != 0 {
			t.Error("allowed a nanosecond too early")
		}
		time.Sleep(time.Nanosecond)
		if n, _ := take(l, req, 2); n != 1 {
			t.Errorf("%d were allowed after a second, want 1", n)
		}
		time.Sleep(time.Hour)
		if n, _ := take(l, req, 100); n != 60 {
			t.Errorf("%d were allowed after an hour, want 60: unused requests do not accumulate", n)
		}
	})
}

// A burst may be smaller or larger than the rate. // K08
func TestBurstLimitsImmediateRequests(t *testing.T) {
	for _, burst := range []int{1, 5, 200} {
		req := ratelimit.Request{Org: "a", OrgRate: rate(60, burst)}
		if n, _ := take(ratelimit.New(), req, 300); n != burst {
			t.Errorf("%d were allowed at once, want %d", n, burst)
		}
	}
}

// A request that one limit refuses is not taken from the other. // K08
func TestRequestCountsAgainstBothLimitsOrNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		small := ratelimit.Request{Org: "a", Key: "small", OrgRate: rate(10, 0), KeyRate: rate(3, 0)}
		n, refused := take(l, small, 50)
		if n != 3 || refused.Scope != ratelimit.Key {
			t.Fatalf("%d were allowed and then refused by %q, want 3 by the key", n, refused.Scope)
		}
		other := ratelimit.Request{Org: "a", Key: "other", OrgRate: rate(10, 0), KeyRate: rate(100, 0)}
		n, refused = take(l, other, 50)
		if n != 7 || refused.Scope != ratelimit.Org {
			t.Fatalf("%d were allowed and then refused by %q, want 7 and then the org", n, refused.Scope)
		}
		alone := ratelimit.Request{Org: "a", Key: "other", KeyRate: rate(100, 0)}
		if n, _ := take(l, alone, 200); n != 93 {
			t.Errorf("the key has %d left, want 93: requests that the org refuses do not count", n)
		}
	})
}

// Keys of the same name in different orgs, and different keys of one org, have
// separate limits. // K07
func TestLimitsAreSeparatePerOrgAndKey(t *testing.T) {
	l := ratelimit.New()
	for _, of := range []struct{ org, key string }{{"a", "k"}, {"b", "k"}, {"a", "j"}, {"ak", ""}, {"", "ak"}} {
		req := ratelimit.Request{Org: of.org, Key: of.key, KeyRate: rate(5, 0)}
		if n, _ := take(l, req, 9); n != 5 {
			t.Errorf("%v: %d were allowed, want 5", of, n)
		}
	}
}

// A changed limit applies to the next request. // K08
func TestChangedLimitAppliesImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		req := func(r org.Rate) ratelimit.Request { return ratelimit.Request{Org: "a", OrgRate: r} }
		take(l, req(rate(60, 0)), 60)
		if n, _ := take(l, req(rate(60, 70)), 20); n != 10 {
			t.Errorf("%d were allowed after the burst grew by 10, want 10", n)
		}
		if n, _ := take(l, req(org.Rate{}), 500); n != 500 {
			t.Errorf("%d of 500 were allowed without a limit", n)
		}
		n, v := take(l, req(rate(6, 2)), 1)
		if n != 0 || v.RetryAfter != 10*time.Second {
			t.Errorf("under a smaller limit %d were allowed and the next is after %v, want 10 s", n, v.RetryAfter)
		}
	})
}

// An allowed request reports the limit with less remaining.
func TestVerdictReportsTheBindingLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New()
		req := ratelimit.Request{Org: "a", Key: "k", OrgRate: rate(60, 4), KeyRate: rate(120, 3)}
		want := ratelimit.Verdict{Allowed: true, Scope: ratelimit.Key, Limit: rate(120, 3), Remaining: 2, Reset: time.Second / 2}
		if _, got := take(l, req, 1); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got := l.Take(t.Context(), ratelimit.Request{Org: "a", Key: "k"}); got != (ratelimit.Verdict{Allowed: true}) {
			t.Errorf("without a limit: %+v", got)
		}
		if _, v := take(l, ratelimit.Request{Org: "b", OrgRate: rate(60, 4), N: 5}, 1); v.Allowed {
			t.Error("more than the burst was allowed at once")
		}
	})
}

// Concurrent requests never exceed the limit. // K08
func TestConcurrentRequestsAreCountedExactly(t *testing.T) {
	l := ratelimit.New()
	var allowed atomic.Int64
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for range 500 {
				req := ratelimit.Request{Org: "a", Key: fmt.Sprint("k", g%2), OrgRate: rate(1, 300), KeyRate: rate(1, 200)}
				if l.Take(context.Background(), req).Allowed {
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

// The cost of a check. // K08
func BenchmarkTake(b *testing.B) {
	for name, req := range map[string]ratelimit.Request{
		"no limit": {Org: "a", Key: "k"},
		"both":     {Org: "a", Key: "k", OrgRate: rate(1_000_000, 0), KeyRate: rate(1_000_000, 0)},
		"refused":  {Org: "a", Key: "k", OrgRate: rate(1, 0), KeyRate: rate(1, 0)},
	} {
		b.Run(name, func(b *testing.B) {
			l := ratelimit.New()
			b.ReportAllocs()
			for b.Loop() {
				l.Take(context.Background(), req)
			}
		})
	}
}

// Every request is checked, so a check must not allocate. // K08
func TestTakeDoesNotAllocate(t *testing.T) {
	l := ratelimit.New()
	req := ratelimit.Request{Org: "a", Key: "k", OrgRate: rate(1_000_000, 0), KeyRate: rate(1_000_000, 0)}
	l.Take(t.Context(), req)
	if n := testing.AllocsPerRun(100, func() { l.Take(context.Background(), req) }); n != 0 {
		t.Errorf("a request allocates %v times", n)
	}
}
