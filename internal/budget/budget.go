// Package budget holds the limits of a run and the arithmetic on them. It is pure: it
// reads no clock and no store.
//
//	Limits ─┐
//	Spent  ─┴─► Exhausted ─► the reason why the run ends, or none
package budget

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

// The defaults of a run.
const (
	DefaultRounds       = 10
	DefaultRoundsCap    = 50  // the operator's cap on the rounds of an org, unless it is set
	MaxRounds           = 256 // the hard cap; Clamp applies it to stored values as well
	DefaultCalls        = 128
	MaxCalls            = 10_000
	DefaultCallsPerTurn = 32
	DefaultActiveMS     = 120_000 // 2 minutes
)

// The values of Limits.OnLimit: what happens at a limit.
const (
	Stop   = "stop"   // the calls of the last round are executed, then the run ends
	Answer = "answer" // the model is offered no tools in the last round, so it must answer
	Pause  = "pause"  // as Stop, but the run waits until the limit is raised; only for durable runs

	HandOver = "hand_over" // the caller gets the calls of the last round; as Stop at all other limits
)

// Limits are the limits of one run. They are recorded when the run is accepted; afterwards
// they can only be raised.
type Limits struct {
	Rounds       int    `json:"rounds"`             // rounds of the run; at least 1
	Calls        int    `json:"calls"`              // gateway-owned tool calls of the run
	CallsPerTurn int    `json:"calls_per_turn"`     // gateway-owned tool calls of one turn
	Tokens       int64  `json:"tokens,omitempty"`   // input and output tokens of all rounds; 0 = no limit
	NanoUSD      *int64 `json:"nano_usd,omitempty"` // in 10⁻⁹ US dollars; nil = no limit, 0 = no model call
	ActiveMS     int64  `json:"active_ms"`          // milliseconds, without the time that the run is parked
	OnLimit      string `json:"on_limit,omitempty"` // Stop (also when empty), Answer, Pause or HandOver

	// KeepBack is the part of Tokens and NanoUSD, in percent, that is kept for an answer without tools;
	// 0 = none. It has no effect unless OnLimit is Answer.
	KeepBack int `json:"keep_back,omitempty"`
}

// maxKeepBack is the largest part that can be kept back, in percent.
const maxKeepBack = 50

// Keeping returns l without a share of the part that is kept back: all of it for a share of 1, half of it
// for 2.
func (l Limits) Keeping(share int64) Limits {
	if l.OnLimit != Answer || l.KeepBack <= 0 {
		return l
	}
	kept := func(limit int64) int64 {
		return limit - limit/100*int64(l.KeepBack)/share - limit%100*int64(l.KeepBack)/100/share
	}
	if l.Tokens > 0 {
		l.Tokens = max(kept(l.Tokens), 1)
	}
	if l.NanoUSD != nil {
		usd := kept(*l.NanoUSD)
		l.NanoUSD = &usd
	}
	return l
}

// Clamp returns l with defaults for zero values and every other value within its hard
// bounds: 1 to maxRounds rounds, 1 to 10,000 calls, 1 to 1,000 calls per turn. It must
// be applied to stored limits, so that a modified row cannot raise them.
func (l Limits) Clamp(maxRounds int) Limits {
	l.Rounds = clamp(l.Rounds, 1, maxRounds, DefaultRounds)
	l.Calls = clamp(l.Calls, 1, MaxCalls, DefaultCalls)
	l.CallsPerTurn = clamp(l.CallsPerTurn, 1, 1_000, DefaultCallsPerTurn)
	if l.ActiveMS <= 0 {
		l.ActiveMS = DefaultActiveMS
	}
	l.KeepBack = min(max(l.KeepBack, 0), maxKeepBack)
	return l
}

// clamp returns def for 0, and else v limited to lo..hi.
func clamp(v, lo, hi, def int) int {
	if v == 0 {
		v = def
	}
	return min(max(v, lo), hi)
}

// Raise is by how much limits of a run are raised. A field of 0 = not at all.
type Raise struct {
	Rounds   int   `json:"rounds,omitempty"`
	Calls    int   `json:"calls,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
	NanoUSD  int64 `json:"nano_usd,omitempty"`
	ActiveMS int64 `json:"active_ms,omitempty"`
}

// IsZero reports whether r raises nothing.
func (r Raise) IsZero() bool { return r == Raise{} }

// Negative reports whether r would lower a limit.
func (r Raise) Negative() bool {
	return r.Rounds < 0 || r.Calls < 0 || r.Tokens < 0 || r.NanoUSD < 0 || r.ActiveMS < 0
}

// Raised returns l after r, within the hard bounds of [Limits.Clamp]. A limit that l does not
// have stays away, and no limit becomes lower.
func (l Limits) Raised(r Raise) Limits {
	l.Rounds = max(l.Rounds, min(raised(l.Rounds, r.Rounds), MaxRounds))
	l.Calls = max(l.Calls, min(raised(l.Calls, r.Calls), MaxCalls))
	l.ActiveMS = raised(l.ActiveMS, r.ActiveMS)
	if l.Tokens > 0 {
		l.Tokens = raised(l.Tokens, r.Tokens)
	}
	if l.NanoUSD != nil {
		usd := raised(*l.NanoUSD, r.NanoUSD)
		l.NanoUSD = &usd
	}
	return l
}

// raised returns the sum of a limit and what is added to it, without overflow.
func raised[T int | int64](limit, by T) T {
	if sum := limit + max(by, 0); sum >= limit {
		return sum
	}
	return limit
}

// Equal reports whether the limits are the same.
func (l Limits) Equal(other Limits) bool {
	a, b := l.NanoUSD, other.NanoUSD
	same := a == b || a != nil && b != nil && *a == *b
	l.NanoUSD, other.NanoUSD = nil, nil
	return same && l == other
}

// Spent is what a run has used.
type Spent struct {
	Rounds       int
	CallsSkipped bool // a call was skipped because of Limits.Calls
	Tokens       int64
	NanoUSD      int64
}

// Exhausted returns the reason why no further model call may be made, or "". Callers
// check it only before a model call: a complete answer is kept even if it exceeded a
// limit.
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

// Affords reports whether a run that has paid so much, in nano-USD, can pay the price of a tool call.
func (l Limits) Affords(paid int64, price money.Nano) bool {
	return l.NanoUSD == nil || price <= 0 || int64(money.Nano(paid).Add(price)) <= *l.NanoUSD
}

// LastRound reports whether the next round is the last that l allows.
func (l Limits) LastRound(s Spent) bool { return s.Rounds+1 >= l.Rounds }

// Amount is a cost of model calls, actual or reserved.
type Amount struct {
	Tokens  int64 `json:"tokens,omitempty"`   // input and output
	NanoUSD int64 `json:"nano_usd,omitempty"` // in 10⁻⁹ US dollars
}

// Add returns the sum.
func (a Amount) Add(b Amount) Amount { return Amount{a.Tokens + b.Tokens, a.NanoUSD + b.NanoUSD} }

// Sub returns the difference.
func (a Amount) Sub(b Amount) Amount { return Amount{a.Tokens - b.Tokens, a.NanoUSD - b.NanoUSD} }

func fits(used, amount, limit int64) bool { return limit == 0 || amount <= limit-used }

// The constants of [DefaultEstimate] and its bounds. Text rarely has fewer than three
// bytes per token. A call whose caller sets no output limit gets DefaultOutput, so that
// its cost has a maximum.
const (
	bytesPerToken = 3
	DefaultOutput = 8_192 // tokens
	minOutput     = 16    // tokens

	// Larger numbers from clients and providers are reduced to these, so that no sum
	// overflows. No model processes as many tokens.
	maxTokens        = 1 << 40
	maxBytesPerToken = 1 << 10
)

// Estimate has the constants for estimating the maximum cost of a model call. A zero
// field means that of [DefaultEstimate].
type Estimate struct {
	BytesPerToken int64 `json:"bytes_per_token,omitempty"`
	Output        int64 `json:"output,omitempty"`          // output tokens of a call without a limit of its caller
	MinOutput     int64 `json:"smallest_output,omitempty"` // output tokens; a call with less room is not made
}

// DefaultEstimate returns the constants of this build.
func DefaultEstimate() Estimate { return Estimate{bytesPerToken, DefaultOutput, minOutput} }

// WithDefaults returns e with each field that is not positive set to that of other.
func (e Estimate) WithDefaults(other Estimate) Estimate {
	if e.BytesPerToken <= 0 {
		e.BytesPerToken = other.BytesPerToken
	}
	if e.Output <= 0 {
		e.Output = other.Output
	}
	if e.MinOutput <= 0 {
		e.MinOutput = other.MinOutput
	}
	return e
}

// Call describes a model call before it is sent.
type Call struct {
	CountedTokens  int64 // tokens of the prompt that the provider has counted
	UncountedBytes int64 // bytes of the prompt after those tokens
	AskedOutput    int64 // the caller's limit on output tokens; 0 = none

	Price    money.Price // of the target; without a known one the call costs no money
	Tier     string      // the service tier that the request asks for; "" = none
	Estimate Estimate
}

// Plan returns the maximum cost of a call and the output limit, in tokens, that
// enforces it. shared says whether the run spends from a shared budget. If neither
// that nor a limit of the run in tokens or money applies, both results are zero: the call is
// not limited. over is the limit of the run that leaves no room for the call: event.Tokens,
// event.Money, or "".
func (l Limits) Plan(s Spent, c Call, shared bool) (most Amount, output int64, over event.Reason) {
	if l.Tokens <= 0 && l.NanoUSD == nil && !shared {
		return Amount{}, 0, ""
	}
	e := c.Estimate.WithDefaults(DefaultEstimate())
	per := min(e.BytesPerToken, maxBytesPerToken)
	fresh := min(c.UncountedBytes, per*maxTokens)
	input := min(c.CountedTokens, maxTokens) + (fresh+per-1)/per
	output = min(c.AskedOutput, maxTokens)
	if output == 0 {
		output = min(e.Output, maxTokens)
	}
	if l.Tokens > 0 {
		left := l.Tokens - min(s.Tokens, l.Tokens) - input
		if left < e.MinOutput {
			return Amount{}, 0, event.Tokens
		}
		output = min(output, left)
	}
	prompt := money.Prompt{Counted: input, Tier: c.Tier, GPUMS: longestCall}
	if l.NanoUSD != nil && c.Price.Known() {
		affordable, ok := money.LargestOutput(c.Price, prompt, money.Nano(*l.NanoUSD).Sub(money.Nano(s.NanoUSD)), output)
		if !ok || affordable < min(output, e.MinOutput) {
			return Amount{}, 0, event.Money
		}
		output = affordable
	}
	return Amount{Tokens: input + output, NanoUSD: int64(money.MaxCost(c.Price, prompt, output))}, output, ""
}

// longestCall is how long a model call takes at most, in milliseconds, for the estimate of models
// that are billed by time. A call that takes longer is an overrun.
const longestCall = 10 * 60 * 1000
