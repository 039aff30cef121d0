package database

import (
	"context"
	"database/sql"
	"fmt"
	"os"
)

// Reader reads a store's file. It implements journal.Archive, and the reading methods of
// org.Store and audit.Log. It is safe for concurrent use.
type Reader struct {
	db     *sql.DB
	damage *damage // observes every error; nil for a Reader without a Store
	server bool    // the database is on a server
}

// ordered returns a query whose rows SQLite returns in an order without being told to, in that order also on a server.
func (r *Reader) ordered(query, by string) string {
	if r.server {
		return query + ` ORDER BY ` + by
	}
	return query
}

// wrap is the function wrap for errors that may report damage.
func (r *Reader) wrap(op string, err error) error {
	r.damage.observe(err)
	return wrap(op, err)
}

// OpenReader opens the file for reading. It takes no lock and changes nothing, so it
// also works while a gateway has the file open. The error wraps fs.ErrNotExist if the
// file is missing, and [ErrSchema] if it has another schema version.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w", describePermission(err))
	}
	found, err := checkFile(ctx, path)
	if _, known := versions(); err == nil && found != known {
		err = &SchemaError{Found: found, Known: known}
	}
	var db *sql.DB
	if err == nil {
		db, err = connect(path, readSettings())
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return &Reader{db: db}, nil
}

// NewReader returns a Reader of a database on a server, whose connections are [Translated].
func NewReader(db *sql.DB) *Reader { return &Reader{db: db, server: true} }

// Close closes the file, or the connections.
func (r *Reader) Close() error { return r.db.Close() }

// list returns all rows of a query.
func list[T any](ctx context.Context, db querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, scan)
}

// scanAll scans all rows and closes them.
func scanAll[T any](rows *sql.Rows, scan func(scanner) (T, error)) ([]T, error) {
	defer rows.Close()
	var out []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// groups reads the rows of a query that is ordered by org, org by org. The first error
// ends it. Close it.
type groups[T any] struct {
	rows *sql.Rows // nil = the query failed, or all rows are read
	read []T       // on a server, whose connections have one query at a time: the rows that are not taken
	scan func(scanner) (T, error)
	org  func(T) string
	next *T // the row that was read and not taken; nil = none
	err  error
}

func openGroups[T any](
	ctx context.Context, db querier, server bool, scan func(scanner) (T, error), org func(T) string, query string,
) *groups[T] {
	rows, err := db.QueryContext(ctx, query)
	g := &groups[T]{rows: rows, scan: scan, org: org, err: err}
	if server && err == nil {
		g.rows = nil
		g.read, g.err = scanAll(rows, scan)
	}
	g.advance()
	return g
}

// advance reads the next row.
func (g *groups[T]) advance() {
	g.next = nil
	if len(g.read) > 0 {
		g.next, g.read = &g.read[0], g.read[1:]
	}
	if g.next != nil || g.rows == nil {
		return
	}
	if g.err != nil || !g.rows.Next() {
		if g.err == nil {
			g.err = g.rows.Err()
		}
		return
	}
	one, err := g.scan(g.rows)
	g.next, g.err = &one, err
}

// take returns the rows of the org. The rows of orgs before it are passed over.
func (g *groups[T]) take(org string) (out []T) {
	for g.err == nil && g.next != nil && g.org(*g.next) <= org {
		if g.org(*g.next) == org {
			out = append(out, *g.next)
		}
		g.advance()
	}
	return out
}

func (g *groups[T]) close() {
	if g.rows != nil {
		_ = g.rows.Close()
	}
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }
