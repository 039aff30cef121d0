package database

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const aDay = 24 * time.Hour

// storePastRun stores a run that started at the given time. If ended is set, it ended a minute
// later.
func storePastRun(t testing.TB, s *Store, id string, at time.Time, ended bool, bytes int) {
	t.Helper()
	batch := journal.Batch{
		Sync: true, Opening: &journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: id, Hash: "h"}},
		Facts: []loop.Fact{{Seq: 1, Epoch: 1, At: at.UnixMilli(), Version: 1, Body: loop.Accepted{Org: "a", RunID: id}}},
		Rows:  []journal.Row{{Ref: "input", Value: strings.Repeat("x", bytes)}},
		Audit: []audit.Entry{{Kind: audit.KindRequest, Body: audit.Request{}}},
	}
	if ended {
		batch.Facts = append(batch.Facts, loop.Fact{Seq: 2, Epoch: 1, At: at.Add(time.Minute).UnixMilli(), Version: 1, Body: loop.Finished{Reason: event.Complete}})
	}
	if err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: id, Epoch: 1}, 0, batch); err != nil {
		t.Fatal(err)
	}
}

// rowsOf counts the rows of a table.
func rowsOf(t testing.TB, s *Store, table string) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Retention deletes finished runs and nothing else. // L07
func TestRetentionDeletesFinishedRunsOnly(t *testing.T) {
	now := time.Now()
	clock := now.Add(-40 * aDay)
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Now: func() time.Time { return clock }})
	for i := range 250 {
		storePastRun(t, s, fmt.Sprint("old ", i), clock.Add(time.Duration(i)*time.Second), true, maxPacked)
	}
	storePastRun(t, s, "old and running", clock, false, maxPacked)
	clock = now
	storePastRun(t, s, "young", now.Add(-29*aDay), true, maxPacked)
	audited := rowsOf(t, s, "audit_log")

	before := now.Add(-30 * aDay)
	if n, err := s.FinishedBefore(t.Context(), before); err != nil || n != 250 {
		t.Errorf("FinishedBefore: %d runs, %v, want 250", n, err)
	}
	if n, err := s.DeleteFinished(t.Context(), before); err != nil || n != 250 {
		t.Errorf("deleted %d runs, %v, want 250", n, err)
	}
	for id, kept := range map[string]bool{"old 0": false, "old 249": false, "old and running": true, "young": true} {
		if story, err := s.Load(t.Context(), "a", id); errors.Is(err, org.ErrNotFound) == kept {
			t.Errorf("%s: got %v, %v, want it kept: %v", id, story, err, kept)
		}
	}
	for table, want := range map[string]int{"runs": 2, "run_facts": 2, "run_rows": 2, "submit_keys": 1, "audit_log": audited} {
		if n := rowsOf(t, s, table); n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
	if n, err := s.DeleteFinished(t.Context(), before); err != nil || n != 0 {
		t.Errorf("the second time: %d runs, %v", n, err)
	}
}

// A run is kept as long as its Idempotency-Key is valid, even if the retention time is
// shorter.
func TestRetentionKeepsARunWithAValidKey(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	storePastRun(t, s, "r", time.Now().Add(-time.Hour), true, 10)
	if n, err := s.DeleteFinished(t.Context(), time.Now()); err != nil || n != 0 {
		t.Errorf("deleted %d runs, %v", n, err)
	}
}

// Retention shrinks the file, and other writes run in between.
func TestRetentionDoesNotBlockOtherWrites(t *testing.T) {
	clock := time.Now().Add(-40 * aDay)
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path, Now: func() time.Time { return clock }})
	const runs, big = 400, 16 << 20
	for i := range runs {
		storePastRun(t, s, fmt.Sprint(i), clock, true, 40_000)
	}
	storePastRun(t, s, "big", clock, true, big)
	var pages int64
	perform(t, s, func(t *tx) error { return t.queryRow(`PRAGMA page_count`, nil, &pages) })

	clock = time.Now()
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		n, err := s.DeleteFinished(t.Context(), clock.Add(-30*aDay))
		done <- result{n, err}
	}()
	var slowest time.Duration
	var writes int
	for ended := false; !ended; {
		asked := time.Now()
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		slowest, writes = max(slowest, time.Since(asked)), writes+1
		select {
		case r := <-done:
			if r.err != nil || r.n != runs+1 {
				t.Errorf("deleted %d runs, %v", r.n, r.err)
			}
			ended = true
		default:
		}
	}
	var left int64
	perform(t, s, func(t *tx) error { return t.queryRow(`PRAGMA page_count`, nil, &left) })
	if left > pages/10 {
		t.Errorf("the file has %d pages, %d before", left, pages)
	}
	t.Logf("%d runs in %v, %d other writes, the slowest took %v", runs+1, time.Since(began), writes, slowest)
	if writes < runs/deleteBatch {
		t.Errorf("%d other writes were made between %d batches", writes, runs/deleteBatch)
	}
}

// What is deleted is not left in the file: neither in the unused part of a page, nor in a page
// that is free.
func TestDeletedTextsAreNotLeftInTheFile(t *testing.T) {
	clock := time.Now().Add(-40 * aDay)
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path, Now: func() time.Time { return clock }})
	const mark = "CANARY"
	for i := range 20 { // of each two neighbours, one is deleted
		ended := i%2 == 0
		for _, size := range []int{100, 40_000} {
			id := fmt.Sprint(i, " ", size)
			text := strings.Repeat("kept", size/4)
			if ended {
				text = strings.Repeat(mark, size/len(mark))
			}
			batch := journal.Batch{
				Sync:  true,
				Facts: []loop.Fact{{Seq: 1, Epoch: 1, At: clock.UnixMilli(), Version: 1, Body: loop.Accepted{Org: "a", RunID: id}}},
				Rows:  []journal.Row{{Ref: "input", Value: text}},
			}
			if ended {
				batch.Facts = append(batch.Facts, loop.Fact{Seq: 2, Epoch: 1, At: clock.UnixMilli(), Version: 1, Body: loop.Finished{Reason: event.Complete}})
			}
			if err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: id, Epoch: 1}, 0, batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	clock = time.Now()
	if n, err := s.DeleteFinished(t.Context(), clock); err != nil || n != 20 {
		t.Fatalf("deleted %d runs, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if n := bytes.Count(data, []byte(mark)); err != nil || n > 0 {
			t.Errorf("%s, of %d bytes, has the text %d times: %v", filepath.Base(file), len(data), n, err)
		}
	}
}

// Retention deletes what is stored of orgs that were deleted long ago, and of no other. Then
// only audit rows keep the id from use. // K07
func TestRetentionDeletesTheDataOfDeletedOrgs(t *testing.T) {
	now := time.Now()
	clock := now.Add(-40 * aDay)
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Now: func() time.Time { return clock }})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	save := func(orgID string) {
		t.Helper()
		ok(s.Save(t.Context(), orgID, "p", journal.Conversation{RunID: "r"}, 400*aDay, journal.ConversationKey{Kind: journal.CallID, ID: "c"}))
	}
	ok(s.AddOrgs(t.Context(), []org.Record{{ID: "a"}, {ID: "b"}, {ID: "c"}}))
	for i := range 250 {
		storePastRun(t, s, fmt.Sprint("old ", i), clock, true, maxPacked)
	}
	storePastRun(t, s, "set aside", clock, false, maxPacked)
	if _, err := s.SetAside(t.Context(), journal.Lease{Org: "a", RunID: "set aside", Epoch: 1}, 1, journal.Aside{}); err != nil {
		t.Fatal(err)
	}
	storePastRun(t, s, "running", clock, false, maxPacked)
	for _, id := range []string{"a", "b", "c"} {
		save(id)
	}
	audited := rowsOf(t, s, "audit_log")
	ok(s.DeleteOrg(t.Context(), "a", org.Author{}))
	clock = now
	ok(s.DeleteOrg(t.Context(), "b", org.Author{})) // not long ago

	var progress []string
	purge := func() {
		t.Helper()
		ok(s.DeleteOrgData(t.Context(), now.Add(-30*aDay), func(id string, n int) { progress = append(progress, fmt.Sprint(id, " ", n)) }))
	}
	purge()
	purge()
	if got := strings.Join(progress, ", "); got != "a 252" {
		t.Errorf("deleted: %s, want 251 runs and a conversation of a, once", got)
	}
	for table, want := range map[string]int{"runs": 1, "conversations": 2, "deleted_orgs": 2, "audit_log": audited} {
		if n := rowsOf(t, s, table); n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
	var left *org.LeftError
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); !errors.As(err, &left) || fmt.Sprint(left.Left) != "[runs audit rows]" {
		t.Errorf("the id is refused with %v, want that runs and audit rows are left", err)
	}
	ended := loop.Fact{Seq: 2, Epoch: 1, At: now.UnixMilli(), Version: 1, Body: loop.Finished{Reason: event.Cancelled}}
	ok(s.Append(t.Context(), journal.Lease{Org: "a", RunID: "running", Epoch: 1}, 1, journal.Batch{Sync: true, Facts: []loop.Fact{ended}}))
	purge()
	if runs, deleted := rowsOf(t, s, "runs"), rowsOf(t, s, "deleted_orgs"); runs != 0 || deleted != 1 {
		t.Errorf("%d runs and %d deleted orgs are left, want 0 and 1", runs, deleted)
	}
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); !errors.As(err, &left) || fmt.Sprint(left.Left) != "[audit rows]" {
		t.Errorf("the id is refused with %v, want that audit rows are left", err)
	}
}
