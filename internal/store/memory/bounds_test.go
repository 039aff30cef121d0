package memory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
)

// storeRun stores a run, with an end if ended is set.
func storeRun(t *testing.T, j *memory.Journal, runID string, ended bool, body int) {
	t.Helper()
	facts := []loop.Fact{{Seq: 1, Body: loop.Accepted{Org: "a", RunID: runID}}}
	if ended {
		facts = append(facts, loop.Fact{Seq: 2, Body: loop.Finished{Reason: event.Complete}})
	}
	batch := journal.Batch{Facts: facts, Rows: []journal.Row{{Ref: "body", Value: strings.Repeat("x", body)}}}
	if err := j.Append(t.Context(), journal.Lease{Org: "a", RunID: runID}, 0, batch); err != nil {
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

func TestAJournalKeepsTheLatestRunsAndAllRunningOnes(t *testing.T) {
	var j memory.Journal
	storeRun(t, &j, "running", false, 0)
	for i := range memory.MaxRuns + 5 {
		storeRun(t, &j, fmt.Sprint(i), true, 0)
	}
	runs, err := j.Runs(t.Context(), "a", journal.Query{Limit: 2 * memory.MaxRuns})
	if err != nil || len(runs) != memory.MaxRuns {
		t.Errorf("%d runs are kept, want %d: %v", len(runs), memory.MaxRuns, err)
	}
	for runID, want := range map[string]bool{"running": true, "0": false, "5": false, "6": true, fmt.Sprint(memory.MaxRuns + 4): true} {
		if has(t, &j, runID) != want {
			t.Errorf("run %s: kept is %v, want %v", runID, !want, want)
		}
	}
}

func TestAJournalLimitsItsBytes(t *testing.T) {
	var j memory.Journal
	const each = memory.MaxRowBytes/9 - 10
	for i := range 12 {
		storeRun(t, &j, fmt.Sprint(i), true, each)
	}
	if has(t, &j, "0") || has(t, &j, "2") || !has(t, &j, "3") || !has(t, &j, "11") {
		t.Error("the oldest runs must be dropped until the others fit")
	}
}

func TestConversationsKeepsTheLatest(t *testing.T) {
	var c memory.Conversations
	for i := range memory.MaxConversations + 1 {
		if err := c.Save(t.Context(), fmt.Sprint("org ", i%2), "p", journal.Conversation{}, time.Hour, journal.ConversationKey{Kind: journal.CallID, ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range map[int]bool{0: false, 1: true, memory.MaxConversations: true} {
		got, err := c.Find(t.Context(), fmt.Sprint("org ", i%2), "p", journal.ConversationKey{Kind: journal.CallID, ID: fmt.Sprint(i)})
		if err != nil || (got != nil) != want {
			t.Errorf("conversation %d: found is %v, want %v: %v", i, got != nil, want, err)
		}
	}
}

func TestAJournalDropsTheOldestKeysAndAuditRows(t *testing.T) {
	var j memory.Journal
	open := func(n int) error {
		runID := fmt.Sprint("run ", n)
		return j.Append(t.Context(), journal.Lease{Org: "a", RunID: runID}, 0, journal.Batch{
			Facts:   []loop.Fact{{Seq: 1, Body: loop.Accepted{Org: "a", RunID: runID}}, {Seq: 2, Body: loop.Finished{}}},
			Opening: &journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: fmt.Sprint(n % (memory.MaxSubmitKeys + 1))}},
			Audit:   []audit.Entry{{Kind: "k"}},
		})
	}
	for n := range memory.MaxSubmitKeys + 1 {
		if err := open(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(memory.MaxSubmitKeys + 1); err != nil {
		t.Errorf("the oldest key was not dropped: %v", err)
	}
	if err := open(memory.MaxSubmitKeys + 3); !errors.As(err, new(*journal.Submitted)) {
		t.Errorf("got %v for a key that is not the oldest, want a *journal.Submitted", err)
	}
	last := memory.MaxSubmitKeys + 2
	for n, want := range map[int]int{last - memory.MaxAuditRows - 1: 0, last - memory.MaxAuditRows: 1, last - 1: 1} {
		rows, err := j.AuditRows(t.Context(), "a", audit.Query{RunID: fmt.Sprint("run ", n)})
		if err != nil || len(rows) != want || want > 0 && rows[0].Number != int64(n+1) {
			t.Errorf("run %d has the rows %+v, %v; want %d", n, rows, err, want)
		}
	}
}

func TestADroppedRunSettlesItsHolds(t *testing.T) {
	var j memory.Journal
	hold := journal.Reservation{ID: "0.1", Budget: budget.Window{Scope: "s"}, Amount: budget.Amount{Tokens: 5}}
	lease := journal.Lease{Org: "a", RunID: "aside", Epoch: 1, Owner: "me"}
	facts := []loop.Fact{{Seq: 1, Epoch: 1, Body: loop.Accepted{Org: "a", RunID: "aside"}}}
	if err := j.Append(t.Context(), lease, 0, journal.Batch{Facts: facts, Reservations: []journal.Reservation{hold}}); err != nil {
		t.Fatal(err)
	}
	if done, err := j.SetAside(t.Context(), lease, 1, journal.Aside{Reason: "damaged"}); err != nil || !done {
		t.Fatal(done, err)
	}
	for i := range memory.MaxRuns {
		storeRun(t, &j, fmt.Sprint(i), true, 0)
	}
	used, err := j.Used(t.Context(), "a", "s")
	if err != nil || has(t, &j, "aside") || used.Spent != hold.Amount || used.Reserved != (budget.Amount{}) {
		t.Errorf("got %+v, %v", used, err)
	}
}
