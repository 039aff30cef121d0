package sqlite

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

// ErrDamaged says that SQLite has found the file damaged. What is damaged cannot
// be read, and nothing is written any more: it could make the damage worse.
var ErrDamaged = errors.New("the database is damaged")

// checkTimeout bounds the search for what is damaged.
const checkTimeout = 10 * time.Minute

// damaged reports whether err says that the file is not what SQLite has written.
func damaged(err error) bool {
	var e interface {
		error
		Code() int
	}
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

// damage looks at every error of the store. At the first one that says that the
// file is damaged, it ends all writing and finds out which tables are concerned.
type damage struct {
	db     *sql.DB
	refuse func(error)
	log    *slog.Logger

	cancel context.CancelFunc
	search sync.WaitGroup

	mu     sync.Mutex
	closed bool
	found  error // wraps ErrDamaged; nil = there is no damage
}

// see may be called with any error, and by a nil receiver.
func (d *damage) see(err error) {
	if d == nil || !damaged(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil || d.closed {
		return
	}
	d.found = ErrDamaged
	d.refuse(fmt.Errorf("%w: %w", ErrDamaged, err))
	d.log.Error("store: the database is damaged; it takes no more writes, and its tables are being checked", "error", err)
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	d.cancel = cancel
	d.search.Go(func() { d.name(ctx) })
}

// name says which tables are damaged.
func (d *damage) name(ctx context.Context) {
	tables, said := check(ctx, d.db)
	if ctx.Err() != nil {
		return
	}
	names := strings.Join(tables, ", ")
	if names == "" {
		names = "not found again by a check of each table"
	}
	d.log.Error("store: the database is damaged: stop the gateway and restore a backup", "tables", names, "findings", strings.Join(said, "; "))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = fmt.Errorf("%w (%s)", ErrDamaged, names)
}

// error returns what is damaged, or nil.
func (d *damage) error() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}

func (d *damage) close() {
	d.mu.Lock()
	d.closed = true
	if d.cancel != nil {
		d.cancel()
	}
	d.mu.Unlock()
	d.search.Wait()
}

// check returns the tables that are damaged, and for each the first thing that
// SQLite says of it.
func check(ctx context.Context, db *sql.DB) (tables, said []string) {
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

// namedDamage returns err, and what is damaged if it says that a file is which
// cannot be opened as a store. It wraps [ErrDamaged] then.
func namedDamage(ctx context.Context, path string, err error) error {
	if !damaged(err) {
		return err
	}
	db, failed := connect(path, reading())
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	tables, _ := check(ctx, db)
	return fmt.Errorf("%w (%s): restore a backup: %w", ErrDamaged, strings.Join(tables, ", "), err)
}
