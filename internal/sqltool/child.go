package sqltool

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpike-gateway/turnpike/internal/childproc"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// A query on a file of SQLite runs in a child process: functions such as instr and replace cannot be interrupted, and a
// row has no bound but that of its columns.
//
//	database_query ── place, query, tables ──► stdin, turnpike sqlite-child ── SQLite, read-only
//	               ◄── answer, as JSON ─────── stdout
//
// The child ends when the time of the statement has passed, even within a function. The gateway kills it when the client
// has left, and when it does not end.

// Command is the hidden command of the program that executes one query on a file of SQLite.
const Command = "sqlite-child"

// The limits of a child.
const (
	maxSQLiteMemory = 64 << 20  // bytes that SQLite allocates
	maxGoMemory     = 128 << 20 // bytes from which on the collector works as much as it can
	maxTemporary    = 512 << 20 // bytes of a temporary file
	maxAddressSpace = 2 << 30   // bytes
	databaseSays    = 4         // exit status: standard error has the text of SQLite
	notOpened       = 5         // exit status: the file cannot be opened
	tookTooLong     = 6         // exit status: the time of the statement has passed
	notStarted      = 7         // exit status: it cannot limit itself, or not read the query
	maxChildError   = 4 << 10   // bytes
)

// childQuery is what a child reads from standard input.
type childQuery struct {
	Path    string        `json:"path"`
	Query   string        `json:"query"` // "" = the tables are listed
	Allowed allowList     `json:"allowed"`
	Timeout time.Duration `json:"timeout_ns"`
}

// ChildMain executes the query on standard input, writes the answer to standard output, and returns the exit status.
func ChildMain() int {
	limits := childproc.Limits{AddressSpace: maxAddressSpace, CPUSeconds: uint64(org.MaxStatementTimeout.Seconds()) + 10, FileSize: maxTemporary}
	err := childproc.LimitSelf(limits)
	if err == nil {
		err = countMemory()
	}
	debug.SetMemoryLimit(maxGoMemory)
	var text string
	if err == nil {
		text, err = answerSQLite(context.Background(), os.Stdin)
	}
	if err == nil {
		_, err = io.WriteString(os.Stdout, text)
	}
	if err == nil {
		return 0
	}
	status := notStarted
	var refused *refusedError
	var connect *connectError
	says, isSQLite := sqliteMessage(err)
	switch {
	case errors.As(err, &refused):
		status, says = childproc.Refused, refused.text
	case errors.As(err, &connect):
		status, says = notOpened, err.Error()
	case isSQLite:
		status = databaseSays
	default:
		says = err.Error()
	}
	_, _ = io.WriteString(os.Stderr, says)
	return status
}

// countMemory lets SQLite count its memory, which hard_heap_limit needs. It must be called before SQLite is used.
func countMemory() error {
	tls := libc.NewTLS()
	defer tls.Close()
	arguments := libc.Xmalloc(tls, 8)
	if arguments == 0 {
		return errors.New("there is no memory")
	}
	defer libc.Xfree(tls, arguments)
	if status := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMSTATUS, libc.VaList(arguments, int32(1))); status != sqlite3.SQLITE_OK {
		return fmt.Errorf("SQLite does not count its memory: %d", status)
	}
	return nil
}

// answerSQLite returns the answer to a query.
func answerSQLite(ctx context.Context, in io.Reader) (string, error) {
	var q childQuery
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return "", err
	}
	defer time.AfterFunc(q.Timeout, func() { os.Exit(tookTooLong) }).Stop()
	var out *rows
	err := openSQLite(ctx, q.Path, "ro", func(conn *sql.Conn) (err error) {
		if _, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA hard_heap_limit = %d", maxSQLiteMemory)); err != nil {
			return err
		}
		if strings.TrimSpace(q.Query) == "" {
			out, err = listSQLite(ctx, conn, q.Allowed)
		} else {
			out, err = querySQLite(ctx, conn, q.Query, q.Allowed)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return out.end()
}

// sqliteError is what SQLite says about a query in a child.
type sqliteError struct{ text string }

func (e *sqliteError) Error() string { return e.text }

// askSQLite returns the answer to a query on a file, from a child process.
func (c *Connections) askSQLite(ctx context.Context, orgID string, p place, d org.Database, query string, list allowList) (string, error) {
	if len(c.o.Program) == 0 {
		return "", &settingError{fmt.Sprintf("the database %q is a file of SQLite, and this program cannot start the process that reads it; run the gateway as turnpike serve", d.Name), "databases"}
	}
	path, end, err := c.sqliteSlot(ctx, orgID, p, true)
	if err != nil {
		return "", &connectError{err}
	}
	defer end()
	in, err := json.Marshal(childQuery{path, query, list, d.Timeout()})
	if err != nil {
		return "", err
	}
	working, cancel := context.WithTimeout(ctx, d.Timeout()+time.Second) // it starts, and ends itself before
	defer cancel()
	out, says := &childproc.Buffer{Most: utf8.UTFMax*maxCharacters + 1}, &childproc.Buffer{Most: maxChildError}
	command := childproc.Command(c.o.Program, Command)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(in), out, says
	err = childproc.Run(working, command)
	if working.Err() != nil {
		return "", timedOut(working, d, context.Cause(working))
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == tookTooLong {
		return "", tookLonger(d)
	}
	return childAnswer(out.String(), strings.ToValidUTF8(says.String(), ""), err)
}

// childAnswer returns the answer of a child that has ended.
func childAnswer(out, says string, err error) (string, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, nil
	case !errors.As(err, &exit):
		return "", fmt.Errorf("the process that reads the file does not start: %w", err)
	}
	switch exit.ExitCode() {
	case childproc.Refused:
		return "", &refusedError{says}
	case databaseSays:
		return "", &sqliteError{says}
	case notOpened:
		return "", &connectError{errors.New(says)}
	case notStarted:
		return "", fmt.Errorf("the process that reads the file does not start: %s", says)
	}
	return "", &refusedError{fmt.Sprintf("the query needs more than it may have: %d MiB of memory, %d MiB for a temporary file; make it read less", maxSQLiteMemory>>20, maxTemporary>>20)}
}
