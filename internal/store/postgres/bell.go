package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long things of a bell take.
const (
	ringEvery  = 5 * time.Millisecond // keys are collected
	ringWithin = 2 * time.Second      // a message is sent, or counts as not sent
	heardAfter = 2 * time.Second      // a message to oneself comes back within, or never
	aliveAfter = 10 * time.Second     // without a message, the connection is tried
	readEvery  = 2 * time.Second      // subscribers read, while the bell does not hear
	tryAgain   = 30 * time.Second     // a connection that hears nothing
	firstWait  = 100 * time.Millisecond
)

// maxWaiting is how many keys wait to be sent. Further ones become everything of their kind.
const maxWaiting = 10_000

// Bell tells the other replicas of an installation that there is something to read, and hears them. It is a hint that
// saves the wait for the next look, and no message: rings can be lost, folded or late, and after each connection, or
// while there is none, subscribers are told to read everything. Its methods may be called from several goroutines.
type Bell struct {
	options Options
	schema  string
	channel string
	own     string // the first line of the messages of this bell
	db      *sql.DB
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	hears   atomic.Bool
	quiet   atomic.Bool
	waiting ringing

	mu          sync.Mutex
	subscribers map[string][]*subscriber // by kind
}

type subscriber struct{ heard func(Key) }

// errDeaf is the error of a connection that hears nothing.
var errDeaf = errors.New("the connection hears nothing: it goes through a pooler; set postgres.listen_url to a way around it")

// errNoWay is the error of options that have no connection on which one could listen.
var errNoWay = errors.New("there is no connection around the pooler: set postgres.listen_url")

// NewBell returns a bell of the schema, which Migrate has named. It listens on a connection of its own and rings over db,
// which stays the caller's. It works until Close. As long as it does not hear, it says so in the log once, and tells
// subscribers to read everything every 2 seconds.
func NewBell(o Options, schema string, db *sql.DB) *Bell {
	b := &Bell{
		options: o, schema: schema, channel: channelOf(schema), own: rand.Text(), db: db,
		waiting: ringing{set: map[Key]bool{}, rung: make(chan struct{}, 1)}, subscribers: map[string][]*subscriber{},
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.running.Go(b.listen)
	b.running.Go(b.send)
	return b
}

// channelOf returns the channel of the schema. Names of more than 63 bytes would be cut.
func channelOf(schema string) string {
	name := "turnpike_" + schema
	if len(name) > 63 {
		sum := sha256.Sum256([]byte(schema))
		name = "turnpike_" + hex.EncodeToString(sum[:16])
	}
	return name
}

// Ring tells the other replicas, within some milliseconds and without waiting. Call it after the commit. The subscribers
// of this bell do not hear it.
func (b *Bell) Ring(keys ...Key) {
	if !b.quiet.Load() {
		b.waiting.add(keys)
	}
}

// Quiet says whether nobody else is there, so that Ring has no effect.
func (b *Bell) Quiet(alone bool) { b.quiet.Store(alone) }

// Hears reports whether the bell hears the other replicas. If it does not, they are noticed up to 2 seconds later.
func (b *Bell) Hears() bool { return b.hears.Load() }

// Subscribe has heard called for each key of the kind that another replica rings for. A key without an org means
// everything of the kind; it also comes when a connection was made, since nobody knows what was missed. The calls are made
// one after the other: heard must not wait, and not call Close. They end when cancel is called; one may still be in progress.
func (b *Bell) Subscribe(kind string, heard func(Key)) (cancel func()) {
	s := &subscriber{heard}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers[kind] = append(b.subscribers[kind], s)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		var rest []*subscriber // a new list: tell may be going through the old one
		for _, other := range b.subscribers[kind] {
			if other != s {
				rest = append(rest, other)
			}
		}
		b.subscribers[kind] = rest
	}
}

// Close sends what was rung, for up to 4 seconds, ends the connection and waits until no subscriber is called any more.
func (b *Bell) Close() {
	b.stop()
	b.running.Wait()
}

// tell calls the subscribers of the key.
func (b *Bell) tell(k Key) {
	b.mu.Lock()
	list := b.subscribers[k.Kind]
	b.mu.Unlock()
	for _, s := range list {
		s.heard(k)
	}
}

// tellAll has all subscribers read everything.
func (b *Bell) tellAll() {
	b.mu.Lock()
	kinds := make([]string, 0, len(b.subscribers))
	for kind := range b.subscribers {
		kinds = append(kinds, kind)
	}
	b.mu.Unlock()
	for _, kind := range kinds {
		b.tell(Key{Kind: kind})
	}
}

// listen keeps a connection that hears.
func (b *Bell) listen() {
	wait, said := firstWait, false
	for b.ctx.Err() == nil {
		heard, err := b.hear()
		b.hears.Store(false)
		if heard {
			wait, said = firstWait, false
		}
		if b.ctx.Err() != nil {
			return
		}
		if !said {
			said = true
			b.options.log().Warn("doorbells are not heard; replicas look every 2 seconds", "schema", b.schema, "error", err)
		}
		for rest := b.pause(wait, err); rest > 0 && b.ctx.Err() == nil; rest -= readEvery {
			sleep(b.ctx, min(rest, readEvery))
			b.tellAll()
		}
		wait = min(2*wait, readEvery)
	}
}

// pause returns how long to wait after an error: most pass, but a pooler stays.
func (b *Bell) pause(wait time.Duration, err error) time.Duration {
	if errors.Is(err, errDeaf) || errors.Is(err, errNoWay) {
		return tryAgain
	}
	return wait/2 + mathrand.N(wait/2+1) //nolint:gosec // replicas need not come back in step
}

// hear makes a connection and passes on what it hears, until an error. heard = it has heard at least itself.
func (b *Bell) hear() (heard bool, err error) {
	config, alone, err := b.options.direct()
	if err == nil && !alone {
		err = errNoWay
	}
	if err != nil {
		return false, err
	}
	conn, err := pgx.ConnectConfig(b.ctx, config)
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	var schema string
	if err := conn.QueryRow(b.ctx, `SELECT coalesce(current_schema(), '')`).Scan(&schema); err != nil {
		return false, err
	}
	if schema != b.schema {
		return false, otherSchema(schema, b.schema)
	}
	if _, err := conn.Exec(b.ctx, `LISTEN `+quoteName(b.channel)); err != nil {
		return false, err
	}
	if err := b.test(conn); err != nil {
		return false, err
	}
	b.hears.Store(true)
	b.tellAll()
	for {
		if err := b.hearOne(conn); err != nil {
			return true, err
		}
	}
}

// test rings over the other connections, and listens whether it comes back.
func (b *Bell) test(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(b.ctx, heardAfter)
	defer cancel()
	question := b.own + " " + rand.Text()
	if err := b.notify(ctx, question); err != nil {
		return fmt.Errorf("ring to oneself: %w", err)
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err != nil && b.ctx.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return errDeaf
		case err != nil:
			return err
		case n.Payload == question:
			return nil // what came before it is read with everything else
		}
	}
}

// hearOne waits for a message and passes its keys on. Without one, it sees whether the server still answers.
func (b *Bell) hearOne(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(b.ctx, aliveAfter)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		if b.ctx.Err() != nil || conn.IsClosed() || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return err
		}
		alive, done := context.WithTimeout(b.ctx, heardAfter)
		defer done()
		return conn.Ping(alive)
	}
	from, lines, _ := strings.Cut(n.Payload, "\n")
	if strings.HasPrefix(from, b.own) {
		return nil
	}
	for line := range strings.SplitSeq(lines, "\n") {
		if k, ok := decodeKey(line); ok { // others are of a later build
			b.tell(k)
		}
	}
	return nil
}

// send sends what was rung.
func (b *Bell) send() {
	wait := firstWait
	for b.ctx.Err() == nil {
		select {
		case <-b.waiting.rung:
			sleep(b.ctx, ringEvery)
		case <-b.ctx.Done(): // those who close have often just rung
		}
		keys := b.waiting.take()
		err := b.sendAll(keys)
		if err == nil {
			wait = firstWait
			continue
		}
		b.options.log().Debug("doorbells were not sent", "schema", b.schema, "keys", len(keys), "error", err)
		b.waiting.add(keys)
		sleep(b.ctx, wait)
		wait = min(2*wait, readEvery)
	}
	_ = b.sendAll(b.waiting.take()) // what was rung meanwhile; nobody is left who would try again
}

// sendAll sends the keys, also when the bell is being closed.
func (b *Bell) sendAll(keys []Key) error {
	ctx, cancel := context.WithTimeout(context.Background(), ringWithin)
	defer cancel()
	for _, m := range messages(b.own, keys) {
		if err := b.notify(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// notify sends one message. The statement is a transaction of its own: one that writes would hold a lock of all writers of
// the database until its commit is on disk.
func (b *Bell) notify(ctx context.Context, message string) error {
	_, err := b.db.ExecContext(ctx, `SELECT pg_notify($1, $2)`, b.channel, message)
	return err
}

// ringing are the keys that wait to be sent, each once.
type ringing struct {
	mu    sync.Mutex
	set   map[Key]bool
	order []Key
	rung  chan struct{} // of size 1
}

func (r *ringing) add(keys []Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		if len(r.order) >= maxWaiting {
			k = Key{Kind: k.Kind}
		}
		if !r.set[k] {
			r.set[k] = true
			r.order = append(r.order, k)
		}
	}
	if len(r.order) == 0 {
		return
	}
	select {
	case r.rung <- struct{}{}:
	default: // it is known
	}
}

func (r *ringing) take() []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.order
	r.order = nil
	clear(r.set)
	return keys
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
