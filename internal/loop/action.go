package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/window"
)

// Action is what the driver must do next: one of the types below. The driver must
// append the facts that each type names before it calls Decide again.
//
//sumtype:decl
type Action interface{ action() }

// Purpose says what a model call is for.
type Purpose string

// The purposes. Only PurposeTurn counts as a round.
const (
	PurposeTurn Purpose = "turn" // the answer is decoded into items: a round of the loop, or a translated relay
	PurposeRaw  Purpose = "raw"  // a raw relay: the answer is passed on unchanged
)

// Discover lists the tools of the run's servers.
//
// Facts: Catalogued, with the Conflict and the Missing tool of [Tools]; or Blocked.
type Discover struct{}

// AddInput adds the input of a run that was accepted without it: the conversation that it continues, as it is
// now, and what the caller has sent.
//
// Fact: InputAdded by the client.
type AddInput struct{}

// Route asks the router in which order to try the targets of a round: at the begin of the
// round, and after a target has failed for good. A run with one target has no Route.
//
// Fact: Routed with the same Round and Attempt.
type Route struct {
	Round   int
	Attempt int   // model calls that the round has made
	Left    []int // the targets that the round has not tried, in configuration order: indices into Accepted.Targets
	Last    int   // the target that answered the round before; -1 = none did
}

// BudgetWarning is what a model is told when little of the run's budget is left.
const BudgetWarning = "BUDGET WARNING: little of the budget of this task is left. Make only the tool calls that you cannot do without; the next step has no tools. " +
	"Then answer with what you have."

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

	// Warn tells the model that little of the run's budget is left. It is told once in a run.
	Warn bool

	// Continues asks the model for the rest of its answer, with [ContinueMessage] after the transcript.
	Continues bool

	// OfferReread offers the tool that reads the rest of truncated results.
	OfferReread bool

	// KeepToolChoice sends the caller's tool_choice. It is true in the first round,
	// and in every round for the choice none. In later rounds the model chooses: a
	// forced choice would prevent a final answer.
	KeepToolChoice bool
}

// Refused returns the fact to append if the window of a budget, of which used is spent and
// reserved, cannot cover MaxCost.
func (a CallModel) Refused(w budget.Window, used budget.Amount) ReserveRefused {
	reason := event.Tokens
	switch {
	case a.Round == 0 && !a.Continues:
		reason = event.BudgetExceeded
	case !w.Fits(budget.Amount{NanoUSD: used.NanoUSD}, budget.Amount{NanoUSD: a.MaxCost.NanoUSD}):
		reason = event.Money
	}
	return ReserveRefused{
		Round: a.Round, Attempt: a.Attempt, Scope: w.Scope, Amount: a.MaxCost, Reason: reason,
		Limit: w.Limit, Used: used, EndsAt: w.EndsAt,
	}
}

// Compact makes the prompt of the next model call shorter. What is done depends on the items: old results of tools are
// replaced by placeholders, or the older part by a summary, or nothing can be done.
//
// Facts: Compacted, with the same Target. If a summary is written and MaxCost is not zero, Reserved with the Number is appended
// in a batch of its own before the request leaves; if a shared budget refuses the reservation, Compacted has Failed and Refused.
type Compact struct {
	Number int   // 1 is the first of the run
	Target int   // that gets the prompt: index into Accepted.Targets
	Tokens int64 // estimated size of the prompt
	Limit  int64 // the prompt must have at most so many tokens

	PruneOnly bool          // nothing is summarised
	MaxOutput int64         // limit on the output tokens of the summary
	MaxCost   budget.Amount // the most that the summary may cost, to reserve in every shared budget; zero = no limit applies
}

// PrepareTools resolves the calls, parses and validates their arguments. Before a call that the
// gateway is to execute, the hooks of [State.HooksDue] run; the arguments that they put in place of
// the model's are validated again.
//
// Facts: for each call, in this order, a HookRan for each of its hooks until one denies, and one
// CallPrepared.
type PrepareTools struct{ Calls []CallKey }

// RunHooks runs the hooks of a point that is not about a call: OnRunStart or PreResponse.
//
// Facts: a HookRan for each hook, in this order, until one denies.
type RunHooks struct {
	Point HookPoint
	Hooks []Hook
}

// AnswerCalls gives the calls a result without executing them.
//
// Facts: one CallDone for each call.
type AnswerCalls struct {
	Calls   []CallKey
	Outcome Outcome
	Text    string // the result, for the model
}

// ExecuteTools executes the calls at the same time, as far as [State.Startable] allows.
// Calls that must wait for others are not in the list.
//
// Facts: CallStarted before each request leaves, then CallDone. A call that a cached
// result answers gets only CallDone with the outcome Cached. The HookRan of the hooks after a call are
// in the batch of its CallDone, so that no result is recorded without them.
type ExecuteTools struct{ Calls []CallKey }

// Interrupt asks for approval of the calls and parks the run.
//
// Facts: one CallWaiting for each call, then Parked.
type Interrupt struct{ Calls []CallKey }

// Pause waits until a limit of the run is raised, or until a shared budget has room again.
//
// Fact: Paused, see [State.PauseFor]. If the run may not wait, its Refused is set.
type Pause struct {
	Reason event.Reason // what the run would end with
	Scope  string       // of the window of the shared budget that has no room; "" = it is a limit of the run
	EndsAt int64        // of that window, in Unix milliseconds; 0 = never
}

// Finish ends the run. It is also what Decide returns for a run that has finished.
//
// Fact: Finished with the same reason, and the code [Cause.Code]. Its HandedOver are the
// calls of HandOver.
type Finish struct {
	Reason   event.Reason
	Cause    Cause
	HandOver []CallKey // the calls that the caller executes, in order
}

// Cause says what has ended a run. It follows from the facts and is not stored. The
// field that belongs to the reason is set; the zero value means that nothing is known
// beside the reason.
type Cause struct {
	Server      string         // ServerUnavailable: label of the required server that did not answer
	Conflict    *Conflict      // Invalid: the client tool and the gateway tool with the same name
	MissingTool string         // Invalid: the tool that tool_choice forces and that does not exist
	Call        CallKey        // ToolAbort: the call that failed. Lost: the call during which too many owners died
	Provider    string         // ModelError: the provider of the first target that the round tried. TooLong: that of the last model call
	Exhausted   bool           // ModelError: the call failed with a transient error in each of its attempts
	Credential  bool           // ModelError: the provider refuses the gateway's credential
	Param       string         // ModelError: the member of the request that cannot be sent to the provider
	MemoryLimit string         // Memory: code of the limit that was reached
	Detail      string         // Memory: which limit it was, in words for the caller
	Largest     []window.Share // TooLong: the largest parts of the prompt, if the run has tried to make it shorter
	Hook        HookRan        // HookDenied: the hook that has denied the run
	Gone        string         // Cancelled, CallerGone: ClientGone, KeyRevoked, KeyExpired, ModelNotAllowed or Deleted; "" = somebody has cancelled the run
}

func (AddInput) action()     {}
func (Discover) action()     {}
func (Route) action()        {}
func (CallModel) action()    {}
func (Compact) action()      {}
func (PrepareTools) action() {}
func (RunHooks) action()     {}
func (AnswerCalls) action()  {}
func (ExecuteTools) action() {}
func (Interrupt) action()    {}
func (Pause) action()        {}
func (Finish) action()       {}
