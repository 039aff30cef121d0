package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// Limits of the transactions on a server.
const (
	transactionTime = 10 * time.Second      // of one; its connection is closed then. Also after which one is not repeated
	lostTime        = 2 * time.Second       // how long one is repeated after its connection was lost
	maxRepeats      = 5                     // of one that another one was preferred to
	repeatDelay     = 5 * time.Millisecond  // before the first repetition, with jitter; doubled each time
	statusDelay     = 50 * time.Millisecond // between two looks at a commit without an answer
	statusTime      = time.Second           // after which its connection is terminated on the server
	unknownTime     = 10 * time.Second      // after which its result stays unknown
)

// session is a connection to a server on which the writes of one org at a time are performed.
//
// A transaction begins with the lock of its org, which all processes of the installation take. So the rules that hold for
// the only writer of a file hold for the writers of an org: what a transaction reads of the org, no other one changes
// before its commit. What it adds to the chain of another org needs the lock of that one, too.
type session struct {
	db      *sql.DB // whose connection it is
	read    *sql.DB // with other connections, to look up what became of a commit
	options *ServerOptions

	ctx    context.Context // of the transaction
	cancel context.CancelFunc
	lazy   bool // the commit need not wait for the disk
	org    string
	xid    string // of the transaction
	pid    int    // of the process of the server
	since  string // when the server of the connection was started, or has crashed
	failed error  // of a statement, after which the server refuses others, and rolls back when it is to commit; nil = none
}

// sinceWhen changes with each start of the server and each crash. After a crash of one of its processes the server is not
// started anew, but its
// statistics are.
const sinceWhen = `CAST(pg_postmaster_start_time() AS text) || coalesce(CAST(pg_stat_get_bgwriter_stat_reset_time() AS text), '')`

// errUnknown reports a commit of which it is not known whether it was made.
var errUnknown = errors.New("the connection to the database was lost during a commit, and what became of it is not known")

// perform performs the group, again if another transaction was preferred to it or the connection was lost.
func (s *session) perform(t *tx, group []*write) error {
	began := time.Now()
	var lost time.Time // when the connection was lost first
	for try := 0; ; try++ {
		err := s.once(t, group)
		now := time.Now()
		if isLost(err) && lost.IsZero() {
			lost = now
		}
		switch {
		case err == nil, !s.repeats(err), now.Sub(began) > transactionTime,
			isLost(err) && now.Sub(lost) > lostTime, !isLost(err) && try >= maxRepeats:
			return err
		}
		for _, one := range group {
			one.err, one.unstored = nil, nil
		}
		delay := repeatDelay << min(try, 4)
		time.Sleep(delay/2 + rand.N(delay)) //nolint:gosec // jitter
	}
}

// once performs the group once.
func (s *session) once(t *tx, group []*write) error {
	s.ctx, s.cancel = context.WithTimeout(context.Background(), transactionTime)
	defer s.cancel()
	if t.conn == nil {
		conn, err := s.db.Conn(s.ctx)
		if err != nil {
			return &lostError{err}
		}
		if err := conn.QueryRowContext(s.ctx, `SELECT `+sinceWhen).Scan(&s.since); err != nil {
			_ = conn.Close()
			return err
		}
		t.conn = conn
	}
	s.lazy = true
	for _, one := range group {
		s.lazy = s.lazy && one.deferSync
	}
	clear(t.ends)
	err := t.transact(group)
	if isLost(err) {
		_ = t.conn.Close() // it is broken
		t.conn = nil
	}
	return err
}

// begin begins a transaction for a group, whose writes are of one org.
func (s *session) begin(t *tx, group []*write) error {
	s.org, s.failed, t.raised, t.made = group[0].org, nil, nil, 0
	if _, err := t.exec(`BEGIN; ` + s.options.Begin); err != nil {
		return err
	}
	text := `SELECT CAST(pg_advisory_xact_lock(?) AS text), CAST(pg_current_xact_id() AS text), pg_backend_pid()`
	if s.lazy {
		text += `, set_config('synchronous_commit', 'off', true)`
	} else {
		text += `, ''`
	}
	var ignored string
	err := t.queryRow(text, []any{s.lockOf(s.org)}, &ignored, &s.xid, &s.pid, &ignored)
	if err != nil {
		return t.rollback(err)
	}
	return nil
}

// lockOf returns the key of an org's lock. Two orgs with the same one only wait for each other.
func (s *session) lockOf(orgID string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s.options.Name+"\x00"+orgID) // never fails
	return int64(h.Sum64())
}

// own takes the lock of another org as well. The receiver may be nil.
func (s *session) own(t *tx, orgID string) error {
	if s == nil || orgID == s.org {
		return nil
	}
	var ignored string
	return t.queryRow(`SELECT CAST(pg_advisory_xact_lock(?) AS text)`, []any{s.lockOf(orgID)}, &ignored)
}

// commit commits the transaction. If the answer is lost, it looks up whether it was made.
func (s *session) commit(t *tx) error {
	if s.failed != nil { // a COMMIT would succeed
		return fmt.Errorf("the error of a statement was passed over: %w", s.failed)
	}
	_, err := t.exec(`COMMIT`)
	if err != nil && (isLost(err) || stateOf(err) == "") { // otherwise the server has answered
		err = s.lookUp(err)
	}
	if err == nil && t.made > 0 && s.options.Changed != nil {
		s.options.Changed(t.made)
	}
	return err
}

// lookUp returns nil if the transaction was committed, lost if it was not, and an error that wraps errUnknown if neither can be said.
// A server that has crashed, or has replaced another one, gives numbers of transactions that were lost to others: what it says of an
// older one holds only if that one was not committed.
func (s *session) lookUp(lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), unknownTime)
	defer cancel()
	for began := time.Now(); ; {
		var status sql.NullString
		var since string
		err := s.read.QueryRowContext(ctx, `SELECT pg_xact_status(CAST(CAST(? AS varchar) AS xid8)), `+sinceWhen, s.xid).Scan(&status, &since)
		switch same := since == s.since; {
		case err == nil && status.String == "committed" && same:
			return nil
		case err == nil && status.String == "in progress" && !same:
			return &lostError{lost}
		case err == nil && status.String == "aborted", stateOf(err) == "22023": // never begun: lost with a server that another one has replaced
			return &lostError{lost}
		case err == nil && status.String != "in progress":
			return fmt.Errorf("%w: %w", errUnknown, lost)
		case err == nil && time.Since(began) > statusTime:
			_, _ = s.read.ExecContext(ctx, `SELECT pg_terminate_backend(?)`, s.pid) // its transaction is rolled back
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errUnknown, lost)
		case <-time.After(statusDelay):
		}
	}
}

// repeats reports whether a transaction that failed with err is performed again as a whole. The receiver may be nil.
func (s *session) repeats(err error) bool {
	if s == nil || err == nil {
		return false
	}
	switch stateOf(err) {
	case "40001", "40P01", "55P03": // another one was preferred, or has a lock
		return true
	}
	return isLost(err)
}

// saw notes that a statement has failed, and returns err. The receiver may be nil.
func (s *session) saw(err error) error {
	if s != nil && err != nil && s.failed == nil && stateOf(err) != "" {
		s.failed = err
	}
	return err
}

// rolledBack says that all since a savepoint is undone. The receiver may be nil.
func (s *session) rolledBack() {
	if s != nil {
		s.failed = nil
	}
}

// lostError is an error of a connection that is lost.
type lostError struct{ err error }

func (e *lostError) Error() string {
	return "the connection to the database was lost: " + e.err.Error()
}
func (e *lostError) Unwrap() error { return e.err }

// isLost reports whether the connection to a server is lost, or the server refuses writes because it is not the first one any more.
func isLost(err error) bool {
	if err == nil || errors.Is(err, errUnknown) {
		return false
	}
	if errors.As(err, new(*lostError)) {
		return true
	}
	switch state := stateOf(err); {
	case state == "25006", state == "25P03", state == "53300", len(state) == 5 && (state[:2] == "08" || state[:3] == "57P"):
		return true
	case state != "":
		return false
	}
	if errors.As(err, new(ofConn)) {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(net.Error))
}

// ofConn is an error of the connection, and not of the server, of the driver of servers.
type ofConn interface {
	error
	SafeToRetry() bool
}

// stateOf returns the SQLSTATE of a server's error; "" = it is none.
func stateOf(err error) string {
	var e interface {
		error
		SQLState() string
	}
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// direct is a statement that the driver prepares when it is used first on a connection.
type direct struct {
	conn *sql.Conn
	text string
}

func (d direct) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return d.conn.ExecContext(ctx, d.text, args...)
}

func (d direct) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return d.conn.QueryContext(ctx, d.text, args...)
}

func (d direct) QueryRowContext(ctx context.Context, args ...any) *sql.Row {
	return d.conn.QueryRowContext(ctx, d.text, args...)
}
