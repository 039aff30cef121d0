package ledger

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// Bound says which bound refused a charge.
type Bound string

// The bounds.
const (
	Run     Bound = "run"     // of the account
	Org     Bound = "org"     // of the org's share
	Process Bound = "process" // of the ledger
)

// Refused says that a charge is beyond a bound. It unwraps to the *[fault.Error]
// that the caller of the gateway may see.
type Refused struct {
	Bound Bound
	Owner string // the org
	Bytes int64  // that were to be charged
	Held  int64  // bytes that are charged already: by the account, the org or the process
	Limit int64  // bytes: of the account for Run, else of the process
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%d bytes more than the %d that are retained are beyond the limit of the %s (%d bytes)", r.Bytes, r.Held, r.Bound, r.Limit)
}

// Unwrap returns the error for the caller of the gateway.
func (r *Refused) Unwrap() error {
	var f *fault.Error
	switch r.Bound {
	case Run:
		return fault.New(fault.TooLarge, "run_memory_exceeded",
			"the request needs more than the %s of memory that one run may retain (max_retained_run_mib): it holds %s and needs %s more; "+
				"send less, or have fewer and shorter results", size(r.Limit), size(r.Held), size(r.Bytes))
	case Org:
		f = fault.New(fault.Limited, "org_memory_exceeded",
			"the org holds %s of memory and may not have %s more at the moment: an org gets at most twice what is left of the gateway's %s "+
				"(max_retained_mib); try again when some of its requests are over", size(r.Held), size(r.Bytes), size(r.Limit))
	default:
		f = fault.New(fault.Unavailable, "overloaded",
			"the gateway retains %s for its requests and may not take %s more (max_retained_mib is %s); try again later", size(r.Held), size(r.Bytes), size(r.Limit))
	}
	f.RetryAfter = time.Duration(1+rand.IntN(5)) * time.Second //nolint:gosec // clients come back at different times
	return f
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
