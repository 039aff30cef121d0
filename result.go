package turnpike

import (
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Result is what a run has come to.
type Result struct {
	RunID string

	// Text is the text of the model's last turn.
	Text string

	// Items are the entries that the run has added to its input: messages, reasoning, tool calls and
	// their results. With the input they are the history of a next run.
	Items []item.Item

	// Calls are the tool calls that the caller has to execute: those of Mode(Return).
	Calls []Call

	Usage model.Usage // summed over all rounds
	Cost  Money       // of the model calls and of tools with a price; no amount = nothing has one

	Reason Reason // why the run ended; "" = it waits, or is not stored as ended

	Rounds      int  // model calls, retries not counted
	SideEffects bool // a tool that may change something has been called

	// Missing names the MCP servers that were left out, because they did not list their tools when the run began.
	Missing []string

	// Steps are the rounds of the run, in order: with [ShowTrace], and in the result of an error. Together they have the Usage
	// and the Cost of the result.
	Steps []Step
}

// Reason is why a run ended. Those of the second group come with an error. [event.Finished] has other names for those of the first:
// complete, output_cut, refused and client_calls.
type Reason string

// The reasons.
const (
	ReasonStop          Reason = "stop"           // the model has answered; with a [*HookError], a hook has denied the answer
	ReasonLength        Reason = "length"         // the model's output limit has cut the answer
	ReasonContentFilter Reason = "content_filter" // the provider's filter has refused the answer
	ReasonToolCalls     Reason = "tool_calls"     // the caller executes Result.Calls

	ReasonMaxRounds         = Reason(event.MaxRounds)         // Limits.Rounds
	ReasonMaxCalls          = Reason(event.MaxCalls)          // Limits.Calls
	ReasonTokens            = Reason(event.Tokens)            // Limits.Tokens
	ReasonMoney             = Reason(event.Money)             // Limits.USD
	ReasonBudgetExceeded    = Reason(event.BudgetExceeded)    // Limits.USD or Limits.Tokens, before the first model call
	ReasonDeadline          = Reason(event.Deadline)          // Limits.Time
	ReasonMemory            = Reason(event.Memory)            // what runs may keep in memory
	ReasonNoProgress        = Reason(event.NoProgress)        // a [*ProgressError]
	ReasonInvalid           = Reason(event.Invalid)           // a [*ValidationError]
	ReasonHookDenied        = Reason(event.HookDenied)        // a hook has denied the run
	ReasonCancelled         = Reason(event.Cancelled)         // an [*AbortError]
	ReasonCallerGone        = Reason(event.CallerGone)        // an [*AbortError]
	ReasonBlocked           = Reason(event.Blocked)           // a [*BlockedError]
	ReasonModelError        = Reason(event.ModelError)        // a [*ModelError]; a [*LostError] if the Conversation has failed
	ReasonServerUnavailable = Reason(event.ServerUnavailable) // a [*ServerError]
	ReasonToolAbort         = Reason(event.ToolAbort)         // a [*ToolError] or [*UnknownOutcome]
	ReasonTooLong           = Reason(event.TooLong)           // a [*ContextError]
	ReasonLost              = Reason(event.Lost)              // a [*LostError]
)

// Call is a tool call that the caller has to execute. It is answered with an item.NewResult of its ID.
type Call struct {
	ID        string
	Name      string
	Arguments string // as the model wrote them; may be invalid JSON
}

// Step is a round of a run: an answer of the model, and the tool calls that it asked for.
type Step struct {
	Round int    // from 1; events count from 0
	Text  string // of the model; "" = only calls, or no answer
	Calls []StepCall

	// Usage and Cost are those of the round: of its model calls, with those that failed before the answer, and of tools with a
	// price. No amount = nothing has a price.
	Usage model.Usage
	Cost  Money
}

// StepCall is a tool call of a [Step].
type StepCall struct {
	ID        string // the provider's id of the call
	Tool      string
	Arguments string // as the model wrote them; may be invalid JSON
	Result    string // the result for the model; "" for a call without one
	Error     bool   // Result says what failed

	// Outcome says how the call ended: ok, error, cached (it has the result of another call with its key), unknown, denied,
	// skipped_limit or not_run. It is "" for calls that have not ended, and for those that the caller executes.
	Outcome event.Outcome
	Took    time.Duration // of a call that was executed
}

// outcome is a call that has ended.
type outcome struct {
	outcome event.Outcome
	took    time.Duration
}

// newResult returns the result of a run in this state. items are those that it has added.
func newResult(runID string, s *loop.State, items []item.Item, ended map[string]outcome) *Result {
	r := &Result{
		RunID: runID, Text: lastText(items), Items: items, Usage: s.Usage, Rounds: s.Counts.Rounds, SideEffects: s.SideEffects,
		Missing: s.MissingServers(false), Steps: stepsOf(s, items, ended),
	}
	if paid := s.Paid(); paid != nil {
		r.Cost = tool.NanoUSD(*paid)
	}
	if s.Finished != nil {
		r.Reason = reasonOf(s.Finished.Reason)
	}
	for _, c := range s.ClientCalls() {
		for _, it := range items {
			if it.Kind == item.ToolCall && it.CallID == c.ProviderID {
				r.Calls = append(r.Calls, Call{ID: it.CallID, Name: it.Name, Arguments: it.Arguments})
				break
			}
		}
	}
	return r
}

func reasonOf(r event.Reason) Reason {
	switch r {
	case event.Complete:
		return ReasonStop
	case event.OutputCut:
		return ReasonLength
	case event.Refused:
		return ReasonContentFilter
	case event.ClientCalls:
		return ReasonToolCalls
	}
	return Reason(r)
}

// lastText returns the text of the last turn.
func lastText(items []item.Item) string {
	last := item.LastTurn(items)
	var b strings.Builder
	for _, it := range items {
		if it.Turn == last && it.Kind == item.Message && it.Role == item.Assistant {
			b.WriteString(it.Text())
		}
	}
	return b.String()
}

// stepsOf returns the rounds of a run. items are those that it has added.
func stepsOf(s *loop.State, items []item.Item, ended map[string]outcome) []Step {
	steps := make([]Step, 0, len(s.Rounds))
	for i, spent := range s.Rounds {
		step := Step{Round: i + 1, Usage: spent.Usage}
		if s.Paid() != nil {
			step.Cost = tool.NanoUSD(spent.NanoUSD)
		}
		steps = append(steps, step)
	}
	type place struct{ step, call int }
	open := map[string]place{} // calls without a result, by their ids
	round, turn := -1, 0
	for _, it := range items {
		if it.Turn != 0 && it.Turn != turn {
			round, turn = round+1, it.Turn
		}
		if it.Kind == item.ToolResult {
			if at, ok := open[it.CallID]; ok {
				c := &steps[at.step].Calls[at.call]
				c.Result, c.Error = item.PlainText(it.Parts), it.IsError
				if it.Parts == nil && it.Structured != nil {
					c.Result = string(it.Structured)
				}
			}
		}
		if round < 0 {
			continue
		}
		if round == len(steps) {
			steps = append(steps, Step{Round: round + 1})
		}
		step := &steps[round]
		switch {
		case it.Kind == item.Message && it.Role == item.Assistant:
			step.Text += it.Text()
		case it.Kind == item.ToolCall:
			c := StepCall{ID: it.CallID, Tool: it.Name, Arguments: it.Arguments}
			if end, ok := ended[string(loop.Key(round, len(step.Calls)))]; ok {
				c.Outcome, c.Took = end.outcome, end.took
			}
			open[it.CallID] = place{round, len(step.Calls)}
			step.Calls = append(step.Calls, c)
		}
	}
	return steps
}
