package sqltool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxQuery is how many bytes a query has at most.
const maxQuery = 32 << 10

// connectTimeout is how long a call waits for a connection.
const connectTimeout = 10 * time.Second

// Options are what a Source needs. Org, Settings and Connections are required.
type Options struct {
	Org         string
	Connections *Connections

	// Settings returns the databases of the org. It is called at each call.
	Settings func() []org.Database

	// Schemas are the only schemas that statements may use, and which of their tables; no tables = all of the schema. They
	// limit every database beyond its settings. Empty = no further limit.
	Schemas map[string][]string

	// Secret returns what a reference such as secret:shop_db stands for. Of databases that the configuration file does not
	// contain, only references to the vault are looked up. Nil = there are none.
	Secret func(ctx context.Context, ref string) (string, error)

	// WritesUnasked makes calls of database_write not wait for the approval of a person.
	WritesUnasked bool

	Log *slog.Logger // nil = discard
}

// Source is a [tool.Source] of the database tools of an org. It is safe for concurrent use.
type Source struct{ o Options }

var _ tool.Source = (*Source)(nil)

// New returns the source.
func New(o Options) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{o}
}

// List implements [tool.Source].
func (s *Source) List(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{queryTool{s}, writeTool{s}}, nil
}

// refusedError is a call that is refused before the database executes anything. Its text is for the model.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// settingError is something that is missing in the settings.
type settingError struct{ text, setting string }

func (e *settingError) Error() string { return e.text }

// queryTool is database_query.
type queryTool struct{ s *Source }

var _ tool.Classed = queryTool{}

// Definition implements [tool.Tool].
func (queryTool) Definition() tool.Definition {
	return tool.Definition{
		Name: builtin.DatabaseQuery, Title: "Query a database",
		Description: "Read from a database of the organisation with one SQL statement: SELECT, WITH or VALUES, in the dialect of the database (PostgreSQL or SQLite). " +
			"Returns JSON with columns, rows and row_count; at most 50,000 characters, so select only the columns and rows that you need. " +
			"Without query it returns the tables and columns that can be read.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"database":{"type":"string","description":"Name of the database. May be left out if there is only one."},` +
			`"query":{"type":"string","maxLength":32768,"description":"One SQL statement that reads, without parameters. Left out: the tables and columns are listed."}},` +
			`"additionalProperties":false}`),
		Annotations: tool.Annotations{ReadOnly: new(true), OpenWorld: new(false)},
	}
}

// Class implements [tool.Classed].
func (queryTool) Class() tool.Class { return tool.Read }

// Call implements [tool.Tool].
func (t queryTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		Database string `json:"database"`
		Query    string `json:"query"`
	}
	if err := jsonscan.Decode(c.Arguments, &args); err != nil {
		return tool.Result{}, fmt.Errorf("%w: the arguments are not valid", tool.ErrNotSent)
	}
	need := 2*reportBytes(min(len(args.Query), maxQuery)) + utf8.UTFMax*maxCharacters // a message and its text, then the rows
	if c.Memory != nil {
		if err := c.Memory.Acquire(need); err != nil {
			return tool.Result{}, fmt.Errorf("%w: the rows need more memory than the run may retain: %w", tool.ErrNotSent, err)
		}
	}
	text, err := t.s.query(ctx, args.Database, args.Query)
	if c.Memory != nil {
		c.Memory.Release(max(0, need-len(text)))
	}
	if err != nil {
		return t.s.failed(ctx, args.Database, err)
	}
	return tool.Text(text), nil
}

// query returns the answer of a query.
func (s *Source) query(ctx context.Context, name, text string) (string, error) {
	d, err := s.database(name)
	if err != nil {
		return "", err
	}
	p, err := s.place(ctx, d, false)
	if err != nil {
		return "", err
	}
	switch {
	case len(text) > maxQuery:
		return "", &refusedError{fmt.Sprintf("the query is longer than %d bytes", maxQuery)}
	case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
		return "", &refusedError{"the query is not text"}
	}
	list := s.allowed(d, p.Kind)
	if len(list) == 0 {
		return "", &settingError{fmt.Sprintf("no schema of the database %q may be used here", d.Name), "schemas"}
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout+d.Timeout())
	defer cancel()
	if p.Kind == org.SQLite {
		return s.o.Connections.askSQLite(limited, s.o.Org, p, d, text, list)
	}
	var out *rows
	err = s.o.Connections.withPostgres(limited, s.o.Org, p, func(conn *pgconn.PgConn) error {
		working, cancel := context.WithTimeout(limited, d.Timeout()+time.Second) // the server stops the statement before
		defer cancel()
		if strings.TrimSpace(text) == "" {
			out, err = listPostgres(working, conn, d.Timeout(), list)
		} else {
			out, err = queryPostgres(working, conn, text, d.Timeout(), list)
		}
		return timedOut(working, d, err)
	})
	if err != nil {
		return "", err
	}
	return out.end()
}

// queryCanceled is SQLSTATE 57014: statement_timeout has ended the statement.
const queryCanceled = "57014"

// timedOut returns the error for the model if the statement took too long, and otherwise err.
func timedOut(ctx context.Context, d org.Database, err error) error {
	var pg *pgconn.PgError
	if err != nil && (errors.Is(context.Cause(ctx), context.DeadlineExceeded) || errors.As(err, &pg) && pg.Code == queryCanceled) {
		return tookLonger(d)
	}
	return err
}

func tookLonger(d org.Database) error {
	return &refusedError{fmt.Sprintf("the statement took longer than %s and was stopped; make it read less, or raise statement_timeout of the database", d.Timeout())}
}

// database returns the settings of the database that a call names.
func (s *Source) database(name string) (org.Database, error) {
	all := s.o.Settings()
	if len(all) == 0 {
		return org.Database{}, &settingError{"no database is configured for this organisation; add one under databases, with PATCH /api/org/runtime or in the configuration file", "databases"}
	}
	if name == "" && len(all) == 1 {
		return all[0], nil
	}
	var names []string
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	if name == "" {
		return org.Database{}, &refusedError{"name the database: " + strings.Join(names, ", ")}
	}
	return org.Database{}, &refusedError{fmt.Sprintf("there is no database %q; there are: %s", name, strings.Join(names, ", "))}
}

// place returns where the database is.
func (s *Source) place(ctx context.Context, d org.Database, write bool) (place, error) {
	setting, text := "url", d.URL
	if write {
		setting, text = "write_url", d.WriteURL
	}
	p, err := placeOf(ctx, d, text, s.o.Secret)
	p.write = write
	if err != nil {
		return place{}, &settingError{fmt.Sprintf("%s of the database %q: %v", setting, d.Name, err), "databases." + setting}
	}
	return p, nil
}

// placeOf returns where a URL leads, or the URL to which a reference leads. Only the operator's file names files, and
// addresses that the outbound policy does not check: what an org keeps in its vault is named by the org.
func placeOf(ctx context.Context, d org.Database, text string, lookup func(context.Context, string) (string, error)) (place, error) {
	operator := d.FromFile
	if ref, ok := org.DatabaseRef(text); ok {
		if !d.FromFile && ref.Kind() != secret.Vault {
			return place{}, fmt.Errorf("%s: %w", ref, secret.ErrVaultOnly)
		}
		operator = d.FromFile && ref.Kind() != secret.Vault
		if lookup == nil {
			return place{}, fmt.Errorf("%s: %w", ref, secret.ErrNoVault)
		}
		value, err := lookup(ctx, string(ref))
		if err != nil {
			return place{}, fmt.Errorf("the reference %s cannot be resolved; store the URL with PUT /api/secrets/NAME", ref)
		}
		text = value
	}
	u, err := org.ParseDatabaseURL(text)
	if err != nil {
		return place{}, err
	}
	if u.Kind == org.SQLite && !operator {
		return place{}, errors.New("only the configuration file may name a file of SQLite")
	}
	return place{DatabaseURL: u, operator: operator}, nil
}

// allowed returns the schemas and tables that statements may use.
func (s *Source) allowed(d org.Database, kind string) allowList {
	own := d.Schemas
	switch {
	case len(own) == 0 && kind == org.SQLite:
		own = []string{"main"}
	case len(own) == 0:
		own = []string{"public"}
	}
	return allowed(own, assigned(s.o.Schemas))
}

// failed returns what the model is told about a call that has no rows. An address that the outbound policy refuses ends
// the run.
func (s *Source) failed(ctx context.Context, name string, err error) (tool.Result, error) {
	var blocked tool.Blocked
	if errors.As(err, &blocked) {
		return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, blocked)
	}
	if ctx.Err() != nil {
		return tool.Result{}, context.Cause(ctx)
	}
	text, setting := s.describe(name, err)
	return failure(text, setting), nil
}

// failure is an error as JSON.
func failure(text, setting string) tool.Result {
	return builtin.Refusal{Error: text, Setting: setting}.Result()
}

// describe says what is wrong, without addresses, roles and passwords.
func (s *Source) describe(name string, err error) (text, setting string) {
	var missing *settingError
	var refused *refusedError
	var role *roleError
	var connect *connectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &missing):
		return missing.text, missing.setting
	case errors.As(err, &refused):
		return refused.text, ""
	case errors.As(err, &role):
		s.o.Log.Warn("a database is not used, because its role is dangerous", "org", s.o.Org, "database", name, "error", role)
		return "the role of the database may do more than read, so that it is not used; give the database a role of its own, see tool-database.md", "databases.url"
	case errors.Is(err, errBusy):
		return errBusy.Error(), ""
	case errors.As(err, &connect):
		s.o.Log.Warn("a database cannot be reached", "org", s.o.Org, "database", name, "error", plainError(err))
		if errors.As(err, &pg) {
			return "the database has refused the connection (SQLSTATE " + pg.Code + "); check its URL, role and password with turnpike doctor", "databases.url"
		}
		return "the database could not be reached; check its URL with turnpike doctor", "databases.url"
	case errors.As(err, &pg):
		return "the database says: " + pg.Message + prefixed(" Hint: ", pg.Hint) + " (SQLSTATE " + pg.Code + ")", ""
	case tooLarge(err):
		return fmt.Sprintf("a row is larger than %d bytes; select fewer columns, or shorter ones with left(column, 1000)", maxMessage), ""
	}
	text, ok := sqliteMessage(err)
	if lite := (*sqliteError)(nil); errors.As(err, &lite) {
		text, ok = lite.text, true
	}
	if ok {
		return "the database says: " + text, ""
	}
	s.o.Log.Warn("a statement of a database tool has failed", "org", s.o.Org, "database", name, "error", plainError(err))
	return "the connection to the database was lost", ""
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// plainError returns an error for the log, without a password: none of them contains one.
func plainError(err error) string {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && connect.Unwrap() != nil {
		return connect.Unwrap().Error()
	}
	return err.Error()
}
