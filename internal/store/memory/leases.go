package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// updateLease updates the run's lease after a batch. A writer without a lease does not
// change it, except that waking a parked run frees it to be claimed.
func (r *runRecord) updateLease(lease run.Lease, was run.Status, now time.Time) {
	r.epoch = max(r.epoch, lease.Epoch)
	switch {
	case r.summary.Status != run.Running, lease.Epoch == 0 && was != run.Running:
		r.owner, r.leaseUntil = "", 0
	case lease.Epoch > 0:
		r.owner, r.leaseUntil = lease.Owner, leaseEnd(now)
	}
}

// leaseEnd returns when a lease expires that is granted or renewed now.
func leaseEnd(now time.Time) int64 { return now.Add(run.LeaseTTL).UnixMilli() }

// leased reports whether the run has a lease that has not expired.
func (r *runRecord) leased(now time.Time) bool {
	return r.summary.Status == run.Running && r.leaseUntil > now.UnixMilli()
}

func (r *runRecord) lease() run.Lease {
	return run.Lease{Org: r.summary.Org, RunID: r.summary.RunID, Epoch: r.epoch, Owner: r.owner}
}

// checkOpening checks the conditions of an opening. The key comes first: a repeated
// request gets its run even if the org has no slot or space left.
func (j *Journal) checkOpening(orgID string, o run.Opening) error {
	if o.Key != nil {
		if s := j.keys.find(orgID, *o.Key, j.now()); s != nil {
			return s
		}
	}
	if j.Caps.Stored > 0 && j.storedBytes(orgID) >= j.Caps.Stored {
		return j.Caps.StoredError()
	}
	if o.Slots > 0 && j.leasedRuns(orgID, j.leaseNow()) >= o.Slots {
		return run.ErrNoSlot
	}
	return nil
}

// storedBytes returns the size of the rows of the org's runs, in bytes.
func (j *Journal) storedBytes(orgID string) int64 {
	n := 0
	for key, r := range j.runs {
		if key.org == orgID {
			n += r.bytes
		}
	}
	return int64(n)
}

// leasedRuns returns the number of the org's runs with a lease that has not expired.
func (j *Journal) leasedRuns(orgID string, now time.Time) int {
	n := 0
	for key, r := range j.runs {
		if key.org == orgID && r.leased(now) {
			n++
		}
	}
	return n
}

// Claim implements run.Leases. The round robin over orgs continues after the org
// that got the last lease, also across calls.
func (j *Journal) Claim(_ context.Context, owner string, limit int) ([]run.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.leaseNow()
	var leases []run.Lease
	for _, r := range j.claimable(owner, now) {
		if len(leases) >= limit {
			break
		}
		j.settleAll(r.summary.Org, r)
		handed := r.owner == ""
		r.epoch, r.owner, r.leaseUntil = r.epoch+1, owner, leaseEnd(now)
		j.lastOrg = r.summary.Org
		lease := r.lease()
		lease.Handed = handed
		leases = append(leases, lease)
	}
	return leases, nil
}

// claimable returns the runs without a lease in the order in which they are claimed: the
// oldest of each org, then the second oldest of each, always starting after the org
// that got the last lease. It leaves out runs that owner had, even if that lease has
// expired, because owner may still be working on them.
func (j *Journal) claimable(owner string, now time.Time) []*runRecord {
	var free []*runRecord
	for _, r := range j.runs {
		if r.summary.Status == run.Running && !r.leased(now) && r.owner != owner {
			free = append(free, r)
		}
	}
	slices.SortFunc(free, func(a, b *runRecord) int {
		return cmp.Or(cmp.Compare(a.summary.CreatedAt, b.summary.CreatedAt), strings.Compare(a.summary.RunID, b.summary.RunID))
	})
	place, seen := map[*runRecord]int{}, map[string]int{}
	for _, r := range free {
		place[r] = seen[r.summary.Org]
		seen[r.summary.Org]++
	}
	slices.SortFunc(free, func(a, b *runRecord) int {
		return cmp.Or(cmp.Compare(place[a], place[b]), j.compareOrgs(a.summary.Org, b.summary.Org))
	})
	return free
}

// compareOrgs orders orgs by the round robin, starting after the last one served.
func (j *Journal) compareOrgs(a, b string) int {
	switch aNext, bNext := a > j.lastOrg, b > j.lastOrg; {
	case aNext && !bNext:
		return -1
	case bNext && !aNext:
		return 1
	}
	return strings.Compare(a, b)
}

// Renew implements run.Leases.
func (j *Journal) Renew(_ context.Context, owner string) ([]run.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	until := leaseEnd(j.leaseNow())
	var leases []run.Lease
	for _, r := range j.runs {
		if owner != "" && r.owner == owner && r.summary.Status == run.Running {
			r.leaseUntil = until
			leases = append(leases, r.lease())
		}
	}
	return leases, nil
}

// Release implements run.Leases.
func (j *Journal) Release(_ context.Context, lease run.Lease) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{lease.Org, lease.RunID}]
	if ok && r.epoch == lease.Epoch && r.owner == lease.Owner {
		r.owner, r.leaseUntil = "", 0
	}
	return nil
}

// SetAside implements run.Leases.
func (j *Journal) SetAside(_ context.Context, lease run.Lease, why run.Aside) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{lease.Org, lease.RunID}]
	if ok && r.epoch == lease.Epoch && r.owner == lease.Owner && r.summary.Status == run.Running {
		r.summary.Status, r.summary.Aside = run.IsAside, why
		r.owner, r.leaseUntil = "", 0
	}
	return nil
}

// Restore implements run.Leases.
func (j *Journal) Restore(_ context.Context, again func(run.Aside) bool) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, r := range j.runs {
		if r.summary.Status == run.IsAside && again(r.summary.Aside) {
			r.summary.Status, r.summary.Aside = run.Running, run.Aside{}
			n++
		}
	}
	return n, nil
}

// Probe implements run.Leases. Memory is always writable.
func (j *Journal) Probe(context.Context) error { return nil }
