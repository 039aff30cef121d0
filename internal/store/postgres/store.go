package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

const (
	// startTime is how long Open waits for a server that cannot be reached.
	startTime = time.Minute
)

// Store is the store of an installation. Several processes may have one.
type Store struct {
	*database.Store
	Schema string // of the installation
	Bell   *Bell

	beats *sql.DB // a connection for beats alone
	stop  context.CancelFunc
	tasks sync.WaitGroup
	clock *serverClock
	made  atomic.Int64 // the epoch of the last change of this process
}

// Open connects to the server, brings the schema up to date as o.Migrate says, and returns the store. A server that cannot be
// reached is waited for, for a minute. Of s, Log, Now and Caps count. Close the store. The error wraps [ErrCopying] while the
// installation is copied.
func Open(ctx context.Context, o Options, s database.ServerOptions) (*Store, error) {
	connector, err := o.Connector()
	if err != nil {
		return nil, err
	}
	found, err := migrateWhenThere(ctx, o)
	if err != nil {
		return nil, err
	}
	writing := max(2, o.PoolSize()/2)
	translated := database.Translated(connector)
	db, writers, beats := pool(translated, max(2, o.PoolSize()-writing)), pool(translated, writing), pool(connector, 1)
	out := &Store{Schema: found.Schema, beats: beats, clock: &serverClock{steady: clock.NewSteady(clock.Wall())}}
	if err := out.clock.set(ctx, beats); err != nil {
		return nil, errors.Join(fmt.Errorf("the clock of the database: %w", err), db.Close(), writers.Close(), beats.Close())
	}
	if err := CheckCopying(ctx, beats); err != nil {
		return nil, errors.Join(err, db.Close(), writers.Close(), beats.Close())
	}
	out.Bell = NewBell(o, found.Schema, db)
	s.Name, s.Begin, s.LeaseNow, s.Writers, s.Writing = found.Schema, o.SetLocal(), out.clock.Now, writers, writing
	s.Appended = func(orgID, runID string) { out.Bell.Ring(Key{Kind: RingRun, Org: orgID, ID: runID}) }
	s.Changed = func(epoch int64) {
		for was := out.made.Load(); was < epoch && !out.made.CompareAndSwap(was, epoch); was = out.made.Load() {
		}
		out.Bell.Ring(Key{Kind: RingSettings})
	}
	out.Store = database.OpenServer(db, s)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	out.stop = stop
	out.tasks.Go(func() { (&waits{log: o.log()}).watch(life, db) })
	return out, nil
}

// pool returns connections, of which as many are kept as there may be.
func pool(c driver.Connector, size int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// Read returns what reads the store of an installation, whose schema must be that of this build. Close it.
func Read(ctx context.Context, o Options) (*database.Reader, error) {
	connector, err := o.Connector()
	if err != nil {
		return nil, err
	}
	o.Migrate = MigrateNever
	if _, err := Migrate(ctx, o); err != nil {
		return nil, err
	}
	return database.ReadServer(pool(database.Translated(connector), 2)), nil
}

// migrateWhenThere is Migrate, which waits for a server that cannot be reached.
func migrateWhenThere(ctx context.Context, o Options) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for said := false; ; {
		v, err := Migrate(ctx, o)
		if class := Classify(err); err == nil || class != Lost && class != Unreachable {
			return v, err
		}
		if !said {
			said = true
			o.log().Warn("the database cannot be reached: the gateway waits for it before it starts", "for", startTime, "error", err)
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(time.Second):
		}
	}
}

// Close closes the store, the bell and the connections.
func (s *Store) Close() error {
	s.stop()
	s.tasks.Wait()
	err := s.Store.Close()
	s.Bell.Close()
	return errors.Join(err, s.beats.Close())
}

// serverClock is the clock of the server as this process knows it: a clock that never jumps, and by how much the server is ahead of it.
type serverClock struct {
	steady clock.Steady
	ahead  atomic.Int64 // nanoseconds
}

// Now returns the time of the server, about.
func (c *serverClock) Now() time.Time { return c.steady.Now().Add(time.Duration(c.ahead.Load())) }

// set reads the clock of the server.
func (c *serverClock) set(ctx context.Context, db *sql.DB) error {
	before := c.steady.Now()
	var now int64
	if err := db.QueryRowContext(ctx, `SELECT `+nowMillis).Scan(&now); err != nil {
		return err
	}
	c.note(before, now)
	return nil
}

// note notes what the server has said between before and now.
func (c *serverClock) note(before time.Time, said int64) {
	between := before.Add(c.steady.Now().Sub(before) / 2)
	c.ahead.Store(int64(time.UnixMilli(said).Sub(between)))
}
