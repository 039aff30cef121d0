package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func journalCases() []rule {
	return []rule{
		{"every kind of fact is stored unchanged", "Load returns facts equal to those that were appended", everyKind},
		{"facts are numbered without gaps", "a batch that does not start after the last fact, or skips a number, is refused as a whole", gapless},
		{"a journal starts with accepted", "its org and run must be those of the lease", opening},
		{"a lower epoch is fenced", "a writer that has lost the lease is refused; a writer without a lease is not", fencing},
		{"a writer that is behind gets the facts it missed", "Behind has the facts after the last one that the writer knows, and nothing is stored", behindWriter},
		{"Behind includes unsynced facts", "facts that are still in the queue count", behindUnsynced},
		{"an attempt at a call is recorded once", "a second fact of the same kind, call and attempt: ErrExists", repeated},
		{"a batch is stored completely or not at all", "facts and rows together", atomicBatch},
		{"a ref is used once per run", "a row that facts refer to never changes: ErrExists", refReused},
		{"unsynced batches are stored in order", "the next synced append returns after they are on disk", unsynced},
		{"the error of an unsynced batch is returned", "by that append or by the run's next one; the journal then continues from what was stored", lateFailure},
		{"an empty synced batch waits for earlier ones", "a writer uses it as a barrier", emptyBatch},
		{"runs do not share each other's errors", "64 concurrent writers, some of which repeat a fact", concurrentWriters},
		{"an append ends with its context", "even if the write cannot be performed yet", cancelledAppend},
	}
}

func everyKind(b *testBench) {
	a, full := b.author("a", "r"), accepted("a", "r")
	full.Limits.Rounds, full.Limits.NanoUSD, full.Guard.Threshold = 10, new(int64(5)), 3
	usage := model.Usage{Input: 1, Output: 2, Total: 3, Reasoning: 1}
	bodies := []loop.Body{
		full,
		loop.InputAdded{ItemsRef: "input", By: loop.ByClient},
		loop.HookRan{Point: loop.OnRunStart, Hook: "h", Verdict: loop.HookAllow, Micros: 7},
		loop.Catalogued{Servers: []loop.Server{{Label: "s", Tools: 2, Error: "<down> & out"}}, Conflict: &loop.Conflict{Tool: "t", Server: "s"}},
		loop.Routed{Round: 0, Attempt: 1, Order: []int{0}},
		loop.Reserved{Round: 0, Attempt: 1, Scopes: []string{"run"}, Amount: budget.Amount{Tokens: 3}},
		loop.TurnStarted{Round: 0, Attempt: 1, Purpose: loop.PurposeTurn, PromptDigest: "d"},
		loop.TurnFailed{Attempt: 1, Class: model.Transient, Status: 503, ErrorRef: "e", RetryAt: 12, Usage: usage},
		loop.Turn{Purpose: loop.PurposeTurn, ItemsRef: "t", Stop: model.StopCalls, Usage: usage, Calls: []loop.TurnCall{{ProviderID: "c", Name: "t", Arguments: "{\"a\": \"\u2028\x00é\"", Complete: true}}},
		loop.CallPrepared{Key: "0.0", Owner: tool.Gateway, Tool: "t", Server: "s", Class: tool.Once, ArgsDigest: "d", Verdict: loop.Ask},
		loop.CallWaiting{Key: "0.0", WaitID: "w", On: loop.OnApproval, ExpiresAt: 99},
		loop.Parked{ActiveMS: 5},
		loop.CallResolved{WaitID: "w", Approved: true, By: "somebody", Message: "go"},
		loop.Resumed{},
		started("0.0", 1),
		done("0.0", 1),
		loop.Blocked{Reason: "private", Address: "10.0.0.1", Server: "s"},
		loop.Expired{WaitID: "w"},
		loop.Compacted{Until: 1, Before: 9, After: 3, Usage: usage},
		loop.ReserveRefused{Round: 1, Attempt: 1, Scope: "org/total", Amount: budget.Amount{Tokens: 3}},
		loop.Paused{WaitID: "w2", Reason: event.Tokens, ActiveMS: 9},
		loop.LimitsRaised{By: "somebody", Raise: budget.Raise{Rounds: 1}, WaitID: "w2"},
		loop.CancelRequested{By: "somebody", Cause: event.Cancelled},
		loop.Finished{Reason: event.Cancelled, Code: "c"},
	}
	kinds := map[loop.Kind]bool{}
	for _, body := range bodies {
		a.clock.Add(1)
		a.write(body)
		kinds[body.Kind()] = true
	}
	b.equal(slices.Sorted(maps.Keys(kinds)), loop.Kinds())
	a.checkStored()
}

func gapless(b *testBench) {
	a := b.begin("a", "r")
	for _, facts := range [][]loop.Fact{
		{{Seq: 3, Body: input("x")}},
		{{Seq: 1, Body: input("x")}},
		{{Seq: 2, Body: input("x")}, {Seq: 4, Body: input("y")}},
		{{Seq: 2, Body: input("x")}, {Seq: 2, Body: input("y")}},
		{{Seq: 2}},
	} {
		if err := b.Journal.Append(b.Context(), a.lease, 1, journal.Batch{Sync: true, Facts: facts}); err == nil {
			b.Errorf("accepted after fact 1: %+v", facts)
		}
	}
	err := b.Journal.Append(b.Context(), a.lease, 5, journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 6, Body: input("x")}}})
	if err == nil || errors.As(err, new(*journal.Behind)) {
		b.Errorf("a batch after the end of the journal got %v", err)
	}
	a.write(input("x"), input("y"))
	a.checkStored()
}

func opening(b *testBench) {
	a := b.author("a", "r")
	refusedAsOpening := func(batch journal.Batch, bodies ...loop.Body) {
		b.Helper()
		if a.append(b.Context(), batch, bodies...) == nil {
			b.Fatalf("accepted as the start of a journal: %+v", bodies)
		}
	}
	refusedAsOpening(journal.Batch{Sync: true}, input("x"))
	refusedAsOpening(journal.Batch{Sync: true}, accepted("b", "r"))
	refusedAsOpening(journal.Batch{Sync: true}, accepted("a", "other"))
	refusedAsOpening(journal.Batch{Sync: true}, accepted("a", "r"), accepted("a", "r"))
	refusedAsOpening(journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "x", Value: 1}}})
	_, err := b.Archive.Load(b.Context(), "a", "r")
	b.checkError(err, org.ErrNotFound)
	a.write(accepted("a", "r"), input("x"))
	refusedAsOpening(journal.Batch{Sync: true}, accepted("a", "r"))
	a.checkStored()
}

func fencing(b *testBench) {
	old := b.begin("a", "r")
	next := *old
	next.lease.Epoch = 2
	next.write(input("x"))
	b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("y")), journal.ErrFenced)
	b.checkError(old.append(b.Context(), journal.Batch{}, input("y")), journal.ErrFenced)

	without := next
	without.lease.Epoch = 0
	without.write(loop.CancelRequested{By: "somebody", Cause: event.Cancelled})
	without.checkStored()
	next.facts = without.facts
	next.write(input("z"))
	b.checkError(old.append(b.Context(), journal.Batch{Sync: true}, input("y")), journal.ErrFenced)
	next.checkStored()
}

func behindWriter(b *testBench) {
	a := b.begin("a", "r")
	late := *a
	a.write(input("x"))
	a.write(input("y"), input("z"))
	for _, sync := range []bool{true, false} {
		batch := journal.Batch{Sync: sync, Rows: []journal.Row{{Ref: "late", Value: 1}}}
		b.checkBehind(late.append(b.Context(), batch, input("late")), a.facts[1:]...)
	}
	late.facts = a.facts[:3]
	b.checkBehind(late.append(b.Context(), journal.Batch{Sync: true}, input("late")), a.facts[3:]...)
	if story := a.checkStored(); len(story.Rows) > 0 {
		b.Errorf("rows of a refused batch are stored: %s", story.Rows)
	}
	late.facts = a.facts
	late.write(input("late"))
	late.checkStored()
}

func behindUnsynced(b *testBench) {
	a := b.begin("a", "r")
	late := *a
	b.ok(a.append(b.Context(), journal.Batch{}, input("x")))
	b.ok(a.append(b.Context(), journal.Batch{}, input("y")))
	b.checkBehind(late.append(b.Context(), journal.Batch{}, input("late")), a.facts[1:]...)
	a.checkStored()
}

func repeated(b *testBench) {
	a := b.begin("a", "r")
	a.write(started("0.0", 1), started("0.1", 1), done("0.0", 1))
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true}, started("0.0", 1)), org.ErrExists)
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true}, input("x"), done("0.0", 1)), org.ErrExists)
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true}, started("0.2", 1), started("0.2", 1)), org.ErrExists)
	a.write(started("0.1", 2), done("0.1", 2), started("0.2", 1), input("x"), input("x"))
	a.checkStored()
	b.begin("a", "other").write(started("0.0", 1))
	b.begin("b", "r").write(started("0.0", 1))
}

func atomicBatch(b *testBench) {
	a := b.begin("a", "r")
	a.write(started("0.0", 1))
	rows := []journal.Row{{Ref: "x", Value: "x"}}
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true, Rows: rows}, input("x"), started("0.0", 1)), org.ErrExists)
	bad := []journal.Row{rows[0], {Ref: "bad", Value: func() {}}}
	if a.append(b.Context(), journal.Batch{Sync: true, Rows: bad}, input("x")) == nil {
		b.Error("a row that is not JSON was accepted")
	}
	if story := a.checkStored(); len(story.Rows) > 0 || story.Summary.Calls != 1 {
		b.Errorf("a part of a batch is stored: %+v", story)
	}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: rows}, input("x")))
	b.equal(a.checkStored().Rows, map[string]json.RawMessage{"x": json.RawMessage(`"x"`)})
}

func refReused(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "x", Value: 1}}}, input("x")))
	again := journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "y", Value: 2}, {Ref: "x", Value: 3}}}
	b.checkError(a.append(b.Context(), again, input("y")), org.ErrExists)
	twice := journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "y", Value: 2}, {Ref: "y", Value: 3}}}
	b.checkError(a.append(b.Context(), twice, input("y")), org.ErrExists)
	b.equal(a.checkStored().Rows, map[string]json.RawMessage{"x": json.RawMessage("1")})
}

func unsynced(b *testBench) {
	a := b.begin("a", "r")
	want := map[string]json.RawMessage{}
	for i := range 250 {
		ref := fmt.Sprint("row ", i)
		want[ref] = json.RawMessage(fmt.Sprint(i))
		b.ok(a.append(b.Context(), journal.Batch{Rows: []journal.Row{{Ref: ref, Value: i}}}, input(ref)))
	}
	story, err := b.Archive.Load(b.Context(), "a", "r")
	b.ok(err)
	b.equal(story.Facts, a.facts[:len(story.Facts)]) // what is stored so far is a prefix
	a.write(input("last"))
	b.equal(a.checkStored().Rows, want)
}

func lateFailure(b *testBench) {
	a := b.begin("a", "r")
	a.write(started("0.0", 1))
	honest := *a
	early := a.append(b.Context(), journal.Batch{}, started("0.0", 1))
	late := a.append(b.Context(), journal.Batch{Sync: true}, input("x"))
	if early == nil {
		b.checkError(late, org.ErrExists)
	} else {
		b.checkError(early, org.ErrExists)
		b.ok(late)
		honest = *a
	}
	honest.write(input("y"))
	honest.checkStored()
}

func emptyBatch(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.append(b.Context(), journal.Batch{}, input("x")))
	b.ok(a.append(b.Context(), journal.Batch{Sync: true}))
	a.checkStored()
}

func concurrentWriters(b *testBench) {
	const writers, rounds = 64, 8
	var group errgroup.Group
	authors := make([]*author, writers)
	for i := range authors {
		a := b.author("a", fmt.Sprintf("run %02d", i))
		authors[i] = a
		group.Go(func() error { return a.writeRun(b.Context(), rounds, i%3 == 0) })
	}
	b.ok(group.Wait())
	for _, a := range authors {
		story := a.checkStored()
		if got := len(story.Rows); got != rounds {
			b.Errorf("%s has %d rows, want %d", a.lease.RunID, got, rounds)
		}
	}
	runs, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: 100})
	b.ok(err)
	if len(runs) != writers {
		b.Errorf("%d runs, want %d", len(runs), writers)
	}
}

// writeRun writes a run. If clumsy is set, it also tries to repeat each call's start.
func (a *author) writeRun(ctx context.Context, rounds int, clumsy bool) error {
	if err := a.append(ctx, journal.Batch{Sync: true}, accepted(a.lease.Org, a.lease.RunID)); err != nil {
		return err
	}
	for i := range rounds {
		key := loop.Key(i, 0)
		row := journal.Row{Ref: string(key), Value: i}
		if err := a.append(ctx, journal.Batch{Rows: []journal.Row{row}}, started(key, 1)); err != nil {
			return err
		}
		if clumsy {
			if err := a.append(ctx, journal.Batch{Sync: true}, started(key, 1)); !errors.Is(err, org.ErrExists) {
				return fmt.Errorf("repeated call: %w", err)
			}
		}
		if err := a.append(ctx, journal.Batch{Sync: i%2 == 0}, done(key, 1)); err != nil {
			return err
		}
	}
	return a.append(ctx, journal.Batch{Sync: true}, loop.Finished{Reason: event.Complete})
}

func cancelledAppend(b *testBench) {
	a := b.begin("a", "r")
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	err := a.append(ctx, journal.Batch{Sync: true}, input("x"))
	story, loadErr := b.Archive.Load(b.Context(), "a", "r")
	b.ok(loadErr)
	if err != nil && !errors.Is(err, context.Canceled) {
		b.Errorf("got %v, want nil or context.Canceled", err)
	}
	if err == nil && len(story.Facts) != 2 {
		b.Error("the append succeeded, but the fact is not stored")
	}
}
