package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// recover returns the action after a model call that failed, or that has no recorded
// end because its owner died (Attempt.Open).
func (s *State) recover() Action {
	a := s.Attempt
	f := a.Failed
	switch {
	case s.relays() && f == nil: // the client was connected to the owner that died
		return s.finish(event.Lost)
	case f == nil:
		return s.callModel(a.Number+1, a.Target, 0)
	case f.Class == model.Gone:
		return s.conclude(event.Cancelled)
	case f.Class == model.TooLong && a.Compacted: // the context is shorter now
		return s.callModel(a.Number+1, a.Target, 0)
	case f.Class == model.TooLong:
		return s.finish(event.TooLong)
	case f.Class == model.Filtered && f.Status < 300: // the provider's filter answered successfully
		return s.finish(event.Refused)
	case f.Forwarded || f.ToolRan: // nothing is repeated that the caller has seen, or that took effect
		return s.finish(event.ModelError)
	case s.relays() && len(s.Accepted.Targets) == 1: // the caller retries by itself
		return s.finish(event.ModelError)
	case f.Class == model.Transient && a.AttemptsOnTarget < s.Accepted.Rules.Attempts && s.retryFits(f.RetryAt):
		return s.callModel(a.Number+1, a.Target, f.RetryAt)
	case f.Class != model.Invalid && len(s.left()) > 0:
		return s.callNext()
	}
	return s.finish(event.ModelError)
}

// retryFits reports whether the run may wait for a retry: not longer than
// Rules.RetryWaitMS, and not beyond its deadline.
// A relay has no deadline.
func (s *State) retryFits(until int64) bool {
	return until-s.Attempt.FailedAt <= s.Accepted.Rules.RetryWaitMS && (s.relays() || until < s.DeadlineAt())
}

// exhausted reports whether the last model call failed with a transient error and used
// all of its attempts. It is false for a call that was not retried for another reason,
// such as a long Retry-After.
func (s *State) exhausted() bool {
	a := s.Attempt
	return a.Failed != nil && !(s.relays() && len(s.Accepted.Targets) == 1) && a.Failed.Class == model.Transient && a.AttemptsOnTarget >= s.Accepted.Rules.Attempts
}

// The back-off between attempts, in milliseconds, if the provider does not ask for
// another one: it starts with firstWaitMS and doubles with each attempt up to
// maxWaitMS.
const (
	firstWaitMS = 250
	maxWaitMS   = 4_000
)

// Backoff returns how long to wait before the next attempt at the target if this one fails, in
// milliseconds. askedMS is the wait that the provider asked for; 0 = none. The driver
// adds a random part of at most jitterMS, so that clients do not retry at the same time.
// TurnFailed.RetryAt is the end of the wait.
func (s *State) Backoff(askedMS int64) (waitMS, jitterMS int64) {
	if askedMS > 0 {
		return askedMS, askedMS / 10
	}
	waitMS = firstWaitMS
	for n := 1; n < s.Attempt.AttemptsOnTarget && waitMS < maxWaitMS; n++ {
		waitMS *= 2
	}
	return waitMS, waitMS
}

// Usable reports whether a run can continue with a turn that broke off: the gateway can
// execute one of its calls. A relay executes none, so its caller is told of the error.
func (s *State) Usable(turn *model.Turn) bool {
	return turn != nil && !s.relays() && slices.ContainsFunc(turn.Calls, func(c model.Call) bool { return c.Complete })
}
