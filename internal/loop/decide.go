package loop

import (
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decision finds the next action of a run in a state, and does not change it. Its methods in
// decide.go are about calls and ends, those in attempts.go about attempts at model calls.
type decision struct{ *State }

// Decide returns the next action of a run in the state. The cases are in order of
// precedence: the first that matches applies. Decide never returns nil.
func Decide(state State) Action {
	s := decision{&state}
	switch {
	case s.Finished != nil: // already finished: no action follows
		return s.finish(s.Finished.Reason)
	case s.Accepted == nil: // the journal has no accepted fact
		return Finish{Reason: event.Lost}
	case s.Ended != "": // cancelled, blocked, out of time: nothing new is started
		return s.conclude(s.Ended)
	case s.failedCall() != "": // tool_error_mode abort: a failed tool ends the run
		return s.conclude(event.ToolAbort)
	case s.Halted: // the progress guard found a repetition
		return s.conclude(event.NoProgress)
	case s.Attempt.Open || s.Attempt.Failed != nil: // retry, next target, or give up
		return s.recover()
	case s.relays(): // one model call and nothing else
		return s.relay()
	case s.AwaitsInput():
		return s.inTime(AddInput{})
	case len(s.HooksDue(OnRunStart, "")) > 0:
		return RunHooks{OnRunStart, s.HooksDue(OnRunStart, "")}
	case s.Catalogued == nil:
		return s.inTime(Discover{})
	case s.serverMissing():
		return s.finish(event.ServerUnavailable)
	case s.Catalogued.Conflict != nil: // the owner of such a call is ambiguous
		return s.finish(event.Invalid)
	case s.Catalogued.Missing != "": // tool_choice forces a tool that does not exist
		return s.finish(event.Invalid)
	case s.cut(): // no call of an answer that was cut off is executed
		return s.conclude(event.OutputCut)
	case s.Continues(): // the output limit has cut off the answer: ask for the rest
		return s.continueAnswer()
	case s.handsOver(): // the last round: the caller gets its calls
		return s.finish(event.ClientCalls)
	case len(s.unprepared()) > 0:
		return PrepareTools{s.unprepared()}
	case len(s.answerable().Calls) > 0: // over a limit, repeated, unknown, denied, and no call before them runs first
		return s.answerable()
	case len(s.runnable()) > 0: // these do not wait for calls that need approval
		return s.inTime(ExecuteTools{s.runnable()})
	case len(s.undecided()) > 0: // one approval request for all of the turn's calls
		return Interrupt{s.undecided()}
	case len(s.held()) > 0: // calls over a limit of a run that pauses wait for more
		return s.pauseAt(s.firstHeld())
	case len(s.ClientCalls()) > 0: // the caller executes the rest
		return s.finish(event.ClientCalls)
	case s.answered() && len(s.HooksDue(PreResponse, "")) > 0: // they may still replace the answer
		return RunHooks{PreResponse, s.HooksDue(PreResponse, "")}
	case s.answered():
		return s.finish(s.answerReason())
	case s.Limits.Exhausted(s.Spent) != "" && s.pauses() && s.Turn != nil:
		return s.pauseAt(s.Limits.Exhausted(s.Spent))
	case s.Limits.Exhausted(s.Spent) != "":
		return s.finish(s.Limits.Exhausted(s.Spent))
	default:
		return s.callNext()
	}
}

// cut reports whether the length of the output has cut off the latest turn, in a run that
// executes none of its calls.
func (s decision) cut() bool {
	return s.Accepted.EndCut && s.Turn != nil && s.Turn.Stop == model.StopLength
}

// conclude gives every call without a result an outcome, then ends the run. It
// returns one action at a time: unknown outcomes first, then interrupted reads, then
// calls that never started.
func (s decision) conclude(reason event.Reason) Action {
	if s.relays() { // its calls are the caller's
		return s.finish(reason)
	}
	var sent, reads, unsent []CallKey
	for _, c := range s.Calls {
		switch {
		case c.Done:
		case c.Attempt > 0 && LostOutcome(c.class()) == Error:
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
	return s.finish(reason)
}

// failedCall returns the failed call that ends the run; "" if there is none, or if the
// run continues after failed calls.
func (s decision) failedCall() CallKey {
	if !s.Accepted.AbortOnTool {
		return ""
	}
	for _, c := range s.Calls {
		if c.failed() {
			return c.Key
		}
	}
	return ""
}

// relay returns the next action of a relay: one model call with the caller's own
// tools, limits and tool choice, then the end. All calls of its turn are the
// caller's.
func (s decision) relay() Action {
	switch {
	case s.Turn == nil:
		return s.callNext()
	case len(s.Calls) > 0 && s.answerReason() == event.Complete:
		return s.finish(event.ClientCalls)
	}
	return s.finish(s.answerReason())
}

func (s decision) serverMissing() bool {
	_, missing := s.missingServer()
	return missing
}

// missingServer returns the first required server that did not answer, or false.
func (s decision) missingServer() (Server, bool) {
	for _, server := range s.Catalogued.Servers {
		if server.Required && server.Error != "" {
			return server, true
		}
	}
	return Server{}, false
}

// answer is a result that the gateway gives a call without executing it.
type answer struct {
	key     CallKey
	outcome Outcome
	text    string
}

// answers returns the answers of all calls that must not be executed, in order.
func (s decision) answers() []answer {
	out, _ := s.judge()
	return out
}

// judge returns the answers of all calls that must not be executed, in order, and the calls that a
// run which pauses holds back, with the limit that each is over.
func (s decision) judge() (out []answer, held map[CallKey]event.Reason) {
	pauses := s.pauses()
	hold := func(key CallKey, over event.Reason) {
		if held == nil {
			held = map[CallKey]event.Reason{}
		}
		held[key] = over
	}
	nth := 0                                // gateway calls before c in this turn
	before := 0                             // of those, the ones to execute
	left := s.Limits.Calls - s.Counts.Calls // calls that may still start in this run
	paid := s.Spent.NanoUSD                 // by the run, and by the calls before c that are under way or may start
	uses := s.Uses                          // with the calls before c that may still start
	for _, c := range s.Calls {
		outcome, text := s.answerFor(c, nth, before, left, s.Accepted.usedUp(uses, c))
		if outcome == "" && c.toExecute() && c.Attempt == 0 && !c.Done && !s.Limits.Affords(paid, c.Prepared.PriceNano) {
			outcome, text = NotRun, s.tooDear(c.Prepared.PriceNano, paid)
			if pauses {
				hold(c.Key, event.Money)
			}
		} else if pauses && overCalls(outcome, c, left, nth, s.Limits.CallsPerTurn) {
			hold(c.Key, event.MaxCalls)
		}
		switch {
		case held[c.Key] != "": // no answer: it stays open
		case outcome != "":
			out = append(out, answer{c.Key, outcome, text})
		case c.toExecute() && !c.Done:
			paid = int64(money.Nano(paid).Add(c.Prepared.PriceNano))
			if c.Attempt == 0 {
				uses = s.Accepted.countUse(uses, c, 1)
			}
		}
		if c.owner() != tool.Client {
			nth++
		}
		if c.toExecute() {
			before++
			if c.Attempt == 0 && !c.Done {
				left--
			}
		}
	}
	return out, held
}

// answerable returns the first answer, for all calls that get the same one. A call behind one
// that runs is answered later, so that the calls of a turn end in their order.
func (s decision) answerable() AnswerCalls {
	var out AnswerCalls
	answers, _ := s.inOrder()
	for _, a := range answers {
		if len(out.Calls) == 0 {
			out.Outcome, out.Text = a.outcome, a.text
		}
		if a.outcome == out.Outcome && a.text == out.Text {
			out.Calls = append(out.Calls, a.key)
		}
	}
	return out
}

// inOrder returns the answers of the calls that no call to execute precedes, and the calls to execute
// before the next answer after those. A call that waits for a decision or for more of a limit is passed over.
func (s decision) inOrder() (answers []answer, run []*Call) {
	all, held := s.judge()
	serial, waits := s.Accepted.Parallelism == Serial || s.Accepted.Parallelism == First, false
	for _, c := range s.Calls {
		i := slices.IndexFunc(all, func(a answer) bool { return a.key == c.Key })
		switch {
		case i >= 0 && run == nil:
			answers = append(answers, all[i])
		case i >= 0:
			return answers, run
		case c.Done || !c.ready():
		case held[c.Key] != "":
			waits = waits || serial // the calls after it wait for it
		case !waits:
			run = append(run, c)
		}
	}
	return answers, run
}

// answerFor returns the answer of a call that must not be executed; the outcome is
// "" for any other call. nth is the number of the turn's gateway calls before c,
// before is how many of those are to execute, left is how many calls the run may
// still start, and most is the limit of the call's tool if that is used up.
func (s decision) answerFor(c *Call, nth, before, left, most int) (Outcome, string) {
	limits := s.Limits
	switch {
	case c.Done || c.Prepared == nil:
		return "", ""
	case s.Accepted.NoTools && c.Attempt == 0: // client tools as well
		return NotRun, "Not run: this request allows no tool calls (tool_choice none). Answer without them."
	case c.owner() == tool.Client:
		return "", ""
	case s.NoTools && c.Attempt == 0:
		return NotRun, "Not run: the model call that asked for it was offered no tools. Answer without them."
	case c.Attempt == 0 && nth >= limits.CallsPerTurn:
		return SkippedLimit, fmt.Sprintf("Not run: one turn may make at most %d tool calls. Ask for the rest in the next turn.", limits.CallsPerTurn)
	case c.lost():
		return Unknown, "outcome_unknown: the call was sent, but its result was lost. It may or may not have taken effect. It was not repeated."
	case c.Attempt > 0:
		return "", ""
	case s.Accepted.Permission == policy.Deny && c.Prepared.Verdict != Answer:
		return Denied, "Not run: no tools may be executed here (agent_permission is deny). Answer without them."
	case most > 0:
		return NotRun, tooOften(c.Name, most)
	case c.Guard == policy.Advise:
		return NotRun, "Not run. " + c.Advice + " Use the results that you have, change the arguments, or answer now."
	case c.Prepared.Verdict == Answer && c.blockedByHook():
		return Denied, c.Prepared.Answer
	case c.Prepared.Verdict == Answer:
		return Error, c.Prepared.Answer
	case c.TimedOut:
		return Denied, "Not run: Approval timed out. Nobody has approved or denied the call in time."
	case c.Resolved && !c.Approved:
		return Denied, denial(c.Message)
	case s.Accepted.Parallelism == First && before > 0:
		return NotRun, "Not run: only the first call of a turn is executed here. Ask again if it is still needed."
	case left <= 0:
		return SkippedLimit, fmt.Sprintf("Not run: the run's limit of %d tool calls is used up.", limits.Calls)
	}
	return "", ""
}

// tooDear is the answer of a call whose price the run's limit on money leaves no room for.
func (s decision) tooDear(price money.Nano, paid int64) string {
	return fmt.Sprintf("Not run: the call costs %s USD, and %s USD of the run's limit of %s USD are used up or set aside.",
		price, money.Nano(paid), money.Nano(*s.Limits.NanoUSD))
}

func denial(message string) string {
	if message == "" {
		return "Tool call denied by user."
	}
	return "Tool call denied by user: " + message
}

// answerReason maps the stop reason of the last turn to the reason of the run's end.
func (s decision) answerReason() event.Reason {
	switch {
	case s.AnswerDenied(): // what is told is not from the model
		return event.Complete
	case s.Turn.Stop == model.StopLength:
		return event.OutputCut
	case s.Turn.Stop == model.StopFilter:
		return event.Refused
	}
	return event.Complete
}

func (s decision) callModel(attempt, target int, notBefore int64) Action {
	switch {
	case s.Accepted.Raw:
		return s.reserving(CallModel{Purpose: PurposeRaw, Attempt: attempt, Target: target, NotBefore: notBefore})
	case s.relays():
		return s.reserving(CallModel{Purpose: PurposeTurn, Attempt: attempt, Target: target, NotBefore: notBefore, OfferTools: true, KeepToolChoice: true})
	}
	if a, due := s.compactFirst(target); due {
		return a
	}
	p := s.planTurn(target)
	over := p.over
	if over == event.Money && s.Turn == nil {
		over = event.BudgetExceeded
	}
	if over != "" && s.pauses() && s.Turn != nil {
		return s.pauseAt(over)
	} else if over != "" {
		return s.conclude(over)
	}
	if s.Refused != nil { // a shared budget had no room for this call
		return Pause{Reason: s.Refused.Reason, Scope: s.Refused.Scope, EndsAt: s.Refused.EndsAt}
	}
	return s.inTime(CallModel{
		Purpose: PurposeTurn, Round: s.Spent.Rounds, Attempt: attempt, Target: target, NotBefore: notBefore,
		MaxOutput: p.output, MaxCost: p.most, Warn: p.warn,
		Continues: s.Continues(), OfferTools: !p.answerNow, OfferReread: s.Truncated && !p.answerNow, KeepToolChoice: s.Spent.Rounds == 0 || s.Accepted.NoTools,
	})
}

// turnPlan is what the next call of a turn may cost, and what the model is offered and told in it.
type turnPlan struct {
	most      budget.Amount
	output    int64
	over      event.Reason // the limit that leaves no room for the call; "" = none
	answerNow bool         // without tools, so that the model must answer
	warn      bool
}

// planTurn plans the next call of a target. Part of the budget can be kept back for an answer without
// tools. The first call that does not fit in the rest has a warning for the model, and may use half of that part.
// The call after it has no tools, and may use all that is left.
func (s decision) planTurn(target int) (p turnPlan) {
	limits, warning := s.Limits, int64(len(BudgetWarning))
	p.answerNow = limits.OnLimit == budget.Answer && limits.LastRound(s.Spent)
	warnedBefore := s.WarnedAt > 0 && s.WarnedAt <= s.Spent.Rounds
	switch {
	case limits.OnLimit != budget.Answer || limits.KeepBack == 0:
	case warnedBefore:
		p.answerNow = true
	case p.answerNow:
	default:
		if p.most, p.output, p.over = s.planWithin(limits.Keeping(1), target, 0); p.over == "" {
			return p
		}
		p.warn = true
		if p.most, p.output, p.over = s.planWithin(limits.Keeping(2), target, warning); p.over == "" {
			return p
		}
		p.answerNow = true
	}
	if p.warn {
		if p.most, p.output, p.over = s.planWithin(limits, target, warning); p.over == "" {
			return p
		}
		p.warn = false // there is room for an answer, perhaps, and none for the warning
	}
	p.most, p.output, p.over = s.planWithin(limits, target, 0)
	return p
}

// plan returns the maximum cost of the next call of a target and its output limit, or which limit
// of the run leaves no room for it.
func (s decision) plan(target int) (most budget.Amount, output int64, over event.Reason) {
	return s.planWithin(s.Limits, target, 0)
}

// planWithin does so for other limits of the run, and for a prompt with more bytes.
func (s decision) planWithin(limits budget.Limits, target int, more int64) (most budget.Amount, output int64, over event.Reason) {
	next := budget.Call{
		CountedTokens: s.CountedTokens, UncountedBytes: s.UncountedBytes + s.Accepted.RawBytes + more, AskedOutput: s.Accepted.MaxTokens,
		Price: s.priceOf(target), Estimate: s.Accepted.Rules.Estimate,
	}
	if s.relays() { // which has no other limits
		limits = budget.Limits{NanoUSD: limits.NanoUSD}
	}
	return limits.Plan(s.Spent, next, len(s.Budgets) > 0)
}

// reserving returns the call of a relay with its maximum cost, if a limit applies. Its output is not
// limited: what it costs beyond the maximum is an overrun.
func (s decision) reserving(c CallModel) Action {
	most, _, over := s.plan(c.Target)
	if over != "" {
		return s.finish(event.BudgetExceeded)
	}
	c.MaxCost = most
	return c
}

// finish returns the end of a run in state s for the reason, with its cause. The run
// must be accepted.
func (s decision) finish(reason event.Reason) Finish {
	return Finish{Reason: reason, Cause: s.cause(reason), HandOver: s.handOver(reason)}
}

func (s decision) cause(reason event.Reason) Cause {
	switch {
	case reason == event.ServerUnavailable && s.Catalogued != nil:
		server, _ := s.missingServer()
		return Cause{Server: server.Label}
	case reason == event.Invalid && s.Catalogued != nil && s.Catalogued.Conflict != nil:
		return Cause{Conflict: s.Catalogued.Conflict}
	case reason == event.Invalid && s.Catalogued != nil:
		return Cause{MissingTool: s.Catalogued.Missing}
	case reason == event.ToolAbort:
		return Cause{Call: s.failedCall()}
	case reason == event.Lost:
		c, _ := s.FatalCall()
		return Cause{Call: c.Key}
	case reason == event.ModelError:
		c := Cause{Provider: s.providerOf(s.Attempt.Target), Exhausted: s.exhausted()}
		if f := s.Attempt.First; f != nil {
			c.Provider, c.Credential, c.Param = s.providerOf(s.Attempt.Tried[0]), f.Credential, f.Param
		}
		return c
	case reason == event.TooLong:
		return Cause{Provider: s.providerOf(s.Attempt.Target), Largest: s.Compactions.Largest}
	case (reason == event.Cancelled || reason == event.CallerGone) && s.Cancelled != nil:
		return Cause{Gone: s.Cancelled.Code}
	case reason == event.HookDenied:
		return Cause{Hook: s.deniedAtStart()}
	case reason == event.Memory && s.Cancelled != nil && s.Cancelled.Code != "":
		return Cause{MemoryLimit: s.Cancelled.Code, Detail: s.Cancelled.Detail}
	}
	return Cause{}
}

// providerOf returns the name of the provider of a target; "" if the journal does not have it.
func (s decision) providerOf(i int) string {
	if i >= 0 && i < len(s.Accepted.Targets) {
		return s.Accepted.Targets[i].Provider
	}
	return ""
}

// handOver returns the calls that the caller executes after an end for the reason. A
// translated relay hands over the calls of its turn for every reason.
func (s decision) handOver(reason event.Reason) []CallKey {
	if reason != event.ClientCalls && (!s.relays() || s.Accepted.Raw) {
		return nil
	}
	calls := s.ClientCalls()
	if s.handsOver() {
		calls = nil
		for _, c := range s.Calls {
			calls = append(calls, *c)
		}
	}
	var keys []CallKey
	for _, c := range calls {
		keys = append(keys, c.Key)
	}
	return keys
}

// handsOver reports whether the caller gets all calls of the latest turn, which is the last that the limits allow.
func (s decision) handsOver() bool {
	if s.Limits.OnLimit != budget.HandOver || s.Accepted.NoTools || s.Turn == nil || s.Spent.Rounds < s.Limits.Rounds || len(s.Calls) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.Calls, func(c *Call) bool { return c.Prepared != nil || c.Done })
}

// pauseAt returns the wait for a raise of a limit of the run.
func (s decision) pauseAt(reason event.Reason) Action { return Pause{Reason: reason} }

// inTime returns an action that starts something, or the wait for more time.
func (s decision) inTime(a Action) Action {
	if s.TimeUp {
		return s.pauseAt(event.Deadline)
	}
	return a
}

// held returns the calls that are held back because they are over a limit of a run that pauses, with
// what the run would end with.
func (s decision) held() map[CallKey]event.Reason {
	if !s.pauses() {
		return nil
	}
	_, held := s.judge()
	return held
}

// firstHeld returns the limit that holds back the first of the held calls.
func (s decision) firstHeld() event.Reason {
	held := s.held()
	for _, c := range s.Calls {
		if over := held[c.Key]; over != "" {
			return over
		}
	}
	return ""
}
