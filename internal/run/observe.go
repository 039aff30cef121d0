package run

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Observer is told what runs do while they do it. Its methods are called by the
// goroutines of runs: they must be quick, and safe for concurrent use. What
// begins happens under the context that is returned, and its end is told
// exactly once. Nothing that it is given may be kept or changed. Implemented by
// package telemetry.
type Observer interface {
	// Carry returns to, the context of a run that outlives its caller, with what
	// is to go on from the caller's.
	Carry(to, from context.Context) context.Context

	// Run: a run is accepted, was taken over, or is a relay.
	Run(ctx context.Context, r Begun) (context.Context, func(End))
	// Round lasts until the next one begins: a model call, with all attempts at
	// it, and the tool calls that it asked for.
	Round(ctx context.Context, n int) (context.Context, func())
	ModelCall(ctx context.Context, c ModelCall) (context.Context, func(ModelEnd))
	// ToolCall is told of every call that the gateway answers, executed or not.
	ToolCall(ctx context.Context, c ToolCall) (context.Context, func(ToolEnd))

	// Recorded: the audit has taken the entry.
	Recorded(org string, e audit.Entry)
}

// Begun is a run that begins or goes on.
type Begun struct {
	Org       string
	Principal string
	RunID     string
	Surface   string
	Grade     loop.Grade
	Model     string // as the caller named it
	Target    Target // that is tried first; zero for a run that was taken over
	TakenOver bool
}

// End is how a run ended.
type End struct {
	Reason  event.Reason // empty: it is not over, and another process goes on with it
	Rounds  int
	Calls   int // tool calls that were executed, each once
	Usage   model.Usage
	Status  int           // of a relay: the provider's; 0 = it has not answered
	ToFirst time.Duration // of a relay: until the first byte; 0 = none came
}

// ModelCall is one attempt at a model call.
type ModelCall struct {
	Round    int
	Attempt  int // 1 is the first
	Provider string
	Request  *model.Request
}

// ModelEnd is how an attempt ended.
type ModelEnd struct {
	Turn    *model.Turn // beside Err: what had come by then; may be nil
	Err     error
	ToFirst time.Duration // until the first that can be read; 0 = nothing was
}

// ToolCall is one attempt at a tool call.
type ToolCall struct {
	Round     int
	Index     int
	Attempt   int    // 0 = it is answered without execution
	ID        string // the provider's
	Name      string // as the model wrote it
	Server    string // empty for a name that nobody owns
	Arguments []byte // JSON, or nil
}

// ToolEnd is how it ended.
type ToolEnd struct {
	Outcome loop.Outcome
	Text    string // what the model is told
	Fatal   bool   // the run ends because of it
}

// carried returns the context of a durable run that the caller of ctx starts.
func (r *Runner) carried(ctx context.Context) context.Context {
	if r.o.Observer == nil {
		return r.base
	}
	return r.o.Observer.Carry(r.base, ctx)
}

// watched is what the observer knows of a run: the round that is open.
type watched struct {
	round context.Context // nil = none is
	index int
	end   func()
}

// observed performs play under the eyes of the observer, if there is one.
func (d *drive) observed(takenOver bool, play func() error) error {
	if d.o.Observer == nil {
		return play()
	}
	b := Begun{
		Org: d.lease.Org, Principal: d.req.Principal, RunID: d.lease.RunID, Surface: d.req.Surface,
		Grade: d.req.Grade, Model: d.req.Model, TakenOver: takenOver,
	}
	if a := d.state.Accepted; a != nil {
		b.Model = a.Model
	}
	if len(d.req.Targets) > 0 {
		b.Target = d.req.Targets[0]
	}
	ctx, end := d.o.Observer.Run(d.ctx, b)
	d.ctx = ctx
	err := play()
	d.closeRound()
	end(d.runEnd())
	return err
}

func (d *drive) runEnd() End {
	end := End{Rounds: d.state.Spent.Rounds, Calls: d.state.CallsStarted, Usage: d.state.Usage, Status: d.passed.status, ToFirst: d.timing.toFirst()}
	switch {
	case d.state.Finished != nil:
		end.Reason = d.state.Finished.Reason
	case d.state.ActiveSince == 0:
		end.Reason = event.Waiting
	}
	return end
}

// toFirst returns how long the first of the answer took, 0 if nothing came.
func (c timing) toFirst() time.Duration {
	if c.first.IsZero() {
		return 0
	}
	return max(c.first.Sub(c.sent), 1)
}

// inRound returns the context of what belongs to the round.
func (d *drive) inRound(n int) context.Context {
	if d.o.Observer == nil {
		return d.ctx
	}
	if w := &d.watched; w.round == nil || w.index != n {
		d.closeRound()
		w.index = n
		w.round, w.end = d.o.Observer.Round(d.ctx, n)
	}
	return d.watched.round
}

func (d *drive) closeRound() {
	if d.watched.round != nil {
		d.watched.end()
		d.watched = watched{}
	}
}

// modelCalled tells of a model call that begins.
func (d *drive) modelCalled(a loop.CallModel, req *model.Request) (context.Context, func(*model.Turn, error)) {
	if d.o.Observer == nil {
		return d.ctx, func(*model.Turn, error) {}
	}
	ctx, end := d.o.Observer.ModelCall(d.inRound(a.Round), ModelCall{
		Round: a.Round, Attempt: a.Attempt, Provider: d.req.Targets[a.Target].Provider, Request: req,
	})
	return ctx, func(turn *model.Turn, err error) { end(ModelEnd{turn, err, d.timing.toFirst()}) }
}

// toolCalled tells of a tool call that begins, in the round of ctx.
func (d *drive) toolCalled(ctx context.Context, round int, c loop.Call, attempt int) (context.Context, func(ToolEnd)) {
	if d.o.Observer == nil {
		return ctx, func(ToolEnd) {}
	}
	call := ToolCall{Round: round, Index: c.Index, Attempt: attempt, ID: c.ProviderID, Name: c.Name, Arguments: d.args[c.Key].arguments}
	if c.Prepared != nil {
		call.Server = c.Prepared.Server
	}
	return d.o.Observer.ToolCall(ctx, call)
}

// toolEnd returns how an execution ended, as far as it is known. The model reads
// nothing of one that ends the run.
func toolEnd(r toolexec.Done, err error) ToolEnd {
	var fatal tool.Fatal
	end := ToolEnd{Outcome: r.Outcome, Fatal: errors.As(err, &fatal)}
	if err == nil {
		end.Text = r.Text
	}
	return end
}

// toolAnswered tells of a call that got its result without execution.
func (d *drive) toolAnswered(c loop.Call, o loop.Outcome, text string) {
	if d.o.Observer == nil || d.state.Turn == nil {
		return
	}
	round := d.state.Turn.Round
	_, end := d.toolCalled(d.inRound(round), round, c, 0)
	end(ToolEnd{Outcome: o, Text: text})
}

// recorded tells of entries that the audit has taken.
func (d *drive) recorded(entries ...audit.Entry) {
	if d.o.Observer == nil {
		return
	}
	for _, e := range entries {
		d.o.Observer.Recorded(d.lease.Org, e)
	}
}
