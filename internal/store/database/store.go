package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Options configure a [Store].
type Options struct {
	// Path is the path of the file. A missing file and its directory are created,
	// accessible to the owner only. Required.
	Path string

	Log *slog.Logger     // nil = discard
	Now func() time.Time // wall clock, for the expiry of keys and conversations; nil = clock.Wall

	// LeaseNow is the clock of leases. It must never jump. Nil uses a clock.Steady
	// that starts at Now when the store is opened.
	LeaseNow func() time.Time

	// Caps apply to every org until SetCaps replaces them; the zero value is no limit.
	Caps org.Caps

	// Fatal is called at most once, with an error that wraps [ErrPoisoned]: the disk
	// did not confirm a write, or a file of the store was deleted or replaced
	// ([ErrReplaced]). All further writes are refused with that error. Fatal should
	// end the process before any caller gets an answer. It must not wait for the
	// store. Nil only refuses the writes.
	Fatal func(error)

	// Connector wraps the connector of all connections, for tests that record the
	// statements; nil = it is not wrapped.
	Connector func(driver.Connector) driver.Connector
}

// Store implements org.Store, agent.Store, journal.Journal, journal.Archive, journal.Leases, journal.LaterDeleter,
// journal.Conversations, journal.Branches, journal.Recorder, journal.Outbox, journal.Webhooks, audit.Log and
// toolcache.Store on one SQLite file. It is safe for concurrent use.
type Store struct {
	Reader
	writer   *writer
	recorder *recorder
	heads    heads
	closing  atomic.Bool // batches are no longer held back
	lock     *os.File
	files    *watchedFiles // nil until Open has started to watch them
	log      *slog.Logger
	now      func() time.Time // wall clock
	leaseNow func() time.Time // clock of leases

	lastOrgMu sync.Mutex // guards lastOrg on a server; on a file the writer's goroutine owns it
	lastOrg   string     // the org that got the last lease

	ownersMu sync.Mutex
	owners   map[string]int64 // until when an owner is alive, by leaseNow, in Unix milliseconds

	inboxes [64]sync.Mutex // of sessions, by a hash of org and id: see lockInbox

	evictedReported atomic.Int64 // when reportEvicted last logged; Unix milliseconds
}

// Open opens the file, migrates its schema, starts the writer and expires all leases,
// whose owners are gone. The error wraps [ErrLocked] if another process has the file
// open, [ErrSchema] if a later version made the file, or a build before the baseline of
// the schema, and [ErrDamaged] if SQLite finds it damaged. A file with [ErrSchema] is not
// changed.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.LeaseNow == nil {
		o.LeaseNow = clock.NewSteady(o.Now()).Now
	}
	s, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", o.Path, describeDamage(ctx, o.Path, describePermission(err)))
	}
	return s, nil
}

func open(ctx context.Context, o Options) (*Store, error) {
	if o.Path == "" {
		return nil, errors.New("the path is empty")
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
	lock, err := lockFile(o.Path + ".lock")
	if err != nil {
		return nil, err
	}
	found, err := checkFile(ctx, o.Path)
	if err == nil {
		err = createFile(o.Path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &Store{lock: lock, log: o.Log, now: o.Now, leaseNow: o.LeaseNow}
	if err := s.start(ctx, o, found); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	if err := s.expireLeases(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.forfeitSlices(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.openOutbox(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.files, err = watch(o.Path, s.onReplaced); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start opens the write connection, migrates the file, which has the schema version found, and opens the pool of
// read connections.
func (s *Store) start(ctx context.Context, o Options, found int64) error {
	db, err := o.connect(writeSettings())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if err := migrate(ctx, db, o.Log, found); err != nil {
		return errors.Join(err, db.Close())
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if s.db, err = o.connect(readSettings()); err != nil {
		return errors.Join(err, conn.Close(), db.Close())
	}
	s.db.SetMaxOpenConns(readers)
	s.db.SetMaxIdleConns(readers)
	s.damage = &damage{db: s.db, log: o.Log}
	s.writer = newWriter(db, conn, o)
	s.writer.damage = s.damage
	s.damage.stopWrites = s.writer.setPoisoned
	s.recorder = &recorder{w: s.writer}
	return nil
}

// onReplaced refuses all further writes: they would go to a file without a name.
func (s *Store) onReplaced(err error) {
	s.writer.log.Error("store: a file of the database was deleted or replaced; writes are refused", "error", err)
	_ = s.writer.poison(fmt.Errorf("%w: %w", ErrPoisoned, err))
}

// Damage returns nil until SQLite finds the file damaged, and then an error that wraps
// [ErrDamaged]. The error names the damaged tables as soon as they are known.
func (s *Store) Damage() error {
	if s.damage == nil {
		return nil
	}
	return s.damage.error()
}

// QueueLength returns the number of writes that wait, including the group that is being
// written.
func (s *Store) QueueLength() int { return len(s.writer.slots) }

// Lag returns how long the oldest write that is not yet on disk has waited; 0 if there is none.
// Slow commits and a growing queue increase it. The time that large writes take counts for
// their orgs only, and so does the time that they wait for their turn.
func (s *Store) Lag(org string) time.Duration { return s.writer.lag(org) }

// Close performs the queued writes and closes the file. Later writes fail with an
// error that wraps [ErrClosed]. Close may be called once.
func (s *Store) Close() error {
	if s.files != nil {
		s.files.close()
	}
	s.closing.Store(true)
	if s.onServer() {
		_ = s.flush(context.Background()) // the writer logs a failure
		return errors.Join(s.writer.close(), s.Reader.Close())
	}
	s.damage.close()
	err := s.Reader.Close()
	_ = s.flush(context.Background()) // the writer logs a failure
	return errors.Join(err, s.writer.close(), s.lock.Close())
}

// SetCaps replaces [Options.Caps] for the writes that are queued from now on. What an org
// has stored already stays, also beyond a lower limit.
func (s *Store) SetCaps(ctx context.Context, caps org.Caps) error {
	s.writer.caps.Store(&caps)
	return nil
}

// flush queues the writes that were held back to be collected.
func (s *Store) flush(ctx context.Context) error {
	return errors.Join(s.heads.flushAll(ctx), s.recorder.flush(ctx))
}

// describePermission adds what to do to an error about permissions.
func describePermission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; the user that runs turnpike must be able to read and write the data directory", err)
	}
	return err
}

// createFile creates the file if it is missing, for the owner only, because it contains transcripts.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}
