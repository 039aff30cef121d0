package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// recover decides what follows a model call that failed, or whose end was never
// recorded because its process died.
func (s State) recover() Action {
	a := s.Attempt
	f := a.Failed
	switch {
	case s.Accepted.Raw && f == nil: // its client died with the process
		return Finish{event.Lost}
	case f == nil:
		return s.callModel(a.Number+1, a.Target, 0)
	case f.Class == model.Gone:
		return s.conclude(event.Cancelled)
	case f.Class == model.TooLong:
		return Finish{event.TooLong}
	case f.Class == model.Filtered && f.Status < 300: // an answer, though not one of the model's
		return Finish{event.Refused}
	case s.Accepted.Raw || f.Forwarded: // the relay does not repeat, and a text that was seen is not restarted
		return Finish{event.ModelError}
	case f.Class == model.Transient && a.OnTarget < s.Accepted.Rules.Attempts && s.worthWaiting(f.RetryAt):
		return s.callModel(a.Number+1, a.Target, f.RetryAt)
	case f.Class != model.Invalid && a.Target+1 < len(s.Accepted.Targets):
		return s.callModel(a.Number+1, a.Target+1, 0)
	}
	return Finish{event.ModelError}
}

func (s State) worthWaiting(until int64) bool {
	return until-s.Attempt.FailedAt <= s.Accepted.Rules.RetryWaitMS && until < s.DeadlineAt()
}

// GaveUp reports whether the last model call failed in passing as often as it may be
// tried. A call that was not repeated for another reason, such as a long Retry-After,
// does not count.
func (s State) GaveUp() bool {
	a := s.Attempt
	return a.Failed != nil && !s.Accepted.Raw && a.Failed.Class == model.Transient && a.OnTarget >= s.Accepted.Rules.Attempts
}
