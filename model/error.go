package model

import (
	"fmt"
	"net/http"
	"time"
)

// Class says what may be done about a failed model call.
type Class string

// The classes of failure.
const (
	Transient Class = "transient" // overload, rate limit, broken connection: the same call may work later
	Target    Class = "target"    // this provider will not do it (credentials, unknown model): another one may
	Invalid   Class = "invalid"   // the request itself is wrong
	TooLong   Class = "too_long"  // the context does not fit
	Filtered  Class = "filtered"  // the provider's policy refused the prompt
	Gone      Class = "gone"      // the caller's context ended
)

// Error is a failed model call.
type Error struct {
	Class Class

	// Status, Header and Body are the provider's HTTP answer. Status is 0 when
	// there was none, and 200 when the failure came inside an answer. Header
	// holds only what a caller may see (Retry-After, Content-Type, request ids).
	Status int
	Header http.Header
	Body   []byte

	// Credential is true when the provider refuses the gateway's own credential.
	Credential bool

	// RetryAfter is how long the provider asked to wait; 0 when it did not say.
	RetryAfter time.Duration

	Message string // the provider's own words where it gave any
	Err     error  // the cause, for logs; nil when the provider answered
}

func (e *Error) Error() string {
	switch {
	case e.Status != 0 && e.Message != "":
		return fmt.Sprintf("provider answered %d: %s", e.Status, e.Message)
	case e.Status != 0:
		return fmt.Sprintf("provider answered %d", e.Status)
	case e.Err != nil && e.Message != "":
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("provider call: %v", e.Err)
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
