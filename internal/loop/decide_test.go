package loop

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
)

func call(round, attempt int) CallModel {
	return CallModel{Purpose: PurposeTurn, Round: round, Attempt: attempt, OfferTools: true, KeepToolChoice: round == 0}
}

// answers is an AnswerCalls without its text.
type answers struct {
	Calls   []CallKey
	Outcome Outcome
}

func (answers) action() {}

// strip returns an AnswerCalls without its text, and a Finish with its reason only: see
// TestFinishCarriesItsCause.
func strip(a Action) Action {
	switch x := a.(type) {
	case AnswerCalls:
		return answers{x.Calls, x.Outcome}
	case Finish:
		return Finish{Reason: x.Reason}
	}
	return a
}

// TestDecide covers the rules in their order of precedence. // A05
func TestDecide(t *testing.T) {
	cancel := CancelRequested{By: "p", Cause: event.Cancelled}
	callGone := CancelRequested{By: "p", Cause: event.CallerGone}
	requiredDown := Server{Label: "s", Required: true, Error: "down"}

	tests := []struct {
		name  string
		facts []Body
		want  Action
	}{
		// A run without errors.
		{"a run begins with discovery", []Body{accepted()}, Discover{}},
		{"after discovery the model is called with the caller's tool choice", begin(), call(0, 1)},
		{"an answer without calls ends the run", with(begin(), asked(0, 1), turn(0, model.StopEnd)), finish(event.Complete)},
		{"calls are prepared before anything else", oneTurn("a", "b"), PrepareTools{[]CallKey{"0.0", "0.1"}}},
		{"calls without approval are executed", with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1")), ExecuteTools{[]CallKey{"0.0", "0.1"}}},
		{"after the results the model is called without the forced tool choice", // C18
			with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0")), call(1, 1)},
		{"the relay is one model call", []Body{accepted(raw)}, CallModel{Purpose: PurposeRaw, Attempt: 1}},
		{"the relay ends after its model call", []Body{accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}, Turn{Purpose: PurposeRaw}}, finish(event.Complete)},
		{"a translated relay is one model call with the caller's tools", []Body{accepted(translated)}, CallModel{Purpose: PurposeTurn, Attempt: 1, OfferTools: true, KeepToolChoice: true}},
		{"a translated relay ends with its answer", []Body{accepted(translated), asked(0, 1), turn(0, model.StopEnd)}, finish(event.Complete)},
		{"all calls of a translated relay are the caller's", []Body{accepted(translated), asked(0, 1), turn(0, model.StopCalls, "a", "b")}, finish(event.ClientCalls)},
		{"a translated relay that was cut off keeps its reason", []Body{accepted(translated), asked(0, 1), turn(0, model.StopLength, "a", "b…")}, finish(event.OutputCut)},
		{"a translated relay whose calls were filtered keeps its reason", []Body{accepted(translated), asked(0, 1), turn(0, model.StopFilter, "a")}, finish(event.Refused)},
		{"a translated relay whose client has left leaves its calls", []Body{accepted(translated), asked(0, 1), turn(0, model.StopCalls, "a"), callGone}, finish(event.CallerGone)},

		// Ended: nothing new is started.
		{"a cancel before the first call ends the run", with(begin(), cancel), finish(event.Cancelled)},
		{"a cancel wins over calls that are ready to run", with(oneTurn("a"), prepared("0.0"), cancel), answers{[]CallKey{"0.0"}, NotRun}},
		{"calls in flight are accounted for as unknown first", with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), cancel), answers{[]CallKey{"0.0"}, Unknown}},
		{"the run ends after its calls are answered", with(oneTurn("a"), prepared("0.0"), cancel, answered("0.0", NotRun)), finish(event.Cancelled)},
		{"a disconnected caller has its own reason", with(begin(), asked(0, 1), failed(1, model.Gone), callGone), finish(event.CallerGone)},
		{"a cancel wins over a complete answer", with(begin(), asked(0, 1), turn(0, model.StopEnd), cancel), finish(event.Cancelled)},
		{"the first cause of an end is kept", with(begin(), Expired{}, cancel), finish(event.Deadline)},
		{"the deadline ends a run whose model hangs", with(begin(), asked(0, 1), Expired{}), finish(event.Deadline)},
		{"a blocked address ends the run", []Body{accepted(), Blocked{Reason: "loopback"}}, finish(event.Blocked)},
		{"nothing follows the end", with(begin(), asked(0, 1), turn(0, model.StopEnd), Finished{Reason: event.Complete}), finish(event.Complete)},

		// A failed tool with tool_error_mode recover or abort.
		{"recover: a failed tool goes back to the model", // C09
			with(oneTurn("a"), prepared("0.0"), started("0.0"), errored("0.0")), call(1, 1)},
		{"abort: a failed tool ends the run", // C10
			with(begin(abortOnTool), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), errored("0.0")), finish(event.ToolAbort)},
		{"abort: the calls after it are not run", with(begin(abortOnTool, mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), errored("0.0")), answers{[]CallKey{"0.1"}, NotRun}},
		{"abort: invalid arguments go back to the model", with(begin(abortOnTool), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0", badArgs), answered("0.0", Error)), call(1, 1)},

		// Failed attempts.
		{"a transient failure is retried at RetryAt", with(begin(), asked(0, 1), failed(1, model.Transient, retryAt(4500))), CallModel{Purpose: PurposeTurn, Attempt: 2, NotBefore: 4500, OfferTools: true, KeepToolChoice: true}},
		{"three failed attempts end the run", with(begin(), asked(0, 1), failed(1, model.Transient), asked(0, 2), failed(2, model.Transient), asked(0, 3), failed(3, model.Transient)), finish(event.ModelError)},
		{"a retry does not count as a round", with(begin(rounds(1)), asked(0, 1), failed(1, model.Transient), asked(0, 2), turn(0, model.StopEnd)), finish(event.Complete)},
		{"a retry later than RetryWaitMS ends the run", with(begin(), asked(0, 1), failed(1, model.Transient, retryAt(4000+MaxRetryWaitMS+1))), finish(event.ModelError)},
		{"a retry beyond the deadline ends the run", with(begin(func(b *Accepted) { b.Limits.ActiveMS = 5000 }), asked(0, 1), failed(1, model.Transient, retryAt(6100))), finish(event.ModelError)},
		{"nothing is repeated after text was forwarded", with(begin(), asked(0, 1), failed(1, model.Transient, forwarded)), finish(event.ModelError)},
		{"an invalid request is not retried", with(begin(twoTargets), routed(0, 0, 0, 1), asked(0, 1), failed(1, model.Invalid)), finish(event.ModelError)},
		{"a target error moves to the next target", with(begin(twoTargets), routed(0, 0, 0, 1), asked(0, 1), failed(1, model.Target), routed(0, 1, 1)), CallModel{Purpose: PurposeTurn, Attempt: 2, Target: 1, OfferTools: true, KeepToolChoice: true}},
		{"a target error of the last target ends the run", with(begin(), asked(0, 1), failed(1, model.Target)), finish(event.ModelError)},
		{"a too long context has its own reason", with(begin(), asked(0, 1), failed(1, model.TooLong)), finish(event.TooLong)},
		{"a filtered answer is a refusal", with(begin(), asked(0, 1), failed(1, model.Filtered, status(200))), finish(event.Refused)},
		{"a filter that fails the request is a model error", with(begin(), asked(0, 1), failed(1, model.Filtered, status(400))), finish(event.ModelError)},
		{"an attempt without a recorded end is repeated", with(begin(), asked(0, 1)), call(0, 2)},
		{"the relay is never retried", []Body{accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}, failed(1, model.Transient)}, finish(event.ModelError)},
		{"a translated relay to one target is never retried", []Body{accepted(translated), asked(0, 1), failed(1, model.Transient)}, finish(event.ModelError)},
		{"a relay whose owner died is lost", []Body{accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}}, finish(event.Lost)},

		// Discovery.
		{"an optional server may be down", []Body{accepted(), catalogued(Server{Label: "s", Error: "down"})}, call(0, 1)}, // D09
		{"a required server that is down ends the run", []Body{accepted(), catalogued(requiredDown)}, finish(event.ServerUnavailable)},

		{"a client tool with the name of a gateway tool is invalid", []Body{accepted(), Catalogued{Conflict: &Conflict{"a", "s"}}}, finish(event.Invalid)}, // A16
		{"a forced tool that does not exist is invalid", []Body{accepted(), Catalogued{Missing: "a"}}, finish(event.Invalid)},                              // C25

		// Calls that get a result without execution.
		{"an unknown tool is answered with an error", with(oneTurn("a", "ghost"), prepared("0.0"), prepared("0.1", unknown), started("0.0"), done("0.0")), answers{[]CallKey{"0.1"}, Error}}, // C14
		{"invalid arguments are answered with an error", with(oneTurn("a"), prepared("0.0", badArgs)), answers{[]CallKey{"0.0"}, Error}},                                                     // C07 C16
		{"the third identical call is answered with advice", with(oneTurn("a", "a", "a"), prepared("0.0", same), prepared("0.1", same), prepared("0.2", same),
			started("0.0"), started("0.1"), done("0.0"), done("0.1")), answers{[]CallKey{"0.2"}, NotRun}}, // B13
		{"fail: the third identical call ends the run", with(begin(guard(policy.Fail)), asked(0, 1), turn(0, model.StopCalls, "a", "a", "a"), prepared("0.0", same), prepared("0.1", same), prepared("0.2", same)), answers{[]CallKey{"0.0", "0.1", "0.2"}, NotRun}},
		{"fail: the reason is no progress", with(begin(guard(policy.Fail)), asked(0, 1), turn(0, model.StopCalls, "a", "a", "a"), prepared("0.0", same), prepared("0.1", same), prepared("0.2", same), answered("0.0", NotRun), answered("0.1", NotRun), answered("0.2", NotRun)), finish(event.NoProgress)},
		{"calls beyond the run's limit are skipped", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0")), answers{[]CallKey{"0.1"}, SkippedLimit}},
		{"calls within the run's limit are executed", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), ExecuteTools{[]CallKey{"0.0"}}},
		{"the run ends for its call limit when one was skipped", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0"), answered("0.1", SkippedLimit)), finish(event.MaxCalls)},
		{"the run continues if none was skipped", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), call(1, 1)},
		{"calls beyond the turn's limit are skipped", with(begin(perTurn(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0")), answers{[]CallKey{"0.1"}, SkippedLimit}},
		{"client calls do not count towards the turn's limit", with(begin(perTurn(1)), asked(0, 1), turn(0, model.StopCalls, "yours", "a", "yours"), prepared("0.0", clients), prepared("0.1"), prepared("0.2", clients)), ExecuteTools{[]CallKey{"0.1"}}},
		{"the model may ask again for calls skipped by the turn's limit", with(begin(perTurn(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0"), answered("0.1", SkippedLimit)), call(1, 1)},
		{"first: the other calls of the turn are answered", with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0")), answers{[]CallKey{"0.1"}, NotRun}}, // C04
		{"a once-call whose answer was lost is not repeated", with(oneTurn("a"), prepared("0.0"), started("0.0")), answers{[]CallKey{"0.0"}, Unknown}},
		{"a denied call is answered", with(oneTurn("a"), prepared("0.0", gated), waiting("0.0", "w"), Parked{}, CallResolved{WaitID: "w"}), answers{[]CallKey{"0.0"}, Denied}},
		{"a wait that expired is a denial", with(oneTurn("a"), prepared("0.0", gated), waiting("0.0", "w"), Parked{}, Expired{WaitID: "w"}), answers{[]CallKey{"0.0"}, Denied}},

		// Calls that may run.
		{"serial: one call at a time", with(begin(mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), ExecuteTools{[]CallKey{"0.0"}}}, // C02
		{"serial: the next when it is done", with(begin(mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0")), ExecuteTools{[]CallKey{"0.1"}}},
		{"safe: reading calls run together", with(begin(mode(Safe)), asked(0, 1), turn(0, model.StopCalls, "w", "r", "r"), prepared("0.0"), prepared("0.1", reads), prepared("0.2", reads)), ExecuteTools{[]CallKey{"0.1", "0.2"}}}, // C03
		{"safe: the others follow one by one", with(begin(mode(Safe)), asked(0, 1), turn(0, model.StopCalls, "w", "r", "w"), prepared("0.0"), prepared("0.1", reads), prepared("0.2"), started("0.1"), done("0.1")), ExecuteTools{[]CallKey{"0.0"}}},
		{"a reading call whose answer was lost is made again", with(oneTurn("a"), prepared("0.0", reads), started("0.0")), ExecuteTools{[]CallKey{"0.0"}}},

		// Approvals and client calls.
		{"calls without approval run before the run parks", with(oneTurn("a", "g"), prepared("0.0"), prepared("0.1", gated)), ExecuteTools{[]CallKey{"0.0"}}},
		{"all approvals of a turn are asked for at once", with(oneTurn("g", "a", "g"), prepared("0.0", gated), prepared("0.1"), prepared("0.2", gated), started("0.1"), done("0.1")), Interrupt{[]CallKey{"0.0", "0.2"}}},
		{"an approved call runs", with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{}, CallResolved{WaitID: "w", Approved: true}, Resumed{}), ExecuteTools{[]CallKey{"0.0"}}},
		{"tool_choice none: no call is executed or handed over", // C18
			with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "a", "yours", "ghost"), prepared("0.0"), prepared("0.1", clients), prepared("0.2", unknown)),
			answers{[]CallKey{"0.0", "0.1", "0.2"}, NotRun}},
		{"tool_choice none: the model is called again with the same choice",
			with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), answered("0.0", NotRun)),
			CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, OfferTools: true, KeepToolChoice: true}},
		{"tool_choice none: no approval is asked for", with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0", gated)), answers{[]CallKey{"0.0"}, NotRun}},
		{"the gateway's calls of a mixed turn run first", with(oneTurn("mine", "yours"), prepared("0.0"), prepared("0.1", clients)), ExecuteTools{[]CallKey{"0.0"}}}, // A08
		{"the caller gets the remaining calls", with(oneTurn("mine", "yours"), prepared("0.0"), prepared("0.1", clients), started("0.0"), done("0.0")), finish(event.ClientCalls)},
		{"unknown tools of a mixed turn are answered before the caller gets its calls", with(oneTurn("ghost", "yours"), prepared("0.0", unknown), prepared("0.1", clients)), answers{[]CallKey{"0.0"}, Error}},
		{"the caller gets its calls also in the last round", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopCalls, "yours"), prepared("0.0", clients)), finish(event.ClientCalls)},

		// Answers.
		{"an answer cut at its length limit", with(begin(), asked(0, 1), turn(0, model.StopLength)), finish(event.OutputCut)},
		{"an answer stopped by a filter", with(begin(), asked(0, 1), turn(0, model.StopFilter)), finish(event.Refused)},
		{"a cut turn executes its complete calls only", with(begin(), asked(0, 1), turn(0, model.StopUnknown, "a", "b…")), PrepareTools{[]CallKey{"0.0"}}},                        // G07
		{"no call of a cut turn is executed where a cut ends the run", with(begin(endCut), asked(0, 1), turn(0, model.StopLength, "a", "b…")), answers{[]CallKey{"0.0"}, NotRun}}, // B10
		{"a cut turn without calls ends the run", with(begin(endCut), asked(0, 1), turn(0, model.StopLength, "b…")), finish(event.OutputCut)},
		{"a turn that is not cut executes its calls where a cut ends the run", with(begin(endCut), asked(0, 1), turn(0, model.StopCalls, "a")), PrepareTools{[]CallKey{"0.0"}}},
		{"an incomplete call is ignored", with(begin(), asked(0, 1), turn(0, model.StopLength, "a…")), finish(event.OutputCut)},

		// Answers whose rest is asked for. // A12
		{"the rest of a cut answer is asked for, in the same round", with(begin(continues), asked(0, 1), cutTurn(0)), CallModel{Purpose: PurposeTurn, Attempt: 2, Continues: true, OfferTools: true, KeepToolChoice: true}},
		{"a second time", with(begin(continues), asked(0, 1), cutTurn(0), asked(0, 2), cutAgain(restOf(0, model.StopLength))), CallModel{Purpose: PurposeTurn, Attempt: 3, Continues: true, OfferTools: true, KeepToolChoice: true}},
		{"it is no round", with(begin(continues, rounds(1)), asked(0, 1), cutTurn(0), asked(0, 2), restOf(0, model.StopEnd)), finish(event.Complete)},
		{"after the last time the run ends with what there is", with(begin(continues), asked(0, 1), cutTurn(0), asked(0, 2), cutAgain(restOf(0, model.StopLength)), asked(0, 3), restOf(0, model.StopLength)), finish(event.OutputCut)},
		{"the calls of the rest are executed", with(begin(continues), asked(0, 1), cutTurn(0), asked(0, 2), restOf(0, model.StopCalls, "a")), PrepareTools{[]CallKey{"0.0"}}},
		{"a cancel wins over the rest", with(begin(continues), asked(0, 1), cutTurn(0), cancel), finish(event.Cancelled)},
		{"the call for the rest is repeated", with(begin(continues), asked(0, 1), cutTurn(0), asked(0, 2), failed(2, model.Transient, retryAt(4500))), CallModel{Purpose: PurposeTurn, Attempt: 3, NotBefore: 4500, Continues: true, OfferTools: true, KeepToolChoice: true}},
		{"without tokens for the rest the run ends with what there is", with(begin(continues, tokens(16)), reserved(0, 1, 16), asked(0, 1), cutTurn(0)), finish(event.OutputCut)},
		{"a budget without room for the rest ends a run that has asked for it before", with(begin(continues, shared, durable), reserved(0, 1, 40), asked(0, 1), cutTurn(0), reserved(0, 2, 40), asked(0, 2), Resumed{}, ReserveRefused{Attempt: 3, Reason: event.Tokens}), finish(event.Tokens)},
		{"a budget without room for the rest ends the run with what there is", with(begin(continues, shared), reserved(0, 1, 40), asked(0, 1), cutTurn(0), ReserveRefused{Attempt: 2, Reason: event.Tokens}), finish(event.OutputCut)},
		{"input waits until the answer is whole", with(begin(continues), asked(0, 1), cutTurn(0), InputAdded{ItemsRef: "late"}, asked(0, 2), restOf(0, model.StopEnd)), call(1, 1)},

		// Limits.
		{"the calls of the last allowed round run", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0")), ExecuteTools{[]CallKey{"0.0"}}},
		{"the run ends after its last round", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), finish(event.MaxRounds)}, // B03
		{"an answer in the last round completes the run", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopEnd)), finish(event.Complete)},
		{"hand_over: the caller gets all calls of the last round", with(begin(rounds(2), handOverLast), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0"), asked(1, 1), turn(1, model.StopCalls, "a", "b")), // B14
			Finish{Reason: event.ClientCalls, HandOver: []CallKey{"1.0", "1.1"}}},
		{"hand_over: the calls of an earlier round are prepared", with(begin(rounds(2), handOverLast), asked(0, 1), turn(0, model.StopCalls, "a")), PrepareTools{[]CallKey{"0.0"}}},
		{"hand_over: an answer in the last round completes the run", with(begin(rounds(1), handOverLast), asked(0, 1), turn(0, model.StopEnd)), finish(event.Complete)},
		{"hand_over: a cancelled run hands nothing over", with(begin(rounds(1), handOverLast), asked(0, 1), turn(0, model.StopCalls, "a"), CancelRequested{Cause: event.Cancelled}), AnswerCalls{[]CallKey{"0.0"}, NotRun, "Not run: the run ended (cancelled)."}},
		{"answer: a call that was not offered is answered", with(begin(rounds(2), answerLast), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0"), toolless(1, 1), turn(1, model.StopCalls, "a"), prepared("1.0")),
			AnswerCalls{[]CallKey{"1.0"}, NotRun, "Not run: the model call that asked for it was offered no tools. Answer without them."}},
		{"answer: the last round is offered no tools", with(begin(rounds(2), answerLast), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1}},
		{"tokens end the run before the next model call", with(begin(tokens(30)), reserved(0, 1, 30), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), finish(event.Tokens)},
		{"a complete answer beyond the token limit is kept", with(begin(tokens(16)), reserved(0, 1, 16), asked(0, 1), overrun(turn(0, model.StopEnd))), finish(event.Complete)},
		{"the output limit is what is left of the tokens", with(begin(tokens(100)), reserved(0, 1, 100), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: OK, Bytes: 30}),
			CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, MaxOutput: 60, MaxCost: budget.Amount{Tokens: 85}, OfferTools: true}}, // 15 spent; the prompt is 15 known and 10 new
		{"what is kept back is not for the first calls", begin(tokens(70), keepBack(40)), CallModel{Purpose: PurposeTurn, Attempt: 1, MaxOutput: 42, MaxCost: budget.Amount{Tokens: 42}, OfferTools: true, KeepToolChoice: true}}, // B20
		// 1000 tokens, of which 400 are kept back: 15 are spent, and the prompt is 15 known and 567 new, and the warning.
		{"the first call that needs part of it has a warning, and may use half of it", afterOneOf(1700), CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, Warn: true, MaxOutput: 770 - withWarning(1700), MaxCost: budget.Amount{Tokens: 785}, OfferTools: true}},
		{"a further attempt at that call has the warning too", with(afterOneOf(1700), reserved(1, 1, 785), warned(1, 1), failed(1, model.Transient, status(503))),
			CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 2, Warn: true, MaxOutput: 770 - withWarning(1700), MaxCost: budget.Amount{Tokens: 785}, OfferTools: true}},
		{"the call after it has no tools, and all that is left", with(afterOneOf(1700), reserved(1, 1, 785), warned(1, 1), turn(1, model.StopCalls, "a"), prepared("1.0"), started("1.0"), done("1.0")),
			CallModel{Purpose: PurposeTurn, Round: 2, Attempt: 1, MaxOutput: 955, MaxCost: budget.Amount{Tokens: 970}}},
		{"a call for which half of it is not enough has no tools", afterOneOf(2300), CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, Warn: true, MaxOutput: 970 - withWarning(2300), MaxCost: budget.Amount{Tokens: 985}}},
		{"where there is no room for the warning, it is left out", afterOneOf(2850), CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, MaxOutput: 20, MaxCost: budget.Amount{Tokens: 985}}},
		{"a call for which all of it is not enough is not made", afterOneOf(3000), finish(event.Tokens)},
		{"nothing is kept back where the run stops at a limit", begin(tokens(70), func(b *Accepted) { b.Limits.KeepBack = 40 }), CallModel{Purpose: PurposeTurn, Attempt: 1, MaxOutput: 70, MaxCost: budget.Amount{Tokens: 70}, OfferTools: true, KeepToolChoice: true}},
		{"a shared budget limits the output", begin(shared), CallModel{Purpose: PurposeTurn, Attempt: 1, MaxOutput: budget.DefaultOutput, MaxCost: budget.Amount{Tokens: budget.DefaultOutput}, OfferTools: true, KeepToolChoice: true}},
		{"a shared budget without room ends the run", with(begin(shared), ReserveRefused{Attempt: 1, Scope: "org", Reason: event.Tokens}), finish(event.Tokens)},
		{"the reservation of a lost call is spent", with(begin(durable, tokens(40)), reserved(0, 1, 40), asked(0, 1), Resumed{}), finish(event.Tokens)},
		{"a call that the provider refused costs nothing", with(begin(tokens(40)), reserved(0, 1, 40), asked(0, 1), failed(1, model.Transient, func(b *TurnFailed) { b.Status = 503 })),
			CallModel{Purpose: PurposeTurn, Attempt: 2, MaxOutput: 40, MaxCost: budget.Amount{Tokens: 40}, OfferTools: true, KeepToolChoice: true}},
		{"a failed call without usage costs its reservation", with(begin(tokens(40)), reserved(0, 1, 40), asked(0, 1), failed(1, model.Transient)), finish(event.Tokens)},

		{"a cached result is a result", with(oneTurn("a", "b"), prepared("0.0", reads), prepared("0.1"), answered("0.0", Cached)), ExecuteTools{[]CallKey{"0.1"}}}, // F01

		// New owners.
		{"a durable run continues", with(begin(durable), asked(0, 1), Resumed{}), CallModel{Purpose: PurposeTurn, Attempt: 2, OfferTools: true, KeepToolChoice: true}},
		{"a light run is lost with its owner", with(begin(), asked(0, 1), Resumed{}), finish(event.Lost)},
		{"a lost light run answers its calls", with(oneTurn("a"), prepared("0.0"), started("0.0"), Resumed{}), answers{[]CallKey{"0.0"}, Unknown}},
		{"a read interrupted by the end of the run is an error", with(oneTurn("a"), prepared("0.0", reads), started("0.0"), Resumed{}), answers{[]CallKey{"0.0"}, Error}}, // D19
		{"interrupted calls are answered one outcome at a time", with(begin(mode(Parallel)), asked(0, 1), turn(0, model.StopCalls, "a", "b", "c"), prepared("0.0", reads), prepared("0.1"), prepared("0.2"), started("0.0"), started("0.1"), cancel), answers{[]CallKey{"0.1"}, Unknown}},
		{"abort: a started call that provably never left is a failed tool", with(begin(abortOnTool, mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: NotRun}), finish(event.ToolAbort)},
		{"a light run that parked is durable", with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{}, CallResolved{WaitID: "w", Approved: true}, Resumed{}, started("0.0"), Resumed{}), answers{[]CallKey{"0.0"}, Unknown}},
		{"five dead owners without progress end the run", with(begin(durable, quick), Resumed{}, Resumed{}, Resumed{}, Resumed{}, Resumed{}), finish(event.Lost)},
		{"dead owners before progress do not count", with(begin(durable), Resumed{}, Resumed{}, Resumed{}, Resumed{}, asked(0, 1), failed(1, model.Transient), Resumed{}),
			CallModel{Purpose: PurposeTurn, Attempt: 2, OfferTools: true, KeepToolChoice: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			play(t, tt.facts...) // fails if a fact is not allowed
			s := Fold(facts(tt.facts...))
			if diff := cmp.Diff(strip(tt.want), strip(Decide(s))); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResultsAreInCallOrder(t *testing.T) { // C05
	s := play(t, with(oneTurn("a", "b", "c"), prepared("0.0"), prepared("0.1"), prepared("0.2"),
		started("0.0"), started("0.1"), started("0.2"), done("0.2"), done("0.0"), done("0.1"))...)
	want := []string{"t0.0", "r0.0", "r0.1", "r0.2"}
	if diff := cmp.Diff(want, s.Seen()); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

// A call that is answered without running is answered in its place: after the calls before it have
// run, and before those behind it start. One that waits for a person holds nothing up. // C05
func TestCallsAreAnsweredInTheirPlace(t *testing.T) {
	facts := func(m Parallelism) []Body {
		return with(begin(mode(m)), asked(0, 1), turn(0, model.StopCalls, "a", "ghost", "b", "ghost"),
			prepared("0.0"), prepared("0.1", unknown), prepared("0.2"), prepared("0.3", unknown))
	}
	for _, m := range []Parallelism{Parallel, Serial, Safe} {
		facts := facts(m)
		for _, want := range []struct {
			action Action
			then   []Body
		}{
			{ExecuteTools{[]CallKey{"0.0"}}, []Body{started("0.0"), done("0.0")}},
			{answers{[]CallKey{"0.1"}, Error}, []Body{answered("0.1", Error)}},
			{ExecuteTools{[]CallKey{"0.2"}}, []Body{started("0.2"), done("0.2")}},
			{answers{[]CallKey{"0.3"}, Error}, []Body{answered("0.3", Error)}},
			{call(1, 1), nil},
		} {
			if diff := cmp.Diff(strip(want.action), strip(Decide(play(t, facts...)))); diff != "" {
				t.Errorf("%s, after %d facts (-want +got):\n%s", m, len(facts), diff)
			}
			facts = with(facts, want.then...)
		}
	}
	waits := with(oneTurn("g", "ghost"), prepared("0.0", gated), prepared("0.1", unknown))
	if diff := cmp.Diff(strip(answers{[]CallKey{"0.1"}, Error}), strip(Decide(play(t, waits...)))); diff != "" {
		t.Errorf("behind a call that waits (-want +got):\n%s", diff)
	}
}

func TestWithoutToolsEveryCallHasAResultInTheTranscript(t *testing.T) { // C18
	for name, facts := range map[string][]Body{
		"the caller's tool alone": with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "yours"), prepared("0.0", clients),
			answered("0.0", NotRun)),
		"the caller's tool last": with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "mine", "yours"), prepared("0.0"), prepared("0.1", clients),
			answered("0.0", NotRun), answered("0.1", NotRun)),
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, facts...)
			want := []string{"t0.0"}
			for _, c := range s.Calls {
				want = append(want, c.ResultRef)
			}
			if diff := cmp.Diff(want, s.Seen()); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMixedTurnHidesGatewayResults(t *testing.T) { // A08
	s := play(t, accepted(), InputAdded{ItemsRef: "in", By: ByClient}, catalogued(), asked(0, 1),
		turn(0, model.StopCalls, "yours", "mine"), prepared("0.0", clients), prepared("0.1"), started("0.1"), done("0.1"))
	if diff := cmp.Diff([]string{"t0.0", "r0.1"}, s.HiddenRefs()); diff != "" {
		t.Errorf("hidden items (-want +got):\n%s", diff)
	}
	if !s.HidesItems() || len(s.ClientCalls()) != 1 {
		t.Errorf("HidesItems = %v, ClientCalls = %v", s.HidesItems(), s.ClientCalls())
	}
	s = play(t, with(oneTurn("yours"), prepared("0.0", clients))...)
	if s.HidesItems() {
		t.Error("HidesItems = true for a first turn with client calls only")
	}
	facts := oneTurn("yours")
	last := facts[len(facts)-1].(Turn)
	last.Unsendable = true // P08
	facts[len(facts)-1] = last
	if s = play(t, with(facts, prepared("0.0", clients))...); !s.HidesItems() {
		t.Error("HidesItems = false for a turn with reasoning that the caller cannot send back")
	}
}

func TestUsageIsSummedOverRounds(t *testing.T) { // B23
	s := play(t, with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0"), asked(1, 1), turn(1, model.StopEnd))...)
	if want := (model.Usage{Input: 20, Output: 10}); s.Usage != want || s.Spent.Tokens != 30 {
		t.Errorf("usage = %+v, tokens = %d", s.Usage, s.Spent.Tokens)
	}
}

// overrun returns the turn with more usage than was reserved.
func overrun(b Body) Body {
	t := b.(Turn)
	t.Usage = model.Usage{Input: 500, Output: 500}
	return t
}

// Time without an owner does not count towards the deadline.
func TestTimeWithoutAnOwnerIsNotActive(t *testing.T) { // P01 B04
	s := play(t, with(begin(durable), asked(0, 1))...)
	last := s.At
	s = Apply(s, Fact{Seq: 9, At: last + 3_600_000, Body: Resumed{}})
	if got, want := s.DeadlineAt(), last+3_600_000+120_000-(last-1000); got != want {
		t.Errorf("deadline = %d, want %d", got, want)
	}
}

func TestDeadlineIsSuspendedWhileParked(t *testing.T) {
	s := play(t, with(oneTurn("g"), prepared("0.0", gated))...) // accepted at 1 s
	if got := s.DeadlineAt(); got != 121_000 {
		t.Errorf("deadline = %d", got)
	}
	s = play(t, with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{ActiveMS: 6000})...)
	if got := s.DeadlineAt(); got != 0 {
		t.Errorf("deadline while parked = %d", got)
	}
	s = Apply(s, Fact{Seq: 9, At: 1_000_000, Body: Resumed{}})
	if got := s.DeadlineAt(); got != 1_000_000+114_000 {
		t.Errorf("deadline after = %d", got)
	}
}

func TestApplyDoesNotModifyItsInput(t *testing.T) {
	bodies := with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1"))
	before := play(t, bodies...)
	shadow := all(before)
	for _, b := range []Body{started("0.0"), done("0.0"), answered("0.1", NotRun), InputAdded{ItemsRef: "x", By: ByClient}, turn(0, model.StopCalls, "z")} {
		Apply(before, Fact{Seq: 99, Body: b})
		if got := all(before); got != shadow {
			t.Fatalf("Apply of %s modified its input:\n%s\n%s", b.Kind(), shadow, got)
		}
	}
}

// all returns all of a state as text, with the calls that it shares with others.
func all(s State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", s)
	for _, c := range s.Calls {
		fmt.Fprintf(&b, " %+v", *c)
	}
	return b.String()
}

// A fact about one call of many costs no copy of all of them.
func TestAFactCopiesOneCall(t *testing.T) {
	perFact := func(n int) float64 {
		var calls []string
		for i := range n {
			calls = append(calls, fmt.Sprint("t", i))
		}
		bodies := oneTurn(calls...)
		for i := range n {
			bodies = append(bodies, prepared(Key(0, i)))
		}
		s := play(t, bodies...)
		const times = 1000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			Apply(s, Fact{Seq: 999, Epoch: 1, At: 1, Body: started("0.0")})
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / times
	}
	size := float64(unsafe.Sizeof(Call{}))
	if few, many := perFact(2), perFact(32); many > few+size {
		t.Errorf("a fact about one of 2 calls allocates %.0f bytes, and about one of 32 %.0f: a call has %.0f", few, many, size)
	}
}
