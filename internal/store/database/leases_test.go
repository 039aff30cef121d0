package database

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// A store without LeaseNow does not measure leases by the wall clock. // R17
func TestLeasesAreMeasuredByASteadyClock(t *testing.T) {
	var ahead atomic.Int64
	s := openStore(t, Options{
		Path: filepath.Join(t.TempDir(), "turnpike.db"),
		Now:  func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	beginLight(t, s)
	for _, step := range []time.Duration{time.Minute, -10 * time.Minute, time.Hour} {
		ahead.Store(int64(step))
		if leases, err := s.Claim(t.Context(), "another", 10); err != nil || len(leases) > 0 {
			t.Errorf("with the clock %v ahead: claimed %+v, %v", step, leases, err)
		}
	}
}

// An owner does not claim a run whose lease it had, even if it has expired: it may
// still be working on the run. // R17
func TestAnOwnerDoesNotClaimItsOwnRun(t *testing.T) {
	var passed atomic.Int64
	s := openStore(t, Options{
		Path:     filepath.Join(t.TempDir(), "turnpike.db"),
		LeaseNow: func() time.Time { return time.UnixMilli(passed.Load()) },
	})
	beginLight(t, s)
	passed.Store((2 * journal.LeaseTTL).Milliseconds())
	for want, owner := range []string{"owner", "another"} {
		if leases, err := s.Claim(t.Context(), owner, 10); err != nil || len(leases) != want {
			t.Errorf("%s claimed %+v, %v; want %d runs", owner, leases, err, want)
		}
		passed.Add((2 * journal.LeaseTTL).Milliseconds())
	}
}

// beginLight stores the start of a light run with a lease of owner.
func beginLight(t *testing.T, s *Store) {
	t.Helper()
	lease := journal.Lease{Org: "o", RunID: "r", Epoch: 1, Owner: "owner"}
	accepted := loop.Fact{Seq: 1, Epoch: 1, At: 1, Version: loop.Version, Body: loop.Accepted{Org: "o", RunID: "r", Policy: loop.Policy{Grade: loop.Light}}}
	if err := s.Append(t.Context(), lease, 0, journal.Batch{Facts: []loop.Fact{accepted}, Sync: true}); err != nil {
		t.Fatal(err)
	}
}
