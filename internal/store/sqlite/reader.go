package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// Reader reads a store's file. It is a run.Archive, and has the reading methods
// of an org.Store.
type Reader struct {
	db     *sql.DB
	damage *damage // sees every error; nil = nobody does
}

// wrap is the function of that name for what the file has answered.
func (r *Reader) wrap(op string, err error) error {
	r.damage.see(err)
	return wrap(op, err)
}

// OpenReader opens the file for reading, also while a gateway has it open: it
// takes no lock and changes nothing. A file that is missing is an error that
// wraps fs.ErrNotExist; one with another schema, an error that wraps [ErrSchema].
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := connect(path, reading())
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	if err := checkVersion(ctx, db); err != nil {
		return nil, fmt.Errorf("store %s: %w", path, errors.Join(err, db.Close()))
	}
	return &Reader{db: db}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.db.Close() }

// list reads all rows of a query.
func list[T any](ctx context.Context, db querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
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

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }
