package database

import (
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// ServerOptions configure a [Store] on a PostgreSQL server.
type ServerOptions struct {
	// Writers are the connections that write, apart from those that read, so that neither waits for the other. The writes of one org
	// are performed on one at a time. Nil = those that read. Close closes it.
	Writers *sql.DB

	// Writing is how many they are at most. 0 = 8.
	Writing int

	// Name is that of the installation in the database, such as its schema. The locks of orgs are made of it.
	Name string

	Log *slog.Logger     // nil = discard
	Now func() time.Time // wall clock, for the expiry of keys and conversations; nil = clock.Wall

	// LeaseNow is the clock of leases: that of the server, so that all processes of the installation have the same. Required.
	LeaseNow func() time.Time

	// Begin are statements with which each transaction begins; "" = none.
	Begin string

	// Appended is called when a batch of a run is stored. It must not wait. Nil = it is not called.
	Appended func(orgID, runID string)

	// Changed is called when a change of what an org has is stored, before the change is answered, with the epoch that it has. It must
	// not wait. Nil = it is not called.
	Changed func(epoch int64)

	// Caps apply to every org until SetCaps replaces them; the zero value is no limit.
	Caps org.Caps
}

// OpenServer returns a store on the server of db, which is for reading. Its connectors are those of [Translated], and the schema is that of
// this build. Several processes may have one. Close closes db.
func OpenServer(db *sql.DB, o ServerOptions) *Store {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.Writers == nil {
		o.Writers = db
	}
	if o.Writing == 0 {
		o.Writing = 8
	}
	w := &writer{
		db: o.Writers, log: o.Log, lanes: newLanes(), appended: o.Appended,
		queue: make(chan *write), slots: make(chan struct{}, maxQueue), ended: make(chan struct{}),
	}
	w.caps.Store(&o.Caps)
	var workers sync.WaitGroup
	for range o.Writing {
		workers.Go(func() {
			t := newTx(nil, o.Log)
			t.remote = &session{db: o.Writers, read: db, options: &o}
			w.lanes.run(w, t)
			if t.conn != nil {
				_ = t.conn.Close() // it returns to the pool
			}
		})
	}
	go func() {
		defer close(w.ended)
		workers.Wait()
	}()
	s := &Store{writer: w, recorder: &recorder{w: w}, log: o.Log, now: o.Now, leaseNow: o.LeaseNow}
	s.db, s.server = db, true
	return s
}

// ReadServer returns what reads the store on the server of db, as OpenServer does.
func ReadServer(db *sql.DB) *Reader { return &Reader{db: db, server: true} }

// onServer reports whether the store is on a server, where other processes write, too.
func (s *Store) onServer() bool { return s.writer.lanes != nil }

// DB returns the pool of connections, for what is beside the ports of a store: replicas, files and checks.
func (r *Reader) DB() *sql.DB { return r.db }
