package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
)

// Action is what the driver is to do next: one of the types below.
type Action interface{ action() }

// Purpose says what a model call is for.
type Purpose string

// The purposes. Only turns count as rounds.
const (
	PurposeTurn Purpose = "turn" // one round of the loop
	PurposeRaw  Purpose = "raw"  // the relay: bytes in, bytes out
)

// Discover lists the tools of the run's servers. Fact: catalogued, or blocked.
type Discover struct{}

// CallModel makes one model call. Facts: reserved where Most is not zero, or
// reserve_refused; turn_started, then turn or turn_failed.
type CallModel struct {
	Purpose   Purpose
	Round     int
	Attempt   int   // 1 is the first of the round
	Target    int   // index into Accepted.Targets
	NotBefore int64 // Unix milliseconds; 0 = at once

	MaxOutput int64         // tokens that the model may say; 0 = as the caller asked
	Most      budget.Amount // what the call may cost, to be set aside; zero = nothing limits it

	// OfferTools is false when the model must answer without them.
	OfferTools bool

	// OfferReread adds the tool that reads what was cut from results.
	OfferReread bool

	// ChoiceAsAsked keeps the caller's tool_choice: in the first round, and none
	// in every round. Otherwise the model chooses, or a forced choice would
	// never let it answer.
	ChoiceAsAsked bool
}

// PrepareTools looks the calls up, parses and validates them. Fact:
// call_prepared each, in this order.
type PrepareTools struct{ Calls []CallKey }

// AnswerCalls gives calls a result without executing them. Fact: call_done each.
type AnswerCalls struct {
	Calls   []CallKey
	Outcome Outcome
	Text    string // what the model is told
}

// ExecuteTools executes the calls, all at the same time: the rules have already
// left out what must wait for its turn. Facts: call_started and call_done each;
// only call_done where an earlier result is still good.
type ExecuteTools struct{ Calls []CallKey }

// Interrupt parks the run until the calls are decided. Facts: call_waiting
// each, parked.
type Interrupt struct{ Calls []CallKey }

// Finish ends the run. Fact: finished.
type Finish struct{ Reason event.Reason }

func (Discover) action()     {}
func (CallModel) action()    {}
func (PrepareTools) action() {}
func (AnswerCalls) action()  {}
func (ExecuteTools) action() {}
func (Interrupt) action()    {}
func (Finish) action()       {}
