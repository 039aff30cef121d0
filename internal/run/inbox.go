package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
)

// WhenBusy says what a message does whose session has a run that has not ended. The store decides it in the
// transaction that stores the message.
type WhenBusy string

// What a message can do.
const (
	Reject    WhenBusy = "reject"    // it is refused
	Enqueue   WhenBusy = "enqueue"   // it is the next turn
	Steer     WhenBusy = "steer"     // it goes into the next model call of the run
	Interrupt WhenBusy = "interrupt" // it ends the run, and is the next turn
)

// Placed is the run that has a message.
type Placed struct {
	RunID string
	Joins bool // it had begun before the message came
}

// maxPlaceTries is how often a message is placed again because the run of its session has ended meanwhile.
const maxPlaceTries = 8

// Inbox takes the messages for sessions of agents. Its methods may be called at the same time.
type Inbox struct{ r *Runner }

// Inbox returns the inbox of the sessions.
func (r *Runner) Inbox() Inbox { return Inbox{r} }

// Place puts the message of a request, which is the next turn of a session, into the session. A message that cannot
// begin a turn at once does what busy says. MaxQueued of the request must be set.
func (b Inbox) Place(ctx context.Context, req *Request, busy WhenBusy) (Placed, error) {
	if req.Account == nil {
		req.Account = b.r.o.Memory.Open(req.Org)
		defer req.Account.Close()
	}
	for range maxPlaceTries {
		id, err := b.r.Start(ctx, req)
		var in *journal.SessionBusy
		if !errors.As(err, &in) || busy == Reject {
			return Placed{RunID: id}, err
		}
		if busy != Steer {
			break
		}
		id, err = b.steer(ctx, req, in.RunID)
		if refused := new(fault.Error); err == nil || !errors.As(err, &refused) || refused.Code != fault.Conflict {
			return Placed{RunID: id, Joins: err == nil}, err
		} else if refused.Reason == notSteerable {
			break // the run ends: the message is the next turn
		}
	}
	return b.queue(ctx, req, busy == Interrupt)
}

// notSteerable is the reason for which a run does not take messages any more, or not yet.
const notSteerable = "run_not_steerable"

// steer puts the message into a run of the session that has begun. The error is a conflict if it has ended.
func (b Inbox) steer(ctx context.Context, req *Request, runID string) (string, error) {
	in := req.Turn.Input
	in.Kind = agent.InputSteer
	err := b.deliver(ctx, req.Org, runID, journal.Delivered{Session: req.Turn.Session, Input: in}, req.Items, req.Account)
	if known := new(journal.Submitted); errors.As(err, &known) {
		if known.Hash != in.Digest {
			return "", KeyReused()
		}
		return known.RunID, nil
	}
	return runID, journal.ReadError(runID, err)
}

// queue makes the message the next turn of the session, after those that wait. With interrupts the turn in progress
// ends first.
func (b Inbox) queue(ctx context.Context, req *Request, interrupts bool) (Placed, error) {
	turn := *req.Turn
	turn.Queued = true
	if interrupts {
		turn.Interrupt = &journal.SessionInput{ID: b.r.o.NewID(agent.InputPrefix), Kind: agent.InputInterrupt, Principal: turn.Input.Principal,
			Body: json.RawMessage("{}")}
	}
	next := *req
	next.Turn, next.Background, next.Deferred = &turn, true, true
	id, err := b.r.Start(ctx, &next)
	return Placed{RunID: id}, err
}

// maxAdded is how many inputs a run can get while it is under way.
const maxAdded = 64

// deliver adds a message to a run that is a turn of a session and has not ended: the model sees it in its next call,
// after the results of the calls under way. The error is a [fault.Error] of the kind Conflict if the run ends or has not
// begun, of the kind Limited if it has got too many messages, and a *[journal.Submitted] if the session has an input with the key.
func (b Inbox) deliver(ctx context.Context, orgID, runID string, d journal.Delivered, items []item.Item, account *memlimit.Account) error {
	ref := "input:" + d.Input.ID
	err := b.r.appendForeign(ctx, account, orgID, runID, foreign{delivered: &d, of: func(s *loop.State) (foreign, error) {
		switch {
		case s.Ended != "" || s.AwaitsInput():
			return foreign{}, fault.New(fault.Conflict, notSteerable, "run %s ends, or has not begun", runID)
		case s.Added() >= maxAdded:
			return foreign{}, fault.New(fault.Limited, "too_many_inputs",
				"run %s has got %d messages while it was under way, which is the limit; wait for its end, or send when_busy: enqueue", runID, maxAdded)
		}
		body := loop.InputAdded{ItemsRef: ref, By: loop.ByOther, Who: d.Input.Principal, Bytes: window.Bytes(items)}
		return foreign{bodies: []loop.Body{body}, rows: []journal.Row{{Ref: ref, Value: item.List(items)}}}, nil
	}})
	if err == nil {
		crash.At(crash.AfterDelivery)
	}
	return err
}

// Leave ends a run as Cancel does, with the reason [event.CallerGone]: nobody comes back for its answer.
func (b Inbox) Leave(ctx context.Context, orgID, runID, principal string) error {
	return b.r.requestEnd(ctx, orgID, runID, loop.CancelRequested{By: principal, Cause: event.CallerGone}, nil)
}

// EndOrphaned ends the runs of sessions that were deleted before they had ended. It is also done again and again, by
// every process, so that a caller that dies, or an error, only delays their end.
func (b Inbox) EndOrphaned(ctx context.Context) error { return b.r.audience.endOrphaned(ctx) }
