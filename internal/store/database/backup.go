package database

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// Size returns the size of the database in bytes. A copy is at most as large.
func (r *Reader) Size(ctx context.Context) (int64, error) {
	var pages, size int64
	err := r.db.QueryRowContext(ctx, `SELECT page_count, page_size FROM pragma_page_count(), pragma_page_size()`).Scan(&pages, &size)
	return pages * size, r.wrap("read the size", err)
}

// CopyTo writes a consistent snapshot of the database to a new file, with the
// process's default permissions. It does not block writes, but the write-ahead log
// grows until the copy is complete.
func (r *Reader) CopyTo(ctx context.Context, path string) error {
	_, err := r.db.ExecContext(ctx, `VACUUM INTO ?`, path)
	return r.wrap("copy the database", err)
}

// CheckCopy returns nil if the file is an intact database of this program, of this
// version or an earlier one, which Open migrates, from the baseline on. Otherwise the error wraps
// [ErrDamaged] or [ErrSchema], or says that the file is not a Turnpike database.
func CheckCopy(ctx context.Context, path string) error {
	db, err := connect(path, inspectSettings(path))
	if err != nil {
		return err
	}
	defer db.Close()
	var found string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		if isDamaged(err) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err
	}
	if found != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, found)
	}
	version, err := checkFile(ctx, path)
	if err == nil && version == 0 {
		err = errors.New("not a Turnpike database")
	}
	return err
}

// Unfinished returns the runs of all orgs that have not ended, the oldest first.
func (r *Reader) Unfinished(ctx context.Context) ([]journal.Summary, error) {
	runs, err := list(ctx, r.db, scanSummary, `SELECT `+summaryColumns+` FROM runs WHERE status <> 'done' ORDER BY created_at, org, run_id`)
	return runs, r.wrap("list unfinished runs", err)
}

// Lock takes the lock of the file with this path, so that no Store can open it until
// the result is closed. The file need not exist, but its directory must. The error
// wraps [ErrLocked] if another process has the lock.
func Lock(path string) (io.Closer, error) { return lockFile(path + ".lock") }
