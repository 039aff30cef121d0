package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Options say which file a Store keeps and how.
type Options struct {
	// Path is the file. It is made, readable by its owner only, if it is
	// missing; so is its directory. Required.
	Path string

	Log *slog.Logger     // nil = discard
	Now func() time.Time // nil = time.Now

	// Fatal is called once, when the disk has not confirmed a write: every
	// write from then on is refused with an error that wraps [ErrPoisoned]. It
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
	now      func() time.Time
	turn     string // the org that was given a lease last; only the writer's goroutine looks at it
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
		o.Now = time.Now
	}
	s, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", o.Path, err)
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
	s := &Store{lock: lock, now: o.Now}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	if err := s.endLeases(ctx); err != nil {
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
	s.writer = newWriter(db, conn, o)
	s.recorder = &recorder{w: s.writer}
	return nil
}

// Waiting returns how many writes wait, with those of the group that is being
// written.
func (s *Store) Waiting() int { return len(s.writer.room) }

// Close writes what was appended and closes the file. Writes that come later
// are refused with an error that wraps [ErrClosed]. Close may be called once.
func (s *Store) Close() error {
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
