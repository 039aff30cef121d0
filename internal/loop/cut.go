package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// ContinueMessage asks a model for the rest of an answer. It is part of that prompt only: the transcript has the
// answer as one message.
const ContinueMessage = "Your answer was cut off because it reached the maximum length of one output. Continue it exactly where it stops. " +
	"Do not repeat any of it, and do not comment on the interruption. If a tool call was cut off, make the whole call again."

// ContinuesAfter reports whether the run asks for the rest of the answer after the turn. The output limit must have cut
// it off, and it must have said something. After a complete tool call the run goes on with that call's result.
func (s *State) ContinuesAfter(t Turn, said bool) bool {
	complete := slices.ContainsFunc(t.Calls, func(c TurnCall) bool { return c.Complete })
	return said && !complete && t.Purpose == PurposeTurn && t.Stop == model.StopLength &&
		!s.relays() && s.Ended == "" && s.Continued < s.Accepted.Continuations
}

// Continues reports whether the latest turn was cut off, and the run asks for the rest of it.
func (s *State) Continues() bool { return s.Turn != nil && s.Turn.Continues }

// continueAnswer asks for the rest of the answer. If no limit or no target leaves room for that, the run ends with
// what there is.
func (s decision) continueAnswer() Action {
	if !s.answerRemains() || s.Refused == nil {
		a := s.callNext()
		if _, ends := a.(Finish); !ends {
			return a
		}
	}
	if due := s.HooksDue(PreResponse, ""); len(due) > 0 {
		return RunHooks{PreResponse, due}
	}
	return s.finish(event.OutputCut)
}

// answerRemains reports whether a run that does not pause has an answer that was cut off, and has not called the
// model for the rest of it yet.
func (s *State) answerRemains() bool {
	return s.Continues() && !s.Attempt.Open && s.Attempt.Failed == nil && !s.pauses()
}

// nextAttempt prepares the next model call after a turn. Attempts at the rest of an answer are counted after those
// at its begin.
func (s *State) nextAttempt(b Turn) {
	if !b.Continues {
		s.Attempt, s.Continued = Attempt{Target: s.Attempt.Target}, 0
		return
	}
	s.Attempt, s.Continued = Attempt{Number: s.Attempt.Number, Target: s.Attempt.Target}, s.Continued+1
	s.UncountedBytes += s.continueBytes()
}

// continueBytes is the size of the message that asks for the rest of a cut answer; 0 = the next call asks for no rest.
func (s *State) continueBytes() int64 {
	if !s.Continues() {
		return 0
	}
	return int64(len(ContinueMessage))
}

// keepAnswer appends the items of a turn to the transcript. After a turn that was cut off, the items of the whole
// answer take the place of those of the earlier part, also in what a compaction has left.
func (s *State) keepAnswer(cut *Turn, b Turn) {
	switch {
	case cut != nil && cut.Continues && b.WholeRef != "":
		earlier := cut.AnswerRef()
		s.Transcript = slices.Clone(s.Transcript)
		for i := range s.Transcript {
			seg := &s.Transcript[i]
			if seg.Kind == Own && seg.Ref == earlier {
				seg.Ref, seg.Bytes, seg.Round = b.WholeRef, seg.Bytes+b.Bytes, b.Round
			}
			if at := slices.Index(seg.Refs, earlier); at >= 0 {
				seg.Refs = slices.Clone(seg.Refs)
				seg.Refs[at] = b.WholeRef
			}
		}
	case b.ItemsRef != "":
		s.extend(Segment{Kind: Own, Ref: b.ItemsRef, Bytes: b.Bytes, Round: b.Round})
	}
}
