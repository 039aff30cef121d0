package loop

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// cutAgain is the turn, which is also cut off.
func cutAgain(b Body) Body {
	t := b.(Turn)
	t.Continues = true
	return t
}

// The rest of an answer is asked for if the output limit has cut it off, and it has said something. // A12
func TestWhichAnswersAreContinued(t *testing.T) {
	begun := Fold(facts(with(begin(continues), asked(0, 1))...))
	cut := turn(0, model.StopLength).(Turn)
	for name, c := range map[string]struct {
		state State
		turn  Body
		said  bool
		want  bool
	}{
		"a cut text":                       {begun, cut, true, true},
		"a call that was cut off":          {begun, turn(0, model.StopLength, "a…"), true, true},
		"nothing was said":                 {begun, cut, false, false},
		"a complete call":                  {begun, turn(0, model.StopLength, "a", "b…"), true, false},
		"an answer that is whole":          {begun, turn(0, model.StopEnd), true, false},
		"a filtered answer":                {begun, turn(0, model.StopFilter), true, false},
		"a run that does not":              {Fold(facts(with(begin(), asked(0, 1))...)), cut, true, false},
		"a relay":                          {Fold(facts(accepted(translated, continues), asked(0, 1))), cut, true, false},
		"a run that ends":                  {Fold(facts(with(begin(continues), asked(0, 1), CancelRequested{Cause: event.Cancelled})...)), cut, true, false},
		"it was asked for as often as may": {Fold(facts(with(begin(continues), asked(0, 1), cutTurn(0), asked(0, 2), cutAgain(restOf(0, model.StopLength)), asked(0, 3))...)), cut, true, false},
	} {
		if got := c.state.ContinuesAfter(c.turn.(Turn), c.said); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for name, b := range map[string]Body{"a rest without a begin": restOf(0, model.StopEnd), "a whole answer that continues": cutAgain(turn(0, model.StopEnd))} {
		if Allowed(begun, Fact{Seq: begun.Seq + 1, Body: b}) == nil {
			t.Errorf("%s is allowed", name)
		}
	}
}

// The transcript has the answer once, also in what a compaction has left, and input that came meanwhile after it. // A12
func TestTheTranscriptHasTheWholeAnswer(t *testing.T) {
	s := Fold(facts(with(begin(continues), InputAdded{ItemsRef: "in", By: ByClient}, asked(0, 1), cutTurn(0),
		Compacted{Until: 2, Refs: []string{"sum", "t0.0"}, Before: 9, After: 1}, InputAdded{ItemsRef: "late"}, asked(0, 2), restOf(0, model.StopEnd))...))
	if got := s.Seen(); !slices.Equal(got, []string{"sum", "whole", "late"}) {
		t.Errorf("the model sees %v", got)
	}
	if got := s.HiddenRefs(); !slices.Equal(got, []string{"whole", "late"}) {
		t.Errorf("the conversation has %v", got)
	}
	if s.Counts.Rounds != 1 || s.Counts.Tokens != 30 || s.Continued != 0 {
		t.Errorf("%+v, continued %d times", s.Counts, s.Continued)
	}
}

// What the call after a compaction may cost has the message that asks for the rest of a cut answer in it.
func TestACompactionLeavesTheRequestForTheRestOfAnAnswer(t *testing.T) {
	for continues, want := range map[bool]int64{false: 300, true: 300 + int64(len(ContinueMessage))} {
		s := play(t, begin()...)
		s.Turn, s.Transcript = &Turn{Continues: continues}, []Segment{{Kind: Input, Ref: "a"}, {Kind: Own, Ref: "b"}}
		s.compact(Compacted{Until: 1, Refs: []string{"compacted:1"}, Bytes: 300})
		if s.UncountedBytes != want {
			t.Errorf("continues %v: %d bytes are counted, want %d", continues, s.UncountedBytes, want)
		}
	}
}
