package storetest

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func persistenceCases() []rule {
	return []rule{
		{"approvals survive a restart", "a person may decide days later", approvalsPersist},
		{"everything survives a restart", "the next process finds what the last one stored", func(b *testBench) {
			b.populate("a")
			b.populate("bb")
			b.Store = b.maker.Reopen(b.T, b.Store)
			b.orgs(org.Record{ID: "a", Features: []string{"a"}}, org.Record{ID: "bb", Features: []string{"bb"}})
			b.checkPopulated("a")
			b.checkPopulated("bb")
		}},
		{"a run continues after a restart", "the end of its journal, its epoch and its calls are stored", func(b *testBench) {
			old := b.begin("a", "r")
			a := *old
			a.lease.Epoch = 2
			a.write(started("0.0", 1))
			b.Store = b.maker.Reopen(b.T, b.Store)
			b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("x")), journal.ErrFenced)
			stale := a
			stale.facts = a.facts[:1]
			b.checkBehind(stale.append(b.Context(), journal.Batch{}, input("x")), a.facts[1:]...)
			b.checkError(a.append(b.Context(), journal.Batch{Sync: true}, started("0.0", 1)), org.ErrExists)
			a.write(loop.Finished{Reason: event.Complete})
			if s := a.checkStored().Summary; s.Calls != 1 || s.Status != journal.Done {
				b.Errorf("the summary is %+v", s)
			}
		}},
		{"a run that is set aside remains so after a restart", "until a build that can decode it restores it", func(b *testBench) {
			a := b.setAside("a", "r")
			b.Store = b.maker.Reopen(b.T, b.Store)
			a.testBench = b
			b.checkLeases(b.claim("newer", 10))
			if s := a.checkUnreadable().Story.Summary; s.Status != journal.IsAside || s.Aside.Build != "a" {
				b.Errorf("the summary is %+v", s)
			}
			n, err := b.Leases.Restore(b.Context(), func(why journal.Aside) bool { return why.Kind == "prophecy" })
			b.ok(err)
			b.checkLeases(b.claim("newest", 10), "a/r@3")
			if n != 1 {
				b.Errorf("%d runs were restored, want 1", n)
			}
		}},
		{"closing loses nothing", "queued unsynced batches are stored first", func(b *testBench) {
			a := b.begin("a", "r")
			for i := range 300 {
				b.ok(a.append(b.Context(), journal.Batch{}, input(fmt.Sprint(i))))
			}
			b.Store = b.maker.Reopen(b.T, b.Store)
			a.checkStored()
		}},
		{"a synced append survives a crash", "it is on disk when Append returns, with everything before it", func(b *testBench) {
			a := b.begin("a", "r")
			for i := range 20 {
				b.ok(a.append(b.Context(), journal.Batch{Rows: []journal.Row{{Ref: fmt.Sprint(i), Value: i}}}, input(fmt.Sprint(i))))
			}
			a.write(started("0.0", 1))
			left := b.maker.Crash(b.T, b.Store)
			story, err := left.Archive.Load(b.Context(), "a", "r")
			b.ok(err)
			b.equal(story.Facts, a.facts)
			if len(story.Rows) != 20 {
				b.Errorf("%d rows, want 20", len(story.Rows))
			}
		}},
		{"a crash keeps a prefix of the unsynced batches", "none is missing in between", func(b *testBench) {
			a := b.begin("a", "r")
			for i := range 50 {
				b.ok(a.append(b.Context(), journal.Batch{}, input(fmt.Sprint(i))))
			}
			left := b.maker.Crash(b.T, b.Store)
			story, err := left.Archive.Load(b.Context(), "a", "r")
			b.ok(err)
			b.equal(story.Facts, a.facts[:len(story.Facts)])
		}},
		{"management changes and conversations survive a crash", "they are on disk when the call returns", func(b *testBench) {
			b.populate("a")
			b.Store = b.maker.Crash(b.T, b.Store)
			b.checkPopulated("a")
		}},
	}
}
