package storetest

import (
	"context"
	"errors"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// author writes the journal of one run, as its owner.
type author struct {
	*testBench
	lease journal.Lease
	facts []loop.Fact // the facts that were appended
}

// begin opens a run's journal.
func (b *testBench) begin(orgID, runID string) *author {
	b.Helper()
	a := b.author(orgID, runID)
	a.write(accepted(orgID, runID))
	return a
}

// owner is the owner of an author's lease, unless a case says otherwise.
const owner = "owner"

// author returns the author of a run that has no journal yet.
func (b *testBench) author(orgID, runID string) *author {
	return &author{testBench: b, lease: journal.Lease{Org: orgID, RunID: runID, Epoch: 1, Owner: owner}}
}

func accepted(orgID, runID string) loop.Accepted {
	return loop.Accepted{
		RunID: runID, Org: orgID, Principal: "key of " + orgID, Surface: "chat", Policy: loop.Policy{Grade: loop.Light}, Model: "m",
		Targets: []loop.Target{{Provider: "p", Model: "p-m"}},
	}
}

// after returns the number of the last fact, 0 for none.
func (a *author) after() int64 { return int64(len(a.facts)) }

// number makes facts with the next numbers.
func (a *author) number(bodies ...loop.Body) []loop.Fact {
	facts := make([]loop.Fact, len(bodies))
	for i, body := range bodies {
		facts[i] = loop.Fact{Seq: a.after() + 1 + int64(i), Epoch: a.lease.Epoch, At: a.clock.Load(), Version: loop.Version, Body: body}
	}
	return facts
}

// append appends a batch with the bodies. It remembers the facts if there is no error.
func (a *author) append(ctx context.Context, b journal.Batch, bodies ...loop.Body) error {
	b.Facts = a.number(bodies...)
	err := a.Journal.Append(ctx, a.lease, a.after(), b)
	if err == nil {
		a.facts = append(slices.Clip(a.facts), b.Facts...)
	}
	return err
}

// write appends the bodies and waits until they are on disk.
func (a *author) write(bodies ...loop.Body) {
	a.Helper()
	a.ok(a.append(a.Context(), journal.Batch{Sync: true}, bodies...))
}

// checkStored fails the case unless the journal contains exactly what was written.
func (a *author) checkStored() *journal.Story {
	a.Helper()
	story, err := a.Archive.Load(a.Context(), a.lease.Org, a.lease.RunID)
	a.ok(err)
	a.equal(story.Facts, a.facts)
	return story
}

// checkBehind fails the case unless err is a *journal.Behind with these facts.
func (b *testBench) checkBehind(err error, want ...loop.Fact) {
	b.Helper()
	var behind *journal.Behind
	if !errors.As(err, &behind) {
		b.Fatalf("got error %v, want a *journal.Behind", err)
	}
	b.equal(behind.Facts, want)
}

// Constructors of facts.
func input(ref string) loop.Body { return loop.InputAdded{ItemsRef: ref, By: loop.ByClient} }

func started(key loop.CallKey, attempt int) loop.Body {
	return loop.CallStarted{Key: key, Attempt: attempt, IdemKey: "idem " + string(key)}
}

func done(key loop.CallKey, attempt int) loop.Body {
	return loop.CallDone{Key: key, Attempt: attempt, Outcome: loop.OK, ResultRef: "result", ResultDigest: "d", Micros: 3456}
}
