package resource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Auditor records the calls of a resource: see [Resource.Audit]. The audit log of a gateway is one: gateway.Audit.
type Auditor interface {
	// Record stores a record. A call that may write is recorded as [Started] before it is executed: if Record returns an
	// error, it is not executed. Every call is recorded when it has ended. An error then withholds the result of a
	// call that only reads; of others the effect stays, and the Auditor itself must say that a record is missing.
	// Record must be safe for concurrent use.
	Record(ctx context.Context, r Record) error
}

// Status is what has become of a call.
type Status string

// The statuses of a call.
const (
	Started Status = "started" // it is about to be executed
	OK      Status = "ok"
	Failed  Status = "error"
	Unknown Status = "unknown" // nobody knows whether it was carried out
	NotRun  Status = "not_run" // it was certainly not carried out
	Denied  Status = "denied"  // the caller does not have the permission
)

// Record is what is recorded of a call. Calls of agents and of people have records of the same form. They do not
// contain arguments and results.
type Record struct {
	At     time.Time
	Caller tool.Caller
	Run    string // id of the run; "" = the call belongs to none: a person, the program, or a client at /mcp
	Call   string // key of the call in its run
	// Attempt is 1 for the first; a call whose answer was lost may have others.
	Attempt int
	Request string // id of the request of a gateway; "" = none

	Resource string // its name as it was made
	Tool     string // such as get_product
	Class    tool.Class
	Status   Status
	Took     time.Duration // 0 = not executed, or started

	ArgsDigest   string // equal for arguments of the same meaning
	ResultDigest string // "" = there is no result
}

// audit records the call with all auditors.
func (v *verb) audit(ctx context.Context, r Record) (err error) {
	r.At = clock.Wall()
	for _, a := range v.of.auditors {
		err = errors.Join(err, a.Record(ctx, r))
	}
	return err
}

// auditError says that the audit log failed. Models read its text, which does not say why.
type auditError struct {
	text  string
	cause error
}

func (e *auditError) Error() string { return e.text }
func (e *auditError) Unwrap() error { return e.cause }

// audited executes the call, and records it.
func (v *verb) audited(ctx context.Context, c tool.Call) (result tool.Result, err error) {
	if len(v.of.auditors) == 0 {
		return v.execute(ctx, c)
	}
	r := v.record(c)
	if v.Class() != tool.Read {
		r.Status = Started
		if err := v.audit(ctx, r); err != nil {
			return tool.Result{}, &auditError{"the audit log cannot be written at the moment; the call was not executed",
				fmt.Errorf("%w: %w", tool.ErrNotSent, err)}
		}
	}
	began := time.Now()
	r.Status = Unknown // of a call that panics
	defer func() {
		r.Took = max(time.Since(began), time.Microsecond)
		later := v.audit(context.WithoutCancel(ctx), r)
		if later != nil && v.Class() == tool.Read {
			result, err = tool.Result{}, &auditError{"the audit log cannot be written at the moment", later}
		}
	}()
	result, err = v.execute(ctx, c)
	switch {
	case err == nil && result.IsError:
		r.Status, r.ResultDigest = Failed, toolexec.ResultDigest(result)
	case err == nil:
		r.Status, r.ResultDigest = OK, toolexec.ResultDigest(result)
	case errors.Is(err, tool.ErrNotSent):
		r.Status = NotRun
	case v.Class() == tool.Read:
		r.Status = Failed
	}
	return result, err
}

// record returns what is known of a call before it is executed.
func (v *verb) record(c tool.Call) Record {
	return Record{
		Caller: c.Caller, Run: c.RunID, Call: c.Key, Attempt: c.Attempt, Request: c.RequestID,
		Resource: v.of.name, Tool: v.name, Class: v.Class(), ArgsDigest: toolexec.ArgumentsDigest(c.Arguments),
	}
}
