package model

import (
	"fmt"
	"time"
)

// ErrorClass says what can be done after a failed model call.
type ErrorClass string

// The classes of failure.
const (
	Transient ErrorClass = "transient" // overload, rate limit, broken connection: the same call may work later
	Target    ErrorClass = "target"    // this provider cannot serve it (credentials, unknown model): another one may
	Invalid   ErrorClass = "invalid"   // the request itself is wrong
	TooLong   ErrorClass = "too_long"  // the context does not fit
	Filtered  ErrorClass = "filtered"  // the provider's policy refused the prompt
	Gone      ErrorClass = "gone"      // the caller cancelled the call
)

// Error is a failed model call.
type Error struct {
	Class ErrorClass `json:"class"`

	// Status, Header and Body are the provider's HTTP answer. Status is 0 when
	// there was none, and 200 when the failure came inside an answer. Header
	// holds only what a caller may see (Retry-After, Content-Type, request ids).
	// Its names are in the canonical form of net/http, whose Header can be
	// assigned to and from it.
	Status int                 `json:"status,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
	Body   []byte              `json:"body,omitempty"`

	// Dialect is the wire format of Body, such as [DialectChat]; "" means that
	// there is no Body or that its dialect is not known.
	Dialect string `json:"dialect,omitempty"`

	// Code is the provider's own name for the failure, its error code or else its
	// error type; "" when it gave none.
	Code string `json:"code,omitempty"`

	// Param is the place in the client's request that an adapter refuses before it
	// calls the provider, such as messages[1].content[0].image_url. Status is 0
	// then, and Message says what is wrong with it.
	Param string `json:"param,omitempty"`

	// Unsent says that the request did not leave: no connection to the provider could be made. Such
	// a call costs nothing.
	Unsent bool `json:"unsent,omitempty"`

	// Credential is true when the provider refuses the gateway's own credential.
	Credential bool `json:"credential,omitempty"`

	// RetryAfter is how long the provider asked to wait; 0 when it did not say.
	RetryAfter time.Duration `json:"-"`

	Message string `json:"message,omitempty"` // the provider's message; "" when it gave none
	Err     error  `json:"-"`                 // the cause, for logs; nil when the provider answered
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
