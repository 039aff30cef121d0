package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Begun is a run that begins or is continued.
type Begun struct {
	Org       string
	Principal string
	RunID     string
	Surface   string
	Grade     loop.Grade
	Relay     RelayReason  // why it is a relay; "" = it is none
	Model     string       // as the caller named it
	Target    route.Target // the first to be tried; zero for a run that was taken over
	TakenOver bool
}

// End is how a run ended.
type End struct {
	Reason  event.Reason // empty: another process continues it
	Rounds  int
	Calls   int // as in loop.Counts
	Usage   model.Usage
	Status  int           // of a relay: the provider's HTTP status; 0 = it did not answer
	ToFirst time.Duration // of a relay: until the first byte of the answer; 0 = none came
}

// ModelCall is one attempt at a model call.
type ModelCall struct {
	Round    int
	Attempt  int // 1 is the first
	Provider string
	Request  *model.Request
	Summary  bool // it writes the summary of a compaction; Attempt is the number of that in the run
}

// ModelEnd is how an attempt ended.
type ModelEnd struct {
	Turn    *model.Turn // with Err: what was received before it; may be nil
	Err     error
	ToFirst time.Duration // until the first readable output; 0 = there was none
}

// ToolCall is one attempt at a tool call.
type ToolCall struct {
	Round     int
	Index     int
	Attempt   int    // 0 = it is answered without being executed
	ID        string // the provider's
	Name      string // as the model wrote it
	Server    string // empty for an unknown name
	Arguments []byte // JSON, or nil

	Approval string        // id of the approval of the call; "" = it was not asked for
	Waited   time.Duration // from the question to the decision; 0 = it is not decided
}

// ToolEnd is how a tool call ended.
type ToolEnd struct {
	Outcome loop.Outcome
	Text    string // the result that the model gets
	Fatal   bool   // it ends the run
}

// runObserver reports one run to the [Observer]. Without an Observer its methods do
// nothing. Only recorded and toolCalled are safe for concurrent use.
type runObserver struct {
	observer Observer // nil = none

	round context.Context // of the open round; nil = none is open
	index int             // of the open round
	end   func()          // ends the open round

	trace       map[string]string // trace context of the first owner's Observer.Run; nil = none
	traceStored bool              // the journal has it
}

// hookRan reports what a hook has decided.
func (o *runObserver) hookRan(ctx context.Context, kind loop.HookType, ran loop.HookRan) {
	if o.observer != nil {
		o.observer.HookRan(ctx, kind, ran)
	}
}

// begin reports a run that begins or is continued, and returns the context of the run.
func (o *runObserver) begin(ctx context.Context, b Begun) (context.Context, func(End)) {
	if o.observer == nil {
		return ctx, func(End) {}
	}
	if o.trace != nil {
		ctx = o.observer.WithTrace(ctx, o.trace)
	}
	ctx, end := o.observer.Run(ctx, b)
	if !o.traceStored {
		o.trace = o.observer.Trace(ctx)
	}
	return ctx, func(e End) {
		o.closeRound()
		end(e)
	}
}

// recallTrace reads the trace context that an earlier owner has stored. Without one, or
// if it cannot be read, the run starts a new trace.
func (o *runObserver) recallTrace(rows map[string]json.RawMessage) {
	text, stored := rows[traceRef]
	if !stored {
		return
	}
	o.traceStored = true
	if json.Unmarshal(text, &o.trace) != nil {
		o.trace = nil
	}
}

// traceRows returns the row of the trace context, if it has to be stored now: durable says
// that the run is durable after the batch.
func (o *runObserver) traceRows(durable bool) []journal.Row {
	if len(o.trace) == 0 || o.traceStored || !durable {
		return nil
	}
	return []journal.Row{{Ref: traceRef, Value: o.trace}}
}

// inRound returns the context of round n of a run with ctx. It opens the round and closes
// the one before.
func (o *runObserver) inRound(ctx context.Context, n int) context.Context {
	if o.observer == nil {
		return ctx
	}
	if o.round == nil || o.index != n {
		o.closeRound()
		o.index = n
		o.round, o.end = o.observer.Round(ctx, n)
	}
	return o.round
}

func (o *runObserver) closeRound() {
	if o.round != nil {
		o.end()
		o.round, o.end = nil, nil
	}
}

// modelCalled reports a model call that begins, in the round of ctx.
func (o *runObserver) modelCalled(ctx context.Context, c ModelCall) (context.Context, func(ModelEnd)) {
	if o.observer == nil {
		return ctx, func(ModelEnd) {}
	}
	return o.observer.ModelCall(ctx, c)
}

// compacted reports an attempt to make a prompt shorter.
func (o *runObserver) compacted(c loop.Compacted) {
	if o.observer != nil {
		o.observer.Compacted(c)
	}
}

// toolCalled reports a tool call that begins, in the round of ctx.
func (o *runObserver) toolCalled(ctx context.Context, c ToolCall) (context.Context, func(ToolEnd)) {
	if o.observer == nil {
		return ctx, func(ToolEnd) {}
	}
	return o.observer.ToolCall(ctx, c)
}

// recorded reports audit entries of the org that were stored.
func (o *runObserver) recorded(org string, entries ...audit.Entry) {
	if o.observer == nil {
		return
	}
	for _, e := range entries {
		o.observer.Recorded(org, e)
	}
}

// toFirst returns the time until the first output, 0 if there was none.
func (c timing) toFirst() time.Duration {
	if c.first.IsZero() {
		return 0
	}
	return max(c.first.Sub(c.sent), 1)
}

// toolEnd returns how an execution ended. An error that ends the run has no text, because
// the model does not get it.
func toolEnd(r toolexec.Done, err error) ToolEnd {
	var fatal tool.Blocked
	end := ToolEnd{Outcome: r.Outcome, Fatal: errors.As(err, &fatal)}
	if err == nil {
		end.Text = r.Text()
	}
	return end
}

// endOf returns how a run ended.
func endOf(s *loop.State, m *modelCaller) End {
	end := End{Rounds: s.Spent.Rounds, Calls: s.Counts.Calls, Usage: s.Usage, Status: m.relayed.status, ToFirst: m.timing.toFirst()}
	switch {
	case s.Finished != nil:
		end.Reason = s.Finished.Reason
	case s.ActiveSince == 0:
		end.Reason = event.Reason(journal.Waiting)
		if s.Paused != nil {
			end.Reason = event.Reason(journal.Paused)
		}
	}
	return end
}
