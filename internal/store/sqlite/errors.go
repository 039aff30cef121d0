package sqlite

import (
	"context"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The errors of this package, wrapped.
var (
	ErrLocked = errors.New("another process has the file open")
	ErrClosed = errors.New("the store is closed")
	ErrSchema = errors.New("the schema is not the one that this program knows")

	// ErrPoisoned says that what was written may not be there: the disk did not
	// confirm it (the system may have dropped it, and would confirm the next
	// time), or a file is not there any more ([ErrReplaced]). Only what a new
	// process reads is known to be there.
	ErrPoisoned = errors.New("writes were lost, and the store takes no more")
)

// SchemaError says that the file was made by another version of the program.
type SchemaError struct{ Found, Known int64 }

func (e *SchemaError) Error() string {
	hint := "start the gateway of this version once to migrate it"
	if e.Found > e.Known {
		hint = "the file was made by a later version of the program"
	}
	return fmt.Sprintf("schema version %d found, %d expected: %s", e.Found, e.Known, hint)
}

// Is reports whether target is ErrSchema.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

// Error is a failure of the file itself: the disk is full or broken, the lock, a
// file that is damaged. What was to be stored is not known to be. The store can
// take writes again when the cause is gone, unless it wraps [ErrPoisoned].
type Error struct {
	Op  string // what was being done, such as "append" or "load"
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("store: %s: %v", e.Op, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is org.ErrUnavailable.
func (e *Error) Is(target error) bool { return target == org.ErrUnavailable }

// wrap makes an Error of what is nobody's mistake but the file's.
func wrap(op string, err error) error {
	var known *Error
	var capped *org.CapError
	switch {
	case err == nil, errors.As(err, &known), errors.As(err, &capped), errors.Is(err, org.ErrNotFound), errors.Is(err, org.ErrExists):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
		return fmt.Errorf("store: %s: %w", op, err)
	}
	return &Error{op, err}
}

// taken reports whether err says that something unique is there already.
func taken(err error) bool {
	var e *modernc.Error
	return errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

// lost reports whether err says that writes were not confirmed by the disk. It
// asks for the code alone, so that a test can have such an error.
func lost(err error) bool {
	var e interface {
		error
		Code() int
	}
	return errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_IOERR_FSYNC || e.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC)
}
