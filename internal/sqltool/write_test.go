package sqltool_test

import (
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/tool"
)

type object = map[string]any

func (d *desk) write(operation, table string, values, where object) answer {
	d.t.Helper()
	args := object{"operation": operation, "table": table}
	if values != nil {
		args["values"] = values
	}
	if where != nil {
		args["where"] = where
	}
	return d.call(1, args)
}

// writes checks what a write says.
func (d *desk) writes(a answer, rows int, wantError string) {
	d.t.Helper()
	if wantError == "" && (a.Error != "" || a.Changed != rows) || wantError != "" && !strings.Contains(a.Error, wantError) {
		d.t.Errorf("%s; want %d rows, %q", a.text, rows, wantError)
	}
}

// badWrites are refused by both databases: nothing is sent.
func badWrites(d *desk) {
	d.t.Helper()
	for _, c := range []struct {
		operation, table string
		values, where    object
		want             string
	}{
		{"update", "items", object{"name": "x"}, nil, "update needs where"},
		{"update", "items", object{"name": "x"}, object{}, "update needs where"},
		{"delete", "items", nil, nil, "delete needs where"},
		{"delete", "items", nil, object{}, "delete needs where"},
		{"delete", "items", object{"name": "x"}, object{"id": 1}, "delete has no values"},
		{"insert", "items", object{"name": "x"}, object{"id": 1}, "insert has no where"},
		{"insert", "items", nil, nil, "insert needs values"},
		{"update", "items", nil, object{"id": 1}, "update needs values"},
		{"truncate", "items", nil, object{"id": 1}, "operation must be"},
		{"delete", "items; DROP TABLE items", nil, object{"id": 1}, "not a name of a table"},
		{"delete", `items" WHERE 1=1 --`, nil, object{"id": 1}, "not a name of a table"},
		{"delete", "a.b.c", nil, object{"id": 1}, "not a name of a table"},
		{"delete", "", nil, object{"id": 1}, "not a name of a table"},
		{"delete", strings.Repeat("a", 64), nil, object{"id": 1}, "not a name of a table"},
		{"delete", "items", nil, object{`id" = "id" OR "id`: 1}, "not a name of a column"},
		{"delete", "items", nil, object{"1=1 OR id": 1}, "not a name of a column"},
		{"insert", "items", object{"name) VALUES (1)--": 1}, nil, "not a name of a column"},
		{"delete", "hidden", nil, object{"id": 1}, `there is no table "hidden" that may be changed`},
		{"delete", "missing", nil, object{"id": 1}, `there is no table "missing" that may be changed`},
		{"insert", "items", object{"name": "a\x00b"}, nil, "the value of name"},
	} {
		d.writes(d.write(c.operation, c.table, c.values, c.where), 0, c.want)
	}
}

// E03
func TestSQLiteWrites(t *testing.T) {
	d, path := file(t, `CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER, any, gone TEXT);
		CREATE TABLE hidden (id INTEGER); INSERT INTO hidden VALUES (1); CREATE TABLE log (note TEXT);
		CREATE TRIGGER logged AFTER INSERT ON items BEGIN INSERT INTO log VALUES (upper(new.name)); END`)
	d.writes(d.write("insert", "items", object{"name": "x"}, nil), 0, "it has no write_url")
	d.databases[0].WriteURL, d.databases[0].Schemas = "sqlite:"+path, []string{"main.items"}
	badWrites(d)
	d.writes(d.write("insert", "items", object{"name": `O'Hara"; DROP TABLE items; --`, "n": 5, "any": 2, "gone": nil}, nil), 1, "")
	d.writes(d.write("insert", "main.items", object{"name": "b", "n": true, "any": object{"a": []int{1}}}, nil), 1, "")
	d.writes(d.write("insert", "ITEMS", object{"name": "b"}, nil), 0, "UNIQUE")
	d.writes(d.write("update", "items", object{"n": 7.5}, object{"any": 2, "gone": nil}), 1, "")
	d.writes(d.write("update", "items", object{"n": 1}, object{"name": "missing"}), 0, "")
	d.writes(d.write("update", "items", object{"missing": 1}, object{"name": "b"}), 0, "no such column")
	d.databases[0].Schemas = nil
	for query, want := range map[string]string{
		"SELECT json_group_array(json_array(name, n, typeof(any), any)) FROM items": `"[[\"O'Hara\\\"; DROP TABLE items; --\",7.5,\"integer\",2],[\"b\",1,\"text\",\"{\\\"a\\\":[1]}\"]]"`,
		"SELECT group_concat(note) FROM log":                                        `"O'HARA\"; DROP TABLE ITEMS; --,B"`,
		"SELECT count(*) FROM hidden":                                               "1",
	} {
		if got := d.must(query); got[0] != want {
			t.Errorf("%s: %s, want %s", query, got[0], want)
		}
	}
	d.writes(d.write("delete", "sqlite_schema", nil, object{"name": "items"}), 0, "no table")
	d.writes(d.write("delete", "items", nil, object{"name": "b"}), 1, "")

	execute(t, path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1001) INSERT INTO log SELECT 'many' FROM n")
	d.writes(d.write("delete", "log", nil, object{"note": "many"}), 0, "nothing was changed: where selects 1001 rows, and a call may change 1000")
	if got := d.must("SELECT count(*) FROM log"); got[0] != "1003" {
		t.Errorf("%s rows are left", got[0])
	}

	// The role of reading cannot write, whatever the file allows.
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d.refuses("INSERT INTO items (name) VALUES ('x')", "must begin with")
}

// E03
func TestPostgresWrites(t *testing.T) {
	s := newServer(t)
	s.run(`CREATE TABLE items (id serial PRIMARY KEY, name text UNIQUE, n numeric, paid boolean, details jsonb, gone text, at timestamptz);
		CREATE SCHEMA secret; CREATE TABLE secret.hidden (id int); INSERT INTO secret.hidden VALUES (1); CREATE TABLE public.other (id int);
		CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO late VALUES (1)`)
	reader, writer := s.role("reader", ""), s.role("writer", "")
	s.run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + reader + "; GRANT ALL ON ALL TABLES IN SCHEMA public, secret TO " + writer +
		"; GRANT USAGE ON SCHEMA secret TO " + writer + "; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO " + writer)
	d := newDesk(t, org.Database{Name: "shop", URL: "secret:read", Schemas: []string{"public.items", "public.late"}})
	d.secrets["secret:read"] = s.as(reader)
	d.writes(d.write("insert", "items", object{"name": "x"}, nil), 0, "it has no write_url")
	d.databases[0].WriteURL = "secret:write"
	if a := d.write("insert", "items", object{"name": "x"}, nil); a.Setting != "databases.write_url" {
		t.Errorf("%+v", a)
	}
	d.secrets["secret:write"] = s.as(writer)
	badWrites(d)
	d.writes(d.write("delete", "secret.hidden", nil, object{"id": 1}), 0, "there is no table")
	d.writes(d.write("delete", "public.other", nil, object{"id": 1}), 0, "there is no table")
	d.writes(d.write("delete", "pg_catalog.pg_authid", nil, object{"rolname": "postgres"}), 0, "there is no table")
	d.writes(d.write("insert", "items", object{"name": `O'Hara"; DROP TABLE items; --`, "n": 12345678901234567890.0, "paid": true, "details": object{"a": []int{1}}, "gone": nil, "at": "2026-01-02T03:04:05Z"}, nil), 1, "")
	d.writes(d.write("insert", "public.items", object{"name": "b", "n": json.Number("0.10")}, nil), 1, "")
	d.writes(d.write("insert", "items", object{"name": "b"}, nil), 0, "23505")
	d.writes(d.write("update", "items", object{"n": 7}, object{"name": "b", "gone": nil}), 1, "")
	d.writes(d.write("update", "items", object{"n": "no number"}, object{"name": "b"}), 0, "22P02")
	d.writes(d.write("insert", "late", object{"id": 1}, nil), 0, "23505") // at the commit
	d.writes(d.write("insert", "late", object{"id": 2}, nil), 1, "")
	if got := s.run("SELECT string_agg(concat_ws('|', name, n, paid, details), ' ' ORDER BY id) FROM items"); got[0][0] != `O'Hara"; DROP TABLE items; --|12345678901234567000|t|{"a": [1]} b|7` {
		t.Error(got)
	}
	d.writes(d.write("delete", "items", nil, object{"name": "b"}), 1, "")
	s.run("INSERT INTO items (name, gone) SELECT 'n' || i, 'many' FROM generate_series(1, 1001) AS s(i)")
	d.writes(d.write("delete", "items", nil, object{"gone": "many"}), 0, "nothing was changed: where selects 1001 rows")
	if got := d.must("SELECT count(*) FROM items"); got[0] != "1002" {
		t.Errorf("%s rows are left", got[0])
	}

	// The role of reading may not write, and a dangerous one is refused for writing too.
	d.secrets["secret:write"] = s.as(reader)
	d.writes(d.write("delete", "items", nil, object{"id": 1}), 0, "permission denied")
	d.secrets["secret:write"] = s.as(s.role("super", "SUPERUSER"))
	d.writes(d.write("delete", "items", nil, object{"id": 1}), 0, "may do more than read")
}

// A list is written as an array where the type of the column is one, and as JSON where it is not. // E03
func TestListsInPostgres(t *testing.T) {
	s := newServer(t)
	s.run(`CREATE DOMAIN labels AS text[]; CREATE TABLE items (id int PRIMARY KEY, tags text[], nums int[], grid int[][], tagged labels,
		docs jsonb[], doc jsonb, plain json, name text)`)
	writer := s.role("writer", "")
	s.run("GRANT ALL ON items TO " + writer)
	d := newDesk(t, org.Database{Name: "shop", URL: "secret:w", WriteURL: "secret:w", Schemas: []string{"public"}})
	d.secrets["secret:w"] = s.as(writer)
	odd := []any{"a", "b,c", "{d}", `"e"`, `back\slash`, "", "NULL", nil}
	d.writes(d.write("insert", "items", object{
		"id": 1, "tags": odd, "nums": []any{1, nil}, "grid": [][]int{{1, 2}, {3, 4}}, "tagged": []string{"x y"},
		"docs": []any{[]int{1}, object{"a": "b"}, "c", nil}, "doc": []any{1, object{"a": []int{2}}},
		"plain": []string{"x"}, "name": []int{1},
	}, nil), 1, "")
	got := s.run(`SELECT tags = ARRAY['a', 'b,c', '{d}', '"e"', E'back\\slash', '', 'NULL', NULL], nums = ARRAY[1, NULL],
		grid = ARRAY[[1, 2], [3, 4]], tagged[1],
		docs = ARRAY['[1]', '{"a": "b"}', '"c"', NULL]::jsonb[], doc, plain, name FROM items`)[0]
	if want := []string{"t", "t", "t", "x y", "t", `[1, {"a": [2]}]`, `["x"]`, "[1]"}; !slices.Equal(got, want) {
		t.Errorf("the row is %q, want %q", got, want)
	}
	d.writes(d.write("update", "items", object{"tags": []string{}, "nums": []int{}}, object{"tags": odd, "nums": []any{1, nil}}), 1, "")
	if got := s.run("SELECT cardinality(tags), cardinality(nums) FROM items")[0]; !slices.Equal(got, []string{"0", "0"}) {
		t.Errorf("empty lists are stored as %q", got)
	}
	d.writes(d.write("update", "items", object{"nums": []string{"x"}}, object{"id": 1}), 0, "22P02")
	d.writes(d.write("update", "items", object{"missing": []int{1}}, object{"id": 1}), 0, "42703")
	d.writes(d.write("update", "items", object{"tags": []string{"\x00"}}, object{"id": 1}), 0, "the list for tags cannot be written")
}

// A write is executed at most once, and waits for a person unless the operator says otherwise. // E03
func TestWritesAskAndReadsDoNot(t *testing.T) {
	d := newDesk(t)
	all := d.tools()
	if tool.ClassOf(all[0]) != tool.Read || tool.ClassOf(all[1]) != tool.Once {
		t.Error("classes")
	}
	if _, asks := all[0].(tool.Asker); asks {
		t.Error("reading asks")
	}
	if asks, ok := all[1].(tool.Asker); !ok || !asks.Asks(json.RawMessage(`{}`)) {
		t.Error("writing does not ask")
	}
	free, err := sqltool.New(sqltool.Options{WritesUnasked: true, Settings: func() []org.Database { return nil }}).List(t.Context())
	if err != nil || free[1].(tool.Asker).Asks(nil) {
		t.Error("writing asks although it should not", err)
	}
	names := []string{all[0].Definition().Name, all[1].Definition().Name}
	if !slices.Equal(names, []string{"database_query", "database_write"}) {
		t.Error(names)
	}
	for _, one := range all {
		if !json.Valid(one.Definition().InputSchema) {
			t.Errorf("%s has no valid schema", one.Definition().Name)
		}
		if _, err := one.Call(t.Context(), tool.Call{Arguments: json.RawMessage(`[`)}); err == nil {
			t.Error("arguments that are no object are accepted")
		}
	}
}
