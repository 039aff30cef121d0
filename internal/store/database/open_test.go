package database

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func TestOpenCreatesAFileForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "turnpike.db")
	s := openStore(t, Options{Path: path})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{"": 0o700, "turnpike.db": 0o600, "turnpike.db-wal": 0o600, "turnpike.db-shm": 0o600, "turnpike.db.lock": 0o600}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%q has the mode %v, want %v", name, info.Mode().Perm(), mode)
		}
	}
}

func TestOpenRestrictsTheModeOfAnExistingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	openStore(t, Options{Path: path})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v", info.Mode().Perm())
	}
}

func TestAnyFileNameWorks(t *testing.T) {
	for _, name := range []string{"with space", "a?mode=memory", "100%", "a#b", "ü", ":memory:"} {
		path := filepath.Join(t.TempDir(), name)
		s := openStore(t, Options{Path: path})
		if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s is not the file: %v", name, err)
		}
	}
}

func TestTheSettingsOfTheWriteConnection(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	want := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000", "auto_vacuum": "2"}
	err := s.writer.perform(t.Context(), noOrg, func(tx *tx) error {
		for name, value := range want {
			var got string
			if err := tx.queryRow("PRAGMA "+name, nil, &got); err != nil {
				return err
			}
			if got != value {
				t.Errorf("%s is %s, want %s", name, got, value)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.ExecContext(t.Context(), `DELETE FROM orgs`); err == nil {
		t.Error("a read connection wrote")
	}
}

func TestOnlyOneProcessCanOpenTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrLocked) {
		t.Errorf("the second got %v, want ErrLocked", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openStore(t, Options{Path: path})
}

func TestAClosedStoreRefusesWrites(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestOpenRefusesAFileThatIsNotAStore(t *testing.T) {
	if _, err := Open(t.Context(), Options{}); err == nil {
		t.Error("a store without a path was opened")
	}
	path := filepath.Join(t.TempDir(), "turnpike.db")
	if err := os.WriteFile(path, []byte("this is a text file and it is no database, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Path: path}); err == nil {
		t.Error("a text file was opened")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	openStore(t, Options{Path: path}) // the failed Open has released the lock
}

func TestAReaderReadsWhileTheGatewayRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	beginRun(t, s, "a", "r")
	r := openReader(t, path)
	story, err := r.Load(t.Context(), "a", "r")
	if err != nil || story.Summary.Status != journal.Running || len(story.Facts) != 1 {
		t.Fatalf("got %+v, %v", story, err)
	}
	batch := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 2, Body: loop.InputAdded{ItemsRef: "x", By: loop.ByClient}}}}
	if err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: "r"}, 1, batch); err != nil {
		t.Fatal(err)
	}
	if story, err = r.Load(t.Context(), "a", "r"); err != nil || len(story.Facts) != 2 {
		t.Fatalf("got %+v, %v", story, err)
	}
}

func TestAReaderReadsTheFileOfAStoppedGateway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	beginRun(t, s, "a", "r")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := openReader(t, path)
	runs, err := r.Runs(t.Context(), "a", journal.Query{Limit: 10})
	if err != nil || len(runs) != 1 {
		t.Errorf("got %+v, %v", runs, err)
	}
	orgs, err := r.Orgs(t.Context())
	if err != nil || len(orgs) != 1 {
		t.Errorf("got %+v, %v", orgs, err)
	}
}

func TestAReaderReadsInPages(t *testing.T) { // P05
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	beginRun(t, s, "a", "r")
	r := openReader(t, path)
	batch := journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "x", Value: 1}}, Facts: []loop.Fact{{Seq: 2, Body: loop.InputAdded{ItemsRef: "x", By: loop.ByClient}}}}
	if err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: "r"}, 1, batch); err != nil {
		t.Fatal(err)
	}
	for after := range int64(3) {
		if facts, err := r.Facts(t.Context(), "a", "r", after, 1<<20); err != nil || len(facts) != 2-int(after) {
			t.Errorf("after fact %d: got %+v, %v", after, facts, err)
		}
	}
	if rows, err := r.Rows(t.Context(), "a", "r", []string{"x", "y"}, 1<<20); err != nil || len(rows) != 1 {
		t.Errorf("got %q, %v", rows, err)
	}
	if _, err := r.Facts(t.Context(), "b", "r", 0, 1<<20); !errors.Is(err, org.ErrNotFound) {
		t.Errorf("the run of another org: %v", err)
	}
}

// The pages of the large row are damaged, so that reading it is an error.
func TestALargeBodyIsNotReadUnlessItIsReturned(t *testing.T) {
	const size, pageSize = 1 << 20, 4096
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	beginRun(t, s, "a", "r")
	large := strings.Repeat("x", size)
	batch := journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "small", Value: 1}, {Ref: "large", Value: large}}, Facts: []loop.Fact{{Seq: 2, Version: 1, Body: loop.InputAdded{ItemsRef: large, By: loop.ByClient}}}}
	if err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: "r"}, 1, batch); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for page := range slices.Chunk(file, pageSize) {
		if string(page[4:]) == large[:pageSize-4] {
			copy(page, "\xff\xff\xff\xff") // the number of the next page
			damaged++
		}
	}
	if damaged < size/pageSize {
		t.Fatalf("%d pages have the text of the large row and fact", damaged)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	r := openReader(t, path)
	rows, err := r.Rows(t.Context(), "a", "r", []string{"small", "large"}, 1000)
	if err != nil || len(rows) != 1 {
		t.Errorf("got %d rows, %v", len(rows), err)
	}
	facts, err := r.Facts(t.Context(), "a", "r", 0, 1000)
	if err != nil || len(facts) != 1 {
		t.Errorf("got %d facts, %v", len(facts), err)
	}
	if _, err := r.Rows(t.Context(), "a", "r", []string{"large"}, 1000); !errors.As(err, new(*journal.TooLarge)) {
		t.Errorf("got %v, want a *journal.TooLarge", err)
	}
	if _, err := r.Rows(t.Context(), "a", "r", []string{"large"}, 2*size); err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("got %v, want the error of a damaged file", err)
	}
}

func TestOpenSaysWhoNeedsPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Options{Path: filepath.Join(dir, "turnpike.db")})
	if !errors.Is(err, fs.ErrPermission) || !strings.HasSuffix(err.Error(), "must be able to read and write the data directory") {
		t.Errorf("got %v", err)
	}
}

func TestOpenReaderNeedsAFileAndCreatesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	if _, err := OpenReader(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("OpenReader created the file")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(t.Context(), path); !errors.Is(err, ErrSchema) {
		t.Errorf("got %v for an empty file, want ErrSchema", err)
	}
}

func TestTheErrorForALaterVersionHasBothNumbers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	err := s.writer.perform(t.Context(), noOrg, func(tx *tx) error {
		_, err := tx.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, known := versions()
	for name, open := range map[string]func(context.Context) error{
		"Open":       func(ctx context.Context) error { _, err := Open(ctx, Options{Path: path}); return err },
		"OpenReader": func(ctx context.Context) error { _, err := OpenReader(ctx, path); return err },
	} {
		var version *SchemaError
		if err := open(t.Context()); !errors.As(err, &version) || !errors.Is(err, ErrSchema) || version.Found != 999 || version.Known != known {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func openReader(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// beginRun opens a run's journal.
func beginRun(t testing.TB, s *Store, orgID, runID string) {
	t.Helper()
	batch := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 1, Epoch: 1, At: 1, Version: 1, Body: loop.Accepted{Org: orgID, RunID: runID}}}}
	if err := s.Append(t.Context(), journal.Lease{Org: orgID, RunID: runID, Epoch: 1}, 0, batch); err != nil {
		t.Fatal(err)
	}
}
