package memlimit

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// Bound is the limit that refused a charge.
type Bound string

// The bounds.
const (
	Run     Bound = "run"     // of the account
	Org     Bound = "org"     // of the org
	Process Bound = "process" // of the process
)

// Refused is the error of a charge that exceeds a limit. It unwraps to the
// *[fault.Error] for the caller of the gateway.
type Refused struct {
	Bound Bound
	Owner string // the org
	Bytes int64  // bytes of the charge
	Held  int64  // bytes already held by the account, the org or the process
	Limit int64  // bytes; of the account for Run, else of the process
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s memory limit exceeded: %d bytes held, %d more requested, limit %d", r.Bound, r.Held, r.Bytes, r.Limit)
}

// Unwrap returns the error for the caller of the gateway.
func (r *Refused) Unwrap() error {
	var f *fault.Error
	switch r.Bound {
	case Run:
		return fault.New(fault.TooLarge, "run_memory_exceeded",
			"the request needs more than the %s of memory that one run may retain (max_retained_run_mib): it holds %s and needs %s more; "+
				"send a smaller request, or request fewer and shorter tool results", size(r.Limit), size(r.Held), size(r.Bytes))
	case Org:
		f = fault.New(fault.Limited, "org_memory_exceeded",
			"the org holds %s of memory and cannot get %s more now: an org may hold at most twice what is left of the gateway's %s "+
				"(max_retained_mib); try again when some of its requests have finished", size(r.Held), size(r.Bytes), size(r.Limit))
	default:
		f = fault.New(fault.Unavailable, "overloaded",
			"the gateway holds %s of memory for requests and cannot get %s more (max_retained_mib is %s); try again later", size(r.Held), size(r.Bytes), size(r.Limit))
	}
	f.RetryAfter = time.Duration(1+rand.IntN(5)) * time.Second //nolint:gosec // spreads the retries of clients
	return f
}

// size formats a number of bytes.
func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
