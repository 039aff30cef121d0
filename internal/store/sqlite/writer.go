package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The bounds of a group and of what waits for one.
const (
	maxGroup = 100                   // writes
	linger   = 10 * time.Millisecond // how long a group that nobody waits for is open for more
	maxQueue = 1024                  // writes; whoever comes later waits for room
)

// writer owns the connection that writes. Its goroutine ends with close.
type writer struct {
	db     *sql.DB
	tx     tx
	queue  chan *write
	room   chan struct{} // one element for each write in the queue or in a group
	log    *slog.Logger
	fatal  func(error) // may be nil
	damage *damage
	ended  chan struct{}

	front atomic.Pointer[write] // the oldest of the group under way; nil = there is none

	mu       sync.RWMutex
	closed   bool
	poisoned error // every write is refused with it; nil = none is
}

// errBusy says that the queue is full.
var errBusy = errors.New("too many writes are waiting")

// write is one change, stored as a whole or not at all.
type write struct {
	do    func(*tx) error
	waits bool        // somebody waits for done
	lazy  bool        // it must outlive the process at once, and a power failure only when it is as old as laziness
	after *write      // fails with this one; nil = stands alone
	epoch int64       // of an append
	since time.Time   // when it was submitted
	told  func(error) // called once with err, and must not block; nil = nobody is

	done chan struct{} // closed when err is set
	err  error
}

func newWriter(db *sql.DB, conn *sql.Conn, o Options) *writer {
	w := &writer{
		db: db, log: o.Log, fatal: o.Fatal,
		tx:    tx{conn: conn, caps: o.Caps, statements: map[string]*sql.Stmt{}, ends: map[string]end{}},
		queue: make(chan *write, maxQueue),
		room:  make(chan struct{}, maxQueue),
		ended: make(chan struct{}),
	}
	w.tx.commit = w.tx.commitNow
	go w.run()
	return w
}

// submit puts the write into the queue. Writes are performed in the order of
// their submission.
func (w *writer) submit(ctx context.Context, one *write) error {
	one.since = time.Now()
	select {
	case w.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	return w.enqueue(one)
}

// offer is submit for a write that can be done without: it does not wait for
// room.
func (w *writer) offer(one *write) error {
	one.since = time.Now()
	select {
	case w.room <- struct{}{}:
	default:
		return errBusy
	}
	return w.enqueue(one)
}

// enqueue puts the write where there is room for it.
func (w *writer) enqueue(one *write) error {
	one.done = make(chan struct{})
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.refusal(); err != nil {
		<-w.room
		return err
	}
	w.queue <- one // does not block: there is room
	return nil
}

// perform submits the write and waits until it is on disk. If ctx ends before,
// it may be stored or not.
func (w *writer) perform(ctx context.Context, do func(*tx) error) error {
	one := &write{do: do, waits: true}
	if err := w.submit(ctx, one); err != nil {
		return err
	}
	return one.wait(ctx)
}

func (one *write) wait(ctx context.Context) error {
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close performs what is in the queue and closes the file.
func (w *writer) close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	<-w.ended
	return errors.Join(w.tx.close(), w.db.Close())
}

// run performs the writes, group by group, and syncs lazy ones that no later
// group has synced.
func (w *writer) run() {
	defer close(w.ended)
	for {
		select {
		case first, ok := <-w.queue:
			if !ok {
				return
			}
			w.front.Store(first)
			runtime.Gosched() // whom the last commit has answered comes back with more
			w.commit(w.collect(first))
			w.front.Store(nil)
		case <-w.tx.syncDue():
			w.commit(nil)
		}
	}
}

// collect returns the group that begins with first: what is in the queue by
// now, and what else comes as long as nobody waits for any of it.
func (w *writer) collect(first *write) []*write {
	group := []*write{first}
	waits := first.waits
	var late <-chan time.Time
	for len(group) < maxGroup {
		one, ok := w.next(&late, waits)
		if !ok {
			break
		}
		group = append(group, one)
		waits = waits || one.waits
	}
	return group
}

// next returns the next write of a group; false if there is none to wait for.
func (w *writer) next(late *<-chan time.Time, waits bool) (*write, bool) {
	select {
	case one, ok := <-w.queue:
		return one, ok
	default:
	}
	if waits {
		return nil, false
	}
	if *late == nil {
		*late = time.After(linger)
	}
	select {
	case one, ok := <-w.queue:
		return one, ok
	case <-*late:
		return nil, false
	}
}

// refusal returns why there are no more writes. It is called with mu held.
func (w *writer) refusal() error {
	if w.closed {
		return ErrClosed
	}
	return w.poisoned
}

// commit performs the group as one transaction and answers those who wait.
func (w *writer) commit(group []*write) {
	err := w.poison(nil)
	poisoned := err != nil
	if err == nil {
		err = w.transact(group)
		poisoned = errors.Is(err, ErrPoisoned)
	}
	for _, one := range group {
		if one.err == nil || poisoned {
			one.err = err
		}
		w.damage.see(one.err)
		one.do, one.after = nil, nil
		close(one.done)
		<-w.room
		if one.told != nil {
			one.told(one.err)
		}
	}
}

// transact performs the group; after a failure that may have cost what was stored
// before, nothing is performed any more.
func (w *writer) transact(group []*write) error {
	err := w.tx.perform(group)
	if err == nil {
		return nil
	}
	w.log.Error("store: a group of writes failed", "writes", len(group), "error", err)
	if !lost(err) {
		return err
	}
	return w.poison(fmt.Errorf("%w: %w", ErrPoisoned, err))
}

// refuse ends all writing with the error, unless that has happened before.
func (w *writer) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poisoned == nil {
		w.poisoned = err
	}
}

// poison ends all writing with the error, unless that has happened before, and
// returns the error with which writes are refused. With nil it only returns it.
func (w *writer) poison(err error) error {
	w.mu.Lock()
	before := w.poisoned
	if before == nil {
		w.poisoned = err
	}
	w.mu.Unlock()
	if before != nil {
		return before
	}
	if err != nil && w.fatal != nil {
		w.fatal(err)
	}
	return err
}

// tx is the transaction of a group.
type tx struct {
	conn       *sql.Conn
	caps       org.Caps
	statements map[string]*sql.Stmt // by text, of which there are a few
	commit     func() error         // commitNow, or a test's failure
	ends       map[string]end       // of the audit chains that were written to, by org
	lax        bool                 // commits do not wait for the disk
	unsynced   time.Time            // when the oldest lazy write was committed that is not on disk; zero = all are
	retry      time.Time            // no sync before this, after one has failed
}

// perform commits those of the writes that succeed. Its error is that of all.
func (t *tx) perform(group []*write) error {
	err := t.synchronize(t.mayWait(group))
	if err == nil {
		err = t.transact(group)
	}
	if err != nil {
		t.retry = time.Now().Add(laziness)
	}
	return err
}

// transact is the transaction of the group.
func (t *tx) transact(group []*write) error {
	if _, err := t.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	if len(group) == 1 {
		return t.performAlone(group[0])
	}
	for _, one := range group {
		if err := t.performOne(one); err != nil {
			return t.abandon(err)
		}
	}
	if err := t.end(); err != nil {
		return t.abandon(err)
	}
	return nil
}

// laziness is how long a power failure may take back what is lazy. With the time
// for which entries are collected, and that of the sync, it is a second.
const laziness = 900 * time.Millisecond

// mayWait reports whether the disk need not confirm the group now: all of it is
// lazy, and so is all that it would confirm of what came before.
func (t *tx) mayWait(group []*write) bool {
	for _, one := range group {
		if !one.lazy {
			return false
		}
	}
	return len(group) > 0 && (t.unsynced.IsZero() || time.Since(t.unsynced) < laziness)
}

// syncDue returns a channel that sends when lazy writes must be synced; nil if
// all are on disk.
func (t *tx) syncDue() <-chan time.Time {
	if t.unsynced.IsZero() {
		return nil
	}
	return time.After(max(time.Until(t.unsynced.Add(laziness)), time.Until(t.retry)))
}

// synchronize says whether commits wait for the disk from now on.
func (t *tx) synchronize(lax bool) error {
	if lax == t.lax {
		return nil
	}
	mode := `PRAGMA synchronous = FULL`
	if lax {
		mode = `PRAGMA synchronous = NORMAL`
	}
	if _, err := t.exec(mode); err != nil {
		return err
	}
	t.lax = lax
	return nil
}

// end commits the transaction. A commit that must sync earlier ones changes
// something in any case: SQLite does not sync a transaction without changes.
func (t *tx) end() error {
	if !t.lax && !t.unsynced.IsZero() {
		if _, err := t.exec(`INSERT OR REPLACE INTO probes (id, body) VALUES (2, zeroblob(1))`); err != nil {
			return err
		}
	}
	if err := t.commit(); err != nil {
		return err
	}
	switch {
	case !t.lax:
		t.unsynced = time.Time{}
	case t.unsynced.IsZero():
		t.unsynced = time.Now()
	}
	return nil
}

func (t *tx) commitNow() error {
	_, err := t.exec(`COMMIT`)
	return err
}

// performAlone performs and commits the only write of a group, which is the whole
// transaction and needs no savepoint.
func (t *tx) performAlone(one *write) error {
	if one.fails() {
		return t.abandon(nil)
	}
	if one.err = one.do(t); one.err != nil {
		if err := t.abandon(one.err); lost(err) {
			return err
		}
		return nil
	}
	if err := t.end(); err != nil {
		return t.abandon(err)
	}
	return nil
}

// fails reports whether the write fails with the one that it follows.
func (one *write) fails() bool {
	if one.after == nil || one.after.err == nil {
		return false
	}
	one.err = fmt.Errorf("an earlier append: %w", one.after.err)
	return true
}

// performOne performs one write within a savepoint. Its error concerns the
// whole transaction; that of the write stays with it.
func (t *tx) performOne(one *write) error {
	if one.fails() {
		return nil
	}
	if _, err := t.exec(`SAVEPOINT one`); err != nil {
		return err
	}
	if one.err = one.do(t); one.err != nil {
		if lost(one.err) {
			return one.err
		}
		clear(t.ends)
		if _, err := t.exec(`ROLLBACK TO one`); err != nil {
			return one.err // a full or failing disk has ended the transaction
		}
	}
	_, err := t.exec(`RELEASE one`)
	return err
}

// abandon ends the transaction, unless err has.
func (t *tx) abandon(err error) error {
	clear(t.ends)
	_, _ = t.exec(`ROLLBACK`)
	return err
}

// exec performs a statement and returns how many rows it changed. What has come
// into the queue is written whether or not its caller still waits, so there is
// no context.
func (t *tx) exec(text string, args ...any) (int64, error) {
	s, err := t.statement(text) //nolint:sqlclosecheck // it is used again, and closed with t
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// get reads one row.
func (t *tx) get(text string, args []any, dest ...any) error {
	s, err := t.statement(text) //nolint:sqlclosecheck // it is used again, and closed with t
	if err != nil {
		return err
	}
	return s.QueryRowContext(context.Background(), args...).Scan(dest...)
}

// one reads one row as scan says; org.ErrNotFound without one.
func one[T any](t *tx, scan func(scanner) (T, error), text string, args ...any) (T, error) {
	s, err := t.statement(text) //nolint:sqlclosecheck // it is used again, and closed with t
	if err != nil {
		var none T
		return none, err
	}
	v, err := scan(s.QueryRowContext(context.Background(), args...))
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	return v, err
}

func (t *tx) statement(text string) (*sql.Stmt, error) {
	if s, ok := t.statements[text]; ok {
		return s, nil
	}
	s, err := t.conn.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	t.statements[text] = s
	return s, nil
}

func (t *tx) close() error {
	var errs []error
	for _, s := range t.statements {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, t.conn.Close())...)
}
