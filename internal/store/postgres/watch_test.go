package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// watcher sees the statements that stores execute, as the server gets them.
type watcher struct {
	mu    sync.Mutex
	seen  []string       // in their order, until take; nil = they are not kept
	args  map[string]int // the number of arguments, by statement
	codes map[string]int // how often the server has answered with an error, by its code
}

func (w *watcher) note(text string, args int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen != nil {
		w.seen = append(w.seen, text)
	}
	if w.args == nil {
		w.args, w.codes = map[string]int{}, map[string]int{}
	}
	w.args[text] = args
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		w.codes[e.Code]++
	}
}

// take returns what was seen since the last call.
func (w *watcher) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = []string{}
	return seen
}

func (w *watcher) code(code string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.codes[code]
}

type watchedConnector struct {
	driver.Connector
	w *watcher
}

func (c watchedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedConn{inner.(pgxConn), c.w}, nil
}

type pgxConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type watchedConn struct {
	pgxConn
	w *watcher
}

func (c *watchedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.pgxConn.ExecContext(ctx, text, args)
	c.w.note(text, len(args), err)
	return r, err
}

func (c *watchedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.pgxConn.QueryContext(ctx, text, args)
	c.w.note(text, len(args), err)
	return rows, err
}

// watched opens one more store, whose statements the watcher sees.
func (r *replicas) watched(w *watcher, caps org.Caps) *database.Store {
	r.Helper()
	c, err := r.maker.options.Connector()
	r.ok(err)
	return r.openOn(watchedConnector{c, w}, caps)
}

// openOn opens one more store on a connector.
func (r *replicas) openOn(c driver.Connector, caps org.Caps) *database.Store {
	s := database.OpenServer(sql.OpenDB(database.Translated(c)), database.ServerOptions{
		Name: r.maker.options.Schema, Log: slog.New(slog.NewTextHandler(r.Output(), nil)), Now: r.now, LeaseNow: r.leaseNow, Caps: caps,
	})
	r.Cleanup(func() { _ = s.Close() })
	return s
}
