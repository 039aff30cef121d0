package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

func queueCases() []rule { // P20
	return []rule{
		{"a queued run has no lease", "it occupies no slot, and no renewal knows it", queuedWithoutLease},
		{"a queued run is claimed when a slot is free", "the oldest first; it is running then, and has the first epoch", queuedIsClaimed},
		{"the queue of an org is bounded", "ErrQueueFull, and nothing of the run is stored; other orgs have their own queue", queueIsBounded},
		{"a run that left the queue makes room", "when it is claimed or cancelled", queueHasRoom},
		{"a run that is to end needs no slot", "it is claimed although all slots of its org are taken", cancelledNeedsNoSlot},
		{"an org with a long queue does not delay another", "slots are given in a round robin over orgs", queuesAreFair},
		{"a claimed run that nobody has begun can be claimed again", "its owner died before its first fact", queuedOwnerDied},
		{"a foreign fact keeps the lease of a run that was queued", "the writer has no lease", queuedForeign},
		{"queued runs are counted by principal", "and listed by their state", queuedCounts},
	}
}

// enqueue stores a queued run. slots are those of its org.
func (b *testBench) enqueue(orgID, runID string, slots, queue int) (*author, error) {
	a := b.author(orgID, runID)
	a.lease.Epoch, a.lease.Owner = 0, ""
	body := accepted(orgID, runID)
	body.Queued, body.Grade, body.Slots = true, loop.Durable, slots
	err := a.append(a.Context(), journal.Batch{Sync: true, Opening: &journal.Opening{Queue: queue}}, body, input("x"))
	return a, err
}

func (b *testBench) queued(orgID, runID string) *author {
	b.Helper()
	a, err := b.enqueue(orgID, runID, slots, 100)
	b.ok(err)
	return a
}

// checkStatus fails the case unless the run has the status.
func (b *testBench) checkStatus(orgID, runID string, want journal.Status) {
	b.Helper()
	head, err := b.Archive.Head(b.Context(), orgID, runID)
	b.ok(err)
	if head.Summary.Status != want {
		b.Errorf("run %s is %s, want %s", runID, head.Summary.Status, want)
	}
}

func queuedWithoutLease(b *testBench) {
	b.queued("a", "r")
	b.checkStatus("a", "r", journal.Queued)
	b.checkLeases(b.renew(owner))
	b.checkLeases(b.renew(""))
	b.ok(b.author("a", "other").open(journal.Opening{Slots: 1}))
}

func queuedIsClaimed(b *testBench) {
	for _, runID := range []string{"first", "second"} {
		b.queued("a", runID)
		b.advance(time.Millisecond)
	}
	leases := b.claim(owner, 1)
	b.checkLeases(leases, "a/first@1")
	if !leases[0].Handed {
		b.Errorf("the lease %+v says that an owner died", leases[0])
	}
	b.checkStatus("a", "first", journal.Running)
	b.checkLeases(b.claim(owner, 10), "a/second@1")
	b.checkLeases(b.claim("new", 10))
	b.checkLeases(b.renew(owner), "a/first@1", "a/second@1")
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("new", 1), "a/first@2")
}

func queueIsBounded(b *testBench) {
	for i := range 3 {
		_, err := b.enqueue("a", fmt.Sprint("run ", i), slots, 3)
		b.ok(err)
	}
	_, err := b.enqueue("a", "one more", slots, 3)
	b.checkError(err, journal.ErrQueueFull)
	b.checkMissing("a", "one more")
	_, err = b.enqueue("b", "run", slots, 3)
	b.ok(err)
	_, err = b.enqueue("a", "without a limit", slots, 0)
	b.ok(err)
	b.ok(b.author("a", "at once").open(journal.Opening{Slots: 1}))
}

func queueHasRoom(b *testBench) {
	first, second := b.queued("a", "first"), b.queued("a", "second")
	_, err := b.enqueue("a", "third", slots, 2)
	b.checkError(err, journal.ErrQueueFull)
	second.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkStatus("a", "second", journal.Running)
	_, err = b.enqueue("a", "third", slots, 2)
	b.ok(err)
	b.checkLeases(b.claim(owner, 1), "a/first@1")
	first.lease.Epoch, first.lease.Owner = 1, owner
	first.write(loop.Resumed{By: owner, HandedOver: true})
	first.checkStored()
	_, err = b.enqueue("a", "fourth", slots, 2)
	b.ok(err)
}

func cancelledNeedsNoSlot(b *testBench) {
	a, err := b.enqueue("a", "r", 1, 10)
	b.ok(err)
	b.advance(time.Millisecond)
	_, err = b.enqueue("a", "other", 1, 10)
	b.ok(err)
	b.ok(b.author("a", "busy").open(journal.Opening{Slots: 1}))
	b.checkLeases(b.claim(owner, 10))
	a.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkLeases(b.claim("new", 10), "a/r@1")
	a.checkStored()
}

func queuesAreFair(b *testBench) {
	const long = 40
	for i := range long {
		_, err := b.enqueue("a", fmt.Sprintf("run %02d", i), 2, 100)
		b.ok(err)
	}
	b.advance(time.Millisecond)
	for _, runID := range []string{"r", "s"} {
		_, err := b.enqueue("b", runID, 2, 100)
		b.ok(err)
	}
	var orgs []string
	for range 2 {
		for _, l := range b.claim(owner, 2) {
			orgs = append(orgs, l.Org)
		}
	}
	slices.Sort(orgs)
	if !slices.Equal(orgs, []string{"a", "a", "b", "b"}) {
		b.Errorf("the first slots went to %q", orgs)
	}
	b.checkLeases(b.claim(owner, 10))
}

func queuedOwnerDied(b *testBench) {
	a := b.queued("a", "r")
	b.checkLeases(b.claim("dies", 1), "a/r@1")
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim(owner, 1), "a/r@2")
	a.lease.Epoch, a.lease.Owner = 2, owner
	a.write(loop.Resumed{By: owner}, loop.Finished{Reason: event.Complete})
	a.checkStored()
}

func queuedForeign(b *testBench) {
	a := b.queued("a", "r")
	b.checkLeases(b.claim(owner, 1), "a/r@1")
	a.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkLeases(b.claim("new", 1))
	b.checkLeases(b.renew(owner), "a/r@1")
}

func queuedCounts(b *testBench) {
	for _, name := range []string{"r", "s"} {
		b.queued("a", name)
		b.queued("b", name)
	}
	b.checkLeases(b.claim(owner, 1), "a/r@1")
	got, err := b.Archive.QueuedRuns(b.Context())
	b.ok(err)
	if want := []journal.QueuedRuns{{Org: "a", Principal: "key of a", Runs: 1}, {Org: "b", Principal: "key of b", Runs: 2}}; !slices.Equal(got, want) {
		b.Errorf("counted %+v, want %+v", got, want)
	}
	runs, err := b.Archive.Runs(b.Context(), "b", journal.Query{States: []string{string(journal.Queued)}, Limit: 10})
	b.ok(err)
	if len(runs) != 2 {
		b.Errorf("listed %d queued runs, want 2", len(runs))
	}
}
