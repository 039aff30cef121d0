package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// storeRetry is the Retry-After of a caller while the store cannot be written.
const storeRetry = 5 * time.Second

// Unavailable returns the error for a caller while the store cannot be written.
func Unavailable(err error) error {
	refused := fault.New(fault.Unavailable, "store_unavailable", "the gateway cannot record runs at the moment; try again later")
	refused.RetryAfter, refused.Err = storeRetry, err
	return refused
}

// Capped returns the error for a caller whose org, or key, has stored as much as it may.
func Capped(capped *org.CapError) error {
	if capped.Quota {
		return &fault.Error{Code: fault.Limited, Reason: "insufficient_quota", Message: capped.Error(), Err: capped}
	}
	return &fault.Error{Code: fault.Conflict, Reason: "cap_reached", Message: capped.Error(), Err: capped}
}

// ReadError is what a follower is told when the store fails. An unknown run and a fault
// stay what they are.
func ReadError(runID string, err error) error {
	var bad *Unreadable
	var known *fault.Error
	if err == nil || errors.Is(err, org.ErrNotFound) || errors.As(err, &bad) || errors.As(err, new(*memlimit.Refused)) || errors.As(err, &known) {
		return err
	}
	return Unavailable(fmt.Errorf("run %s: %w", runID, err))
}

// AsideError returns the error for a caller of a run that is set aside.
func AsideError(runID, reason string) error {
	return fault.New(fault.Internal, "journal_unreadable",
		"what is stored for run %s cannot be read by this build of the gateway (%s); its operator can cancel the run", runID, reason)
}
