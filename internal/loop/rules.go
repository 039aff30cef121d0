package loop

import (
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// Rules are the numbers that steer the rules, beside those in [budget.Limits]
// and [policy.Guard]. Accepted seals them, so that a build with other numbers
// goes on with a run as it began. A zero field means the value of version 1.
type Rules struct {
	Attempts    int   `json:"attempts,omitempty"`      // failed attempts on one target
	Taken       int   `json:"taken,omitempty"`         // owners in a row that died without getting the run further
	StuckMS     int64 `json:"stuck_ms,omitempty"`      // they count only if the run has got no further for so long; 0 = at once
	Deaths      int   `json:"deaths,omitempty"`        // owners that died during one and the same tool call
	RetryWaitMS int64 `json:"retry_wait_ms,omitempty"` // a longer wait is left to the caller, which learns sooner

	Estimate budget.Estimate `json:"estimate,omitzero"` // of what a model call costs at most
}

// The numbers that new runs get, from the design's section 8 and
// reference/reliability R14. Runs that are under way keep theirs.
const (
	MaxAttempts    = 3
	MaxTaken       = 5
	MaxStuckMS     = 5 * 60 * 1000
	MaxDeaths      = 5
	MaxRetryWaitMS = 5_000
)

// steering is every number that Accepted seals and that may be missing from
// one of an older release.
type steering struct {
	rules Rules
	guard policy.Guard
}

// unlimited stands for a limit that a release did not have.
const unlimited = 1 << 30

// version1 holds the constants of the release that wrote the first journals. A
// field that is missing from an accepted fact means its value here. The values
// never change; a number that becomes a field later is entered with the value
// that the releases before it had.
func version1() steering {
	return steering{
		rules: Rules{
			Attempts: 3, Taken: 5, StuckMS: 0, Deaths: unlimited, RetryWaitMS: 5_000,
			Estimate: budget.Estimate{BytesPerToken: 3, Output: 8_192, SmallestOutput: 16},
		},
		guard: policy.Guard{Threshold: 3, Window: 64, Alternations: 2, SameReads: 2, SameWrites: 4},
	}
}

// present holds the numbers of this build.
func present() steering {
	return steering{
		rules: Rules{
			Attempts: MaxAttempts, Taken: MaxTaken, StuckMS: MaxStuckMS, Deaths: MaxDeaths, RetryWaitMS: MaxRetryWaitMS,
			Estimate: budget.DefaultEstimate(),
		},
		guard: policy.Defaults(),
	}
}

// Sealed returns a with every number that steers the rules and that its caller
// left open set to that of this build.
func (a Accepted) Sealed() Accepted { return a.filled(present()) }

func (a Accepted) filled(from steering) Accepted {
	a.Rules = Rules{
		Attempts:    or(a.Rules.Attempts, from.rules.Attempts),
		Taken:       or(a.Rules.Taken, from.rules.Taken),
		StuckMS:     or(a.Rules.StuckMS, from.rules.StuckMS),
		Deaths:      or(a.Rules.Deaths, from.rules.Deaths),
		RetryWaitMS: or(a.Rules.RetryWaitMS, from.rules.RetryWaitMS),
		Estimate:    a.Rules.Estimate.Or(from.rules.Estimate),
	}
	a.Guard = a.Guard.Or(from.guard)
	return a
}

// or returns v, or what stands for a missing value.
func or[T int | int64](v, missing T) T {
	if v <= 0 {
		return missing
	}
	return v
}
