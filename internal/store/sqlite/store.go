package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Options say which file a Store keeps and how.
type Options struct {
	// Path is the file. It is made, readable by its owner only, if it is
	// missing; so is its directory. Required.
	Path string

	Log *slog.Logger     // nil = discard
	Now func() time.Time // the wall clock: when keys and handovers expire; nil = clock.Wall

	// LeaseNow is the clock of leases, which must never be set. Nil = a
	// clock.Steady that begins with Now when the store is opened.
	LeaseNow func() time.Time

	// Caps are those of every org; the zero Caps bound nothing.
	Caps org.Caps

	// Fatal is called once, when the disk has not confirmed a write, or a file of
	// the store was deleted or replaced ([ErrReplaced]): every write from then on is refused with an error that wraps [ErrPoisoned]. It
	// should end the process, before anybody is answered; if it returns, it
	// must not have waited for the store. Nil = the store is only closed to
	// writes.
	Fatal func(error)
}

// Store is an org.Store, run.Journal, run.Archive, run.Leases, run.Handovers and
// toolcache.Store on one SQLite file. It is safe for concurrent use.
type Store struct {
	Reader
	writer   *writer
	recorder *recorder
	heads    heads
	lock     *os.File
	files    *files // nil = they are not watched yet
	log      *slog.Logger
	now      func() time.Time // the wall clock
	leaseNow func() time.Time // that of leases
	turn     string           // the org that was given a lease last; only the writer's goroutine looks at it

	forgotten atomic.Int64 // Unix milliseconds of the last report
}

// Open opens the file, brings its schema up to date, starts the writer and ends
// every lease that the file holds: whoever had one is gone. It returns an error
// that wraps [ErrLocked] while another process has the file open, and one that
// wraps [ErrSchema] if the file was made by a later version.
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
		return nil, fmt.Errorf("store %s: %w", o.Path, namedDamage(ctx, o.Path, err))
	}
	return s, nil
}

func open(ctx context.Context, o Options) (*Store, error) {
	if err := makeFile(o.Path); err != nil {
		return nil, err
	}
	lock, err := lockFile(o.Path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{lock: lock, log: o.Log, now: o.Now, leaseNow: o.LeaseNow}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	if err := s.endLeases(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.files, err = watch(o.Path, s.replaced); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start opens the two sides of the file: one connection that writes, and the
// pool that reads.
func (s *Store) start(ctx context.Context, o Options) error {
	db, err := connect(o.Path, writing())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if err := migrate(ctx, db, o.Log); err != nil {
		return errors.Join(err, db.Close())
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if s.db, err = connect(o.Path, reading()); err != nil {
		return errors.Join(err, conn.Close(), db.Close())
	}
	s.db.SetMaxOpenConns(readers)
	s.db.SetMaxIdleConns(readers)
	s.damage = &damage{db: s.db, log: o.Log}
	s.writer = newWriter(db, conn, o)
	s.writer.damage = s.damage
	s.damage.refuse = s.writer.refuse
	s.recorder = &recorder{w: s.writer}
	return nil
}

// replaced ends all writing: it would go into a file that nobody finds.
func (s *Store) replaced(err error) {
	s.writer.log.Error("store: a file of the database is gone, and the store takes no more writes", "error", err)
	_ = s.writer.poison(fmt.Errorf("%w: %w", ErrPoisoned, err))
}

// Damage returns an error that wraps [ErrDamaged], with the names of the tables
// as soon as they are known, once SQLite has found the file damaged; nil before.
func (s *Store) Damage() error { return s.damage.error() }

// Waiting returns how many writes wait, with those of the group that is being
// written.
func (s *Store) Waiting() int { return len(s.writer.room) }

// Close writes what was appended and closes the file. Writes that come later
// are refused with an error that wraps [ErrClosed]. Close may be called once.
func (s *Store) Close() error {
	if s.files != nil {
		s.files.close()
	}
	s.damage.close()
	err := s.Reader.Close()
	_ = s.recorder.flush(context.Background()) // the writer says what it cannot write
	return errors.Join(err, s.writer.close(), s.lock.Close())
}

// makeFile makes the file and its directory, for the owner only: the file holds
// transcripts.
func makeFile(path string) error {
	if path == "" {
		return errors.New("no path")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}
