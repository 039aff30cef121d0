package storetest

import (
	"context"
	"database/sql/driver"
	"slices"
	"sync"
)

// Statements records SQL statements that a store executes: those with a marked context, if
// the connector is wrapped by [RecordStatements], or all. It is safe for concurrent use.
type Statements struct {
	mu  sync.Mutex
	sql []string
}

type statementsKey struct{}

// Mark returns a context whose statements s records. Statements of a writer's goroutine
// have another context and are not recorded.
func (s *Statements) Mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, statementsKey{}, s)
}

// Take returns the SQL of the recorded statements and forgets them.
func (s *Statements) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sql := slices.Clone(s.sql)
	s.sql = s.sql[:0]
	return sql
}

// RecordStatements wraps the connector of a store. The driver must implement all of
// recordedConn and recordedStmt: otherwise database/sql would use other methods, whose
// statements are not recorded.
func RecordStatements(c driver.Connector) driver.Connector { return recordingConnector{c, nil} }

// RecordAll is [RecordStatements], but s also records the statements whose context is not marked.
func (s *Statements) RecordAll(c driver.Connector) driver.Connector { return recordingConnector{c, s} }

// recorder records the statements of a connection.
type recorder struct {
	unmarked *Statements // of contexts without a mark; nil = they are not recorded
}

func (r recorder) record(ctx context.Context, sql string) {
	s := r.unmarked
	if marked, ok := ctx.Value(statementsKey{}).(*Statements); ok {
		s = marked
	}
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sql = append(s.sql, sql)
	}
}

type recordingConnector struct {
	driver.Connector
	unmarked *Statements
}

// Connect implements driver.Connector.
func (c recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return recordingConn{conn.(recordedConn), recorder{c.unmarked}}, nil
}

// recordedConn are the interfaces of a connection that database/sql uses.
type recordedConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type recordingConn struct {
	recordedConn
	recorder
}

// ExecContext implements driver.ExecerContext.
func (c recordingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.record(ctx, query)
	return c.recordedConn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.record(ctx, query)
	return c.recordedConn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c recordingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.recordedConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return recordingStmt{s.(recordedStmt), c.recorder, query}, nil
}

// recordedStmt are the interfaces of a prepared statement that database/sql uses.
type recordedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type recordingStmt struct {
	recordedStmt
	recorder
	sql string
}

// ExecContext implements driver.StmtExecContext.
func (s recordingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.record(ctx, s.sql)
	return s.recordedStmt.ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s recordingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.record(ctx, s.sql)
	return s.recordedStmt.QueryContext(ctx, args)
}
