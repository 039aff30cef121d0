package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// someRate returns a random limit; small ones are more likely.
func someRate(r *rand.Rand) org.Rate {
	return org.Rate{PerMinute: 1 + r.IntN(1<<r.IntN(20)), Burst: r.IntN(1 << r.IntN(8))}
}

// In every time window at most the burst plus the rate of that window is allowed,
// and no request that fits is refused. // K08
func TestEveryWindowAllowsAtMostBurstPlusRate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		limit := share{someRate(r), 1}
		var b bucket
		var taken []int64 // times of the allowed requests
		now := r.Int64N(1 << 40)
		fill := int64(0) // level according to the definition, in units
		last := now
		for range 200 {
			now += r.Int64N(1 + 3*requestUnits/int64(limit.PerMinute))
			fill = max(0, fill-(now-last)*int64(limit.PerMinute))
			last = now
			fits := fill+requestUnits <= int64(limit.EffectiveBurst())*requestUnits
			b = b.advanced(limit, now)
			if got := b.waitFor(limit, 1) == 0; got != fits {
				t.Fatalf("%+v: allowed is %v, want %v", limit, got, fits)
			}
			if fits {
				b.level += requestUnits
				fill += requestUnits
				taken = append(taken, now)
			}
		}
		for i := range taken {
			for j := i; j < len(taken); j++ {
				window := taken[j] - taken[i]
				if int64(j-i+1)*requestUnits > int64(limit.EffectiveBurst())*requestUnits+window*int64(limit.PerMinute) {
					t.Fatalf("%+v: %d were allowed in %d ns", limit, j-i+1, window)
				}
			}
		}
	}
}

// A request after RetryAfter is allowed; one a nanosecond earlier is not. // K08
func TestRetryAfterIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		limit := share{someRate(r), 1}
		n := 1 + r.IntN(limit.EffectiveBurst())
		b := bucket{level: int64(limit.EffectiveBurst()) * requestUnits, at: r.Int64N(1 << 40), drainRate: int64(limit.PerMinute)}
		b = b.advanced(limit, b.at+r.Int64N(b.emptyAfter()))
		wait := b.waitFor(limit, n)
		if wait == 0 {
			continue
		}
		for _, at := range []int64{wait - 1, wait} {
			then := b.advanced(limit, b.at+at)
			fits := then.level+int64(n)*requestUnits <= int64(limit.EffectiveBurst())*requestUnits // by the definition
			if fits != (at == wait) || fits != (then.waitFor(limit, n) == 0) {
				t.Fatalf("%+v: RetryAfter is %d ns; after %d ns with level %d, %d requests fit: %v", limit, wait, at, then.level, n, fits)
			}
		}
		if empty := b.advanced(limit, b.at+b.emptyAfter()); empty.level != 0 || empty.remaining(limit) != limit.EffectiveBurst() {
			t.Fatalf("%+v: %d requests remain after Reset", limit, empty.remaining(limit))
		}
	}
}

// A time before the bucket's own, such as of another CPU core, drains nothing.
func TestEarlierTimeDoesNotDrainTheBucket(t *testing.T) {
	limit := share{org.Rate{PerMinute: 60}, 1}
	b := bucket{level: 3 * requestUnits, at: 1000, drainRate: 60}
	if got := b.advanced(limit, 10); got != b {
		t.Errorf("the bucket is %+v, want %+v", got, b)
	}
}

// bucketCount returns the number of buckets in all shards.
func (l *Limiter) bucketCount() int {
	n := 0
	for i := range l.shards {
		n += len(l.shards[i].buckets)
	}
	return n
}

// Only buckets in use take memory, and a bucket in use is never removed.
func TestEmptyBucketsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		limit := org.Rate{PerMinute: 60, Burst: 1}
		slow := Request{Org: "slow", OrgRate: org.Rate{PerMinute: 1, Burst: 1}}
		l.Take(context.Background(), slow)
		for i := range 4_000 {
			l.Take(context.Background(), Request{Org: fmt.Sprint("org", i), Key: "k", OrgRate: limit, KeyRate: limit})
			if l.Take(context.Background(), slow).Allowed {
				t.Fatalf("an exhausted limit allows a request after %d others", i)
			}
			time.Sleep(2 * time.Millisecond) // so 500 buckets are in use at any time
		}
		if n, most := l.bucketCount(), 2*(2*500)+shards*minRemoveAt; n > most {
			t.Errorf("%d buckets, want at most %d", n, most)
		}
	})
}

// A replica's share of a limit: the burst is divided and rounded up, the interval is multiplied. // K08
func TestShareOfALimit(t *testing.T) {
	minute := time.Minute
	for _, c := range []struct {
		limit    org.Rate
		living   int
		burst    int
		interval time.Duration // between requests once the burst is used up
	}{
		{rate(60, 0), 1, 60, time.Second},
		{rate(60, 0), 2, 30, 2 * time.Second},
		{rate(60, 0), 7, 9, 7 * time.Second},
		{rate(60, 10), 3, 4, 3 * time.Second},
		{rate(60, 1), 3, 1, 3 * time.Second},
		{rate(1, 1), 5, 1, 5 * minute},
		{rate(7, 3), 2, 2, 17142857143 * time.Nanosecond},
		{rate(org.MaxRate, org.MaxRate), 1000, 1000, minute / 1000},
	} {
		s := share{c.limit, c.living}
		b := bucket{}.advanced(s, 0)
		taken := 0
		for ; b.waitFor(s, 1) == 0; taken++ {
			b.level += s.units(1)
		}
		if taken != c.burst || s.burst() != c.burst {
			t.Errorf("%+v of %d: %d at once, want %d", c.limit, c.living, taken, c.burst)
		}
		if got := time.Duration(b.waitFor(s, 1)); got != c.interval {
			t.Errorf("%+v of %d: the next after %v, want %v", c.limit, c.living, got, c.interval)
		}
		if b.remaining(s) != 0 {
			t.Errorf("%+v of %d: %d remain", c.limit, c.living, b.remaining(s))
		}
	}
}

// All replicas together never admit more than the limit and living-1 requests, whatever each is asked. // K08
func TestSharesAddUpToTheLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		limit, living := someRate(r), 1+r.IntN(6)
		s := share{limit, living}
		buckets := make([]bucket, living)
		now, admitted := int64(0), int64(0)
		for range 300 {
			now += r.Int64N(1 + 2*requestUnits/int64(limit.PerMinute))
			b := &buckets[r.IntN(living)]
			if *b = b.advanced(s, now); b.waitFor(s, 1) == 0 {
				b.level += s.units(1)
				admitted++
			}
		}
		if most := int64(limit.EffectiveBurst()+living-1)*requestUnits + now*int64(limit.PerMinute); admitted*requestUnits > most {
			t.Fatalf("%+v of %d replicas: %d were admitted in %d ns", limit, living, admitted, now)
		}
	}
}

// A replica that joins or leaves changes no level: what was used up stays used up, and what was free is free. // K08
func TestShareFollowsTheNumberOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		living := 1
		l := New().Share(func() int { return living })
		req := Request{Org: "a", OrgRate: rate(60, 12)}
		takes := func(want int) {
			t.Helper()
			n := 0
			for l.Take(t.Context(), req).Allowed {
				n++
			}
			if n != want {
				t.Errorf("%d were allowed with %d replicas, want %d", n, living, want)
			}
		}
		takes(12)
		living = 3
		takes(0)
		time.Sleep(12 * time.Second)
		takes(4)
		living = 1
		takes(0)
		time.Sleep(2 * time.Second)
		takes(2)
		time.Sleep(12 * time.Second)
		takes(12)
		living = 0 // not known yet
		time.Sleep(12 * time.Second)
		takes(12)
	})
}

func rate(perMinute, burst int) org.Rate { return org.Rate{PerMinute: perMinute, Burst: burst} }
