package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// R14: what counts against a run are owners that died, and only if the run gets no
// further for long, or if they died during one and the same call. The facts of the
// cases are a second apart.
func TestARunEndsForTheDeathsThatCountAgainstIt(t *testing.T) {
	numbers := func(r Rules) func(*Accepted) { return func(a *Accepted) { a.Rules, a.Grade = r, Durable } }
	calling := func(r Rules, more ...Body) []Body {
		return with(with(begin(numbers(r)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0", reads), prepared("0.1", reads), started("0.0"), started("0.1")), more...)
	}
	again := func(key CallKey, attempt int) Body { return CallStarted{Key: key, Attempt: attempt} }
	for name, tt := range map[string]struct {
		facts   []Body
		ended   event.Reason
		suspect bool
		deadly  CallKey
	}{
		"two owners":                        {facts: with(begin(numbers(Rules{Taken: 2})), Resumed{}, Resumed{}), ended: event.Lost},
		"two owners, not long ago":          {facts: with(begin(numbers(Rules{Taken: 2, StuckMS: 2001})), Resumed{}, Resumed{}), suspect: true},
		"two owners, long ago":              {facts: with(begin(numbers(Rules{Taken: 2, StuckMS: 2000})), Resumed{}, Resumed{}), ended: event.Lost},
		"two owners that gave the run back": {facts: with(begin(numbers(Rules{Taken: 2})), Resumed{Handed: true}, Resumed{Handed: true})},
		"one owner":                         {facts: with(begin(numbers(Rules{Taken: 2})), Resumed{})},
		"the run got further in between":    {facts: with(begin(numbers(Rules{Taken: 2})), Resumed{}, asked(0, 1), failed(1, model.Transient), Resumed{})},
		"two deaths during a call":          {facts: calling(Rules{Deaths: 2}, Resumed{}, again("0.0", 2), Resumed{}), ended: event.Lost, deadly: "0.0"},
		"one death during a call":           {facts: calling(Rules{Deaths: 2}, Resumed{})},
		"another call got further":          {facts: calling(Rules{Deaths: 3}, Resumed{}, again("0.0", 2), again("0.1", 2), Resumed{}, CallDone{Key: "0.1", Attempt: 2, Outcome: OK, ResultRef: "r"}), suspect: true},
		"the call ended":                    {facts: calling(Rules{Deaths: 2}, Resumed{}, again("0.0", 2), CallDone{Key: "0.0", Attempt: 2, Outcome: OK, ResultRef: "r"}, CallDone{Key: "0.1", Attempt: 1, Outcome: OK, ResultRef: "s"}, Resumed{})},
		"a call under way at a handover":    {facts: calling(Rules{Deaths: 1, Taken: 1}, Resumed{Handed: true})},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			c, _ := s.Deadly()
			if s.Ended != tt.ended || s.Suspect() != tt.suspect || c.Key != tt.deadly {
				t.Errorf("ended %q, suspect %v, deadly %q; want %q, %v, %q", s.Ended, s.Suspect(), c.Key, tt.ended, tt.suspect, tt.deadly)
			}
		})
	}
}

// C07: the runs of the release that wrote the first journals are judged as it did.
func TestAnOldRunEndsForFiveOwners(t *testing.T) {
	durable := func(a *Accepted) { a.Grade = Durable }
	s := play(t, begin(durable)...)
	for n := range 5 {
		if s.Ended != "" {
			t.Fatalf("ended %q after %d owners", s.Ended, n)
		}
		s = Apply(s, Fact{Seq: s.Seq + 1, At: s.At + 1, Body: Resumed{}})
	}
	if s.Ended != event.Lost {
		t.Errorf("ended %q after 5 owners", s.Ended)
	}
}
