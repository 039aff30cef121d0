package database

import (
	"context"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Errors of this package. They are returned wrapped.
var (
	ErrLocked = errors.New("another process has the file open")
	ErrClosed = errors.New("the store is closed")
	ErrSchema = errors.New("the schema is not the version that this program expects")

	// ErrPoisoned reports that committed writes may be lost: fsync failed, after
	// which the operating system may have dropped the data although a later fsync
	// succeeds; or a file of the store was replaced ([ErrReplaced]). Only a restart
	// of the process shows what is stored.
	ErrPoisoned = errors.New("writes were lost, and the store refuses further writes")
)

// SchemaError reports a file that another version of the program made, or another program.
type SchemaError struct {
	Found, Known int64
	First        int64 // of the baseline, if a build before it made the file, which no later one can read; otherwise 0
	Foreign      bool  // another program made the file
}

func (e *SchemaError) Error() string {
	if e.Foreign {
		return "another program made the file: use another data directory or file"
	}
	if e.First > 0 {
		return fmt.Sprintf("a build before release 0.1 made the file (schema version %d), and this version reads files from "+
			"schema version %d on: use another data directory or file, or the build that made it", e.Found, e.First)
	}
	hint := "start the gateway of this version once to migrate it"
	if e.Found > e.Known {
		hint = "the file was made by a later version of the program"
	}
	return fmt.Sprintf("schema version %d found, %d expected: %s", e.Found, e.Known, hint)
}

// Is reports whether target is ErrSchema.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

// Error is a failure of the file itself: a full or failing disk, a lock, or a damaged
// file. It is unknown whether the write was stored. The store accepts writes again
// when the cause is gone, unless the error wraps [ErrPoisoned].
type Error struct {
	Op  string // the operation, such as "append" or "load a run"
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("store: %s: %v", e.Op, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is org.ErrUnavailable.
func (e *Error) Is(target error) bool { return target == org.ErrUnavailable }

// wrap returns failures of the file as *Error, and other errors unchanged or with
// the operation.
func wrap(op string, err error) error {
	if err == nil { // most often; the targets of errors.As would be allocated first
		return nil
	}
	var known *Error
	var capped *org.CapError
	switch {
	case errors.As(err, &known), errors.As(err, &capped), errors.Is(err, org.ErrNotFound), errors.Is(err, org.ErrExists),
		errors.Is(err, journal.ErrChanged), errors.As(err, new(*journal.SessionBusy)),
		errors.Is(err, agent.ErrToolMissing), errors.As(err, new(*agent.ToolInUseError)):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
		return fmt.Errorf("store: %s: %w", op, err)
	}
	return &Error{op, err}
}

// isUniqueViolation reports whether err is a violation of a unique constraint or primary key.
func isUniqueViolation(err error) bool {
	if stateOf(err) == "23505" {
		return true
	}
	var e *modernc.Error
	return errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

// isLackOfSpace reports whether err says that the disk is full. Nothing was stored, and the same
// write can succeed later.
func isLackOfSpace(err error) bool {
	if stateOf(err) == "53100" {
		return true
	}
	var e interface {
		error
		Code() int
	}
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE:
		return true
	}
	return false
}

// isSyncFailure reports whether err is a failed fsync. It looks only at the code, so that a
// test can make such an error.
func isSyncFailure(err error) bool {
	var e interface {
		error
		Code() int
	}
	return errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_IOERR_FSYNC || e.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC)
}
