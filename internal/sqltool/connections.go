package sqltool

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// How many connections there are at most, how many of them are processes that read a file of SQLite, and how long one
// without a call is kept.
const (
	maxPerDatabase    = 4
	maxPerOrg         = 8
	maxChildrenPerOrg = 4
	maxOfProcess      = 64
	maxChildren       = 8
	idleTime          = time.Minute
)

// ConnectionOptions are what connections need. Dial and OperatorDial are required.
type ConnectionOptions struct {
	// Dial connects to addresses that an org has named: the outbound policy applies.
	Dial Dial
	// OperatorDial connects to addresses that the operator has named in the configuration file.
	OperatorDial Dial

	// Own reports whether the gateway itself keeps its data in the file of SQLite: it is never opened. Nil = no file is.
	Own func(path string) bool

	// Program starts this program as a child process, with [Command] after its words. Nil = no query on a file of SQLite is
	// executed.
	Program []string

	IdleTime time.Duration // after which a connection without a call is closed; 0 = 1 minute

	Log *slog.Logger // nil = discard
}

// Connections are the connections of the process to the databases of orgs. Create one per process. It is safe for
// concurrent use.
type Connections struct {
	o        ConnectionOptions
	all      *semaphore.Weighted
	children *semaphore.Weighted

	mu     sync.Mutex
	orgs   map[string]*connectionsOfOrg
	closed bool
}

// connectionsOfOrg are those of an org, as long as it has calls or connections.
type connectionsOfOrg struct {
	calls     int // that have, or wait for, a connection
	slots     *semaphore.Weighted
	children  *semaphore.Weighted
	databases map[[sha256.Size]byte]*connectionsOfDatabase
}

type connectionsOfDatabase struct {
	calls int
	slots *semaphore.Weighted
	idle  []*idleConn
}

type idleConn struct {
	conn  *pgconn.PgConn
	timer *time.Timer // closes it
}

// NewConnections returns connections, of which there are none yet.
func NewConnections(o ConnectionOptions) *Connections {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.IdleTime <= 0 {
		o.IdleTime = idleTime
	}
	return &Connections{o: o, all: semaphore.NewWeighted(maxOfProcess), children: semaphore.NewWeighted(maxChildren), orgs: map[string]*connectionsOfOrg{}}
}

// Close closes the connections without a call. Those of calls are closed when the calls end.
func (c *Connections) Close() {
	c.mu.Lock()
	c.closed = true
	var idle []*idleConn
	for _, o := range c.orgs {
		for _, d := range o.databases {
			idle, d.idle = append(idle, d.idle...), nil
		}
	}
	c.mu.Unlock()
	for _, i := range idle {
		i.timer.Stop()
		closeConn(i.conn)
	}
}

var errBusy = errors.New("all connections to the database are in use; try again later")

// slot waits until the org may have one more connection to the database, which child says is a process. The function
// gives it back.
func (c *Connections) slot(ctx context.Context, orgID string, key [sha256.Size]byte, child bool) (func(), error) {
	c.mu.Lock()
	o := c.orgs[orgID]
	if o == nil {
		o = &connectionsOfOrg{
			slots: semaphore.NewWeighted(maxPerOrg), children: semaphore.NewWeighted(maxChildrenPerOrg), databases: map[[sha256.Size]byte]*connectionsOfDatabase{},
		}
		c.orgs[orgID] = o
	}
	d := o.databases[key]
	if d == nil {
		d = &connectionsOfDatabase{slots: semaphore.NewWeighted(maxPerDatabase)}
		o.databases[key] = d
	}
	o.calls, d.calls = o.calls+1, d.calls+1
	c.mu.Unlock()
	var taken []*semaphore.Weighted
	end := func() {
		for _, s := range taken {
			s.Release(1)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		o.calls, d.calls = o.calls-1, d.calls-1
		c.forget(orgID, key)
	}
	slots := []*semaphore.Weighted{d.slots, o.slots, c.all}
	if child {
		slots = []*semaphore.Weighted{d.slots, o.slots, o.children, c.all, c.children}
	}
	for _, s := range slots {
		if s.Acquire(ctx, 1) != nil {
			end()
			return nil, errBusy
		}
		taken = append(taken, s)
	}
	return end, nil
}

// forget removes what has neither calls nor connections. It is called with mu held.
func (c *Connections) forget(orgID string, key [sha256.Size]byte) {
	o := c.orgs[orgID]
	if o == nil {
		return
	}
	if d := o.databases[key]; d != nil && d.calls == 0 && len(d.idle) == 0 {
		delete(o.databases, key)
	}
	if o.calls == 0 && len(o.databases) == 0 {
		delete(c.orgs, orgID)
	}
}

// take returns a connection that another call has left, or nil.
func (c *Connections) take(orgID string, key [sha256.Size]byte) *pgconn.PgConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.orgs[orgID].databases[key] // the caller has a slot
	for len(d.idle) > 0 {
		last := d.idle[len(d.idle)-1]
		d.idle = d.idle[:len(d.idle)-1]
		if last.timer.Stop() {
			return last.conn
		}
	}
	return nil
}

// keep keeps the connection for another call.
func (c *Connections) keep(orgID string, key [sha256.Size]byte, conn *pgconn.PgConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		closeConn(conn)
		return
	}
	d := c.orgs[orgID].databases[key] // the caller has a slot
	one := &idleConn{conn: conn}
	one.timer = time.AfterFunc(c.o.IdleTime, func() { c.expire(orgID, key, one) })
	d.idle = append(d.idle, one)
}

// expire closes a connection that was idle for too long.
func (c *Connections) expire(orgID string, key [sha256.Size]byte, one *idleConn) {
	c.mu.Lock()
	if o := c.orgs[orgID]; o != nil && o.databases[key] != nil {
		d := o.databases[key]
		for i, other := range d.idle {
			if other == one {
				d.idle = append(d.idle[:i], d.idle[i+1:]...)
				break
			}
		}
		c.forget(orgID, key)
	}
	c.mu.Unlock()
	closeConn(one.conn)
}

// place is where a database is, and who has said so.
type place struct {
	org.DatabaseURL
	operator bool // the configuration file
	write    bool
}

func (p place) key() [sha256.Size]byte {
	return sha256.Sum256([]byte(fmt.Sprintf("%q %q %d %q %q %q %q %t %t", p.Kind, p.Host, p.Port, p.User, p.Password.Reveal(), p.Database, p.TLS, p.operator, p.write)))
}

// withPostgres calls f with a connection, and takes back afterwards what f has changed in its session. The error of
// connecting is a *connectError.
func (c *Connections) withPostgres(ctx context.Context, orgID string, p place, f func(*pgconn.PgConn) error) error {
	key := p.key()
	end, err := c.slot(ctx, orgID, key, false)
	if err != nil {
		return &connectError{err}
	}
	defer end()
	dial := c.o.Dial
	if p.operator {
		dial = c.o.OperatorDial
	}
	conn := c.take(orgID, key)
	if conn != nil && checkIdle(ctx, conn, p.User) != nil {
		closeConn(conn)
		conn = nil
	}
	if conn == nil {
		if conn, err = connectPostgres(ctx, p.DatabaseURL, dial); err != nil {
			return &connectError{err}
		}
	}
	err = f(conn)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if conn.IsClosed() || reset(clean, conn) != nil {
		closeConn(conn)
		return err
	}
	c.keep(orgID, key, conn)
	return err
}

// checkIdle checks whether a connection still works, and whether its role has not become dangerous.
func checkIdle(ctx context.Context, conn *pgconn.PgConn, user string) error {
	return checkRole(ctx, conn, user)
}

// connectError says that nothing was sent of a statement.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }

func (e *connectError) Unwrap() error { return e.err }
