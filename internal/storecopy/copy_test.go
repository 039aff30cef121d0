package storecopy

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/ramdir"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

// TestMain runs one copy in the child of a test, which kills itself.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		copyAsChild()
	}
	goleak.VerifyTestMain(m)
}

func directory(path string) *Directory {
	return &Directory{Path: path, Database: "turnpike.db", Files: "blobs", Others: []string{"audit.key"}}
}

// raw opens a file as no store does: nothing refers to anything.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

func exec1(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// query returns the rows of a query as lines.
func query(t testing.TB, db *sql.DB, text string, args ...any) (lines []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		if err := rows.Scan(pointers(values)...); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line(values...))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func line(values ...any) string { return fmt.Sprintf("%#v", values) }

// ordered are the tables in which the rowid is the order of rows.
var ordered = []string{"conversations", "hook_messages", "outbox"} // read-only

const filled = 5 // rows of each table

// newSource returns a data directory whose database has rows in each table, and whose buckets have files.
func newSource(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(ramdir.New(t), "data")
	path := filepath.Join(dir, "turnpike.db")
	s, err := database.Open(t.Context(), database.Options{Path: path})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	defer db.Close()
	exec1(t, db, `PRAGMA foreign_keys = off`)
	f := filler{t: t, db: db, refers: map[string][2]string{}}
	rows, err := db.QueryContext(t.Context(), `SELECT m.name || '.' || f."from", f."table", f."to"
		FROM sqlite_schema m, pragma_foreign_key_list(m.name) f`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var from, table, to string
		if err := rows.Scan(&from, &table, &to); err != nil {
			t.Fatal(err)
		}
		f.refers[from] = [2]string{table, to}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	f.fill()
	exec1(t, db, `UPDATE webhooks SET waiting = waiting + 7`)
	exec1(t, db, `UPDATE runs SET status = 'running'`)
	exec1(t, db, `UPDATE sqlite_sequence SET seq = 5000000000 WHERE name = 'session_inputs'`)
	for i, path := range []string{"a", "b/c.txt", "empty"} {
		e := disk.Entry{Space: disk.Space{Org: "Acme"}, Bucket: "Reports", Path: path}
		writeFile(t, filepath.Join(dir, "blobs"), e, strings.Repeat("0123456789abcdef", i%2*(9<<20)/16+i%2))
	}
	return dir
}

// filler fills tables.
type filler struct {
	t      testing.TB
	db     *sql.DB
	refers map[string][2]string // a column to that which it names
}

func (f filler) fill() {
	for _, found := range query(f.t, f.db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'
		AND name NOT IN ('goose_db_version', 'probes', 'tool_cache', 'tool_cache_sizes') ORDER BY name`) {
		table := strings.TrimSuffix(strings.TrimPrefix(found, `[]interface {}{"`), `"}`)
		names, types, needed := f.columns(table)
		for i := range filled {
			var values []any
			for c, name := range names {
				values = append(values, f.value(table, strings.Trim(name, `"`), types[c], needed[c], i))
			}
			into := names
			if slices.Contains(ordered, table) {
				into, values = append(slices.Clone(names), "rowid"), append(values, 1000-i*3)
			}
			exec1(f.t, f.db, `INSERT INTO `+table+` (`+strings.Join(into, ", ")+`) VALUES (`+
				strings.TrimSuffix(strings.Repeat("?, ", len(into)), ", ")+`)`, values...)
		}
	}
}

// columns returns the names of a table's columns, their types, and whether they must have a value.
func (f filler) columns(table string) (names, types []string, needed []bool) {
	rows, err := f.db.QueryContext(f.t.Context(), `SELECT name, type, "notnull" OR pk > 0 FROM pragma_table_info(?)`, table)
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, typ string
		var need bool
		if err := rows.Scan(&name, &typ, &need); err != nil {
			f.t.Fatal(err)
		}
		names, types, needed = append(names, `"`+name+`"`), append(types, typ), append(needed, need)
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return names, types, needed
}

// value returns that of a column in the i-th row: those that name each other are equal.
func (f filler) value(table, column, typ string, needed bool, i int) any {
	if to, ok := f.refers[table+"."+column]; ok {
		return f.value(to[0], to[1], typ, true, i)
	}
	if table == "orgs" && column == "id" {
		column = "org"
	}
	switch {
	case !needed && i%2 == 1:
		return nil
	case typ == "INTEGER" && column == "ended_at":
		return i % 2
	case typ == "INTEGER":
		return i*1_000_000_007 - 3
	case column == "events":
		return `["run.completed"]`
	case typ == "BLOB":
		return []byte{0, 255, byte(i)}
	case column == "body" && table != "session_inputs":
		return fmt.Sprintf("%d \x00 \xff {\"é\": \"\\u0000\"}", i)
	}
	return fmt.Sprintf("%s é '\"\n%d", column, i)
}

func writeFile(t testing.TB, directory string, e disk.Entry, content string) {
	t.Helper()
	e.Modified, e.SHA256 = modified, digestOf(content)
	if err := disk.Write(t.Context(), directory, e, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

// dump returns all that is copied of a file: the tables, and the files beside it.
func dump(t testing.TB, dir string) (lines []string) {
	t.Helper()
	db := raw(t, filepath.Join(dir, "turnpike.db"))
	defer db.Close()
	for _, found := range query(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('sqlite_stat1')
		AND name NOT IN ('goose_db_version', 'probes', 'tool_cache', 'tool_cache_sizes') ORDER BY name`) {
		table := strings.TrimSuffix(strings.TrimPrefix(found, `[]interface {}{"`), `"}`)
		columns := "*"
		if slices.Contains(ordered, table) {
			columns = "rowid, *"
		}
		rows := query(t, db, `SELECT `+columns+` FROM `+table)
		if table == "sqlite_sequence" {
			rows = query(t, db, `SELECT * FROM sqlite_sequence WHERE name <> 'goose_db_version'`)
		}
		slices.Sort(rows)
		for _, row := range rows {
			lines = append(lines, table+" "+row)
		}
	}
	return append(lines, files(t, filepath.Join(dir, "blobs"))...)
}

func errKilled(n int) (after func(string) error, counted *int) {
	counted = new(int)
	return func(what string) error {
		if *counted++; *counted == n {
			return fmt.Errorf("killed after %s", what)
		}
		return nil
	}, counted
}

func mustCopy(t testing.TB, o Options) Result {
	t.Helper()
	r, err := Copy(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// migrated returns the options of a schema.
func migrated(t testing.TB) postgres.Options {
	t.Helper()
	o := postgrestest.New(t)
	if _, err := postgres.Migrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func server(t testing.TB, o postgres.Options) *sql.DB {
	t.Helper()
	c, err := o.Connector()
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestThereAndBackAllIsEqual(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from, to := newSource(t), filepath.Join(ramdir.New(t), "data")
	r := mustCopy(t, Options{From: directory(from), Server: o})
	if len(r.Tables) < 35 || r.Files != 3 || r.Resumed || len(r.Left) < 8 {
		t.Errorf("%+v", r)
	}
	db := server(t, o)
	got := query(t, db, `SELECT count(*) FROM runs WHERE lease_until > 0 UNION ALL SELECT count(*) FROM slices`)
	if got[0] != line(int64(0)) || got[1] != got[0] {
		t.Errorf("leases, slices: %s", got)
	}
	for _, next := range []string{
		`INSERT INTO session_inputs (org, session, id, kind, principal, body, created_at)
			SELECT org, id, 'x', '', '', '', 0 FROM sessions LIMIT 1 RETURNING seq = 5000000001`,
		`INSERT INTO outbox (org, id, webhook, event, object, subject, at, next_at, give_up_at)
			SELECT org, 'x', name, '', '', '', 0, 0, 0 FROM webhooks LIMIT 1 RETURNING rowid = 1001`,
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var ok bool
		if err := tx.QueryRowContext(t.Context(), next).Scan(&ok); err != nil || !ok {
			t.Errorf("%s: %v", next, err)
		}
		_ = tx.Rollback()
	}
	exec1(t, db, `SELECT setval('session_inputs_seq_seq', 5000000000), setval('outbox_rowid_seq', 1000)`)
	if r := mustCopy(t, Options{To: directory(to), Server: o}); r.Files != 3 {
		t.Errorf("%+v", r)
	}
	if d := cmp.Diff(dump(t, from), dump(t, to)); d != "" {
		t.Errorf("- source, + after both ways:\n%s", d)
	}
	if entries, _ := os.ReadDir(to); len(entries) != 3 { // the database, its lock, and blobs
		t.Errorf("left in the directory: %v", entries)
	}
	if got := query(t, db, `SELECT name FROM installation`); len(got) != 0 {
		t.Errorf("left in installation: %s", got)
	}
	s, err := database.Open(t.Context(), database.Options{Path: filepath.Join(to, "turnpike.db")})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// A killed gateway of a release, with runs in flight.
func TestAReleaseIsEqualThereAndBack(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from, to := unpack(t, "../crash/testdata/releases/baseline.tar.gz"), filepath.Join(ramdir.New(t), "data")
	mustCopy(t, Options{From: directory(from), Server: o})
	mustCopy(t, Options{To: directory(to), Server: o})
	was := dump(t, from)
	if d := cmp.Diff(was, dump(t, to)); d != "" || len(was) < 300 {
		t.Errorf("%d rows; - source, + after both ways:\n%s", len(was), d)
	}
}

// unpack returns the data directory of an archive.
func unpack(t testing.TB, file string) string {
	t.Helper()
	dir := ramdir.New(t)
	packed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, "data")
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		text, err := io.ReadAll(archive)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnInterruptedCopyGoesOn(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from, to := newSource(t), filepath.Join(ramdir.New(t), "data")
	for _, options := range []Options{{From: directory(from), Server: o}, {To: directory(to), Server: o}} {
		options.pageRows, options.pageBytes = 3, 1<<20
		whole := 0
		for tries := 1; ; tries++ {
			var counted *int
			options.after, counted = errKilled(1 + tries%3)
			r, err := Copy(t.Context(), options)
			whole += *counted
			if err == nil {
				if !r.Resumed || tries < 30 {
					t.Errorf("after %d tries: %+v", tries, r)
				}
				break
			}
			if !strings.Contains(err.Error(), "Repeat the command") || !strings.Contains(err.Error(), "killed after") {
				t.Fatal(err)
			}
			if options.From != nil && tries == 10 { // nothing else may use it meanwhile
				if _, err := postgres.Open(t.Context(), o, database.ServerOptions{}); !errors.Is(err, postgres.ErrCopying) {
					t.Errorf("a gateway would start: %v", err)
				}
				other := options
				other.From = directory(newSource(t))
				if _, err := Copy(t.Context(), other); err == nil || !strings.Contains(err.Error(), "unfinished copy of") {
					t.Errorf("another source: %v", err)
				}
				if _, err := Copy(t.Context(), Options{To: directory(t.TempDir()), Server: o}); err == nil ||
					!strings.Contains(err.Error(), "cannot be copied") {
					t.Errorf("an incomplete source: %v", err)
				}
			}
		}
	}
	if d := cmp.Diff(dump(t, from), dump(t, to)); d != "" {
		t.Errorf("- source, + after both ways:\n%s", d)
	}
}

// Somebody presses Ctrl-C.
func TestACancelledCopyGoesOn(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from, to := newSource(t), filepath.Join(ramdir.New(t), "data")
	for _, options := range []Options{{From: directory(from), Server: o}, {To: directory(to), Server: o}} {
		ctx, cancel := context.WithCancel(t.Context())
		options.after = func(string) error {
			cancel()
			return nil
		}
		if _, err := Copy(ctx, options); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Repeat the command") {
			t.Errorf("%v", err)
		}
		err := postgres.CheckCopying(t.Context(), server(t, o))
		if isTarget := options.From != nil; errors.Is(err, postgres.ErrCopying) != isTarget {
			t.Errorf("a target: %v, and a gateway starts on it: %v", isTarget, err)
		}
		options.after = nil
		if r := mustCopy(t, options); !r.Resumed {
			t.Errorf("%+v", r)
		}
	}
}

const childVariable = "TURNPIKE_STORECOPY_CHILD"

// copyAsChild copies until it kills itself.
func copyAsChild() {
	var from, to, url, schema string
	var n int
	if _, err := fmt.Sscanf(os.Getenv(childVariable), "%q %q %q %q %d", &from, &to, &url, &schema, &n); err != nil {
		panic(err)
	}
	o := Options{Server: postgres.Options{URL: url, Schema: schema}, pageRows: 3, pageBytes: 1 << 20}
	if from != "" {
		o.From = directory(from)
	} else {
		o.To = directory(to)
	}
	o.after = func(string) error {
		if n--; n == 0 {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
		return nil
	}
	if _, err := Copy(context.Background(), o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A killed process leaves its row, and its temporary files.
func TestAKilledCopyGoesOn(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from, to := newSource(t), filepath.Join(ramdir.New(t), "data")
	for _, place := range [][2]string{{from, ""}, {"", to}} {
		for try := 0; ; try++ {
			if try == 20 {
				t.Fatal("it never ends")
			}
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%q %q %q %q %d", childVariable, place[0], place[1], o.URL, o.Schema, 7+try))
			out, err := child.CombinedOutput()
			if err == nil {
				break
			}
			if child.ProcessState.Exited() {
				t.Fatalf("%s", out)
			}
			if err := postgres.CheckCopying(t.Context(), server(t, o)); !errors.Is(err, postgres.ErrCopying) {
				t.Fatalf("a gateway would start: %v", err)
			}
		}
	}
	if d := cmp.Diff(dump(t, from), dump(t, to)); d != "" {
		t.Errorf("- source, + after both ways:\n%s", d)
	}
	if err := postgres.CheckCopying(t.Context(), server(t, o)); err != nil {
		t.Error(err)
	}
}

func refused(t testing.TB, o Options, want string) {
	t.Helper()
	if _, err := Copy(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestNothingIsCopiedWhileAGatewayRuns(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	db := server(t, o)
	from := newSource(t)
	s, err := database.Open(t.Context(), database.Options{Path: filepath.Join(from, "turnpike.db")})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, Options{From: directory(from), Server: o}, "stop the gateway first")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const now = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	const never = now + ` + 3600000` // a beat that does not get old while the test runs
	exec1(t, db, `INSERT INTO replicas (id, seen_at, started_at) VALUES ('one', `+never+`, 0)`)
	refused(t, Options{From: directory(from), Server: o}, "the replica one was seen 0.0 s ago")
	refused(t, Options{To: directory(t.TempDir()), Server: o}, "the replica one was seen 0.0 s ago")
	if err := postgres.CheckCopying(t.Context(), db); err != nil {
		t.Errorf("a refused copy has left its row: %v", err)
	}
	exec1(t, db, `UPDATE replicas SET seen_at = `+now+` - 16000`)
	exec1(t, db, `INSERT INTO owners (owner, until) VALUES ('worker', `+never+`)`)
	refused(t, Options{From: directory(from), Server: o}, "the replica worker was seen 0.0 s ago")
	exec1(t, db, `UPDATE owners SET until = `+now)
	mustCopy(t, Options{From: directory(from), Server: o})

	conn, err := db.Conn(t.Context())
	if err == nil {
		err = postgres.LockCopying(t.Context(), conn)
	}
	if err != nil {
		t.Fatal(err)
	}
	hasty := o
	hasty.LockTimeout = time.Millisecond
	refused(t, Options{To: directory(t.TempDir()), Server: hasty}, "another process copies it")
	if err := conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) { // closes it
		t.Fatal(err)
	}
	to := t.TempDir()
	lock, err := database.Lock(filepath.Join(to, "turnpike.db"))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, Options{To: directory(to), Server: o}, "stop the gateway first")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestATargetMustBeEmpty(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	db := server(t, o)
	from := newSource(t)
	exec1(t, db, `INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES ('x', '', '', 0, 0)`)
	refused(t, Options{From: directory(from), Server: o}, "the table orgs has rows")
	exec1(t, db, `DELETE FROM orgs; INSERT INTO installation (name) VALUES ('master_key')`)
	refused(t, Options{From: directory(from), Server: o}, "the table installation has rows")
	if err := postgres.CheckCopying(t.Context(), db); err != nil {
		t.Errorf("a refused copy has left its row: %v", err)
	}
	for _, name := range []string{"turnpike.db", "audit.key", "blobs"} {
		to := t.TempDir()
		path := filepath.Join(to, name)
		if name == "blobs" {
			path = filepath.Join(to, name, "x")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, Options{To: directory(to), Server: o}, "is not empty: it holds "+name)
	}
	refused(t, Options{From: directory(t.TempDir()), Server: o}, "has nothing to copy")
	refused(t, Options{From: directory(from), To: directory(t.TempDir())}, "turnpike backup")
}

func TestATextThatPostgreSQLCannotHoldIsNamed(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from := newSource(t)
	for text, why := range map[string]string{"a\x00b": "has a NUL", "a\xffb": "is not UTF-8"} {
		db := raw(t, filepath.Join(from, "turnpike.db"))
		exec1(t, db, `UPDATE sessions SET title = CAST(? AS TEXT) WHERE id LIKE '%3'`, text)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		refused(t, Options{From: directory(from), Server: o}, `the column title of the table sessions, in the row org = "org é '\"\n3", `+
			`id = "id é '\"\n3", `+why)
	}
	got := query(t, server(t, o), `SELECT count(*) FROM orgs UNION ALL SELECT count(*) FROM installation`)
	if got[0] != got[1] || got[0] != line(int64(0)) {
		t.Errorf("something was copied: %s", got)
	}
}

// A gateway that has used the source between two tries.
func TestASourceThatHasChangedIsNoticed(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	from := newSource(t)
	options := Options{From: directory(from), Server: o}
	options.after, _ = errKilled(9)
	refused(t, options, "killed after")
	options.after = nil
	change := func(statement string) {
		db := raw(t, filepath.Join(from, "turnpike.db"))
		exec1(t, db, statement)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	change(`UPDATE agents SET name = name || '!'`)
	refused(t, options, "the copy of the table agents is not equal")
	change(`DELETE FROM usage_days`)
	refused(t, options, "which has changed since: start over after DROP SCHEMA")
}

// What triggers do on an insert has to be made good: see counted.
func TestTheTriggersOfInsertsAreKnown(t *testing.T) {
	t.Parallel()
	o := migrated(t)
	db := raw(t, filepath.Join(newSource(t), "turnpike.db"))
	defer db.Close()
	want := []string{line("outbox_added"), line("tool_cache_kept")}
	if d := cmp.Diff(want, query(t, db, `SELECT name FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '% INSERT ON %'
		ORDER BY name`)); d != "" {
		t.Errorf("SQLite: %s", d)
	}
	if d := cmp.Diff(want, query(t, server(t, o), `SELECT g.tgname::text FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND NOT g.tgisinternal AND g.tgtype & 4 > 0 ORDER BY 1`)); d != "" {
		t.Errorf("PostgreSQL: %s", d)
	}
}
