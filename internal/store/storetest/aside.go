package storetest

import (
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func asideCases() []rule {
	return []rule{
		{"a fact of an unknown kind is reported", "with the facts that can be decoded, so that the calls of the run can be accounted for", unknownKind},
		{"a fact of an unknown version is reported", "its meaning is unknown even if its kind is known", unknownVersion},
		{"a fact with an unknown value is reported", "it may mean something that this build does not know", unknownValue},
		{"a writer is told of an unknown fact that it misses", "it cannot go on, and nothing is stored", unknownMissed},
		{"a run that is set aside is not claimed", "every process of this build would fail on it again", asideNotClaimed},
		{"a run that is set aside has no slot and no lease", "no process works on it", asideHoldsNothing},
		{"a run that is set aside has a reason", "the operator needs it", asideSaysWhy},
		{"only the current lease can set a run aside", "an older epoch, another owner and a run that has ended are left unchanged", asideNeedsLease},
		{"a run to which somebody has written is not set aside", "a cancel that was acknowledged must end it", asideNeedsLast},
		{"a run that is set aside can be woken", "a cancel must end it, so it can be claimed again", asideWoken},
		{"a run that is set aside can be restored", "a build that can decode its journal continues it", asideRestored},
		{"a run that was restored has the lease that was claimed", "a batch that was on its way must not take it away", asideRestoredLease},
	}
}

// futureFact is a fact that a newer build wrote.
type futureFact struct {
	loop.Body `json:"-"` // nil; it makes futureFact one of the closed set

	Text string `json:"text"`
}

// Kind implements loop.Body.
func (futureFact) Kind() loop.Kind { return "prophecy" }

// checkUnreadable fails the case unless loading returns a *journal.Unreadable, and returns it.
func (a *author) checkUnreadable() *journal.Unreadable {
	a.Helper()
	_, err := a.Archive.Load(a.Context(), a.lease.Org, a.lease.RunID)
	var bad *journal.Unreadable
	if !errors.As(err, &bad) {
		a.Fatalf("got error %v, want a *journal.Unreadable", err)
	}
	return bad
}

func unknownKind(b *testBench) {
	a := b.begin("a", "r")
	a.write(input("x"), futureFact{Text: "soon"}, started("0.0", 1), futureFact{Text: "later"})
	bad := a.checkUnreadable()
	b.checkError(bad, loop.ErrUnknownKind)
	if bad.Seq != 3 || bad.Kind != "prophecy" || bad.Version != loop.Version || bad.Last != 5 {
		b.Errorf("got fact %d of kind %s, version %d, of %d", bad.Seq, bad.Kind, bad.Version, bad.Last)
	}
	b.equal(bad.Story.Facts, []loop.Fact{a.facts[0], a.facts[1], a.facts[3]})
	if bad.Story.Summary.RunID != "r" || bad.Story.Summary.Status != journal.Running || bad.Story.Summary.Calls != 1 {
		b.Errorf("the summary is %+v", bad.Story.Summary)
	}
}

func unknownVersion(b *testBench) {
	a := b.begin("a", "r")
	next := a.number(input("x"))
	next[0].Version = loop.Version + 1
	b.ok(b.Journal.Append(b.Context(), a.lease, 1, journal.Batch{Sync: true, Facts: next}))
	bad := a.checkUnreadable()
	b.checkError(bad, loop.ErrUnknownVersion)
	if bad.Seq != 2 || bad.Kind != loop.KindInputAdded || bad.Version != loop.Version+1 || bad.Last != 2 {
		b.Errorf("got fact %d of kind %s, version %d, of %d", bad.Seq, bad.Kind, bad.Version, bad.Last)
	}
}

func unknownValue(b *testBench) {
	a := b.begin("a", "r")
	a.write(input("x"), loop.CallWaiting{Key: "0.0", WaitID: "w", On: "the stars"})
	bad := a.checkUnreadable()
	b.checkError(bad, loop.ErrUnknownValue)
	if bad.Seq != 3 || bad.Kind != loop.KindCallWaiting || bad.Newer() {
		b.Errorf("got fact %d of kind %s, by a newer build: %t", bad.Seq, bad.Kind, bad.Newer())
	}
}

func unknownMissed(b *testBench) {
	a := b.begin("a", "r")
	late := *a
	a.write(input("x"), futureFact{Text: "soon"})
	err := late.append(b.Context(), journal.Batch{Sync: true}, input("late"))
	var bad *journal.Unreadable
	if !errors.As(err, &bad) || bad.Seq != 3 || bad.Kind != "prophecy" || errors.Is(err, org.ErrUnavailable) {
		b.Errorf("got error %v, want a *journal.Unreadable of fact 3", err)
	}
	if last := a.checkUnreadable().Last; last != 3 {
		b.Errorf("the journal ends at %d", last)
	}
}

func (b *testBench) asideReason(build string) journal.Aside {
	return journal.Aside{Reason: "fact 2 cannot be decoded", Build: build, At: b.clock.Load(), Kind: "prophecy", Version: 1}
}

// setsAside fails the case unless the run is set aside, or is not.
func (b *testBench) setsAside(l journal.Lease, last int64, want bool) {
	b.Helper()
	done, err := b.Leases.SetAside(b.Context(), l, last, b.asideReason(l.Org))
	b.ok(err)
	if done != want {
		b.Errorf("set aside: %t, want %t", done, want)
	}
}

// setAside starts a run, claims it and sets it aside.
func (b *testBench) setAside(orgID, runID string) *author {
	b.Helper()
	a := b.begin(orgID, runID)
	a.write(futureFact{Text: "soon"})
	b.advance(journal.LeaseTTL)
	next := a.with(b.claim("new", 1)[0])
	b.setsAside(next.lease, 2, true)
	return next
}

func asideNotClaimed(b *testBench) {
	b.setAside("a", "r")
	for range 3 {
		b.checkLeases(b.claim("newer", 10))
		b.advance(journal.LeaseTTL)
	}
}

func asideHoldsNothing(b *testBench) {
	a := b.setAside("a", "r")
	leases, err := b.Leases.Renew(b.Context(), "new")
	checkEmpty(b, leases, err)
	b.ok(b.author("a", "next").append(b.Context(), journal.Batch{Sync: true, Opening: &journal.Opening{Slots: 1}}, accepted("a", "next")))
	b.ok(b.Leases.Release(b.Context(), a.lease)) // no effect
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("newer", 10), "a/next@2")
}

func asideSaysWhy(b *testBench) {
	a := b.setAside("a", "r")
	why := b.asideReason("a")
	runs, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: 10})
	b.ok(err)
	for _, s := range []journal.Summary{runs[0], a.checkUnreadable().Story.Summary} {
		if s.Status != journal.IsAside || s.Aside != why || s.Reason != "" || s.FinishedAt != 0 {
			b.Errorf("the summary is %+v", s)
		}
	}
}

func asideNeedsLease(b *testBench) {
	old := b.begin("a", "r")
	b.advance(journal.LeaseTTL)
	lease := b.claim("new", 1)[0]
	other := lease
	other.Owner = "other"
	for _, l := range []journal.Lease{old.lease, other, {Org: "a", RunID: "none", Epoch: 1, Owner: "new"}} {
		b.setsAside(l, 1, false)
	}
	b.advance(journal.LeaseTTL)
	b.checkLeases(b.claim("newer", 10), "a/r@3")
	over := b.begin("a", "over")
	over.write(loop.Finished{Reason: event.Complete})
	b.setsAside(over.lease, 2, false)
	if s := over.checkStored().Summary; s.Status != journal.Done || s.Aside != (journal.Aside{}) {
		b.Errorf("the summary is %+v", s)
	}
}

func asideNeedsLast(b *testBench) {
	a := b.begin("a", "r")
	a.write(futureFact{Text: "soon"})
	a.with(journal.Lease{Org: "a", RunID: "r"}).write(loop.CancelRequested{By: "admin", Cause: event.Cancelled})
	b.setsAside(a.lease, 2, false)
	b.setsAside(a.lease, 3, true)
}

func asideWoken(b *testBench) {
	a := b.setAside("a", "r")
	a.with(journal.Lease{Org: "a", RunID: "r"}).write(loop.CancelRequested{By: "admin", Cause: event.Cancelled})
	b.checkLeases(b.claim("newer", 10), "a/r@3")
	if s := a.checkUnreadable().Story.Summary; s.Status != journal.Running || s.Aside != (journal.Aside{}) {
		b.Errorf("the summary is %+v", s)
	}
}

func asideRestored(b *testBench) {
	b.setAside("a", "r")
	b.setAside("b", "s")
	restore := func(want int, again func(journal.Aside) bool) {
		b.Helper()
		n, err := b.Leases.Restore(b.Context(), again)
		b.ok(err)
		if n != want {
			b.Errorf("%d runs were restored, want %d", n, want)
		}
	}
	restore(0, func(journal.Aside) bool { return false })
	b.advance(time.Second)
	b.checkLeases(b.claim("newer", 10))
	restore(1, func(why journal.Aside) bool { return why.Kind == "prophecy" && why.Build == "a" })
	b.checkLeases(b.claim("newer", 10), "a/r@3")
	restore(1, func(journal.Aside) bool { return true })
	restore(0, func(journal.Aside) bool { return true })
	b.checkLeases(b.claim("last", 10), "b/s@3")
}

// asideRestoredLease restores a run while a batch of its former owner is on its way.
func asideRestoredLease(b *testBench) {
	former := b.setAside("a", "r").lease
	entry := []audit.Entry{{Kind: "note", At: b.now().UnixMilli(), Body: map[string]any{}}}
	b.ok(b.Journal.Append(b.Context(), former, 2, journal.Batch{Audit: entry}))
	_, err := b.Leases.Restore(b.Context(), func(journal.Aside) bool { return true })
	b.ok(err)
	b.checkLeases(b.claim("newer", 10), "a/r@3")
	b.ok(b.Journal.Append(b.Context(), journal.Lease{Org: "a", RunID: "r"}, 2, journal.Batch{Sync: true, Audit: entry}))
	b.checkLeases(b.claim("third", 10))
}
