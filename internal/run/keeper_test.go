package run

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// slowLeases are leases whose renewals take some time.
type slowLeases struct {
	journal.Leases
	take     []time.Duration // of the first, the second …
	fails    error
	renewals int
}

func (l *slowLeases) Renew(context.Context, string) ([]journal.Lease, error) {
	n := l.renewals
	l.renewals++
	time.Sleep(l.take[n])
	return nil, l.fails
}

// After a pause all runs of a process ask whether they still have their lease. They share
// one renewal, unless that has taken so long that their lease may have expired since. // R13
func TestRunsThatDoubtTheirLeaseShareARenewal(t *testing.T) {
	for name, tt := range map[string]struct {
		take  []time.Duration
		fails error
		want  int // renewals
	}{
		"one for all":            {[]time.Duration{time.Second}, nil, 1},
		"one that took too long": {[]time.Duration{doubtAfter + time.Second, time.Second}, nil, 2},
		"one that fails":         {[]time.Duration{time.Second}, errors.New("no answer"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &slowLeases{take: tt.take, fails: tt.fails}
				k := newLeaseKeeper(l, "me", &storeHealth{log: slog.New(slog.DiscardHandler)}, nil, nil)
				written := time.Now()
				time.Sleep(time.Minute)
				var runs sync.WaitGroup
				for range 10 {
					runs.Go(func() {
						if err := k.check(written); !errors.Is(err, tt.fails) {
							t.Errorf("got %v, want %v", err, tt.fails)
						}
						if tt.fails == nil && k.doubtful(written) {
							t.Error("the lease is still in doubt")
						}
					})
				}
				runs.Wait()
				if l.renewals != tt.want {
					t.Errorf("%d renewals, want %d", l.renewals, tt.want)
				}
			})
		})
	}
}
