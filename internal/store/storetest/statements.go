package storetest

import (
	"context"
	"database/sql/driver"
	"slices"
	"sync"
)

// Statements records the SQL statements that are executed with a marked context. The
// connector of the store must be wrapped by [RecordStatements]. It is safe for
// concurrent use.
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

func record(ctx context.Context, sql string) {
	if s, ok := ctx.Value(statementsKey{}).(*Statements); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sql = append(s.sql, sql)
	}
}

// RecordStatements wraps the connector of a store. The driver must implement all of
// recordedConn and recordedStmt: otherwise database/sql would use other methods, whose
// statements are not recorded.
func RecordStatements(c driver.Connector) driver.Connector { return recordingConnector{c} }

type recordingConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return recordingConn{conn.(recordedConn)}, nil
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

type recordingConn struct{ recordedConn }

// ExecContext implements driver.ExecerContext.
func (c recordingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	record(ctx, query)
	return c.recordedConn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	record(ctx, query)
	return c.recordedConn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c recordingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.recordedConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return recordingStmt{s.(recordedStmt), query}, nil
}

// recordedStmt are the interfaces of a prepared statement that database/sql uses.
type recordedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type recordingStmt struct {
	recordedStmt
	sql string
}

// ExecContext implements driver.StmtExecContext.
func (s recordingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	record(ctx, s.sql)
	return s.recordedStmt.ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s recordingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	record(ctx, s.sql)
	return s.recordedStmt.QueryContext(ctx, args)
}
