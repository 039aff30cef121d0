package conformance

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// postgres returns a database of PostgreSQL with a schema of its own, whose name it returns.
func postgres(t *testing.T) (*sql.DB, string) {
	t.Helper()
	url := os.Getenv("TURNPIKE_TEST_POSTGRES_URL")
	if url == "" {
		if os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1" {
			t.Fatal("TURNPIKE_TEST_POSTGRES_URL is not set")
		}
		t.Skip("TURNPIKE_TEST_POSTGRES_URL is not set")
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("turnpike_resource_%d", os.Getpid())
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA `+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), `DROP SCHEMA `+schema+` CASCADE`)
		if err := errors.Join(err, db.Close()); err != nil {
			t.Error(err)
		}
	})
	return db, schema
}

// resource.Table over PostgreSQL: the types, the searches, the writes, the rows of a caller and the keys of calls.
func TestATableOfPostgreSQL(t *testing.T) {
	db, schema := postgres(t)
	for _, s := range []string{
		`CREATE TYPE SCHEMA.color AS ENUM ('red', 'green')`,
		`CREATE DOMAIN SCHEMA.cents AS bigint CHECK (VALUE >= 0)`,
		`CREATE TABLE SCHEMA.products (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, price numeric(30, 10), weight double precision, amount SCHEMA.cents DEFAULT 0,
			sold boolean NOT NULL DEFAULT false, made timestamptz, day date, photo bytea, extra jsonb, code uuid, hue SCHEMA.color, tags text[], "odd ""name" varchar(10),
			twice bigint GENERATED ALWAYS AS (2 * id) STORED, owner text NOT NULL, call_key text UNIQUE)`,
		`INSERT INTO SCHEMA.products (name, price, weight, amount, sold, made, day, photo, extra, code, hue, tags, owner) VALUES
			('Green tea', 12345678901234567890.5, 0.5, 9007199254740993, true, '2026-01-02 03:04:05+00', '2026-01-02', '\x00ff', '{"a": [1]}', '00000000-0000-0000-0000-000000000001', 'green', '{a,b}', 'ada'),
			('Black tea', 3, 'NaN', 300, false, NULL, NULL, NULL, NULL, NULL, 'red', NULL, 'ada'),
			('Rooibos 100%', NULL, NULL, 5, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'eve')`,
	} {
		if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(s, "SCHEMA", schema)); err != nil {
			t.Fatal(s, err)
		}
	}
	r, err := resource.Table(t.Context(), db, "products", resource.TableOptions{
		Schema: schema, CallKey: "call_key", Rows: map[string]func(tool.Caller) any{"owner": func(c tool.Caller) any { return c.ID }},
		Verbs: []resource.Verb{resource.Get, resource.Search, resource.Create, resource.Update, resource.Delete},
	})
	if err != nil {
		t.Fatal(err)
	}
	ada := tool.Caller{ID: "ada", Permissions: []string{"*"}}
	ask := func(c tool.Caller, verb resource.Verb, arguments string) string {
		var out json.RawMessage
		if err := r.As(c).Call(t.Context(), verb, json.RawMessage(arguments), &out); err != nil {
			return err.Error() + "!"
		}
		return string(out)
	}
	if _, err := db.ExecContext(t.Context(), `SET TIME ZONE 'UTC'`); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // the one with the time zone
	for _, c := range []struct {
		verb      resource.Verb
		arguments string
		want      string
	}{
		{resource.Get, `{"id":1}`, `{"id":1,"name":"Green tea","price":12345678901234567890.5000000000,"weight":0.5,"amount":9007199254740993,"sold":true,"made":"2026-01-02 03:04:05+00",` +
			`"day":"2026-01-02","photo":"AP8=","extra":{"a":[1]},"code":"00000000-0000-0000-0000-000000000001","hue":"green","tags":"{a,b}","odd \"name":null,"twice":2,"owner":"ada"}`},
		{resource.Get, `{"id":3}`, `!`},
		{resource.Search, `{"columns":["id","weight"]}`, `{"rows":[{"id":1,"weight":0.5},{"id":2,"weight":"NaN"}],"more":false}`},
		{resource.Search, `{"columns":["id"],"where":{"name":{"contains":"TEA","starts_with":"g"},"price":{"gt":12345678901234567890},"amount":{"in":[1,9007199254740993]},"sold":{"eq":true}}}`, `{"rows":[{"id":1}],"more":false}`},
		{resource.Search, `{"columns":["id"],"where":{"made":{"lt":"2026-02-01"},"day":{"gte":"2026-01-02"},"code":{"eq":"00000000-0000-0000-0000-000000000001"},"hue":{"in":["green"]},"photo":{"eq":"AP8="},"extra":{"null":false}}}`, `{"rows":[{"id":1}],"more":false}`},
		{resource.Search, `{"columns":["id"],"order_by":"made","descending":true,"limit":1}`, `{"rows":[{"id":2}],"more":true}`},
		{resource.Search, `{"where":{"name":{"eq":"'; DROP TABLE products --"}}}`, `{"rows":[],"more":false}`},
		{resource.Search, `{"where":{"day":{"eq":"yesterday or so"}}}`, `invalid input syntax for type date`},
		{resource.Search, `{"where":{"call_key":{"null":true}}}`, `!`},
		{resource.Create, `{"name":"Oolong","price":4.25,"weight":1,"amount":7,"made":"2026-05-06T07:08:09Z","day":"2026-05-06","photo":"aGk=","extra":{"b": null},"code":"00000000-0000-0000-0000-00000000000a","hue":"red","tags":"{x}","odd \"name":"o"}`, `{"id":4}`},
		{resource.Get, `{"id":4}`, `{"id":4,"name":"Oolong","price":4.2500000000,"weight":1,"amount":7,"sold":false,"made":"2026-05-06 07:08:09+00","day":"2026-05-06","photo":"aGk=","extra":{"b":null},` +
			`"code":"00000000-0000-0000-0000-00000000000a","hue":"red","tags":"{x}","odd \"name":"o","twice":8,"owner":"ada"}`},
		{resource.Create, `{"name":"x","id":7}`, `!`},
		{resource.Create, `{"name":"x","twice":7}`, `!`},
		{resource.Create, `{"name":"x","odd \"name":"longer than ten"}`, `value too long`},
		{resource.Create, `{"name":"x","amount":-1}`, `violates check constraint`},
		{resource.Update, `{"id":4,"set":{"price":null,"hue":"green"}}`, `{"id":4}`},
		{resource.Update, `{"id":3,"set":{"price":null}}`, `!`},
		{resource.Update, `{"id":4,"set":{"owner":"eve"}}`, `!`},
		{resource.Search, `{"columns":["id","price"],"where":{"hue":{"eq":"green"},"price":{"null":true}}}`, `{"rows":[{"id":4,"price":null}],"more":false}`},
		{resource.Delete, `{"id":4}`, `{"id":4}`},
		{resource.Delete, `{"id":4}`, `!`},
		{resource.Delete, `{"id":3}`, `!`},
	} {
		got := ask(ada, c.verb, c.arguments)
		if isError := strings.HasSuffix(got, "!"); c.want != got && !(isError && strings.Contains(got, c.want)) {
			t.Errorf("%s %s:\n%s, want\n%s", c.verb, c.arguments, got, c.want)
		}
	}
	create := r.Tools(ada)[2]
	for attempt := range 3 {
		result, err := create.Call(t.Context(), tool.Call{Caller: ada, IdempotencyKey: "k1", Attempt: attempt + 1, Arguments: json.RawMessage(`{"name":"Mate"}`)})
		if err != nil || result.IsError || result.Parts[0].Text != ask(ada, resource.Search, `{"where":{"name":{"eq":"Mate"}},"columns":["id"]}`)[9:17] {
			t.Error(result, err, ask(ada, resource.Search, `{"where":{"name":{"eq":"Mate"}},"columns":["id"]}`))
		}
	}
	for _, o := range []resource.TableOptions{{}, {Schema: schema, CallKey: "name"}, {Schema: schema, Columns: []string{"prize"}}} {
		if _, err := resource.Table(t.Context(), db, "products", o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}

	a := &turnpike.Agent{
		Model:     turnpiketest.NewScript(t, "call c1 update_products {\"id\":1,\"set\":{\"sold\":false}}\n\ntext Done.\n"),
		Resources: []tool.Provider{r},
	}
	if _, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.As(ada)); err != nil {
		t.Fatal(err)
	}
	if got := ask(ada, resource.Search, `{"columns":["sold"],"where":{"id":{"eq":1}}}`); got != `{"rows":[{"sold":false}],"more":false}` {
		t.Error(got)
	}
}

// A database that is not there is an error that models can read: it names no address.
func TestADatabaseThatIsNotThere(t *testing.T) {
	db, schema := postgres(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE `+schema+`.things (id int PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	r, err := resource.Table(t.Context(), db, "things", resource.TableOptions{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `DROP TABLE `+schema+`.things`); err != nil {
		t.Fatal(err)
	}
	result, err := r.Tools(tool.Caller{Permissions: []string{"*"}})[0].Call(t.Context(), tool.Call{Caller: tool.Caller{Permissions: []string{"*"}}, Arguments: json.RawMessage(`{"id":1}`)})
	if err != nil || !result.IsError || !strings.Contains(result.Parts[0].Text, "does not exist") {
		t.Error(result, err)
	}
	gone, err := sql.Open("pgx", "postgres://user:secret@127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if _, err := resource.Table(t.Context(), gone, "things", resource.TableOptions{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
