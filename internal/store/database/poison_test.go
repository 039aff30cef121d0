package database

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// codeError is an error with a code of SQLite.
type codeError int

func (f codeError) Error() string { return "disk I/O error" }
func (f codeError) Code() int     { return int(f) }

// failCommits makes the next commits fail, and counts them in tried.
func failCommits(t *testing.T, s *Store, err error) (tried *int) {
	t.Helper()
	tried = new(int)
	perform(t, s, func(t *tx) error {
		first := true // the commit of this write itself
		t.commit = func() error {
			if first {
				first = false
				return t.commitNow()
			}
			*tried++
			return err
		}
		return nil
	})
	return tried
}

func perform(t *testing.T, s *Store, do func(*tx) error) {
	t.Helper()
	if err := s.writer.perform(t.Context(), noOrg, do); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedSyncPoisonsTheStore(t *testing.T) {
	for name, code := range map[string]int{"fsync of the file": sqlite3.SQLITE_IOERR_FSYNC, "fsync of the directory": sqlite3.SQLITE_IOERR_DIR_FSYNC} {
		t.Run(name, func(t *testing.T) {
			var told []error
			s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Fatal: func(err error) { told = append(told, err) }})
			beginRun(t, s, "a", "r")
			tried := failCommits(t, s, codeError(code))
			release := blockWriter(t, s)
			waiting := &write{do: func(*tx) error { return nil }}
			if err := s.writer.submit(t.Context(), waiting); err != nil {
				t.Fatal(err)
			}
			release()
			if err := waiting.wait(t.Context()); !errors.Is(err, ErrPoisoned) {
				t.Errorf("a synced append got %v, want ErrPoisoned", err)
			}
			refusesWrites(t, s)
			if *tried != 1 || len(told) != 1 || !errors.Is(told[0], ErrPoisoned) || !errors.Is(told[0], codeError(code)) {
				t.Errorf("%d commits were tried, and Fatal got %v; want one of each", *tried, told)
			}
			story, err := s.Load(t.Context(), "a", "r")
			if err != nil || len(story.Facts) != 1 {
				t.Errorf("reading a poisoned store: %+v, %v", story, err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// refusesWrites fails the test unless every kind of write returns an *Error that wraps
// ErrPoisoned.
func refusesWrites(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1}
	facts := []loop.Fact{{Seq: 2, At: 2, Body: loop.InputAdded{ItemsRef: "x", By: loop.ByClient}}}
	for name, write := range map[string]func(context.Context) error{
		"append": func(ctx context.Context) error {
			return s.Append(ctx, lease, 1, journal.Batch{Sync: true, Facts: facts})
		},
		"unsynced append": func(ctx context.Context) error { return s.Append(ctx, lease, 1, journal.Batch{Facts: facts}) },
		"create":          func(ctx context.Context) error { return s.CreateOrg(ctx, org.Record{ID: "a"}, org.Author{}) },
		"claim":           func(ctx context.Context) error { _, err := s.Claim(ctx, "o", 1); return err },
		"renew":           func(ctx context.Context) error { _, err := s.Renew(ctx, "o"); return err },
		"release":         func(ctx context.Context) error { return s.Release(ctx, lease) },
		"probe":           s.Probe,
	} {
		var failed *Error
		if err := write(ctx); !errors.Is(err, ErrPoisoned) || !errors.As(err, &failed) {
			t.Errorf("%s: got %v, want an *Error that wraps ErrPoisoned", name, err)
		}
	}
}

func TestAStoreWithoutFatalIsPoisonedToo(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	beginRun(t, s, "a", "r")
	failCommits(t, s, codeError(sqlite3.SQLITE_IOERR_FSYNC))
	if err := s.Probe(t.Context()); !errors.Is(err, ErrPoisoned) {
		t.Errorf("got %v, want ErrPoisoned", err)
	}
	refusesWrites(t, s)
}

func TestOtherFailuresOfACommitAreTemporary(t *testing.T) {
	for name, code := range map[string]int{
		"no room": sqlite3.SQLITE_FULL, "a write that failed": sqlite3.SQLITE_IOERR_WRITE,
		"truncation": sqlite3.SQLITE_IOERR_TRUNCATE, "a lock": sqlite3.SQLITE_BUSY,
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Fatal: func(err error) { t.Errorf("Fatal: %v", err) }})
			beginRun(t, s, "a", "r")
			failCommits(t, s, codeError(code))
			lease := journal.Lease{Org: "a", RunID: "r", Epoch: 1}
			batch := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 2, At: 2, Body: loop.InputAdded{ItemsRef: "x", By: loop.ByClient}}}}
			var failed *Error
			if err := s.Append(t.Context(), lease, 1, batch); !errors.As(err, &failed) || errors.Is(err, ErrPoisoned) {
				t.Errorf("got %v, want an *Error", err)
			}
			perform(t, s, func(t *tx) error {
				t.commit = t.commitNow
				return nil
			})
			if err := s.Append(t.Context(), lease, 1, batch); err != nil {
				t.Errorf("after the cause is gone: %v", err)
			}
		})
	}
}

// What a deleted log held is in the database when the store is closed, also while another process reads.
func TestADeletedLogIsSavedWhileOthersRead(t *testing.T) { // C18
	path := filepath.Join(t.TempDir(), "turnpike.db")
	gone := make(chan error, 1)
	s := openStore(t, Options{Path: path, Fatal: func(err error) { gone <- err }})
	beginRun(t, s, "a", "r")
	other, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Orgs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; !errors.Is(err, ErrReplaced) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	after := openStore(t, Options{Path: path})
	if _, err := after.Load(t.Context(), "a", "r"); err != nil {
		t.Errorf("the run is lost: %v", err)
	}
}
