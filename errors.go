package turnpike

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// Failure is the error of a run. All errors of runs have one of the types of this package, which are
// failures.
type Failure interface {
	error

	// Status returns the HTTP status for a program that answers requests with runs.
	Status() int

	// Result returns how far the run came, with its steps; nil for a run that has not begun.
	Result() *Result
}

// ErrConsumed is the error of a stream that is read a second time.
var ErrConsumed = errors.New("the stream was read already; a stream is read once")

// Partial is how far the run of an error came. A test that makes an error with a result sets it.
type Partial struct{ Run *Result } // nil = the run has not begun

// Result implements [Failure].
func (p Partial) Result() *Result { return p.Run }

// LimitKind says which limit a run has reached.
type LimitKind string

// The limits.
const (
	IterationLimit LimitKind = "iterations" // Limits.Rounds
	CallLimit      LimitKind = "calls"      // Limits.Calls
	TokenLimit     LimitKind = "tokens"     // Limits.Tokens
	CostLimit      LimitKind = "cost"       // Limits.USD
	TimeLimit      LimitKind = "time"       // Limits.Time
	MemoryLimit    LimitKind = "memory"     // what runs may keep in memory
)

// LimitError says that a run has reached a limit. What its tools did stays. With a store, Resume goes
// on after the limit was raised.
type LimitError struct {
	Kind    LimitKind
	Message string
	Partial
}

func (e *LimitError) Error() string { return e.Message }

// Status implements [Failure].
func (e *LimitError) Status() int { return http.StatusTooManyRequests }

// Waiting says that a run waits for the approval of calls. It is not over: [Agent.Resume] goes on.
type Waiting struct {
	RunID     string
	Approvals []Approval // in the order of the calls
	Partial
}

func (e *Waiting) Error() string {
	return fmt.Sprintf("run %s waits for the approval of %d tool calls; resume it with Approve or Deny", e.RunID, len(e.Approvals))
}

// Status implements [Failure].
func (e *Waiting) Status() int { return http.StatusAccepted }

// Approval is a tool call that waits for the approval of a person.
type Approval struct {
	ID        string
	Tool      string
	Arguments json.RawMessage
	ExpiresAt time.Time // then the call counts as denied
}

// AbortError says that the context of a run has ended, or that its stream was left. It wraps the cause
// of the context, and [context.Canceled].
type AbortError struct {
	Cause error
	Partial
}

func (e *AbortError) Error() string { return fmt.Sprintf("the run was aborted: %v", e.Cause) }

// Status implements [Failure]: 499, as servers log it for a client that has left.
func (e *AbortError) Status() int { return 499 }

// Unwrap returns the cause.
func (e *AbortError) Unwrap() []error { return []error{e.Cause, context.Canceled} }

// ToolError says that a tool failed, under ToolErrors [Abort].
type ToolError struct {
	Tool, CallID string
	Message      string // what the tool said
	Cause        error  // the error of the function; nil for other tools
	Partial
}

func (e *ToolError) Error() string { return fmt.Sprintf("tool %s: %s", e.Tool, e.Message) }

// Status implements [Failure]: that of Cause, if it has one.
func (e *ToolError) Status() int {
	var s interface{ Status() int }
	if errors.As(e.Cause, &s) {
		return s.Status()
	}
	return http.StatusInternalServerError
}

// Unwrap returns the cause.
func (e *ToolError) Unwrap() error { return e.Cause }

// ValidationError says that a call of this package is wrong, such as an Only with the name of no tool, or
// that the answer is not what [Into] asks for. Wrong arguments of a tool call are told to the model.
type ValidationError struct {
	Message string
	status  int // 0 = 400
	Partial
}

func (e *ValidationError) Error() string { return e.Message }

// Status implements [Failure]: 400, or 502 for an answer that is not what [Into] asks for.
func (e *ValidationError) Status() int { return cmp.Or(e.status, http.StatusBadRequest) }

func invalid(format string, args ...any) *ValidationError {
	return &ValidationError{Message: fmt.Sprintf(format, args...)}
}

// UnknownOutcome says that nobody knows whether a tool call was carried out, under ToolErrors [Abort].
type UnknownOutcome struct {
	Tool, CallID string
	Message      string
	Partial
}

func (e *UnknownOutcome) Error() string { return fmt.Sprintf("tool %s: %s", e.Tool, e.Message) }

// Status implements [Failure].
func (e *UnknownOutcome) Status() int { return http.StatusInternalServerError }

// ProgressError says that the model has made tool calls without progress, also after it was told so: the same call three times in a row,
// calls of one tool with one result, or calls that fail.
type ProgressError struct {
	Repeated string // what was repeated, such as "3 identical tool calls in a row"; "" = not known
	Partial
}

func (e *ProgressError) Error() string {
	return "the model makes no progress, and the run was ended: " + cmp.Or(e.Repeated, "repeated tool calls")
}

// Status implements [Failure].
func (e *ProgressError) Status() int { return http.StatusTooManyRequests }

// BlockedError says that the outbound policy refuses an address, such as that of an MCP server in a
// private network: see [Outbound].
type BlockedError struct {
	Reason  string // such as loopback or private
	Address string
	Server  string // the source; "" = none
	Partial
}

func (e *BlockedError) Error() string {
	of := ""
	if e.Server != "" {
		of = " of the MCP server " + e.Server
	}
	remedy := "if it is meant, allow it with Agent.Outbound"
	if e.Reason == "port" {
		remedy = "the port belongs to another protocol, such as 22 or 6379; let the server listen on another one"
	}
	return fmt.Sprintf("the outbound policy refuses the address %s%s (%s); %s", e.Address, of, e.Reason, remedy)
}

// Status implements [Failure].
func (e *BlockedError) Status() int { return http.StatusForbidden }

// ModelError says that the model could not be called, or has failed.
type ModelError struct {
	Message string
	Cause   *model.Error // what the provider answered, and in its Err why it did not; nil = not known. Err is nil after a restart
	Partial
}

func (e *ModelError) Error() string { return e.Message }

// Status implements [Failure]: that of the provider, or 502.
func (e *ModelError) Status() int {
	if e.Cause != nil && e.Cause.Status >= 400 && !e.Cause.Credential {
		return e.Cause.Status
	}
	return http.StatusBadGateway
}

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error {
	if e.Cause == nil {
		return nil
	}
	return e.Cause
}

// HookError says that Hooks.PreAnswer has denied the answer of a run, or has failed. What the tools of the run did
// stays. The next run of a [Session] has a message in place of the answer that says so.
type HookError struct {
	Message string // of the [*DenyError] that the hook returned
	Partial
}

func (e *HookError) Error() string { return "the answer was denied: " + e.Message }

// Status implements [Failure].
func (e *HookError) Status() int { return http.StatusForbidden }

// ServerError says that an MCP server that is required is not available.
type ServerError struct {
	Server  string
	Message string
	Partial
}

func (e *ServerError) Error() string { return e.Message }

// Status implements [Failure].
func (e *ServerError) Status() int { return http.StatusServiceUnavailable }

// ContextError says that the conversation is too long for the model.
type ContextError struct {
	Message string
	Cause   *model.Error
	Partial
}

func (e *ContextError) Error() string { return e.Message }

// Status implements [Failure].
func (e *ContextError) Status() int { return http.StatusBadRequest }

// Unwrap returns the cause.
func (e *ContextError) Unwrap() error {
	if e.Cause == nil {
		return nil
	}
	return e.Cause
}

// ResumeError says that a run cannot be resumed, followed or cancelled: the store does not have it, it is in
// progress, it has ended without a way to go on, or its approval was decided already.
type ResumeError struct {
	Message string
	status  int
	Partial
}

func (e *ResumeError) Error() string { return e.Message }

// Status implements [Failure]: 404 or 409.
func (e *ResumeError) Status() int { return e.status }

// LostError says that a run cannot go on: after a crash, because its store fails, or because its
// Conversation does. Nothing that it did is undone.
type LostError struct {
	Message string
	Cause   error
	Partial
}

func (e *LostError) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Cause)
}

// Status implements [Failure].
func (e *LostError) Status() int { return http.StatusInternalServerError }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }
