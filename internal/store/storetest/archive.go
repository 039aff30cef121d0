package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func archiveCases() []rule {
	return []rule{
		{"a missing run is not found", "Load returns ErrNotFound; Runs of an unknown org is empty", func(b *testBench) {
			_, err := b.Archive.Load(b.Context(), "a", "r")
			b.checkError(err, org.ErrNotFound)
			runs, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: 10})
			checkEmpty(b, runs, err)
			_, err = b.Archive.Runs(b.Context(), "a", journal.Query{Before: "r", Limit: 10})
			b.checkError(err, org.ErrNotFound)
		}},
		{"a summary is the sum of the facts", "after every fact, in Runs and in Load", summary},
		{"runs are listed in pages, the latest first", "runs of one millisecond by descending id; no page loses or repeats a run", pages},
		{"a list has the runs that the query chooses", "the limit counts chosen runs; Before may name a run that is not chosen", chosenRuns},
		{"a running run can be read", "Load returns the journal so far", func(b *testBench) {
			a := b.begin("a", "r")
			story := a.checkStored()
			if story.Summary.Status != journal.Running || story.Summary.FinishedAt != 0 {
				b.Errorf("the summary of a running run: %+v", story.Summary)
			}
		}},
		{"the head has the end and the size of the journal, and the lease", "after every append; ErrNotFound for a missing run", func(b *testBench) {
			_, err := b.Archive.Head(b.Context(), "a", "r")
			b.checkError(err, org.ErrNotFound)
			a := b.begin("a", "r")
			before, err := b.Archive.Head(b.Context(), "a", "r")
			b.ok(err)
			b.equal(before.Summary, a.checkStored().Summary)
			b.equal(before.Lease(), a.lease)
			b.equal(before.LeaseUntil, journal.LeaseEnd(b.clocks().Leases()))
			text := strings.Repeat("ü", 1000)
			b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "x", Value: text}}}, input("x")))
			after, err := b.Archive.Head(b.Context(), "a", "r")
			b.ok(err)
			b.equal(after.Seq, before.Seq+1)
			facts := a.checkStored().Facts
			b.equal(after.At, facts[len(facts)-1].At)
			if grown := after.Bytes - before.Bytes; grown < 2000 || grown > 3000 {
				b.Errorf("a row of 2002 bytes makes the journal %d bytes larger, want 2000 to 3000", grown)
			}
			_, err = b.Archive.Head(b.Context(), "b", "r")
			b.checkError(err, org.ErrNotFound)
		}},
		{"the ends of runs are found by their ids", "of those that have ended, and only of the org", func(b *testBench) {
			b.begin("a", "cancelled").write(loop.Finished{Reason: event.Cancelled})
			b.begin("a", "complete").write(loop.Finished{Reason: event.Complete})
			b.begin("a", "not asked for").write(loop.Finished{Reason: event.Complete})
			b.begin("b", "of b").write(loop.Finished{Reason: event.Complete})
			b.begin("a", "running")
			got, err := b.Archive.Reasons(b.Context(), "a", []string{"complete", "running", "missing", "of b", "cancelled", "complete"})
			b.ok(err)
			b.equal(got, map[string]event.Reason{"cancelled": event.Cancelled, "complete": event.Complete})
			got, err = b.Archive.Reasons(b.Context(), "a", nil)
			b.ok(err)
			b.equal(len(got), 0)
		}},
		{"facts are read in pages", "in order, up to a size; no more than that is read", factPages},
		{"rows are read by name", "in the order that was asked for, up to a missing one or a size", rowPages},
		{"a page ends before a fact that cannot be decoded", "what comes before it can be shown", unreadablePages},
		{"a run that grows is read without gaps", "a follower reads pages while the owner appends: every fact once, in order", growingRun},
		{"what is appended without waiting is read soon", "a light run can be followed", soonRead},
		{"rows remain after the run has ended", "a finished run is still shown", rowsStay},
		{"what runs begin with stays whole", "runs of a conversation begin with the same items, and a store may store those once", promptsStay},
		{"a caller may modify a story", "Load returns copies", func(b *testBench) {
			a := b.begin("a", "r")
			b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "x", Value: 1}}}, input("x")))
			story := a.checkStored()
			story.Facts[0].Body = loop.Resumed{}
			delete(story.Rows, "x")
			b.equal(a.checkStored().Rows, map[string]json.RawMessage{"x": json.RawMessage("1")})
		}},
	}
}

func summary(b *testBench) {
	a := b.author("a", "r")
	usage := model.Usage{Input: 10, Output: 5, Total: 15}
	want := journal.Summary{
		Org: "a", RunID: "r", Principal: "key of a", Surface: "chat", Grade: loop.Light, Model: "m",
		Status: journal.Running, CreatedAt: a.clock.Load(),
	}
	turn := loop.Turn{Purpose: loop.PurposeTurn, Stop: model.StopCalls, Usage: usage}
	steps := []struct {
		body loop.Body
		then func()
	}{
		{accepted("a", "r"), func() {}},
		{loop.TurnFailed{Attempt: 1, Class: model.Transient, Usage: usage}, func() { want.Tokens = 15 }},
		{turn, func() { want.Tokens, want.Rounds = 30, 1 }},
		{started("0.0", 1), func() { want.Calls = 1 }},
		{started("0.0", 2), func() {}},
		{started("0.1", 1), func() { want.Calls = 2 }},
		{loop.CallDone{Key: "0.2", Outcome: loop.Denied}, func() {}},
		{loop.Parked{}, func() { want.Status, want.Grade = journal.Waiting, loop.Durable }},
		{loop.Resumed{}, func() { want.Status = journal.Running }},
		{loop.Turn{Purpose: "compact", Usage: usage}, func() { want.Tokens = 45 }},
		{turn, func() { want.Tokens, want.Rounds = 60, 2 }},
		{loop.Finished{Reason: event.MaxRounds}, func() {
			want.Status, want.Reason, want.FinishedAt = journal.Done, event.MaxRounds, a.clock.Load()
		}},
	}
	for _, step := range steps {
		a.write(step.body)
		step.then()
		b.equal(a.checkStored().Summary, want)
		runs, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: 10})
		b.ok(err)
		b.equal(runs, []journal.Summary{want})
		a.clock.Add(7)
	}
}

func pages(b *testBench) {
	var want []string
	for i := range 25 {
		if i%3 == 0 {
			b.clock.Add(1)
		}
		b.begin("a", fmt.Sprintf("run %02d", i))
		b.begin("b", fmt.Sprintf("run %02d", i))
		want = append([]string{fmt.Sprintf("run %02d", i)}, want...)
	}
	for _, size := range []int{1, 4, 25, 100} {
		var got []string
		for before := ""; ; before = got[len(got)-1] {
			page, err := b.Archive.Runs(b.Context(), "a", journal.Query{Before: before, Limit: size})
			b.ok(err)
			for _, s := range page {
				if s.Org != "a" {
					b.Fatalf("a run of another org: %+v", s)
				}
				got = append(got, s.RunID)
			}
			if len(page) < size {
				break
			}
		}
		b.equal(got, want)
	}
	for _, limit := range []int{0, -1} {
		page, err := b.Archive.Runs(b.Context(), "a", journal.Query{Limit: limit})
		checkEmpty(b, page, err)
	}
}

// chosenRuns makes 60 runs, one each 10 ms, of two keys and six states.
func chosenRuns(b *testBench) {
	var all []journal.Summary
	for i := range 60 {
		b.clock.Add(10)
		opening := accepted("a", fmt.Sprintf("run %02d", i))
		opening.Principal = []string{"k", "'; --"}[i%2]
		a := b.author("a", opening.RunID)
		a.write(opening)
		switch i % 7 {
		case 1:
			a.write(loop.Parked{})
		case 2, 3:
			a.write(loop.Finished{Reason: event.Complete})
		case 4:
			a.write(loop.Finished{Reason: event.ModelError})
		case 5:
			a.write(loop.Finished{Reason: event.Cancelled})
		}
		b.begin("b", fmt.Sprintf("run %02d", i))
		all = append([]journal.Summary{a.checkStored().Summary}, all...)
	}
	for _, q := range []journal.Query{
		{},
		{States: []string{"complete"}},
		{States: []string{"running", "waiting"}},
		{States: []string{"done"}},
		{States: []string{"model_error", "cancelled", "lost"}, Principal: "'; --"},
		{Principal: "k"},
		{Principal: "somebody else"},
		{Since: all[20].CreatedAt},
		{Since: all[20].CreatedAt + 1, Principal: "k", States: []string{"complete"}},
		{Since: b.now().UnixMilli() + 1},
		{Before: all[10].RunID, States: []string{"complete"}},
		{Before: all[10].RunID, Since: all[40].CreatedAt, States: []string{all[10].State(), "running"}, Principal: all[10].Principal},
	} {
		for _, q.Limit = range []int{0, 1, 3, 100} {
			var want []journal.Summary
			for _, s := range all {
				if (q.Before == "" || s.RunID < q.Before) && s.CreatedAt >= q.Since &&
					(q.Principal == "" || s.Principal == q.Principal) && len(want) < q.Limit &&
					(len(q.States) == 0 || slices.Contains(q.States, s.State())) {
					want = append(want, s)
				}
			}
			got, err := b.Archive.Runs(b.Context(), "a", q)
			b.ok(err)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				b.Errorf("%+v: differs (-want +got):\n%s", q, diff)
			}
		}
	}
}

func rowsStay(b *testBench) {
	a := b.begin("a", "r")
	long := strings.Repeat("long ", 600_000) // 3 MB
	items := item.List{item.NewText(item.User, "<b>Grüße</b> & \u2028"), item.NewText(item.Assistant, long)}
	items[0].Native = item.Native{Dialect: "d", JSON: json.RawMessage(`{"a":"<&>","n":12345678901234567890}`)}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "input", Value: items}}}, input("input")))
	a.write(loop.Finished{Reason: event.Complete})
	var got item.List
	b.ok(json.Unmarshal(a.checkStored().Rows["input"], &got))
	b.equal(got, items)
}

// What runs begin with is stored whole, however much of it other runs of the org have, and whichever of them are deleted.
func promptsStay(b *testBench) {
	text := func(role item.Role, n int) item.Item {
		return item.NewText(role, fmt.Sprint(n, strings.Repeat(" said", 1000)))
	}
	system := item.List{item.NewText(item.System, "be brief")}
	var said, branch item.List
	for n := range 20 {
		said = append(said, text(item.User, n), text(item.Assistant, n))
	}
	branch = append(append(branch, said[:8]...), text(item.User, 100))
	edited := append(item.List{text(item.User, 101)}, said...)
	for _, org := range []string{"a", "bb"} {
		for i, p := range []journal.Prompt{
			{Front: system}, {Rest: said[:2]}, {Front: system, Rest: said[:6]}, {Rest: said[:8]}, {Rest: said[:8]}, {Rest: branch},
			{Rest: said}, {Rest: edited}, {Rest: said[:4]},
		} {
			r := b.begin(org, fmt.Sprint("r", i))
			b.ok(r.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "input", Value: p}}}, input("input")))
			want, err := slices.Concat(p.Front, p.Rest).MarshalJSON()
			b.ok(err)
			rows, err := b.Archive.Rows(b.Context(), org, fmt.Sprint("r", i), []string{"input"}, len(want)+8192)
			b.ok(err)
			for _, stored := range []json.RawMessage{rows[0], r.checkStored().Rows["input"]} {
				if !bytes.Equal(stored, want) {
					b.Errorf("prompt %d of %s has %d bytes that differ from the %d that were stored", i, org, len(stored), len(want))
				}
			}
		}
	}
}

// noLimit is more than a case stores.
const noLimit = 1 << 30

func factPages(b *testBench) {
	_, err := b.Archive.Facts(b.Context(), "a", "r", 0, noLimit)
	b.checkError(err, org.ErrNotFound)
	a := b.begin("a", "r")
	a.write(input(strings.Repeat("x", 100)), input(strings.Repeat("y", 100)), input(strings.Repeat("z", 5000)), input("end"))
	_, err = b.Archive.Facts(b.Context(), "bb", "r", 0, noLimit)
	b.checkError(err, org.ErrNotFound)
	for after := range a.facts {
		facts, err := b.Archive.Facts(b.Context(), "a", "r", int64(after), noLimit)
		b.ok(err)
		b.equal(facts, a.facts[after:])
	}
	facts, err := b.Archive.Facts(b.Context(), "a", "r", a.after(), noLimit)
	checkEmpty(b, facts, err)
	facts, err = b.Archive.Facts(b.Context(), "a", "r", -1, noLimit)
	b.ok(err)
	b.equal(facts, a.facts)

	encoded, err := json.Marshal(a.facts[1].Body)
	b.ok(err)
	for limit, want := range map[int][]loop.Fact{len(encoded): a.facts[1:2], 2*len(encoded) - 1: a.facts[1:2], 2 * len(encoded): a.facts[1:3], 5000: a.facts[1:3]} {
		facts, err := b.Archive.Facts(b.Context(), "a", "r", 1, limit)
		b.ok(err)
		b.equal(facts, want)
	}
	var large *journal.TooLarge
	_, err = b.Archive.Facts(b.Context(), "a", "r", 3, 5000)
	if !errors.As(err, &large) || large.Bytes < 5000 || large.Bytes > 6000 {
		b.Fatalf("a fact of more than 5000 bytes: %v", err)
	}
	facts, err = b.Archive.Facts(b.Context(), "a", "r", 3, large.Bytes)
	b.ok(err)
	b.equal(facts, a.facts[3:4])
}

func rowPages(b *testBench) {
	_, err := b.Archive.Rows(b.Context(), "a", "r", []string{"x"}, noLimit)
	b.checkError(err, org.ErrNotFound)
	a := b.begin("a", "r")
	rows := []journal.Row{{Ref: "x", Value: 1}, {Ref: "long", Value: strings.Repeat("ü", 50)}, {Ref: "z", Value: "<é>"}}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: rows}, input("x")))
	_, err = b.Archive.Rows(b.Context(), "bb", "r", []string{"x"}, noLimit)
	b.checkError(err, org.ErrNotFound)
	one, long, z := json.RawMessage(`1`), json.RawMessage(`"`+strings.Repeat("ü", 50)+`"`), json.RawMessage(`"<é>"`)
	for _, c := range []struct {
		refs  []string
		limit int
		want  []json.RawMessage
	}{
		{[]string{"z", "x", "long"}, noLimit, []json.RawMessage{z, one, long}},
		{[]string{"x", "x"}, noLimit, []json.RawMessage{one, one}},
		{[]string{"x", "missing", "z"}, noLimit, []json.RawMessage{one}},
		{[]string{"missing", "x"}, noLimit, nil},
		{nil, noLimit, nil},
		{[]string{"x", "long", "z"}, 102, []json.RawMessage{one}},
		{[]string{"x", "long", "z"}, 103, []json.RawMessage{one, long}},
		{[]string{"long"}, 102, []json.RawMessage{long}},
	} {
		got, err := b.Archive.Rows(b.Context(), "a", "r", c.refs, c.limit)
		b.ok(err)
		b.equal(got, c.want)
	}
	var large *journal.TooLarge
	if _, err = b.Archive.Rows(b.Context(), "a", "r", []string{"long", "x"}, 101); !errors.As(err, &large) || large.Bytes != 102 {
		b.Errorf("a row of 102 bytes: %v", err)
	}
}

func unreadablePages(b *testBench) {
	a := b.begin("a", "r")
	a.write(input("x"), futureFact{Text: "soon"}, started("0.0", 1))
	facts, err := b.Archive.Facts(b.Context(), "a", "r", 0, noLimit)
	b.ok(err)
	b.equal(facts, a.facts[:2])
	_, err = b.Archive.Facts(b.Context(), "a", "r", 2, noLimit)
	b.checkError(err, loop.ErrUnknownKind)
	var bad *journal.Unreadable
	if !errors.As(err, &bad) || bad.Seq != 3 || bad.Kind != "prophecy" || bad.Version != loop.Version || bad.Last != 4 || bad.Story != nil {
		b.Errorf("got %+v", bad)
	}
	facts, err = b.Archive.Facts(b.Context(), "a", "r", 3, noLimit)
	b.ok(err)
	b.equal(facts, a.facts[3:])

	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	var all errgroup.Group
	for range 64 { // more than a store has connections
		all.Go(func() error {
			if _, err := b.Archive.Facts(ctx, "a", "r", 2, noLimit); !errors.Is(err, loop.ErrUnknownKind) {
				return fmt.Errorf("one of many readers: %w", err)
			}
			return nil
		})
	}
	b.ok(all.Wait())
}

func growingRun(b *testBench) {
	const facts = 300
	a := b.begin("a", "r")
	written := make(chan error, 1)
	go func() {
		for i := a.after(); i < facts; i++ {
			if err := a.append(b.Context(), journal.Batch{Sync: i%50 == 0}, input(strings.Repeat("x", int(i)))); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	var got []loop.Fact
	for begin := time.Now(); len(got) < facts && time.Since(begin) < 10*time.Second; {
		page, err := b.Archive.Facts(b.Context(), "a", "r", int64(len(got)), 2000)
		if err != nil {
			b.Errorf("after fact %d: %v", len(got), err)
			break
		}
		got = append(got, page...)
	}
	b.ok(<-written)
	b.equal(got, a.facts)
}

func soonRead(b *testBench) {
	a := b.begin("a", "r")
	b.ok(a.append(b.Context(), journal.Batch{}, input("x")))
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		facts, err := b.Archive.Facts(b.Context(), "a", "r", 1, noLimit)
		b.ok(err)
		if len(facts) == 1 {
			return
		}
		if time.Since(begin) > 10*time.Second {
			b.Fatalf("a fact is not read %v after it was appended", time.Since(begin))
		}
	}
}
