package storetest

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

func promiseCases() []rule { // P01
	return []rule{
		{"a restart expires all leases", "their owners are gone, so their runs can be claimed at once, without waiting for LeaseTTL", func(b *bench) {
			old := b.begin("a", "r")
			b.begin("b", "r")
			b.begin("a", "waits").write(loop.Parked{})
			b.Store = b.maker.Reopen(b.T, b.Store)
			b.ok(b.author("a", "other").open(run.Opening{Slots: 1}))
			claimed := b.claim("new", 10)
			b.leases(claimed, "a/r@2", "b/r@2")
			b.refused(old.append(b.Context(), run.Batch{Sync: true}, input("x")), run.ErrFenced)
			old.with(claimed[0]).write(input("x"))
		}},
		{"keys, budgets, holds and audit rows survive a restart", "a client relies on them across processes", func(b *bench) {
			a := b.inDebt("a", "r")
			b.Store = b.maker.Reopen(b.T, b.Store)
			b.indebted("a", "r")
			a.bench = b
			b.ok(a.append(b.Context(), run.Batch{Sync: true, Audit: []audit.Entry{remark("k", 1, 2)}}, loop.Finished{Reason: event.Complete}))
			b.used("a", "s", tokens(45), tokens(0)) // the hold of the previous process
			b.audited("a", "r", 1, 2)
		}},
		{"keys, budgets, holds and audit rows survive a crash", "they are on disk when Append returns", func(b *bench) {
			b.inDebt("a", "r")
			b.Store = b.maker.Crash(b.T, b.Store)
			b.indebted("a", "r")
			b.leases(b.claim("new", 10), "a/r@2")
			b.used("a", "s", tokens(45), tokens(0))
		}},
		{"a claim survives a crash", "its owner may already act on it", func(b *bench) {
			old := b.begin("a", "r")
			b.advance(run.LeaseTTL)
			b.claim("new", 1)
			b.Store = b.maker.Crash(b.T, b.Store)
			b.leases(b.claim("newer", 1), "a/r@3")
			old.bench = b
			b.refused(old.append(b.Context(), run.Batch{Sync: true}, input("x")), run.ErrFenced)
		}},
	}
}

// inDebt starts a run with an idempotency key that has spent 5 tokens, holds 40 and
// has an audit row.
func (b *bench) inDebt(orgID, runID string) *author {
	b.Helper()
	a := b.author(orgID, runID)
	b.ok(a.open(terms("p", "k", "h")))
	b.ok(a.hold(hold("0.1", "s", tokens(100), tokens(20))))
	a.settle("0.1", tokens(5))
	b.ok(a.append(b.Context(), run.Batch{
		Sync: true, Holds: []run.Hold{hold("1.1", "s", tokens(100), tokens(40))}, Audit: []audit.Entry{remark("k", 1, 1)},
	}, input("x")))
	return a
}

// indebted fails the case unless the run is as inDebt left it.
func (b *bench) indebted(orgID, runID string) {
	b.Helper()
	b.submitted(b.author(orgID, "again").open(terms("p", "k", "h")), run.Submitted{RunID: runID, Hash: "h"})
	b.used(orgID, "s", tokens(5), tokens(40))
	b.audited(orgID, runID, 1)
}
