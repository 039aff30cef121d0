package sqltool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/tool"
)

// This program is its own child, as the gateway is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sqltool.Command {
		os.Exit(sqltool.ChildMain())
	}
	goleak.VerifyTestMain(m)
}

// desk is the tools of an org, as a run has them.
type desk struct {
	t           *testing.T
	databases   []org.Database
	secrets     map[string]string
	schemas     map[string][]string
	connections *sqltool.Connections
	dialled     atomic.Int64
}

func newDesk(t *testing.T, databases ...org.Database) *desk {
	t.Helper()
	d := &desk{t: t, databases: databases, secrets: map[string]string{}}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		d.dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	d.use(sqltool.ConnectionOptions{Dial: dial, OperatorDial: dial})
	return d
}

// use gives the desk other connections.
func (d *desk) use(o sqltool.ConnectionOptions) {
	o.Program = sandboxtest.Program(d.t)[:1]
	d.connections = sqltool.NewConnections(o)
	d.t.Cleanup(d.connections.Close)
}

func (d *desk) tools() []tool.Tool {
	d.t.Helper()
	all, err := sqltool.New(sqltool.Options{
		Org: "acme", Connections: d.connections, Schemas: d.schemas, Settings: func() []org.Database { return d.databases },
		Secret: func(_ context.Context, ref string) (string, error) {
			if s, ok := d.secrets[ref]; ok {
				return s, nil
			}
			return "", fmt.Errorf("%s is not stored", ref)
		},
	}).List(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

// answer is what the model gets.
type answer struct {
	Columns   []string            `json:"columns"`
	Rows      [][]json.RawMessage `json:"rows"`
	RowCount  int                 `json:"row_count"`
	Truncated bool                `json:"truncated"`
	Note      string              `json:"note"`
	Error     string              `json:"error"`
	Setting   string              `json:"setting"`
	Table     string              `json:"table"`
	Changed   int                 `json:"-"`

	text  string
	fatal error
}

func (d *desk) call(which int, arguments any) answer {
	d.t.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := d.tools()[which].Call(d.t.Context(), tool.Call{Arguments: text})
	if err != nil {
		return answer{fatal: err, Error: err.Error()}
	}
	var a answer
	if err := json.Unmarshal([]byte(r.Parts[0].Text), &struct {
		*answer
		Rows any `json:"rows"`
	}{answer: &a}); err != nil {
		d.t.Fatalf("the answer is not JSON: %v\n%s", err, r.Parts[0].Text)
	}
	var rows struct {
		Rows json.RawMessage `json:"rows"`
	}
	_ = json.Unmarshal([]byte(r.Parts[0].Text), &rows)
	if len(rows.Rows) > 0 && rows.Rows[0] == '[' {
		_ = json.Unmarshal(rows.Rows, &a.Rows)
	} else if len(rows.Rows) > 0 {
		_ = json.Unmarshal(rows.Rows, &a.Changed)
	}
	a.text = r.Parts[0].Text
	if r.IsError != (a.Error != "") {
		d.t.Errorf("is an error: %v, and says %s", r.IsError, a.text)
	}
	return a
}

func (d *desk) query(text string) answer {
	d.t.Helper()
	return d.call(0, map[string]string{"query": text})
}

// must returns the first column of the rows of a query that works.
func (d *desk) must(text string) []string {
	d.t.Helper()
	a := d.query(text)
	if a.Error != "" {
		d.t.Fatalf("%s: %s", text, a.Error)
	}
	var out []string
	for _, r := range a.Rows {
		out = append(out, string(r[0]))
	}
	return out
}

// refuses checks that a query fails with a text.
func (d *desk) refuses(query, want string) {
	d.t.Helper()
	a := d.query(query)
	if a.Error == "" {
		d.t.Errorf("%s\nwas executed: %s", query, a.text)
	} else if !strings.Contains(a.Error, want) {
		d.t.Errorf("%s\nfails with %q; want %q", query, a.Error, want)
	}
}

// server is the PostgreSQL of the machine, with a database and roles for the test.
type server struct {
	t        *testing.T
	url      *url.URL
	admin    *pgconn.PgConn // of the database
	database string
	suffix   string
}

// newServer makes a database on the PostgreSQL at TURNPIKE_TEST_POSTGRES_URL, and drops it at the end.
func newServer(t *testing.T) *server {
	t.Helper()
	text := os.Getenv("TURNPIKE_TEST_POSTGRES_URL")
	if text == "" {
		t.Skip("TURNPIKE_TEST_POSTGRES_URL is not set")
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	main, err := pgconn.Connect(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, url: u, suffix: fmt.Sprintf("%d_%d", os.Getpid(), time.Now().UnixNano())}
	s.database = "sqltool_" + s.suffix
	run(t, main, "CREATE DATABASE "+s.database)
	t.Cleanup(func() {
		ctx := context.Background()
		_, _ = main.Exec(ctx, "DROP DATABASE IF EXISTS "+s.database+" WITH (FORCE)").ReadAll()
		found, _ := main.Exec(ctx, "SELECT rolname FROM pg_roles WHERE rolname LIKE '%"+s.suffix+"'").ReadAll()
		for _, r := range found {
			for _, row := range r.Rows {
				_, _ = main.Exec(ctx, "DROP ROLE "+string(row[0])).ReadAll()
			}
		}
		_ = main.Close(ctx)
	})
	own := *u
	own.Path = "/" + s.database
	if s.admin, err = pgconn.Connect(t.Context(), own.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.admin.Close(context.Background()) })
	return s
}

func run(t *testing.T, conn *pgconn.PgConn, sql string) [][]string {
	t.Helper()
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var out [][]string
	for _, r := range results {
		for _, row := range r.Rows {
			var values []string
			for _, v := range row {
				values = append(values, string(v))
			}
			out = append(out, values)
		}
	}
	return out
}

func (s *server) run(sql string) [][]string { s.t.Helper(); return run(s.t, s.admin, sql) }

// role makes a role that may log in, and returns its name.
func (s *server) role(name, options string) string {
	s.t.Helper()
	name += "_" + s.suffix
	s.run("CREATE ROLE " + name + " LOGIN PASSWORD 'Pa55-of-the-role' " + options)
	s.run("GRANT USAGE ON SCHEMA public TO " + name)
	return name
}

// url returns the URL of a role.
func (s *server) as(role string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, "Pa55-of-the-role"), Host: s.url.Host, Path: "/" + s.database, RawQuery: "sslmode=disable"}
	return u.String()
}

// desk returns the tools over the database with a role that may read what is in public and in secret.
func (s *server) desk() *desk {
	s.t.Helper()
	s.run(`CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2), paid boolean, details jsonb, at timestamptz);
		INSERT INTO orders VALUES (1, 'Ada', 12.50, true, '{"a": [1, 2]}', '2026-01-02 03:04:05+00'), (2, 'Grace', 99999999.99, false, NULL, NULL);
		CREATE SCHEMA secret; CREATE TABLE secret.salaries (name text, amount int); INSERT INTO secret.salaries VALUES ('Ada', 100000);
		CREATE VIEW public.averages AS SELECT avg(amount)::int AS average FROM secret.salaries`)
	reader := s.role("reader", "")
	s.run("GRANT USAGE ON SCHEMA secret TO " + reader + "; GRANT SELECT ON ALL TABLES IN SCHEMA public, secret TO " + reader)
	d := newDesk(s.t, org.Database{Name: "shop", URL: "secret:shop", FromFile: false})
	d.secrets["secret:shop"] = s.as(reader)
	return d
}

// file returns the tools over a file of SQLite.
func file(t *testing.T, statements ...string) (*desk, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	execute(t, path, statements...)
	return newDesk(t, org.Database{Name: "shop", URL: "sqlite:" + path, FromFile: true}), path
}
