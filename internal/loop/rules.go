package loop

import (
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// Rules are the constants of the rules, besides those in [budget.Limits] and
// [policy.Guard]. [Policy] records them, so that a build with other constants
// continues a run under the ones it began with. A field that is zero in a stored
// journal means its value in [missingDefaults].
type Rules struct {
	Attempts          int   `json:"attempts,omitempty"`         // attempts on one target before the next target
	DeadOwners        int   `json:"taken,omitempty"`            // owners that may die in a row without progress before the run is lost
	StuckMS           int64 `json:"stuck_ms,omitempty"`         // minimum time without progress before DeadOwners applies; 0 = none
	DeadOwnersPerCall int   `json:"deaths,omitempty"`           // owners that may die during one tool call before the run is lost
	CallsPerServer    int   `json:"calls_per_server,omitempty"` // calls of the run to one server at a time
	RetryWaitMS       int64 `json:"retry_wait_ms,omitempty"`    // longest wait for a retry; after a longer one the run fails and the caller retries

	Estimate budget.Estimate `json:"estimate,omitzero"` // of the cost of a model call
}

// The constants of new runs. Runs that are in progress keep the ones in their
// Accepted.
const (
	MaxAttempts          = 4
	MaxDeadOwners        = 5             // a run that crashes its owners must not crash many more
	MaxStuckMS           = 5 * 60 * 1000 // restarts in quick succession do not end a run
	MaxDeadOwnersPerCall = 5
	MaxCallsPerServer    = 10
	MaxRetryWaitMS       = 5_000 // beyond it the caller gets the error at once and decides itself
)

// defaults has a value for every constant that Accepted records and that may be
// missing from a stored one.
type defaults struct {
	rules Rules
	guard policy.Guard
}

// missingDefaults returns what a field means that is missing from a stored Accepted: the
// constants of the first builds that wrote facts of version 1.
//
// The values must never change: journals depend on them. A constant that becomes a
// field later is added here with the value that earlier builds used.
func missingDefaults() defaults {
	return defaults{
		rules: Rules{
			Attempts: 3, DeadOwners: 5, StuckMS: 300_000, DeadOwnersPerCall: 5, RetryWaitMS: 5_000, CallsPerServer: 10,
			Estimate: budget.Estimate{BytesPerToken: 3, Output: 8_192, MinOutput: 16},
		},
		guard: policy.Guard{Threshold: 3, Window: 64, Failures: 5, Alternations: 2, SameReads: 2, SameWrites: 4},
	}
}

// currentDefaults returns the constants of this build.
func currentDefaults() defaults {
	return defaults{
		rules: Rules{
			Attempts: MaxAttempts, DeadOwners: MaxDeadOwners, StuckMS: MaxStuckMS, DeadOwnersPerCall: MaxDeadOwnersPerCall, RetryWaitMS: MaxRetryWaitMS,
			CallsPerServer: MaxCallsPerServer,
			Estimate:       budget.DefaultEstimate(),
		},
		guard: policy.Defaults(),
	}
}

// orDefault returns v if it is positive, else missing.
func orDefault[T int | int64](v, missing T) T {
	if v <= 0 {
		return missing
	}
	return v
}
