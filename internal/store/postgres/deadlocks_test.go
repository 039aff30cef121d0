package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// A deadlock costs a second, until the server looks for it: the locks must not be taken in different orders.
func TestRenewalsAndAppendsDoNotWaitForEachOther(t *testing.T) {
	r := newReplicas(t, 1, org.Caps{})
	r.withOrgs("a")
	w := &watcher{}
	s := r.watched(w, org.Caps{})
	var group errgroup.Group
	pens := make([]*pen, 60)
	for i := range pens {
		group.Go(func() error {
			pens[i] = r.pen(s, "a", fmt.Sprint("run ", i))
			return pens[i].append(journal.Batch{Sync: true}, pens[i].accepted(loop.Durable))
		})
	}
	r.ok(group.Wait())
	ctx, cancel := context.WithCancel(t.Context())
	renewals := make(chan error, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			got, err := s.Renew(t.Context(), "owner")
			if err == nil && len(got) != len(pens) {
				err = fmt.Errorf("%d leases renewed, want %d", len(got), len(pens))
			}
			if err != nil {
				renewals <- err
				return
			}
			n++
		}
		t.Log(n, "renewals")
		renewals <- nil
	}()
	for range 10 {
		for _, i := range rand.Perm(len(pens)) {
			group.Go(func() error { return pens[i].append(journal.Batch{Sync: true}, input("x")) })
		}
		r.ok(group.Wait())
	}
	cancel()
	r.ok(<-renewals)
	if n := w.code("40P01"); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}
