package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
)

// Action is what the driver must do next: one of the types below. The driver must
// append the facts that each type names before it calls Decide again.
type Action interface{ action() }

// Purpose says what a model call is for.
type Purpose string

// The purposes. Only PurposeTurn counts as a round.
const (
	PurposeTurn Purpose = "turn" // one round of the loop
	PurposeRaw  Purpose = "raw"  // the relay: the answer is passed on unchanged
)

// Discover lists the tools of the run's servers.
//
// Facts: Catalogued, or Blocked.
type Discover struct{}

// CallModel makes one model call.
//
// Facts: TurnStarted before the request leaves, then Turn or TurnFailed. If MaxCost
// is not zero, Reserved is appended in the same batch as TurnStarted; if a shared
// budget refuses the reservation, ReserveRefused is appended instead of both.
type CallModel struct {
	Purpose   Purpose
	Round     int
	Attempt   int   // 1 is the first of the round
	Target    int   // index into Accepted.Targets
	NotBefore int64 // when to send it, in Unix milliseconds; 0 = now

	MaxOutput int64         // limit on output tokens; 0 = the caller's own
	MaxCost   budget.Amount // the most that the call may cost, to reserve in every shared budget; zero = no limit applies

	// OfferTools is false in a last round that must answer without tools.
	OfferTools bool

	// OfferReread offers the tool that reads the rest of truncated results.
	OfferReread bool

	// KeepToolChoice sends the caller's tool_choice. It is true in the first round,
	// and in every round for the choice none. In later rounds the model chooses: a
	// forced choice would prevent a final answer.
	KeepToolChoice bool
}

// PrepareTools resolves the calls, parses and validates their arguments.
//
// Facts: one CallPrepared for each call, in this order.
type PrepareTools struct{ Calls []CallKey }

// AnswerCalls gives the calls a result without executing them.
//
// Facts: one CallDone for each call.
type AnswerCalls struct {
	Calls   []CallKey
	Outcome Outcome
	Text    string // the result, for the model
}

// ExecuteTools executes the calls at the same time. Calls that must wait for others
// are not in the list.
//
// Facts: CallStarted before each request leaves, then CallDone. A call that a cached
// result answers gets only CallDone with the outcome Cached.
type ExecuteTools struct{ Calls []CallKey }

// Interrupt asks for approval of the calls and parks the run.
//
// Facts: one CallWaiting for each call, then Parked.
type Interrupt struct{ Calls []CallKey }

// Finish ends the run.
//
// Fact: Finished with the same reason.
type Finish struct{ Reason event.Reason }

func (Discover) action()     {}
func (CallModel) action()    {}
func (PrepareTools) action() {}
func (AnswerCalls) action()  {}
func (ExecuteTools) action() {}
func (Interrupt) action()    {}
func (Finish) action()       {}
