package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/model"
)

func pausing(b *Accepted) { b.Grade, b.Limits.OnLimit, b.PauseMS = Durable, budget.Pause, 60_000 }

func paused(reason event.Reason) Body { return Paused{WaitID: "w", Reason: reason, ActiveMS: 500} }

// raisedFor is a raise of a run that waits.
func raisedFor(r budget.Raise) Body { return LimitsRaised{By: "me", Raise: r, WaitID: "w"} }

// round0 is a run whose first turn asks for calls, which are prepared.
func round0(calls []string, change ...func(*Accepted)) []Body {
	out := []Body{accepted(append(change, pausing)...), catalogued()}
	if out[0].(Accepted).Limits.Tokens > 0 {
		out = append(out, reserved(0, 1, 40))
	}
	out = append(out, asked(0, 1), turn(0, model.StopCalls, calls...))
	for i := range calls {
		out = append(out, prepared(Key(0, i)))
	}
	return out
}

// At each of its limits a run that pauses waits instead of ending, and goes on after a raise. // P23 P23
func TestARunPausesAtItsLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		facts  []Body
		reason event.Reason
		raise  budget.Raise
		next   Action
	}{
		"rounds":                          {with(round0([]string{"a"}, rounds(1)), started("0.0"), done("0.0")), event.MaxRounds, budget.Raise{Rounds: 1}, CallModel{}},
		"tokens":                          {with(round0([]string{"a"}, tokens(40)), started("0.0"), done("0.0")), event.Tokens, budget.Raise{Tokens: 1000}, CallModel{}},
		"calls":                           {with(round0([]string{"a", "b"}, callLimit(1)), started("0.0"), done("0.0")), event.MaxCalls, budget.Raise{Calls: 1}, ExecuteTools{[]CallKey{"0.1"}}},
		"time":                            {with(round0([]string{"a"}), Expired{}), event.Deadline, budget.Raise{ActiveMS: 1_000_000}, ExecuteTools{[]CallKey{"0.0"}}},
		"time before the tools are known": {[]Body{accepted(pausing), Expired{}}, event.Deadline, budget.Raise{ActiveMS: 1_000_000}, Discover{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			if diff := cmp.Diff(Action(Pause{Reason: tt.reason}), Decide(s)); diff != "" {
				t.Fatal(diff)
			}
			waits := with(tt.facts, paused(tt.reason))
			s = play(t, waits...)
			if s.Paused == nil || s.DeadlineAt() != 0 || s.Parks != 0 {
				t.Errorf("it does not wait: %+v", s)
			}
			after := play(t, with(waits, raisedFor(tt.raise), Resumed{HandedOver: true})...)
			got := Decide(after)
			if _, isModel := tt.next.(CallModel); isModel {
				_, isModel = got.(CallModel)
				if !isModel {
					t.Errorf("after the raise: %+v", got)
				}
			} else if diff := cmp.Diff(tt.next, got); diff != "" {
				t.Error(diff)
			}
			end := play(t, with(waits, Expired{WaitID: "w"}, Resumed{HandedOver: true})...)
			for range 9 { // what the rules say of calls without a result
				a, ok := Decide(end).(AnswerCalls)
				if !ok {
					break
				}
				for _, key := range a.Calls {
					end = Apply(end, Fact{Seq: end.Seq + 1, At: end.At, Body: answered(key, a.Outcome)})
				}
			}
			if diff := cmp.Diff(finish(tt.reason), strip(Decide(end))); diff != "" {
				t.Errorf("nobody has raised it: %s", diff)
			}
			if s.HeldAfter(raisedFor(budget.Raise{}).(LimitsRaised)) != tt.reason {
				t.Errorf("a raise of nothing lets it go on")
			}
		})
	}
}

// A call that the limit on money leaves no room for stays open, and a cheaper one runs.
func TestAPricedCallWaitsForMoney(t *testing.T) {
	price := func(nano money.Nano) func(*CallPrepared) { return func(b *CallPrepared) { b.PriceNano = nano } }
	limit := nanoUSD(94_000) // of which the turn costs 25,000
	facts := []Body{
		accepted(priced, limit, pausing), catalogued(), reserved(0, 1, 40), asked(0, 1), turn(0, model.StopCalls, "dear", "cheap"),
		prepared("0.0", price(90_000)), prepared("0.1", price(9_000)),
	}
	if diff := cmp.Diff(Action(ExecuteTools{[]CallKey{"0.1"}}), Decide(play(t, facts...))); diff != "" {
		t.Error(diff)
	}
	inOrder := with([]Body{accepted(priced, limit, pausing, mode(Serial))}, facts[1:]...)
	if diff := cmp.Diff(Action(Pause{Reason: event.Money}), Decide(play(t, inOrder...))); diff != "" {
		t.Errorf("one after the other: %s", diff)
	}
	waits := with(facts, started("0.1"), done("0.1"), paused(event.Money))
	s := play(t, waits...)
	if again := s.HeldAfter(raisedFor(budget.Raise{NanoUSD: 9_000}).(LimitsRaised)); again != event.Money {
		t.Errorf("9,000 more are not enough, and it waits for %q", again)
	}
	if diff := cmp.Diff(Action(ExecuteTools{[]CallKey{"0.0"}}), Decide(play(t, with(waits, raisedFor(budget.Raise{NanoUSD: 30_001}))...))); diff != "" {
		t.Error(diff)
	}
}

// Calls over the limit are not asked for: first those within it are decided and run.
func TestApprovalsComeBeforeAPause(t *testing.T) {
	facts := []Body{
		accepted(callLimit(1), pausing), catalogued(), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0", gated), prepared("0.1", gated),
	}
	if diff := cmp.Diff(Action(Interrupt{[]CallKey{"0.0"}}), Decide(play(t, facts...))); diff != "" {
		t.Error(diff)
	}
	ran := with(facts, waiting("0.0", "w0"), Parked{}, CallResolved{WaitID: "w0", Approved: true}, Resumed{HandedOver: true}, started("0.0"), done("0.0"))
	if diff := cmp.Diff(Action(Pause{Reason: event.MaxCalls}), Decide(play(t, ran...))); diff != "" {
		t.Error(diff)
	}
	s := play(t, with(ran, paused(event.MaxCalls), raisedFor(budget.Raise{Calls: 1}))...)
	if diff := cmp.Diff(Action(Interrupt{[]CallKey{"0.1"}}), Decide(s)); diff != "" {
		t.Error(diff)
	}
}

// A shared budget without room: the run waits, and tries again when it is told to, with the budgets
// as they are then. The first call is refused as without the setting.
func TestARunPausesForASharedBudget(t *testing.T) {
	refused := func(round int) Body {
		return ReserveRefused{Round: round, Attempt: 1, Scope: "org/day/2026-11-26", Reason: event.Tokens, EndsAt: 7}
	}
	first := play(t, accepted(shared, pausing), catalogued(), ReserveRefused{Attempt: 1, Scope: "org/day/2026-11-26", Reason: event.BudgetExceeded})
	if diff := cmp.Diff(finish(event.BudgetExceeded), strip(Decide(first))); diff != "" {
		t.Error(diff)
	}
	facts := with([]Body{accepted(shared, pausing), catalogued(), reserved(0, 1, 100), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")}, refused(1))
	want := Pause{Reason: event.Tokens, Scope: "org/day/2026-11-26", EndsAt: 7}
	if diff := cmp.Diff(Action(want), Decide(play(t, facts...))); diff != "" {
		t.Fatal(diff)
	}
	s := play(t, facts...)
	waits := with(facts, s.PauseFor(want, "w", 99_000))
	if got := play(t, waits...).Paused; got.Scope != want.Scope || got.EndsAt != 7 || got.ExpiresAt != 99_000+60_000 {
		t.Errorf("%+v", got)
	}
	s = play(t, with(waits, LimitsRaised{By: "me", WaitID: "w", Rebudget: true, Budgets: []budget.Shared{{Scope: "org", Limit: budget.Amount{Tokens: 5000}}}})...)
	if _, ok := Decide(s).(CallModel); !ok || s.Budgets[0].Limit.Tokens != 5000 || s.Accepted.Budgets[0].Limit.Tokens != 1000 {
		t.Errorf("%+v after the budget was raised: %+v", Decide(s), s.Budgets)
	}
	end := play(t, with(waits, Expired{WaitID: "w"})...)
	if diff := cmp.Diff(finish(event.Tokens), strip(Decide(end))); diff != "" {
		t.Error(diff)
	}
}

// What does not pause: light runs, a run that has its answer, and one that may not wait.
func TestRunsThatDoNotPause(t *testing.T) {
	light := func(b *Accepted) { b.Limits.OnLimit = budget.Pause }
	facts := with([]Body{accepted(light, rounds(1))}, catalogued(), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0"))
	if diff := cmp.Diff(finish(event.MaxRounds), strip(Decide(play(t, facts...)))); diff != "" {
		t.Errorf("a light run: %s", diff)
	}
	s := play(t, accepted(light), Expired{})
	if s.Ended != event.Deadline {
		t.Errorf("a light run goes on after its deadline: %+v", s)
	}
	answer := play(t, accepted(pausing, rounds(1)), catalogued(), asked(0, 1), turn(0, model.StopEnd), Expired{})
	if diff := cmp.Diff(finish(event.Complete), strip(Decide(answer))); diff != "" {
		t.Errorf("a run that has its answer: %s", diff)
	}
	cut := play(t, accepted(pausing), Expired{Cut: true})
	if cut.Ended != event.Deadline {
		t.Errorf("what was under way was cut off, and the run goes on: %+v", cut)
	}
	full := with(round0([]string{"a"}, rounds(1)), started("0.0"), done("0.0"), Paused{WaitID: "w", Reason: event.MaxRounds, Refused: "full"})
	s = play(t, full...)
	if diff := cmp.Diff(finish(event.MaxRounds), strip(Decide(s))); diff != "" || s.DeadlineAt() == 0 {
		t.Errorf("a run that may not wait: %s", diff)
	}
}

func TestRaisesOfAPausedRunThatAreNotAllowed(t *testing.T) {
	waits := with(round0([]string{"a"}, rounds(1)), started("0.0"), done("0.0"), paused(event.MaxRounds))
	for name, b := range map[string]Body{
		"of nothing":                LimitsRaised{WaitID: "w"},
		"of another limit":          LimitsRaised{WaitID: "w", Raise: budget.Raise{Calls: 5}},
		"of a limit it has not":     LimitsRaised{WaitID: "w", Raise: budget.Raise{Tokens: 5}},
		"of less":                   LimitsRaised{WaitID: "w", Raise: budget.Raise{Rounds: 2, Calls: -1}},
		"for another wait":          LimitsRaised{WaitID: "other", Raise: budget.Raise{Rounds: 1}},
		"without its wait":          LimitsRaised{Raise: budget.Raise{Rounds: 1}},
		"that is a decision":        CallResolved{WaitID: "w", Approved: true},
		"that is another wait":      paused(event.MaxRounds),
		"that is of another expiry": Expired{WaitID: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, waits...)
			if Allowed(s, Fact{Seq: s.Seq + 1, Body: b}) == nil {
				t.Error("it is allowed")
			}
		})
	}
	s := play(t, with(waits, raisedFor(budget.Raise{Rounds: 1}))...)
	if Allowed(s, Fact{Seq: s.Seq + 1, Body: raisedFor(budget.Raise{Rounds: 1})}) == nil {
		t.Error("the second of two raises counts as well")
	}
	cancelled := play(t, with(waits, CancelRequested{Cause: event.Cancelled})...)
	if Allowed(cancelled, Fact{Seq: cancelled.Seq + 1, Body: raisedFor(budget.Raise{Rounds: 1})}) == nil {
		t.Error("a run that is to end is raised")
	}
}

// The deadline of a run that pauses is a little later for what is under way.
func TestTheDeadlineOfARunThatPauses(t *testing.T) {
	s := play(t, accepted(pausing), catalogued())
	at := s.DeadlineAt()
	if s.CutAt() != at+OvertimeMS || s.TimeIsUp(at-1) || !s.TimeIsUp(at) {
		t.Errorf("deadline %d: cut at %d, up before %t, up then %t", at, s.CutAt(), s.TimeIsUp(at-1), s.TimeIsUp(at))
	}
	if s = Apply(s, Fact{Seq: s.Seq + 1, At: at, Body: Expired{}}); s.TimeIsUp(at) {
		t.Error("it is told twice")
	}
	if l := play(t, accepted(), catalogued()); l.CutAt() != l.DeadlineAt() || l.TimeIsUp(l.DeadlineAt()+1) {
		t.Error("a light run gets more time")
	}
}
