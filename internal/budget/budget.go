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
