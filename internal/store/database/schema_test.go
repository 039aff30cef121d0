package database

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

// goose takes 4 MiB of memory for each line that it searches for the end of a
// statement, which made the first start slow. It does not search a block that is
// marked as one statement, and SQLite runs all statements of such a block.
func TestEachMigrationIsOneBlockForGoose(t *testing.T) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("migrations %q, error %v", names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		number, err := goose.NumericComponent(path.Base(name))
		if err != nil {
			t.Error(err)
		}
		for _, direction := range []string{"Up", "Down"} {
			if first, _ := versions(); direction == "Down" && number == first {
				continue // nothing is before the baseline
			}
			_, block, _ := strings.Cut(string(text), "-- +goose "+direction+"\n")
			block, _, _ = strings.Cut(block, "-- +goose Down\n")
			block = strings.TrimSpace(block)
			if !strings.HasPrefix(block, "-- +goose StatementBegin\n") || !strings.HasSuffix(block, "\n-- +goose StatementEnd") || strings.Count(block, "+goose") != 2 {
				t.Errorf("%s: put everything after \"-- +goose %s\" between one StatementBegin and one StatementEnd", name, direction)
			}
		}
	}
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	beginRun(t, s, "a", "r")
	want := schema(t, s.db)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, p := openMigrations(t, path)
	first, _ := versions()
	if _, err := p.DownTo(t.Context(), first); err != nil {
		t.Fatalf("down to the baseline: %v", err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatalf("up from the baseline: %v", err)
	}
	if got := schema(t, db); !slices.Equal(got, want) {
		t.Errorf("the schema is\n%q\nwant\n%q", got, want)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// openMigrations opens the file for a test that migrates it to a version. The caller closes
// it.
func openMigrations(t *testing.T, path string) (*sql.DB, *goose.Provider) {
	t.Helper()
	db, err := connect(path, writeSettings())
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return db, p
}

func execute(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestAConversationOfALaterBuildIsAnError(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	key := journal.ConversationKey{Kind: journal.CallID, ID: "x"}
	if err := s.Save(t.Context(), "a", "p", journal.Conversation{}, journal.HandoverTTL, key); err != nil {
		t.Fatal(err)
	}
	err := s.writer.perform(t.Context(), noOrg, func(t *tx) error {
		_, err := t.exec(`UPDATE conversations SET body = '{"v":2}'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Find(t.Context(), "a", "p", key)
	var bad *journal.Unreadable
	if !errors.As(err, &bad) || bad.Key != key || !strings.Contains(err.Error(), "stored in version 2, and this build reads versions up to 1") {
		t.Errorf("got %+v, %v", c, err)
	}
	if errors.Is(err, org.ErrUnavailable) || fault.From(err).Reason != "conversation_unreadable" {
		t.Errorf("%v is told as a failure of the file", err)
	}
}

// A file of a build before the baseline is refused with one sentence wherever it is opened. The file and its -wal stay
// the same, also if the process that had it open was killed.
// A file of another program gets no tables, wherever a link to it stands.
func TestAFileOfAnotherProgramIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db, _ := openMigrations(t, path)
	execute(t, db, "CREATE TABLE mine (x)")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "turnpike.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	before := contents(t, path)
	for _, name := range []string{path, link} {
		_, err := Open(t.Context(), Options{Path: name})
		if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "another program made the file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !maps.Equal(contents(t, path), before) {
		t.Error("the file changed")
	}
}

func TestAFileOfABuildBeforeTheBaselineIsRefused(t *testing.T) {
	for name, changes := range map[string][]string{
		"of the first migration":   {"UPDATE goose_db_version SET version_id = 1 WHERE version_id > 0"},
		"of the last migration":    {"UPDATE goose_db_version SET version_id = 17 WHERE version_id > 0"},
		"without a mark":           {"PRAGMA application_id = 0"},
		"of a number not yet used": {"UPDATE goose_db_version SET version_id = 99 WHERE version_id > 0"},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %t", name, killed), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "turnpike.db")
				if err := openStore(t, Options{Path: path}).Close(); err != nil {
					t.Fatal(err)
				}
				db, _ := openMigrations(t, path)
				for _, change := range changes {
					execute(t, db, change)
				}
				if killed {
					path = copyFiles(t, filepath.Dir(path))
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, 0o640); err != nil {
					t.Fatal(err)
				}
				before := contents(t, path)
				if _, ok := before["turnpike.db-wal"]; ok != killed {
					t.Fatalf("the directory has %d files", len(before))
				}
				const want = "this version reads files from schema version 100 on: use another data directory or file, or the build that made it"
				_, opened := Open(t.Context(), Options{Path: path})
				_, read := OpenReader(t.Context(), path)
				for name, err := range map[string]error{"Open": opened, "OpenReader": read, "CheckCopy": CheckCopy(t.Context(), path)} {
					if !errors.Is(err, ErrSchema) || !strings.HasSuffix(err.Error(), want) || name != "CheckCopy" && !strings.Contains(err.Error(), path) {
						t.Errorf("%s: %v", name, err)
					}
				}
				if !maps.Equal(contents(t, path), before) {
					t.Error("the files changed")
				}
			})
		}
	}
}

// copyFiles copies the files of a directory, as a killed process leaves them, and returns the path of the database.
func copyFiles(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "turnpike.db")
}

// contents returns the mode and content of each file in the directory of a database, without its lock and the shared memory of its
// processes.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, infoErr := e.Info()
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
		if err := errors.Join(infoErr, err); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.Name(), ".lock") && !strings.HasSuffix(e.Name(), "-shm") {
			all[e.Name()] = info.Mode().String() + string(text)
		}
	}
	return all
}

func schema(t *testing.T, db *sql.DB) []string {
	t.Helper()
	got, err := list(t.Context(), db, func(row scanner) (string, error) {
		var s string
		err := row.Scan(&s)
		return s, err
	}, `SELECT coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A build before the schema 102 stored the settings of agents as rows.
func TestSettingsOfAgentsOfOldFilesAreMigrated(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	execute := func(text string) {
		t.Helper()
		err := s.writer.perform(t.Context(), noOrg, func(t *tx) error {
			_, err := t.exec(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	storetest.OldAgentSettings(t, s, execute, func() {
		text, err := fs.ReadFile(migrations, "migrations/00102_agent_settings.sql")
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down\n")
		execute(up)
	})
}

// A change of the settings of agents keeps the settings of their org that another version stored.
func TestAChangeOfSettingsOfAgentsKeepsUnknownSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a", Runtime: org.Runtime{Concurrency: 3}}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, _ := openMigrations(t, path)
	execute(t, db, `UPDATE orgs SET runtime = json_set(runtime, '$.quarantine', 'always', '$.rate.later', 1)`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, Options{Path: path})
	if err := s.ChangeSettings(t.Context(), "a", func(a *org.Agents) { a.MaxSteps = 9 }, org.Author{}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Org(t.Context(), "a")
	is := got.Runtime
	if err != nil || is.Agents.MaxSteps != 9 || is.Concurrency != 3 || !slices.Equal(got.UnknownSettings, []string{"quarantine"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, _ = openMigrations(t, path)
	var later int
	if err := db.QueryRowContext(t.Context(), `SELECT runtime ->> '$.rate.later' FROM orgs`).Scan(&later); err != nil || later != 1 {
		t.Errorf("a member of a group is %d, %v", later, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A setting that another version stored is named, unless it is empty. // C19
func TestUnknownSettingsOfAServerAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateMCPServer(t.Context(), org.MCPServer{Org: "a", Name: "s", URL: "http://s"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, _ := openMigrations(t, path)
	execute(t, db, `UPDATE mcp_outbound_servers SET settings = json_set(settings, '$.sandbox', 'strict', '$.quarantine', 'always', '$.later', json('[]'))`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openStore(t, Options{Path: path}).MCPServers(t.Context(), "a")
	if err != nil || len(got) != 1 || !slices.Equal(got[0].UnknownSettings, []string{"quarantine", "sandbox"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
