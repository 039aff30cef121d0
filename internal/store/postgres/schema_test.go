package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

// The version of the schema, and how many migrations make it.
const latest, inAll = 104, 5

// The server gets the whole file at once, or one statement at a time where it needs no transaction.
func TestEachMigrationIsOneBlockForGoose(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("migrations %q, error %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, block, _ := strings.Cut(string(text), "-- +goose Up\n")
		if strings.Contains(string(text), "-- +goose NO TRANSACTION\n") {
			if n := strings.Count(block, "+goose StatementBegin"); n != strings.Count(block, ";\n") {
				t.Errorf("%s: put each statement into a block of its own", name)
			}
			waits := strings.HasPrefix(block, "-- +goose StatementBegin\nSET lock_timeout = '60s';\n")
			if !waits || !strings.HasSuffix(block, "RESET lock_timeout;\n-- +goose StatementEnd\n") {
				t.Errorf("%s: nobody waits behind it, so let it wait for a minute: SET lock_timeout = '60s' at the begin, RESET at the end", name)
			}
			continue
		}
		if !strings.HasPrefix(block, "-- +goose StatementBegin\n") || !strings.HasSuffix(block, "\n-- +goose StatementEnd\n") {
			t.Errorf("%s: put everything after \"-- +goose Up\" between one StatementBegin and one StatementEnd", name)
		}
	}
}

// sqlite returns a database in memory with the schema of SQLite.
func sqlite(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	files, err := filepath.Glob("../database/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("migrations %q, error %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down\n")
		if _, err := db.ExecContext(t.Context(), up); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return db
}

// without returns the names that do not begin with one of the tables' names.
func without(names []string, tables ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(tables, func(table string) bool { return strings.HasPrefix(name, table+" ") })
	})
}

func TestTheTablesAreThoseOfSQLite(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	lite := sqlite(t)
	own := []string{
		"goose_db_version", "replicas", "owners", "settings_changes", "bucket_files",
		"settings_epoch", "installation", "duties", "file_chunks", "schema_oldest", "code_places",
	}

	// Table, column, place in the primary key, whether it may be NULL.
	want := without(rows(t, lite, `SELECT m.name || ' ' || c.name || ' ' || lower(c.type) || ' ' || c.pk || iif(c."notnull", '', ' null')
		FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`), "probes")
	bodies := []string{"run_facts body", "run_rows body", "conversations body", "shared_lists body", "audit_log body"}
	for i, column := range want {
		column = strings.NewReplacer(" integer ", " bigint ", " blob ", " bytea ").Replace(column)
		for _, body := range bodies {
			column = strings.Replace(column, body+" text", body+" bytea", 1)
		}
		want[i] = column
	}
	for _, table := range []string{"conversations", "hook_messages", "outbox", "tool_cache"} {
		want = append(want, table+" rowid bigint 0")
	}
	got := without(rows(t, db, `SELECT c.table_name || ' ' || c.column_name || ' ' || c.data_type
			|| ' ' || coalesce(array_position(k.conkey, a.attnum::smallint), 0)
			|| CASE c.is_nullable WHEN 'YES' THEN ' null' ELSE '' END
		FROM information_schema.columns c JOIN pg_attribute a ON a.attrelid = c.table_name::regclass AND a.attname = c.column_name
		LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p' WHERE c.table_schema = current_schema()`), own...)
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("columns, - of SQLite, + of PostgreSQL:\n%s", d)
	}

	// Each index of SQLite is there; the columns may end with the rowid, which SQLite adds itself.
	want = rows(t, lite, `SELECT tbl_name || ' ' || name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1`)
	got = rows(t, db, `SELECT tablename || ' ' || indexname FROM pg_indexes WHERE schemaname = current_schema()`)
	for _, index := range want {
		if !slices.Contains(got, index) {
			t.Errorf("the index %s is missing", index)
		}
	}

	// Foreign keys, but for those of the two largest tables.
	want = without(rows(t, lite, `SELECT m.name || ' ' || group_concat(f."from") || ' ' || f."table" || ' ' || lower(f.on_delete)
		FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'
		GROUP BY m.name, f.id ORDER BY 1`), "run_facts", "run_rows")
	got = rows(t, db, `SELECT k.conrelid::regclass || ' ' || (SELECT string_agg(a.attname, ',' ORDER BY n)
			FROM unnest(k.conkey) WITH ORDINALITY u(attnum, n)
			JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum)
		|| ' ' || k.confrelid::regclass || ' ' || CASE k.confdeltype WHEN 'c' THEN 'cascade' WHEN 'a' THEN 'no action' END
		FROM pg_constraint k WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace`)
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("foreign keys, - of SQLite, + of PostgreSQL:\n%s", d)
	}
}

// Servers sort texts by their locale, and C and Go by bytes.
func TestTextsAreComparedByTheirBytes(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	const texts = `FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = current_schema()::regnamespace
		AND c.relkind = 'r' AND a.attnum > 0 AND a.atttypid = 'text'::regtype`
	if n := rows(t, db, `SELECT count(*) `+texts); n[0] < "1" {
		t.Fatal("no column is a text")
	}
	for _, column := range rows(t, db, `SELECT c.relname || '.' || a.attname `+texts+` AND a.attcollation <> '"C"'::regcollation`) {
		t.Errorf(`%s: add COLLATE "C"`, column)
	}
}

func TestOneOfSeveralStartersMigrates(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	postgrestest.Exec(t, o, `DROP SCHEMA `+o.Schema)
	const starters = 5
	versions, errs := make([]postgres.Version, starters), make([]error, starters)
	var all sync.WaitGroup
	for i := range starters {
		all.Go(func() { versions[i], errs[i] = postgres.Migrate(t.Context(), o) })
	}
	all.Wait()
	applied := 0
	for i, v := range versions {
		if errs[i] != nil {
			t.Errorf("starter %d: %v", i, errs[i])
		}
		if v.Now != latest || v.Schema != o.Schema {
			t.Errorf("starter %d: version %+v", i, v)
		}
		applied += v.Applied
	}
	if applied != inAll {
		t.Errorf("%d migrations were applied, want %d", applied, inAll)
	}
}

func TestASchemaIsCreatedIfItIsMissing(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	postgrestest.Exec(t, o, `DROP SCHEMA `+o.Schema)
	o.Migrate = postgres.MigrateNever
	var e *postgres.SchemaError
	if _, err := postgres.Migrate(t.Context(), o); !errors.As(err, &e) || !e.Missing || !errors.Is(err, database.ErrSchema) {
		t.Errorf("never, without the schema: error %v", err)
	}
	o.Migrate = postgres.MigrateStart
	if v, err := postgres.Migrate(t.Context(), o); err != nil || v.Found != 0 || v.Now != latest || v.Applied != inAll {
		t.Errorf("start: version %+v, error %v", v, err)
	}
	if v, err := postgres.Migrate(t.Context(), o); err != nil || v.Found != latest || v.Now != latest || v.Applied != 0 {
		t.Errorf("again: version %+v, error %v", v, err)
	}
	o.Migrate = postgres.MigrateNever
	if v, err := postgres.Migrate(t.Context(), o); err != nil || v.Now != latest {
		t.Errorf("never: version %+v, error %v", v, err)
	}
}

func TestSchemasThatThisBuildCannotUseAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, statements string
		migrate          string
		want             postgres.SchemaError
		says             string
	}{
		{name: "nothing in it", migrate: "never", want: postgres.SchemaError{Known: latest}, says: fmt.Sprintf("has version 0, %d expected: start once", latest)},
		{name: "a table of another program", statements: `CREATE TABLE orders (id bigint)`,
			want: postgres.SchemaError{Known: latest, Foreign: true}, says: "tables of another program: set postgres.schema"},
		{name: "migrations of another program", statements: `CREATE TABLE goose_db_version (version_id bigint, is_applied boolean);
			INSERT INTO goose_db_version VALUES (20240101, true)`,
			want: postgres.SchemaError{Known: latest, Foreign: true}, says: "tables of another program"},
		{name: "a later build that does not share it", statements: fmt.Sprintf(`
			CREATE TABLE goose_db_version (version_id bigint, is_applied boolean);
			INSERT INTO goose_db_version VALUES (100, true), (%d, true); CREATE TABLE schema_oldest (oldest bigint);
			INSERT INTO schema_oldest VALUES (%d)`, latest+4, latest+1),
			want: postgres.SchemaError{Found: latest + 4, Known: latest, Oldest: latest + 1},
			says: fmt.Sprintf("has version %d, which builds from version %d on can use", latest+4, latest+1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := postgrestest.New(t)
			o.Migrate = c.migrate
			postgrestest.Exec(t, o, c.statements)
			_, err := postgres.Migrate(t.Context(), o)
			c.want.Schema = o.Schema
			var e *postgres.SchemaError
			if !errors.As(err, &e) || *e != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v (%+v), want %+v that says %q", err, e, c.want, c.says)
			}
		})
	}
}

// An old build goes on, and starts again, while replicas are exchanged one by one.
func TestASchemaOfALaterBuildThatHasOnlyAddedToItIsUsed(t *testing.T) {
	t.Parallel()
	o, db := migrated(t)
	const later = latest + 1
	if _, err := db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, later); err != nil {
		t.Fatal(err)
	}
	if v, err := postgres.Migrate(t.Context(), o); err != nil || v.Found != later || v.Now != later || v.Applied != 0 {
		t.Errorf("version %+v, error %v", v, err)
	}
}

// Monitoring, for example, makes some.
func TestViewsInASchemaAreNoOtherProgram(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	postgrestest.Exec(t, o, `CREATE VIEW v AS SELECT 1 AS one`)
	if _, err := postgres.Migrate(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// longest is how many bytes a text in an index has at most. What clients and admins send is bounded where it comes in: a text that has
// no bound there needs one, or a digest in its place.
var longest = map[string]int{
	"org": 64, "id": 128, "run_id": 64, "principal": 128, "agent": 64, "webhook": 64, "hook": 128, "name": 128, "provider": 64,
	"surface": 64, "kind": 64, "call_key": 64, "ref": 128, "digest": 64, "hash": 64, "previous_hash": 64, "bucket": 64, "place": 128,
	"request_id": 64, "container": 128, "part": 64,
	"owner":    255, // the name of a machine, or replica.id, with what a process adds
	"end_user": 256, // a longer one becomes a digest
	"model":    512, "target": 512,
	"scope": 64 + 256, "subject": 64 + 256, // the end user of a budget
	"path":         768,
	"session":      128,
	"conversation": 16 + 255, "previous": 16 + 255, // a key with its kind
	"key": 128 + 1 + 255, // an Idempotency-Key with its principal
}

// An index of PostgreSQL takes at most 2,704 bytes of a row, and refuses the row otherwise.
func TestIndexedTextsFit(t *testing.T) {
	const most, others = 2704, 64 // bytes of a row in an index, and of its header and its numbers
	o := postgrestest.New(t)
	if _, err := postgres.Migrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	db := open(t, o)
	sums := map[string]int{}
	for _, row := range rows(t, db, `SELECT i.indexrelid::regclass || ' ' || a.attname FROM pg_index i
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = current_schema()::regnamespace
		WHERE a.atttypid IN ('text'::regtype, 'bytea'::regtype) AND c.relname <> 'goose_db_version'`) {
		index, column, _ := strings.Cut(row, " ")
		bound, known := longest[column]
		if !known {
			t.Errorf("the index %s has the column %s: how long can it be?", index, column)
		}
		sums[index] += bound
	}
	for index, sum := range sums {
		if sum+others > most {
			t.Errorf("a row of the index %s can have %d bytes", index, sum+others)
		}
	}
	if len(sums) < 80 {
		t.Errorf("%d indexes have texts", len(sums))
	}
}

// A build before the schema 103 stored the sessions of chat clients whole.
func TestOldChatSessionsAreMigrated(t *testing.T) {
	t.Parallel()
	k := newMaker(t)
	s, db := k.open(t, storetest.Clocks{Wall: time.Now, Leases: time.Now}).Orgs.(*database.Store), open(t, k.options)
	storetest.OldChatSessions(t, s, func() {
		text, err := os.ReadFile("migrations/00103_chat_sessions.sql")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
	})
	usage := rows(t, db, `SELECT (bytes - 500 - (SELECT sum(250 + octet_length(body)) FROM run_facts)
			- (SELECT count(*) * 300 FROM conversation_keys) - (SELECT sum(250 + octet_length(body)) FROM conversations))
		|| ' bytes and ' || (conversations - (SELECT count(*) FROM conversations)) || ' conversations' FROM org_usage WHERE org = 'a'`)
	if !slices.Equal(usage, []string{"0 bytes and 0 conversations"}) {
		t.Errorf("%q are counted and not stored", usage)
	}
}

// A build before the schema 104 stored the settings of agents as rows.
func TestOldSettingsOfAgentsAreMigrated(t *testing.T) {
	t.Parallel()
	k := newMaker(t)
	s, db := k.open(t, storetest.Clocks{Wall: time.Now, Leases: time.Now}).Orgs.(*database.Store), open(t, k.options)
	execute := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	storetest.OldAgentSettings(t, s, execute, func() {
		text, err := os.ReadFile("migrations/00104_agent_settings.sql")
		if err != nil {
			t.Fatal(err)
		}
		execute(string(text))
	})
	if got := rows(t, db, `SELECT oldest FROM schema_oldest`); !slices.Equal(got, []string{fmt.Sprint(latest)}) {
		t.Errorf("builds from %v on may use the schema", got)
	}
}
