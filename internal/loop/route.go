package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
)

// callNext returns the model call to the next target of the round, or Route if the order of
// the targets is not known yet.
func (s *State) callNext() Action {
	if s.routeDue() {
		last := -1
		if s.Turn != nil {
			last = s.Attempt.Target
		}
		return Route{Round: s.Spent.Rounds, Attempt: s.Attempt.Number, Left: s.left(), Last: last}
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
		return s.conclude(event.Money)
	}
	return s.finish(event.ModelError)
}

// routeDue reports whether the router has to be asked before the next target is called.
func (s *State) routeDue() bool {
	return len(s.Accepted.Targets) > 1 &&
		(s.Routed == nil || s.Routed.Round != s.Spent.Rounds || s.Routed.Attempt != s.Attempt.Number)
}

// order returns the targets that may be tried next, the best one first.
func (s *State) order() []int {
	if len(s.Accepted.Targets) <= 1 || s.Routed == nil {
		return s.left()
	}
	return s.Routed.Order
}

// left returns the targets that the round has not tried, in configuration order.
func (s *State) left() []int {
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
func (s *State) unfit(target int) (reason string) {
	if s.limitsMoney() && !s.priceOf(target).Known() {
		return SkipNoPrice
	}
	if _, _, over := s.plan(target); over == event.Money {
		return SkipOverLimit
	}
	return ""
}

// limitsMoney reports whether a limit on money applies to the run.
func (s *State) limitsMoney() bool { return s.Limits.NanoUSD != nil || s.Accepted.LimitsMoney() }

// LimitsMoney reports whether a limit on money applies to a run when it is accepted.
func (p *Policy) LimitsMoney() bool {
	return p.Limits.NanoUSD != nil || slices.ContainsFunc(p.Budgets, func(b budget.Shared) bool { return b.Limit.NanoUSD > 0 })
}

// SkippedTargets returns the targets of the latest Routed that are not tried, with the
// reasons of the router and of the rules.
func (s *State) SkippedTargets() []SkippedTarget {
	if s.Routed == nil {
		return nil
	}
	out := slices.Clip(s.Routed.Skipped)
	for _, target := range s.Routed.Order {
		if reason := s.unfit(target); reason != "" {
			out = append(out, SkippedTarget{target, reason})
		}
	}
	return out
}

// Fallback returns the target that failed for good and the one that is tried instead, as
// indices into Accepted.Targets, if the latest fact is a Routed after a failure that leaves a
// target to try.
func (s *State) Fallback() (from, to int, ok bool) {
	if s.Routed == nil || s.Routed.Attempt == 0 || s.Attempt.Failed == nil {
		return 0, 0, false
	}
	for _, target := range s.order() {
		if s.unfit(target) == "" {
			return s.Attempt.Target, target, true
		}
	}
	return 0, 0, false
}
