// Package crashtest tests that an agent survives crashes. It is a package of its own because it links the
// library, whose own tests use turnpiketest.
package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	internal "github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Crash runs an agent without a crash, and then once for each record of its journal: the run is killed when
// the record is stored, and resumed by a new agent. Every run must come to the same text. A call that is
// executed at most once must not be executed twice; one that may be repeated has the same idempotency
// key each time. If a call that is executed at most once was under way, the model is told that its
// outcome is unknown, and any answer is right.
//
// newAgent returns a new agent each time, without a Store. Its model is asked once for each turn: a turn that
// was asked for again gets the same answer. Approvals are given. Crash returns how many records the
// run has. Every second run is streamed.
func Crash(t testing.TB, newAgent func() *turnpike.Agent, input turnpike.Input) (records int) {
	t.Helper()
	turns := &memo{turns: map[int]*model.Turn{}}
	want := &world{turns: turns}
	text, _ := want.finish(t, newAgent, input)
	for records = 1; ; records++ {
		w := &world{turns: turns, killAfter: records}
		got, known := w.finish(t, newAgent, input)
		if known && got != text {
			t.Errorf("killed after record %d: the answer is %q, and %q without a crash", records, got, text)
		}
		w.check(t, records)
		if !w.killed {
			return records - 1
		}
	}
}

// memo has the answers of a model by their number in a run.
type memo struct {
	mu    sync.Mutex
	turns map[int]*model.Turn
}

// remembered is a model that gives the same answer again.
type remembered struct {
	model.Model
	turns *memo
}

// Stream implements model.Model.
func (r remembered) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	number := item.LastTurn(req.Items)
	r.turns.mu.Lock()
	known := r.turns.turns[number]
	r.turns.mu.Unlock()
	if known == nil {
		turn, err := r.Model.Stream(ctx, req, emit)
		if err == nil {
			r.turns.mu.Lock()
			r.turns.turns[number] = clone(turn)
			r.turns.mu.Unlock()
		}
		return turn, err
	}
	if text := known.Text(); text != "" {
		if err := emit(model.Delta{Text: text}); err != nil {
			return nil, err
		}
	}
	return clone(known), nil
}

func clone(t *model.Turn) *model.Turn {
	c := *t
	c.Items, c.Calls = slices.Clone(t.Items), slices.Clone(t.Calls)
	return &c
}

// ModelName implements model.Named.
func (r remembered) ModelName() (provider, name string) {
	if n, ok := r.Model.(model.Named); ok {
		return n.ModelName()
	}
	return "custom", "model"
}

// world is one run with its store, and the processes that perform it.
type world struct {
	turns     *memo
	killAfter int // records; 0 = never
	killed    bool

	journal       memory.Journal
	conversations memory.Conversations
	passed        time.Duration // by the clock of leases

	mu    sync.Mutex
	calls map[string][]tool.Call // by their keys
	class map[string]tool.Class
}

// finish performs the run until it has ended, and returns its text. known is false if the outcome of a call
// is unknown.
func (w *world) finish(t testing.TB, newAgent func() *turnpike.Agent, input turnpike.Input) (text string, known bool) {
	t.Helper()
	w.calls, w.class = map[string][]tool.Call{}, map[string]tool.Class{}
	begin := time.Now()
	w.journal.LeaseNow = func() time.Time { return begin.Add(w.passed) }
	ctx, kill := context.WithCancelCause(t.Context())
	defer kill(nil)
	process := &ledger{Journal: &w.journal, Conversations: &w.conversations, left: w.killAfter, kill: func() {
		w.killed = true
		kill(errKilled)
	}}
	a := w.agent(t, newAgent, process)
	stream := a.Stream(ctx, input)
	id := stream.ID()
	if w.killAfter%2 == 1 { // streamed
		for _, err := range stream.Events() {
			if err != nil {
				break
			}
		}
	}
	r, err := stream.Result()
	for tries := 0; err != nil; tries++ {
		var waiting *turnpike.Waiting
		var lost *turnpike.ResumeError
		var decisions []turnpike.Decision
		switch {
		case tries > 100:
			t.Fatalf("killed after record %d: the run does not end: %v", w.killAfter, err)
		case errors.As(err, &waiting):
			for _, one := range waiting.Approvals {
				decisions = append(decisions, turnpike.Approve(one.ID))
			}
		case errors.As(err, &lost) && lost.Status() == 404: // killed before anything was stored
			t.Fatalf("killed after record %d: %v", w.killAfter, err)
		case !process.isDead():
			t.Fatalf("killed after record %d: %v", w.killAfter, err)
		}
		if process.isDead() {
			w.passed += journal.LeaseTTL + time.Second
			process = &ledger{Journal: &w.journal, Conversations: &w.conversations}
			a = w.agent(t, newAgent, process)
			ctx = t.Context()
		}
		r, err = a.Resume(ctx, id, decisions...).Result()
	}
	for _, step := range r.Steps {
		if slices.ContainsFunc(step.Calls, func(c turnpike.StepCall) bool { return c.Error }) {
			return r.Text, false
		}
	}
	return r.Text, true
}

// agent returns an agent of a new process.
func (w *world) agent(t testing.TB, newAgent func() *turnpike.Agent, process *ledger) *turnpike.Agent {
	t.Helper()
	a := newAgent()
	if a.Store != nil {
		t.Fatal("the agent has a Store; Crash gives it one")
	}
	a.Store, a.Model = store{process}, remembered{a.Model, w.turns}
	tools := make([]tool.Tool, len(a.Tools))
	for i, one := range a.Tools {
		tools[i] = watched{one, w}
	}
	a.Tools = tools
	resources := make([]tool.Provider, len(a.Resources))
	for i, one := range a.Resources {
		resources[i] = watchedResource{one, w}
	}
	a.Resources = resources
	return a
}

// watchedResource is a resource whose calls are counted.
type watchedResource struct {
	tool.Provider
	world *world
}

// Tools implements tool.Provider.
func (o watchedResource) Tools(c tool.Caller) []tool.Tool {
	var out []tool.Tool
	for _, one := range o.Provider.Tools(c) {
		out = append(out, watched{one, o.world})
	}
	return out
}

// watched is a tool whose calls are counted.
type watched struct {
	tool.Tool
	world *world
}

// Class implements tool.Classed.
func (o watched) Class() tool.Class { return tool.ClassOf(o.Tool) }

// Asks implements tool.Asker.
func (o watched) Asks(arguments json.RawMessage) bool {
	a, ok := o.Tool.(tool.Asker)
	return ok && a.Asks(arguments)
}

// Cost implements tool.Priced.
func (o watched) Cost() tool.Money {
	if p, ok := o.Tool.(tool.Priced); ok {
		return p.Cost()
	}
	return tool.Money{}
}

// EffectKey implements tool.Keyer.
func (o watched) EffectKey(arguments json.RawMessage) string {
	if k, ok := o.Tool.(tool.Keyer); ok {
		return k.EffectKey(arguments)
	}
	return ""
}

// Check implements tool.Checked.
func (o watched) Check() error {
	if c, ok := o.Tool.(tool.Checked); ok {
		return c.Check()
	}
	return nil
}

// Call implements tool.Tool.
func (o watched) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	o.world.mu.Lock()
	o.world.calls[c.Key] = append(o.world.calls[c.Key], c)
	o.world.class[c.Key] = tool.ClassOf(o.Tool)
	o.world.mu.Unlock()
	return o.Tool.Call(ctx, c)
}

// check returns what was executed too often.
func (w *world) check(t testing.TB, records int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(w.calls)) {
		made := w.calls[key]
		if w.class[key] == tool.Once && len(made) > 1 {
			t.Errorf("killed after record %d: call %s was executed %d times", records, key, len(made))
		}
		for _, c := range made {
			if c.IdempotencyKey != made[0].IdempotencyKey {
				t.Errorf("killed after record %d: call %s has the keys %s and %s", records, key, made[0].IdempotencyKey, c.IdempotencyKey)
			}
		}
	}
}

var errKilled = errors.New("the process was killed")

// ledger is the store as one process sees it: when the process is killed, nothing of it reaches the store.
type ledger struct {
	*memory.Journal
	*memory.Conversations
	kill func()

	mu   sync.Mutex
	left int // records until the process is killed; 0 = it is not
	dead bool
}

func (l *ledger) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *ledger) alive() error {
	if l.isDead() {
		return errKilled
	}
	return nil
}

// Append implements journal.Journal.
func (l *ledger) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errKilled
	}
	err := l.Journal.Append(ctx, lease, after, b)
	if err != nil || l.left == 0 {
		return err
	}
	if l.left--; l.left == 0 {
		l.dead = true
		l.kill()
		return errKilled
	}
	return nil
}

// Renew implements journal.Leases.
func (l *ledger) Renew(ctx context.Context, owner string) ([]journal.Lease, error) {
	if err := l.alive(); err != nil {
		return nil, err
	}
	return l.Journal.Renew(ctx, owner)
}

// Release implements journal.Leases.
func (l *ledger) Release(ctx context.Context, lease journal.Lease) error {
	if err := l.alive(); err != nil {
		return err
	}
	return l.Journal.Release(ctx, lease)
}

// Save implements journal.Conversations.
func (l *ledger) Save(ctx context.Context, org, principal string, c journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey) error {
	if err := l.alive(); err != nil {
		return err
	}
	return l.Conversations.Save(ctx, org, principal, c, ttl, keys...)
}

// Delete implements journal.Conversations.
func (l *ledger) Delete(ctx context.Context, org, principal string, key journal.ConversationKey) (bool, error) {
	if err := l.alive(); err != nil {
		return false, err
	}
	return l.Conversations.Delete(ctx, org, principal, key)
}

// OnClose implements internal.Ledger: a process is killed, and closes nothing.
func (*ledger) OnClose(func()) {}

// store is a turnpike.Store of a process.
type store struct{ process *ledger }

// Ledger implements turnpike.Store.
func (s store) Ledger() internal.Ledger { return s.process }

// Sessions implements turnpike.Store: they are in memory.
func (s store) Sessions() turnpike.SessionStore { return nil }

// Close implements turnpike.Store.
func (s store) Close() error { return nil }
