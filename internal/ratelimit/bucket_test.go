package ratelimit

import (
	"math/rand/v2"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// someRate returns limits of every size, most of them small and few of them round.
func someRate(r *rand.Rand) org.Rate {
	return org.Rate{PerMinute: 1 + r.IntN(1<<r.IntN(20)), Burst: r.IntN(1 << r.IntN(8))}
}

// K08: whatever the clients do, in no window of time is more allowed than the
// burst and what comes back in it; and nothing is refused that fits.
func TestNoWindowHasMoreThanTheBurstAndItsRate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		limit := someRate(r)
		var b bucket
		var taken []int64 // when, of those that were allowed
		now := r.Int64N(1 << 40)
		fill := int64(0) // by the definition: how full it is, in parts of a request
		last := now
		for range 200 {
			now += r.Int64N(1 + 3*request/int64(limit.PerMinute))
			fill = max(0, fill-(now-last)*int64(limit.PerMinute))
			last = now
			fits := fill+request <= int64(limit.AtOnce())*request
			b = b.later(limit, now)
			if got := b.fits(limit, 1) == 0; got != fits {
				t.Fatalf("%+v: allowed is %v, want %v", limit, got, fits)
			}
			if fits {
				b.level += request
				fill += request
				taken = append(taken, now)
			}
		}
		for i := range taken {
			for j := i; j < len(taken); j++ {
				window := taken[j] - taken[i]
				if int64(j-i+1)*request > int64(limit.AtOnce())*request+window*int64(limit.PerMinute) {
					t.Fatalf("%+v: %d were allowed in %d ns", limit, j-i+1, window)
				}
			}
		}
	}
}

// K08: who comes back when he was told is let in, and a nanosecond earlier he is
// not.
func TestTheTimeToComeBackIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		limit := someRate(r)
		n := 1 + r.IntN(limit.AtOnce())
		b := bucket{level: int64(limit.AtOnce()) * request, at: r.Int64N(1 << 40), runs: int64(limit.PerMinute)}
		b = b.later(limit, b.at+r.Int64N(b.empties()))
		wait := b.fits(limit, n)
		if wait == 0 {
			continue
		}
		for _, at := range []int64{wait - 1, wait} {
			then := b.later(limit, b.at+at)
			fits := then.level+int64(n)*request <= int64(limit.AtOnce())*request // by the definition
			if fits != (at == wait) || fits != (then.fits(limit, n) == 0) {
				t.Fatalf("%+v: told to wait for %d ns; after %d ns the level %d allows %d: %v", limit, wait, at, then.level, n, fits)
			}
		}
		if empty := b.later(limit, b.at+b.empties()); empty.level != 0 || empty.left(limit) != limit.AtOnce() {
			t.Fatalf("%+v: after the reset there is %d left", limit, empty.left(limit))
		}
	}
}

// The clock of another core may be a moment behind.
func TestATimeBeforeTheLastGivesNothingBack(t *testing.T) {
	limit := org.Rate{PerMinute: 60}
	b := bucket{level: 3 * request, at: 1000, runs: 60}
	if got := b.later(limit, 10); got != b {
		t.Errorf("the bucket is %+v, want %+v", got, b)
	}
}
