package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options are what a Runner needs. Catalog, Journal and Handovers are required.
type Options struct {
	Catalog   *catalog.Catalog
	Journal   Journal
	Handovers Handovers

	Log    *slog.Logger                            // nil = discard
	Now    func() time.Time                        // nil = time.Now
	NewID  func(prefix string) string              // nil = id.New
	Jitter func(limit time.Duration) time.Duration // nil = evenly spread over 0..limit
}

// Runner runs requests. It is safe for concurrent use and holds nothing between
// runs but the count of those that are under way.
type Runner struct {
	o     Options
	slots slots
}

// New returns a Runner.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = id.New
	}
	if o.Jitter == nil {
		o.Jitter = func(limit time.Duration) time.Duration { return rand.N(limit + 1) }
	}
	return &Runner{o: o}
}

// The causes for which a run's context ends.
var (
	errDeadline = errors.New("the run's active time is used up")
	errNobody   = errors.New("nobody is left to report to")
)

// drive is one run, owned by the goroutine that called Run.
type drive struct {
	*Runner
	req    *Request
	sink   Sink
	lease  Lease
	state  loop.State
	items  map[string][]item.Item // by ref: what the journal's rows hold
	args   map[loop.CallKey]prepared
	tools  *catalog.Set
	full   map[string]string // results that were cut, whole, by the id that the model knows
	failed *model.Error      // the last failed attempt, for the caller's eyes

	ctx    context.Context // of effects: ends with the caller, the deadline or the sink
	cancel context.CancelCauseFunc
	said   bool // something of the attempt has reached the caller
	log    *slog.Logger
}

// Run performs the request and reports to sink until the Finished event, which
// comes exactly once. It returns when everything that it started has ended. An
// error means that the run could not be recorded, or was not accepted because
// the org has no slot (a [fault.Error]); no Finished was emitted then.
//
// The end of ctx is the caller's leaving: it cancels the model call and every
// tool.
func (r *Runner) Run(ctx context.Context, req *Request, sink Sink) error {
	d := &drive{
		Runner: r, req: req, sink: sink,
		lease: Lease{Org: req.Org, RunID: r.o.NewID("run_"), Epoch: 1},
	}
	if d.log = r.o.Log; req.Raw == nil {
		d.log = d.log.With("run", d.lease.RunID, "org", req.Org)
	}
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	defer d.cancel(nil)
	if req.Raw == nil {
		release, err := r.slots.take(req.Org, req.Concurrency)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := d.accept(); err != nil {
		return err
	}
	if req.Raw == nil { // the relay has no deadline
		deadline := time.UnixMilli(d.state.DeadlineAt())
		timer := time.AfterFunc(deadline.Sub(r.o.Now()), func() { d.cancel(errDeadline) })
		defer timer.Stop()
	}
	return d.play()
}

// play asks the rules what to do next, and does it, until the run is over.
func (d *drive) play() error {
	for {
		if err := d.noticeEnd(); err != nil {
			return err
		}
		var err error
		switch a := loop.Decide(d.state).(type) {
		case loop.Discover:
			err = d.discover()
		case loop.CallModel:
			err = d.callModel(a)
		case loop.PrepareTools:
			err = d.prepare(a)
		case loop.AnswerCalls:
			err = d.answer(a)
		case loop.ExecuteTools:
			err = d.execute(a)
		case loop.Interrupt:
			return d.park(a)
		case loop.Finish:
			return d.finish(a)
		default:
			panic(fmt.Sprintf("the rules gave an action that nobody performs: %T", a))
		}
		if err != nil && !errors.Is(err, errDecideAgain) {
			return err
		}
	}
}

// accept opens the journal with what was asked for.
func (d *drive) accept() error {
	req := d.req
	body := loop.Accepted{
		RunID: d.lease.RunID, Org: req.Org, Principal: req.Principal, Surface: req.Surface, Grade: req.Grade,
		Raw: req.Raw != nil, Model: req.Model, Limits: req.Limits, Parallelism: req.Parallelism,
		AbortOnTool: req.AbortOnTool, Guard: req.Guard,
	}
	for _, t := range req.Targets {
		body.Targets = append(body.Targets, loop.Target{Provider: t.Provider, Model: t.Name})
	}
	if body.Raw {
		return d.append(nil, body)
	}
	items, err := d.splice(req.Items)
	if err != nil {
		return err
	}
	if err := d.append(d.store("input", items), body, loop.InputAdded{ItemsRef: "input", By: "client", Cut: len(d.full) > 0}); err != nil {
		return err
	}
	d.emit(event.Started{RunID: d.lease.RunID, Model: req.Model, At: d.o.Now()})
	return nil
}

// noticeEnd turns the end of the run's context into a fact.
func (d *drive) noticeEnd() error {
	if d.ctx.Err() == nil || d.state.Ended != "" {
		return nil
	}
	if errors.Is(context.Cause(d.ctx), errDeadline) {
		return d.append(nil, loop.Expired{})
	}
	return d.append(nil, loop.CancelRequested{By: d.req.Principal, Cause: event.CallerGone})
}

// emit reports e. A sink that fails ends the run.
func (d *drive) emit(e event.Event) {
	if err := d.sink.Emit(e); err != nil {
		d.cancel(fmt.Errorf("%w: %w", errNobody, err))
	}
}
