package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func leaseCases() []rule {
	return []rule{
		{"a run is claimed when its lease has expired", "after LeaseTTL and not before; it gets the next epoch and its new owner", claimEnded},
		{"a step of the wall clock does not affect leases", "nor slots: leases are measured by a clock that never jumps", leaseSteps}, // R17
		{"an owner does not claim its own run", "even if the lease has expired: it may still be working on the run, and renews the lease", notFromItself},
		{"a claim says whether the last owner released the run", "a release is not counted as a crash", claimHanded},
		{"a claim fences the old owner", "whatever it knows of the journal; the new owner continues at the end of the journal", claimFences},
		{"a claim fences queued appends of the old owner", "they are stored before the claim or not at all, and the new owner does not get their errors", claimOnItsWay},
		{"a run that is parked or has ended is not claimed", "there is nothing to do", claimRunning},
		{"runs are claimed in a round robin over orgs", "an org with many runs does not delay another, even if runs are claimed one at a time", claimFair},
		{"the oldest run of an org is claimed first", "runs of one millisecond by id; never more than the limit", claimOldest},
		{"a run is claimed once", "eight concurrent owners never get the same run", claimRace},
		{"a single run can be claimed", "under the conditions of a claim, and others stay free", claimsOne},
		{"an owner renews its leases", "not those of others; an expired lease that was not claimed is renewed too", renewedLeases},
		{"a lost lease is not renewed", "claimed by another owner, released, parked or ended", lostLeases},
		{"an owner that claims or renews is alive", "until LeaseTTL later: the requests that it holds open are gone with it", aliveOwners},
		{"a released lease can be claimed at once", "without waiting for LeaseTTL", releasedLease},
		{"only the current lease can be released", "an older epoch and another owner have no effect", staleRelease},
		{"a run that is woken can be claimed", "the writer that wakes it has no lease, so any owner may continue it", wokenRun},
		{"a writer without a lease does not affect the lease", "it is neither renewed nor ended", foreignWriter},
		{"a writer without a lease is not fenced", "it has no epoch", foreignAfterClaim},
		{"a working store passes a probe", "which changes nothing visible", probe},
	}
}

func (b *testBench) claim(owner string, limit int) []journal.Lease {
	b.Helper()
	leases, err := b.Leases.Claim(b.Context(), owner, limit)
	b.ok(err)
	for _, l := range leases {
		if l.Owner != owner {
			b.Errorf("%s claimed the lease %+v", owner, l)
		}
	}
	return leases
}

// checkLeases fails the case unless got are these leases, in the form org/run@epoch.
func (b *testBench) checkLeases(got []journal.Lease, want ...string) {
	b.Helper()
	var names []string
	for _, l := range got {
		names = append(names, fmt.Sprintf("%s/%s@%d", l.Org, l.RunID, l.Epoch))
	}
	if !slices.Equal(names, want) {
		b.Errorf("got the leases %q, want %q", names, want)
	}
}

// with returns the author with another lease of the run.
func (a *author) with(l journal.Lease) *author {
	next := *a
	next.lease = l
	return &next
}

func claimEnded(b *testBench) {
	b.begin("a", "r")
	b.checkLeases(b.claim("new", 10))
	b.advance(journal.LeaseTTL - time.Millisecond)
	b.checkLeases(b.claim("new", 10))
	b.advance(time.Millisecond)
	b.checkLeases(b.claim("new", 10), "a/r@2")
	b.checkLeases(b.claim("newer", 10))
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("newer", 10), "a/r@3")
}

func claimsOne(b *testBench) {
	picker, ok := b.Leases.(journal.Picker)
	if !ok {
		b.Skip("the store gives runs in its own order only")
	}
	one := func(owner, org, run, want string) {
		b.Helper()
		l, ok, err := picker.ClaimRun(b.Context(), owner, journal.RunKey{Org: org, Run: run})
		b.ok(err)
		if !ok {
			b.checkLeases(nil, strings.Fields(want)...)
			return
		}
		b.checkLeases([]journal.Lease{l}, want)
	}
	b.begin("a", "r")
	b.begin("a", "s")
	one("new", "a", "r", "")
	b.advance(journal.LeaseTTL)
	one(owner, "a", "r", "")
	one("new", "a", "r", "a/r@2")
	one("newer", "a", "r", "")
	b.checkLeases(b.claim("new", 10), "a/s@2")
	_, _, err := picker.ClaimRun(b.Context(), "new", journal.RunKey{Org: "b", Run: "r"})
	b.checkError(err, org.ErrNotFound)
	b.begin("c", "ended").write(loop.Finished{Reason: event.Complete})
	b.advance(journal.LeaseTTL)
	one("new", "c", "ended", "")
}

func leaseSteps(b *testBench) {
	for _, d := range []time.Duration{time.Minute, -10 * time.Minute, time.Hour, -24 * time.Hour} {
		a := b.author("a", "stepped by "+d.String())
		b.ok(a.open(journal.Opening{Slots: 1}))
		b.step(d)
		b.checkLeases(b.claim("new", 10))
		b.checkError(b.author("a", "one more").open(journal.Opening{Slots: 1}), journal.ErrNoSlot)
		b.checkLeases(b.renew(owner), "a/"+a.lease.RunID+"@1")
		b.step(d)
		b.advance(journal.LeaseTTL - time.Millisecond)
		b.checkLeases(b.claim("new", 10))
		b.advance(time.Millisecond)
		b.checkLeases(b.claim("new", 10), "a/"+a.lease.RunID+"@2")
		b.step(d)
		next := a.with(journal.Lease{Org: "a", RunID: a.lease.RunID, Epoch: 2, Owner: "new"})
		next.write(loop.Finished{Reason: event.Complete})
	}
}

func notFromItself(b *testBench) {
	a := b.begin("a", "r")
	b.advance(2 * journal.LeaseTTL)
	b.checkLeases(b.claim(owner, 10))
	a.write(input("x"))
	b.advance(2 * journal.LeaseTTL)
	b.checkLeases(b.renew(owner), "a/r@1")
	b.checkLeases(b.claim("new", 10))
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("new", 10), "a/r@2")
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("new", 10))
	b.checkLeases(b.claim(owner, 10), "a/r@3")
	b.ok(b.Leases.Release(b.Context(), journal.Lease{Org: "a", RunID: "r", Epoch: 3, Owner: owner}))
	b.checkLeases(b.claim(owner, 10), "a/r@4")
}

func claimHanded(b *testBench) {
	b.begin("a", "ended")
	given := b.begin("a", "given")
	b.ok(b.Leases.Release(b.Context(), given.lease))
	b.advance(journal.LeaseTTL)
	handed := map[string]bool{}
	for _, l := range b.claim("new", 10) {
		handed[l.RunID] = l.Handed
	}
	b.equal(handed, map[string]bool{"ended": false, "given": true})
	for _, l := range b.renew("new") {
		if l.Handed {
			b.Errorf("Handed is set for %s, which was renewed", l.RunID)
		}
	}
	b.advance(journal.LeaseTTL)
	for _, l := range b.claim("newer", 10) {
		if l.Handed {
			b.Errorf("Handed is set for %s, which was not released", l.RunID)
		}
	}
}

func claimFences(b *testBench) {
	old := b.begin("a", "r")
	old.write(started("0.0", 1))
	b.advance(journal.LeaseTTL)
	next := old.with(b.claim("new", 10)[0])
	for _, sync := range []bool{true, false} {
		b.checkError(old.append(b.Context(), journal.Batch{Sync: sync}, input("old")), journal.ErrFenced)
		b.checkError(old.append(b.Context(), journal.Batch{Sync: sync}), journal.ErrFenced)
	}
	next.write(input("new"))
	b.ok(next.append(b.Context(), journal.Batch{}, input("newer")))
	b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("old")), journal.ErrFenced)
	next.write(loop.Finished{Reason: event.Complete})
	b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("old")), journal.ErrFenced)
	next.checkStored()
}

func claimOnItsWay(b *testBench) {
	for i := range 20 {
		old := b.begin("a", fmt.Sprint("run ", i))
		b.advance(journal.LeaseTTL)
		b.ok(old.append(b.Context(), journal.Batch{}, input("before")))
		b.advance(journal.LeaseTTL)
		var late errgroup.Group
		late.Go(func() error {
			for n := range 5 {
				_ = old.append(b.Context(), journal.Batch{}, input(fmt.Sprint("late ", n)))
				_ = old.append(b.Context(), journal.Batch{Rows: []journal.Row{{Ref: fmt.Sprint("late ", n), Value: n}}})
			}
			return nil
		})
		var claimed []journal.Lease
		for len(claimed) == 0 { // a late append may have renewed the lease
			b.advance(journal.LeaseTTL)
			claimed = b.claim("new", 1)
		}
		b.checkLeases(claimed, fmt.Sprintf("a/run %d@2", i))
		story, err := b.Archive.Load(b.Context(), "a", old.lease.RunID)
		b.ok(err)
		next := b.author("a", old.lease.RunID).with(claimed[0])
		next.facts = story.Facts
		next.write(input("new"))
		b.ok(late.Wait())
		next.write(loop.Finished{Reason: event.Complete})
		next.checkStored()
	}
}

func claimRunning(b *testBench) {
	b.begin("a", "waits").write(loop.Parked{})
	b.begin("a", "done").write(loop.Finished{Reason: event.Complete})
	b.begin("a", "running")
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("new", 10), "a/running@2")
}

func claimFair(b *testBench) {
	for i := range 10 {
		b.begin("a", fmt.Sprint("run ", i))
	}
	b.advance(1)
	b.begin("b", "one")
	b.begin("b", "two")
	b.begin("c", "one")
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("new", 7), "a/run 0@2", "b/one@2", "c/one@2", "a/run 1@2", "b/two@2", "a/run 2@2", "a/run 3@2")
	b.begin("b", "three")
	b.begin("c", "two")
	b.begin("c", "three")
	b.advance(journal.LeaseTTL)
	seen := map[string]int{}
	for range 6 {
		seen[b.claim("newer", 1)[0].Org]++
	}
	b.equal(seen, map[string]int{"a": 2, "b": 2, "c": 2})
}

func claimOldest(b *testBench) {
	for _, runID := range []string{"c", "d", "a", "b"} {
		b.begin("o", runID)
		if runID == "d" {
			b.advance(time.Millisecond)
		}
	}
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("new", 0))
	b.checkLeases(b.claim("new", -1))
	b.checkLeases(b.claim("new", 3), "o/c@2", "o/d@2", "o/a@2")
	b.checkLeases(b.claim("new", 3), "o/b@2")
}

func claimRace(b *testBench) {
	const owners, runs = 8, 40
	for i := range runs {
		b.begin(string(rune('a'+i%3)), fmt.Sprint("run ", i))
	}
	b.advance(journal.LeaseTTL)
	var group errgroup.Group
	var mu sync.Mutex
	owner := map[string]string{}
	for i := range owners {
		group.Go(func() error {
			for {
				leases, err := b.Leases.Claim(b.Context(), fmt.Sprint("owner ", i), 3)
				if err != nil || len(leases) == 0 {
					return err
				}
				mu.Lock()
				for _, l := range leases {
					name := l.Org + "/" + l.RunID
					if other, taken := owner[name]; taken {
						b.Errorf("%s was claimed by %s and by %s", name, other, l.Owner)
					}
					owner[name] = l.Owner
				}
				mu.Unlock()
			}
		})
	}
	b.ok(group.Wait())
	if len(owner) != runs {
		b.Errorf("%d runs were claimed, want %d", len(owner), runs)
	}
}

// renew renews the owner's leases and returns them in the order of org and run.
func (b *testBench) renew(owner string) []journal.Lease {
	b.Helper()
	leases, err := b.Leases.Renew(b.Context(), owner)
	b.ok(err)
	slices.SortFunc(leases, func(x, y journal.Lease) int { return strings.Compare(x.Org+"/"+x.RunID, y.Org+"/"+y.RunID) })
	return leases
}

func renewedLeases(b *testBench) {
	b.begin("a", "r")
	b.begin("b", "r")
	other := b.author("a", "other")
	other.lease.Owner = "another"
	other.write(accepted("a", "other"))
	b.checkLeases(b.renew("nobody"))
	b.checkLeases(b.renew(""))
	b.advance(journal.LeaseTTL - time.Millisecond)
	b.checkLeases(b.renew(owner), "a/r@1", "b/r@1")
	b.advance(journal.LeaseTTL - time.Millisecond)
	b.checkLeases(b.claim("new", 10), "a/other@2")
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.renew(owner), "a/r@1", "b/r@1") // expired and not claimed
	b.checkLeases(b.claim("newer", 10), "a/other@3")
}

func lostLeases(b *testBench) {
	b.begin("a", "claimed")
	b.advance(journal.LeaseTTL)
	b.claim("new", 1)
	released := b.begin("a", "released")
	b.ok(b.Leases.Release(b.Context(), released.lease))
	b.begin("a", "waits").write(loop.Parked{})
	b.begin("a", "done").write(loop.Finished{Reason: event.Complete})
	b.begin("a", "mine")
	b.checkLeases(b.renew(owner), "a/mine@1")
	b.checkLeases(b.renew("new"), "a/claimed@2")
}

func releasedLease(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.append(b.Context(), journal.Batch{}, input("x")))
	b.ok(b.Leases.Release(b.Context(), a.lease))
	next := a.with(b.claim("new", 10)[0])
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true}, input("y")), journal.ErrFenced)
	next.write(input("y"))
	next.checkStored()
}

func staleRelease(b *testBench) {
	a := b.begin("a", "r")
	b.advance(journal.LeaseTTL)
	next := b.claim("new", 10)[0]
	b.ok(b.Leases.Release(b.Context(), a.lease))
	stranger := next
	stranger.Owner = "stranger"
	b.ok(b.Leases.Release(b.Context(), stranger))
	foreign := next
	foreign.Org = "b"
	b.ok(b.Leases.Release(b.Context(), foreign))
	b.checkLeases(b.claim("newer", 10))
	b.ok(b.Leases.Release(b.Context(), next))
	b.checkLeases(b.claim("newer", 10), "a/r@3")
	b.ok(b.Leases.Release(b.Context(), journal.Lease{Org: "a", RunID: "nobody's", Epoch: 1, Owner: owner}))
}

func wokenRun(b *testBench) {
	for i, body := range []loop.Body{
		loop.Resumed{}, loop.CallResolved{WaitID: "w", Approved: true}, loop.CancelRequested{Cause: event.Cancelled}, loop.Expired{WaitID: "w"},
	} {
		a := b.begin("a", fmt.Sprint("run ", i))
		a.write(loop.Parked{})
		b.checkLeases(b.claim("new", 10))
		foreign := a.with(journal.Lease{Org: "a", RunID: a.lease.RunID})
		foreign.write(body)
		claimed := b.claim("new", 10)
		b.checkLeases(claimed, fmt.Sprintf("a/run %d@2", i))
		next := foreign.with(claimed[0])
		next.write(input("x"))
		next.checkStored()
	}
}

func foreignWriter(b *testBench) {
	a := b.begin("a", "r")
	b.advance(journal.LeaseTTL - time.Millisecond)
	foreign := a.with(journal.Lease{Org: "a", RunID: "r"})
	foreign.write(loop.CancelRequested{By: "somebody", Cause: event.Cancelled})
	b.checkLeases(b.claim("new", 10))
	b.checkLeases(b.renew(owner), "a/r@1")
	b.advance(journal.LeaseTTL - time.Millisecond)
	foreign.write(input("x"))
	b.advance(time.Millisecond)
	b.checkLeases(b.claim("new", 10), "a/r@2")

	nobody := b.author("a", "nobody's")
	nobody.lease = journal.Lease{Org: "a", RunID: "nobody's"}
	nobody.write(accepted("a", "nobody's"))
	b.checkLeases(b.claim("new", 10), "a/nobody's@1")
}

func foreignAfterClaim(b *testBench) {
	a := b.begin("a", "r")
	foreign := a.with(journal.Lease{Org: "a", RunID: "r"})
	foreign.write(input("x"))
	b.advance(journal.LeaseTTL)
	next := foreign.with(b.claim("new", 10)[0])
	foreign.write(input("y"))
	b.checkBehind(next.append(b.Context(), journal.Batch{}, input("z")), foreign.facts[2:]...)
	next.facts = foreign.facts
	next.write(input("z"))
	next.checkStored()
}

func probe(b *testBench) {
	b.populate("a")
	for range 3 {
		b.ok(b.Leases.Probe(b.Context()))
	}
	b.checkPopulated("a")
}

func aliveOwners(b *testBench) {
	alive := func(owner string) bool {
		b.Helper()
		is, err := b.Leases.Alive(b.Context(), owner)
		b.ok(err)
		return is
	}
	if alive("x") || alive("y") || alive("") {
		b.Error("an owner is alive that has done nothing")
	}
	_, err := b.Leases.Claim(b.Context(), "x", 1)
	b.ok(err)
	_, err = b.Leases.Renew(b.Context(), "y")
	b.ok(err)
	b.step(time.Hour)
	b.advance(journal.LeaseTTL - time.Millisecond)
	if !alive("x") || !alive("y") {
		b.Error("an owner is gone too early")
	}
	_, err = b.Leases.Renew(b.Context(), "y")
	b.ok(err)
	b.advance(time.Millisecond)
	if alive("x") || !alive("y") {
		b.Errorf("x is alive: %t, y is alive: %t; want only y", alive("x"), alive("y"))
	}
}
