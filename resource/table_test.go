package resource_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
	"github.com/turnpike-gateway/turnpike/turnpiketest/crashtest"
)

// open returns a database with the statements executed.
func open(t testing.TB, statements ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/shop.db?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	return db
}

const productTable = `CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL, cents INTEGER NOT NULL DEFAULT 0,
	sold BOOLEAN NOT NULL DEFAULT FALSE, made DATETIME, photo BLOB, extra JSON, owner TEXT, "odd ""name" TEXT, twice INTEGER AS (2 * cents), call_key TEXT UNIQUE)`

func products(t testing.TB) *sql.DB {
	return open(t, productTable,
		`INSERT INTO products (id, name, price, cents, sold, made, photo, extra, owner) VALUES
		(1, 'Green tea', 3.5, 350, TRUE, '2026-01-02 03:04:05', x'00ff', '{"a": [1]}', 'ada'),
		(2, 'Black tea', 3, 300, FALSE, NULL, NULL, NULL, 'ada'),
		(3, 'Rooibos 100%', NULL, 9007199254740993, FALSE, NULL, NULL, NULL, 'eve')`)
}

func table(t testing.TB, db *sql.DB, o resource.TableOptions) *resource.Resource {
	t.Helper()
	r, err := resource.Table(t.Context(), db, "products", o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func all() []resource.Verb {
	return []resource.Verb{resource.Get, resource.Search, resource.Create, resource.Update, resource.Delete}
}

// ask calls a verb, and returns its result, or its error with an exclamation mark.
func ask(t testing.TB, r *resource.Resource, c tool.Caller, verb resource.Verb, arguments string) string {
	t.Helper()
	var out json.RawMessage
	if err := r.As(c).Call(t.Context(), verb, json.RawMessage(arguments), &out); err != nil {
		return err.Error() + "!"
	}
	return string(out)
}

func TestAFreshTableIsReadOnly(t *testing.T) {
	r := table(t, products(t), resource.TableOptions{})
	if got := fmt.Sprint(names(r.Tools(anybody()))); got != "[get_products search_products]" {
		t.Error(got)
	}
	const row = `{"id":1,"name":"Green tea","price":3.5,"cents":350,"sold":true,"made":"2026-01-02 03:04:05","photo":"AP8=","extra":{"a":[1]},"owner":"ada","odd \"name":null,"twice":700,"call_key":null}`
	if got := ask(t, r, anybody(), resource.Get, `{"id":1}`); got != row {
		t.Error(got)
	}
	if err := r.As(anybody()).Call(t.Context(), resource.Get, map[string]int{"id": 7}, nil); !errors.Is(err, resource.ErrNotFound) {
		t.Error(err)
	}
}

func TestSearches(t *testing.T) {
	r := table(t, products(t), resource.TableOptions{Columns: []string{"id", "name", "price", "cents", "sold", "made", "photo", "extra"}})
	for _, c := range []struct{ arguments, want string }{
		{`{}`, "1 2 3"},
		{`{"where":{"name":{"contains":"TEA"}}}`, "1 2"},
		{`{"where":{"name":{"starts_with":"green"}}}`, "1"},
		{`{"where":{"name":{"contains":"0%"}}}`, "3"},
		{`{"where":{"name":{"contains":"_"}}}`, ""},
		{`{"where":{"name":{"eq":"' OR 1=1 --"}}}`, ""},
		{`{"where":{"name":{"gt":"C"}}}`, "1 3"},
		{`{"where":{"price":{"gte":3,"lt":3.5}}}`, "2"},
		{`{"where":{"price":{"null":true}}}`, "3"},
		{`{"where":{"price":{"null":false},"sold":{"eq":false}}}`, "2"},
		{`{"where":{"cents":{"eq":9007199254740993}}}`, "3"},
		{`{"where":{"cents":{"eq":300.0}}}`, "2"},
		{`{"where":{"id":{"in":[3,1,9]}},"order_by":"price"}`, "3 1"},
		{`{"where":{"made":{"lt":"2026-02"}}}`, "1"},
		{`{"where":{"photo":{"eq":"AP8="}}}`, "1"},
		{`{"where":{"extra":{"null":false}}}`, "1"},
		{`{"order_by":"name"}`, "2 1 3"},
		{`{"order_by":"name","descending":true}`, "3 1 2"},
		{`{"descending":true}`, "3 2 1"},
		{`{"limit":2}`, "1 2 more"},
		{`{"limit":2,"offset":2}`, "3"},
		{`{"limit":3}`, "1 2 3"},
		{`{"columns":["id","id"]}`, "1 2 3"},

		{`{"where":{"prize":{"eq":1}}}`, "!"},
		{`{"where":{"owner":{"eq":"ada"}}}`, "!"}, // not of Columns
		{`{"order_by":"owner"}`, "!"},
		{`{"order_by":"extra"}`, "!"},
		{`{"columns":["owner"]}`, "!"},
		{`{"columns":[]}`, "!"},
		{`{"where":{"name":{"like":"x"}}}`, "!"},
		{`{"where":{"sold":{"gt":true}}}`, "!"},
		{`{"where":{"cents":{"eq":"300"}}}`, "!"},
		{`{"where":{"cents":{"eq":1.5}}}`, "!"},
		{`{"where":{"id":{"in":[]}}}`, "!"},
		{`{"where":{"name":{"eq":null}}}`, "!"},
		{`{"where":{"name":{}}}`, "!"},
		{`{"limit":1001}`, "!"},
		{`{"limit":0}`, "!"},
		{`{"offset":-1}`, "!"},
		{`{"sql":"DROP TABLE products"}`, "!"},
	} {
		var out struct {
			Rows []struct{ ID int64 }
			More bool
		}
		err := r.As(anybody()).Call(t.Context(), resource.Search, json.RawMessage(c.arguments), &out)
		if c.want == "!" {
			if !errors.Is(err, resource.ErrInvalid) {
				t.Errorf("%s: %v, want an error", c.arguments, err)
			}
			continue
		}
		var ids []string
		for _, row := range out.Rows {
			ids = append(ids, fmt.Sprint(row.ID))
		}
		if out.More {
			ids = append(ids, "more")
		}
		if got := strings.Join(ids, " "); got != c.want || err != nil {
			t.Errorf("%s: %s, want %s (%v)", c.arguments, got, c.want, err)
		}
	}
}

// What the schema refuses is refused without it, too: a program may call tools without validation.
func TestArgumentsAreCheckedWithoutTheirSchema(t *testing.T) {
	r := table(t, products(t), resource.TableOptions{Verbs: all(), Columns: []string{"id", "name", "cents", "sold"}})
	for tool, list := range map[string][]string{
		"search_products": {`{"where":{"owner":{"eq":"ada"}}}`, `{"order_by":"owner"}`, `{"columns":["owner"]}`, `{"columns":[]}`, `{"limit":1001}`, `{"limit":0}`, `{"offset":-1}`, `{"x":1}`,
			`{"where":{"sold":{"gt":true}}}`, `{"where":{"cents":{"eq":"3"}}}`, `{"where":{"cents":{"in":[]}}}`, `{"where":{"name":{"eq":null}}}`, `{"where":{"name":{"null":null}}}`, `{"order_by":"x"}`,
			`{"where":{"cents":{"eq":1e400}}}`, `{"where":{"name":{"eq":"a\u0000b"}}}`, `7`},
		"get_products":    {`{}`, `{"id":"1"}`, `{"id":null}`, `{"id":1,"name":"x"}`},
		"create_products": {`{"owner":"ada"}`, `{"name":7}`, `{"name":"x","twice":7}`, `{"nam":"x"}`},
		"update_products": {`{"id":1}`, `{"id":1,"set":{}}`, `{"id":1,"set":{"id":2}}`, `{"id":1,"set":{"owner":"eve"}}`, `{"id":1,"set":{"sold":1}}`, `{"id":1,"name":"x"}`},
		"delete_products": {`{}`, `{"id":1,"x":1}`},
	} {
		for _, arguments := range list {
			if got, failed := call(t, r, anybody(), tool, arguments); !failed || !strings.Contains(got, "invalid arguments") {
				t.Errorf("%s %s: %s", tool, arguments, got)
			}
		}
	}
}

func TestWrites(t *testing.T) {
	db := products(t)
	r := table(t, db, resource.TableOptions{Verbs: all()})
	for _, c := range []struct {
		verb      resource.Verb
		arguments string
		want      string
	}{
		{resource.Create, `{"name":"Oolong","price":4.25,"cents":425,"sold":true,"extra":{"b": null},"photo":"aGk=","made":"2026-05-06","odd \"name":"o"}`, `{"id":4}`},
		{resource.Get, `{"id":4}`, `{"id":4,"name":"Oolong","price":4.25,"cents":425,"sold":true,"made":"2026-05-06","photo":"aGk=","extra":{"b":null},"owner":null,"odd \"name":"o","twice":850,"call_key":null}`},
		{resource.Create, `{"id":9,"name":"Mate"}`, `{"id":9}`},
		{resource.Create, `{"id":9,"name":"Mate"}`, `!`},
		{resource.Create, `{"cents":1}`, `!`},
		{resource.Update, `{"id":4,"set":{"price":null,"cents":-1}}`, `{"id":4}`},
		{resource.Search, `{"where":{"cents":{"lt":0}},"columns":["id","price"]}`, `{"rows":[{"id":4,"price":null}],"more":false}`},
		{resource.Update, `{"id":4,"set":{"name":null}}`, `!`},
		{resource.Update, `{"id":40,"set":{"cents":1}}`, `!`},
		{resource.Delete, `{"id":4}`, `{"id":4}`},
		{resource.Delete, `{"id":4}`, `!`},
	} {
		got := ask(t, r, anybody(), c.verb, c.arguments)
		if c.want == "!" && !strings.HasSuffix(got, "!") || c.want != "!" && got != c.want {
			t.Errorf("%s %s: %s, want %s", c.verb, c.arguments, got, c.want)
		}
	}
	if got := ask(t, r, anybody(), resource.Create, `{"id":9,"name":"Mate"}`); !strings.Contains(got, "UNIQUE constraint failed") {
		t.Errorf("the model is not told why: %s", got)
	}
}

// Each caller has the rows of the filter, in every verb, and nobody can leave them.
func TestRowsOfACaller(t *testing.T) {
	db := products(t)
	r := table(t, db, resource.TableOptions{Verbs: all(), Rows: map[string]func(tool.Caller) any{"owner": func(c tool.Caller) any {
		if c.ID == "" {
			return nil
		}
		return c.ID
	}}})
	as := func(id string) tool.Caller { return tool.Caller{ID: id, Permissions: []string{"*"}} }
	count := func(id string) int {
		var out struct{ Rows []json.RawMessage }
		if err := r.As(as(id)).Call(t.Context(), resource.Search, nil, &out); err != nil {
			t.Fatal(err)
		}
		return len(out.Rows)
	}
	if count("ada") != 2 || count("eve") != 1 || count("bob") != 0 || count("") != 0 {
		t.Error(count("ada"), count("eve"), count("bob"), count(""))
	}
	for _, c := range []struct {
		id        string
		verb      resource.Verb
		arguments string
		want      error
	}{
		{"eve", resource.Get, `{"id":1}`, resource.ErrNotFound},
		{"eve", resource.Update, `{"id":1,"set":{"cents":0}}`, resource.ErrNotFound},
		{"eve", resource.Delete, `{"id":1}`, resource.ErrNotFound},
		{"eve", resource.Update, `{"id":3,"set":{"owner":"ada"}}`, resource.ErrInvalid},
		{"eve", resource.Create, `{"name":"x","owner":"ada"}`, resource.ErrInvalid},
		{"eve", resource.Create, `{"name":"x"}`, nil},
		{"", resource.Create, `{"name":"x"}`, resource.ErrInvalid},
		{"", resource.Get, `{"id":1}`, resource.ErrNotFound},
		{"", resource.Delete, `{"id":1}`, resource.ErrNotFound},
		{"eve", resource.Update, `{"id":3,"set":{"cents":1}}`, nil},
		{"eve", resource.Delete, `{"id":3}`, nil},
	} {
		if err := r.As(as(c.id)).Call(t.Context(), c.verb, json.RawMessage(c.arguments), nil); !errors.Is(err, c.want) {
			t.Errorf("%s %s %s: %v, want %v", c.id, c.verb, c.arguments, err, c.want)
		}
	}
	if count("ada") != 2 || count("eve") != 1 {
		t.Error(count("ada"), count("eve"))
	}
}

func TestWrongTables(t *testing.T) {
	db := open(t, productTable, `CREATE TABLE plain (a TEXT, b TEXT NOT NULL)`, `CREATE TABLE indexed (a TEXT PRIMARY KEY, b INTEGER)`)
	for _, c := range []struct {
		name string
		o    resource.TableOptions
		want string
	}{
		{"product", resource.TableOptions{}, "no such table"},
		{`products" WHERE 1=1 --`, resource.TableOptions{}, "no such table"},
		{"products", resource.TableOptions{Schema: "elsewhere"}, "elsewhere"},
		{"products", resource.TableOptions{Columns: []string{"id", "prize"}}, `Columns names the column "prize", and the table has the columns id, name`},
		{"products", resource.TableOptions{Columns: []string{"id", "id"}}, "twice"},
		{"products", resource.TableOptions{Columns: []string{"name"}}, "is of the key, and Columns does not name it"},
		{"products", resource.TableOptions{Key: []string{"ID"}}, `Key names the column "ID"`},
		{"products", resource.TableOptions{Key: []string{"extra"}}, "which are no key"},
		{"products", resource.TableOptions{Writable: []string{"twice"}}, "the database computes it"},
		{"products", resource.TableOptions{Columns: []string{"id"}, Writable: []string{"name"}}, "Columns does not name it"},
		{"products", resource.TableOptions{Writable: []string{"owner"}, Rows: map[string]func(tool.Caller) any{"owner": func(tool.Caller) any { return 1 }}}, "the caller determines it"},
		{"products", resource.TableOptions{Rows: map[string]func(tool.Caller) any{"own": func(tool.Caller) any { return 1 }}}, `Rows names the column "own"`},
		{"products", resource.TableOptions{Rows: map[string]func(tool.Caller) any{"owner": nil}}, "no function"},
		{"products", resource.TableOptions{Verbs: []resource.Verb{"drop"}}, `Verbs names "drop"`},
		{"products", resource.TableOptions{Verbs: []resource.Verb{resource.Get, resource.Get}}, "two tools"},
		{"products", resource.TableOptions{Verbs: []resource.Verb{resource.Create}, Writable: []string{"cents"}}, `create cannot set the column "name"`},
		{"products", resource.TableOptions{Verbs: []resource.Verb{resource.Update}, Writable: []string{"id"}}, "update has no column"},
		{"products", resource.TableOptions{CallKey: "nothing"}, `CallKey names the column "nothing"`},
		{"products", resource.TableOptions{CallKey: "name"}, "unique index"},
		{"products", resource.TableOptions{CallKey: "cents"}, "not a text"},
		{"products", resource.TableOptions{Timeout: -1}, "Timeout"},
		{"plain", resource.TableOptions{Verbs: all()}, "no primary key"},
		{"products", resource.TableOptions{Verbs: []resource.Verb{}}, "no verb is left"},
		{"plain", resource.TableOptions{Columns: []string{}}, "callers see none of its columns"},
	} {
		if _, err := resource.Table(t.Context(), db, c.name, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %s", c.name, c.o, err, c.want)
		}
	}
	if _, err := resource.Table(t.Context(), nil, "x", resource.TableOptions{}); err == nil {
		t.Error("no database")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := resource.Table(ended, db, "products", resource.TableOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestKeysOfOtherForms(t *testing.T) {
	db := open(t, `CREATE TABLE products (shop TEXT, "set" INTEGER, n INTEGER, PRIMARY KEY (shop, "set"))`, `INSERT INTO products VALUES ('a', 1, 5), ('a', 2, 6), ('b', 1, 7)`)
	r := table(t, db, resource.TableOptions{Verbs: all()})
	if got := ask(t, r, anybody(), resource.Get, `{"shop":"b","set":1}`); got != `{"shop":"b","set":1,"n":7}` {
		t.Error(got)
	}
	if got := ask(t, r, anybody(), resource.Update, `{"shop":"b","set":1,"set_":{"n":8}}`); got != `{"shop":"b","set":1}` {
		t.Error(got)
	}
	if got := ask(t, r, anybody(), resource.Create, `{"shop":"c"}`); !strings.HasSuffix(got, "!") {
		t.Error(got)
	}
	wide := table(t, db, resource.TableOptions{Verbs: all(), Key: []string{"shop"}})
	for _, got := range []string{ask(t, wide, anybody(), resource.Get, `{"shop":"a"}`), ask(t, wide, anybody(), resource.Update, `{"shop":"a","set":{"n":0}}`), ask(t, wide, anybody(), resource.Delete, `{"shop":"a"}`)} {
		if !strings.Contains(got, "several rows") {
			t.Error(got)
		}
	}
	if got := ask(t, r, anybody(), resource.Search, `{"where":{"shop":{"eq":"a"}},"columns":["n"]}`); got != `{"rows":[{"n":5},{"n":6}],"more":false}` {
		t.Errorf("a change of several rows was not undone: %s", got)
	}
	plain := open(t, `CREATE TABLE products (n INTEGER)`)
	r = table(t, plain, resource.TableOptions{})
	if got := fmt.Sprint(names(r.Tools(anybody()))); got != "[search_products]" {
		t.Error(got)
	}
	r = table(t, plain, resource.TableOptions{Verbs: []resource.Verb{resource.Create}})
	if got := ask(t, r, anybody(), resource.Create, `{}`) + ask(t, r, anybody(), resource.Create, `{"n":1}`); got != `{"done":true}{"done":true}` {
		t.Error(got)
	}
}

// A search returns at most 1,000 rows, and at most 1 MiB.
func TestBoundsOfASearch(t *testing.T) {
	db := open(t, `CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT)`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) INSERT INTO products SELECT i, 'x' FROM n`)
	r := table(t, db, resource.TableOptions{})
	count := func(arguments string) (int, bool) {
		var out struct {
			Rows []json.RawMessage
			More bool
		}
		if err := r.As(anybody()).Call(t.Context(), resource.Search, json.RawMessage(arguments), &out); err != nil {
			t.Fatal(err)
		}
		return len(out.Rows), out.More
	}
	if n, more := count(`{"limit":1000}`); n != 1000 || !more {
		t.Error(n, more)
	}
	if n, more := count(`{}`); n != 50 || !more {
		t.Error(n, more)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE products SET name = printf('%.*c', 100000, 'y') WHERE id <= 20`); err != nil {
		t.Fatal(err)
	}
	if n, more := count(`{"limit":1000}`); n != 10 || !more {
		t.Error(n, more)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE products SET name = printf('%.*c', 2000000, 'y') WHERE id <= 20`); err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{ask(t, r, anybody(), resource.Search, `{}`), ask(t, r, anybody(), resource.Get, `{"id":1}`)} {
		if !strings.Contains(got, "larger than 1048576 bytes") {
			t.Errorf("%.100s", got)
		}
	}
	if got := ask(t, r, anybody(), resource.Search, `{"columns":["id"],"limit":1}`); got != `{"rows":[{"id":1}],"more":true}` {
		t.Error(got)
	}
}

// full is the memory of a call that has none left.
type full struct{ asked int }

func (f *full) Acquire(n int) error { f.asked += n; return errFull }
func (*full) Release(int)           {}

func TestRowsAreCharged(t *testing.T) {
	r := table(t, products(t), resource.TableOptions{})
	for _, one := range r.Tools(anybody()) {
		f := &full{}
		result, err := one.Call(t.Context(), tool.Call{Caller: anybody(), Arguments: json.RawMessage(map[bool]string{true: `{"id":1}`, false: `{}`}[one.Definition().Name == "get_products"]), Memory: f})
		if err != nil || !errors.Is(result.Cause, errFull) || f.asked < 100 {
			t.Error(one.Definition().Name, result, err, f.asked)
		}
	}
}

// A create whose answer was lost is repeated with its key, and makes one row.
func TestACreateIsRepeatedWithItsKey(t *testing.T) {
	db := products(t)
	r := table(t, db, resource.TableOptions{Verbs: []resource.Verb{resource.Create, resource.Search}, CallKey: "call_key", Rows: map[string]func(tool.Caller) any{"owner": func(c tool.Caller) any { return c.ID }}})
	create := r.Tools(anybody())[0]
	if tool.ClassOf(create) != tool.Keyed || strings.Contains(string(create.Definition().InputSchema), "call_key") {
		t.Error(tool.ClassOf(create), string(create.Definition().InputSchema))
	}
	try := func(id, key string, attempt int) string {
		result, err := create.Call(t.Context(), tool.Call{
			Caller: tool.Caller{ID: id, Permissions: []string{"*"}}, IdempotencyKey: key, Attempt: attempt, Arguments: json.RawMessage(`{"name":"Oolong"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		return result.Parts[0].Text
	}
	if got := []string{try("ada", "k1", 1), try("ada", "k1", 2), try("ada", "k2", 1), try("ada", "", 1), try("ada", "", 1)}; !slices.Equal(got, []string{`{"id":4}`, `{"id":4}`, `{"id":5}`, `{"id":6}`, `{"id":7}`}) {
		t.Error(got)
	}
	if got := try("eve", "k1", 1); !strings.Contains(got, "somebody else") {
		t.Error(got)
	}
	if got := ask(t, r, tool.Caller{ID: "ada", Permissions: []string{"*"}}, resource.Search, `{"limit":1}`); strings.Contains(got, "call_key") {
		t.Error(got)
	}
}

// A table that is gone, or a database that is closed, is an error that names no address.
func TestADatabaseThatFails(t *testing.T) {
	db := products(t)
	r := table(t, db, resource.TableOptions{Verbs: all()})
	_ = db.Close()
	for _, one := range r.Tools(anybody()) {
		arguments := map[string]string{"search_products": `{}`, "create_products": `{"name":"x"}`, "update_products": `{"id":1,"set":{"cents":1}}`}[one.Definition().Name]
		if arguments == "" {
			arguments = `{"id":1}`
		}
		result, err := one.Call(t.Context(), tool.Call{Caller: anybody(), Arguments: json.RawMessage(arguments)})
		if err != nil || !result.IsError || result.Parts[0].Text != "the database cannot execute it at the moment" || result.Cause == nil {
			t.Error(one.Definition().Name, result, err)
		}
	}
}

// An agent works on a table on behalf of a caller.
func TestAnAgentWithATable(t *testing.T) {
	db := products(t)
	r := table(t, db, resource.TableOptions{Verbs: all(), Rows: map[string]func(tool.Caller) any{"owner": func(c tool.Caller) any { return c.ID }}})
	m := turnpiketest.NewScript(t, "call c1 search_products {\"where\":{\"cents\":{\"lt\":320}},\"columns\":[\"id\",\"name\"]}\n\ncall c2 update_products {\"id\":2,\"set\":{\"sold\":true}}\n\ntext Sold.\n")
	a := &turnpike.Agent{Model: m, Resources: []tool.Provider{r}}
	result, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.As(tool.Caller{ID: "ada", Permissions: []string{"search_products", "update_products"}}), turnpike.ShowTrace())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range result.Steps {
		for _, c := range step.Calls {
			got = append(got, c.Result)
		}
	}
	if fmt.Sprint(got) != `[{"rows":[{"id":2,"name":"Black tea"}],"more":false} {"id":2}]` {
		t.Error(got)
	}
	var sold bool
	if err := db.QueryRowContext(t.Context(), "SELECT sold FROM products WHERE id = 2").Scan(&sold); err != nil || !sold {
		t.Error(sold, err)
	}
}

// The caller of a run, with its org and its permissions, is the caller of its calls in the next process.
func TestACallerIsKeptInTheStore(t *testing.T) {
	db, file := products(t), t.TempDir()+"/runs.db"
	agent := func(store turnpike.Store) *turnpike.Agent {
		r := table(t, db, resource.TableOptions{Verbs: all(), Rows: map[string]func(tool.Caller) any{"owner": func(c tool.Caller) any { return c.Org }}})
		return &turnpike.Agent{
			Model: turnpiketest.NewScript(t, "call c1 update_products {\"id\":1,\"set\":{\"cents\":7}}\n\ntext Done.\n"), Store: store,
			Resources: []tool.Provider{r.ApproveIf(resource.Update, func(json.RawMessage) bool { return true })},
		}
	}
	open := func() *sqlite.Store {
		store, err := sqlite.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	first := open()
	_, err := agent(first).Run(t.Context(), turnpike.Text("go"), turnpike.As(tool.Caller{ID: "k1", Org: "ada", Permissions: []string{"update_products"}}))
	var waiting *turnpike.Waiting
	if !errors.As(err, &waiting) {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open()
	defer second.Close()
	a := agent(second)
	a.Model = turnpiketest.NewScript(t, "text Done.\n")
	if _, err := a.Resume(t.Context(), waiting.RunID, turnpike.Approve(waiting.Approvals[0].ID)).Result(); err != nil {
		t.Fatal(err)
	}
	var cents int
	if err := db.QueryRowContext(t.Context(), "SELECT cents FROM products WHERE id = 1").Scan(&cents); err != nil || cents != 7 {
		t.Error(cents, err)
	}
}

// Calls of one turn at the same time have no common transaction, and all of them are executed.
func TestWritesAtTheSameTime(t *testing.T) {
	db := products(t)
	r := table(t, db, resource.TableOptions{Verbs: all()})
	var story strings.Builder
	for i := range 16 {
		fmt.Fprintf(&story, "call c%d create_products {\"name\":\"n%d\"}\n", i, i)
	}
	m := turnpiketest.NewScript(t, story.String()+"\ntext Done.\n")
	result, err := (&turnpike.Agent{Model: m, Resources: []tool.Provider{r}}).Run(t.Context(), turnpike.Text("go"), turnpike.ShowTrace())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range result.Steps {
		if slices.ContainsFunc(step.Calls, func(c turnpike.StepCall) bool { return c.Error }) {
			t.Errorf("%+v", step)
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM products WHERE name LIKE 'n%'").Scan(&n); err != nil || n != 16 {
		t.Error(n, err)
	}
}

// An agent that is killed after any record of its journal, and resumed, creates one row: with CallKey by
// repeating the call, and without it by not repeating it.
func TestACrashCreatesOneRow(t *testing.T) {
	for _, key := range []string{"call_key", ""} {
		db, l := products(t), &log{}
		records := crashtest.Crash(t, func() *turnpike.Agent {
			return &turnpike.Agent{
				Model:     turnpiketest.NewScript(t, "call c1 create_products {\"name\":\"Oolong\"}\n\ntext Done.\n"),
				Resources: []tool.Provider{table(t, db, resource.TableOptions{Verbs: all(), CallKey: key}).Audit(l)},
			}
		}, turnpike.Text("Order one."))
		runs, again := map[string]bool{}, 0
		for _, r := range l.records {
			runs[r.Run] = true
			if r.Attempt > 1 && r.Status == resource.OK {
				again++
			}
		}
		var rows int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM products WHERE name = 'Oolong'").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		switch {
		case records < 5, key != "" && (rows != len(runs) || again == 0), key == "" && (rows > len(runs) || again > 0):
			t.Errorf("%q: %d records, %d runs have created %d rows, %d of the calls were repeated", key, records, len(runs), rows, again)
		}
	}
}
