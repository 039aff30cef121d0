package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// recover returns the action after a model call that failed, or that has no recorded
// end because its owner died (Attempt.Open).
func (s decision) recover() Action {
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
		if a, due := s.compactRefused(); due {
			return a
		}
		return s.finish(event.TooLong)
	case f.Class == model.Filtered && f.Status < 300: // the provider's filter answered successfully
		return s.finish(event.Refused)
	case f.Forwarded || f.ToolRan: // nothing is repeated that the caller has seen, or that took effect
		return s.finish(event.ModelError)
	case s.relays() && len(s.Accepted.Targets) == 1: // the caller retries by itself
		return s.finish(event.ModelError)
	case f.Class == model.Transient && a.AttemptsOnTarget < s.Accepted.Rules.Attempts && s.retryFits(f.RetryAt) && !(f.TargetOpen && len(s.left()) > 0):
		return s.callModel(a.Number+1, a.Target, f.RetryAt)
	case f.Class != model.Invalid && len(s.left()) > 0:
		return s.callNext()
	}
	return s.finish(event.ModelError)
}

// retryFits reports whether the run may wait for a retry: not longer than
// Rules.RetryWaitMS, and not beyond its deadline, unless it pauses there.
// A relay has no deadline.
func (s decision) retryFits(until int64) bool {
	return until-s.Attempt.FailedAt <= s.Accepted.Rules.RetryWaitMS && (s.relays() || s.pauses() || until < s.DeadlineAt())
}

// exhausted reports whether the last model call failed with a transient error and used
// all of its attempts. It is false for a call that was not retried for another reason,
// such as a long Retry-After.
func (s decision) exhausted() bool {
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

// callNext returns the model call to the next target of the round, or Route if the order of
// the targets is not known yet.
func (s decision) callNext() Action {
	if s.routeDue() {
		last := -1
		if s.Turn != nil {
			last = s.Attempt.Target
		}
		return s.inTime(Route{Round: s.Spent.Rounds, Attempt: s.Attempt.Number, Left: s.left(), Last: last})
	}
	for _, target := range s.order() {
		if s.unfit(target) == "" {
			return s.callModel(s.Attempt.Number+1, target, 0)
		}
	}
	if s.Attempt.Failed == nil { // the rules exclude all targets
		if s.Turn == nil {
			return s.conclude(event.BudgetExceeded)
		}
		if s.pauses() {
			return s.pauseAt(event.Money)
		}
		return s.conclude(event.Money)
	}
	return s.finish(event.ModelError)
}

// routeDue reports whether the router has to be asked before the next target is called.
func (s decision) routeDue() bool {
	return len(s.Accepted.Targets) > 1 &&
		(s.Routed == nil || s.Routed.Round != s.Spent.Rounds || s.Routed.Attempt != s.Attempt.Number)
}

// order returns the targets that may be tried next, the best one first.
func (s decision) order() []int {
	if len(s.Accepted.Targets) <= 1 || s.Routed == nil {
		return s.left()
	}
	return s.Routed.Order
}

// left returns the targets that the round has not tried, in configuration order.
func (s decision) left() []int {
	var out []int
	for i := range s.Accepted.Targets {
		if !slices.Contains(s.Attempt.Tried, i) {
			out = append(out, i)
		}
	}
	return out
}

// unfit returns why a target must not be called in state s; "" = it may be. It is a rule:
// it depends on the facts only, and its reasons are shown to people.
func (s decision) unfit(target int) (reason string) {
	if s.limitsMoney() && !s.priceOf(target).Known() {
		return SkipNoPrice
	}
	if _, _, over := s.plan(target); over == event.Money {
		return SkipOverLimit
	}
	return ""
}

// limitsMoney reports whether a limit on money applies to the run.
func (s decision) limitsMoney() bool { return s.Limits.NanoUSD != nil || s.Accepted.LimitsMoney() }
