package money

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/turnpike-gateway/turnpike/internal/decimal"
	"github.com/turnpike-gateway/turnpike/model"
)

// Rate is the price of one token in pico-USD, 10⁻¹² US dollars. That is the millionth
// part of a US dollar per million tokens: its JSON is the number of US dollars per
// million tokens.
type Rate int64

// PerMillion is the rate of one US dollar per million tokens. MaxRate is the highest
// rate that is accepted: one US dollar per token.
const (
	PerMillion Rate = 1_000_000
	MaxRate         = 1_000_000 * PerMillion
)

// String returns the rate in US dollars per million tokens, exactly.
func (r Rate) String() string { return decimal.Format(int64(r), rateDigits) }

// ParseRate returns the rate of a decimal number of US dollars per million tokens, such
// as "1.25". More than six decimals, exponents, negative rates and rates above MaxRate
// are errors.
func ParseRate(s string) (Rate, error) {
	n, err := decimal.Parse(s, rateDigits)
	if err == nil && (n < 0 || n > int64(MaxRate)) {
		err = fmt.Errorf("%w: 0 to %s", decimal.ErrRange, MaxRate)
	}
	if err != nil {
		return 0, fmt.Errorf("rate %s: %w", decimal.Quote(s), err)
	}
	return Rate(n), nil
}

// MarshalJSON implements json.Marshaler: the number of US dollars per million tokens.
func (r Rate) MarshalJSON() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	parsed, err := ParseRate(string(data))
	*r = parsed
	return err
}

// Rates are the prices of tokens. A rate of 0 is free: a rate that a row of the rate
// card leaves out is filled when the row is read.
type Rates struct {
	Input        Rate `json:"input,omitempty"`          // of input that is neither read from nor written to the cache
	CachedInput  Rate `json:"cached_input,omitempty"`   // of input that the provider read from its cache
	CacheWrite   Rate `json:"cache_write,omitempty"`    // of input that the provider wrote to its cache for 5 minutes, or without saying for how long
	CacheWrite1h Rate `json:"cache_write_1h,omitempty"` // of input that the provider wrote to its cache for an hour
	Output       Rate `json:"output,omitempty"`         // of output with reasoning
}

// higher returns the higher rate of each kind.
func (r Rates) higher(s Rates) Rates {
	return Rates{
		Input: max(r.Input, s.Input), CachedInput: max(r.CachedInput, s.CachedInput),
		CacheWrite: max(r.CacheWrite, s.CacheWrite), CacheWrite1h: max(r.CacheWrite1h, s.CacheWrite1h),
		Output: max(r.Output, s.Output),
	}
}

// LongPrompt has the rates of calls with a long prompt. They apply to all tokens of the
// call, not only to those above the threshold.
type LongPrompt struct {
	Tokens int64 `json:"tokens,omitempty"` // a prompt with more input tokens is long, cached ones included; 0 = no prompt is
	Rates
}

// Price is what a model costs. It is sealed in the target of a run when the run is
// accepted. The zero value means that no price is known. Prices can be compared with ==.
type Price struct {
	// From is the date from which the price holds. Every known price has one; "" = there
	// is no price.
	From Date `json:"from,omitempty"`

	Rates
	Above    LongPrompt `json:"above,omitzero"`
	Flex     Rates      `json:"flex,omitzero"`     // with the service tier flex; zero = the rates without one
	Priority Rates      `json:"priority,omitzero"` // with the service tier priority; zero = the rates without one

	// GPUSecond is the price of one second of a call, for models that run on machines
	// of the operator; 0 = none.
	GPUSecond Nano `json:"gpu_second,omitempty"`
}

// Known reports whether there is a price. A model that is free has a known price.
func (p Price) Known() bool { return p.From != "" }

// IsZero reports whether there is no price: it is the opposite of Known, with the name
// that the JSON option omitzero needs.
func (p Price) IsZero() bool { return !p.Known() }

// OnlyTime reports whether a call costs nothing but its time.
func (p Price) OnlyTime() bool {
	return p.GPUSecond > 0 && p.Rates == Rates{} && p.Above.Rates == Rates{} && p.Flex == Rates{} && p.Priority == Rates{}
}

// rates returns the rates of a call by its service tier and its whole prompt. A long
// prompt in a service tier costs the higher of both rates, since providers publish none
// for it.
func (p Price) rates(tier string, prompt int64) Rates {
	r := p.Rates
	switch {
	case tier == model.TierFlex && p.Flex != (Rates{}):
		r = p.Flex
	case tier == model.TierPriority && p.Priority != (Rates{}):
		r = p.Priority
	}
	switch {
	case !p.isLong(prompt):
		return r
	case r == p.Rates:
		return p.Above.Rates
	}
	return r.higher(p.Above.Rates)
}

func (p Price) isLong(prompt int64) bool { return p.Above.Tokens > 0 && prompt > p.Above.Tokens }

// Cost returns the cost of a model call, rounded up. It is 0 without a known price.
//
// Input includes cached tokens and cache writes: each token is billed once, at the rate
// of what happened to it. Output includes reasoning.
func Cost(p Price, u model.Usage) Nano {
	if !p.Known() {
		return 0
	}
	input, cached := count(u.Input), count(u.CachedInput)
	hour := count(u.CacheWrite1h)
	write := max(count(u.CacheWrite)-hour, 0)
	fresh := max(input-cached-write-hour, 0)
	r := p.rates(u.ServiceTier, max(input, cached+write+hour))

	var t total
	t.add(fresh, int64(r.Input))
	t.add(cached, int64(r.CachedInput))
	t.add(write, int64(r.CacheWrite))
	t.add(hour, int64(r.CacheWrite1h))
	t.add(count(u.Output), int64(r.Output))
	t.add(count(u.GPUMS), int64(p.GPUSecond))
	return t.nano()
}

// maxCount is the highest count of tokens, bytes or milliseconds that is believed.
// Sums of a few do not overflow.
const maxCount = 1 << 50

// count returns n within 0..maxCount.
func count(n int64) int64 { return min(max(n, 0), maxCount) }

// total is a sum in pico-USD. Milliseconds times nano-USD per second are pico-USD too.
type total struct{ hi, lo uint64 }

// add adds n units of price each. Negative numbers count as 0. n is at most maxCount and
// price less than 2⁶³, so that a few sums do not overflow.
func (t *total) add(n, price int64) {
	hi, lo := bits.Mul64(uint64(max(n, 0)), uint64(max(price, 0)))
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	t.hi, _ = bits.Add64(t.hi, hi, carry)
}

const picoPerNano = 1000

// nano returns the total rounded up to nano-USD, at most MaxNano.
func (t *total) nano() Nano {
	if t.hi >= picoPerNano { // the quotient does not fit
		return MaxNano
	}
	q, rest := bits.Div64(t.hi, t.lo, picoPerNano)
	if q >= uint64(MaxNano) {
		return MaxNano
	}
	if rest > 0 {
		q++
	}
	return Nano(q)
}
