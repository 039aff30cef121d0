package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// orgState implements journal.OrgState. It is used with the journal's mu held.
type orgState struct {
	j   *Journal
	org string
}

// RunOf implements journal.OrgState.
func (s orgState) RunOf(key journal.SubmitKey) (*journal.Submitted, error) {
	return s.j.keys.find(s.org, key, s.j.now()), nil
}

// StoredBytes implements journal.OrgState.
func (s orgState) StoredBytes() (int64, error) {
	n := int64(0)
	for key, r := range s.j.runs {
		if key.org == s.org {
			n += r.head.Bytes
		}
	}
	return n, nil
}

// LeasedRuns implements journal.OrgState.
func (s orgState) LeasedRuns() (int, error) {
	n, now := 0, s.j.leaseNow()
	for key, r := range s.j.runs {
		if key.org == s.org && r.head.Leased(now) {
			n++
		}
	}
	return n, nil
}

// QueuedRuns implements journal.OrgState.
func (s orgState) QueuedRuns() (int, error) {
	n := 0
	for key, r := range s.j.runs {
		if key.org == s.org && r.head.Summary.Status == journal.Queued {
			n++
		}
	}
	return n, nil
}

// Claim implements journal.Leases. The round robin over orgs continues after the org
// that got the last lease, also across calls.
func (j *Journal) Claim(_ context.Context, owner string, limit int) ([]journal.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.leaseNow()
	j.seen(owner, now)
	var leases []journal.Lease
	for _, r := range j.claimable(owner, now) {
		if len(leases) >= limit {
			break
		}
		var lease journal.Lease
		r.head, lease = r.head.Claim(owner, now)
		j.settleAll(lease.Org, r)
		j.lastOrg = lease.Org
		leases = append(leases, lease)
	}
	return leases, nil
}

// ClaimRun implements journal.Picker.
func (j *Journal) ClaimRun(_ context.Context, owner string, key journal.RunKey) (journal.Lease, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.leaseNow()
	j.seen(owner, now)
	r, ok := j.runs[runKey{key.Org, key.Run}]
	if !ok {
		return journal.Lease{}, false, fmt.Errorf("run %s: %w", key.Run, org.ErrNotFound)
	}
	if !r.head.Claimable(owner, now) || j.notItsTurn(runKey{key.Org, key.Run}, r) {
		return journal.Lease{}, false, nil
	}
	var lease journal.Lease
	r.head, lease = r.head.Claim(owner, now)
	j.settleAll(key.Org, r)
	return lease, true, nil
}

// claimable returns the runs that owner may claim in the order in which they are claimed:
// the oldest of each org, then the second oldest of each, always starting after the org
// that got the last lease.
func (j *Journal) claimable(owner string, now time.Time) []*runRecord {
	var free []*runRecord
	for key, r := range j.runs {
		if r.head.Claimable(owner, now) && !j.notItsTurn(key, r) {
			free = append(free, r)
		}
	}
	slices.SortFunc(free, func(a, b *runRecord) int {
		return cmp.Or(cmp.Compare(a.head.Summary.CreatedAt, b.head.Summary.CreatedAt), strings.Compare(a.head.Summary.RunID, b.head.Summary.RunID))
	})
	place, seen := map[*runRecord]int{}, map[string]int{}
	leased := map[string]int{}
	for key, r := range j.runs {
		if r.head.Leased(now) {
			leased[key.org]++
		}
	}
	free = slices.DeleteFunc(free, func(r *runRecord) bool {
		s := r.head.Summary
		place[r] = seen[s.Org]
		seen[s.Org]++
		return s.Slots > 0 && leased[s.Org]+place[r] >= s.Slots
	})
	slices.SortFunc(free, func(a, b *runRecord) int {
		return cmp.Or(cmp.Compare(place[a], place[b]), j.compareOrgs(a.head.Summary.Org, b.head.Summary.Org))
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

// Renew implements journal.Leases.
func (j *Journal) Renew(_ context.Context, owner string) ([]journal.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.leaseNow()
	j.seen(owner, now)
	var leases []journal.Lease
	for _, r := range j.runs {
		if r.head.Renewable(owner) {
			r.head = r.head.Renew(now)
			leases = append(leases, r.head.Lease())
		}
	}
	return leases, nil
}

// seen notes that an owner is alive, and forgets those that are gone. It is called with mu held.
func (j *Journal) seen(owner string, now time.Time) {
	if j.owners == nil {
		j.owners = map[string]int64{}
	}
	maps.DeleteFunc(j.owners, func(_ string, until int64) bool { return until <= now.UnixMilli() })
	j.owners[owner] = journal.LeaseEnd(now)
}

// Alive implements journal.Leases.
func (j *Journal) Alive(_ context.Context, owner string) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.owners[owner] > j.leaseNow().UnixMilli(), nil
}

// Release implements journal.Leases.
func (j *Journal) Release(_ context.Context, lease journal.Lease) error {
	j.change(lease, func(h journal.Head) (journal.Head, bool) { return h.Release(lease) })
	return nil
}

// SetAside implements journal.Leases.
func (j *Journal) SetAside(_ context.Context, lease journal.Lease, last int64, why journal.Aside) (bool, error) {
	return j.change(lease, func(h journal.Head) (journal.Head, bool) { return h.SetAside(lease, last, why) }), nil
}

// change changes the head of the lease's run, if there is one and change returns true. It
// returns whether it did.
func (j *Journal) change(lease journal.Lease, change func(journal.Head) (journal.Head, bool)) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.runs[runKey{lease.Org, lease.RunID}]
	if !ok {
		return false
	}
	next, ok := change(r.head)
	if ok {
		r.head = next
	}
	return ok
}

// Restore implements journal.Leases.
func (j *Journal) Restore(_ context.Context, again func(journal.Aside) bool) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, r := range j.runs {
		if next, ok := r.head.Restore(); ok && again(r.head.Summary.Aside) {
			r.head = next
			n++
		}
	}
	return n, nil
}

// Probe implements journal.Leases. Memory is always writable.
func (j *Journal) Probe(context.Context) error { return nil }

// submitKeys maps idempotency keys to runs. The zero value is empty. The owner's
// mutex guards it.
type submitKeys struct {
	byKey map[submitKey]*submitted
	order []*submitted // oldest first
}

type submitKey struct{ org, principal, key string }

type submitted struct {
	journal.Submitted
	key submitKey
	at  time.Time
}

// find returns the run of the key, or nil if the key is unknown or expired.
func (k *submitKeys) find(orgID string, key journal.SubmitKey, now time.Time) *journal.Submitted {
	s, ok := k.byKey[submitKey{orgID, key.Principal, key.Key}]
	if !ok || s.expired(now) {
		return nil
	}
	found := s.Submitted
	return &found
}

// has reports whether a key of the run has not expired.
func (k *submitKeys) has(of runKey, now time.Time) bool {
	return slices.ContainsFunc(k.order, func(s *submitted) bool {
		return s.key.org == of.org && s.RunID == of.run && !s.expired(now)
	})
}

func (s *submitted) expired(now time.Time) bool { return now.Sub(s.at) >= journal.SubmitKeyTTL }

// add maps the key to the run. It first drops expired keys, and the oldest until one
// more fits.
func (k *submitKeys) add(r runKey, key journal.SubmitKey, now time.Time) {
	for len(k.order) > 0 && (len(k.order) >= MaxSubmitKeys || k.order[0].expired(now)) {
		delete(k.byKey, k.order[0].key)
		k.order[0] = nil
		k.order = k.order[1:]
	}
	if k.byKey == nil {
		k.byKey = map[submitKey]*submitted{}
	}
	s := &submitted{
		Submitted: journal.Submitted{RunID: r.run, Hash: key.Hash},
		key:       submitKey{r.org, key.Principal, key.Key}, at: now,
	}
	k.byKey[s.key] = s
	k.order = append(k.order, s)
}
