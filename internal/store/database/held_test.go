package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// unsyncedBatch is a batch without Sync: a fact, a row and an audit row.
func unsyncedBatch(seq int64, body loop.Body) journal.Batch {
	return journal.Batch{
		Facts: []loop.Fact{{Seq: seq, Epoch: 1, At: 1, Version: 1, Body: body}},
		Rows:  []journal.Row{{Ref: fmt.Sprint("row ", seq), Value: "x"}},
		Audit: []audit.Entry{{Kind: "k", At: 1, Body: seq}},
	}
}

// beginHeld begins a run whose head says that its lease was just extended.
func beginHeld(t *testing.T, s *Store) journal.Lease {
	t.Helper()
	return beginHeldAs(t, s, loop.Light)
}

func beginHeldAs(t *testing.T, s *Store, grade loop.Grade) journal.Lease {
	t.Helper()
	lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1, Owner: "o"}
	accepted := loop.Fact{Seq: 1, Epoch: 1, At: 1, Version: 1, Body: loop.Accepted{Org: "a", RunID: "r", Policy: loop.Policy{Grade: grade}}}
	if err := s.Append(t.Context(), lease, 0, journal.Batch{Sync: true, Facts: []loop.Fact{accepted}}); err != nil {
		t.Fatal(err)
	}
	return lease
}

// checkHeld reports what the run holds back, in facts.
func checkHeld(t *testing.T, s *Store, want int) {
	t.Helper()
	h := s.heads.lock(runKey{"a", "r"})
	defer h.mu.Unlock()
	got := 0
	if h.held != nil {
		got = len(join(h.held.parts).batch.facts)
	}
	if got != want {
		t.Errorf("%d facts are held back, want %d", got, want)
	}
}

func checkStory(t *testing.T, s *Store, facts, rows int) {
	t.Helper()
	story, err := s.Load(t.Context(), "a", "r")
	if err != nil {
		t.Fatal(err)
	}
	if len(story.Facts) != facts || len(story.Rows) != rows {
		t.Errorf("%d facts and %d rows are stored, want %d and %d", len(story.Facts), len(story.Rows), facts, rows)
	}
	audited, err := s.AuditRows(t.Context(), "a", audit.Query{})
	if err != nil || len(audited) != rows {
		t.Errorf("%d audit rows, %v, want %d", len(audited), err, rows)
	}
}

// The batches of a run that nothing waits for become one write with the next that
// something does wait for. // P17
func TestBatchesWithoutSyncAreWrittenWithTheNext(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	lease := beginHeld(t, s)
	release := blockWriter(t, s) // so that the timer changes nothing
	for seq := int64(2); seq < 30; seq++ {
		if err := s.Append(t.Context(), lease, seq-1, unsyncedBatch(seq, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})); err != nil {
			t.Fatal(err)
		}
	}
	release()
	if err := s.Append(t.Context(), lease, 29, journal.Batch{Sync: true}); err != nil {
		t.Fatal(err)
	}
	checkHeld(t, s, 0)
	checkStory(t, s, 29, 28)
}

// Other operations on a run keep their place after its batches.
func TestWhatIsHeldBackIsWrittenBeforeOtherOperations(t *testing.T) {
	for name, operation := range map[string]func(*Store, journal.Lease) error{
		"release": func(s *Store, l journal.Lease) error { return s.Release(t.Context(), l) },
		"claim":   func(s *Store, _ journal.Lease) error { _, err := s.Claim(t.Context(), "other", 1); return err },
		"renew":   func(s *Store, _ journal.Lease) error { _, err := s.Renew(t.Context(), "o"); return err },
		"aside": func(s *Store, l journal.Lease) error {
			_, err := s.SetAside(t.Context(), l, 3, journal.Aside{})
			return err
		},
		"auditing": func(s *Store, _ journal.Lease) error { return s.SyncAudit(t.Context()) },
		"a writer that is behind": func(s *Store, _ journal.Lease) error {
			var behind *journal.Behind
			err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: "r"}, 1, journal.Batch{Sync: true})
			if errors.As(err, &behind) && len(behind.Facts) == 2 {
				return nil
			}
			return fmt.Errorf("got %w, want the two facts", err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
			lease := beginHeld(t, s)
			for seq := int64(2); seq < 4; seq++ {
				if err := s.Append(t.Context(), lease, seq-1, unsyncedBatch(seq, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})); err != nil {
					t.Fatal(err)
				}
			}
			if err := operation(s, lease); err != nil {
				t.Fatal(err)
			}
			checkHeld(t, s, 0)
			checkStory(t, s, 3, 2)
			head, err := s.Head(t.Context(), "a", "r")
			if released := name == "release" || name == "aside"; err != nil || released != (head.Owner == "") {
				t.Errorf("the owner of the lease is %q, %v", head.Owner, err)
			}
		})
	}
}

func TestClosingWritesWhatIsHeldBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	lease := beginHeld(t, s)
	if err := s.Append(t.Context(), lease, 1, unsyncedBatch(2, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), lease, 2, unsyncedBatch(3, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	checkStory(t, openStore(t, Options{Path: path}), 2, 1)
}

// A batch that is refused takes no earlier one with it. The head of a light run refuses a
// fact that repeats another; for a durable run, the index of the file does.
func TestARefusedBatchDoesNotUndoWhatWasHeldBack(t *testing.T) {
	for grade, atOnce := range map[loop.Grade]bool{loop.Light: true, loop.Durable: false} {
		t.Run(string(grade), func(t *testing.T) {
			s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
			lease := beginHeldAs(t, s, grade)
			started := loop.CallStarted{Key: "0.0", Attempt: 1}
			for i, body := range []loop.Body{started, loop.InputAdded{ItemsRef: "x", By: loop.ByClient}, started} { // the third repeats a fact
				seq := int64(2 + i)
				err := s.Append(t.Context(), lease, seq-1, unsyncedBatch(seq, body))
				if refused := i == 2 && atOnce; refused != errors.Is(err, org.ErrExists) || !refused && err != nil {
					t.Fatalf("batch %d: got %v", i, err)
				}
			}
			if !atOnce {
				if err := s.Append(t.Context(), lease, 4, journal.Batch{Sync: true}); !errors.Is(err, org.ErrExists) {
					t.Errorf("got %v, want ErrExists of the third batch", err)
				}
			}
			if err := s.Append(t.Context(), lease, 3, journal.Batch{Sync: true}); err != nil {
				t.Errorf("the run cannot continue: %v", err)
			}
			checkStory(t, s, 3, 2)
		})
	}
}

// A run that should be new, but exists, is reported as one that exists.
func TestASecondOpeningOfARunIsBehind(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	lease := beginHeld(t, s)
	s.heads.byRun = nil // as after a restart
	accepted := loop.Fact{Seq: 1, Epoch: 1, At: 1, Version: 1, Body: loop.Accepted{Org: "a", RunID: "r"}}
	err := s.Append(t.Context(), lease, 0, journal.Batch{Sync: true, Facts: []loop.Fact{accepted}, Opening: &journal.Opening{Slots: 1}})
	var behind *journal.Behind
	if !errors.As(err, &behind) || len(behind.Facts) != 1 {
		t.Errorf("got %v, want *Behind with the first fact", err)
	}
}
