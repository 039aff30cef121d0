package sqltool_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	_ "modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/tool"
)

func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range append([]string{"PRAGMA journal_mode=WAL"}, statements...) {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

const shop = `CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL, note BLOB);
	INSERT INTO orders VALUES (1, 'Ada', 12.5, x'00ff'), (2, 'Grace', NULL, NULL);
	CREATE TABLE salaries (name TEXT, amount INTEGER); INSERT INTO salaries VALUES ('Ada', 100000);
	CREATE VIEW averages AS SELECT avg(amount) AS average FROM salaries;
	CREATE VIEW doubled AS SELECT average * 2 AS twice FROM averages`

// E01
func TestSQLiteReads(t *testing.T) {
	d, _ := file(t, shop)
	a := d.query("SELECT id, customer, total, note FROM orders ORDER BY id; ")
	if want := `{"columns":["id","customer","total","note"],"rows":[[1,"Ada",12.5,"\\x00ff"],[2,"Grace",null,null]],"row_count":2,"truncated":false}`; a.text != want {
		t.Errorf("%s\nwant %s", a.text, want)
	}
	for query, want := range map[string]string{
		"with recursive n(i) as (select 1 union all select i+1 from n where i < 3) select group_concat(i) from n": `"1,2,3"`,
		"/* a */ -- b\n select 7": "7",
		"VALUES (3)":              "3",
		"SELECT count(*) FROM (SELECT 1 UNION SELECT 2)":                                "2",
		"WITH c AS (SELECT 1) SELECT count(*) FROM c":                                   "1",
		"SELECT value FROM json_each('[5]')":                                            "5",
		"SELECT ';' || \"customer\" FROM orders WHERE id = 1":                           `";Ada"`,
		"SELECT average FROM averages":                                                  "100000",
		"SELECT count(*) OVER () FROM orders LIMIT 1":                                   "2",
		"SELECT strftime('%Y', '2026-01-02')":                                           `"2026"`,
		"SELECT customer FROM orders o JOIN salaries s ON s.name = o.customer":          `"Ada"`,
		"SELECT 1; -- done":                                                             "1",
		"SELECT 1 ; /* ; */ ; -- a":                                                     "1",
		"SELECT 9007199254740993":                                                       "9007199254740993",
		"SELECT '<b>&'":                                                                 `"<b>&"`,
		"EXPLAIN QUERY PLAN SELECT 1":                                                   "1",
		"SELECT customer FROM orders WHERE customer LIKE 'a%' AND json_valid('{}') = 1": `"Ada"`,
	} {
		if got := d.must(query); len(got) != 1 || got[0] != want && !strings.HasPrefix(query, "EXPLAIN") {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	if got := d.query(""); !strings.Contains(got.text, `["orders","customer","TEXT"]`) || !strings.Contains(got.text, "averages") {
		t.Errorf("the tables are %s", got.text)
	}
}

// K11; sandbox.md, section 2: each statement that gets around mode=ro and query_only, and those that would if it were possible.
func TestSQLiteAttacksFail(t *testing.T) {
	d, path := file(t, shop)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "made.db")
	for query, want := range map[string]string{
		"ATTACH '" + out + "' AS x":                                  "must begin with",
		"SELECT 1; ATTACH '" + out + "' AS x":                        "one statement",
		"EXPLAIN ATTACH '" + out + "' AS x":                          "only read",
		"VACUUM INTO '" + out + "'":                                  "must begin with",
		"SELECT 1;VACUUM INTO '" + out + "'":                         "one statement",
		"SELECT 1; DROP TABLE orders":                                "one statement",
		"SELECT 1 /* ; */ ; DELETE FROM orders":                      "one statement",
		"SELECT [a;] ; DELETE FROM orders":                           "one statement",
		"SELECT 1; -- done\nDELETE FROM orders":                      "one statement",
		"SELECT 1; /* ; */ 'x'":                                      "one statement",
		"DELETE FROM orders":                                         "must begin with",
		"WITH x AS (SELECT 1) DELETE FROM orders":                    "only read",
		"WITH x AS (SELECT 1) INSERT INTO orders SELECT 3,4,5,6":     "only read",
		"WITH x AS (SELECT 1) UPDATE orders SET total = 0":           "only read",
		"EXPLAIN DROP TABLE orders":                                  "only read",
		"PRAGMA query_only = 0":                                      "must begin with",
		"EXPLAIN PRAGMA query_only":                                  "only read",
		"SELECT * FROM pragma_database_list":                         "pragma_database_list",
		"SELECT count(*) FROM pragma_database_list":                  "pragma_database_list",
		"SELECT * FROM pragma_table_info('orders')":                  "pragma_table_info",
		"SELECT * FROM sqlite_schema":                                "sqlite_",
		"SELECT count(*) FROM sqlite_master":                         "sqlite_",
		"SELECT sql FROM sqlite_temp_master":                         "sqlite_",
		"SELECT * FROM dbstat":                                       "",
		"SELECT load_extension('/tmp/x.so')":                         "load_extension",
		"SELECT fts3_tokenizer('simple')":                            "",
		"SELECT zeroblob(100000000)":                                 "zeroblob",
		"SELECT randomblob(100000000)":                               "randomblob",
		"SELECT replace(printf('%01000000d', 0), '0', '0123456789')": "too big",
		"SELECT sqlite_version()":                                    "sqlite_version",
		"SELECT sqlite_compileoption_get(1)":                         "sqlite_compileoption_get",
		"SELECT readfile('/etc/passwd')":                             "no such function",
		"SELECT \"no_such\" FROM orders":                             "no such column",
		"SELECT last_insert_rowid()":                                 "last_insert_rowid",
		"BEGIN IMMEDIATE":                                            "must begin with",
		"SELECT ?":                                                   "",
		"SELECT 'open":                                               "",
		"/* open":                                                    "must begin with",
	} {
		d.refuses(query, want)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was made")
	}
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
}

// E02
func TestSQLiteReadsOnlyAllowedTables(t *testing.T) {
	d, _ := file(t, shop)
	d.databases[0].Schemas = []string{"main.orders", "main.averages"}
	if got := d.must("SELECT average FROM averages"); got[0] != "100000.0" && got[0] != "100000" {
		t.Error(got)
	}
	for _, query := range []string{
		"SELECT * FROM salaries",
		"SELECT * FROM SALARIES",
		`SELECT * FROM "salaries"`,
		"SELECT * FROM [salaries]",
		"SELECT * FROM main.salaries",
		"SELECT count(*) FROM salaries",
		"SELECT 1 WHERE EXISTS (SELECT 1 FROM salaries)",
		"SELECT (SELECT amount FROM salaries)",
		"SELECT * FROM orders NATURAL JOIN salaries",
		"WITH averages AS (SELECT * FROM salaries) SELECT * FROM averages",
		"WITH averages AS (SELECT amount FROM salaries) SELECT count(*), max(amount) FROM averages",
		"SELECT * FROM averages, (SELECT * FROM salaries)",
		"SELECT average FROM averages UNION SELECT amount FROM salaries",
		"SELECT * FROM doubled",
		"SELECT count(*) FROM doubled",
		"WITH doubled AS (SELECT * FROM main.doubled) SELECT * FROM doubled",
		"VALUES ((SELECT max(amount) FROM salaries))",
		"EXPLAIN SELECT * FROM salaries",
		"SELECT 1 FROM orders ORDER BY (SELECT max(amount) FROM salaries)",
		"SELECT 1 FROM orders LIMIT (SELECT max(amount) FROM salaries)",
		"SELECT 1 FROM orders WHERE id IN salaries",
		"SELECT sum(id) FILTER (WHERE (SELECT amount FROM salaries) > 1) FROM orders",
		"SELECT orders.amount FROM salaries AS orders, orders AS salaries",
	} {
		d.refuses(query, "is not one that queries may use; allowed: main.orders, main.averages")
	}
	d.schemas = map[string][]string{"main": {"orders", "salaries"}} // an assignment allows no more than the database
	d.refuses("SELECT * FROM salaries", "allowed: main.orders")
	d.refuses("SELECT * FROM averages", "allowed: main.orders")
	if d.must("SELECT count(*) FROM orders")[0] != "2" {
		t.Error("orders cannot be read")
	}
	if got := d.query("").text; strings.Contains(got, "salaries") || strings.Contains(got, "averages") || !strings.Contains(got, "orders") {
		t.Errorf("listed: %s", got)
	}
	d.schemas = map[string][]string{"other": {}}
	if a := d.query("SELECT 1"); a.Setting != "schemas" {
		t.Errorf("%+v", a)
	}
}

// 50,000 characters are cut while reading, and a statement that does not end is stopped. // E01
func TestSQLiteIsBounded(t *testing.T) {
	d, _ := file(t, shop)
	endless := "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) "
	began := time.Now()
	a := d.query(endless + "SELECT i, 'x' FROM n")
	if !a.Truncated || a.RowCount < 1000 || a.RowCount != len(a.Rows) || utf8.RuneCountInString(a.text) > 50_000 || !strings.Contains(a.Note, "LIMIT") {
		t.Errorf("%d rows, %d characters, %q", a.RowCount, len(a.text), a.Note)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("rows without an end took %s", took)
	}
	if a := d.query("SELECT printf('%020000d', 0) || 'ä'"); !strings.Contains(a.text, "cut: the value has 20001 characters") || len(a.text) > 15_000 {
		t.Errorf("a long value: %d bytes, %.100s", len(a.text), a.text)
	}
	d.refuses("SELECT "+strings.TrimSuffix(strings.Repeat("printf('%09000d', 0),", 9), ","), "a row is longer than 50000 characters")
	d.databases[0].StatementTimeout = 200 * time.Millisecond
	d.refuses(endless+"SELECT max(i) FROM n", "took longer than 200ms and was stopped")
	d.refuses(strings.Repeat(" ", 33<<10)+"SELECT 1", "longer than 32768 bytes")
	d.refuses("SELECT '\x00'", "not text")
}

// A query takes a bounded part of the memory, and ends with its time and its caller, whatever function it is in.
func TestSQLiteQueriesAreConfined(t *testing.T) {
	d, _ := file(t, shop)
	d.refuses("SELECT "+strings.TrimSuffix(strings.Repeat("printf('%01000000d',0),", 500), ","), "out of memory")
	if text := d.query("SELECT length(x), substr(x, 1, 2) FROM (SELECT printf('%01000000d', 0) AS x)").text; !strings.Contains(text, `[1000000,"00"]`) {
		t.Errorf("a large value: %s", text)
	}
	endless := "SELECT instr(printf('%01000000d', 0), printf('%0500000d', 0) || '1')"
	d.databases[0].StatementTimeout = 300 * time.Millisecond
	began := time.Now()
	d.refuses(endless, "took longer than 300ms and was stopped")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it was stopped after %s", took)
	}
	d.databases[0].StatementTimeout = time.Minute
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, leave)
	began = time.Now()
	arguments, err := json.Marshal(map[string]string{"query": endless})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.tools()[0].Call(ctx, tool.Call{Arguments: arguments}); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it goes on for %s after the caller has left", took)
	}
	d.connections = sqltool.NewConnections(sqltool.ConnectionOptions{})
	if a := d.query("SELECT 1"); a.Setting != "databases" || !strings.Contains(a.Error, "cannot start the process") {
		t.Errorf("%+v", a)
	}
}

// The gateway's own file is never opened, by whatever name.
func TestSQLiteFilesThatAreNotOpened(t *testing.T) {
	d, path := file(t, shop)
	own := filepath.Join(t.TempDir(), "own")
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(own, "turnpike.db")
	execute(t, data, "CREATE TABLE keys (hash TEXT)")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	hard := filepath.Join(t.TempDir(), "hard.db")
	if err := os.Link(data, hard); err != nil {
		t.Fatal(err)
	}
	d.use(sqltool.ConnectionOptions{Own: sqltool.OwnFiles(own)})
	for _, path := range []string{data, link, hard, own + "/../own/turnpike.db", data + "-wal"} {
		d.databases[0].URL = "sqlite:" + path
		if path == data+"-wal" {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d.refuses("SELECT 1", "belongs to the gateway itself")
	}
	missing := filepath.Join(t.TempDir(), "missing.db")
	d.databases[0].URL = "sqlite:" + missing
	d.refuses("SELECT 1", "does not exist")
	if _, err := os.Stat(missing); err == nil {
		t.Error("the file was made")
	}
	d.databases[0].URL = "sqlite:" + t.TempDir()
	d.refuses("SELECT 1", "names no file")

	// What an org says names no file, be it in its settings or in its vault.
	d.databases = []org.Database{{Name: "shop", URL: "sqlite:" + path}}
	d.refuses("SELECT 1", "only the configuration file may name a file of SQLite")
	d.secrets["secret:shop"] = "sqlite:" + path
	for _, fromFile := range []bool{false, true} {
		d.databases = []org.Database{{Name: "shop", URL: "secret:shop", FromFile: fromFile}}
		d.refuses("SELECT 1", "only the configuration file may name a file of SQLite")
	}
	d.secrets["env:SHOP"] = "sqlite:" + path
	d.databases = []org.Database{{Name: "shop", URL: "env:SHOP"}}
	d.refuses("SELECT 1", "env:SHOP: only secret:NAME is allowed here")
	d.databases[0].FromFile = true
	if got := d.must("SELECT count(*) FROM orders"); got[0] != "2" {
		t.Error(got)
	}
}

// C22
func TestWhatIsMissingIsNamed(t *testing.T) {
	d := newDesk(t)
	if a := d.query("SELECT 1"); a.Setting != "databases" || !strings.Contains(a.Error, "no database is configured") {
		t.Errorf("%+v", a)
	}
	d.databases = []org.Database{{Name: "a", URL: "secret:a"}, {Name: "b", URL: "secret:b"}}
	d.refuses("SELECT 1", "name the database: a, b")
	if a := d.call(0, map[string]string{"database": "c", "query": "SELECT 1"}); !strings.Contains(a.Error, "there are: a, b") {
		t.Errorf("%+v", a)
	}
	a := d.call(0, map[string]string{"database": "a", "query": "SELECT 1"})
	if a.Setting != "databases.url" || !strings.Contains(a.Error, "secret:a cannot be resolved") || !strings.Contains(a.Error, "/api/secrets/") {
		t.Errorf("%+v", a)
	}
}
