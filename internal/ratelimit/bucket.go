package ratelimit

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// requestUnits is the size of one request in bucket units, if one process has the whole limit. A
// bucket drains PerMinute units in each nanosecond, so all levels are exact integers for any limit.
const requestUnits = int64(time.Minute)

// share is the part of a limit that each of the living replicas admits. A request is living times
// as large as it is for one process, so the rate is divided exactly. The burst is rounded up: together
// the replicas admit up to living-1 requests more than the limit.
//
// A level does not change with the number of replicas: a bucket that is full stays full, and one that
// is empty stays empty.
type share struct {
	org.Rate
	living int // at least 1
}

// units returns the size of n requests.
func (s share) units(n int) int64 { return int64(n) * int64(s.living) * requestUnits }

// burst returns how many requests are admitted at once.
func (s share) burst() int { return int(ceilDiv(int64(s.EffectiveBurst()), int64(s.living))) }

// bucket is a leaky bucket for one limit: the continuous-state form of the generic
// cell rate algorithm (ITU-T I.371). The zero bucket is empty: the whole limit is
// available.
type bucket struct {
	level     int64 // in units, of the requests that have not drained
	at        int64 // time of level, in nanoseconds
	drainRate int64 // units drained in each nanosecond
}

// advanced returns the bucket at the time now, under a limit that may have changed. A
// level above the limit's burst is reduced to it. A time before b.at changes nothing.
func (b bucket) advanced(limit share, now int64) bucket {
	b.drainRate = int64(limit.PerMinute)
	b.level = min(b.level, limit.units(limit.burst()))
	if passed := max(0, now-b.at); passed >= b.emptyAfter() {
		b.level = 0
	} else {
		b.level -= passed * b.drainRate // no overflow: less than level
	}
	b.at = max(now, b.at)
	return b
}

// emptyAfter returns the nanoseconds until the bucket is empty.
func (b bucket) emptyAfter() int64 { return ceilDiv(b.level, b.drainRate) }

// waitFor returns the nanoseconds until n more requests fit; 0 = they fit now. n must
// not exceed the limit's burst.
func (b bucket) waitFor(limit share, n int) int64 {
	return ceilDiv(max(0, b.level-limit.units(limit.burst()-n)), b.drainRate)
}

// remaining returns how many requests fit now.
func (b bucket) remaining(limit share) int {
	return int((limit.units(limit.burst()) - b.level) / limit.units(1))
}

// ceilDiv divides and rounds up, so that a request after the wait is never refused.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
