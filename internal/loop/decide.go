package loop

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Decide returns the next action of a run in state s.
// The rules are listed in order of precedence; the first that matches wins.
func Decide(s State) Action {
	switch {
	case s.Finished != nil: // nothing follows an end
		return Finish{s.Finished.Reason}
	case s.Accepted == nil: // a journal without a beginning
		return Finish{event.Lost}
	case s.Ended != "": // cancelled, blocked, out of time: nothing new is started
		return s.conclude(s.Ended)
	case s.toolAborts(): // the org wants a failed tool to end the run
		return s.conclude(event.ToolAbort)
	case s.Halted: // the progress guard has seen enough
		return s.conclude(event.NoProgress)
	case s.Attempt.Open || s.Attempt.Failed != nil: // again, next target, or give up
		return s.recover()
	case s.Accepted.Raw: // the relay: one call and no look inside
		return s.relay()
	case s.Catalogued == nil:
		return Discover{}
	case s.serverMissing():
		return Finish{event.ServerUnavailable}
	case s.Catalogued.Conflict != nil: // nobody could say whose call it is
		return Finish{event.Invalid}
	case s.Catalogued.Missing != "": // the model would be forced to do what it cannot
		return Finish{event.Invalid}
	case len(s.unprepared()) > 0:
		return PrepareTools{s.unprepared()}
	case len(s.answerable().Calls) > 0: // over a limit, repeated, unknown, denied: a result without execution
		return s.answerable()
	case len(s.runnable()) > 0: // free calls never wait for gated ones
		return ExecuteTools{s.runnable()}
	case len(s.undecided()) > 0: // every gated call of the turn at once
		return Interrupt{s.undecided()}
	case len(s.ClientCalls()) > 0: // what is left belongs to the caller
		return Finish{event.ClientCalls}
	case s.answered():
		return Finish{s.answerReason()}
	case s.Accepted.Limits.Exhausted(s.Spent) != "":
		return Finish{s.Accepted.Limits.Exhausted(s.Spent)}
	default:
		return s.callModel(1, s.Attempt.Target, 0)
	}
}

// conclude accounts for every call that has no result, then ends the run.
func (s State) conclude(reason event.Reason) Action {
	var sent, reads, unsent []CallKey
	for _, c := range s.Calls {
		switch {
		case c.Done:
		case c.Attempt > 0 && Unanswered(c.class()) == Error:
			reads = append(reads, c.Key)
		case c.Attempt > 0:
			sent = append(sent, c.Key)
		default:
			unsent = append(unsent, c.Key)
		}
	}
	switch {
	case len(sent) > 0:
		return AnswerCalls{sent, Unknown, "The run ended before this call did; it may or may not have taken effect."}
	case len(reads) > 0:
		return AnswerCalls{reads, Error, "The run ended before this call did."}
	case len(unsent) > 0:
		return AnswerCalls{unsent, NotRun, fmt.Sprintf("Not run: the run ended (%s).", reason)}
	}
	return Finish{reason}
}

func (s State) toolAborts() bool {
	if !s.Accepted.AbortOnTool {
		return false
	}
	for _, c := range s.Calls {
		if c.Failed() {
			return true
		}
	}
	return false
}

func (s State) relay() Action {
	if s.Turn != nil {
		return Finish{event.Complete}
	}
	return CallModel{Purpose: PurposeRaw, Attempt: 1}
}

func (s State) serverMissing() bool {
	for _, server := range s.Catalogued.Servers {
		if server.Required && server.Error != "" {
			return true
		}
	}
	return false
}

func (s State) unprepared() []CallKey {
	var keys []CallKey
	for _, c := range s.Calls {
		if c.Prepared == nil && !c.Done {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// answer is a result without execution.
type answer struct {
	key     CallKey
	outcome Outcome
	text    string
}

// answers returns the results of all calls that are not to run, in order.
func (s State) answers() []answer {
	var out []answer
	nth := 0                                      // calls of this turn that are not the caller's
	before := 0                                   // of those, the ones that are to run
	left := s.Accepted.Limits.Calls - s.CallsUsed // of those that have not started, how many may
	for _, c := range s.Calls {
		if outcome, text := s.answerFor(c, nth, before, left); outcome != "" {
			out = append(out, answer{c.Key, outcome, text})
		}
		if c.owner() != tool.Client {
			nth++
		}
		if c.wanted() {
			before++
			if c.Attempt == 0 && !c.Done {
				left--
			}
		}
	}
	return out
}

// answerable returns the first of the answers and the calls that get the same.
func (s State) answerable() AnswerCalls {
	var out AnswerCalls
	for _, a := range s.answers() {
		if len(out.Calls) == 0 {
			out.Outcome, out.Text = a.outcome, a.text
		}
		if a.outcome == out.Outcome && a.text == out.Text {
			out.Calls = append(out.Calls, a.key)
		}
	}
	return out
}

// answerFor returns the result of a call that is not to run, or "". nth is how
// many calls of the turn come before it that are not the caller's, before how
// many of them are to run, left how many more the run may start.
func (s State) answerFor(c Call, nth, before, left int) (Outcome, string) {
	limits := s.Accepted.Limits
	switch {
	case c.Done || c.Prepared == nil:
		return "", ""
	case s.Accepted.NoTools && c.Attempt == 0: // the caller's own tools, too
		return NotRun, "Not run: this request allows no tool calls (tool_choice none). Answer without them."
	case c.owner() == tool.Client:
		return "", ""
	case c.Attempt == 0 && nth >= limits.CallsPerTurn:
		return SkippedLimit, fmt.Sprintf("Not run: one turn may make at most %d tool calls. Ask for the rest in the next turn.", limits.CallsPerTurn)
	case c.lost():
		return Unknown, "outcome_unknown: the call was sent and its answer was lost. It may or may not have taken effect; it was not repeated."
	case c.Attempt > 0:
		return "", ""
	case c.Guard == policy.Advise:
		return NotRun, "Not run. " + c.Advice + " Use the results that you have, change the arguments, or answer now."
	case c.Prepared.Verdict == Tell:
		return Error, c.Prepared.Answer
	case c.Resolved && !c.Approved:
		return Denied, denial(c.Message)
	case s.Accepted.Parallelism == First && before > 0:
		return NotRun, "Not run: only the first call of a turn is executed here. Ask again if it is still needed."
	case left <= 0:
		return SkippedLimit, fmt.Sprintf("Not run: the run's limit of %d tool calls is used up.", limits.Calls)
	}
	return "", ""
}

func denial(message string) string {
	if message == "" {
		return "Denied by user."
	}
	return "Denied by user: " + message
}

// runnable returns the calls that may be executed now, all at the same time.
func (s State) runnable() []CallKey {
	var free, reads []CallKey
	for _, c := range s.Calls {
		if c.Done || !c.free() {
			continue
		}
		free = append(free, c.Key)
		if c.Prepared.Class == tool.Read {
			reads = append(reads, c.Key)
		}
	}
	switch {
	case len(free) == 0 || s.Accepted.Parallelism == Parallel:
		return free
	case s.Accepted.Parallelism == Safe && len(reads) > 0:
		return reads
	}
	return free[:1]
}

func (s State) undecided() []CallKey {
	var keys []CallKey
	for _, c := range s.Calls {
		if !c.Done && c.wanted() && c.Prepared.Verdict == Ask && !c.Resolved {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// answered reports whether the latest turn asks for nothing.
func (s State) answered() bool { return s.Turn != nil && len(s.Calls) == 0 }

// answerReason maps how the last turn stopped to why the run ends.
func (s State) answerReason() event.Reason {
	switch s.Turn.Stop {
	case model.StopLength:
		return event.OutputCut
	case model.StopFilter:
		return event.Refused
	}
	return event.Complete
}

func (s State) callModel(attempt, target int, notBefore int64) Action {
	limits := s.Accepted.Limits
	next := budget.Call{Known: s.Known, Fresh: s.Fresh, Asked: s.Accepted.MaxTokens, Estimate: s.Accepted.Rules.Estimate}
	most, output, ok := limits.Plan(s.Spent, next, len(s.Accepted.Budgets) > 0)
	if !ok {
		return s.conclude(event.Tokens)
	}
	answerNow := limits.OnLimit == budget.Answer && limits.LastRound(s.Spent)
	return CallModel{
		Purpose: PurposeTurn, Round: s.Spent.Rounds, Attempt: attempt, Target: target, NotBefore: notBefore,
		MaxOutput: output, Most: most,
		OfferTools: !answerNow, OfferReread: s.Cut && !answerNow, ChoiceAsAsked: s.Spent.Rounds == 0 || s.Accepted.NoTools,
	}
}
