package ratelimit

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// requestUnits is the size of one request in bucket units. A bucket drains PerMinute units
// in each nanosecond, so all levels are exact integers for any limit.
const requestUnits = int64(time.Minute)

// bucket is a leaky bucket for one limit: the continuous-state form of the generic
// cell rate algorithm (ITU-T I.371). The zero bucket is empty: the whole limit is
// available.
type bucket struct {
	level     int64 // in units; requestUnits for each request that has not drained
	at        int64 // time of level, in nanoseconds
	drainRate int64 // units drained in each nanosecond
}

// advanced returns the bucket at the time now, under a limit that may have changed. A
// level above the limit's burst is reduced to it. A time before b.at changes nothing.
func (b bucket) advanced(limit org.Rate, now int64) bucket {
	b.drainRate = int64(limit.PerMinute)
	b.level = min(b.level, int64(limit.EffectiveBurst())*requestUnits)
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
func (b bucket) waitFor(limit org.Rate, n int) int64 {
	return ceilDiv(max(0, b.level-int64(limit.EffectiveBurst()-n)*requestUnits), b.drainRate)
}

// remaining returns how many requests fit now.
func (b bucket) remaining(limit org.Rate) int {
	return int((int64(limit.EffectiveBurst())*requestUnits - b.level) / requestUnits)
}

// ceilDiv divides and rounds up, so that a request after the wait is never refused.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
