package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/model"
)

func raised(r budget.Raise) Body { return LimitsRaised{By: "me", Raise: r} }

// The rules use the limits as they were raised last. // P23
func TestRaisedLimitsAreUsed(t *testing.T) {
	last := with([]Body{accepted(rounds(1), callLimit(1))}, catalogued(), asked(0, 1), turn(0, model.StopCalls, "a", "b"),
		prepared("0.0"), prepared("0.1"))
	if a, ok := Decide(play(t, with(last, raised(budget.Raise{Calls: 1}))...)).(ExecuteTools); !ok || len(a.Calls) != 2 {
		t.Errorf("with a further call: %+v", a)
	}
	skipped := with(last, started("0.0"), done("0.0"), answered("0.1", SkippedLimit))
	if diff := cmp.Diff(finish(event.MaxCalls), strip(Decide(play(t, skipped...)))); diff != "" {
		t.Error(diff)
	}
	if _, ok := Decide(play(t, with(skipped, raised(budget.Raise{Calls: 1, Rounds: 1}))...)).(CallModel); !ok {
		t.Error("no model call after both limits were raised")
	}
	for r, want := range map[budget.Raise]event.Reason{{Rounds: 1}: event.MaxCalls, {Calls: 1}: event.MaxRounds} {
		if diff := cmp.Diff(finish(want), strip(Decide(play(t, with(skipped, raised(r))...)))); diff != "" {
			t.Errorf("after %+v: %s", r, diff)
		}
	}
	s := play(t, with(begin(), raised(budget.Raise{ActiveMS: 500}))...)
	if got, want := s.DeadlineAt(), int64(1000+budget.DefaultActiveMS+500); got != want {
		t.Errorf("the deadline is %d, want %d", got, want)
	}
	if a := s.Accepted; a.Limits.ActiveMS != budget.DefaultActiveMS {
		t.Errorf("the accepted limits have changed: %+v", a.Limits)
	}
}

func TestRaisesThatAreNotAllowed(t *testing.T) {
	for name, tt := range map[string]struct {
		facts []Body
		by    budget.Raise
	}{
		"of nothing":                   {begin(), budget.Raise{}},
		"to less":                      {begin(), budget.Raise{Rounds: 2, Calls: -1}},
		"of a limit that is not there": {begin(), budget.Raise{Tokens: 5, NanoUSD: 5}},
		"beyond the hard bound":        {begin(rounds(budget.MaxRounds)), budget.Raise{Rounds: 1}},
		"after the end has come":       {with(begin(), Expired{}), budget.Raise{Rounds: 1}},
		"of a relay":                   {[]Body{accepted(translated)}, budget.Raise{Rounds: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			if Allowed(s, Fact{Seq: s.Seq + 1, Body: raised(tt.by)}) == nil {
				t.Error("it is allowed")
			}
		})
	}
}
