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

	// Reason is why the run ended: stop, length (the model's output limit), content_filter,
	// tool_calls, or what the error says, such as max_rounds.
	Reason string

	Rounds      int  // model calls, retries not counted
	SideEffects bool // a tool that may change something has been called

	// Trace is everything that the run did, in order: with [ShowTrace], and in the result of an error.
	Trace []Step
}

// Call is a tool call that the caller has to execute. It is answered with an item.NewResult of its ID.
type Call struct {
	ID        string
	Name      string
	Arguments string // as the model wrote them; may be invalid JSON
}

// Step is a part of a trace: what the model said in a round, or one tool call with its result.
type Step struct {
	Round int // from 1

	Text string // of the model; "" for a tool call

	CallID    string // the provider's id of the call
	Tool      string // "" = no tool call
	Arguments string // as the model wrote them
	Result    string // what the model was told; "" for a call without a result
	Error     bool   // Result says what failed

	// Outcome says how the call ended: ok, error, unknown, denied, skipped_limit or not_run. It is ""
	// for calls of another process, and for those that the caller executes.
	Outcome event.Outcome
	Took    time.Duration // of a call that was executed in this process
}

// outcome is a call that has ended in this process.
type outcome struct {
	outcome event.Outcome
	took    time.Duration
}

// newResult returns the result of a run in this state. items are those that it has added.
func newResult(runID string, s *loop.State, items []item.Item, ended map[string]outcome) *Result {
	r := &Result{
		RunID: runID, Text: lastText(items), Items: items, Usage: s.Usage, Rounds: s.Counts.Rounds, SideEffects: s.SideEffects,
		Trace: traceOf(items, ended),
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

func reasonOf(r event.Reason) string {
	switch r {
	case event.Complete:
		return "stop"
	case event.OutputCut:
		return "length"
	case event.Refused:
		return "content_filter"
	case event.ClientCalls:
		return "tool_calls"
	}
	return string(r)
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

// traceOf returns the steps of the items that a run has added.
func traceOf(items []item.Item, ended map[string]outcome) []Step {
	var steps []Step
	open := map[string]int{} // calls without a result, by their ids → steps
	round, turn, index := 0, 0, 0
	for _, it := range items {
		if it.Turn != 0 && it.Turn != turn {
			round, turn, index = round+1, it.Turn, 0
		}
		switch {
		case it.Kind == item.Message && it.Role == item.Assistant:
			if n := len(steps); n > 0 && steps[n-1].Tool == "" && steps[n-1].Round == round {
				steps[n-1].Text += it.Text()
			} else {
				steps = append(steps, Step{Round: round, Text: it.Text()})
			}
		case it.Kind == item.ToolCall:
			step := Step{Round: round, CallID: it.CallID, Tool: it.Name, Arguments: it.Arguments}
			if end, ok := ended[string(loop.Key(round-1, index))]; ok {
				step.Outcome, step.Took = end.outcome, end.took
			}
			index++
			open[it.CallID] = len(steps)
			steps = append(steps, step)
		case it.Kind == item.ToolResult:
			if at, ok := open[it.CallID]; ok {
				steps[at].Result, steps[at].Error = item.PlainText(it.Parts), it.IsError
				if it.Parts == nil && it.Structured != nil {
					steps[at].Result = string(it.Structured)
				}
			}
		}
	}
	return steps
}
