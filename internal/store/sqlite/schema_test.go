package sqlite

import (
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
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
		for _, direction := range []string{"Up", "Down"} {
			if direction == "Down" && name == baseline {
				continue // nothing is before it
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

// baseline is the first migration, which makes the file.
const baseline = "migrations/00001_store.sql"

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	s := openStore(t, Options{Path: path})
	beginRun(t, s, "a", "r")
	want := schema(t, s.db)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, p := openMigrations(t, path)
	if _, err := p.DownTo(t.Context(), 1); err != nil {
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
	err := s.writer.perform(t.Context(), func(t *tx) error {
		_, err := t.exec(`UPDATE conversations SET body = '{"v":3}'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Find(t.Context(), "a", "p", key)
	var bad *journal.Unreadable
	if !errors.As(err, &bad) || bad.Key != key || !strings.Contains(err.Error(), "stored in version 3, and this build reads versions up to 2") {
		t.Errorf("got %+v, %v", c, err)
	}
	if errors.Is(err, org.ErrUnavailable) || fault.From(err).Reason != "conversation_unreadable" {
		t.Errorf("%v is told as a failure of the file", err)
	}
}

// A file of a build before release 0.1 is refused with one sentence, by the gateway and by
// commands that read, and is not changed.
func TestAFileOfABuildBeforeTheFirstReleaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	if err := openStore(t, Options{Path: path}).Close(); err != nil {
		t.Fatal(err)
	}
	db, _ := openMigrations(t, path)
	execute(t, db, "PRAGMA application_id = 0")
	execute(t, db, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (19, true)")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	const want = "a build before release 0.1 made the file, and this version cannot read it: use another data directory, or the build that made it"
	_, opened := Open(t.Context(), Options{Path: path})
	_, read := OpenReader(t.Context(), path)
	for name, err := range map[string]error{"Open": opened, "OpenReader": read, "CheckCopy": CheckCopy(t.Context(), path)} {
		if !errors.Is(err, ErrSchema) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
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

// "off" was stored as the default of context. For runs of agents it was not the setting, and must not become it.
func TestTheDefaultOfContextIsNoSettingAfterAnUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.db")
	if err := openStore(t, Options{Path: path}).Close(); err != nil {
		t.Fatal(err)
	}
	db, p := openMigrations(t, path)
	if _, err := p.DownTo(t.Context(), 14); err != nil {
		t.Fatal(err)
	}
	for id, runtime := range map[string]string{"a": `{"context":"off","durable":"always"}`, "b": `{"context":"prune"}`, "c": `{}`} {
		execute(t, db, `INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES ('`+id+`', '[]', '`+runtime+`', 1, 1)`)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"a": `{"durable":"always"}`, "b": `{"context":"prune"}`, "c": `{}`} {
		var got string
		if err := db.QueryRow(`SELECT runtime FROM orgs WHERE id = ?`, id).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %s, %v", id, got, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
