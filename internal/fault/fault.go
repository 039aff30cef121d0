// Package fault is the one type of error that a caller of the gateway may see:
// a code, which each surface maps to a status, and a message that is safe to
// show. Every other error is internal: it is logged, and the caller is told no
// more than that.
package fault

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Code says what kind of failure it is.
type Code string

// The codes.
const (
	Invalid       Code = "invalid"       // the request is malformed
	Unprocessable Code = "unprocessable" // well-formed, and impossible
	TooLarge      Code = "too_large"
	Header        Code = "header"      // the header is too large
	MediaType     Code = "media_type"  // the body is said to be what nobody here reads
	Timeout       Code = "timeout"     // the request did not come in time
	Misdirected   Code = "misdirected" // it is addressed to somebody else
	Unauthorized  Code = "unauthorized"
	Forbidden     Code = "forbidden"
	NotFound      Code = "not_found"
	Gone          Code = "gone"   // it was there, and is not any more
	Method        Code = "method" // the path exists, not for this method
	Conflict      Code = "conflict"
	Limited       Code = "limited"
	Upstream      Code = "upstream"       // somebody whom we called failed
	NotConfigured Code = "not_configured" // the operator has not set up what it needs
	Unavailable   Code = "unavailable"
	Internal      Code = "internal"
)

// Error is a failure that its caller may see.
type Error struct {
	Code       Code
	Reason     string // a stable word for programs, such as model_not_found; may be empty
	Message    string // what happened and what to do, for people
	Param      string // the part of the request that is wrong; may be empty
	RetryAfter time.Duration
	Err        error // the cause, for the log only

	// Server is the MCP server that it is about, URL where that is, and Setting the
	// key of the configuration that can help; "" = none.
	Server, URL, Setting string
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error with a formatted message.
func New(code Code, reason, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// In returns e with the part of the request that it is about.
func (e *Error) In(param string) *Error {
	e.Param = param
	return e
}

// From returns err as an *Error: itself if it is one, otherwise an internal one
// that hides it.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Reason: "internal_error", Message: "the gateway failed; its log says why", Err: err}
}

// Noter is a response writer that notes the reason of an error answer, for the log.
type Noter interface {
	NoteError(reason string)
}

// Note tells the [Noter] at or below w the reason of the error that w is answered
// with. Without a Noter it does nothing.
func Note(w http.ResponseWriter, reason string) {
	for w != nil {
		if n, ok := w.(Noter); ok {
			n.NoteError(reason)
			return
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = u.Unwrap()
	}
}
