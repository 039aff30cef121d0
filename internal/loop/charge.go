package loop

import (
	"cmp"

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

// Cost returns the cost of the model call that ended with the fact end, a Turn, a TurnFailed or a Compacted, at the price
// of the target:
//
//	the provider's count          something is reserved           nothing is: no limit applies
//	complete                      the count                       the count
//	not complete: it broke off    the reservation, or more if     the count so far
//	                              more was received
//	missing                       the reservation                 nothing
//	missing, and it was refused   nothing                         nothing
//	or never sent
//
// A model that is priced by time alone costs the time that was measured. It must be called with the state before the
// fact. Any other fact costs nothing.
func (s *State) Cost(end Body) budget.Amount {
	if b, ok := end.(Turn); ok {
		if b.Uncounted && s.Reserved != nil {
			b.Usage.Input, b.Usage.Output = cmp.Or(b.Usage.Input, s.estimatedInput()), max(b.Usage.Output, s.tokensIn(b.Bytes))
		}
		return s.cost(s.price(), b.Usage, b.Refused, b.Uncounted)
	}
	if b, ok := end.(TurnFailed); ok {
		return s.cost(s.price(), b.Usage, b.Status >= 400 || b.Unsent || b.Refused, b.Uncounted)
	}
	if b, ok := end.(Compacted); ok {
		t, _ := s.Summarizer(b.Target)
		return s.cost(t.Price, b.Usage, b.Refused, b.Uncounted)
	}
	return budget.Amount{}
}

func (s *State) cost(price money.Price, u model.Usage, refused, uncounted bool) budget.Amount {
	counted := budget.Amount{Tokens: u.Input + u.Output, NanoUSD: int64(money.Cost(price, u))}
	if s.Reserved == nil || !uncounted && (counted.Tokens > 0 || refused) {
		return counted
	}
	most := s.Reserved.Amount
	if uncounted {
		most = most.Max(counted)
	}
	if price.OnlyTime() && u.GPUMS > 0 { // which was measured
		most.NanoUSD = counted.NanoUSD
	}
	return most
}

// price returns the price of the target of the latest model call.
func (s *State) price() money.Price { return s.priceOf(s.Attempt.Target) }

// priceOf returns the price of a target; the zero value if the journal does not have it.
func (s *State) priceOf(target int) money.Price {
	if target >= 0 && target < len(s.Accepted.Targets) {
		return s.Accepted.Targets[target].Price
	}
	return money.Price{}
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
