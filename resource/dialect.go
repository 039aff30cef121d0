package resource

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// dialect is the SQL of a database.
type dialect interface {
	// columns returns the columns of a table in their order; none = there is no such table.
	columns(ctx context.Context, db *sql.DB, schema, table string) ([]column, error)
	// parameter returns the text of the n-th parameter of a statement, from 1.
	parameter(n int) string
	// selected returns the expression of a column in the result of a statement that knows it by the name.
	selected(c column, name string) string
	// contains and begins return the expression that says so of a column, whatever the case of letters.
	contains(column, parameter string) string
	begins(column, parameter string) string
}

// dialectOf asks the database what it is.
func dialectOf(ctx context.Context, db *sql.DB) (dialect, error) {
	var version string
	first := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	if first == nil {
		return sqlite{}, nil
	}
	second := db.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	switch {
	case second != nil:
		return nil, fmt.Errorf("the database cannot be read, or is neither SQLite nor PostgreSQL: %w", errors.Join(first, second))
	case !strings.HasPrefix(version, "PostgreSQL "):
		return nil, fmt.Errorf("the database is %q; use SQLite or PostgreSQL", version)
	}
	return postgres{}, nil
}

// quote returns a name as SQL has it.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// of returns a column of the table that a statement reads, which it calls t.
func of(name string) string { return "t." + quote(name) }

type sqlite struct{}

func (sqlite) parameter(int) string { return "?" }

func (sqlite) contains(column, parameter string) string {
	return "instr(lower(" + column + "), lower(" + parameter + ")) > 0"
}

func (sqlite) begins(column, parameter string) string {
	return "instr(lower(" + column + "), lower(" + parameter + ")) = 1"
}

// selected implements dialect. Without the cast, drivers make times of texts in columns of some types.
func (sqlite) selected(c column, name string) string {
	if c.kind == other {
		return "CAST(" + name + " AS TEXT)"
	}
	return name
}

func (sqlite) columns(ctx context.Context, db *sql.DB, schema, table string) (out []column, err error) {
	query, args := `SELECT name, type, "notnull", dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?)`, []any{table}
	if schema != "" {
		query, args = strings.Replace(query, "(?)", "(?, ?)", 1), append(args, schema)
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	keys := 0
	for rows.Next() {
		var c column
		var declared string
		var notNull, hasDefault, hidden int
		if err := rows.Scan(&c.name, &declared, &notNull, &hasDefault, &c.primary, &hidden); err != nil {
			return nil, err
		}
		if hidden == 1 { // of a virtual table: it is no column of SELECT *
			continue
		}
		c.kind, c.generated, c.nullable = sqliteKind(declared), hidden > 1, notNull == 0
		c.required = !c.nullable && hasDefault == 0 && !c.generated
		if c.primary > 0 {
			keys++
		}
		out = append(out, c)
	}
	for i := range out {
		if c := &out[i]; c.primary > 0 {
			c.nullable = false
			c.required = !(keys == 1 && c.kind == integer) // the database numbers such rows
		}
	}
	return out, rows.Err()
}

// sqliteKind returns the kind of a declared type, by the rules that SQLite has for affinities.
func sqliteKind(declared string) kind {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(strings.ToUpper(declared), p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("BOOL"):
		return boolean
	case has("JSON"):
		return document
	case has("DATE", "TIME"):
		return other
	case has("INT"):
		return integer
	case has("CHAR", "CLOB", "TEXT"):
		return text
	case has("BLOB"):
		return binary
	case has("REAL", "FLOA", "DOUBLE", "DEC", "NUM"):
		return number
	}
	return text
}

type postgres struct{}

// postgresColumns reads the columns of the table $1: name, type, and what else column has. A domain has the
// type that it is based on.
const postgresColumns = `SELECT a.attname::text, COALESCE(b.typname, y.typname)::text,
	a.attnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
	COALESCE((SELECT pg_catalog.array_position(k.conkey, a.attnum)
		FROM pg_catalog.pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'p'), 0)
	FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
	LEFT JOIN pg_catalog.pg_type b ON y.typtype = 'd' AND b.oid = y.typbasetype
	WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

func (postgres) parameter(n int) string { return "$" + strconv.Itoa(n) }

func (postgres) contains(column, parameter string) string {
	return "strpos(lower(" + column + "), lower(" + parameter + "::text)) > 0"
}

func (postgres) begins(column, parameter string) string {
	return "starts_with(lower(" + column + "), lower(" + parameter + "::text))"
}

// selected implements dialect. Drivers have many Go types for values of other types, and one for texts.
func (postgres) selected(c column, name string) string {
	switch c.kind {
	case integer, boolean, text, binary:
		return name
	case number, decimal, document, other:
	}
	return name + "::text"
}

func (postgres) columns(ctx context.Context, db *sql.DB, schema, table string) (out []column, err error) {
	name := quote(table)
	if schema != "" {
		name = quote(schema) + "." + name
	}
	rows, err := db.QueryContext(ctx, postgresColumns, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c column
		var typeName string
		var notNull, hasDefault bool
		if err := rows.Scan(&c.name, &typeName, &notNull, &hasDefault, &c.generated, &c.primary); err != nil {
			return nil, err
		}
		c.kind, c.nullable = postgresKind(typeName), !notNull
		c.required = notNull && !hasDefault && !c.generated
		out = append(out, c)
	}
	return out, rows.Err()
}

func postgresKind(name string) kind {
	switch name {
	case "int2", "int4", "int8":
		return integer
	case "float4", "float8":
		return number
	case "numeric":
		return decimal
	case "bool":
		return boolean
	case "text", "varchar", "bpchar", "name", "citext":
		return text
	case "bytea":
		return binary
	case "json", "jsonb":
		return document
	}
	return other
}
