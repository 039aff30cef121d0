package database

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// recount computes the org's usage from all its rows.
func recount(t *testing.T, s *Store, orgID string) (bytes, conversations int64) {
	t.Helper()
	err := s.db.QueryRowContext(t.Context(), `SELECT
			(SELECT count(*) * ?2 FROM runs WHERE org = ?1) +
			(SELECT coalesce(sum(?3 + octet_length(body)), 0) FROM run_facts WHERE org = ?1) +
			(SELECT coalesce(sum(?4 + octet_length(body)), 0) FROM run_rows WHERE org = ?1) +
			(SELECT coalesce(sum(?5 + octet_length(body)), 0) FROM conversations WHERE org = ?1) +
			(SELECT coalesce(sum(?7 + octet_length(body)), 0) FROM shared_lists WHERE org = ?1) +
			(SELECT count(*) * ?6 FROM conversation_keys WHERE org = ?1),
			(SELECT count(*) FROM conversations WHERE org = ?1)`,
		orgID, sizeOfRun, sizeOfFact, sizeOfRow, sizeOfConversation, sizeOfConversationKey, sizeOfList).Scan(&bytes, &conversations)
	if err != nil {
		t.Fatal(err)
	}
	return bytes, conversations
}

// checkUsage fails the test unless the org's stored usage equals the recount. It returns
// the usage.
func checkUsage(t *testing.T, s *Store, orgID string) int64 {
	t.Helper()
	var bytes, conversations, handovers, calls int64
	err := s.db.QueryRowContext(t.Context(), `SELECT bytes, conversations, handovers, (SELECT count(*) FROM conversations WHERE org = ?1 AND key LIKE 'call:%') FROM org_usage WHERE org = ?1`,
		orgID).Scan(&bytes, &conversations, &handovers, &calls)
	if err != nil || handovers != calls {
		t.Fatalf("%d handovers, %d are counted: %v", calls, handovers, err)
	}
	if b, h := recount(t, s, orgID); b != bytes || h != conversations {
		t.Errorf("org %s: usage is %d bytes and %d conversations; its rows add up to %d and %d", orgID, bytes, conversations, b, h)
	}
	return bytes
}

// fillRuns stores runs with items of the given size, and a conversation for each run.
func fillRuns(t *testing.T, s *Store, orgID string, runs, facts, size int) {
	t.Helper()
	text := strings.Repeat("ä", size/2)
	for i := range runs {
		runID := fmt.Sprintf("run_%026d", i)
		beginRun(t, s, orgID, runID)
		for f := range facts {
			ref := fmt.Sprintf("round.%d", f)
			one := loop.Fact{Seq: int64(2 + f), Epoch: 1, At: 1, Version: 1, Body: loop.InputAdded{ItemsRef: ref, By: loop.ByClient}}
			batch := journal.Batch{Facts: []loop.Fact{one}, Rows: []journal.Row{{Ref: ref, Value: text}}}
			if err := s.Append(t.Context(), journal.Lease{Org: orgID, RunID: runID, Epoch: 1}, int64(1+f), batch); err != nil {
				t.Fatal(err)
			}
		}
		c := journal.Conversation{RunID: runID, CallIDs: map[string]string{runID + ".1": "call_1", runID + ".2": "call_2"}, Full: map[string]string{"x": text}}
		keys := []journal.ConversationKey{{Kind: journal.CallID, ID: runID + ".1"}, {Kind: journal.CallID, ID: runID + ".2"}}
		if err := s.Save(t.Context(), orgID, "key_abcdefghijklmnopqrstuvwxyz", c, journal.HandoverTTL, keys...); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SyncAudit(t.Context()); err != nil { // with it, everything is written
		t.Fatal(err)
	}
}

func TestUsageFollowsWritesAndDeletes(t *testing.T) { // P40
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	fillRuns(t, s, "a", 3, 4, 1000)
	fillRuns(t, s, "b", 1, 1, 1000)
	other := checkUsage(t, s, "b")
	before := checkUsage(t, s, "a")
	remove := func(text string, args ...any) {
		t.Helper()
		if err := s.writer.perform(t.Context(), noOrg, func(x *tx) error { _, err := x.exec(text, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	remove(`DELETE FROM runs WHERE org = 'a' AND run_id = ?`, fmt.Sprintf("run_%026d", 1))
	if after := checkUsage(t, s, "a"); after > before-4000 {
		t.Errorf("deleting a run freed %d bytes", before-after)
	}
	session := journal.ConversationKey{Kind: journal.SessionID, ID: "s"}
	for version, text := range []string{strings.Repeat("x", 1000), strings.Repeat("x", 9000), "short"} {
		c := journal.Conversation{Version: int64(version), Full: map[string]string{"x": text}}
		if err := s.Save(t.Context(), "a", "p", c, journal.HandoverTTL, session); err != nil {
			t.Fatal(err)
		}
		checkUsage(t, s, "a")
	}
	remove(`DELETE FROM conversations WHERE org = 'a'`)
	remove(`DELETE FROM runs WHERE org = 'a'`)
	if rest := checkUsage(t, s, "a"); rest != 0 {
		t.Errorf("usage is %d bytes with nothing stored", rest)
	}
	if got := checkUsage(t, s, "b"); got != other {
		t.Errorf("the other org has %d bytes after, %d before", got, other)
	}
}

func TestUsageIsCloseToTheGrowthOfTheFile(t *testing.T) { // P40
	for _, c := range []struct{ runs, facts, size int }{{200, 2, 40}, {100, 10, 400}, {50, 10, 4000}, {5, 4, 200_000}} {
		s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
		pages := func() (n int64) {
			if err := s.db.QueryRowContext(t.Context(), `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := pages()
		fillRuns(t, s, "org_of_usual_length", c.runs, c.facts, c.size)
		grown, bytes := pages()-before, checkUsage(t, s, "org_of_usual_length")
		t.Logf("%d runs with %d facts and rows of %d bytes: %d counted, the file grew by %d", c.runs, c.facts, c.size, bytes, grown)
		if bytes < grown*3/4 || bytes > grown*5/4 {
			t.Errorf("%d runs with %d facts and rows of %d bytes: %d counted, the file grew by %d", c.runs, c.facts, c.size, bytes, grown)
		}
	}
}
