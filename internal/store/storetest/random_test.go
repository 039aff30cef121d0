package storetest_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

var (
	seed       = flag.Uint64("seed", 0, "seed of the random operations; 0 = from the clock")
	onPostgres = flag.Int("postgres-steps", 1500, "random operations on PostgreSQL, which commits each to the disk of its server")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The memory store is the model: after any sequence of operations, both stores give
// the same answers.
func TestMemoryAndSQLiteAgreeOnRandomOperations(t *testing.T) { // K07
	steps := 10_000
	if testing.Short() {
		steps = 1_000
	}
	agree(t, false, openSQLite, steps)
}

func TestMemoryAndPostgreSQLAgreeOnRandomOperations(t *testing.T) {
	steps := *onPostgres
	if testing.Short() {
		steps = min(steps, 300)
	}
	agree(t, true, openPostgreSQL, steps)
}

// agree performs random operations on the model and another store.
func agree(t *testing.T, shared bool, open func(*testing.T, func() time.Time) *database.Store, steps int) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("go test -run %s -seed %d", t.Name(), *seed)
	p := newPlayer(t, *seed, shared, open)
	counts := map[string]int{}
	for range steps {
		name, answers := p.step()
		counts[fmt.Sprintf("%s: %s", name, outcome(answers[0].err))]++
		if diff := cmp.Diff(answers[0].plain(), answers[1].plain(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-memory +database):\n%s", name, diff)
		}
	}
	t.Log(counts)
	if steps < 10_000 {
		return
	}
	for _, want := range []string{
		"append: ok", "append: fenced", "append: behind", "append: exists already", "append: other",
		"append: no slot", "append: submitted", "append: over budget", "claim: ok", "renew: ok", "release: ok", "used: ok", "audited: ok",
		"head: ok", "head: not found", "set aside: ok", "restore: ok", "load: ok", "load: not found", "runs: ok", "runs: not found", "save: ok", "save: exists already", "save: changed", "find: ok",
		"turn: ok", "turn: busy", "deliver: ok", "deliver: submitted", "session: ok", "create session: ok", "remove session: ok",
	} {
		if counts[want] == 0 {
			t.Errorf("none of %d random operations was %q: %v", steps, want, counts)
		}
	}
}

// answer is the result of an operation on one store.
type answer struct {
	value any
	err   error
}

// plain returns the answer without the text of its error.
func (a answer) plain() []any {
	var behind *journal.Behind
	var submitted *journal.Submitted
	var over *journal.OverBudget
	switch {
	case errors.As(a.err, &behind):
		return []any{a.value, outcome(a.err), behind.Facts}
	case errors.As(a.err, &submitted):
		return []any{a.value, outcome(a.err), *submitted}
	case errors.As(a.err, &over):
		return []any{a.value, outcome(a.err), *over}
	}
	return []any{a.value, outcome(a.err)}
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, org.ErrNotFound):
		return "not found"
	case errors.Is(err, org.ErrExists):
		return "exists already"
	case errors.Is(err, journal.ErrChanged):
		return "changed"
	case errors.Is(err, journal.ErrFenced):
		return "fenced"
	case errors.Is(err, journal.ErrNoSlot):
		return "no slot"
	case errors.As(err, new(*journal.SessionBusy)):
		return "busy"
	case errors.As(err, new(*journal.Submitted)):
		return "submitted"
	case errors.As(err, new(*journal.OverBudget)):
		return "over budget"
	case errors.As(err, new(*journal.Behind)):
		return "behind"
	}
	return "other"
}

// randomOps performs the same random operations on two stores.
type randomOps struct {
	t        *testing.T
	shared   bool // the other store is on a server: what was not synced may not be seen by a claim
	rand     *rand.Rand
	stores   []storetest.Store // the first is the model
	now      time.Time
	fresh    int // for values that must be unique
	ends     map[journal.Lease]int64
	epochs   map[journal.Lease]int64 // the current epochs
	unsynced map[journal.Lease]bool  // runs with unsynced appends
	turns    []journal.Lease         // runs that are turns of sessions, without epochs
}

func openSQLite(t *testing.T, clock func() time.Time) *database.Store {
	s, err := database.Open(t.Context(), database.Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Now: clock, LeaseNow: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openPostgreSQL(t *testing.T, clock func() time.Time) *database.Store {
	o := postgrestest.New(t)
	if _, err := postgres.Migrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	c, err := o.Connector()
	if err != nil {
		t.Fatal(err)
	}
	return database.OpenServer(sql.OpenDB(database.Translated(c)), database.ServerOptions{Name: o.Schema, Now: clock, LeaseNow: clock})
}

func newPlayer(t *testing.T, seed uint64, shared bool, open func(*testing.T, func() time.Time) *database.Store) *randomOps {
	p := &randomOps{
		t: t, shared: shared, rand: rand.New(rand.NewPCG(seed, 1)), now: time.UnixMilli(1_700_000_000_000).UTC(),
		ends: map[journal.Lease]int64{}, epochs: map[journal.Lease]int64{}, unsynced: map[journal.Lease]bool{},
	}
	clock := func() time.Time { return p.now }
	s := open(t, clock)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	j := &memory.Journal{Now: clock, LeaseNow: clock}
	conversations := &memory.Conversations{Now: clock}
	j.Conversations = conversations
	sessions := &memory.Sessions{Journal: j, Conversations: conversations}
	p.stores = []storetest.Store{
		{Sessions: sessions, Journal: j, Archive: j, Slices: j, Leases: j, Conversations: conversations},
		{Sessions: s, Journal: s, Archive: s, Slices: s, Leases: s, Conversations: s},
	}
	if err := s.AddOrgs(t.Context(), []org.Record{{ID: "a"}, {ID: "b"}, {ID: "c"}}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *randomOps) both(do func(storetest.Store) (any, error)) (answers []answer) {
	for _, s := range p.stores {
		value, err := do(s)
		answers = append(answers, answer{value, err})
	}
	return answers
}

func (p *randomOps) only(do func(storetest.Store) error) []answer {
	return p.both(func(s storetest.Store) (any, error) { return nil, do(s) })
}

// Random values from small ranges, so that operations collide.
func (p *randomOps) org() string       { return string(rune('a' + p.rand.IntN(3))) }
func (p *randomOps) run() string       { return fmt.Sprint("r", p.rand.IntN(60)) }
func (p *randomOps) name() string      { return fmt.Sprint("n", p.rand.IntN(6)) }
func (p *randomOps) principal() string { return fmt.Sprint("p", p.rand.IntN(2)) }
func (p *randomOps) coin() bool        { return p.rand.IntN(2) == 0 }

// step performs one random operation.
func (p *randomOps) step() (string, []answer) {
	p.now = p.now.Add(time.Duration(p.rand.IntN(3)) * time.Millisecond)
	switch n := p.rand.IntN(90); {
	case n >= 80:
		return p.session()
	case n < 52:
		return p.journal()
	case n < 60:
		return p.lease()
	case n < 68:
		return p.conversation()
	}
	return p.read()
}

// journal appends a random batch, which may be refused. A batch that may be refused for
// its content is synced, because SQLite reports the error of an unsynced one later. So is one
// that ends, parks or resumes a run, as by every driver: until it is written, SQLite counts the
// slot of the run as before.
func (p *randomOps) journal() (string, []answer) {
	lease := journal.Lease{Org: p.org(), RunID: p.run()}
	after := p.ends[lease]
	batch, risky := p.batch(lease, &after)
	batch.Sync = risky || p.coin()
	key := lease
	if lease.Epoch = p.epoch(key); lease.Epoch > 0 {
		lease.Owner = p.owner()
	}
	answers := p.only(func(s storetest.Store) error { return s.Journal.Append(p.t.Context(), lease, after, batch) })
	if answers[0].err == nil {
		p.ends[key] = after + int64(len(batch.Facts))
		p.unsynced[key] = !batch.Sync
		p.epochs[key] = max(p.epochs[key], lease.Epoch)
	}
	return "append", answers
}

func (p *randomOps) batch(lease journal.Lease, after *int64) (b journal.Batch, risky bool) {
	if *after > 0 && p.rand.IntN(10) == 0 {
		*after -= int64(p.rand.IntN(2) + 1)
		*after = max(*after, 1)
	} else if p.rand.IntN(40) == 0 {
		*after += 3
	}
	for i := range p.rand.IntN(4) {
		body, repeats := p.body()
		if *after == 0 && i == 0 {
			body = loop.Accepted{Org: lease.Org, RunID: lease.RunID, Principal: p.principal(), Policy: loop.Policy{Grade: loop.Light}}
		}
		switch body.(type) {
		case loop.Finished, loop.Parked, loop.Resumed:
			risky = true
		}
		risky = risky || repeats
		b.Facts = append(b.Facts, loop.Fact{Seq: *after + 1 + int64(i), Epoch: 1, At: p.now.UnixMilli(), Version: 1, Body: body})
	}
	for range p.rand.IntN(3) {
		p.fresh++
		ref := fmt.Sprint("fresh ", p.fresh)
		if p.rand.IntN(20) == 0 {
			ref, risky = p.name(), true
		}
		b.Rows = append(b.Rows, journal.Row{Ref: ref, Value: map[string]any{"n": p.fresh, "text": "<é>"}})
	}
	if risky { // a batch that is refused for two reasons gets one of them
		return b, true
	}
	risky = p.addConditions(&b, *after == 0)
	return b, risky
}

func (p *randomOps) body() (body loop.Body, repeats bool) {
	p.fresh++
	key := loop.Key(p.fresh, 0)
	if repeats = p.rand.IntN(20) == 0; repeats {
		key = loop.Key(0, p.rand.IntN(3))
	}
	switch p.rand.IntN(9) {
	case 0:
		return loop.CallPrepared{Key: key, ArgsDigest: "d"}, repeats
	case 1:
		return loop.CallStarted{Key: key, Attempt: 1 + p.rand.IntN(2)}, repeats
	case 2:
		return loop.CallDone{Key: key, Attempt: p.rand.IntN(2), Outcome: loop.OK}, repeats
	case 3:
		return loop.Turn{Purpose: loop.PurposeTurn, Round: p.fresh, Usage: model.Usage{Input: 3, Output: 4}}, false
	case 4:
		return loop.TurnFailed{Attempt: 1, Class: model.Transient, Usage: model.Usage{Input: 1}}, false
	case 5:
		return loop.Parked{ActiveMS: 4}, false
	case 6:
		return loop.Resumed{}, false
	case 7:
		return loop.CancelRequested{By: "somebody", Cause: event.Cancelled}, false
	}
	return loop.Finished{Reason: event.Complete}, false
}

func (p *randomOps) conversation() (string, []answer) {
	ctx := p.t.Context()
	orgID, principal := p.org(), p.principal()
	if p.rand.IntN(20) == 0 {
		p.advanceHours()
	}
	kinds := []journal.KeyKind{journal.CallID, journal.ResponseID, journal.SessionID}
	keys := []journal.ConversationKey{{Kind: kinds[p.rand.IntN(3)], ID: fmt.Sprint("id ", p.rand.IntN(10))}}
	if p.coin() {
		return "find", p.both(func(s storetest.Store) (any, error) { return s.Conversations.Find(ctx, orgID, principal, keys[0]) })
	}
	p.fresh++
	c := journal.Conversation{RunID: fmt.Sprint(p.fresh), Items: item.List{item.NewText(item.User, "x")}}
	if second := (journal.ConversationKey{Kind: kinds[p.rand.IntN(2)], ID: fmt.Sprint("id ", p.rand.IntN(10))}); keys[0].Kind == journal.SessionID {
		c.Version = int64(p.rand.IntN(4))
	} else if second != keys[0] {
		keys = append(keys, second)
	}
	ttl := time.Duration(1+p.rand.IntN(24)) * time.Hour
	return "save", p.only(func(s storetest.Store) error { return s.Conversations.Save(ctx, orgID, principal, c, ttl, keys...) })
}

// sync syncs all runs with unsynced appends.
func (p *randomOps) sync() {
	for lease, loose := range p.unsynced {
		if !loose {
			continue
		}
		for _, s := range p.stores {
			if err := s.Journal.Append(p.t.Context(), lease, p.ends[lease], journal.Batch{Sync: true}); err != nil {
				p.t.Fatalf("sync of unsynced appends: %v", err)
			}
		}
	}
	clear(p.unsynced)
}

// read syncs all runs with unsynced appends, and then reads.
func (p *randomOps) read() (string, []answer) {
	ctx := p.t.Context()
	p.sync()
	if p.rand.IntN(3) == 0 {
		return p.account()
	}
	orgID, runID := p.org(), fmt.Sprint("r", p.rand.IntN(66))
	if p.rand.IntN(3) == 0 {
		return "head", p.both(func(s storetest.Store) (any, error) {
			h, err := s.Archive.Head(ctx, orgID, runID)
			h.Bytes = 0 // the memory store does not encode facts
			return h, err
		})
	}
	if p.coin() {
		after, limit := int64(p.rand.IntN(20)), p.rand.IntN(2000)
		return "facts", p.both(func(s storetest.Store) (any, error) { return s.Archive.Facts(ctx, orgID, runID, after, limit) })
	}
	if p.coin() {
		return "load", p.both(func(s storetest.Store) (any, error) { return s.Archive.Load(ctx, orgID, runID) })
	}
	if p.coin() {
		runID = ""
	}
	q := journal.Query{Before: runID, Limit: p.rand.IntN(12)}
	if p.coin() {
		q.Since = p.now.UnixMilli() - int64(p.rand.IntN(5000))
	}
	if p.coin() {
		q.States = []string{"running", "cancelled"}
	}
	if p.coin() {
		q.Principal = p.principal()
	}
	return "runs", p.both(func(s storetest.Store) (any, error) { return s.Archive.Runs(ctx, orgID, q) })
}
