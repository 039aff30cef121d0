package turnpiketest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// ToolCall is one call that a tool has got.
type ToolCall struct {
	Tool      string
	Arguments json.RawMessage // as they came
	Start     time.Time
	End       time.Time // zero while the call is under way
	Err       error     // how it failed; the cause of the context's end where the caller left

	// Key names the call: the idempotency key where one came (over MCP in _meta,
	// and not for tools that only read), in the process otherwise round.index.
	Key string
}

// ledger keeps calls in the order in which they began. The zero value is empty.
type ledger struct {
	mu    sync.Mutex // guards what follows
	calls []ToolCall
	now   int
	peak  int
	begun chan struct{} // closed when a call begins; nil = nobody waits
}

// begin records a call and returns what records its end.
func (l *ledger) begin(c ToolCall) (end func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Arguments = slices.Clone(c.Arguments)
	c.Start = time.Now()
	at := len(l.calls)
	l.calls = append(l.calls, c)
	l.now++
	l.peak = max(l.peak, l.now)
	if l.begun != nil {
		close(l.begun)
		l.begun = nil
	}
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls[at].End, l.calls[at].Err = time.Now(), err
		l.now--
	}
}

// list returns the calls so far.
func (l *ledger) list() []ToolCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// most returns how many calls were under way at the same time, at most.
func (l *ledger) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peak
}

// await waits until n calls have begun.
func (l *ledger) await(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		if len(l.calls) >= n {
			l.mu.Unlock()
			return nil
		}
		if l.begun == nil {
			l.begun = make(chan struct{})
		}
		begun := l.begun
		l.mu.Unlock()
		select {
		case <-begun:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
