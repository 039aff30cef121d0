// Package budget says what a run may spend and whether it has. It is plain data
// and arithmetic: the clock and the store are read by others.
//
//	Limits ─┐
//	Spent  ─┴─► Exhausted ─► the reason why the run ends, or none
package budget

import "github.com/turnpike-gateway/turnpike/event"

// Defaults of a run, from the design's sections 5 and 6.
const (
	DefaultRounds       = 10
	MaxRounds           = 50 // the hard cap, whatever is stored
	DefaultCalls        = 128
	DefaultCallsPerTurn = 32
	DefaultActiveMS     = 120_000
)

// What happens in the last round that the limit allows.
const (
	Stop   = "stop"   // its calls run, then the run ends
	Answer = "answer" // it is offered no tools, so that it must answer
)

// Limits are the ceilings of one run. They are sealed when it is accepted.
type Limits struct {
	Rounds       int    `json:"rounds"`             // model calls of purpose turn; at least 1
	Calls        int    `json:"calls"`              // gateway-owned tool calls in the run
	CallsPerTurn int    `json:"calls_per_turn"`     // and in one turn
	Tokens       int64  `json:"tokens,omitempty"`   // input and output of all rounds; 0 = no limit
	NanoUSD      *int64 `json:"nano_usd,omitempty"` // nil = no limit; 0 allows nothing
	ActiveMS     int64  `json:"active_ms"`          // time not spent parked
	OnLimit      string `json:"on_limit,omitempty"` // Stop (also when empty) or Answer
}

// Clamp returns l with values inside the hard bounds: a stored value that
// somebody tampered with cannot exceed cap rounds.
func (l Limits) Clamp(cap int) Limits {
	l.Rounds = clamp(l.Rounds, 1, cap, DefaultRounds)
	l.Calls = clamp(l.Calls, 1, 10_000, DefaultCalls)
	l.CallsPerTurn = clamp(l.CallsPerTurn, 1, 1_000, DefaultCallsPerTurn)
	if l.ActiveMS <= 0 {
		l.ActiveMS = DefaultActiveMS
	}
	return l
}

// clamp maps 0 to the default and everything else into lo..hi.
func clamp(v, lo, hi, def int) int {
	if v == 0 {
		v = def
	}
	return min(max(v, lo), hi)
}

// Spent is what a run has used.
type Spent struct {
	Rounds       int
	CallsSkipped bool // a call was refused for the run's call limit
	Tokens       int64
	NanoUSD      int64
}

// Exhausted returns why no further model call may be made, or "".
//
// A finished answer is never thrown away because it crossed a line: callers
// ask only before the next model call.
func (l Limits) Exhausted(s Spent) event.Reason {
	switch {
	case s.CallsSkipped:
		return event.MaxCalls
	case s.Rounds >= l.Rounds:
		return event.MaxRounds
	case l.Tokens > 0 && s.Tokens >= l.Tokens:
		return event.Tokens
	case l.NanoUSD != nil && s.NanoUSD >= *l.NanoUSD:
		return event.Money
	}
	return ""
}

// LastRound reports whether the next round is the last one that l allows.
func (l Limits) LastRound(s Spent) bool { return s.Rounds+1 >= l.Rounds }

// Amount is what model calls cost, or may cost.
type Amount struct {
	Tokens  int64 `json:"tokens,omitempty"` // input and output
	NanoUSD int64 `json:"nano_usd,omitempty"`
}

// Add returns the sum.
func (a Amount) Add(b Amount) Amount { return Amount{a.Tokens + b.Tokens, a.NanoUSD + b.NanoUSD} }

// Sub returns the difference.
func (a Amount) Sub(b Amount) Amount { return Amount{a.Tokens - b.Tokens, a.NanoUSD - b.NanoUSD} }

// Shared is a budget that several runs spend from. Each model call sets aside
// the most that it may cost before it is sent, so that no two of them spend the
// same.
type Shared struct {
	Scope string `json:"scope"` // names it in its org, with its period: "org:2026-11-21"
	Limit Amount `json:"limit"` // a member of 0 limits nothing
}

// Fits reports whether an amount may be set aside beside what is spent and what
// others have set aside.
func (s Shared) Fits(used, amount Amount) bool {
	return fits(used.Tokens, amount.Tokens, s.Limit.Tokens) && fits(used.NanoUSD, amount.NanoUSD, s.Limit.NanoUSD)
}

func fits(used, amount, limit int64) bool { return limit == 0 || amount <= limit-used }

// What a model call is taken to cost before it is made. A token of text has
// rarely less than three bytes; a call whose caller names no limit is given one,
// so that there is a most.
const (
	bytesPerToken  = 3
	DefaultOutput  = 8_192 // tokens
	smallestOutput = 16    // tokens

	// mostTokens is more than any model reads or says. What clients ask for and
	// providers count may be larger, and is taken for this much: sums of it stay
	// what they are.
	mostTokens        = 1 << 40
	mostBytesPerToken = 1 << 10
)

// Estimate is how the cost of a model call is estimated. A field of 0 means that
// of [DefaultEstimate].
type Estimate struct {
	BytesPerToken  int64 `json:"bytes_per_token,omitempty"`
	Output         int64 `json:"output,omitempty"`          // tokens, for a caller that names no limit
	SmallestOutput int64 `json:"smallest_output,omitempty"` // tokens: a call that may say less is not made
}

// DefaultEstimate returns the numbers of this build.
func DefaultEstimate() Estimate { return Estimate{bytesPerToken, DefaultOutput, smallestOutput} }

// Or returns e with the numbers that it does not name taken from other.
func (e Estimate) Or(other Estimate) Estimate {
	if e.BytesPerToken <= 0 {
		e.BytesPerToken = other.BytesPerToken
	}
	if e.Output <= 0 {
		e.Output = other.Output
	}
	if e.SmallestOutput <= 0 {
		e.SmallestOutput = other.SmallestOutput
	}
	return e
}

// Call is one model call to come.
type Call struct {
	Known int64 // tokens of the prompt that the provider has counted before
	Fresh int64 // bytes of the prompt since
	Asked int64 // most tokens of output, as the caller asked; 0 = not said

	Estimate Estimate // how its cost is estimated
}

// Plan returns what a call may cost at most and the limit on its output that
// makes this true. A limit of 0 is none: nothing limits the run's tokens. The
// run itself has room for the call unless ok is false.
func (l Limits) Plan(s Spent, c Call, shared bool) (most Amount, output int64, ok bool) {
	if l.Tokens <= 0 && !shared {
		return Amount{}, 0, true
	}
	e := c.Estimate.Or(DefaultEstimate())
	per := min(e.BytesPerToken, mostBytesPerToken)
	fresh := min(c.Fresh, per*mostTokens)
	input := min(c.Known, mostTokens) + (fresh+per-1)/per
	output = min(c.Asked, mostTokens)
	if output == 0 {
		output = min(e.Output, mostTokens)
	}
	if l.Tokens > 0 {
		left := l.Tokens - min(s.Tokens, l.Tokens) - input
		if left < e.SmallestOutput {
			return Amount{}, 0, false
		}
		output = min(output, left)
	}
	return Amount{Tokens: input + output}, output, true
}
