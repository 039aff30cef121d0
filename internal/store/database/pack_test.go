package database

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/model"
)

// storePacked stores a run of the grade whose facts and rows have every size that matters to
// packs, and returns what was stored.
func storePacked(t *testing.T, s *Store, grade loop.Grade) (facts []loop.Fact, rows map[string]json.RawMessage) {
	t.Helper()
	lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1}
	rows = map[string]json.RawMessage{}
	write := func(texts []any, bodies ...loop.Body) {
		t.Helper()
		batch := journal.Batch{Sync: true}
		after := int64(len(facts))
		for _, body := range bodies {
			f := loop.Fact{Seq: int64(len(facts) + 1), Epoch: 1, At: int64(100 + len(facts)), Version: loop.Version, Body: body}
			batch.Facts, facts = append(batch.Facts, f), append(facts, f)
		}
		for _, text := range texts {
			ref := fmt.Sprintf("row \"%d\"", len(rows))
			stored, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			rows[ref] = stored
			batch.Rows = append(batch.Rows, journal.Row{Ref: ref, Value: json.RawMessage(stored)})
		}
		if err := s.Append(t.Context(), lease, after, batch); err != nil {
			t.Fatal(err)
		}
	}
	turn := func(n int) loop.Turn {
		return loop.Turn{Purpose: loop.PurposeTurn, ItemsRef: "t", Stop: model.StopCalls, Calls: []loop.TurnCall{{ProviderID: "c", Name: "t", Arguments: "{\"a\": 1e400, \"b\": \"\u2028\x00é\\\"" + strings.Repeat("x", n), Complete: true}}}
	}
	write([]any{"in", 12345678901234567, 1.50, []string{"<&>", "\u2028\\"}}, loop.Accepted{Org: "a", RunID: "r", Policy: loop.Policy{Grade: grade}}, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})
	write(nil, loop.TurnStarted{Attempt: 1}, turn(0), loop.CallPrepared{Key: "0.0", Tool: "t"})
	write([]any{"result"}, loop.CallStarted{Key: "0.0", Attempt: 1})
	write(nil, loop.CallDone{Key: "0.0", Attempt: 1, Outcome: loop.OK})
	write([]any{strings.Repeat("y", maxPacked), "z"}, loop.TurnStarted{Round: 1, Attempt: 1}, turn(maxPacked), loop.InputAdded{ItemsRef: "y", By: loop.ByClient})
	write(nil, loop.InputAdded{ItemsRef: "alone", By: loop.ByClient})
	write([]any{"only a row"})
	var many []loop.Body
	for range 20 { // more than a pack has room for
		many = append(many, turn(maxPacked*2/3))
	}
	write([]any{strings.Repeat("m", maxPacked/2), "n"}, many...)
	write(nil, loop.Finished{Reason: event.Complete})
	return facts, rows
}

// readBack reads the run in every way and compares it with what was stored.
func readBack(t *testing.T, s *Store, facts []loop.Fact, rows map[string]json.RawMessage) {
	t.Helper()
	story, err := s.Load(t.Context(), "a", "r")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(facts, story.Facts); diff != "" {
		t.Errorf("Load: facts (-stored +read):\n%s", diff)
	}
	if diff := cmp.Diff(rows, story.Rows); diff != "" {
		t.Errorf("Load: rows (-stored +read):\n%s", diff)
	}
	for after := range len(facts) {
		for _, limit := range []int{2 * maxPacked, 1 << 20} {
			var got []loop.Fact
			for int64(len(got)+after) < int64(len(facts)) {
				page, err := s.Facts(t.Context(), "a", "r", int64(after+len(got)), limit)
				if err != nil || len(page) == 0 {
					t.Fatalf("facts after %d: %d facts, %v", after+len(got), len(page), err)
				}
				got = append(got, page...)
			}
			if diff := cmp.Diff(facts[after:], got); diff != "" {
				t.Errorf("facts after %d (-stored +read):\n%s", after, diff)
			}
		}
	}
	if _, err := s.Facts(t.Context(), "a", "r", 0, 10); !errors.As(err, new(*journal.TooLarge)) {
		t.Errorf("facts of more than 10 bytes: got %v, want *TooLarge", err)
	}
	var refs []string
	for ref := range rows {
		refs = append(refs, ref, ref)
	}
	refs = append(refs, "none", refs[0])
	got, err := s.Rows(t.Context(), "a", "r", refs, 1<<20)
	if err != nil || len(got) != 2*len(rows) {
		t.Fatalf("%d rows, %v, want those before the one that does not exist", len(got), err)
	}
	for i, body := range got {
		if string(body) != string(rows[refs[i]]) {
			t.Errorf("row %s is %.100s, want %.100s", refs[i], body, rows[refs[i]])
		}
	}
	if _, err := s.Rows(t.Context(), "a", "r", []string{`row "0"`}, 3); !errors.As(err, new(*journal.TooLarge)) {
		t.Errorf("a row of more than 3 bytes: got %v, want *TooLarge", err)
	}
	checkUsage(t, s, "a")
}

// The facts and rows of a write of a light run are one row. Every reader gets them as
// they were stored, also after the file was made one of an older release, and one of this
// release again. // P17
func TestPacksAreReadAsTheirFactsAndRows(t *testing.T) {
	for grade, want := range map[loop.Grade][2]int{
		loop.Light:   {11, 2}, // the large row and the one without a fact
		loop.Durable: {32, 10},
	} {
		t.Run(string(grade), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "turnpike.db")
			s := openStore(t, Options{Path: path})
			facts, rows := storePacked(t, s, grade)
			stored := [2]int{rowsOf(t, s, "run_facts"), rowsOf(t, s, "run_rows")}
			if stored != want {
				t.Errorf("%d facts and %d rows became %d rows of run_facts and %d of run_rows, want %v", len(facts), len(rows), stored[0], stored[1], want)
			}
			readBack(t, s, facts, rows)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			readBack(t, openStore(t, Options{Path: path}), facts, rows)
		})
	}
}

// What is in a pack cannot be stored a second time, also not by a process that has not written
// it, and not when the run has become durable.
func TestNamesInPacksAreNotRepeated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1}
	last := int64(0)
	write := func(ref string, bodies ...loop.Body) error {
		batch := journal.Batch{Sync: true}
		for i, body := range bodies {
			batch.Facts = append(batch.Facts, loop.Fact{Seq: last + 1 + int64(i), Epoch: 1, At: 1, Version: 1, Body: body})
		}
		if ref != "" {
			batch.Rows = []journal.Row{{Ref: ref, Value: 1}}
		}
		err := s.Append(t.Context(), lease, last, batch)
		if err == nil {
			last += int64(len(bodies))
		}
		return err
	}
	input := loop.InputAdded{ItemsRef: "x", By: loop.ByClient}
	started := func(key loop.CallKey) loop.Body { return loop.CallStarted{Key: key, Attempt: 1} }
	for _, err := range []error{
		write("packed", loop.Accepted{Org: "a", RunID: "r", Policy: loop.Policy{Grade: loop.Light}}, started("0.0"), started("0.1")),
		write("", started("0.2")), // a row of its own
		write("with a fact", input),
		write("alone"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	repeat := func(when string) {
		t.Helper()
		for _, key := range []loop.CallKey{"0.0", "0.1", "0.2"} {
			for _, more := range [][]loop.Body{nil, {input}} {
				if err := write("", append(more, started(key))...); !errors.Is(err, org.ErrExists) {
					t.Errorf("%s, call_started of %s a second time: got %v, want ErrExists", when, key, err)
				}
			}
		}
		for _, ref := range []string{"packed", "with a fact", "alone"} {
			if err := write(ref, input); !errors.Is(err, org.ErrExists) {
				t.Errorf("%s, row %q a second time: got %v, want ErrExists", when, ref, err)
			}
		}
		if err := write("", started("0.9"), started("0.9")); !errors.Is(err, org.ErrExists) {
			t.Errorf("%s, a call twice in a batch: got %v, want ErrExists", when, err)
		}
	}
	again := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, Options{Path: path})
	}
	repeat("in the same process")
	again()
	repeat("after a restart")
	if err := write("", loop.Parked{}); err != nil {
		t.Fatal(err)
	}
	repeat("when it is durable")
	again()
	repeat("when it is durable, after a restart")
	if err := write("new", started("0.3"), input); err != nil {
		t.Error(err)
	}
}

// A pack that cannot be decoded is reported with its place, and hides no other fact.
func TestAnUnreadablePackIsReported(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	facts, _ := storePacked(t, s, loop.Light)
	for _, change := range []string{`body = '{'`, `v = 2`} {
		perform(t, s, func(x *tx) error {
			_, err := x.exec(`UPDATE run_facts SET ` + change + ` WHERE seq = 5 AND kind = 'pack'`)
			return err
		})
		var bad *journal.Unreadable
		if _, err := s.Load(t.Context(), "a", "r"); !errors.As(err, &bad) || bad.Seq != 5 || bad.Last != facts[len(facts)-1].Seq || len(bad.Story.Facts) == 0 {
			t.Errorf("%s: Load: got %v, want *Unreadable of fact 5", change, err)
		}
		if got, err := s.Facts(t.Context(), "a", "r", 0, 1<<20); err != nil || len(got) != 2 {
			t.Errorf("%s: %d facts, %v, want the two before it", change, len(got), err)
		}
		if _, err := s.Facts(t.Context(), "a", "r", 2, 1<<20); !errors.As(err, &bad) || bad.Seq != 5 {
			t.Errorf("%s: got %v, want *Unreadable of fact 5", change, err)
		}
	}
}

// A group of appends is stored with few statements. If one of them is refused, the others are
// stored all the same, once, with their usage and their audit rows.
func TestARefusedAppendDoesNotAffectItsGroup(t *testing.T) { // P17
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	release := blockWriter(t, s)
	results := make(map[string]chan error)
	for i, orgID := range []string{"a", "b", "c", "c", "a"} { // each org has one slot
		runID := fmt.Sprint(i)
		batch := journal.Batch{
			Sync: true, Opening: &journal.Opening{Slots: 1}, Rows: []journal.Row{{Ref: "x", Value: 1}}, Audit: []audit.Entry{{Kind: "k", At: 1, Body: i}},
			Facts: []loop.Fact{{Seq: 1, Epoch: 1, At: 1, Version: 1, Body: loop.Accepted{Org: orgID, RunID: runID, Policy: loop.Policy{Grade: loop.Light}}}},
		}
		done := make(chan error, 1)
		results[runID] = done
		queued := s.QueueLength()
		go func() {
			done <- s.Append(t.Context(), journal.Lease{Org: orgID, RunID: runID, Epoch: 1, Owner: "o"}, 0, batch)
		}()
		for s.QueueLength() == queued {
			runtime.Gosched()
		}
	}
	release()
	for runID, refused := range map[string]bool{"0": false, "1": false, "2": false, "3": true, "4": true} {
		if err := <-results[runID]; errors.Is(err, journal.ErrNoSlot) != refused || !refused && err != nil {
			t.Errorf("run %s: got %v, want it refused: %v", runID, err, refused)
		}
	}
	for _, orgID := range []string{"a", "b", "c"} {
		checkUsage(t, s, orgID)
		runs, err := s.Runs(t.Context(), orgID, journal.Query{Limit: 10})
		if err != nil || len(runs) != 1 {
			t.Errorf("org %s has %d runs, %v, want one", orgID, len(runs), err)
		}
		rows, err := s.AuditRows(t.Context(), orgID, audit.Query{})
		if err != nil || len(rows) != 1 || rows[0].Number != 1 {
			t.Errorf("org %s has the audit rows %+v, %v, want row 1", orgID, rows, err)
		}
	}
}
