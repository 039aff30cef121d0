package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/model"
)

// Tokens counted before a model call failed are part of Usage and Spent. // B23
func TestUsageOfFailedAttemptsCounts(t *testing.T) {
	counted := func(b *TurnFailed) { b.Usage = model.Usage{Input: 7, Output: 2} }
	s := Fold(facts(with(begin(), asked(0, 1), failed(1, model.Transient, counted), asked(0, 2), turn(0, model.StopEnd))...))
	answer := turn(0, model.StopEnd).(Turn).Usage
	if want := (model.Usage{Input: 7, Output: 2}).Add(answer); s.Usage != want {
		t.Errorf("usage %+v, want %+v", s.Usage, want)
	}
	if want := 9 + answer.Input + answer.Output; s.Spent.Tokens != want {
		t.Errorf("spent %d tokens, want %d", s.Spent.Tokens, want)
	}
}

func TestFirstModeRecordsSkippedCalls(t *testing.T) { // C04
	for name, c := range map[string]struct {
		facts []Body
		want  bool
	}{
		"one call":                  {with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0")), false},
		"two calls":                 {with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), true},
		"two calls, one rejected":   {with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1", unknown)), false},
		"a call and a client call":  {with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1", clients)), false},
		"two calls in another mode": {with(begin(mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1")), false},
		"two calls, then one": {with(begin(mode(First)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"),
			started("0.0"), done("0.0"), answered("0.1", NotRun), asked(1, 1), turn(1, model.StopCalls, "c"), prepared("1.0")), true},
	} {
		if got := play(t, c.facts...).SkippedByFirst; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
