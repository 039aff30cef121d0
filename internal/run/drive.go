package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// drive is one run, owned by the goroutine that performs it.
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

	account *ledger.Account // what the run retains is charged to it

	ctx       context.Context // of effects: ends with the caller, the deadline or the sink
	cancel    context.CancelCauseFunc
	feed      *feed                          // of a durable run: where callers follow it
	aside     bool                           // the run is set aside
	givenUp   error                          // why the run is not gone on with; nil = it is
	retelling bool                           // a run that is over is only told
	said      bool                           // something of the attempt has reached the caller
	timing    timing                         // of the latest model call
	passed    passedOn                       // of a relay
	cut       map[loop.CallKey]time.Duration // how long calls took that were cut off by the end of the run
	watched   watched

	overdrawn *ledger.Refused // why the run may retain no more, once it may not
	log       *slog.Logger

	dates   clock.Steady // of the run's facts; see now
	written time.Time    // before the last append that extended the lease; monotonic
	suspect bool         // it has a turn among the suspects, or waits for one
	unsure  bool         // whether the journal was opened is not known
	leased  bool         // the lease is known to be ours; guarded by Runner.mu
	unstop  func() bool  // ends the watch over Runner.base
}

func (r *Runner) newDrive(ctx context.Context, req *Request, sink Sink) *drive {
	d := &drive{
		Runner: r, req: req, sink: sink, account: req.Account,
		lease: Lease{Org: req.Org, RunID: r.o.NewID("run_"), Epoch: 1, Owner: r.o.Owner},
	}
	d.log = r.o.Log
	if req.Raw == nil {
		d.log = d.log.With("run", d.lease.RunID, "org", req.Org)
	}
	d.dates = clock.NewSteady(r.o.Now())
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	return d
}

// now returns the time at which the next fact of the run happens, in Unix
// milliseconds. It is never before the last fact, and does not follow a step of
// the wall clock: between two facts of one owner lies the time that has passed.
func (d *drive) now() int64 { return max(d.dates.Now().UnixMilli(), d.state.At) }

// date makes the run's clock go on from the last fact if the wall clock is behind
// it: it was set back since, or the fact was written elsewhere.
func (d *drive) date() {
	if last := time.UnixMilli(d.state.At); last.After(d.dates.Now()) {
		d.dates = clock.NewSteady(last)
	}
}

// perform opens the journal and plays the run to its end.
func (d *drive) perform() error {
	if err := d.accept(); err != nil {
		return err
	}
	return d.race()
}

// race plays the run against its deadline.
func (d *drive) race() error {
	defer d.expire()()
	return d.observed(false, d.play)
}

// expire ends the run's context at the deadline, unless stop is called before.
// The relay has none.
func (d *drive) expire() (stop func()) {
	at := d.state.DeadlineAt()
	if d.req.Raw != nil || at == 0 {
		return func() {}
	}
	timer := time.AfterFunc(time.Duration(at-d.now())*time.Millisecond, func() { d.cancel(errDeadline) })
	return func() { timer.Stop() }
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
			if err = d.park(a); err == nil {
				return nil
			}
		case loop.Finish:
			if err = d.finish(a); err == nil {
				return nil
			}
		default:
			panic(fmt.Sprintf("the rules gave an action that nobody performs: %T", a))
		}
		if err != nil && !errors.Is(err, errDecideAgain) {
			return err
		}
	}
}

// noticeEnd turns the end of the run's context into a fact. It returns an error
// where somebody else is to go on with the run.
func (d *drive) noticeEnd() error {
	if d.yields() {
		return errHandOver
	}
	if d.doubtful() {
		if err := d.renew(); err != nil {
			return unavailable(err)
		}
	}
	if d.ctx.Err() == nil || d.state.Ended != "" {
		return nil
	}
	switch cause := context.Cause(d.ctx); {
	case errors.As(cause, &d.overdrawn):
		return d.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Memory})
	case errors.Is(cause, ErrFenced):
		return ErrFenced
	case errors.Is(cause, errDeadline):
		return d.append(nil, loop.Expired{})
	case errors.Is(cause, errMeddled):
		return d.catchUp()
	case errors.Is(cause, errStopped) && d.state.Grade == loop.Durable:
		return errHandOver
	case errors.Is(cause, errStopped):
		return d.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost})
	}
	return d.append(nil, loop.CancelRequested{By: d.req.Principal, Cause: event.CallerGone})
}

// catchUp folds what somebody else has written to end the run.
func (d *drive) catchUp() error {
	if err := d.append(nil); err != nil || d.state.Ended != "" {
		return err
	}
	return fmt.Errorf("run %s: %w, and not to end it", d.lease.RunID, errMeddled)
}

// yields reports whether the run is to be left to its next owner: the process
// is stopping, and the run can be gone on with.
func (d *drive) yields() bool {
	return d.state.Grade == loop.Durable && d.yielding.Load()
}

// emit reports e. A sink that fails ends the run.
func (d *drive) emit(e event.Event) {
	if err := d.sink.Emit(e); err != nil {
		d.cancel(fmt.Errorf("%w: %w", errNobody, err))
	}
}
