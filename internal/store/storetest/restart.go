package storetest

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

func promiseCases() []rule { // P01
	return []rule{
		{"a restart expires all leases", "their owners are gone, so their runs can be claimed at once, without waiting for LeaseTTL", func(b *testBench) {
			old := b.begin("a", "r")
			b.begin("b", "r")
			b.begin("a", "waits").write(loop.Parked{})
			b.Store = b.maker.Reopen(b.T, b.Store)
			b.ownersGone()
			b.ok(b.author("a", "other").open(journal.Opening{Slots: 1}))
			claimed := b.claim("new", 10)
			b.checkLeases(claimed, "a/r@2", "b/r@2")
			b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("x")), journal.ErrFenced)
			old.with(claimed[0]).write(input("x"))
		}},
		{"keys, budgets, holds and audit rows survive a restart", "a client relies on them across processes", func(b *testBench) {
			a := b.beginWithHold("a", "r")
			b.Store = b.maker.Reopen(b.T, b.Store)
			b.checkHold("a", "r")
			a.testBench = b
			b.ok(a.append(b.Context(), journal.Batch{Sync: true, Audit: []audit.Entry{auditEntry("k", 1, 2)}}, loop.Finished{Reason: event.Complete}))
			b.checkUsed("a", "s", tokens(45), tokens(0)) // the hold of the previous process
			b.auditRows("a", "r", 1, 2)
		}},
		{"keys, budgets, holds and audit rows survive a crash", "they are on disk when Append returns", func(b *testBench) {
			b.beginWithHold("a", "r")
			b.Store = b.maker.Crash(b.T, b.Store)
			b.checkHold("a", "r")
			b.ownersGone()
			b.checkLeases(b.claim("new", 10), "a/r@2")
			b.checkUsed("a", "s", tokens(45), tokens(0))
		}},
		{"what a process had drawn counts as spent after a crash", "it may have spent it", func(b *testBench) {
			b.exchange("p", journal.SliceUse{Budget: window("s", 1000), Spent: tokens(0), Need: tokens(100)})
			b.exchange("p", journal.SliceUse{Budget: window("s", 1000), Spent: tokens(30), Need: tokens(100)})
			b.Store = b.maker.Crash(b.T, b.Store)
			b.ownersGone()
			b.checkUsed("a", "s", tokens(130), tokens(0))
			b.equal(b.exchange("q", journal.SliceUse{Budget: window("s", 1000), Need: tokens(7)}), tokens(7))
		}},
		{"a claim survives a crash", "its owner may already act on it", func(b *testBench) {
			old := b.begin("a", "r")
			b.advance(journal.LeaseTTL)
			b.claim("new", 1)
			b.Store = b.maker.Crash(b.T, b.Store)
			b.ownersGone()
			b.checkLeases(b.claim("newer", 1), "a/r@3")
			old.testBench = b
			b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("x")), journal.ErrFenced)
		}},
	}
}

// ownersGone makes the processes that had the store before be gone for good: where several can have it, their leases and
// claims end with their time.
func (b *testBench) ownersGone() {
	b.Helper()
	if b.maker.Shared {
		b.advance(10 * journal.LeaseTTL)
		_, err := b.Leases.Renew(b.Context(), "another owner")
		b.ok(err)
	}
}

// beginWithHold starts a run with an idempotency key that has spent 5 tokens, holds 40 and
// has an audit row.
func (b *testBench) beginWithHold(orgID, runID string) *author {
	b.Helper()
	a := b.author(orgID, runID)
	b.ok(a.open(terms("p", "k", "h")))
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(20))))
	a.settle("0.1", tokens(5))
	b.ok(a.append(b.Context(), journal.Batch{
		Sync: true, Reservations: []journal.Reservation{hold("1.1", "s", tokens(100), tokens(40))}, Audit: []audit.Entry{auditEntry("k", 1, 1)},
	}, input("x")))
	return a
}

// checkHold fails the case unless the run is as beginWithHold left it.
func (b *testBench) checkHold(orgID, runID string) {
	b.Helper()
	b.checkSubmitted(b.author(orgID, "again").open(terms("p", "k", "h")), journal.Submitted{RunID: runID, Hash: "h"})
	b.checkUsed(orgID, "s", tokens(5), tokens(40))
	b.auditRows(orgID, runID, 1)
}
