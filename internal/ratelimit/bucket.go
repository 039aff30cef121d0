package ratelimit

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// request is what one request puts into a bucket. In each nanosecond as much
// runs out as the limit allows requests in a minute, so that everything is a
// whole number: nothing is rounded, whatever the limit is.
const request = int64(time.Minute)

// bucket is what was taken of one limit and has not come back. This is the
// generic cell rate algorithm in its second form, the continuous-state leaky
// bucket (ITU-T I.371). The zero bucket is one of which nothing was taken.
type bucket struct {
	level int64 // in parts of a request
	at    int64 // when it was that, in ns
	runs  int64 // how much runs out in each ns
}

// later returns the bucket as it is then, under a limit that may have changed. If
// more was taken than the limit now allows at once, all of it was.
func (b bucket) later(limit org.Rate, now int64) bucket {
	b.runs = int64(limit.PerMinute)
	b.level = min(b.level, int64(limit.AtOnce())*request)
	if passed := max(0, now-b.at); passed >= b.empties() {
		b.level = 0
	} else {
		b.level -= passed * b.runs // does not overflow: it is less than level
	}
	b.at = max(now, b.at)
	return b
}

// empties returns after how many ns the bucket is empty.
func (b bucket) empties() int64 { return over(b.level, b.runs) }

// fits returns after how many ns n more requests fit in; 0 = now. They must not
// be more than the limit allows at once.
func (b bucket) fits(limit org.Rate, n int) int64 {
	return over(max(0, b.level-int64(limit.AtOnce()-n)*request), b.runs)
}

// left returns how many requests fit in now.
func (b bucket) left(limit org.Rate) int {
	return int((int64(limit.AtOnce())*request - b.level) / request)
}

// over divides and rounds up: who comes a nanosecond too early is refused again.
func over(a, b int64) int64 { return (a + b - 1) / b }
