package storecopy

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// stagingName is the directory in which a file is until it is complete, in the data directory, and verifiedName the file in it that
// says that nothing is missing: it only has to be moved. It has the name of the source.
const (
	stagingName  = "copying"
	verifiedName = "verified"
)

// side is a database of the copy. It is used by one goroutine.
type side struct {
	name      string // for people; also what an unfinished copy says of its source
	server    bool
	conn      *sql.Conn // on a server it also has the advisory lock
	connector driver.Connector
	asTarget  bool
	closers   []func() error

	// Of a file.
	directory *Directory
	file      string
	staging   string // of a target: a directory
	verified  bool   // of a target: it only has to be moved

	// Of a server.
	schema string
	marked bool // this copy has made the row Copying
}

func (s *side) close() error {
	var err error
	for i := len(s.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closers[i]())
	}
	s.closers = nil
	return err
}

// unmarkTime is how long a server may take to forget a copy.
const unmarkTime = 10 * time.Second

// release ends the use of a side. A source, and a target in which nothing was begun, can be used again, also after the end of ctx.
func (s *side) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmarkTime)
	defer cancel()
	var err error
	if s.marked {
		err = s.unmark(ctx)
	}
	return errors.Join(err, s.close())
}

// unmark removes the row Copying, unless there is an unfinished copy in the schema. The connection may be one that was interrupted,
// so that another one does it.
func (s *side) unmark(ctx context.Context) error {
	db := sql.OpenDB(s.connector)
	_, err := db.ExecContext(ctx, `DELETE FROM installation WHERE name = $1
		AND NOT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = '`+stateTable+`')`, postgres.Copying)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("%s: the row of the copy is left in the table installation, and no gateway starts there: repeat the copy, or delete "+
			"the row '%s': %w", s.name, postgres.Copying, err)
	}
	return nil
}

func (c *copying) openSource(ctx context.Context) (*side, error) {
	if c.o.From == nil {
		return c.openServer(ctx, false)
	}
	s, err := lockDirectory(c.o.From)
	if err != nil {
		return nil, err
	}
	s.file = filepath.Join(c.o.From.Path, c.o.From.Database)
	if _, err := os.Stat(s.file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s has nothing to copy: %w", s.name, err), s.close())
	}
	if err := s.openFile(ctx, c); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// lockDirectory keeps gateways out of a data directory.
func lockDirectory(d *Directory) (*side, error) {
	path, err := filepath.Abs(d.Path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	lock, err := database.Lock(filepath.Join(path, d.Database))
	if err != nil {
		return nil, fmt.Errorf("the data directory %s: %w: stop the gateway first", path, err)
	}
	return &side{name: "the data directory " + path, directory: d, closers: []func() error{lock.Close}}, nil
}

// openFile opens and settles the file.
func (s *side) openFile(ctx context.Context, c *copying) error {
	db, err := database.OpenAlone(ctx, s.file, c.o.Log)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, db.Close)
	if !s.asTarget {
		if err := database.Settle(ctx, db); err != nil {
			return fmt.Errorf("settle %s: %w", s.name, err)
		}
	}
	if s.conn, err = db.Conn(ctx); err != nil {
		return err
	}
	s.closers = append(s.closers, s.conn.Close)
	return nil
}

func (c *copying) openTarget(ctx context.Context) (*side, error) {
	if c.o.To == nil {
		return c.openServer(ctx, true)
	}
	d := c.o.To
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, err
	}
	s, err := lockDirectory(d)
	if err != nil {
		return nil, err
	}
	s.asTarget, s.staging = true, filepath.Join(d.Path, stagingName)
	s.file = filepath.Join(s.staging, d.Database)
	if err := c.openStaging(ctx, s); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// openStaging opens the file of a target. One in which nothing was begun is made anew.
func (c *copying) openStaging(ctx context.Context, s *side) error {
	source, err := os.ReadFile(filepath.Join(s.staging, verifiedName))
	if err == nil {
		s.verified = true
		if string(source) != c.source.name {
			return fmt.Errorf("%s has a copy of %s that is not yet in its place: repeat that copy, or name another target", s.name, source)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.directory.wantEmpty(); err != nil {
		return err
	}
	for {
		if err := os.MkdirAll(s.staging, 0o700); err != nil {
			return err
		}
		_, missing := os.Stat(s.file)
		if err := s.openFile(ctx, c); err != nil {
			return err
		}
		begun, err := s.hasTable(ctx, stateTable)
		if err != nil || begun || missing != nil {
			return err
		}
		last := len(s.closers)
		err = errors.Join(s.closers[last-1](), s.closers[last-2](), os.RemoveAll(s.staging)) // all but the lock
		s.closers = s.closers[:last-2]
		if err != nil {
			return err
		}
	}
}

// wantEmpty returns an error unless a copy can be put into the directory.
func (d *Directory) wantEmpty() error {
	for _, name := range append([]string{d.Database, d.Database + "-wal", d.Database + "-journal", d.Files}, d.Others...) {
		_, err := os.Lstat(filepath.Join(d.Path, name))
		if err == nil {
			if entries, _ := os.ReadDir(filepath.Join(d.Path, name)); name == d.Files && len(entries) == 0 {
				continue
			}
			return fmt.Errorf("the data directory %s is not empty: it holds %s. Move its files away, or name another directory", d.Path, name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// install moves a verified copy to its place, the file of the database last.
func (s *side) install(ctx context.Context) error {
	if _, err := os.Stat(s.file); err == nil {
		if err := s.dropState(ctx); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(s.staging)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != verifiedName && !strings.HasPrefix(name, s.directory.Database) {
			if name == s.directory.Files {
				_ = os.Remove(filepath.Join(s.directory.Path, name)) // an empty one
			}
			if err := os.Rename(filepath.Join(s.staging, name), filepath.Join(s.directory.Path, name)); err != nil {
				return err
			}
		}
	}
	if err := syncDirectory(s.directory.Path); err != nil {
		return err
	}
	err = os.Rename(s.file, filepath.Join(s.directory.Path, s.directory.Database))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // an earlier copy has moved it
		return err
	}
	if err := syncDirectory(s.directory.Path); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(s.staging), syncDirectory(s.directory.Path))
}

// dropState makes the file one that has never been a target, and closes it.
func (s *side) dropState(ctx context.Context) error {
	db, err := database.OpenAlone(ctx, s.file, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `DROP TABLE IF EXISTS `+stateTable)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if _, err := os.Lstat(s.file + "-wal"); err == nil {
		return errors.New("the database could not be closed")
	}
	return nil
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// writeSynced puts a small file on disk.
func writeSynced(path, text string) error {
	temporary := path + ".tmp"
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// openServer opens a schema and keeps replicas, and other copies, out of it. It is created or migrated first.
func (c *copying) openServer(ctx context.Context, asTarget bool) (*side, error) {
	o := c.o.Server
	o.Log = c.o.Log
	version, err := postgres.Migrate(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &side{server: true, asTarget: asTarget, schema: version.Schema}
	if s.connector, err = o.DirectConnector(); err != nil {
		return nil, err
	}
	db := sql.OpenDB(s.connector)
	s.closers = append(s.closers, db.Close)
	if err := s.takeServer(ctx, db, c); err != nil {
		return nil, errors.Join(err, s.release(ctx))
	}
	return s, nil
}

func (s *side) takeServer(ctx context.Context, db *sql.DB, c *copying) error {
	var err error
	if s.conn, err = db.Conn(ctx); err != nil {
		return err
	}
	s.closers = append(s.closers, s.conn.Close)
	var databaseName string
	if err := s.conn.QueryRowContext(ctx, `SELECT current_database()`).Scan(&databaseName); err != nil {
		return err
	}
	s.name = fmt.Sprintf("the schema %s of the database %s", s.schema, databaseName)
	if err := postgres.LockCopying(ctx, s.conn); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if err := s.mark(ctx, c); err != nil {
		return err
	}
	if err := postgres.CheckStopped(ctx, s.conn); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if s.asTarget {
		return nil
	}
	translated := sql.OpenDB(database.Translated(s.connector))
	return errors.Join(database.Settle(ctx, translated), translated.Close())
}

// mark stores the row that keeps replicas out.
func (s *side) mark(ctx context.Context, c *copying) error {
	begun, err := s.hasTable(ctx, stateTable)
	if err != nil {
		return err
	}
	if begun && !s.asTarget {
		was, err := s.state(ctx, whole)
		return errors.Join(err, fmt.Errorf("%s has an unfinished copy of %s and cannot be copied: repeat that copy first", s.name, was.cursor))
	}
	s.marked = true
	text := "to another place"
	if s.asTarget {
		text = "of " + c.source.name
	}
	_, err = s.conn.ExecContext(ctx, `INSERT INTO installation (name, state) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`,
		postgres.Copying, text)
	return err
}

// complete makes the target one that a gateway starts on.
func (s *side) complete(ctx context.Context) error {
	if s.server {
		return s.within(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `DROP TABLE `+stateTable); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `DELETE FROM installation WHERE name = $1`, postgres.Copying)
			return err
		})
	}
	was, err := s.state(ctx, whole)
	if err != nil {
		return err
	}
	last := len(s.closers)
	err = errors.Join(s.closers[last-1](), s.closers[last-2]()) // the connection and the file; the lock stays
	s.closers = s.closers[:last-2]
	if err == nil {
		err = writeSynced(filepath.Join(s.staging, verifiedName), string(was.cursor))
	}
	if err != nil {
		return err
	}
	return s.install(ctx)
}

// howToGoOn is what an error says after which there is something in the target.
func (s *side) howToGoOn() string {
	return "The copy is not complete, and no gateway starts on it. Repeat the command to go on where it was, or " + s.howToStartOver()
}

func (s *side) howToStartOver() string {
	if s.server {
		return fmt.Sprintf("start over after DROP SCHEMA %s CASCADE", s.schema)
	}
	return "start over after deleting " + s.staging
}

// arg is the n-th parameter of a statement, from 1 on.
func (s *side) arg(n int) string {
	if s.server {
		return "$" + strconv.Itoa(n)
	}
	return "?" + strconv.Itoa(n)
}

// within performs a transaction.
func (s *side) within(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it says that the transaction has ended
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *side) hasTable(ctx context.Context, name string) (found bool, err error) {
	query := `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)`
	if s.server {
		query = `SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1)`
	}
	err = s.conn.QueryRowContext(ctx, query, name).Scan(&found)
	return found, err
}
