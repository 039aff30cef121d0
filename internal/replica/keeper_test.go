package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is an installation's store: the number of its changes, and what its replicas have said.
type store struct {
	mu    sync.Mutex
	epoch int64
	orgs  map[string]int64 // the epoch of the last change
	rows  map[string]row
}

type row struct {
	seen     time.Time
	applied  int64
	draining bool
}

func newStore() *store { return &store{orgs: map[string]int64{}, rows: map[string]row{}} }

// change stores a change of an org.
func (s *store) change(org string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.orgs[org] = s.epoch
	return s.epoch
}

func (s *store) read() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

func (s *store) state() replica.State {
	st := replica.State{Epoch: s.epoch}
	for _, r := range s.rows {
		if !r.draining && time.Since(r.seen) < replica.Lifetime {
			st.Living++
		}
	}
	return st
}

// process is a replica: what it has read of the settings, and its connection to the store.
type process struct {
	*replica.Keeper
	store *store
	id    string
	log   bytes.Buffer
	bells chan struct{}

	mu      sync.Mutex
	made    int64
	read    int64         // the epoch of the settings that it works with
	reads   [][]string    // the orgs of each Reload
	broken  error         // what every call to the store returns
	hang    chan struct{} // calls wait for it; nil = they do not
	latency func() time.Duration
	between func() // is called once by a Beat that has read the epoch and not stored its row; nil = nothing
}

func (s *store) process(id string) *process {
	p := &process{store: s, id: id, bells: make(chan struct{}, 1), latency: func() time.Duration { return time.Millisecond }}
	p.Keeper = replica.New(replica.Options{Beats: p, ID: id, Reload: p.reload, Log: slog.New(slog.NewTextHandler(&p.log, nil))})
	return p
}

// start makes the process read the settings and serve.
func (p *process) start(t *testing.T) *process {
	t.Helper()
	if err := p.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.read = p.store.read()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(context.Background()) })
	return p
}

// calls waits as a call to the store does.
func (p *process) calls(ctx context.Context) error {
	p.mu.Lock()
	hang, broken, latency := p.hang, p.broken, p.latency()
	p.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	return broken
}

func (p *process) reload(ctx context.Context, orgs []string) error {
	now := p.store.read()
	if err := p.calls(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read, p.reads = max(p.read, now), append(p.reads, orgs)
	return nil
}

// change stores a change, applies it here, and returns when it may be answered.
func (p *process) change(ctx context.Context, org string) int64 {
	epoch := p.store.change(org)
	p.mu.Lock()
	p.made = max(p.made, epoch)
	p.read = max(p.read, epoch)
	p.mu.Unlock()
	p.Settle(ctx)
	return epoch
}

func (p *process) works() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}

func (p *process) set(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

func (p *process) Epoch(ctx context.Context) (int64, error) { return p.store.read(), p.calls(ctx) }
func (p *process) Bell() <-chan struct{}                    { return p.bells }

func (p *process) Made() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Beat reads the state before it stores the row, as a statement does whose transaction takes long.
func (p *process) Beat(ctx context.Context, b replica.Beat) (replica.State, error) {
	if err := p.calls(ctx); err != nil {
		return replica.State{}, err
	}
	p.store.mu.Lock()
	seen, epoch := time.Now(), p.store.epoch
	p.store.mu.Unlock()
	p.mu.Lock()
	between := p.between
	p.between = nil
	p.mu.Unlock()
	if between != nil {
		between()
	}
	if err := p.calls(ctx); err != nil {
		return replica.State{}, err
	}
	p.store.mu.Lock()
	p.store.rows[b.ID] = row{seen, b.Applied, b.Draining}
	st := p.store.state()
	st.Epoch = epoch
	p.store.mu.Unlock()
	return st, p.calls(ctx)
}

func (p *process) Changed(ctx context.Context, after int64) (orgs []string, err error) {
	p.store.mu.Lock()
	for org, epoch := range p.store.orgs {
		if epoch > after {
			orgs = append(orgs, org)
		}
	}
	p.store.mu.Unlock()
	slices.Sort(orgs)
	return orgs, p.calls(ctx)
}

func (p *process) Confirmed(ctx context.Context, epoch int64) (bool, error) {
	if err := p.calls(ctx); err != nil {
		return false, err
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	for _, r := range p.store.rows {
		if r.applied < epoch && time.Since(r.seen) < replica.Grace {
			return false, nil
		}
	}
	return true, nil
}

func (p *process) Leave(ctx context.Context, id string) error {
	if err := p.calls(ctx); err != nil {
		return err
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	delete(p.store.rows, id)
	return nil
}

func took(t *testing.T, do func()) time.Duration {
	t.Helper()
	began := time.Now()
	do()
	return time.Since(began)
}

// A change is answered when every living replica has applied it. // A01
func TestAChangeIsAnsweredWhenAllHaveAppliedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b, c := s.process("a").start(t), s.process("b").start(t), s.process("c").start(t)
		for range 20 {
			epoch := a.change(t.Context(), "o")
			for _, p := range []*process{a, b, c} {
				if p.works() < epoch {
					t.Fatalf("%s has applied %d of %d changes when the last one is answered", p.id, p.works(), epoch)
				}
			}
		}
		if n := a.Living(); n != 3 {
			t.Errorf("%d replicas live, want 3", n)
		}
		if took := took(t, func() { a.Settle(t.Context()) }); took != 0 {
			t.Errorf("a request that has changed nothing waits for %v", took)
		}
	})
}

// With bells a change is answered after some round trips to the store. // A01
func TestABellMakesAChangeFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := s.process("a").start(t), s.process("b").start(t)
		time.Sleep(replica.Interval * 4 / 3)
		epoch := s.change("o")
		b.bells <- struct{}{}
		a.set(func() { a.made = epoch })
		if took := took(t, func() { a.Settle(t.Context()) }); took > 50*time.Millisecond {
			t.Errorf("a change is answered after %v", took)
		}
		if b.works() < epoch {
			t.Error("the other replica has not applied the change")
		}
		if got := fmt.Sprint(b.reads[len(b.reads)-1]); got != "[o]" {
			t.Errorf("the other replica has read %s, want the org that has changed", got)
		}
	})
}

// A replica that cannot reach the store stops answering within two seconds, and a change waits no longer
// for it. It answers again when it has read what has changed. // A01
func TestAReplicaWithoutTheStoreStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := s.process("a").start(t), s.process("b").start(t)
		time.Sleep(replica.Lifetime)
		b.set(func() { b.broken = errors.New("no route to host") })
		epoch := int64(0)
		took := took(t, func() { epoch = a.change(t.Context(), "o") })
		if took > replica.Grace {
			t.Errorf("a change takes %v with a replica that is cut off", took)
		}
		err := b.Out()
		if f := fault.From(err); err == nil || f.Reason != "replica_out" || f.RetryAfter != time.Second || f.Code != fault.Unavailable {
			t.Fatalf("the replica that is cut off answers with %+v after %v", f, took)
		}
		time.Sleep(time.Minute)
		if b.Out() == nil || b.works() >= epoch {
			t.Fatal("a replica without the store answers")
		}
		if n := a.Living(); n != 1 {
			t.Errorf("%d replicas live after a minute, want 1", n)
		}
		b.set(func() { b.broken = nil })
		for b.Out() != nil {
			time.Sleep(time.Millisecond)
		}
		if b.works() < epoch {
			t.Error("a replica answers that has not read what has changed")
		}
		if out := b.Status().Out; out < 58*time.Second || out > 62*time.Second {
			t.Errorf("the replica was out for %v", out)
		}
		time.Sleep(replica.Interval)
		if n := a.Living(); n != 2 {
			t.Errorf("%d replicas live, want 2", n)
		}
		if log := b.log.String(); strings.Count(log, "level=ERROR") != 1 || strings.Count(log, "level=WARN") != 1 {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// A replica that was stopped and goes on refuses until it has read what has changed meanwhile, also if its
// beat was under way. // A01
func TestAReplicaThatWasStoppedReadsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := s.process("a").start(t), s.process("b").start(t)
		for i := range 40 {
			time.Sleep(time.Duration(i) * 37 * time.Millisecond)
			stopped := make(chan struct{})
			b.set(func() { b.hang = stopped })
			epoch := int64(0)
			if took := took(t, func() { epoch = a.change(t.Context(), "o") }); took > replica.Grace {
				t.Errorf("a change takes %v with a replica that is stopped", took)
			}
			b.set(func() { b.hang = nil })
			close(stopped) // it goes on
			for b.Out() != nil {
				if b.Status().Lag < 0 {
					t.Fatal("a negative lag")
				}
				time.Sleep(time.Millisecond)
			}
			if b.works() < epoch {
				t.Fatal("a replica answers that has not read what has changed")
			}
		}
	})
}

// Whatever the delays are: no replica answers by settings that are older than a change that was answered. // A01
func TestNoReplicaAnswersByOldSettings(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := newStore()
			var all []*process
			for _, id := range []string{"a", "b", "c"} {
				own := rand.New(rand.NewPCG(seed, uint64(id[0])))
				p := s.process(id).start(t)
				p.set(func() {
					p.latency = func() time.Duration {
						return time.Duration(own.ExpFloat64() * own.Float64() * float64(400*time.Millisecond))
					}
				})
				all = append(all, p)
			}
			checks, refused := 0, 0
			for range 150 {
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				epoch := all[0].change(t.Context(), fmt.Sprint("o", r.IntN(5)))
				for range 30 {
					for _, p := range all[1:] {
						checks++
						if p.Out() != nil {
							refused++
						} else if p.works() < epoch {
							t.Fatalf("seed %d: replica %s answers by epoch %d after change %d was answered", seed, p.id, p.works(), epoch)
						}
					}
					time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
				}
			}
			if refused == checks {
				t.Errorf("seed %d: the replicas never answer", seed)
			}
		})
	}
}

// A beat that was stored late counts from the one before: a change that was answered before it was stored
// has not waited for it. // A01
func TestABeatThatIsStoredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := s.process("a").start(t), s.process("b").start(t)
		time.Sleep(replica.Interval)
		b.set(func() { b.broken = errors.New("no route to host") })
		time.Sleep(3 * replica.Interval)
		changed := make(chan int64, 1)
		b.set(func() { b.broken, b.between = nil, func() { changed <- a.change(t.Context(), "o") } })
		epoch := <-changed
		for range 2000 {
			if b.Out() == nil && b.works() < epoch {
				t.Fatal("a replica answers by old settings after a change was answered")
			}
			time.Sleep(time.Millisecond)
		}
		if b.Out() != nil {
			t.Error("the replica refuses requests")
		}
	})
}

// A steady stream of changes does not keep a replica from answering.
func TestAReplicaAnswersWhileMuchChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := s.process("b").start(t)
		for range 5000 {
			s.change("o")
			select {
			case b.bells <- struct{}{}:
			default:
			}
			time.Sleep(2 * time.Millisecond)
			if b.Out() != nil {
				t.Fatal("the replica refuses requests")
			}
		}
	})
}

// A Reload that fails keeps the replica from answering, and from confirming. // A01
func TestAReplicaThatCannotReadStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var failing atomic.Bool
		p := s.process("a")
		reload := func(ctx context.Context, orgs []string) error {
			if failing.Load() {
				return errors.New("damaged")
			}
			return p.reload(ctx, orgs)
		}
		p.Keeper = replica.New(replica.Options{Beats: p, ID: "a", Log: slog.New(slog.DiscardHandler), Reload: reload})
		p.start(t)
		failing.Store(true)
		epoch := s.change("o")
		time.Sleep(replica.Grace + replica.Interval)
		if p.Out() == nil || p.Status().Lag != 1 {
			t.Errorf("the status is %+v", p.Status())
		}
		if ok, _ := p.Confirmed(t.Context(), epoch); ok {
			t.Error("the change is confirmed")
		}
		failing.Store(false)
		time.Sleep(replica.Interval)
		if p.Out() != nil || p.Status().Lag != 0 {
			t.Errorf("the status is %+v", p.Status())
		}
	})
}

// A replica that stops counts no more for limits at once, and is gone afterwards.
func TestAReplicaThatDrainsDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := s.process("a").start(t), s.process("b").start(t)
		time.Sleep(replica.Interval * 2)
		if n := a.Living(); n != 2 {
			t.Fatalf("%d replicas live, want 2", n)
		}
		b.Drain()
		time.Sleep(replica.Interval + 10*time.Millisecond)
		if n := a.Living(); n != 1 {
			t.Errorf("%d replicas live, want 1", n)
		}
		if epoch := a.change(t.Context(), "o"); b.works() < epoch {
			t.Error("a replica that drains has not applied a change")
		}
		b.Stop(t.Context())
		if len(s.rows) != 1 {
			t.Errorf("the store has %v", s.rows)
		}
		b.Stop(t.Context())
	})
}

// A copy of the store that is older makes a replica read everything.
func TestAnOlderStoreIsReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a := s.process("a").start(t)
		for i := range 5 {
			a.change(t.Context(), fmt.Sprint("o", i))
		}
		s.mu.Lock()
		s.epoch = 3
		s.mu.Unlock()
		time.Sleep(2 * replica.Interval)
		a.mu.Lock()
		got := len(a.reads[len(a.reads)-1])
		a.mu.Unlock()
		if got != 5 || a.Out() != nil {
			t.Errorf("it has read %d orgs: %v", got, a.Out())
		}
	})
}

// A start without a store ends with an error.
func TestStartWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := s.process("a")
		p.broken = errors.New("no route to host")
		took := took(t, func() {
			if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no route to host") {
				t.Errorf("Start returned %v", err)
			}
		})
		if took > 61*time.Second {
			t.Errorf("Start returned after %v", took)
		}
		p.Stop(t.Context())
	})
}

// One process alone has no Keeper: it may always answer, and waits for nobody.
func TestNoKeeper(t *testing.T) {
	var k *replica.Keeper
	if k.Prepare(t.Context()) != nil || k.Start(t.Context()) != nil || k.Out() != nil || k.Living() != 1 {
		t.Error("a nil Keeper is not that of one process")
	}
	k.Ring()
	k.Settle(t.Context())
	k.Drain()
	k.Stop(t.Context())
}

// Of the places of a limit each replica uses its part, and at least one.
func TestWeight(t *testing.T) {
	for _, c := range []struct{ n, living, places int }{
		{256, 1, 256}, {256, 3, 85}, {2, 3, 1}, {1, 1, 1}, {64, 0, 64}, {10_000, 7, 1428}, {3, 3, 1}, {5, 2, 2},
	} {
		if got := c.n / int(replica.Weight(c.n, c.living)); got != c.places {
			t.Errorf("of %d places a replica of %d uses %d, want %d", c.n, c.living, got, c.places)
		}
	}
}
