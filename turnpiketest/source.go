package turnpiketest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

var _ tool.Announcer = (*Source)(nil)

// Source is a [tool.Source] of scripted tools in the same process. It is safe
// for concurrent use.
type Source struct {
	calls ledger

	mu      sync.Mutex // guards what follows
	tools   []Tool
	err     error
	delay   time.Duration
	lists   int
	changes uint64
}

// NewSource returns a source that lists the tools, in this order.
func NewSource(tools ...Tool) *Source { return &Source{tools: slices.Clone(tools)} }

// List implements [tool.Source].
func (s *Source) List(ctx context.Context) ([]tool.Tool, error) {
	s.mu.Lock()
	s.lists++
	tools, err, delay := s.tools, s.err, s.delay
	s.mu.Unlock()
	switch {
	case delay > 0 && !sleep(ctx, delay):
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	out := make([]tool.Tool, len(tools))
	for i, t := range tools {
		out[i] = &local{Tool: t, calls: &s.calls}
	}
	return out, nil
}

// Fail makes every List fail with err, as a server that is down; nil ends it.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Delay makes every List take as long.
func (s *Source) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// SetTools replaces the tools and announces it. Calls that are under way go on.
func (s *Source) SetTools(tools ...Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = slices.Clone(tools)
	s.changes++
}

// Changes implements [tool.Announcer].
func (s *Source) Changes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// Lists returns how often List was asked.
func (s *Source) Lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// Calls returns the calls of all tools, in the order in which they began.
func (s *Source) Calls() []ToolCall { return s.calls.list() }

// Peak returns how many calls were under way at the same time, at most.
func (s *Source) Peak() int { return s.calls.most() }

// Await waits until n calls have begun in all. The error is the cause of ctx's
// end.
func (s *Source) Await(ctx context.Context, n int) error { return s.calls.await(ctx, n) }

// local is a Tool of a Source.
type local struct {
	Tool
	calls *ledger
}

// Definition implements [tool.Tool].
func (l *local) Definition() tool.Definition { return l.definition() }

// Class implements [tool.Classed].
func (l *local) Class() tool.Class { return cmp.Or(l.Tool.Class, tool.Once) }

// Call implements [tool.Tool].
func (l *local) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	end := l.calls.begin(ToolCall{Tool: l.Name, Arguments: c.Arguments, Key: cmp.Or(c.IdempotencyKey, c.Key)})
	r, err := l.serve(ctx, c.Arguments)
	end(err)
	return r, err
}
