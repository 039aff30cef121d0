package memory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
)

// tell stores a run of which the last fact is its end, if it has one.
func tell(t *testing.T, j *memory.Journal, runID string, ended bool, body int) {
	t.Helper()
	facts := []loop.Fact{{Seq: 1, Body: loop.Accepted{Org: "a", RunID: runID}}}
	if ended {
		facts = append(facts, loop.Fact{Seq: 2, Body: loop.Finished{Reason: event.Complete}})
	}
	batch := run.Batch{Facts: facts, Rows: []run.Row{{Ref: "body", Value: strings.Repeat("x", body)}}}
	if err := j.Append(t.Context(), run.Lease{Org: "a", RunID: runID}, 0, batch); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, j *memory.Journal, runID string) bool {
	t.Helper()
	_, err := j.Load(t.Context(), "a", runID)
	if err != nil && !errors.Is(err, org.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestAJournalKeepsTheLatestRunsAndAllThatAreRunning(t *testing.T) {
	var j memory.Journal
	tell(t, &j, "running", false, 0)
	for i := range memory.MaxRuns + 5 {
		tell(t, &j, fmt.Sprint(i), true, 0)
	}
	runs, err := j.Runs(t.Context(), "a", "", 2*memory.MaxRuns)
	if err != nil || len(runs) != memory.MaxRuns {
		t.Errorf("%d runs are kept, want %d: %v", len(runs), memory.MaxRuns, err)
	}
	for runID, want := range map[string]bool{"running": true, "0": false, "5": false, "6": true, fmt.Sprint(memory.MaxRuns + 4): true} {
		if has(t, &j, runID) != want {
			t.Errorf("run %s: kept is %v, want %v", runID, !want, want)
		}
	}
}

func TestAJournalKeepsNoMoreBytesThanItMay(t *testing.T) {
	var j memory.Journal
	const each = memory.MaxRowBytes/9 - 10
	for i := range 12 {
		tell(t, &j, fmt.Sprint(i), true, each)
	}
	if has(t, &j, "0") || has(t, &j, "2") || !has(t, &j, "3") || !has(t, &j, "11") {
		t.Error("the oldest runs are to go until the others fit")
	}
}

func TestHandoversKeepsTheLatest(t *testing.T) {
	var h memory.Handovers
	for i := range memory.MaxHandovers + 1 {
		id := fmt.Sprint(i)
		if err := h.Save(t.Context(), "a", "p", run.Handover{CallIDs: map[string]string{id: "theirs"}}); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]bool{"0": false, "1": true, fmt.Sprint(memory.MaxHandovers): true} {
		got, err := h.Find(t.Context(), "a", "p", id)
		if err != nil || (got != nil) != want {
			t.Errorf("handover %s: found is %v, want %v: %v", id, got != nil, want, err)
		}
	}
}
