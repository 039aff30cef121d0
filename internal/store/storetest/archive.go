package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func archiveCases() []rule {
	return []rule{
		{"a missing run is not found", "Load returns ErrNotFound; Runs of an unknown org is empty", func(b *testBench) {
			_, err := b.Archive.Load(b.Context(), "a", "r")
			b.checkError(err, org.ErrNotFound)
			runs, err := b.Archive.Runs(b.Context(), "a", run.Query{Limit: 10})
			checkEmpty(b, runs, err)
			_, err = b.Archive.Runs(b.Context(), "a", run.Query{Before: "r", Limit: 10})
			b.checkError(err, org.ErrNotFound)
		}},
		{"a summary is the sum of the facts", "after every fact, in Runs and in Load", summary},
		{"runs are listed in pages, the latest first", "runs of one millisecond by descending id; no page loses or repeats a run", pages},
		{"a list has the runs that the query chooses", "the limit counts chosen runs; Before may name a run that is not chosen", chosenRuns},
		{"a running run can be read", "Load returns the journal so far", func(b *testBench) {
			a := b.begin("a", "r")
			story := a.checkStored()
			if story.Summary.Status != run.Running || story.Summary.FinishedAt != 0 {
				b.Errorf("the summary of a running run: %+v", story.Summary)
			}
		}},
		{"the head has the end and the size of the journal", "after every append; ErrNotFound for a missing run", func(b *testBench) {
			_, err := b.Archive.Head(b.Context(), "a", "r")
			b.checkError(err, org.ErrNotFound)
			a := b.begin("a", "r")
			before, err := b.Archive.Head(b.Context(), "a", "r")
			b.ok(err)
			b.equal(before.Summary, a.checkStored().Summary)
			text := strings.Repeat("ü", 1000)
			b.ok(a.append(b.Context(), run.Batch{Sync: true, Rows: []run.Row{{Ref: "x", Value: text}}}, input("x")))
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
		{"rows remain after the run has ended", "a finished run is still shown", rowsStay},
		{"a caller may modify a story", "Load returns copies", func(b *testBench) {
			a := b.begin("a", "r")
			b.ok(a.append(b.Context(), run.Batch{Sync: true, Rows: []run.Row{{Ref: "x", Value: 1}}}, input("x")))
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
	want := run.Summary{
		Org: "a", RunID: "r", Principal: "key of a", Surface: "chat", Grade: loop.Light, Model: "m",
		Status: run.Running, CreatedAt: a.clock.Load(),
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
		{loop.Parked{}, func() { want.Status, want.Grade = run.Waiting, loop.Durable }},
		{loop.Resumed{}, func() { want.Status = run.Running }},
		{loop.Turn{Purpose: "compact", Usage: usage}, func() { want.Tokens = 45 }},
		{turn, func() { want.Tokens, want.Rounds = 60, 2 }},
		{loop.Finished{Reason: event.MaxRounds}, func() {
			want.Status, want.Reason, want.FinishedAt = run.Done, event.MaxRounds, a.clock.Load()
		}},
	}
	for _, step := range steps {
		a.write(step.body)
		step.then()
		b.equal(a.checkStored().Summary, want)
		runs, err := b.Archive.Runs(b.Context(), "a", run.Query{Limit: 10})
		b.ok(err)
		b.equal(runs, []run.Summary{want})
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
			page, err := b.Archive.Runs(b.Context(), "a", run.Query{Before: before, Limit: size})
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
		page, err := b.Archive.Runs(b.Context(), "a", run.Query{Limit: limit})
		checkEmpty(b, page, err)
	}
}

// chosenRuns makes 60 runs, one each 10 ms, of two keys and six states.
func chosenRuns(b *testBench) {
	var all []run.Summary
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
		all = append([]run.Summary{a.checkStored().Summary}, all...)
	}
	for _, q := range []run.Query{
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
			var want []run.Summary
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
	b.ok(a.append(b.Context(), run.Batch{Sync: true, Rows: []run.Row{{Ref: "input", Value: items}}}, input("input")))
	a.write(loop.Finished{Reason: event.Complete})
	var got item.List
	b.ok(json.Unmarshal(a.checkStored().Rows["input"], &got))
	b.equal(got, items)
}
