package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// Follow says which events of a run to report.
type Follow struct {
	Org, RunID string

	// After is the position of the last event that the caller has; the zero value = none.
	After event.Position

	// Account is charged with what the follower holds; nil = nothing is counted.
	Account *memlimit.Account

	// ToWaiting ends the report at an event.Waiting that nothing follows for the time WaitFor, or at
	// an event.Paused that nothing follows for the time PausedFor.
	// Otherwise it goes on when the run is resumed.
	ToWaiting bool
	WaitFor   time.Duration
	PausedFor time.Duration

	// Client says that the follower is a client of the run, which stays for its end: approvals of the run are shown as
	// those of a client that is connected. A follower with WaitFor is one, too.
	Client bool

	// Part reports only this part of the run, from 1, as if it were the whole: see
	// run.Request.Answers. 0 = the whole run. After must be zero.
	Part int

	// Now ends the report, without an error, at what there is now.
	Now bool

	// Final leaves out the pieces of model calls that were made again because their
	// owner died. The pieces of a call in progress are reported: if its owner dies later,
	// the caller has had them.
	Final bool
}

// How a follower waits for what the store does not have yet: it looks again after
// pollFirst, then after twice the time before, up to the longest. What happens in this
// process wakes it at once.
const (
	pollFirst   = 10 * time.Millisecond
	pollLongest = 5 * time.Second
	pollAlone   = 100 * time.Millisecond // in a process that performs no runs
)

// asideEvery is how often a follower of a run that is not performed here asks whether the
// run was set aside.
const asideEvery = 10 * time.Second

// followTimeout is how long a follower waits for a batch of the store. It is long because
// a thousand followers that have fallen behind read one after the other.
const followTimeout = time.Minute

// FollowStored is [Report] for a process that performs no runs. It looks at the store ten
// times a second.
func FollowStored(ctx context.Context, archive journal.Archive, f Follow, sink Sink) error {
	return Report(ctx, f, sink, Source{
		Archive: archive,
		Feed:    func() (*Feed, func()) { return nil, func() {} },
		Next:    func() <-chan struct{} { return nil },
		longest: pollAlone,
	})
}

// Source is where a follower gets a run's events from.
type Source struct {
	Archive journal.Archive
	Feed    func() (*Feed, func()) // of the run, if it is performed here; the function gives it back
	Next    func() <-chan struct{} // returns what is closed when the run has something new; nil = never
	Closing <-chan struct{}        // closed when this process ends; nil = never
	longest time.Duration          // between two looks at the store; 0 = pollLongest
}

// follower is one caller that follows a run.
type follower struct {
	Follow
	Source
	sink    emitter
	stored  *reader       // as far as it was read; nil = not at all
	here    bool          // the run is performed in this process
	patient time.Duration // the last wait; 0 = there was something new
	asked   time.Time     // when it was last asked whether the run is set aside; monotonic
	held    time.Time     // when an event.Waiting or event.Paused was reported that nothing follows yet; zero = not; monotonic
}

// Report reports the events of a run to the sink, from the one after f.After on, until the run
// has ended: from the feed where it has them, and from the store where not. It returns nil after
// the last event, and the cause of ctx when ctx ends. The error wraps org.ErrNotFound if the org
// has no such run; it is a [fault.Error] if the journal of the run cannot be read, or if this
// process hands the run over. An error of the sink is wrapped with [ErrSinkFailed].
func Report(ctx context.Context, f Follow, sink Sink, from Source) error {
	if f.Part > 0 {
		sink = &partSink{sink: sink, part: f.Part}
	}
	w := &follower{Follow: f, Source: from, sink: emitter{sink: sink, told: f.After, parts: f.Part}}
	defer w.leave()
	for {
		changed := w.Next()
		progress, err := w.step(ctx)
		switch {
		case err != nil:
			return err
		case w.sink.ended:
			return nil
		case progress:
			w.patient = 0
			if !w.sink.waits() {
				w.held = time.Time{}
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			continue
		case w.Now:
			return nil
		}
		if err := w.wait(ctx, changed); err != nil {
			return err
		}
	}
}

// step reports what there is, or a batch of it, and returns whether there was anything.
func (w *follower) step(ctx context.Context) (bool, error) {
	events, all, over, failed := w.readFeed()
	if len(events) > 0 {
		return true, w.tell(events)
	}
	if all && !over {
		return false, nil
	}
	if all && failed != nil {
		return false, failed
	}
	progress, err := w.readStore(ctx)
	switch {
	case err != nil, progress, w.sink.ended:
		return progress, err
	case failed != nil:
		return false, failed
	case over && w.ToWaiting && w.sink.waits() && w.heldFor() >= w.holdFor():
		w.sink.ended = true
		return false, nil
	case over && (w.asked.IsZero() || time.Since(w.asked) > asideEvery):
		w.asked = time.Now()
		return false, w.checkAside(ctx)
	}
	return false, nil
}

// readFeed returns the events that follow in the feed, and whether it has all that follow.
// It also returns whether the run is not performed here, or not any more, and why it did not
// come to its end here.
func (w *follower) readFeed() (events []placed, all, over bool, failed error) {
	feed, release := w.Feed()
	defer release()
	w.here = feed != nil
	if feed == nil {
		return nil, false, true, nil
	}
	over, failed = feed.ended() // before its events are read
	w.here = !over
	events, all = feed.after(w.sink.told)
	return events, all, over, failed
}

// tell emits events of the feed. An event that is larger than a batch is charged: the run,
// which is charged with it too, may end meanwhile.
func (w *follower) tell(events []placed) error {
	memory := w.Account.Share()
	defer memory.Close()
	if size := EventSize(events[0].event); size > journal.BatchBytes {
		if err := memory.Acquire(size); err != nil {
			return err
		}
	}
	for _, e := range events {
		if w.sink.ended {
			break
		}
		if err := w.sink.Emit(e.at, e.event); err != nil {
			return fmt.Errorf("%w: %w", ErrSinkFailed, err)
		}
	}
	return nil
}

// heldFor returns for how long the last event has been an event.Waiting or event.Paused.
func (w *follower) heldFor() time.Duration {
	if w.held.IsZero() {
		w.held = time.Now()
	}
	return time.Since(w.held)
}

// holdFor returns how long the report stays at the wait that was reported last.
func (w *follower) holdFor() time.Duration {
	if w.sink.paused {
		return w.PausedFor
	}
	return w.WaitFor
}

// wait waits until there may be something new.
func (w *follower) wait(ctx context.Context, rang <-chan struct{}) error {
	w.patient = min(max(pollFirst, 2*w.patient), cmp.Or(w.longest, pollLongest))
	if !w.held.IsZero() {
		w.patient = min(w.patient, max(time.Millisecond, w.holdFor()-w.heldFor()))
	}
	timer := time.NewTimer(w.patient)
	defer timer.Stop()
	closing := w.Closing
	if w.here { // its feed says when the run is handed over
		closing = nil
	}
	select {
	case <-rang:
		w.patient = pollFirst / 2
	case <-timer.C:
	case <-closing:
		return HandedOver(errClosing)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// readStore reports what the store has, or a batch of it.
func (w *follower) readStore(ctx context.Context) (bool, error) {
	if w.stored == nil {
		w.stored = newReader(w.Archive, w.Follow, &w.sink)
		w.stored.owned = func() bool {
			feed, release := w.Feed()
			defer release()
			return feed != nil && feed.hasBegun()
		}
	}
	limited, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	progress, err := w.stored.advance(limited)
	return progress, causeOf(ctx, err)
}

// causeOf returns err, or why ctx has ended if it has: an error that comes of its end says
// nothing of the store.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (w *follower) leave() {
	if w.stored != nil {
		w.stored.close()
	}
}

// checkAside returns an error if the run is set aside: nobody goes on with it.
func (w *follower) checkAside(ctx context.Context) error {
	head, err := w.Archive.Head(ctx, w.Org, w.RunID)
	switch {
	case err != nil:
		return causeOf(ctx, journal.ReadError(w.RunID, err))
	case head.Summary.Status == journal.IsAside:
		return journal.AsideError(w.RunID, head.Summary.Aside.Reason)
	}
	return nil
}

// emitter passes events on to the sink of a follower, from a position on.
type emitter struct {
	sink    Sink
	told    event.Position // of the last event; events up to it are not passed on
	parts   int            // nothing is reported after so many parts; 0 = no limit
	open    int            // approvals that wait for a decision
	waiting bool           // the last event was Waiting, or a decision after which others are still to be made
	paused  bool           // the last event was Paused
	ended   bool           // nothing is to be reported any more
	failed  error          // of the sink, which gets nothing more
}

// waits reports whether the run waits for somebody, as far as it was told.
func (t *emitter) waits() bool { return t.waiting || t.paused }

// Emit implements Sink.
func (t *emitter) Emit(at event.Position, e event.Event) error {
	if t.ended {
		return t.failed
	}
	asks, waits := e.(event.Waiting)
	_, decided := e.(event.ApprovalDecided)
	_, t.paused = e.(event.Paused)
	switch {
	case waits:
		t.waiting, t.open = true, len(asks.Approvals)
	case decided:
		t.open--
		t.waiting = t.waiting && t.open > 0
	default:
		t.waiting = false
	}
	_, t.ended = e.(event.Finished)
	if t.failed == nil && at.Compare(t.told) > 0 {
		t.told = at
		t.failed = t.sink.Emit(at, e)
		if waits && t.parts > 0 {
			t.parts--
			t.ended = t.parts == 0
		}
	}
	return t.failed
}

// errClosing is wrapped by the error for a follower whose process ends.
var errClosing = errors.New("the gateway is stopping")

// HandedOver tells a caller that its run goes on without this process.
func HandedOver(err error) error {
	f := fault.New(fault.Unavailable, "run_handed_over",
		"the gateway hands the run over to its next process; send the request again to follow it, with the same Idempotency-Key if it started the run")
	f.RetryAfter, f.Err = AttachRetry, err
	return f
}
