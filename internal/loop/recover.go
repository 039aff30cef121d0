package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// recover returns the action after a model call that failed, or that has no recorded
// end because its owner died (Attempt.Open).
func (s State) recover() Action {
	a := s.Attempt
	f := a.Failed
	switch {
	case s.Accepted.Raw && f == nil: // the client was connected to the owner that died
		return Finish{event.Lost}
	case f == nil:
		return s.callModel(a.Number+1, a.Target, 0)
	case f.Class == model.Gone:
		return s.conclude(event.Cancelled)
	case f.Class == model.TooLong:
		return Finish{event.TooLong}
	case f.Class == model.Filtered && f.Status < 300: // the provider's filter answered successfully
		return Finish{event.Refused}
	case s.Accepted.Raw || f.Forwarded: // the relay never retries, nor does a call whose text reached the caller
		return Finish{event.ModelError}
	case f.Class == model.Transient && a.AttemptsOnTarget < s.Accepted.Rules.Attempts && s.retryFits(f.RetryAt):
		return s.callModel(a.Number+1, a.Target, f.RetryAt)
	case f.Class != model.Invalid && a.Target+1 < len(s.Accepted.Targets):
		return s.callModel(a.Number+1, a.Target+1, 0)
	}
	return Finish{event.ModelError}
}

// retryFits reports whether the run may wait for a retry: not longer than
// Rules.RetryWaitMS, and not beyond its deadline.
func (s State) retryFits(until int64) bool {
	return until-s.Attempt.FailedAt <= s.Accepted.Rules.RetryWaitMS && until < s.DeadlineAt()
}

// RetriesExhausted reports whether the last model call failed with a transient error
// and used all of its attempts. It is false for a call that was not retried for
// another reason, such as a long Retry-After.
func (s State) RetriesExhausted() bool {
	a := s.Attempt
	return a.Failed != nil && !s.Accepted.Raw && a.Failed.Class == model.Transient && a.AttemptsOnTarget >= s.Accepted.Rules.Attempts
}
