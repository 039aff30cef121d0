package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
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

// Place puts the message of a request, which is the next turn of a session, into the session. A message that cannot
// begin a turn at once does what busy says. MaxQueued of the request must be set.
func Place(ctx context.Context, r *Runner, req *Request, busy WhenBusy) (Placed, error) {
	if req.Account == nil {
		req.Account = r.o.Memory.Open(req.Org)
		defer req.Account.Close()
	}
	for range maxPlaceTries {
		id, err := r.Start(ctx, req)
		var in *journal.SessionBusy
		if !errors.As(err, &in) || busy == Reject {
			return Placed{RunID: id}, err
		}
		if busy != Steer {
			break
		}
		id, err = steer(ctx, r, req, in.RunID)
		if refused := new(fault.Error); err == nil || !errors.As(err, &refused) || refused.Code != fault.Conflict {
			return Placed{RunID: id, Joins: err == nil}, err
		} else if refused.Reason == notSteerable {
			break // the run ends: the message is the next turn
		}
	}
	return queue(ctx, r, req, busy == Interrupt)
}

// notSteerable is the reason for which a run does not take messages any more, or not yet.
const notSteerable = "run_not_steerable"

// steer puts the message into a run of the session that has begun. The error is a conflict if it has ended.
func steer(ctx context.Context, r *Runner, req *Request, runID string) (string, error) {
	in := req.Turn.Input
	in.Kind = agent.InputSteer
	err := deliver(ctx, r, req.Org, runID, journal.Delivered{Session: req.Turn.Session, Input: in}, req.Items, req.Account)
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
func queue(ctx context.Context, r *Runner, req *Request, interrupts bool) (Placed, error) {
	turn := *req.Turn
	turn.Queued = true
	if interrupts {
		turn.Interrupt = &journal.SessionInput{ID: r.o.NewID(agent.InputPrefix), Kind: agent.InputInterrupt, Principal: turn.Input.Principal, Body: json.RawMessage("{}")}
	}
	next := *req
	next.Turn, next.Background, next.Deferred = &turn, true, true
	id, err := r.Start(ctx, &next)
	return Placed{RunID: id}, err
}
