package run

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/resulttool"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) } // O01

// journal is a Journal of one run that others can write to and that can fail.
type memoryJournal struct {
	mu    sync.Mutex
	facts []loop.Fact
	rows  map[string]any
	fail  func(loop.Body) error // asked for every fact; nil = never
}

// Append implements Journal.
func (l *memoryJournal) Append(ctx context.Context, _ journal.Lease, after int64, b journal.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if last := int64(len(l.facts)); last > after {
		return &journal.Behind{Facts: append([]loop.Fact(nil), l.facts[after:]...)}
	} else if last < after {
		return fmt.Errorf("the journal ends at %d, not at %d", last, after)
	}
	for _, f := range b.Facts {
		if l.fail != nil {
			if err := l.fail(f.Body); err != nil {
				return err
			}
		}
	}
	l.facts = append(l.facts, b.Facts...)
	for _, r := range b.Rows {
		if l.rows == nil {
			l.rows = map[string]any{}
		}
		l.rows[r.Ref] = r.Value
	}
	return nil
}

// write appends a fact as somebody without the lease does.
func (l *memoryJournal) write(body loop.Body) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts = append(l.facts, loop.Fact{Seq: int64(len(l.facts)) + 1, At: time.Now().UnixMilli(), Version: loop.Version, Body: body})
}

func (l *memoryJournal) kinds() []loop.Kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]loop.Kind, len(l.facts))
	for i, f := range l.facts {
		out[i] = f.Body.Kind()
	}
	return out
}

// done returns how the calls ended, in the order in which they did.
func (l *memoryJournal) done() []loop.CallDone {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []loop.CallDone
	for _, f := range l.facts {
		if d, ok := f.Body.(loop.CallDone); ok {
			out = append(out, d)
		}
	}
	return out
}

// replays fails the test unless the rules allow every fact in its place.
func (l *memoryJournal) replays(t *testing.T) loop.State {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var s loop.State
	var head journal.Summary
	for _, f := range l.facts {
		if err := loop.Allowed(s, f); err != nil {
			t.Errorf("fact %d: %v", f.Seq, err)
		}
		s = loop.Apply(s, f)
		if head = head.After(f); head.Counts != s.Counts {
			t.Errorf("after fact %d the list of runs counts %+v, the rules %+v", f.Seq, head.Counts, s.Counts)
		}
	}
	return s
}

// notes is a Sink that remembers.
type notes struct {
	mu     sync.Mutex
	events []event.Event
	at     []event.Position
	fail   func(event.Event) error
}

// Emit implements Sink.
func (n *notes) Emit(at event.Position, e event.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events, n.at = append(n.events, e), append(n.at, at)
	if n.fail != nil {
		return n.fail(e)
	}
	return nil
}

// end returns the one Finished event, which is the last.
func (n *notes) end(t *testing.T) event.Finished {
	t.Helper()
	for i, e := range n.events {
		f, ok := e.(event.Finished)
		if ok != (i == len(n.events)-1) {
			t.Fatalf("event %d of %d is %T", i, len(n.events), e)
		}
		if ok {
			return f
		}
	}
	t.Fatal("no event")
	return event.Finished{}
}

func (n *notes) finished() bool {
	for _, e := range n.events {
		if _, ok := e.(event.Finished); ok {
			return true
		}
	}
	return false
}

// speaker is a Model that answers with its turns in order, then with the last.
type speaker struct {
	turns []func(ctx context.Context, emit func(model.Delta) error) (*model.Turn, error)

	mu    sync.Mutex
	asked []model.Request
}

// Stream implements model.Model.
func (s *speaker) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	s.mu.Lock()
	n := len(s.asked)
	s.asked = append(s.asked, *req)
	s.mu.Unlock()
	turn, err := s.turns[min(n, len(s.turns)-1)](ctx, emit)
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	return turn, err
}

// results returns what the model was told by tools at its n-th call.
func (s *speaker) results(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, it := range s.asked[n].Items {
		if it.Kind == item.ToolResult {
			out = append(out, it.Text())
		}
	}
	return out
}

func (s *speaker) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

type answer = func(context.Context, func(model.Delta) error) (*model.Turn, error)

// says answers with text, which is also streamed.
func says(text string) answer {
	return func(_ context.Context, emit func(model.Delta) error) (*model.Turn, error) {
		if err := emit(model.Delta{Text: text}); err != nil {
			return nil, err
		}
		return &model.Turn{Items: []item.Item{item.NewText(item.Assistant, text)}, Stop: model.StopEnd, Usage: model.Usage{Input: 10, Output: 5}}, nil
	}
}

// asks answers with complete calls of the named tools.
func asks(names ...string) answer {
	return func(context.Context, func(model.Delta) error) (*model.Turn, error) { return turnOf(names...), nil }
}

func turnOf(names ...string) *model.Turn {
	turn := &model.Turn{Stop: model.StopCalls, Usage: model.Usage{Input: 10, Output: 5}}
	for i, name := range names {
		c := model.Call{ID: fmt.Sprint("p", i), Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, i), Complete: true}
		turn.Calls, turn.Items = append(turn.Calls, c), append(turn.Items, c.Item())
	}
	return turn
}

func breaks(class model.ErrorClass) answer {
	return func(context.Context, func(model.Delta) error) (*model.Turn, error) {
		return nil, &model.Error{Class: class, Message: "broken"}
	}
}

// box is a Source of tools that are functions. A name that begins with "read"
// only reads.
type box map[string]func(ctx context.Context, c tool.Call) (tool.Result, error)

// List implements tool.Source.
func (b box) List(context.Context) ([]tool.Tool, error) {
	var out []tool.Tool
	for name, f := range b {
		out = append(out, boxed{name, f})
	}
	return out, nil
}

type boxed struct {
	name string
	f    func(context.Context, tool.Call) (tool.Result, error)
}

// Definition implements tool.Tool.
func (b boxed) Definition() tool.Definition {
	return tool.Definition{Name: b.name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

// Class implements tool.Classed.
func (b boxed) Class() tool.Class {
	if len(b.name) >= 4 && b.name[:4] == "read" {
		return tool.Read
	}
	return tool.Once
}

// Call implements tool.Tool.
func (b boxed) Call(ctx context.Context, c tool.Call) (tool.Result, error) { return b.f(ctx, c) }

func echoes(_ context.Context, c tool.Call) (tool.Result, error) {
	return tool.Text(string(c.Arguments)), nil
}

// waits blocks until its context ends; entered is told when it begins.
func waits(entered chan<- struct{}) func(context.Context, tool.Call) (tool.Result, error) {
	return func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	}
}

// stage is everything that one run needs.
type stage struct {
	journal       *memoryJournal
	sink          *notes
	model         *speaker
	conversations *cupboard
	req           *Request
	runner        *Runner
}

func newStage(t *testing.T, tools box, turns ...answer) *stage {
	t.Helper()
	s := &stage{journal: &memoryJournal{}, sink: &notes{}, model: &speaker{turns: turns}, conversations: &cupboard{}}
	s.req = &Request{
		Who:    Who{Org: "o", Principal: "p", Surface: "test"},
		Input:  Input{Conversation: Conversation{Items: []item.Item{item.NewText(item.User, "go")}}, Model: "m", Targets: []route.Target{{Target: loop.Target{Provider: "up", Model: "m", Images: true}, Client: s.model}}},
		Policy: loop.Policy{Grade: loop.Light, Limits: budget.Limits{}.Clamp(budget.MaxRounds), Parallelism: loop.Parallel},
	}
	if tools != nil {
		s.req.Servers = []catalog.Server{{Name: "s", Source: tools}}
	}
	c := catalog.New(catalog.Options{})
	t.Cleanup(c.Close)
	s.runner = New(Options{
		Results: resulttool.Reader{},
		Catalog: c, Journal: s.journal, Conversations: s.conversations,
		Jitter: func(time.Duration) time.Duration { return 0 },
	})
	return s
}

// run performs the request; it must be recorded.
func (s *stage) run(t *testing.T) event.Finished {
	t.Helper()
	if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
		t.Fatal(err)
	}
	state := s.journal.replays(t)
	if state.Finished == nil {
		t.Errorf("the journal has no end: %v", s.journal.kinds())
	}
	end := s.sink.end(t)
	if end.Rounds != state.Counts.Rounds || end.ToolCalls != state.Counts.Calls {
		t.Errorf("the last event counts %d rounds and %d tool calls, the rules %+v", end.Rounds, end.ToolCalls, state.Counts)
	}
	return end
}

// cupboard is a Conversations in memory, without the methods for histories.
type cupboard struct {
	journal.Conversations
	mu   sync.Mutex
	kept map[string]journal.Conversation
	fail error
}

// Save implements Conversations.
func (c *cupboard) Save(_ context.Context, org, principal string, h journal.Conversation, _ time.Duration, keys ...journal.ConversationKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	if c.kept == nil {
		c.kept = map[string]journal.Conversation{}
	}
	for _, key := range keys {
		c.kept[org+"/"+principal+"/"+key.String()] = h
	}
	return nil
}

// Find implements Conversations.
func (c *cupboard) Find(_ context.Context, org, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.kept[org+"/"+principal+"/"+key.String()]; ok {
		return &h, nil
	}
	return nil, nil
}

func (c *cupboard) Delete(_ context.Context, org, principal string, key journal.ConversationKey) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := org + "/" + principal + "/" + key.String()
	_, ok := c.kept[name]
	delete(c.kept, name)
	return ok, nil
}
