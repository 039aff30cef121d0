package sqlite

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
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
	for _, version := range []int64{1, 0} {
		if _, err := p.DownTo(t.Context(), version); err != nil {
			t.Fatalf("down to %d: %v", version, err)
		}
		if _, err := p.Up(t.Context()); err != nil {
			t.Fatalf("up from %d: %v", version, err)
		}
		if got := schema(t, db); !slices.Equal(got, want) {
			t.Errorf("from %d, the schema is\n%q\nwant\n%q", version, got, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
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
