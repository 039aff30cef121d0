package loop

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// A message that no model has seen has a place of its own until the results of the calls under way are there. // P25
func TestInputThatIsLateIsKnown(t *testing.T) {
	s := play(t, accepted(), InputAdded{ItemsRef: "in", By: ByClient}, catalogued(), asked(0, 1), InputAdded{ItemsRef: "late", By: ByOther})
	if got := s.LateRefs(); len(got) != 1 || got[0] != "late" {
		t.Errorf("late are %v", got)
	}
	s = play(
		t,
		accepted(),
		InputAdded{ItemsRef: "in", By: ByClient},
		catalogued(),
		asked(0, 1),
		InputAdded{ItemsRef: "late", By: ByOther},
		turn(0, "end"),
	)
	if got := s.LateRefs(); len(got) != 0 {
		t.Errorf("after the answer late are %v", got)
	}
}

// A message that comes after an answer broke off follows the text that was shown, which does not answer
// it. // P25
func TestInputAfterAnAnswerThatBrokeOffIsLate(t *testing.T) {
	shown := func(b *TurnFailed) { b.Forwarded, b.PartialRef = true, "partial" }
	facts := []Body{
		accepted(),
		InputAdded{ItemsRef: "in", By: ByClient},
		catalogued(),
		asked(0, 1),
		failed(1, model.Transient, shown),
		InputAdded{ItemsRef: "late", By: ByOther},
	}
	if s := play(t, facts...); s.CutRef() != "partial" || !slices.Equal(s.LateRefs(), []string{"late"}) {
		t.Errorf("the text is %q, late are %v", s.CutRef(), s.LateRefs())
	}
}

// A run that was accepted without its input adds it before anything else, unless it is to end, and once. // P25
func TestADeferredRunAddsItsInputFirst(t *testing.T) {
	begins := accepted().(Accepted)
	begins.Deferred = true
	s := play(t, begins)
	if _, ok := Decide(s).(AddInput); !ok || !s.AwaitsInput() {
		t.Errorf("the first action is %#v", Decide(s))
	}
	if _, ok := Decide(play(t, begins, CancelRequested{Cause: event.Cancelled})).(Finish); !ok {
		t.Error("a run that is to end waits for its input")
	}
	s = play(t, begins, InputAdded{ItemsRef: "h", By: ByOther})
	if _, ok := Decide(s).(AddInput); !ok || s.Added() != 1 {
		t.Errorf("with the input of somebody else the next action is %#v", Decide(s))
	}
	s = play(t, begins, InputAdded{ItemsRef: "in", By: ByClient})
	if _, ok := Decide(s).(Discover); !ok || s.AwaitsInput() {
		t.Errorf("after its input the next action is %#v", Decide(s))
	}
	if _, ok := Decide(play(t, accepted())).(Discover); !ok {
		t.Error("an ordinary run waits for input")
	}
}
