package resource_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"testing"

	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
)

// losing are connections to SQLite whose answers to commits are lost.
type losing struct {
	of  driver.Driver
	dsn string
}

var errLost = errors.New("connection reset by 10.0.0.1")

func (l losing) Driver() driver.Driver { return l.of }

func (l losing) Connect(context.Context) (driver.Conn, error) {
	c, err := l.of.Open(l.dsn)
	return losingConn{c}, err
}

type losingConn struct{ driver.Conn }

func (c losingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c losingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c losingConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return losingTx{tx}, err
}

type losingTx struct{ driver.Tx }

func (t losingTx) Commit() error { return errors.Join(t.Tx.Commit(), errLost) }

// If the answer to a commit is lost, nobody knows whether the call was carried out: it has no result, and its record
// says so. The model does not read why.
func TestACommitWithoutAnAnswer(t *testing.T) {
	whole := products(t)
	var seq, name, file string
	if err := whole.QueryRowContext(t.Context(), "PRAGMA database_list").Scan(&seq, &name, &file); err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(losing{whole.Driver(), file})
	defer db.Close()
	l := &log{}
	r := table(t, db, resource.TableOptions{Verbs: all()}).Only(resource.Update).Audit(l)
	result, err := r.Tools(anybody())[0].Call(t.Context(), tool.Call{Caller: anybody(), Arguments: json.RawMessage(`{"id":1,"set":{"cents":7}}`)})
	if !errors.Is(err, errLost) || errors.Is(err, tool.ErrNotSent) || err.Error() != "the answer of the database was lost" || result.Parts != nil {
		t.Error(result, err)
	}
	if len(l.records) != 2 || l.records[1].Status != resource.Unknown {
		t.Errorf("%+v", l.records)
	}
	var cents int
	if err := whole.QueryRowContext(t.Context(), "SELECT cents FROM products WHERE id = 1").Scan(&cents); err != nil || cents != 7 {
		t.Error(cents, err)
	}
}
