package sqltool

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The bounds of a write.
const (
	maxWritten = 1000 // rows of a call
	maxValues  = 100  // columns of a call
)

// writeTool is database_write.
type writeTool struct{ s *Source }

var (
	_ tool.Classed = writeTool{}
	_ tool.Asker   = writeTool{}
)

// Definition implements [tool.Tool].
func (writeTool) Definition() tool.Definition {
	return tool.Definition{
		Name: builtin.DatabaseWrite, Title: "Change a database",
		Description: "Insert one row into a table of a database of the organisation, or update or delete the rows whose columns have the values of where. " +
			"At most 1,000 rows are changed; a call that would change more changes none. Returns JSON with the number of rows.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"database":{"type":"string","description":"Name of the database. May be left out if there is only one."},` +
			`"operation":{"type":"string","enum":["insert","update","delete"]},` +
			`"table":{"type":"string","description":"Name of the table, such as orders or public.orders."},` +
			`"values":{"type":"object","description":"For insert and update: new values by the names of columns."},` +
			`"where":{"type":"object","description":"For update and delete, required: values that the columns of a row must have, by their names. null selects rows without a value."}},` +
			`"required":["operation","table"],"additionalProperties":false}`),
		Annotations: tool.Annotations{ReadOnly: new(false), Destructive: new(true), Idempotent: new(false), OpenWorld: new(false)},
	}
}

// Class implements [tool.Classed].
func (writeTool) Class() tool.Class { return tool.Once }

// Asks implements [tool.Asker].
func (t writeTool) Asks(json.RawMessage) bool { return !t.s.o.WritesUnasked }

// write is what a call of database_write changes.
type write struct {
	Database  string                     `json:"database"`
	Operation string                     `json:"operation"`
	Table     string                     `json:"table"`
	Values    map[string]json.RawMessage `json:"values"`
	Where     map[string]json.RawMessage `json:"where"`
}

// column is a column with a value.
type column struct {
	name  string
	value *string         // as text; nil = NULL
	typed any             // as SQLite has it
	list  json.RawMessage // the value, if it is a list; else nil
}

// Call implements [tool.Tool].
func (t writeTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var w write
	if err := jsonscan.DecodeStrict(c.Arguments, &w); err != nil {
		return tool.Result{}, fmt.Errorf("%w: the arguments are not valid", tool.ErrNotSent)
	}
	text, err := t.s.write(ctx, w)
	var lost *lostError
	if errors.As(err, &lost) {
		t.s.o.Log.Warn("the answer to a write was lost", "org", t.s.o.Org, "database", w.Database, "error", plainError(lost.err))
		return tool.Result{}, lost
	}
	if err != nil {
		result, failed := t.s.failed(ctx, w.Database, err)
		if failed != nil && !errors.Is(failed, tool.ErrNotSent) { // nothing was committed
			failed = fmt.Errorf("%w: %w", tool.ErrNotSent, failed)
		}
		return result, failed
	}
	return tool.Text(text), nil
}

// lostError is a commit without an answer: nobody knows whether the rows were changed.
type lostError struct{ err error }

func (e *lostError) Error() string {
	return "the connection to the database was lost while the change was committed; it may have been carried out"
}

func (e *lostError) Unwrap() error { return e.err }

// columnsOf returns the columns in the order of their names.
func columnsOf(member string, values map[string]json.RawMessage) (out []column, err error) {
	if len(values) > maxValues {
		return nil, &refusedError{fmt.Sprintf("%s has %d columns; at most %d are allowed", member, len(values), maxValues)}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !org.IsIdentifier(name) {
			return nil, &refusedError{fmt.Sprintf("%q in %s is not a name of a column: 1 to 63 letters, digits and underscores", name, member)}
		}
		value, typed, err := valueOf(values[name])
		if err != nil {
			return nil, &refusedError{fmt.Sprintf("the value of %s in %s cannot be read", name, member)}
		}
		c := column{name: name, value: value, typed: typed}
		if value != nil && jsonscan.IsKind(jsonscan.TrimSpace(values[name]), '[') {
			c.list = jsonscan.TrimSpace(values[name])
		}
		out = append(out, c)
	}
	return out, nil
}

// valueOf returns a JSON value as PostgreSQL reads it, and as SQLite has it; nil for null. Objects and lists stay JSON.
func valueOf(v json.RawMessage) (*string, any, error) {
	v = bytes.TrimSpace(v)
	s := string(v)
	switch {
	case s == "" || s == "null":
		return nil, nil, nil
	case s == "true":
		return &s, 1, nil
	case s == "false":
		return &s, 0, nil
	case s[0] == '"':
		if err := json.Unmarshal(v, &s); err != nil || strings.Contains(s, "\x00") {
			return nil, nil, errors.New("not a text")
		}
	case s[0] != '{' && s[0] != '[':
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return &s, n, nil
		}
		f, err := strconv.ParseFloat(s, 64)
		return &s, f, err
	}
	return &s, s, nil
}

// check returns the columns of the values and of the condition.
func (w write) check() (values, where []column, err error) {
	schema, table, qualified := strings.Cut(w.Table, ".")
	switch {
	case !org.IsIdentifier(schema) || qualified && !org.IsIdentifier(table):
		return nil, nil, &refusedError{fmt.Sprintf("%q is not a name of a table, such as orders or public.orders", w.Table)}
	case w.Operation == "insert" && len(w.Where) > 0:
		return nil, nil, &refusedError{"insert has no where"}
	case w.Operation == "delete" && len(w.Values) > 0:
		return nil, nil, &refusedError{"delete has no values"}
	case w.Operation != "insert" && len(w.Where) == 0:
		return nil, nil, &refusedError{w.Operation + " needs where, with at least one column, so that it does not change every row"}
	case w.Operation != "delete" && len(w.Values) == 0:
		return nil, nil, &refusedError{w.Operation + " needs values, with at least one column"}
	}
	if values, err = columnsOf("values", w.Values); err == nil {
		where, err = columnsOf("where", w.Where)
	}
	return values, where, err
}

// statement returns the SQL of the write on a table, and the columns whose values are its parameters.
func (w write) statement(table string, values, where []column, parameter func(n int) string) (string, []column) {
	var parameters []column
	next := func(c column) string {
		parameters = append(parameters, c)
		return parameter(len(parameters))
	}
	var names, set, conditions []string
	for _, c := range values {
		value := "NULL"
		if c.value != nil {
			value = next(c)
		}
		names, set = append(names, quoteName(c.name)), append(set, value)
	}
	for _, c := range where {
		if c.value == nil {
			conditions = append(conditions, quoteName(c.name)+" IS NULL")
			continue
		}
		conditions = append(conditions, quoteName(c.name)+" = "+next(c))
	}
	switch w.Operation {
	case "insert":
		return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(set, ", ") + ")", parameters
	case "update":
		for i := range set {
			set[i] = names[i] + " = " + set[i]
		}
		return "UPDATE " + table + " SET " + strings.Join(set, ", ") + " WHERE " + strings.Join(conditions, " AND "), parameters
	}
	return "DELETE FROM " + table + " WHERE " + strings.Join(conditions, " AND "), parameters
}

// write changes the database and returns the answer.
func (s *Source) write(ctx context.Context, w write) (string, error) {
	d, err := s.database(w.Database)
	if err != nil {
		return "", err
	}
	if !slices.Contains([]string{"insert", "update", "delete"}, w.Operation) {
		return "", &refusedError{"operation must be insert, update or delete"}
	}
	values, where, err := w.check()
	if err != nil {
		return "", err
	}
	if d.WriteURL == "" {
		return "", &settingError{fmt.Sprintf("the database %q cannot be changed: it has no write_url; set it to a URL with a role that may write", d.Name), "databases.write_url"}
	}
	p, err := s.place(ctx, d, true)
	if err != nil {
		return "", err
	}
	list := s.allowed(d, p.Kind)
	if len(list) == 0 {
		return "", &settingError{fmt.Sprintf("no schema of the database %q may be used here", d.Name), "schemas"}
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout+d.Timeout())
	defer cancel()
	table, count := "", int64(0)
	if p.Kind == org.SQLite {
		err = s.o.Connections.withSQLite(limited, s.o.Org, p, func(conn *sql.Conn) error {
			working, cancel := context.WithTimeout(limited, d.Timeout())
			defer cancel()
			table, count, err = w.sqlite(working, conn, values, where, list)
			return timedOut(working, d, err)
		})
	} else {
		err = s.o.Connections.withPostgres(limited, s.o.Org, p, func(conn *pgconn.PgConn) error {
			working, cancel := context.WithTimeout(limited, d.Timeout()+time.Second)
			defer cancel()
			table, count, err = w.postgres(working, conn, d.Timeout(), values, where, list)
			return timedOut(working, d, err)
		})
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`{"operation":%s,"table":%s,"rows":%d}`, jsonText(w.Operation), jsonText(table), count), nil
}

// tooMany is the error of a write that was rolled back.
func tooMany(count int64) error {
	return &refusedError{fmt.Sprintf("nothing was changed: where selects %d rows, and a call may change %d", count, maxWritten)}
}

// postgres changes rows of a table of PostgreSQL.
func (w write) postgres(ctx context.Context, conn *pgconn.PgConn, timeout time.Duration, values, where []column, list allowList) (string, int64, error) {
	if err := begin(ctx, conn, "READ WRITE", timeout, list, ""); err != nil {
		return "", 0, err
	}
	schema, table, err := w.table(ctx, conn, list)
	if err != nil {
		return "", 0, err
	}
	text, parameters := w.statement(quoteName(schema)+"."+quoteName(table), values, where, func(n int) string { return "$" + strconv.Itoa(n) })
	if err := listsToArrays(ctx, conn, text, parameters); err != nil {
		return "", 0, err
	}
	sent := make([][]byte, len(parameters))
	for i, p := range parameters {
		sent[i] = []byte(*p.value)
	}
	result := conn.ExecParams(ctx, text, sent, nil, nil, nil).Read()
	if result.Err != nil {
		return "", 0, result.Err
	}
	count := result.CommandTag.RowsAffected()
	if count > maxWritten {
		return "", 0, tooMany(count)
	}
	done, err := conn.Exec(ctx, "COMMIT").ReadAll()
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && !conn.IsClosed(): // such as a constraint that is checked at the end
		return "", 0, err
	case err != nil:
		return "", 0, &lostError{err}
	case len(done) != 1 || done[0].CommandTag.String() != "COMMIT":
		return "", 0, errors.New("the database has not committed the change")
	}
	return schema + "." + table, count, nil
}

// table returns the table of PostgreSQL that the call names.
func (w write) table(ctx context.Context, conn *pgconn.PgConn, list allowList) (schema, table string, err error) {
	schemas := list.schemas()
	schema, table, qualified := strings.Cut(w.Table, ".")
	if qualified {
		schemas = []string{schema}
	} else {
		table = schema
	}
	for _, schema := range schemas {
		if !list.has(schema, table) {
			continue
		}
		found, err := query(ctx, conn, `SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
			WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.text AND c.relname OPERATOR(pg_catalog.=) $2::pg_catalog.text AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,p,f}'::pg_catalog."char"[])`, schema, table)
		if err != nil || len(found) > 0 {
			return schema, table, err
		}
	}
	return "", "", &refusedError{fmt.Sprintf("there is no table %q that may be changed; allowed: %s", w.Table, list)}
}

// sqlite changes rows of a table of SQLite.
func (w write) sqlite(ctx context.Context, conn *sql.Conn, values, where []column, list allowList) (string, int64, error) {
	schema, table, qualified := strings.Cut(w.Table, ".")
	if !qualified {
		schema, table = "main", schema
	}
	objects, err := objectsOf(ctx, conn)
	if err != nil {
		return "", 0, err
	}
	name := strings.ToLower(table)
	if !strings.EqualFold(schema, "main") || !lowered(list).has("main", name) || !slices.Contains(objects, name) || strings.HasPrefix(name, "sqlite_") {
		return "", 0, &refusedError{fmt.Sprintf("there is no table %q that may be changed; allowed: %s", w.Table, list)}
	}
	text, parameters := w.statement(quoteName(table), values, where, func(int) string { return "?" })
	sent := make([]any, len(parameters))
	for i, p := range parameters {
		sent[i] = p.typed
	}
	if err := authorize(conn, writer(name)); err != nil {
		return "", 0, err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return "", 0, err
	}
	result, err := tx.ExecContext(ctx, text, sent...)
	if err != nil {
		return "", 0, errors.Join(err, tx.Rollback())
	}
	count, err := result.RowsAffected()
	if err == nil && count > maxWritten {
		err = tooMany(count)
	}
	if err != nil {
		return "", 0, errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return "", 0, &lostError{err}
	}
	return "main." + table, count, nil
}

// writer decides about the statements of a write: they change the table, and what its triggers and foreign keys change.
func writer(table string) sqlite.AuthorizerFn {
	return func(action sqlite.AuthorizerActionCode, one, _, _, within string) sqlite.AuthorizerReturnCode {
		own := strings.EqualFold(one, table) || within != ""
		switch action {
		case sqlite.AuthTransaction, sqlite.AuthSelect, sqlite.AuthRead, sqlite.AuthFunction, sqlite.AuthRecursive:
			return sqlite.AuthorizerOK
		case sqlite.AuthInsert, sqlite.AuthUpdate, sqlite.AuthDelete:
			if own {
				return sqlite.AuthorizerOK
			}
		}
		return sqlite.AuthorizerDeny
	}
}
