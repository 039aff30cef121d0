package database

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// corruptTable overwrites the first page of a table. The store must be closed.
func corruptTable(t *testing.T, path, table string) {
	t.Helper()
	db, err := connect(path, readSettings())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var page, size int64
	if err := db.QueryRowContext(t.Context(), `SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?`, table).Scan(&page, &size); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(size)), (page-1)*size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// awaitNames waits until the store has named the damaged tables.
func awaitNames(t *testing.T, s *Store) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := s.Damage(); err != nil && strings.Contains(err.Error(), "(") {
			return err.Error()
		}
	}
	t.Fatal("the store did not name the damaged tables")
	return ""
}

func TestADamagedTableIsNamedAndStopsWrites(t *testing.T) { // C19
	for name, find := range map[string]func(*testing.T, *Store) error{
		"by a read":  func(t *testing.T, s *Store) error { _, err := s.Load(t.Context(), "a", "r"); return err },
		"by a write": func(t *testing.T, s *Store) error { _, err := s.DeleteFinished(t.Context(), time.Now()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "turnpike.db")
			s := openStore(t, Options{Path: path})
			storePastRun(t, s, "r", time.Now().Add(-40*aDay), true, 10)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			corruptTable(t, path, "run_facts")

			var said bytes.Buffer
			s = openStore(t, Options{Path: path, Log: slog.New(slog.NewTextHandler(&said, nil)), Fatal: func(err error) { t.Errorf("Fatal: %v", err) }})
			if err := s.Damage(); err != nil {
				t.Fatalf("before the damaged table is read: %v", err)
			}
			var failed *Error
			if err := find(t, s); !errors.As(err, &failed) {
				t.Errorf("got %v, want an *Error", err)
			}
			if err := s.CreateOrg(t.Context(), org.Record{ID: "b"}, org.Author{}); !errors.Is(err, ErrDamaged) || !errors.As(err, &failed) {
				t.Errorf("a write got %v, want an *Error that wraps ErrDamaged", err)
			}
			if names := awaitNames(t, s); names != "the database is damaged (run_facts)" {
				t.Errorf("got %q", names)
			}
			if _, err := s.Orgs(t.Context()); err != nil {
				t.Errorf("an undamaged table cannot be read: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if n := strings.Count(said.String(), "tables=run_facts"); n != 1 {
				t.Errorf("the log names the table %d times:\n%s", n, said.String())
			}
		})
	}
}

// The error of opening a damaged file names the damaged table and the remedy.
func TestOpenReportsDamage(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(t *testing.T, path string)
		want   string
	}{
		"no database": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "(the schema)"},
		"an index that every start reads": {func(t *testing.T, path string) { corruptTable(t, path, "runs_running") }, "runs"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "turnpike.db")
			if err := openStore(t, Options{Path: path}).Close(); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, path)
			_, err := Open(t.Context(), Options{Path: path})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("got %v, which does not name %s", err, tt.want)
			}
		})
	}
}
