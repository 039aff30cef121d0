package resource

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike/tool"
)

// FuzzSearch: whatever a search asks for, its statement consists of names of the table and of parameters, the
// database accepts it, and the caller gets no row of somebody else.
func FuzzSearch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"where":{"name":{"contains":"a\" OR 1=1 --","null":false}},"order_by":"price","descending":true,"columns":["id","odd \"name"],"limit":2,"offset":1}`,
		`{"where":{"id":{"in":[1,2.0,-3e2]},"sold":{"ne":true},"photo":{"eq":"AP8="},"extra":{"null":true}}}`, `{"where":{"owner":{"ne":"ada"}}}`,
		`{"where":{"made":{"gte":"2026-01-01","lt":"x"},"price":{"lt":1e308}},"limit":1000}`, `{"where":null,"limit":null,"columns":null}`, `{"Where":{"ID":{}}}`, `[]`, `{"where":{"name":{"eq":"\ud800"}}}`,
	} {
		f.Add([]byte(seed))
	}
	db, err := sql.Open("sqlite", "file:"+f.TempDir()+"/fuzz.db")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	for _, s := range []string{
		`CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT, price REAL, sold BOOLEAN, made DATETIME, photo BLOB, extra JSON, owner TEXT, "odd ""name" TEXT)`,
		`INSERT INTO things VALUES (1, 'a', 1.5, TRUE, '2026-01-01', x'00ff', '{}', 'ada', 'x'), (2, NULL, NULL, NULL, NULL, NULL, NULL, 'ada', NULL), (3, 'a', 1.5, TRUE, '2026-01-01', x'00ff', '{}', 'eve', 'x')`,
	} {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			f.Fatal(err)
		}
	}
	t := &table{db: db, name: "things", timeout: defaultTime, o: TableOptions{Rows: map[string]func(tool.Caller) any{"owner": func(c tool.Caller) any { return c.ID }}}}
	if err := t.load(context.Background()); err != nil {
		f.Fatal(err)
	}
	names := regexp.MustCompile(`"(?:id|name|price|sold|made|photo|extra|owner|odd ""name|things)"`)
	words := regexp.MustCompile(`\b(?:SELECT|FROM|AS|t|WHERE|AND|IS|NOT|NULL|IN|ORDER|BY|DESC|LIMIT|OFFSET|CAST|TEXT|instr|lower)\b|[0-9]+|[ .,()=<>?]`)
	ctx := tool.With(context.Background(), tool.Call{Caller: tool.Caller{ID: "ada"}})
	f.Fuzz(func(ft *testing.T, arguments []byte) {
		q, err := t.decode(arguments)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				ft.Fatal(err)
			}
			return
		}
		s, has := t.statement(q, tool.Caller{ID: "ada"})
		text := s.text.String()
		if rest := words.ReplaceAllString(names.ReplaceAllString(text, ""), ""); !has || rest != "" {
			ft.Fatalf("the statement has %q: %s", rest, text)
		}
		if strings.Count(text, "?") != len(s.args) {
			ft.Fatalf("%d parameters: %s", len(s.args), text)
		}
		out, err := t.search(ctx, arguments)
		if err != nil {
			ft.Fatalf("%s: %v", text, inFull(err))
		}
		var got struct {
			Rows []struct {
				ID    int64  `json:"id"`
				Owner string `json:"owner"`
			}
			More *bool
		}
		if err := json.Unmarshal(out, &got); err != nil || got.More == nil || len(got.Rows) > min(q.limit, 2) {
			ft.Fatalf("%s: %v", out, err)
		}
		for _, row := range got.Rows {
			if row.ID == 3 || row.Owner == "eve" {
				ft.Fatalf("a row of somebody else: %s", out)
			}
		}
	})
}

// FuzzValue: a value that a column takes comes back as the same value.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{`1`, `-9223372036854775808`, `1e2`, `0.1`, `true`, `"a"`, `"AP8="`, `{"a":[1,null]}`, `null`, `"\u0000"`} {
		f.Add([]byte(seed), uint8(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, k uint8) {
		if !json.Valid(raw) {
			return
		}
		c := column{name: "x", kind: kind(k) % (other + 1), nullable: true}
		v, err := c.parse(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		out := c.appendValue(nil, v)
		again, err := c.parse(out)
		if !json.Valid(out) || err != nil {
			t.Fatalf("%q became %q: %v", raw, out, err)
		}
		if next := c.appendValue(nil, again); string(next) != string(out) {
			t.Fatalf("%q became %q, then %q", raw, out, next)
		}
	})
}
