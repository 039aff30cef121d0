package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// codeReadOnly is what a server says that has become a standby.
const codeReadOnly = "25006"

// Class says what an error means for the transaction in which it occurred.
type Class int

// The classes of errors.
const (
	Other       Class = iota // none of those below; the server has undone the transaction, if it was begun
	Unique                   // a row with the same key is there; the transaction is undone
	Retry                    // a conflict with another transaction; it is undone, and the same one can succeed at once
	Unreachable              // there is no connection; nothing was sent
	Lost                     // the connection ended; what a COMMIT, or a statement outside a transaction, has done is unknown if it was sent
	ReadOnly                 // the server accepts no writes: it is a standby now. The transaction is undone, and the connection closed
	Full                     // the server has no space; the transaction is undone, and the same one can succeed later
)

// Classify returns the class of an error of database/sql or of the connection. For nil it is Other. A context that ended is
// Lost, unless it is known that nothing was sent: the connection of a statement whose caller leaves is closed.
func Classify(err error) Class {
	var refused *pgconn.ConnectError
	isConnect := errors.As(err, &refused)
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return classOf(e.Code, isConnect)
	}
	var network net.Error
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows), errors.Is(err, sql.ErrTxDone):
		return Other
	case isConnect, pgconn.SafeToRetry(err), errors.Is(err, driver.ErrBadConn): // database/sql gets ErrBadConn only if nothing was sent
		return Unreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &network),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "conn closed"):
		return Lost
	}
	return Other
}

// classOf returns the class of a code of PostgreSQL.
func classOf(code string, connecting bool) Class {
	switch code {
	case "23505":
		return Unique
	case "40001", "40P01", "55P03":
		return Retry
	case codeReadOnly:
		return ReadOnly
	case "53100":
		return Full
	case "53300", "57P03": // too many connections; the server starts or stops
		return Unreachable
	case "57P01", "57P02", "57P05", "25P03": // the server, or its operator, has ended the session
		return lostOr(connecting)
	}
	if strings.HasPrefix(code, "08") {
		return lostOr(connecting)
	}
	return Other
}

func lostOr(connecting bool) Class {
	if connecting {
		return Unreachable
	}
	return Lost
}

// SchemaError reports a schema that this build may not use. It is [database.ErrSchema].
type SchemaError struct {
	Schema  string // empty: the search_path of the role names none that is there
	Found   int64  // its version; 0 = nothing was created in it
	Known   int64  // the version of this build
	Oldest  int64  // the lowest version whose build may use it, if this one may not; otherwise 0
	Missing bool   // there is no such schema
	Foreign bool   // another program has made tables in it
}

func (e *SchemaError) Error() string {
	switch {
	case e.Missing && e.Schema == "":
		return "the search_path of the role names no schema that is there: set postgres.schema, or make one with CREATE SCHEMA"
	case e.Missing:
		return fmt.Sprintf("the schema %q is not there, or the role has no USAGE on it: make it with CREATE SCHEMA or by a start with "+
			"postgres.migrate: start, or GRANT USAGE", e.Schema)
	case e.Foreign:
		return fmt.Sprintf("the schema %q has tables of another program: set postgres.schema to one of the gateway's own", e.Schema)
	case e.Oldest > 0:
		return fmt.Sprintf("the schema %q has version %d, which builds from version %d on can use, and this build has version %d: "+
			"start the later version of the program", e.Schema, e.Found, e.Oldest, e.Known)
	}
	return fmt.Sprintf("the schema %q has version %d, %d expected: start once with postgres.migrate: start to migrate it",
		e.Schema, e.Found, e.Known)
}

// Is reports whether target is [database.ErrSchema].
func (e *SchemaError) Is(target error) bool { return target == database.ErrSchema }
