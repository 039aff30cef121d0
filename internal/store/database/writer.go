package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Limits of a group and of the queue.
const (
	maxGroup    = 100                   // writes
	collectTime = 10 * time.Millisecond // how long a group collects writes while no caller waits for one of them
	maxQueue    = 1024                  // writes; further ones wait for room
)

// noOrg is the org of writes that belong to several orgs, or to none.
const noOrg = ""

// writer performs writes in transactions: one after the other on the write connection of a file, or those of each org
// one after the other on the connections of a server, see lanes. Its goroutines end with close.
type writer struct {
	db    *sql.DB
	tx    *tx    // of a file; nil with lanes
	lanes *lanes // of a server; nil = the database is a file
	caps  atomic.Pointer[org.Caps]

	appended func(orgID, runID string) // see ServerOptions.Appended; may be nil
	queue    chan *write
	slots    chan struct{} // one element per write that is queued or in the current group
	log      *slog.Logger
	fatal    func(error) // may be nil
	damage   *damage
	ended    chan struct{}

	gate    gate                    // large writes pass it on their way to the queue
	current atomic.Pointer[working] // the group that is being written; nil = none

	mu       sync.RWMutex // guards the fields below
	closed   bool
	poisoned error // every write is refused with it; nil = writes are accepted
}

// working is a group that is being written.
type working struct {
	since time.Time // since when its oldest write waits, apart from the time that large writes of an earlier group took
	large []string  // the orgs of its large writes, which cause its slowness; nil = it has none
}

// errBusy reports that the queue is full.
var errBusy = errors.New("too many writes are waiting")

// write is an atomic change: it is stored completely or not at all.
type write struct {
	do        func(*tx) error
	parts     []*part     // batches of one run, which do stores; if it fails, they are written one by one up to the first that fails
	unstored  []*part     // set with err, if the disk was full and no caller waits: the run's next write stores them as well
	awaited   bool        // a caller waits for done
	collected bool        // it has waited for others already: its group does not wait for it
	deferSync bool        // its sync to disk may be deferred by up to maxUnsynced; it survives a crash of the process, not of the system
	dependsOn *write      // if this one fails, the write fails too; nil = independent
	plain     bool        // do can be performed again after a rollback, and reads only what plain writes of the same transaction have stored
	epoch     int64       // of an append
	told      int64       // the epoch of an append that is in it and has returned already; 0 = none is
	org       string      // whose write it is
	size      int         // bytes that it stores, about; 0 = few
	since     time.Time   // when it was submitted
	onDone    func(error) // called once with err, must not block; nil = not called

	done chan struct{} // closed when err is set
	err  error
}

func newWriter(db *sql.DB, conn *sql.Conn, o Options) *writer {
	w := &writer{
		db: db, log: o.Log, fatal: o.Fatal,
		tx:    newTx(conn, o.Log),
		queue: make(chan *write, maxQueue),
		slots: make(chan struct{}, maxQueue),
		ended: make(chan struct{}),
	}
	w.caps.Store(&o.Caps)
	go w.run()
	return w
}

// submit queues the write, and waits for room until ctx ends. Writes are performed in
// the order of submission.
func (w *writer) submit(ctx context.Context, one *write) error {
	one.since = time.Now()
	if err := w.gate.enter(ctx, one); err != nil {
		return err
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		w.gate.leave(one)
		return ctx.Err()
	}
	return w.enqueue(one)
}

// trySubmit is submit for an optional write: it returns errBusy if there is no room.
func (w *writer) trySubmit(one *write) error {
	one.since = time.Now()
	if !w.gate.tryEnter(one) {
		return errBusy
	}
	select {
	case w.slots <- struct{}{}:
	default:
		w.gate.leave(one)
		return errBusy
	}
	return w.enqueue(one)
}

// enqueue queues the write. The caller has added an element to slots, and the write has passed
// the gate.
func (w *writer) enqueue(one *write) error {
	one.done = make(chan struct{})
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.refusal(); err != nil {
		<-w.slots
		w.gate.leave(one)
		return err
	}
	if w.lanes != nil {
		w.lanes.add(one)
		return nil
	}
	w.queue <- one // does not block: queue and slots have the same capacity
	return nil
}

// perform submits the write of an org and waits until it is on disk. If ctx ends first, the
// write may be stored or not.
func (w *writer) perform(ctx context.Context, orgID string, do func(*tx) error) error {
	return w.performOne(ctx, &write{do: do, org: orgID, awaited: true})
}

// barrier waits until all writes that are queued now are on disk, or have failed.
func (w *writer) barrier(ctx context.Context) error {
	nothing := func(*tx) error { return nil }
	if w.lanes == nil {
		return w.perform(ctx, noOrg, nothing)
	}
	var all []*write
	for _, orgID := range w.lanes.orgs() {
		one := &write{do: nothing, org: orgID, awaited: true}
		if err := w.submit(ctx, one); err != nil {
			return err
		}
		all = append(all, one)
	}
	for _, one := range all {
		if err := one.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) performOne(ctx context.Context, one *write) error {
	if err := w.submit(ctx, one); err != nil {
		return err
	}
	return one.wait(ctx)
}

// performed performs a write of an org that has a result. After an error there is none: when ctx ends, the write may still be under way.
func performed[T any](ctx context.Context, w *writer, orgID string, do func(*tx) (T, error)) (T, error) {
	var got T
	err := w.perform(ctx, orgID, func(t *tx) (err error) {
		got, err = do(t)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return got, nil
}

// wait waits for the result of the write, or until ctx ends.
func (one *write) wait(ctx context.Context) error {
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close performs the queued writes and closes the connection.
func (w *writer) close() error {
	w.mu.Lock()
	first := !w.closed
	if first {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	if first && w.lanes != nil {
		for range maxQueue { // all writes have a result
			w.slots <- struct{}{}
		}
		close(w.lanes.ready)
	}
	<-w.ended
	if w.tx == nil {
		return w.db.Close()
	}
	var err error
	if errors.Is(w.poison(nil), ErrReplaced) {
		err = w.tx.saveLog()
	}
	return errors.Join(err, w.tx.close(), w.db.Close())
}

// run performs the queued writes in groups. It syncs deferred writes in time if no later
// group does.
func (w *writer) run() {
	defer close(w.ended)
	var lastLarge time.Time // when the last group with a large write was written
	for {
		select {
		case first, ok := <-w.queue:
			if !ok {
				return
			}
			now := working{since: first.since}
			if now.since.Before(lastLarge) {
				now.since = lastLarge
			}
			w.current.Store(&now)
			runtime.Gosched() // let callers of the last commit submit their next writes
			group := w.collect(first)
			if large := largeOf(group); large != nil {
				w.current.Store(&working{now.since, large})
			}
			w.commit(w.tx, group)
			if w.current.Swap(nil).large != nil {
				lastLarge = time.Now()
			}
		case <-w.tx.syncDue():
			w.commit(w.tx, nil)
		}
	}
}

// largeOf returns the orgs of the group's large writes.
func largeOf(group []*write) (orgs []string) {
	for _, one := range group {
		if one.size >= largeWrite {
			orgs = append(orgs, one.org)
		}
	}
	return orgs
}

// lag returns how long the org's requests have to wait for the writer, see [Store.Lag].
func (w *writer) lag(org string) time.Duration {
	lag := w.gate.waited(org)
	if w.lanes != nil {
		return max(lag, w.lanes.lag(org))
	}
	if now := w.current.Load(); now != nil && (now.large == nil || slices.Contains(now.large, org)) {
		lag = max(lag, time.Since(now.since))
	}
	return lag
}

// collect returns the group that starts with first: the queued writes, and while none of
// them is prompt, also those that arrive within collectTime.
func (w *writer) collect(first *write) []*write {
	group := []*write{first}
	waits := first.prompt()
	var late <-chan time.Time
	for len(group) < maxGroup {
		one, ok := w.next(&late, waits)
		if !ok {
			break
		}
		group = append(group, one)
		waits = waits || one.prompt()
	}
	return group
}

// prompt reports whether a group with the write must not wait for further writes.
func (one *write) prompt() bool { return one.awaited || one.collected }

// next returns the next write of a group, or false if the group is complete.
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
		*late = time.After(collectTime)
	}
	select {
	case one, ok := <-w.queue:
		return one, ok
	case <-*late:
		return nil, false
	}
}

// refuses returns why writes are refused, or nil.
func (w *writer) refuses() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.refusal()
}

// refusal returns why writes are refused, or nil. It is called with mu held.
func (w *writer) refusal() error {
	if w.closed {
		return ErrClosed
	}
	return w.poisoned
}

// commit performs the group as one transaction and reports the results.
func (w *writer) commit(t *tx, group []*write) {
	err := w.poison(nil)
	poisoned := err != nil
	if err == nil {
		t.caps = *w.caps.Load()
		err = w.transact(t, group)
		poisoned = errors.Is(err, ErrPoisoned)
	}
	for _, one := range group {
		if one.err == nil || poisoned {
			one.err = err
		}
		w.damage.observe(one.err)
		if one.err == nil && w.appended != nil {
			for _, p := range one.carried() {
				w.appended(p.batch.key.org, p.batch.key.run)
			}
		}
		one.settle(err != nil)
		close(one.done)
		<-w.slots
		w.gate.leave(one)
		if one.onDone != nil {
			one.onDone(one.err)
		}
	}
}

// settle decides what becomes of the batches of a write with a result: after rolledBack,
// nothing of it is stored.
func (one *write) settle(rolledBack bool) {
	all := one.carried()
	if rolledBack {
		one.leave(all)
	}
	for _, p := range all {
		if slices.Contains(one.unstored, p) {
			p.retain()
		} else {
			p.release()
		}
	}
	one.do, one.parts, one.dependsOn = nil, nil, nil
}

// carried returns the batches of the write and those that the run's earlier write has left.
func (one *write) carried() []*part {
	if one.dependsOn == nil || one.dependsOn.unstored == nil {
		return one.parts
	}
	return slices.Concat(one.dependsOn.unstored, one.parts)
}

// leave leaves the parts for the run's next write, if the write has failed for lack of space
// and no caller gets the error.
func (one *write) leave(parts []*part) {
	one.unstored = nil
	if !one.awaited && len(parts) > 0 && isLackOfSpace(one.err) {
		one.unstored = parts
	}
}

// transact performs the group. If earlier writes may be lost, it poisons the writer.
func (w *writer) transact(t *tx, group []*write) error {
	err := t.perform(group)
	if err == nil {
		return nil
	}
	w.log.Error("store: a group of writes failed", "writes", len(group), "error", err)
	if !isSyncFailure(err) {
		return err
	}
	return w.poison(fmt.Errorf("%w: %w", ErrPoisoned, err))
}

// setPoisoned makes the writer refuse all further writes with err. The first error wins.
func (w *writer) setPoisoned(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poisoned == nil {
		w.poisoned = err
	}
}

// poison makes the writer refuse all further writes with err and calls fatal once. The
// first error wins. It returns the error with which writes are refused. With nil it
// only returns that error.
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

// tx is the current transaction on a write connection. The goroutine that performs it owns it.
type tx struct {
	conn            *sql.Conn
	remote          *session // on a server; nil = on a file
	caps            org.Caps
	statements      map[string]*sql.Stmt // prepared statements, by text
	inserts         map[insertKey]string // texts of statements for several rows
	commit          func() error         // commitNow; tests replace it
	later           later                // stored at the end of the transaction or savepoint; empty between them
	ends            map[string]chainEnd  // cached ends of audit chains, by org; cleared by a rollback
	receivers       receivers            // which webhooks want events
	warned          map[string]usageRest // what the log says of sums of usage, by org
	log             *slog.Logger
	raised          []string  // orgs of which the transaction has changed what they have, on a server
	made            int64     // the epoch that the transaction has given to what it has changed, on a server; 0 = none
	singly          bool      // rows are stored one by one, so that it is known which one the run has already
	unsyncedCommits bool      // commits do not sync to disk
	unsynced        time.Time // commit time of the oldest write that is not synced; zero = all are synced
	retry           time.Time // earliest time of the next sync after a failed one
}

func newTx(conn *sql.Conn, log *slog.Logger) *tx {
	t := &tx{conn: conn, statements: map[string]*sql.Stmt{}, inserts: map[insertKey]string{}, ends: map[string]chainEnd{}, log: log}
	t.commit = t.commitNow
	return t
}

// perform commits the writes that succeed, and sets the err of the others. Its own
// error concerns the whole group.
func (t *tx) perform(group []*write) error {
	if t.remote != nil {
		return t.remote.perform(t, group)
	}
	err := t.setUnsyncedCommits(t.mayDeferSync(group))
	if err == nil {
		err = t.transact(group)
	}
	if err != nil {
		t.retry = time.Now().Add(maxUnsynced)
	}
	return err
}

// transact performs the group as one transaction.
func (t *tx) transact(group []*write) error {
	if len(group) == 1 {
		return t.performAlone(group[0])
	}
	if len(group) > 1 && allPlain(group) {
		if done, err := t.performPlain(group); done {
			return err
		}
	}
	return t.performTogether(group)
}

func allPlain(group []*write) bool {
	for _, one := range group {
		if !one.plain || one.dependsOn != nil && one.dependsOn.err != nil {
			return false
		}
	}
	return true
}

// performPlain performs and commits a group without savepoints, and stores what the writes
// add with one statement per table. If a write fails, it undoes the group and returns false:
// performTogether finds out which one fails, and stores the others.
func (t *tx) performPlain(group []*write) (done bool, err error) {
	if err := t.begin(group); err != nil {
		return true, err
	}
	for _, one := range group {
		if err := one.do(t); err != nil {
			return isSyncFailure(err) || t.remote.repeats(err), t.rollback(err)
		}
	}
	if err := t.storeLater(); err != nil {
		return isSyncFailure(err) || t.remote.repeats(err), t.rollback(err)
	}
	if err := t.commitTransaction(); err != nil {
		return true, t.rollback(err)
	}
	return true, nil
}

// performTogether performs the group as one transaction, each write in a savepoint.
func (t *tx) performTogether(group []*write) error {
	if err := t.begin(group); err != nil {
		return err
	}
	t.singly = true
	defer func() { t.singly = false }()
	for _, one := range group {
		if err := t.performOne(one); err != nil {
			return t.rollback(err)
		}
	}
	if err := t.commitTransaction(); err != nil {
		return t.rollback(err)
	}
	return nil
}

// maxUnsynced is how long the sync of a write may be deferred. Together with collectTime
// and the duration of the sync itself, a power failure can undo at most the last second.
const maxUnsynced = 900 * time.Millisecond

// mayDeferSync reports whether the commit of the group may skip the sync: all its writes are
// deferSync, and no earlier unsynced write is due.
func (t *tx) mayDeferSync(group []*write) bool {
	for _, one := range group {
		if !one.deferSync {
			return false
		}
	}
	return len(group) > 0 && (t.unsynced.IsZero() || time.Since(t.unsynced) < maxUnsynced)
}

// syncDue returns a channel that fires when unsynced writes must be synced, or nil if
// there are none.
func (t *tx) syncDue() <-chan time.Time {
	if t.unsynced.IsZero() {
		return nil
	}
	return time.After(max(time.Until(t.unsynced.Add(maxUnsynced)), time.Until(t.retry)))
}

// setUnsyncedCommits sets whether commits skip the sync to disk.
func (t *tx) setUnsyncedCommits(on bool) error {
	if on == t.unsyncedCommits {
		return nil
	}
	mode := `PRAGMA synchronous = FULL`
	if on {
		mode = `PRAGMA synchronous = NORMAL`
	}
	if _, err := t.exec(mode); err != nil {
		return err
	}
	t.unsyncedCommits = on
	return nil
}

// commitTransaction commits the transaction. If the commit has to sync earlier ones, it writes a
// row, because SQLite does not sync a transaction without changes.
func (t *tx) commitTransaction() error {
	if !t.unsyncedCommits && !t.unsynced.IsZero() {
		if _, err := t.exec(`INSERT OR REPLACE INTO probes (id, body) VALUES (2, zeroblob(1))`); err != nil {
			return err
		}
	}
	if err := t.storeEpoch(); err != nil {
		return err
	}
	if err := t.commit(); err != nil {
		return err
	}
	t.receivers.committed()
	if t.remote != nil {
		return nil
	}
	switch {
	case !t.unsyncedCommits:
		t.unsynced = time.Time{}
	case t.unsynced.IsZero():
		t.unsynced = time.Now()
	}
	return nil
}

// begin begins a transaction for a group.
func (t *tx) begin(group []*write) error {
	if t.remote != nil {
		return t.remote.begin(t, group)
	}
	_, err := t.exec(`BEGIN IMMEDIATE`)
	return err
}

func (t *tx) commitNow() error {
	if t.remote != nil {
		return t.remote.commit(t)
	}
	_, err := t.exec(`COMMIT`)
	return err
}

// performAlone performs and commits a group of one write, which needs no savepoint.
func (t *tx) performAlone(one *write) error {
	if one.failsWithEarlier() {
		return nil
	}
	if err := t.begin([]*write{one}); err != nil {
		return err
	}
	if one.err = t.complete(one); one.err != nil {
		if err := t.rollback(one.err); isSyncFailure(err) || t.remote.repeats(err) {
			return err
		}
		if len(one.carried()) > 1 || isUniqueViolation(one.err) {
			return t.performTogether([]*write{one})
		}
		one.leave(one.carried())
		return nil
	}
	if err := t.commitTransaction(); err != nil {
		return t.rollback(err)
	}
	return nil
}

// complete performs the write, including what it adds later, and what a full disk has left
// of the run's earlier write.
func (t *tx) complete(one *write) error {
	do := one.do
	if one.dependsOn != nil && one.dependsOn.unstored != nil {
		do = join(one.carried()).write
	}
	if err := do(t); err != nil {
		return err
	}
	return t.storeLater()
}

// failsWithEarlier reports whether the write fails because an earlier one failed, and sets its err.
func (one *write) failsWithEarlier() bool {
	if one.dependsOn == nil || one.dependsOn.err == nil || one.dependsOn.unstored != nil {
		return false
	}
	one.err = earlier(one.dependsOn.err)
	return true
}

// performOne performs a write in a savepoint. The write's own error is stored in it; the
// returned error concerns the whole transaction.
func (t *tx) performOne(one *write) error {
	if one.failsWithEarlier() {
		return nil
	}
	if _, err := t.exec(`SAVEPOINT one`); err != nil {
		return err
	}
	raised := len(t.raised)
	if one.err = t.complete(one); one.err != nil {
		if isSyncFailure(one.err) || t.remote.repeats(one.err) {
			return one.err
		}
		t.later.forget()
		clear(t.ends)
		t.receivers.rolledBack()
		t.raised = t.raised[:raised]
		switch _, err := t.exec(`ROLLBACK TO one`); {
		case err != nil && t.remote != nil:
			return err // the connection is lost: what this write was refused for is nothing to the others
		case err != nil:
			return one.err // SQLite has rolled back the transaction: the disk is full or failing
		}
		t.remote.rolledBack()
		if err := t.performParts(one); err != nil {
			return err
		}
	}
	_, err := t.exec(`RELEASE one`)
	return err
}

// performParts performs the parts of a write that has failed, each in a savepoint, up to
// the first that fails.
func (t *tx) performParts(one *write) error {
	parts := one.carried()
	if len(parts) < 2 {
		one.leave(parts)
		return nil
	}
	one.err = nil
	for i, p := range parts {
		w := &write{do: p.write}
		if err := t.performOne(w); err != nil || w.err != nil {
			one.err = w.err
			one.leave(parts[i:])
			return err
		}
	}
	return nil
}

// rollback rolls the transaction back and returns err.
func (t *tx) rollback(err error) error {
	t.later.forget()
	clear(t.ends)
	t.receivers.rolledBack()
	if t.conn != nil {
		_, _ = t.exec(`ROLLBACK`)
	}
	return err
}

// exec executes a statement and returns the number of changed rows. It takes no context of a caller:
// a queued write is performed even if its caller no longer waits.
func (t *tx) exec(text string, args ...any) (int64, error) {
	s, err := t.statement(text)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(t.context(), args...)
	if err != nil {
		return 0, t.remote.saw(err)
	}
	return r.RowsAffected()
}

// queryRow reads one row. It returns sql.ErrNoRows if there is none.
func (t *tx) queryRow(text string, args []any, dest ...any) error {
	s, err := t.statement(text)
	if err != nil {
		return err
	}
	return t.remote.saw(s.QueryRowContext(t.context(), args...).Scan(dest...))
}

// queryOne reads one row with scan. It returns org.ErrNotFound if there is none.
func queryOne[T any](t *tx, scan func(scanner) (T, error), text string, args ...any) (T, error) {
	s, err := t.statement(text)
	if err != nil {
		var none T
		return none, err
	}
	v, err := scan(s.QueryRowContext(t.context(), args...))
	err = t.remote.saw(err)
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	return v, err
}

// queryAll returns all rows of a statement.
func queryAll[T any](t *tx, scan func(scanner) (T, error), text string, args ...any) ([]T, error) {
	s, err := t.statement(text)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(t.context(), args...)
	if err != nil {
		return nil, t.remote.saw(err)
	}
	all, err := scanAll(rows, scan)
	return all, t.remote.saw(err)
}

// statement is a prepared statement of a file, or one that the driver of a server prepares.
type statement interface {
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, args ...any) *sql.Row
}

// statement returns the statement for text, from the cache if possible.
func (t *tx) statement(text string) (statement, error) {
	if t.remote != nil {
		return direct{t.conn, text}, nil
	}
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

// context returns the context of the transaction's statements.
func (t *tx) context() context.Context {
	if t.remote != nil {
		return t.remote.ctx
	}
	return context.Background()
}

// saveLog copies what the write-ahead log has into the database. The last connection does it when it is closed, but that
// may be one of another process, or one that only reads, and a log that was deleted ends with its connections.
func (t *tx) saveLog() error {
	_, err := t.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(FULL)")
	return err
}

func (t *tx) close() error {
	var errs []error
	for _, s := range t.statements {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, t.conn.Close())...)
}
