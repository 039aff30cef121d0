package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Approval is the record of one tool call that needs the approval of a person. It follows
// from the facts of the call's run ([Head.ApprovalChanges]). What is approved is exactly this
// call: these arguments of this definition of the tool.
//
// A run that waits for a raise of its limits has a record of the same kind, without a call: it
// expires, counts and becomes void in the same way. See [Approval.IsPause].
type Approval struct {
	ID        string // unique
	Org       string
	RunID     string
	Call      loop.CallKey
	Principal string // whose run it is
	Surface   string // of the run
	Name      string // of the tool, as the model called it
	Server    string
	Tool      string // the server's own name of the tool
	Asker     loop.Asker

	ToolDigest string
	ArgsRef    string // of the run's row with the arguments
	ArgsDigest string
	Host       string // where the call goes; "" = a program, or the gateway itself
	Policy     string // digest of the rules that asked
	CallerAt   string // the process whose client waits for the answer; "" = somebody can come back for it

	Status    ApprovalStatus
	CreatedAt int64  // Unix milliseconds
	ExpiresAt int64  // Unix milliseconds; 0 = never
	DecidedAt int64  // Unix milliseconds; 0 = not decided
	DecidedBy string // id of the principal; "" = nobody
	Reason    string // of the person who decided; loop.ClientGone, KeyRevoked or Deleted if it is void for that
}

// IsPause reports whether it is the wait of a run for a raise of its limits: its Name is the limit.
func (a Approval) IsPause() bool { return a.Call == "" }

// ApprovalStatus says whether an approval is decided, and how.
type ApprovalStatus string

// The statuses. Only an approval that waits can be decided.
const (
	ApprovalWaiting  ApprovalStatus = "waiting"
	ApprovalApproved ApprovalStatus = "approved"
	ApprovalDenied   ApprovalStatus = "denied"
	ApprovalExpired  ApprovalStatus = "expired" // nobody has decided in time
	ApprovalVoid     ApprovalStatus = "void"    // the run has ended or is to end, or the call is not the one that was asked for any more
)

// ApprovalStatuses returns all statuses.
func ApprovalStatuses() []string {
	return []string{string(ApprovalWaiting), string(ApprovalApproved), string(ApprovalDenied), string(ApprovalExpired), string(ApprovalVoid)}
}

// ApprovalChange is what a fact changes in the approvals of its run. Exactly one of Asked, ID,
// Call and All is set.
type ApprovalChange struct {
	Asked *Approval    // this approval is new
	ID    string       // this approval is decided, if it waits
	Call  loop.CallKey // the approvals of this call are void, those that wait and those that are approved
	All   bool         // all approvals of the run that wait are void

	Status     ApprovalStatus
	At         int64
	By, Reason string
}

// ApprovalChanges returns what a batch changes in the approvals of the run with the head h,
// in order. Stores apply the changes in the transaction of the batch.
func (h Head) ApprovalChanges(b Batch) []ApprovalChange {
	var out []ApprovalChange
	s := h.Summary
	for _, f := range b.Facts {
		s = s.After(f)
		switch body := f.Body.(type) {
		case loop.CallWaiting:
			if body.On != loop.OnApproval {
				continue
			}
			out = append(out, ApprovalChange{Status: ApprovalWaiting, At: f.At, Asked: &Approval{
				ID: body.WaitID, Org: s.Org, RunID: s.RunID, Call: body.Key, Principal: s.Principal, Surface: s.Surface,
				Name: body.Name, Server: body.Server, Tool: body.Tool, Asker: body.Asker,
				ToolDigest: body.ToolDigest, ArgsRef: body.ArgsRef, ArgsDigest: body.ArgsDigest, Host: body.Host, Policy: body.Policy, CallerAt: body.CallerAt,
				Status: ApprovalWaiting, CreatedAt: f.At, ExpiresAt: body.ExpiresAt,
			}})
		case loop.Paused:
			if body.Refused != "" {
				continue
			}
			out = append(out, ApprovalChange{Status: ApprovalWaiting, At: f.At, Asked: &Approval{
				ID: body.WaitID, Org: s.Org, RunID: s.RunID, Principal: s.Principal, Surface: s.Surface, Name: string(body.Reason), CallerAt: body.CallerAt,
				Status: ApprovalWaiting, CreatedAt: f.At, ExpiresAt: body.ExpiresAt,
			}})
		case loop.LimitsRaised:
			if body.WaitID != "" {
				out = append(out, ApprovalChange{ID: body.WaitID, Status: ApprovalApproved, At: f.At, By: body.By})
			}
		case loop.CallResolved:
			if body.Early && body.WaitID == "" {
				continue
			}
			c := ApprovalChange{ID: body.WaitID, Status: ApprovalDenied, At: f.At, By: body.By, Reason: body.Message}
			if body.Approved {
				c.Status = ApprovalApproved
			}
			out = append(out, c)
		case loop.Expired:
			if body.WaitID != "" {
				out = append(out, ApprovalChange{ID: body.WaitID, Status: ApprovalExpired, At: f.At})
			}
		case loop.CallPrepared:
			if body.Revision > 0 {
				out = append(out, ApprovalChange{Call: body.Key, Status: ApprovalVoid, At: f.At})
			}
		case loop.CancelRequested: // a run that is to end decides nothing more
			if s.Waits > 0 {
				out = append(out, ApprovalChange{All: true, Status: ApprovalVoid, At: f.At, Reason: GoneReason(body)})
			}
		case loop.Finished:
			if h.Summary.Waits > 0 {
				out = append(out, ApprovalChange{All: true, Status: ApprovalVoid, At: f.At})
			}
		case loop.Accepted, loop.Blocked, loop.CallDone, loop.CallStarted, loop.Catalogued, loop.Compacted,
			loop.HookRan, loop.InputAdded, loop.Parked, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed, loop.Turn, loop.TurnFailed,
			loop.TurnStarted: // no change of an approval
		}
	}
	return out
}

// GoneReason returns why nobody is left who may have the answer of the run; "" = that is not why it
// is to end.
func GoneReason(b loop.CancelRequested) string {
	if b.Cause == event.Cancelled || b.Cause == event.CallerGone {
		return b.Code
	}
	return ""
}

// After returns the approval after the change, and whether the change is about it. The change
// is of the approval's run.
func (a Approval) After(c ApprovalChange) (Approval, bool) {
	waits := a.Status == ApprovalWaiting
	switch {
	case c.ID != "" && c.ID == a.ID && waits:
		a.DecidedAt, a.DecidedBy, a.Reason = c.At, c.By, c.Reason
	case c.All && waits:
		a.Reason = c.Reason
	case c.Call != "" && c.Call == a.Call && (waits || a.Status == ApprovalApproved):
	default:
		return a, false
	}
	a.Status = c.Status
	return a, true
}

// ApprovalQuery selects approvals. The zero value selects none, because its limit is 0.
type ApprovalQuery struct {
	Before   string           // only approvals older than the one with this id; "" = all
	Statuses []ApprovalStatus // only approvals with one of these; none = all
	RunID    string           // only approvals of this run; "" = all
	Server   string           // only approvals of calls of this server; "" = all
	Access   org.Access       // only approvals of calls that a key with it may make
	Pauses   bool             // runs that wait for a raise of their limits, too
	Limit    int              // maximum number of approvals; 0 or less = none
}

// Chooses reports whether the query selects a, apart from Before and Limit.
func (q ApprovalQuery) Chooses(a Approval) bool {
	status := len(q.Statuses) == 0
	for _, s := range q.Statuses {
		status = status || s == a.Status
	}
	return status && (q.Pauses || !a.IsPause()) && a.Within(q.Access) && (q.RunID == "" || q.RunID == a.RunID) && (q.Server == "" || q.Server == a.Server)
}

// Within reports whether the approval is about a call that a key may make.
func (a Approval) Within(access org.Access) bool {
	return access.AllowsServer(a.Server) && access.AllowsTool(a.Tool)
}

// Overdue reports whether it is too late to decide.
func (a Approval) Overdue(now time.Time) bool {
	return a.ExpiresAt > 0 && now.UnixMilli() >= a.ExpiresAt
}

// Decision is the answer of a person to a call that waits for approval.
type Decision struct {
	Approved bool
	Message  string // for the model; "" = none

	// Remember says that further calls of the tool need no approval in the session of the run. It has an effect only
	// if Approved is true.
	Remember bool
}

// Accepts returns nil if the approval has the decision, or an error that says why not.
func (a Approval) Accepts(d Decision) error {
	switch a.Status {
	case ApprovalApproved, ApprovalDenied:
		if (a.Status == ApprovalApproved) == d.Approved {
			return nil
		}
		return fault.New(fault.Conflict, "already_decided", "approval %s is %s already; a decision cannot be changed", a.ID, a.Status)
	case ApprovalExpired:
		return fault.New(fault.Conflict, "approval_expired", "approval %s has expired; the call counts as denied", a.ID)
	case ApprovalVoid:
		return fault.New(fault.Conflict, "approval_void", "approval %s is void: %s", a.ID, a.WhyVoid())
	}
	return fmt.Errorf("approval %s: the store has not taken the decision", a.ID)
}

// WhyVoid returns why an approval is void, for the error of a decision that comes too late.
func (a Approval) WhyVoid() string {
	if why := GoneWords(a.Reason); why != "" {
		return why + " (" + a.Reason + "); nothing is executed"
	}
	return "its run has ended or is being cancelled, or the call or its server has changed and was asked for again"
}

// GoneWords says what ended a run for which nobody is left who may have its answer; "" = code is
// no such code.
func GoneWords(code string) string {
	switch code {
	case loop.ClientGone:
		return "the client left while the call waited, and nobody can come back for the answer"
	case loop.KeyRevoked:
		return "the API key that started the run is revoked"
	case loop.KeyExpired:
		return "the API key that started the run has expired"
	case loop.ModelNotAllowed:
		return "the API key that started the run may not use its model any more"
	case loop.Deleted:
		return "the org or the response of the run is deleted"
	}
	return ""
}

// Entry returns the audit entry for something that has happened to the approval. by is the
// principal; "" = it happened without a person.
func (a Approval) Entry(at int64, by string, action ApprovalStatus, reason string) audit.Entry {
	return audit.Entry{Kind: audit.KindApproval, At: at, Principal: by, RunID: a.RunID, RequestID: a.RunID, Body: audit.Approval{
		ID: a.ID, RunID: a.RunID, Action: string(action), Server: a.Server, Tool: a.Tool, Principal: a.Principal, Asker: string(a.Asker),
		ToolDigest: a.ToolDigest, ArgsDigest: a.ArgsDigest, Policy: a.Policy, Reason: reason, WaitedMS: max(0, at-a.CreatedAt),
	}}
}

// ArgumentsOf returns the arguments of the call of an approval, as the tool will get them. They
// are nil if they are larger than limit bytes, or if the run is deleted.
func ArgumentsOf(ctx context.Context, archive Archive, a Approval, limit int) (json.RawMessage, error) {
	rows, err := archive.Rows(ctx, a.Org, a.RunID, []string{a.ArgsRef}, limit)
	var large *TooLarge
	switch {
	case errors.As(err, &large), errors.Is(err, org.ErrNotFound):
		return nil, nil
	case err != nil || len(rows) == 0:
		return nil, err
	}
	return rows[0], nil
}

// MayDecide returns nil if the principal may decide the approval, or the error for its caller:
// org.ErrNotFound for a call that the principal may not make, and for one of another principal's run if its role
// does not let it approve. What only the caller's own request asks for is always the caller's own to decide.
func (a Approval) MayDecide(o *org.Org, p org.Principal) error {
	own := p.ID == a.Principal
	switch {
	case !a.Within(p.Access):
		return org.ErrNotFound
	case own && a.Asker == loop.AskedByRequest:
		return nil
	case !own && !p.Role.MayApprove():
		return org.ErrNotFound
	case own && o.Runtime.Approvers == org.OthersApprove:
		return fault.New(fault.Forbidden, "own_approval", "the org does not let the key that asked for a tool call approve it (runtime.approvers: others); another key must decide approval %s", a.ID)
	case p.Role.MayApprove():
		return nil
	}
	asks := "the settings of the server " + a.Server + " ask for"
	if a.Asker == loop.AskedByHook {
		asks = "a hook asks for"
	}
	return fault.New(fault.Forbidden, "approver_required", "a key with the role %q may not decide approval %s, which %s; "+
		"a key with the role approver, admin or owner decides it with POST /v1/approvals/%s", p.Role, a.ID, asks, a.ID)
}

// MayDecideEarly returns nil if a principal may decide calls of its or another's run that nobody has asked for
// yet, or the error for its caller. Nobody knows the tool: it returns org.ErrNotFound for a key that may make
// only some calls.
func MayDecideEarly(o *org.Org, p org.Principal, runID, principal string) error {
	switch {
	case p.Access.Servers != nil || p.Access.Tools != nil, p.ID != principal && !p.Role.MayApprove():
		return org.ErrNotFound
	case p.ID == principal && o.Runtime.Approvers == org.OthersApprove:
		return fault.New(fault.Forbidden, "own_approval", "the org does not let the key that asked for a tool call approve it (runtime.approvers: others); another key must decide the calls of the run %s", runID)
	case p.Role.MayApprove():
		return nil
	}
	return fault.New(fault.Forbidden, "approver_required", "a key with the role %q may not decide the calls of the run %s; a key with the role approver, admin or owner decides them", p.Role, runID)
}

// WaitingRun returns the run of an approval that waits.
func (a Approval) WaitingRun() WaitingRun {
	return WaitingRun{Org: a.Org, RunID: a.RunID, Principal: a.Principal, CallerAt: a.CallerAt}
}
