package sqltool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteSettings make a connection of SQLite safe for statements of others.
func sqliteSettings(mode string) url.Values {
	return url.Values{
		"mode": {mode}, "_defensive": {"1"}, "_dqs": {"0"}, "_txlock": {"immediate"},
		"_pragma": {"trusted_schema(0)", "cell_size_check(1)", "busy_timeout(2000)", "query_only(" + map[string]string{"ro": "1", "rw": "0"}[mode] + ")", "foreign_keys(1)"},
	}
}

// sqlitePath returns the path of the file, without links. It refuses the files of the gateway.
func (c *Connections) sqlitePath(path string) (string, error) {
	found, err := filepath.EvalSymlinks(path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", &refusedError{"its file does not exist; the operator creates it"}
	}
	if err != nil {
		return "", &refusedError{"its file cannot be opened"}
	}
	if info, err := os.Stat(found); err != nil || !info.Mode().IsRegular() {
		return "", &refusedError{"its path names no file"}
	}
	if c.o.Own != nil && c.o.Own(found) {
		return "", &refusedError{"its file belongs to the gateway itself; the operator names another one"}
	}
	return found, nil
}

// withSQLite calls f with a connection to the file, which is closed afterwards.
func (c *Connections) withSQLite(ctx context.Context, orgID string, p place, f func(*sql.Conn) error) error {
	path, end, err := c.sqliteSlot(ctx, orgID, p, false)
	if err != nil {
		return &connectError{err}
	}
	defer end()
	mode := "ro"
	if p.write {
		mode = "rw"
	}
	return openSQLite(ctx, path, mode, f)
}

// sqliteSlot waits until the org may open the file, in a process if child says so, and returns its path. The function gives
// it back.
func (c *Connections) sqliteSlot(ctx context.Context, orgID string, p place, child bool) (path string, end func(), err error) {
	if path, err = c.sqlitePath(p.Path); err != nil {
		return "", nil, err
	}
	p.Host = path
	end, err = c.slot(ctx, orgID, p.key(), child)
	return path, end, err
}

// openSQLite calls f with a connection to the file, which is closed afterwards.
func openSQLite(ctx context.Context, path, mode string, f func(*sql.Conn) error) error {
	name := (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	connector, err := sqlite.NewConnector("file:" + name + "?" + sqliteSettings(mode).Encode())
	if err != nil {
		return &connectError{err}
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return &connectError{err}
	}
	defer conn.Close()
	if err := limitSQLite(conn); err != nil {
		return &connectError{err}
	}
	return f(conn)
}

// limitSQLite sets the limits of a connection.
func limitSQLite(conn *sql.Conn) error {
	for limit, most := range map[int]int{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LENGTH: maxMessage, sqlite3.SQLITE_LIMIT_SQL_LENGTH: maxQuery, sqlite3.SQLITE_LIMIT_COLUMN: 500,
		sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50, sqlite3.SQLITE_LIMIT_VDBE_OP: 250_000, sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
		sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000, sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1000, sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 20, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
	} {
		if _, err := sqlite.Limit(conn, limit, most); err != nil {
			return fmt.Errorf("limit of SQLite: %w", err)
		}
	}
	return nil
}

// authorize makes the function decide about what statements do. It is asked while they are compiled.
func authorize(conn *sql.Conn, f sqlite.AuthorizerFn) error {
	return conn.Raw(func(c any) error {
		r, ok := c.(sqlite.AuthorizerRegisterer)
		if !ok {
			return errors.New("SQLite has no authorizer")
		}
		return r.RegisterAuthorizer(f)
	})
}

// objectsOf returns the names of the tables and views of the file, in lower case.
func objectsOf(ctx context.Context, conn *sql.Conn) ([]string, error) {
	found, err := conn.QueryContext(ctx, `SELECT lower(name) FROM sqlite_schema WHERE type IN ('table', 'view')`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var out []string
	for found.Next() {
		var name string
		if err := found.Scan(&name); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, found.Err()
}

// reader decides about the statements of a query.
type reader struct {
	text    string // of the query in lower case, without quotes
	objects []string
	allowed allowList
	refused string // why the query was refused
}

// decide is the authorizer of a query.
func (r *reader) decide(action sqlite.AuthorizerActionCode, one, two, _, within string) sqlite.AuthorizerReturnCode {
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRecursive:
		return sqlite.AuthorizerOK
	case sqlite.AuthRead:
		return r.read(one, two, within)
	case sqlite.AuthFunction:
		if isSQLiteFunction(strings.ToLower(two)) {
			return sqlite.AuthorizerOK
		}
		return r.refuse(fmt.Sprintf("the function %s is not one that queries may call", two))
	}
	return r.refuse("the query must only read")
}

func (r *reader) refuse(why string) sqlite.AuthorizerReturnCode {
	if r.refused == "" {
		r.refused = why
	}
	return sqlite.AuthorizerDeny
}

// read decides about a table. A table that the query does not name is read by a view: the names that a query could
// make up in place of a view, such as those of common table expressions, do not help, because the table is in its text.
func (r *reader) read(table, column, within string) sqlite.AuthorizerReturnCode {
	name := strings.ToLower(table)
	if within := strings.ToLower(within); slices.Contains(r.objects, within) && !r.allowed.has("main", within) && strings.Contains(r.text, unquoted(within)) {
		table, name = within, "" // a view of which no column is read
	}
	switch known := slices.Contains(r.objects, name); {
	case name == "":
	case known && r.allowed.has("main", name), name == "json_each", name == "json_tree":
		return sqlite.AuthorizerOK
	case known && within != "" && !strings.Contains(r.text, unquoted(name)):
		return sqlite.AuthorizerOK
	case !known && column == "" && !strings.HasPrefix(name, "sqlite_") && !strings.HasPrefix(name, "pragma_") && !slices.Contains(virtualTables(), name): // of a common table expression
		return sqlite.AuthorizerOK
	}
	return r.refuse(fmt.Sprintf("the table %s is not one that queries may use; allowed: %s", table, r.allowed))
}

// virtualTables are tables that every file has.
func virtualTables() []string {
	return []string{"dbstat", "bytecode", "tables_used", "stmt", "completion", "fts3tokenize", "fts5vocab", "rtreecheck"}
}

// unquoted returns a text in lower case without the characters that quote names.
func unquoted(text string) string {
	return strings.NewReplacer(`"`, "", "`", "", "'", "", "[", "", "]", "").Replace(strings.ToLower(text))
}

// querySQLite executes a query that only reads, and returns its rows.
func querySQLite(ctx context.Context, conn *sql.Conn, text string, list allowList) (*rows, error) {
	if !beginsSQLite(text) {
		return nil, &refusedError{"the query must begin with SELECT, WITH, VALUES or EXPLAIN; it can only read"}
	}
	if hasSecond(text) {
		return nil, &refusedError{"the query must be one statement, without a semicolon in it"}
	}
	objects, err := objectsOf(ctx, conn)
	if err != nil {
		return nil, err
	}
	r := &reader{text: unquoted(text), objects: objects, allowed: lowered(list)}
	if err := authorize(conn, r.decide); err != nil {
		return nil, err
	}
	out, err := readSQLite(ctx, conn, text)
	if r.refused != "" {
		return nil, &refusedError{r.refused}
	}
	return out, err
}

// lowered returns the list in lower case: names in SQLite have no case.
func lowered(list allowList) (out allowList) {
	for _, item := range list {
		out = append(out, strings.ToLower(item))
	}
	return out
}

// beginsSQLite reports whether the text begins with a word that reads. What follows is decided by the authorizer.
func beginsSQLite(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n\f")
	for strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*") {
		end, skip := strings.IndexByte(text, '\n'), 1
		if text[0] == '/' {
			end, skip = strings.Index(text[2:], "*/")+2, 2
		}
		if end < 2 {
			return false
		}
		text = strings.TrimLeft(text[end+skip:], " \t\r\n\f")
	}
	n := 0
	for n < len(text) && isLetter(text[n]) {
		n++
	}
	return slices.Contains([]string{"select", "with", "values", "explain"}, strings.ToLower(text[:n]))
}

// hasSecond reports whether something follows a semicolon that is neither in quotes nor in a comment.
func hasSecond(text string) bool {
	ended := false // there was a semicolon: only spaces and comments may follow
	for i := 0; i < len(text); i++ {
		end := ""
		switch c := text[i]; {
		case c == ';':
			ended = true
		case strings.ContainsRune(" \t\r\n\f", rune(c)):
		case strings.HasPrefix(text[i:], "--"):
			end = "\n"
		case strings.HasPrefix(text[i:], "/*"):
			i, end = i+1, "*/"
		case ended:
			return true
		case c == '\'' || c == '"' || c == '`':
			end = string(c)
		case c == '[':
			end = "]"
		}
		if end == "" {
			continue
		}
		length := strings.Index(text[i+1:], end)
		if length < 0 {
			return false // SQLite says what is wrong
		}
		i += length + len(end)
	}
	return false
}

// readSQLite reads the rows, until no more fit.
func readSQLite(ctx context.Context, conn *sql.Conn, text string) (*rows, error) {
	found, err := conn.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		return nil, err
	}
	out, err := newRows(names)
	if err != nil {
		return nil, &refusedError{err.Error()}
	}
	values, into := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	for found.Next() {
		if err := found.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = sqliteValue(v)
		}
		if !out.add(row) {
			return out, nil
		}
	}
	return out, found.Err()
}

// sqliteValue returns a value as JSON.
func sqliteValue(v driver.Value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return jsonText(strconv.FormatFloat(v, 'g', -1, 64))
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case string:
		return jsonText(v)
	case time.Time:
		return jsonText(v.Format(time.RFC3339Nano))
	case []byte:
		return jsonText(`\x` + hex.EncodeToString(v[:min(len(v), maxCell)]))
	}
	return jsonText(fmt.Sprint(v))
}

// isSQLiteFunction reports whether queries may call the function.
func isSQLiteFunction(name string) bool {
	return contains(` abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood likely lower ltrim max min nullif octet_length printf quote random
 replace round rtrim sign soundex substr substring trim typeof unhex unicode unistr unlikely upper
 avg count group_concat string_agg sum total median percentile percentile_cont percentile_disc
 date time datetime julianday unixepoch strftime timediff current_date current_time current_timestamp
 acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power radians sin sinh sqrt tan tanh trunc
 json jsonb json_array jsonb_array json_array_length json_error_position json_extract jsonb_extract -> ->> json_insert jsonb_insert json_object jsonb_object json_patch jsonb_patch
 json_pretty json_remove jsonb_remove json_replace jsonb_replace json_set jsonb_set json_type json_valid json_quote json_group_array jsonb_group_array json_group_object jsonb_group_object
 json_array_insert jsonb_array_insert
 row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
 match regexp bm25 highlight snippet matchinfo offsets `, name)
}

// checkSQLite opens the file and reads its schema.
func (c *Connections) checkSQLite(ctx context.Context, orgID string, p place) error {
	return c.withSQLite(ctx, orgID, p, func(conn *sql.Conn) error {
		_, err := objectsOf(ctx, conn)
		return err
	})
}
