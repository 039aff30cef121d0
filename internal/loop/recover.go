package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// The bounds on attempts, from the design's section 8 and
// reference/reliability R14.
const (
	MaxAttempts    = 3     // failed attempts on one target
	MaxTaken       = 5     // owners in a row that did not get the run further
	MaxRetryWaitMS = 5_000 // a provider that asks for a longer wait is not waited for: the caller learns sooner
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
	case f.Class == model.Transient && a.OnTarget < MaxAttempts && s.worthWaiting(f.RetryAt):
		return s.callModel(a.Number+1, a.Target, f.RetryAt)
	case f.Class != model.Invalid && a.Target+1 < len(s.Accepted.Targets):
		return s.callModel(a.Number+1, a.Target+1, 0)
	}
	return Finish{event.ModelError}
}

func (s State) worthWaiting(until int64) bool {
	return until-s.Attempt.FailedAt <= MaxRetryWaitMS && until < s.DeadlineAt()
}
