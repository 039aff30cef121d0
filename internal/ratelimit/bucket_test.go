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
		limit := someRate(r)
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
		limit := someRate(r)
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
	limit := org.Rate{PerMinute: 60}
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
