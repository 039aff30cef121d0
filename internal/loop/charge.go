package loop

import (
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/model"
)

// Charge is what model calls are charged with, and how much of it is an estimate.
type Charge struct {
	Input, Output, NanoUSD int64

	// The parts that no provider has counted.
	EstimatedInput, EstimatedOutput, EstimatedNanoUSD int64
}

// Add returns the sum.
func (c Charge) Add(d Charge) Charge {
	sum := func(a, b int64) int64 { return int64(money.Nano(a).Add(money.Nano(b))) } // without overflow
	return Charge{
		c.Input + d.Input, c.Output + d.Output, sum(c.NanoUSD, d.NanoUSD),
		c.EstimatedInput + d.EstimatedInput, c.EstimatedOutput + d.EstimatedOutput, sum(c.EstimatedNanoUSD, d.EstimatedNanoUSD),
	}
}

// Charge returns what the model call is charged with that ends with the fact, a Turn or a TurnFailed: see
// [State.Cost]. It must be called with the state before the fact.
func (s *State) Charge(end Body) Charge {
	u, uncounted := model.Usage{}, false
	if b, ok := end.(Turn); ok {
		u, uncounted = b.Usage, b.Uncounted
	}
	if b, ok := end.(TurnFailed); ok {
		u, uncounted = b.Usage, b.Uncounted
	}
	cost := s.Cost(end)
	c := Charge{Input: u.Input, Output: u.Output, NanoUSD: cost.NanoUSD}
	switch {
	case s.Reserved == nil && !u.Estimated:
		return c
	case s.Reserved != nil && (uncounted || cost.Tokens > u.Input+u.Output):
		if c.Input == 0 {
			c.Input = min(s.estimatedInput(), cost.Tokens)
		}
		c.Output = cost.Tokens - c.Input
	case !u.Estimated:
		return c
	}
	if c.Input == s.estimatedInput() { // not counted
		c.EstimatedInput = c.Input
	}
	c.EstimatedOutput, c.EstimatedNanoUSD = c.Output, c.NanoUSD
	return c
}

// lostCharge returns what an open model call is charged with whose outcome nobody knows.
func (s *State) lostCharge() Charge {
	return s.Charge(TurnFailed{Uncounted: true})
}

// tokensIn returns an estimate of so many bytes, in tokens, as it is made for reservations.
func (s *State) tokensIn(bytes int64) int64 {
	per := s.Accepted.Rules.Estimate.WithDefaults(budget.DefaultEstimate()).BytesPerToken
	return (bytes + per - 1) / per
}

// estimatedInput returns the estimate of the prompt of a model call, in tokens, as it is made for reservations.
func (s *State) estimatedInput() int64 {
	return s.CountedTokens + s.tokensIn(s.UncountedBytes+s.Accepted.RawBytes)
}
