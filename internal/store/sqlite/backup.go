package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Size returns how many bytes the database has. A copy has at most as many.
func (r *Reader) Size(ctx context.Context) (int64, error) {
	var pages, size int64
	err := r.db.QueryRowContext(ctx, `SELECT page_count, page_size FROM pragma_page_count(), pragma_page_size()`).Scan(&pages, &size)
	return pages * size, r.wrap("read the size", err)
}

// CopyTo writes the database, as it is at one point in time, to a new file with the
// permissions that the process gives new files. The gateway may be writing
// meanwhile: it is not held up, but its log grows until the copy is complete.
func (r *Reader) CopyTo(ctx context.Context, path string) error {
	_, err := r.db.ExecContext(ctx, `VACUUM INTO ?`, path)
	return r.wrap("copy the database", err)
}

// CheckCopy returns an error unless the file is a whole database of this program:
// one that wraps [ErrDamaged] or [ErrSchema], or says that it is no store. A file of
// an earlier version is accepted: Open migrates it.
func CheckCopy(ctx context.Context, path string) error {
	db, err := connect(path, reading())
	if err != nil {
		return err
	}
	defer db.Close()
	var found string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		if damaged(err) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err
	}
	if found != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, found)
	}
	var schema *SchemaError
	switch err := checkVersion(ctx, db); {
	case errors.As(err, &schema) && schema.Found == 0:
		return errors.New("not a database of Turnpike")
	case errors.As(err, &schema) && schema.Found < schema.Known:
		return nil
	default:
		return err
	}
}

// Unfinished returns the runs of all orgs that are not over, the oldest first.
func (r *Reader) Unfinished(ctx context.Context) ([]run.Summary, error) {
	runs, err := list(ctx, r.db, scanSummary, `SELECT `+summaryColumns+` FROM runs WHERE status <> 'done' ORDER BY created_at, org, run_id`)
	return runs, r.wrap("list unfinished runs", err)
}

// Lock keeps every Store away from the file with this path until it is closed. The
// file need not exist, but its directory must. The error wraps [ErrLocked] while a
// process has the file open.
func Lock(path string) (io.Closer, error) { return lockFile(path + ".lock") }
