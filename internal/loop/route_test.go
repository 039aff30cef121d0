package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

func threeTargets(b *Accepted) {
	twoTargets(b)
	b.Targets = append(b.Targets, Target{Provider: "third"})
}

func toolRan(b *TurnFailed) { b.ToolRan = true }

func targetOpen(b *TurnFailed) { b.TargetOpen = true }

// The rules own attempts and targets. The router says in which order they are tried, at the
// begin of a round and after a target has failed.
func TestDecideOwnsAttemptsAndTargets(t *testing.T) { // M09 I08 I09
	ask := func(round, attempt, last int, left ...int) Action {
		return Route{Round: round, Attempt: attempt, Left: left, Last: last}
	}
	call := func(round, attempt, target int) Action {
		return CallModel{Purpose: PurposeTurn, Round: round, Attempt: attempt, Target: target, OfferTools: true, KeepToolChoice: round == 0}
	}
	relay := func(attempt, target int) Action {
		return CallModel{Purpose: PurposeRaw, Attempt: attempt, Target: target}
	}
	sent := func(target, attempt int) Body {
		return TurnStarted{Attempt: attempt, Target: target, Purpose: PurposeRaw}
	}
	firstOf := with(begin(twoTargets), routed(0, 0, 1, 0), askedOf(1, 0, 1))
	thrice := with(firstOf, failed(1, model.Transient), askedOf(1, 0, 2), failed(2, model.Transient), askedOf(1, 0, 3), failed(3, model.Transient))
	oneRound := with(firstOf, turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0"))
	relayed := []Body{accepted(raw, twoTargets), routed(0, 0, 0, 1), sent(0, 1)}
	for name, tt := range map[string]struct {
		facts []Body
		want  Action
	}{
		"the router is asked first":                          {begin(twoTargets), ask(0, 0, -1, 0, 1)},
		"one target needs no router":                         {begin(), CallModel{Purpose: PurposeTurn, Attempt: 1, OfferTools: true, KeepToolChoice: true}},
		"the first of its order is called":                   {with(begin(twoTargets), routed(0, 0, 1, 0)), call(0, 1, 1)},
		"a transient failure is retried on the same target":  {with(firstOf, failed(1, model.Transient)), call(0, 2, 1)},
		"after three attempts the router is asked again":     {thrice, ask(0, 3, -1, 0)},
		"and the next target is called":                      {with(thrice, routed(0, 3, 0)), call(0, 4, 0)},
		"a target that is open is not called":                {with(thrice, Routed{Attempt: 3, Skipped: []SkippedTarget{{0, SkipOpen}}}), finish(event.ModelError)},
		"each target has its own attempts":                   {with(thrice, routed(0, 3, 0), askedOf(0, 0, 4), failed(4, model.Transient)), call(0, 5, 0)},
		"a target is tried once in a round":                  {with(thrice, routed(0, 3, 0), askedOf(0, 0, 4), failed(4, model.Target)), finish(event.ModelError)},
		"each round goes through the router":                 {oneRound, ask(1, 0, 1, 0, 1)},
		"which may name the other target":                    {with(oneRound, routed(1, 0, 0, 1)), call(1, 1, 0)},
		"nothing falls back after text was forwarded":        {with(firstOf, failed(1, model.Target, forwarded)), finish(event.ModelError)},
		"nor after a tool of the provider's has run":         {with(firstOf, failed(1, model.Transient, toolRan)), finish(event.ModelError)},
		"a relay asks the router":                            {[]Body{accepted(raw, twoTargets)}, ask(0, 0, -1, 0, 1)},
		"a relay is retried if there is another target":      {with(relayed, failed(1, model.Transient)), relay(2, 0)},
		"a relay falls back":                                 {with(relayed, failed(1, model.Target), routed(0, 1, 1)), relay(2, 1)},
		"a relay does not fall back after it was forwarded":  {with(relayed, failed(1, model.Target, forwarded)), finish(event.ModelError)},
		"a relay to one target is the caller's to retry":     {[]Body{accepted(raw), sent(0, 1), failed(1, model.Transient)}, finish(event.ModelError)},
		"a target whose breaker has opened is left":          {with(firstOf, failed(1, model.Transient, targetOpen)), ask(0, 1, -1, 0)},
		"unless it is the only one":                          {with(begin(), askedOf(0, 0, 1), failed(1, model.Transient, targetOpen)), CallModel{Purpose: PurposeTurn, Attempt: 2, OfferTools: true, KeepToolChoice: true}},
		"a long Retry-After moves to the next target":        {with(firstOf, failed(1, model.Transient, retryAt(60_000))), ask(0, 1, -1, 0)},
		"the owner died during the call: the target is kept": {firstOf, call(0, 2, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(play(t, tt.facts...))
			if f, ok := got.(Finish); ok {
				got = Finish{Reason: f.Reason}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The order of the router has each target that is left, at most once.
func TestTheOrderOfTheRouterIsChecked(t *testing.T) {
	s := play(t, with(begin(threeTargets), routed(0, 0, 0, 1, 2), asked(0, 1), failed(1, model.Target))...)
	for _, order := range [][]int{{0}, {1, 1}, {3}, {-1}} {
		if Allowed(s, Fact{Body: routed(0, 1, order...)}) == nil {
			t.Errorf("the order %v is allowed after target 0 has failed", order)
		}
	}
	if err := Allowed(s, Fact{Body: routed(0, 1, 2, 1)}); err != nil {
		t.Error(err)
	}
	if Allowed(play(t, begin(twoTargets)...), Fact{Body: routed(0, 0)}) == nil {
		t.Error("a round may begin without a target")
	}
}

// When all targets fail, the caller is told what the first of them did.
func TestTheFirstFailureIsReported(t *testing.T) { // I09
	s := play(t, with(begin(twoTargets), routed(0, 0, 1, 0), askedOf(1, 0, 1), failed(1, model.Transient, status(500)), askedOf(1, 0, 2), failed(2, model.Target, status(404)),
		routed(0, 2, 0), askedOf(0, 0, 3), failed(3, model.Target, func(b *TurnFailed) { b.Credential, b.Status = true, 401 }))...)
	f, ok := Decide(s).(Finish)
	if !ok || f.Cause.Provider != "other" || f.Cause.Credential || s.Attempt.First.Status != 404 {
		t.Errorf("%#v, first failure %+v", Decide(s), s.Attempt.First)
	}
	s = play(t, with(begin(twoTargets), routed(0, 0, 1, 0), askedOf(1, 0, 1), failed(1, model.Target), routed(0, 1, 0))...)
	if from, to, ok := s.Fallback(); !ok || from != 1 || to != 0 {
		t.Errorf("fallback from %d to %d (%v)", from, to, ok)
	}
}

// A round that begins at another target than the first of a fallback list falls back, too. Rounds that stay with it do
// not say so again.
func TestARoundThatBeginsAtAnotherTargetFallsBack(t *testing.T) { // I09
	first, other := 0, 1
	open := Routed{Order: []int{1}, Skipped: []SkippedTarget{{0, SkipOpen}}, First: &first}
	again, stays := open, Routed{Order: []int{1, 0}, First: &first}
	again.Round = 1
	oneRound := func(target int, order Body) []Body {
		return with(begin(twoTargets), order, askedOf(target, 0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0"))
	}
	for name, tt := range map[string]struct {
		facts []Body
		want  bool
	}{
		"the first one is left out":       {with(begin(twoTargets), open), true},
		"the conversation stays":          {with(begin(twoTargets), stays), true},
		"the next round stays":            {with(oneRound(1, open), again), false},
		"the next round moves":            {with(oneRound(0, routed(0, 0, 0, 1)), again), true},
		"another one is left out":         {with(begin(twoTargets), Routed{Order: []int{0}, Skipped: []SkippedTarget{{1, SkipOpen}}}), false},
		"a strategy without a first":      {with(begin(twoTargets), routed(0, 0, 1, 0)), false},
		"the first one is where it is to": {with(begin(twoTargets), routed(0, 0, 0, 1)), false},
	} {
		s := play(t, tt.facts...)
		if from, to, ok := s.Fallback(); ok != tt.want || ok && (from != 0 || to != 1) {
			t.Errorf("%s: from %d to %d (%v)", name, from, to, ok)
		}
	}
	if s := play(t, begin(twoTargets)...); Allowed(s, Fact{Body: Routed{Order: []int{1, 0}, First: &other}}) == nil {
		t.Error("the first of the order is tried instead of itself")
	}
}
