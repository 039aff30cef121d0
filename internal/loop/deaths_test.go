package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// A run is lost after DeadOwners owners died without progress for StuckMS, or
// after DeadOwnersPerCall owners died during one call. Owners that hand the run over
// do not count. Facts are one second apart. // R14
func TestDeadOwnersEndARun(t *testing.T) {
	numbers := func(r Rules) func(*Accepted) { return func(a *Accepted) { a.Rules, a.Grade = r, Durable } }
	calling := func(r Rules, more ...Body) []Body {
		return with(with(begin(numbers(r)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0", reads), prepared("0.1", reads), started("0.0"), started("0.1")), more...)
	}
	again := func(key CallKey, attempt int) Body { return CallStarted{Key: key, Attempt: attempt} }
	for name, tt := range map[string]struct {
		facts   []Body
		ended   event.Reason
		suspect bool
		fatal   CallKey
	}{
		"two owners":                     {facts: with(begin(numbers(Rules{DeadOwners: 2, StuckMS: 1})), Resumed{}, Resumed{}), ended: event.Lost},
		"two owners, within StuckMS":     {facts: with(begin(numbers(Rules{DeadOwners: 2, StuckMS: 2001})), Resumed{}, Resumed{}), suspect: true},
		"two owners, after StuckMS":      {facts: with(begin(numbers(Rules{DeadOwners: 2, StuckMS: 2000})), Resumed{}, Resumed{}), ended: event.Lost},
		"two owners that handed over":    {facts: with(begin(numbers(Rules{DeadOwners: 2})), Resumed{HandedOver: true}, Resumed{HandedOver: true})},
		"one owner":                      {facts: with(begin(numbers(Rules{DeadOwners: 2})), Resumed{})},
		"progress in between":            {facts: with(begin(numbers(Rules{DeadOwners: 2})), Resumed{}, asked(0, 1), failed(1, model.Transient), Resumed{})},
		"two deaths during a call":       {facts: calling(Rules{DeadOwnersPerCall: 2}, Resumed{}, again("0.0", 2), Resumed{}), ended: event.Lost, fatal: "0.0"},
		"one death during a call":        {facts: calling(Rules{DeadOwnersPerCall: 2}, Resumed{})},
		"progress of another call":       {facts: calling(Rules{DeadOwnersPerCall: 3}, Resumed{}, again("0.0", 2), again("0.1", 2), Resumed{}, CallDone{Key: "0.1", Attempt: 2, Outcome: OK, ResultRef: "r"}), suspect: true},
		"the call ended":                 {facts: calling(Rules{DeadOwnersPerCall: 2}, Resumed{}, again("0.0", 2), CallDone{Key: "0.0", Attempt: 2, Outcome: OK, ResultRef: "r"}, CallDone{Key: "0.1", Attempt: 1, Outcome: OK, ResultRef: "s"}, Resumed{})},
		"a call under way at a handover": {facts: calling(Rules{DeadOwnersPerCall: 1, DeadOwners: 1}, Resumed{HandedOver: true})},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			c, _ := s.FatalCall()
			if s.Ended != tt.ended || s.Suspect() != tt.suspect || c.Key != tt.fatal {
				t.Errorf("ended %q, suspect %v, fatal call %q; want %q, %v, %q", s.Ended, s.Suspect(), c.Key, tt.ended, tt.suspect, tt.fatal)
			}
		})
	}
}
