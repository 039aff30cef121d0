package loop

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
)

func call(round, attempt int) CallModel {
	return CallModel{Purpose: PurposeTurn, Round: round, Attempt: attempt, OfferTools: true, ChoiceAsAsked: round == 0}
}

// keys and outcome compare an AnswerCalls without its wording.
type answers struct {
	Calls   []CallKey
	Outcome Outcome
}

func (answers) action() {}

func strip(a Action) Action {
	if x, ok := a.(AnswerCalls); ok {
		return answers{x.Calls, x.Outcome}
	}
	return a
}

// TestDecide lists the rules in their order of precedence. // A05
func TestDecide(t *testing.T) {
	cancel := CancelRequested{By: "p", Cause: event.Cancelled}
	callGone := CancelRequested{By: "p", Cause: event.CallerGone}
	retryAt := func(at int64) func(*TurnFailed) { return func(b *TurnFailed) { b.RetryAt = at } }
	forwarded := func(b *TurnFailed) { b.Forwarded = true }
	status := func(n int) func(*TurnFailed) { return func(b *TurnFailed) { b.Status = n } }
	requiredDown := Server{Label: "s", Required: true, Error: "down"}

	tests := []struct {
		name  string
		facts []Body
		want  Action
	}{
		// The way of a run that meets no trouble.
		{"a run begins with discovery", []Body{accepted()}, Discover{}},
		{"then the model is asked, with the caller's tool choice", begin(), call(0, 1)},
		{"an answer without calls ends the run", with(begin(), asked(0, 1), turn(0, model.StopEnd)), finish(event.Complete)},
		{"calls are prepared before anything else", oneTurn("a", "b"), PrepareTools{[]CallKey{"0.0", "0.1"}}},
		{"free calls are executed", with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1")), ExecuteTools{[]CallKey{"0.0", "0.1"}}},
		{"after the results the model is asked again, and chooses itself", // C18
			with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0")), call(1, 1)},
		{"the relay is one call that nobody looks into", []Body{accepted(raw)}, CallModel{Purpose: PurposeRaw, Attempt: 1}},
		{"and ends when it is through", []Body{accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}, Turn{Purpose: PurposeRaw}}, finish(event.Complete)},

		// Ended: nothing new is started.
		{"a cancel before the first call ends the run", with(begin(), cancel), finish(event.Cancelled)},
		{"a cancel wins over calls that are ready to run", with(oneTurn("a"), prepared("0.0"), cancel), answers{[]CallKey{"0.0"}, NotRun}},
		{"calls in flight are accounted for as unknown first", with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), cancel), answers{[]CallKey{"0.0"}, Unknown}},
		{"then the run ends", with(oneTurn("a"), prepared("0.0"), cancel, answered("0.0", NotRun)), finish(event.Cancelled)},
		{"a caller who left is a reason of its own", with(begin(), asked(0, 1), failed(1, model.Gone), callGone), finish(event.CallerGone)},
		{"a cancel wins over an answer that had come", with(begin(), asked(0, 1), turn(0, model.StopEnd), cancel), finish(event.Cancelled)},
		{"the first cause of an end is kept", with(begin(), Expired{}, cancel), finish(event.Deadline)},
		{"the deadline ends a run whose model hangs", with(begin(), asked(0, 1), Expired{}), finish(event.Deadline)},
		{"a blocked address ends the run", []Body{accepted(), Blocked{Reason: "loopback"}}, finish(event.Blocked)},
		{"nothing follows the end", with(begin(), asked(0, 1), turn(0, model.StopEnd), Finished{Reason: event.Complete}), finish(event.Complete)},

		// A failed tool, where the org wants that to end the run.
		{"recover: a failed tool goes back to the model", // C09
			with(oneTurn("a"), prepared("0.0"), started("0.0"), errored("0.0")), call(1, 1)},
		{"abort: a failed tool ends the run", // C10
			with(begin(abortOnTool), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), errored("0.0")), finish(event.ToolAbort)},
		{"abort: the calls after it are not run", with(begin(abortOnTool, mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), errored("0.0")), answers{[]CallKey{"0.1"}, NotRun}},
		{"abort: refused arguments are the model's to mend", with(begin(abortOnTool), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0", badArgs), answered("0.0", Error)), call(1, 1)},

		// Failed attempts.
		{"a transient failure is tried again when it is due", with(begin(), asked(0, 1), failed(1, model.Transient, retryAt(4500))), CallModel{Purpose: PurposeTurn, Attempt: 2, NotBefore: 4500, OfferTools: true, ChoiceAsAsked: true}},
		{"three failed attempts are enough", with(begin(), asked(0, 1), failed(1, model.Transient), asked(0, 2), failed(2, model.Transient), asked(0, 3), failed(3, model.Transient)), finish(event.ModelError)},
		{"a retry is no round", with(begin(rounds(1)), asked(0, 1), failed(1, model.Transient), asked(0, 2), turn(0, model.StopEnd)), finish(event.Complete)},
		{"a wait that is too long is the caller's to wait", with(begin(), asked(0, 1), failed(1, model.Transient, retryAt(4000+MaxRetryWaitMS+1))), finish(event.ModelError)},
		{"a retry beyond the deadline is not waited for", with(begin(func(b *Accepted) { b.Limits.ActiveMS = 5000 }), asked(0, 1), failed(1, model.Transient, retryAt(6100))), finish(event.ModelError)},
		{"nothing is repeated after text was forwarded", with(begin(), asked(0, 1), failed(1, model.Transient, forwarded)), finish(event.ModelError)},
		{"a wrong request is not repeated", with(begin(twoTargets), asked(0, 1), failed(1, model.Invalid)), finish(event.ModelError)},
		{"a target that will not do it gives way to the next", with(begin(twoTargets), asked(0, 1), failed(1, model.Target)), CallModel{Purpose: PurposeTurn, Attempt: 2, Target: 1, OfferTools: true, ChoiceAsAsked: true}},
		{"the last target's refusal is the answer", with(begin(), asked(0, 1), failed(1, model.Target)), finish(event.ModelError)},
		{"a context that does not fit has a reason of its own", with(begin(), asked(0, 1), failed(1, model.TooLong)), finish(event.TooLong)},
		{"a filter inside an answer is an answer", with(begin(), asked(0, 1), failed(1, model.Filtered, status(200))), finish(event.Refused)},
		{"a filter that answers with a status is the provider's error", with(begin(), asked(0, 1), failed(1, model.Filtered, status(400))), finish(event.ModelError)},
		{"an attempt whose end nobody recorded is made again", with(begin(), asked(0, 1)), call(0, 2)},
		{"the relay is never repeated", []Body{accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}, failed(1, model.Transient)}, finish(event.ModelError)},
		{"a relay whose process died is lost", []Body{accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}}, finish(event.Lost)},

		// Discovery.
		{"a server that is down does not hold the run back", []Body{accepted(), catalogued(Server{Label: "s", Error: "down"})}, call(0, 1)}, // D09
		{"a required server that is down does", []Body{accepted(), catalogued(requiredDown)}, finish(event.ServerUnavailable)},

		{"a tool of the caller named like one of the gateway is refused", []Body{accepted(), Catalogued{Conflict: &Conflict{"a", "s"}}}, finish(event.Invalid)}, // A16
		{"a tool that must be called and that nobody has is refused", []Body{accepted(), Catalogued{Missing: "a"}}, finish(event.Invalid)},                      // C25

		// Calls that get a result without execution.
		{"a name that nobody owns is answered to the model", with(oneTurn("a", "ghost"), prepared("0.0"), prepared("0.1", unknown)), answers{[]CallKey{"0.1"}, Error}},                             // C14
		{"bad arguments are answered to the model", with(oneTurn("a"), prepared("0.0", badArgs)), answers{[]CallKey{"0.0"}, Error}},                                                                // C07 C16
		{"the third identical call is answered with advice", with(oneTurn("a", "a", "a"), prepared("0.0", same), prepared("0.1", same), prepared("0.2", same)), answers{[]CallKey{"0.2"}, NotRun}}, // B13
		{"fail: the third identical call ends the run", with(begin(guard(policy.Fail)), asked(0, 1), turn(0, model.StopCalls, "a", "a", "a"), prepared("0.0", same), prepared("0.1", same), prepared("0.2", same)), answers{[]CallKey{"0.0", "0.1", "0.2"}, NotRun}},
		{"and then its reason is no progress", with(begin(guard(policy.Fail)), asked(0, 1), turn(0, model.StopCalls, "a", "a", "a"), prepared("0.0", same), prepared("0.1", same), prepared("0.2", same), answered("0.0", NotRun), answered("0.1", NotRun), answered("0.2", NotRun)), finish(event.NoProgress)},
		{"calls beyond the run's limit are skipped", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), answers{[]CallKey{"0.1"}, SkippedLimit}},
		{"those within it still run", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), answered("0.1", SkippedLimit)), ExecuteTools{[]CallKey{"0.0"}}},
		{"the run ends for its call limit when one was skipped", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), answered("0.1", SkippedLimit), started("0.0"), done("0.0")), finish(event.MaxCalls)},
		{"and only then", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), call(1, 1)},
		{"calls beyond the turn's limit are skipped", with(begin(perTurn(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), answers{[]CallKey{"0.1"}, SkippedLimit}},
		{"the caller's own do not count", with(begin(perTurn(1)), asked(0, 1), turn(0, model.StopCalls, "yours", "a", "yours"), prepared("0.0", clients), prepared("0.1"), prepared("0.2", clients)), ExecuteTools{[]CallKey{"0.1"}}},
		{"and the model may ask for them again", with(begin(perTurn(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), answered("0.1", SkippedLimit), started("0.0"), done("0.0")), call(1, 1)},
		{"first: the other calls of the turn are answered", with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), answers{[]CallKey{"0.1"}, NotRun}}, // C04
		{"a once-call whose answer was lost is not repeated", with(oneTurn("a"), prepared("0.0"), started("0.0")), answers{[]CallKey{"0.0"}, Unknown}},
		{"a denied call is answered", with(oneTurn("a"), prepared("0.0", gated), CallWaiting{Key: "0.0", WaitID: "w"}, Parked{}, CallResolved{WaitID: "w"}), answers{[]CallKey{"0.0"}, Denied}},
		{"a wait that expired is a denial", with(oneTurn("a"), prepared("0.0", gated), CallWaiting{Key: "0.0", WaitID: "w"}, Parked{}, Expired{WaitID: "w"}), answers{[]CallKey{"0.0"}, Denied}},

		// Calls that may run.
		{"serial: one call at a time", with(begin(mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), ExecuteTools{[]CallKey{"0.0"}}}, // C02
		{"serial: the next when it is done", with(begin(mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0")), ExecuteTools{[]CallKey{"0.1"}}},
		{"safe: reading calls run together", with(begin(mode(Safe)), asked(0, 1), turn(0, model.StopCalls, "w", "r", "r"), prepared("0.0"), prepared("0.1", reads), prepared("0.2", reads)), ExecuteTools{[]CallKey{"0.1", "0.2"}}}, // C03
		{"safe: the others follow one by one", with(begin(mode(Safe)), asked(0, 1), turn(0, model.StopCalls, "w", "r", "w"), prepared("0.0"), prepared("0.1", reads), prepared("0.2"), started("0.1"), done("0.1")), ExecuteTools{[]CallKey{"0.0"}}},
		{"a reading call whose answer was lost is made again", with(oneTurn("a"), prepared("0.0", reads), started("0.0")), ExecuteTools{[]CallKey{"0.0"}}},

		// Calls that wait, calls that are left.
		{"free calls run before the run waits", with(oneTurn("a", "g"), prepared("0.0"), prepared("0.1", gated)), ExecuteTools{[]CallKey{"0.0"}}},
		{"every gated call is asked for at once", with(oneTurn("g", "a", "g"), prepared("0.0", gated), prepared("0.1"), prepared("0.2", gated), started("0.1"), done("0.1")), Interrupt{[]CallKey{"0.0", "0.2"}}},
		{"an approved call runs", with(oneTurn("g"), prepared("0.0", gated), CallWaiting{Key: "0.0", WaitID: "w"}, Parked{}, CallResolved{WaitID: "w", Approved: true}, Resumed{}), ExecuteTools{[]CallKey{"0.0"}}},
		{"tool_choice none: no call is executed or handed over, whoever owns it", // C18
			with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "a", "yours", "ghost"), prepared("0.0"), prepared("0.1", clients), prepared("0.2", unknown)),
			answers{[]CallKey{"0.0", "0.1", "0.2"}, NotRun}},
		{"tool_choice none: then the model is asked again with the same choice",
			with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), answered("0.0", NotRun)),
			CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, OfferTools: true, ChoiceAsAsked: true}},
		{"tool_choice none: nobody is asked to approve a call", with(begin(noTools), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0", gated)), answers{[]CallKey{"0.0"}, NotRun}},
		{"the gateway's calls of a mixed turn run first", with(oneTurn("mine", "yours"), prepared("0.0"), prepared("0.1", clients)), ExecuteTools{[]CallKey{"0.0"}}}, // A08
		{"then the caller gets what is left", with(oneTurn("mine", "yours"), prepared("0.0"), prepared("0.1", clients), started("0.0"), done("0.0")), finish(event.ClientCalls)},
		{"unknown names of a mixed turn are answered before the caller gets its calls", with(oneTurn("ghost", "yours"), prepared("0.0", unknown), prepared("0.1", clients)), answers{[]CallKey{"0.0"}, Error}},
		{"the caller gets its calls on the last round, too", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopCalls, "yours"), prepared("0.0", clients)), finish(event.ClientCalls)},

		// Answers.
		{"an answer that the provider cut", with(begin(), asked(0, 1), turn(0, model.StopLength)), finish(event.OutputCut)},
		{"an answer that the provider refused", with(begin(), asked(0, 1), turn(0, model.StopFilter)), finish(event.Refused)},
		{"a turn cut short runs only calls that were complete", with(begin(), asked(0, 1), turn(0, model.StopUnknown, "a", "b…")), PrepareTools{[]CallKey{"0.0"}}}, // G07
		{"a call that was cut off is no call", with(begin(), asked(0, 1), turn(0, model.StopLength, "a…")), finish(event.OutputCut)},

		// Limits.
		{"the calls of the last allowed round run", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0")), ExecuteTools{[]CallKey{"0.0"}}},
		{"then the run ends for its rounds", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), finish(event.MaxRounds)}, // B03
		{"an answer on the last round is an answer", with(begin(rounds(1)), asked(0, 1), turn(0, model.StopEnd)), finish(event.Complete)},
		{"answer: the last round is offered no tools", with(begin(rounds(2), answerLast), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1}},
		{"tokens end the run before the next model call", with(begin(tokens(30)), reserved(0, 1, 30), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")), finish(event.Tokens)},
		{"a finished answer is not thrown away because it crossed the line", with(begin(tokens(16)), reserved(0, 1, 16), asked(0, 1), overrun(turn(0, model.StopEnd))), finish(event.Complete)},
		{"a model call may say no more than what is left", with(begin(tokens(100)), reserved(0, 1, 100), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: OK, Bytes: 30}),
			CallModel{Purpose: PurposeTurn, Round: 1, Attempt: 1, MaxOutput: 60, Most: budget.Amount{Tokens: 85}, OfferTools: true}}, // 15 spent; the prompt is 15 known and 10 new
		{"a shared budget limits what a call may say", begin(shared), CallModel{Purpose: PurposeTurn, Attempt: 1, MaxOutput: budget.DefaultOutput, Most: budget.Amount{Tokens: budget.DefaultOutput}, OfferTools: true, ChoiceAsAsked: true}},
		{"a shared budget without room ends the run", with(begin(shared), ReserveRefused{Attempt: 1, Scope: "org", Reason: event.Tokens}), finish(event.Tokens)},
		{"what a lost call may have cost is spent", with(begin(durable, tokens(40)), reserved(0, 1, 40), asked(0, 1), Resumed{}), finish(event.Tokens)},
		{"a call that the provider refused costs nothing", with(begin(tokens(40)), reserved(0, 1, 40), asked(0, 1), failed(1, model.Transient, func(b *TurnFailed) { b.Status = 503 })),
			CallModel{Purpose: PurposeTurn, Attempt: 2, MaxOutput: 40, Most: budget.Amount{Tokens: 40}, OfferTools: true, ChoiceAsAsked: true}},
		{"one that broke off without a count costs all that was set aside", with(begin(tokens(40)), reserved(0, 1, 40), asked(0, 1), failed(1, model.Transient)), finish(event.Tokens)},

		{"a result that is still good is a result", with(oneTurn("a", "b"), prepared("0.0", reads), prepared("0.1"), answered("0.0", Cached)), ExecuteTools{[]CallKey{"0.1"}}}, // F01

		// New owners.
		{"a durable run goes on where it was", with(begin(durable), asked(0, 1), Resumed{}), CallModel{Purpose: PurposeTurn, Attempt: 2, OfferTools: true, ChoiceAsAsked: true}},
		{"a light run is lost with its owner", with(begin(), asked(0, 1), Resumed{}), finish(event.Lost)},
		{"a light run that is lost says what became of its calls", with(oneTurn("a"), prepared("0.0"), started("0.0"), Resumed{}), answers{[]CallKey{"0.0"}, Unknown}},
		{"a reading call that the end of the run cut off is an error", with(oneTurn("a"), prepared("0.0", reads), started("0.0"), Resumed{}), answers{[]CallKey{"0.0"}, Error}}, // D19
		{"calls of both kinds that were cut off are accounted for one kind after the other", with(begin(mode(Parallel)), asked(0, 1), turn(0, model.StopCalls, "a", "b", "c"), prepared("0.0", reads), prepared("0.1"), prepared("0.2"), started("0.0"), started("0.1"), cancel), answers{[]CallKey{"0.1"}, Unknown}},
		{"abort: a call that was started and provably never left is a failed tool", with(begin(abortOnTool, mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: NotRun}), finish(event.ToolAbort)},
		{"a light run that waited is durable", with(oneTurn("g"), prepared("0.0", gated), CallWaiting{Key: "0.0", WaitID: "w"}, Parked{}, CallResolved{WaitID: "w", Approved: true}, Resumed{}, started("0.0"), Resumed{}), answers{[]CallKey{"0.0"}, Unknown}},
		{"a run that five owners in a row died of is given up", with(begin(durable), Resumed{}, Resumed{}, Resumed{}, Resumed{}, Resumed{}), finish(event.Lost)},
		{"owners that got further do not count", with(begin(durable), Resumed{}, Resumed{}, Resumed{}, Resumed{}, asked(0, 1), failed(1, model.Transient), Resumed{}),
			CallModel{Purpose: PurposeTurn, Attempt: 2, OfferTools: true, ChoiceAsAsked: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			play(t, tt.facts...) // each fact was allowed when it came
			s := Fold(facts(tt.facts...))
			if diff := cmp.Diff(strip(tt.want), strip(Decide(s))); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResultsStandInCallOrder(t *testing.T) { // C05
	s := play(t, with(oneTurn("a", "b", "c"), prepared("0.0"), prepared("0.1"), prepared("0.2"),
		started("0.0"), started("0.1"), started("0.2"), done("0.2"), done("0.0"), done("0.1"))...)
	want := []string{"t0.0", "r0.0", "r0.1", "r0.2"}
	if diff := cmp.Diff(want, s.Transcript); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
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
			if diff := cmp.Diff(want, s.Transcript); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMixedTurnHandsOverItsOwnResults(t *testing.T) { // A08
	s := play(t, accepted(), InputAdded{ItemsRef: "in", By: "client"}, catalogued(), asked(0, 1),
		turn(0, model.StopCalls, "yours", "mine"), prepared("0.0", clients), prepared("0.1"), started("0.1"), done("0.1"))
	if diff := cmp.Diff([]string{"t0.0", "r0.1"}, s.HiddenRefs()); diff != "" {
		t.Errorf("hidden items (-want +got):\n%s", diff)
	}
	if !s.HidesItems() || len(s.ClientCalls()) != 1 {
		t.Errorf("HidesItems = %v, ClientCalls = %v", s.HidesItems(), s.ClientCalls())
	}
	s = play(t, with(oneTurn("yours"), prepared("0.0", clients))...)
	if s.HidesItems() {
		t.Error("a first turn with nothing but the caller's calls hides items")
	}
}

func TestUsageIsSummedOverRounds(t *testing.T) { // B23
	s := play(t, with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0"), asked(1, 1), turn(1, model.StopEnd))...)
	if want := (model.Usage{Input: 20, Output: 10}); s.Usage != want || s.Spent.Tokens != 30 {
		t.Errorf("usage = %+v, tokens = %d", s.Usage, s.Spent.Tokens)
	}
}

// overrun is a turn that took more than it was given.
func overrun(b Body) Body {
	t := b.(Turn)
	t.Usage = model.Usage{Input: 500, Output: 500}
	return t
}

// What nobody worked on a run does not count, however long it was.
func TestTimeWithoutAnOwnerIsNotActive(t *testing.T) { // P01 B04
	s := play(t, with(begin(durable), asked(0, 1))...)
	last := s.At
	s = Apply(s, Fact{Seq: 9, At: last + 3_600_000, Body: Resumed{}})
	if got, want := s.DeadlineAt(), last+3_600_000+120_000-(last-1000); got != want {
		t.Errorf("deadline = %d, want %d", got, want)
	}
}

func TestTheDeadlineStandsStillWhileParked(t *testing.T) {
	s := play(t, with(oneTurn("g"), prepared("0.0", gated))...) // accepted at 1 s
	if got := s.DeadlineAt(); got != 121_000 {
		t.Errorf("deadline = %d", got)
	}
	s = play(t, with(oneTurn("g"), prepared("0.0", gated), CallWaiting{Key: "0.0", WaitID: "w"}, Parked{ActiveMS: 6000})...)
	if got := s.DeadlineAt(); got != 0 {
		t.Errorf("deadline while parked = %d", got)
	}
	s = Apply(s, Fact{Seq: 9, At: 1_000_000, Body: Resumed{}})
	if got := s.DeadlineAt(); got != 1_000_000+114_000 {
		t.Errorf("deadline after = %d", got)
	}
}

func TestApplyLeavesTheOldStateAlone(t *testing.T) {
	bodies := with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1"))
	before := play(t, bodies...)
	shadow := fmt.Sprintf("%+v", before)
	for _, b := range []Body{started("0.0"), done("0.0"), answered("0.1", NotRun), InputAdded{ItemsRef: "x"}, turn(0, model.StopCalls, "z")} {
		Apply(before, Fact{Seq: 99, Body: b})
		if got := fmt.Sprintf("%+v", before); got != shadow {
			t.Fatalf("%s changed the state it was given:\n%s\n%s", b.Kind(), shadow, got)
		}
	}
}
