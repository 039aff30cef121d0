package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// ErrDamaged reports that SQLite found the file damaged. The damaged part cannot be
// read. The store refuses all further writes, because they could add to the damage.
var ErrDamaged = errors.New("the database is damaged")

// checkTimeout bounds the check for damaged tables.
const checkTimeout = 10 * time.Minute

// isDamaged reports whether err is SQLITE_CORRUPT or SQLITE_NOTADB.
func isDamaged(err error) bool {
	var e interface {
		error
		Code() int
	}
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

// damage observes the store's errors. At the first one that reports damage, it stops
// all writes and starts a check of which tables are damaged.
type damage struct {
	db         *sql.DB
	stopWrites func(error)
	log        *slog.Logger

	cancel   context.CancelFunc // of the check; nil = none was started
	checking sync.WaitGroup

	mu     sync.Mutex
	closed bool
	found  error // wraps ErrDamaged; nil = no damage is known
}

// observe observes an error, which may be nil. The receiver may be nil.
func (d *damage) observe(err error) {
	if d == nil || err == nil || !isDamaged(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil || d.closed {
		return
	}
	d.found = ErrDamaged
	d.stopWrites(fmt.Errorf("%w: %w", ErrDamaged, err))
	d.log.Error("store: the database is damaged; writes are refused, and the tables are being checked", "error", err)
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	d.cancel = cancel
	d.checking.Go(func() { d.nameTables(ctx) })
}

// nameTables checks every table and adds the names of the damaged ones to the error.
func (d *damage) nameTables(ctx context.Context) {
	tables, said := damagedTables(ctx, d.db)
	if ctx.Err() != nil {
		return
	}
	names := strings.Join(tables, ", ")
	if names == "" {
		names = "a check of each table found no damage"
	}
	d.log.Error("store: the database is damaged; stop the gateway and restore a backup", "tables", names, "findings", strings.Join(said, "; "))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = fmt.Errorf("%w (%s)", ErrDamaged, names)
}

// error returns an error that wraps ErrDamaged, or nil.
func (d *damage) error() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}

// close cancels the check and waits for it.
func (d *damage) close() {
	d.mu.Lock()
	d.closed = true
	if d.cancel != nil {
		d.cancel()
	}
	d.mu.Unlock()
	d.checking.Wait()
}

// damagedTables returns the damaged tables, and for each the first finding of SQLite's
// integrity check.
func damagedTables(ctx context.Context, db *sql.DB) (tables, said []string) {
	text := func(row scanner) (string, error) {
		var s string
		err := row.Scan(&s)
		return s, err
	}
	all, err := list(ctx, db, text, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		return []string{"the schema"}, []string{err.Error()}
	}
	for _, table := range all {
		findings, err := list(ctx, db, text, fmt.Sprintf(`PRAGMA integrity_check(%q)`, table))
		if err != nil {
			findings = append(findings, err.Error())
		}
		findings = slices.DeleteFunc(findings, func(s string) bool { return s == "ok" })
		if len(findings) > 0 {
			first, _, _ := strings.Cut(strings.TrimPrefix(findings[0], "*** in database main ***\n"), "\n")
			tables, said = append(tables, table), append(said, table+": "+first)
		}
	}
	return tables, said
}

// describeDamage adds the damaged tables to an error from opening the file, if it
// reports damage. The result then wraps [ErrDamaged].
func describeDamage(ctx context.Context, path string, err error) error {
	if !isDamaged(err) {
		return err
	}
	db, failed := connect(path, readSettings())
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	tables, _ := damagedTables(ctx, db)
	return fmt.Errorf("%w (%s): restore a backup: %w", ErrDamaged, strings.Join(tables, ", "), err)
}
