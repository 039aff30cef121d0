package sqltool

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
)

// listPostgres returns the tables and columns that queries may use and the role may read.
func listPostgres(ctx context.Context, conn *pgconn.PgConn, timeout time.Duration, list allowList) (*rows, error) {
	if err := begin(ctx, conn, "READ ONLY", timeout, list, ""); err != nil {
		return nil, err
	}
	found, err := query(ctx, conn, `SELECT n.nspname, c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
		WHERE n.nspname OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[]) AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,m,p,f}'::pg_catalog."char"[])
		AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY 1, 2, a.attnum LIMIT 2000`, postgresArray(list.schemas()))
	if err != nil {
		return nil, err
	}
	out, err := newRows([]string{"table", "column", "type"})
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if list.has(f[0], f[1]) && !out.add([]string{jsonText(f[0] + "." + f[1]), jsonText(f[2]), jsonText(f[3])}) {
			break
		}
	}
	return out, nil
}

// listSQLite returns the tables and columns that queries may use.
func listSQLite(ctx context.Context, conn *sql.Conn, list allowList) (*rows, error) {
	found, err := conn.QueryContext(ctx, `SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY m.name, c.cid LIMIT 2000`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	out, err := newRows([]string{"table", "column", "type"})
	if err != nil {
		return nil, err
	}
	list = lowered(list)
	for found.Next() {
		var table, column, kind string
		if err := found.Scan(&table, &column, &kind); err != nil {
			return nil, err
		}
		if list.has("main", strings.ToLower(table)) && !out.add([]string{jsonText(table), jsonText(column), jsonText(kind)}) {
			break
		}
	}
	return out, found.Err()
}

// sqliteMessage returns the text of an error of SQLite.
func sqliteMessage(err error) (string, bool) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return "", false
	}
	return strings.TrimPrefix(e.Error(), "SQL logic error: "), true
}
