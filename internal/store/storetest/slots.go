package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// slots is the number of slots per org in these cases.
const slots = 16

func slotCases() []rule { // B07
	return []rule{
		{"a run without a free slot is refused", "ErrNoSlot, and nothing of the run is stored; other orgs have their own slots", noFreeSlot},
		{"an opening without Slots is never refused", "but its lease counts", openingWithoutSlots},
		{"a slot is freed", "when its run ends, parks or is released, and when the lease expires", slotFreed},
		{"every append of the owner keeps the slot", "it renews the lease for LeaseTTL, also with Sync unset", slotKept},
		{"a refused run can be opened later", "the refusal leaves nothing in the way", openedLater},
		{"sixteen slots are given to sixteen of 64 concurrent runs", "counting and taking a slot is one transaction", slotRace},
	}
}

// open opens the author's run with o.
func (a *author) open(o journal.Opening) error {
	return a.append(a.Context(), journal.Batch{Sync: true, Opening: &o}, accepted(a.lease.Org, a.lease.RunID))
}

// fillSlots opens as many runs as the org has slots.
func (b *testBench) fillSlots(orgID string) []*author {
	b.Helper()
	authors := make([]*author, slots)
	for i := range authors {
		authors[i] = b.author(orgID, fmt.Sprintf("run %02d", i))
		b.ok(authors[i].open(journal.Opening{Slots: slots}))
	}
	return authors
}

// checkMissing fails the case unless there is no such run.
func (b *testBench) checkMissing(orgID, runID string) {
	b.Helper()
	_, err := b.Archive.Load(b.Context(), orgID, runID)
	b.checkError(err, org.ErrNotFound)
}

func noFreeSlot(b *testBench) {
	b.fillSlots("a")
	err := b.author("a", "one more").open(journal.Opening{Slots: slots})
	b.checkError(err, journal.ErrNoSlot)
	b.checkMissing("a", "one more")
	b.ok(b.author("b", "one more").open(journal.Opening{Slots: slots}))
	b.ok(b.author("a", "under other terms").open(journal.Opening{Slots: slots + 1}))
}

func openingWithoutSlots(b *testBench) {
	b.fillSlots("a")
	b.ok(b.author("a", "any number").open(journal.Opening{}))
	b.begin("a", "no terms")
	b.checkError(b.author("a", "one more").open(journal.Opening{Slots: slots + 2}), journal.ErrNoSlot)
}

func slotFreed(b *testBench) {
	authors := b.fillSlots("a")
	n := 0
	another := func(why string) {
		b.Helper()
		n++
		if err := b.author("a", fmt.Sprint("another ", n)).open(journal.Opening{Slots: slots}); err != nil {
			b.Errorf("%s: %v", why, err)
		}
		b.checkError(b.author("a", "one more").open(journal.Opening{Slots: slots}), journal.ErrNoSlot)
	}
	authors[0].write(loop.Finished{Reason: event.Complete})
	another("a run has ended")
	authors[1].write(loop.Parked{})
	another("a run has parked")
	b.ok(b.Leases.Release(b.Context(), authors[2].lease))
	another("a lease was released")
	b.advance(journal.LeaseTTL - time.Millisecond)
	b.checkError(b.author("a", "one more").open(journal.Opening{Slots: slots}), journal.ErrNoSlot)
	b.advance(time.Millisecond)
	b.fillSlots("b")
	b.ok(b.author("a", "after all leases expired").open(journal.Opening{Slots: 1}))
}

func slotKept(b *testBench) {
	a := b.author("a", "r")
	b.ok(a.open(journal.Opening{Slots: 1}))
	for i, batch := range []journal.Batch{{}, {Sync: true}, {Rows: []journal.Row{{Ref: "x", Value: 1}}}} {
		b.advance(journal.LeaseTTL - time.Millisecond)
		b.ok(a.append(b.Context(), batch, input(fmt.Sprint(i))))
		b.advance(journal.LeaseTTL - time.Millisecond)
		b.checkError(b.author("a", "other").open(journal.Opening{Slots: 1}), journal.ErrNoSlot)
		b.ok(a.append(b.Context(), journal.Batch{Sync: true}))
	}
	b.advance(journal.LeaseTTL)
	b.ok(b.author("a", "other").open(journal.Opening{Slots: 1}))
}

func openedLater(b *testBench) {
	first, second := b.author("a", "first"), b.author("a", "second")
	b.ok(first.open(journal.Opening{Slots: 1}))
	for range 3 {
		b.checkError(second.open(journal.Opening{Slots: 1}), journal.ErrNoSlot)
	}
	first.write(loop.Finished{Reason: event.Complete})
	b.ok(second.open(journal.Opening{Slots: 1}))
	second.write(input("x"))
	second.checkStored()
}

func slotRace(b *testBench) {
	var group errgroup.Group
	var opened, refused atomic.Int64
	for i := range 4 * slots {
		a := b.author("a", fmt.Sprint("run ", i))
		group.Go(func() error {
			switch err := a.open(journal.Opening{Slots: slots}); {
			case err == nil:
				opened.Add(1)
			case errors.Is(err, journal.ErrNoSlot):
				refused.Add(1)
			default:
				return err
			}
			return nil
		})
	}
	b.ok(group.Wait())
	runs, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: 100})
	b.ok(err)
	if opened.Load() != slots || refused.Load() != 3*slots || len(runs) != slots {
		b.Errorf("%d were opened, %d refused and %d stored, want %d, %d and %d", opened.Load(), refused.Load(), len(runs), slots, 3*slots, slots)
	}
}
