package ratelimit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// held returns how many buckets there are.
func (l *Limiter) held() int {
	n := 0
	for i := range l.shards {
		n += len(l.shards[i].buckets)
	}
	return n
}

// Keys come and go for months; only those that are in use take room, and a
// limit that is being used is never forgotten.
func TestEmptyBucketsAreThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		limit := org.Rate{PerMinute: 60, Burst: 1}
		slow := Ask{Org: "slow", OfOrg: org.Rate{PerMinute: 1, Burst: 1}}
		l.Take(context.Background(), slow)
		for i := range 4_000 {
			l.Take(context.Background(), Ask{Org: fmt.Sprint("org", i), Key: "k", OfOrg: limit, OfKey: limit})
			if l.Take(context.Background(), slow).Allowed {
				t.Fatalf("after %d others, a limit that was used up allows again", i)
			}
			time.Sleep(2 * time.Millisecond) // 500 orgs are not empty at any time
		}
		if n, most := l.held(), 2*(2*500)+shards*fewest; n > most {
			t.Errorf("%d buckets are held, want at most %d", n, most)
		}
	})
}
