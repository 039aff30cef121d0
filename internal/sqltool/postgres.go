package sqltool

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxMessage is how many bytes a message of the server has at most, such as a row. A longer one ends the connection.
const maxMessage = 1 << 20

// fetchRows is how many rows are asked for at once.
const fetchRows = 50

// cursor is the name of the cursor, and of its statement.
const cursor = "turnpike"

// Dial opens a network connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// roleError is a role that may not be used.
type roleError struct{ role, why string }

func (e *roleError) Error() string {
	return fmt.Sprintf("the role %q %s: it could get around a read-only transaction; make a role of its own: CREATE ROLE turnpike_reader LOGIN PASSWORD '…' NOSUPERUSER NOCREATEROLE NOREPLICATION; GRANT SELECT ON the tables TO turnpike_reader", e.role, e.why)
}

// connectPostgres opens a connection and refuses a dangerous role.
func connectPostgres(ctx context.Context, u org.DatabaseURL, dial Dial) (*pgconn.PgConn, error) {
	// The configuration is not read from the environment of the gateway, nor from its files.
	c, err := pgconn.ParseConfigWithOptions("postgres://user:password@localhost:5432/database?sslmode=disable&passfile=&target_session_attrs=any", pgconn.ParseConfigOptions{})
	if err != nil {
		return nil, fmt.Errorf("settings of PostgreSQL in the gateway's environment are not valid; remove PGSERVICE and the like: %w", err)
	}
	c.Host, c.Port, c.User, c.Password, c.Database = u.Host, u.Port, u.User, u.Password.Reveal(), u.Database
	c.Fallbacks, c.ValidateConnect, c.AfterConnect = nil, nil, nil
	c.RuntimeParams = map[string]string{"application_name": "turnpike", "client_encoding": "UTF8"}
	c.MaxProtocolMessageBodyLen = maxMessage
	c.OnNotice = onNotice
	c.TLSConfig, c.SSLNegotiation, c.SSLCertMode, c.ChannelBinding, c.RequireAuth = nil, "", "", "", ""
	c.MinProtocolVersion, c.MaxProtocolVersion = "3.0", "3.0"
	switch u.TLS {
	case org.TLSVerify:
		c.TLSConfig = &tls.Config{ServerName: u.Host, MinVersion: tls.VersionTLS12}
	case org.TLSUnverified:
		c.TLSConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // sslmode=require asks for it
	}
	var refused tool.Blocked
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // resolved, and checked, by dial
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if found := tool.Blocked(nil); errors.As(err, &found) {
			refused = found
		}
		return conn, err
	}
	conn, err := pgconn.ConnectConfig(ctx, c)
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	if err := checkRole(ctx, conn, u.User); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// closeConn closes the connection, and takes no longer than a moment.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// checkRole refuses a role that is, or may become, one that a transaction does not confine.
func checkRole(ctx context.Context, conn *pgconn.PgConn, user string) error {
	found, err := query(ctx, conn, `SELECT r.rolname, r.rolsuper, r.rolreplication, r.rolcreaterole FROM pg_catalog.pg_roles r
		WHERE pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER') AND (r.rolsuper OR r.rolreplication OR r.rolcreaterole OR r.rolname OPERATOR(pg_catalog.=) ANY (
			ARRAY['pg_execute_server_program','pg_read_server_files','pg_write_server_files','pg_signal_backend','pg_checkpoint','pg_create_subscription']))
		ORDER BY r.rolsuper DESC, r.rolname LIMIT 1`)
	if err != nil || len(found) == 0 {
		return err
	}
	role, why := found[0], ""
	switch {
	case role[1] == "t":
		why = "is a superuser"
	case role[2] == "t":
		why = "has REPLICATION"
	case role[3] == "t":
		why = "has CREATEROLE"
	}
	switch {
	case role[0] != user && why != "":
		return &roleError{user, "is a member of " + role[0] + ", which " + why}
	case why == "":
		return &roleError{user, "is a member of " + role[0]}
	}
	return &roleError{user, why}
}

// query returns the rows of a statement of this package. Parameters are sent as text.
func query(ctx context.Context, conn *pgconn.PgConn, sql string, parameters ...string) ([][]string, error) {
	var values [][]byte
	for _, p := range parameters {
		values = append(values, []byte(p))
	}
	result := conn.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	var out [][]string
	for _, r := range result.Rows {
		row := make([]string, len(r))
		for i, v := range r {
			row[i] = string(v)
		}
		out = append(out, row)
	}
	return out, nil
}

// postgresArray returns the texts as a literal of an array. They are identifiers, or are quoted.
func postgresArray(all []string) string {
	escaped := make([]string, len(all))
	for i, s := range all {
		escaped[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return "{" + strings.Join(escaped, ",") + "}"
}

// begin begins a transaction that nothing of an earlier call and of the role's settings changes. Then it executes the
// statement then.
func begin(ctx context.Context, conn *pgconn.PgConn, mode string, timeout time.Duration, allowed allowList, then string) error {
	path := make([]string, 0, len(allowed.schemas()))
	for _, s := range allowed.schemas() {
		path = append(path, quoteName(s))
	}
	_, err := conn.Exec(ctx, "BEGIN "+mode+";"+
		"SET LOCAL statement_timeout = "+strconv.FormatInt(timeout.Milliseconds(), 10)+";"+
		"SET LOCAL lock_timeout = "+strconv.FormatInt(timeout.Milliseconds(), 10)+";"+
		"SET LOCAL idle_in_transaction_session_timeout = "+strconv.FormatInt((timeout+time.Minute).Milliseconds(), 10)+";"+
		"SET LOCAL standard_conforming_strings = on; SET LOCAL client_min_messages = error; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL bytea_output = 'hex';"+
		"SET LOCAL search_path = "+strings.Join(path, ", ")+";"+then).ReadAll()
	return err
}

// reset ends the transaction and takes back what outlives it, such as advisory locks and LISTEN.
func reset(ctx context.Context, conn *pgconn.PgConn) error {
	if _, err := conn.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "DISCARD ALL").ReadAll()
	return err
}

// quoteName returns a name in double quotes.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// checkStatement refuses what is not one statement that reads, and names of types whose literals ask the catalogue. What
// the statement calls, the server says.
func checkStatement(text string) ([]token, error) {
	all, err := lex(text)
	if err != nil {
		return nil, err
	}
	if all, err = oneStatement(all); err != nil {
		return nil, err
	}
	if !begins(all, "select", "with", "values", "table") {
		return nil, errors.New("the query must begin with SELECT, WITH, VALUES or TABLE; it can only read")
	}
	for i := 1; i < len(all); i++ {
		if all[i].is("''") && all[i-1].is("''") {
			return nil, errors.New("two strings follow each other; write them as one")
		}
	}
	return all, checkRegistryTypes(all)
}

// checkQualifiers refuses names of schemas that are not allowed, for tables as for types, and of tables of pg_catalog: they
// are types, too, whose literals ask the catalogue.
func checkQualifiers(ctx context.Context, conn *pgconn.PgConn, all []token, allowed allowList) error {
	var schemas, tables []string
	for i, t := range all {
		switch name := strings.TrimLeft(t.text, "_"); {
		case t.kind == other:
		case i+1 < len(all) && all[i+1].is(".") && !allowed.hasSchema(t.text):
			schemas = append(schemas, t.text)
		case strings.HasPrefix(name, "pg_") && !allowed.has("pg_catalog", name):
			tables = append(tables, name)
		}
	}
	if len(schemas)+len(tables) == 0 {
		return nil
	}
	found, err := query(ctx, conn, `SELECT nspname, '' FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[])
		UNION ALL SELECT 'pg_catalog', relname FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) 11::pg_catalog.oid AND relname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[])
		ORDER BY 2, 1 LIMIT 1`, postgresArray(schemas), postgresArray(tables))
	switch {
	case err != nil || len(found) == 0:
		return err
	case found[0][1] != "":
		return &refusedError{fmt.Sprintf("the table pg_catalog.%s is not one that queries may use; allowed: %s", found[0][1], allowed)}
	}
	return &refusedError{fmt.Sprintf("the schema %q is not one that queries may use; allowed: %s", found[0][0], allowed)}
}

// queryPostgres executes a query that only reads, and returns its rows.
func queryPostgres(ctx context.Context, conn *pgconn.PgConn, text string, timeout time.Duration, allowed allowList) (*rows, error) {
	all, err := checkStatement(text)
	if err != nil {
		return nil, &refusedError{err.Error()}
	}
	for len(text) > 0 && (text[len(text)-1] == ';' || strings.ContainsRune(" \t\r\n", rune(text[len(text)-1]))) {
		text = text[:len(text)-1]
	}
	if err := checkQualifiers(ctx, conn, all, allowed); err != nil {
		return nil, err
	}
	if err := begin(ctx, conn, "READ ONLY", timeout, allowed, "SET LOCAL debug_pretty_print = off; SET LOCAL client_min_messages = log; SET LOCAL debug_print_parse = on"); err != nil {
		return nil, err
	}
	// A cursor takes nothing but a query. The server analyses it here, and executes nothing.
	uses, err := prepareReported(ctx, conn, cursor, "DECLARE "+cursor+" NO SCROLL CURSOR FOR "+text)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SET LOCAL debug_print_parse = off; SET LOCAL client_min_messages = error").ReadAll(); err != nil {
		return nil, err
	}
	if err := checkNamed(ctx, conn, allowed); err != nil {
		return nil, err
	}
	if err := checkUses(ctx, conn, uses); err != nil {
		return nil, err
	}
	if result := conn.ExecPrepared(ctx, cursor, nil, nil, nil).Read(); result.Err != nil {
		return nil, result.Err
	}
	return fetch(ctx, conn)
}

// checkNamed refuses a statement that was analysed in the transaction and names a table that is not allowed: the
// transaction has a lock on each.
func checkNamed(ctx context.Context, conn *pgconn.PgConn, allowed allowList) error {
	// This statement names no table itself, so that it adds no lock.
	locks, err := query(ctx, conn, `SELECT l.relation FROM pg_catalog.pg_lock_status() l WHERE l.locktype OPERATOR(pg_catalog.=) 'relation' AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()`)
	if err != nil || len(locks) == 0 {
		return err
	}
	var ids []string
	for _, l := range locks {
		ids = append(ids, l[0])
	}
	named, err := query(ctx, conn, `SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]) ORDER BY 1, 2`, "{"+strings.Join(ids, ",")+"}")
	if err != nil {
		return err
	}
	if len(named) != len(locks) {
		return &refusedError{"it is not known which tables the query names"}
	}
	for _, one := range named {
		if !allowed.has(one[0], one[1]) {
			return &refusedError{fmt.Sprintf("the table %s.%s is not one that queries may use; allowed: %s", one[0], one[1], allowed)}
		}
	}
	return nil
}

// fetch reads the rows of the cursor, until no more fit.
func fetch(ctx context.Context, conn *pgconn.PgConn) (*rows, error) {
	var out *rows
	for {
		n, err := fetchSome(ctx, conn, &out)
		if err != nil || n < fetchRows || out.full {
			return out, err
		}
	}
}

func fetchSome(ctx context.Context, conn *pgconn.PgConn, out **rows) (n int, err error) {
	r := conn.ExecParams(ctx, "FETCH FORWARD "+strconv.Itoa(fetchRows)+" FROM "+cursor, nil, nil, nil, nil)
	fields := r.FieldDescriptions()
	if *out == nil && fields != nil {
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i] = f.Name
		}
		if *out, err = newRows(names); err != nil {
			_, _ = r.Close()
			return 0, &refusedError{err.Error()}
		}
	}
	for r.NextRow() {
		n++
		if *out == nil || (*out).full {
			continue
		}
		values := make([]string, len(fields))
		for i, v := range r.Values() {
			values[i] = jsonValue(fields[i].DataTypeOID, v)
		}
		(*out).add(values)
	}
	if _, err = r.Close(); err == nil && *out == nil {
		*out, err = newRows([]string{})
	}
	return n, err
}

// The types that JSON has.
const (
	oidBool, oidInt8, oidInt2, oidInt4, oidOID          = 16, 20, 21, 23, 26
	oidFloat4, oidFloat8, oidNumeric, oidJSON, oidJSONB = 700, 701, 1700, 114, 3802
)

// jsonValue returns a value that the server has sent as text.
func jsonValue(oid uint32, v []byte) string {
	if v == nil {
		return "null"
	}
	switch text := string(v); oid {
	case oidBool:
		if text == "t" {
			return "true"
		}
		return "false"
	case oidInt2, oidInt4, oidInt8, oidOID, oidFloat4, oidFloat8, oidNumeric:
		if isNumber(text) {
			return text
		}
	case oidJSON, oidJSONB:
		if len(text) <= maxCell && json.Valid(v) && !strings.ContainsAny(text, "\n\r") {
			return text
		}
	}
	return jsonText(string(v))
}

// isNumber reports whether the text is a JSON number; NaN and infinity are not.
func isNumber(text string) bool {
	return len(text) < 100 && regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`).MatchString(text)
}

// tooLarge reports whether the error is a message of more than maxMessage.
func tooLarge(err error) bool {
	var long *pgproto3.ExceededMaxBodyLenErr
	return errors.As(err, &long)
}
