package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// approvalPrefix begins the ids of approvals.
const approvalPrefix = "appr_"

// Approval is the record of one tool call that needs the approval of a person. It follows
// from the facts of the call's run ([Head.ApprovalChanges]). What is approved is exactly this
// call: these arguments of this definition of the tool.
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
	Policy     string // digest of the rules that asked
	CallerAt   string // the process whose client waits for the answer; "" = somebody can come back for it

	Status    ApprovalStatus
	CreatedAt int64  // Unix milliseconds
	ExpiresAt int64  // Unix milliseconds; 0 = never
	DecidedAt int64  // Unix milliseconds; 0 = not decided
	DecidedBy string // id of the principal; "" = nobody
	Reason    string // of the person who decided; loop.ClientGone, KeyRevoked or Deleted if it is void for that
}

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
			out = append(out, ApprovalChange{Status: ApprovalWaiting, At: f.At, Asked: &Approval{
				ID: body.WaitID, Org: s.Org, RunID: s.RunID, Call: body.Key, Principal: s.Principal, Surface: s.Surface,
				Name: body.Name, Server: body.Server, Tool: body.Tool, Asker: body.Asker,
				ToolDigest: body.ToolDigest, ArgsRef: body.ArgsRef, ArgsDigest: body.ArgsDigest, Policy: body.Policy, CallerAt: body.CallerAt,
				Status: ApprovalWaiting, CreatedAt: f.At, ExpiresAt: body.ExpiresAt,
			}})
		case loop.CallResolved:
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
			if body.Again > 0 {
				out = append(out, ApprovalChange{Call: body.Key, Status: ApprovalVoid, At: f.At})
			}
		case loop.CancelRequested: // a run that is to end decides nothing more
			if s.Waits > 0 {
				out = append(out, ApprovalChange{All: true, Status: ApprovalVoid, At: f.At, Reason: goneReason(body)})
			}
		case loop.Finished:
			if h.Summary.Waits > 0 {
				out = append(out, ApprovalChange{All: true, Status: ApprovalVoid, At: f.At})
			}
		case loop.Accepted, loop.Blocked, loop.CallDone, loop.CallStarted, loop.Catalogued, loop.InputAdded,
			loop.Parked, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Turn, loop.TurnFailed,
			loop.TurnStarted: // no change of an approval
		}
	}
	return out
}

// goneReason returns why nobody is left who may have the answer of the run; "" = that is not why it
// is to end.
func goneReason(b loop.CancelRequested) string {
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
	Limit    int              // maximum number of approvals; 0 or less = none
}

// Chooses reports whether the query selects a, apart from Before and Limit.
func (q ApprovalQuery) Chooses(a Approval) bool {
	status := len(q.Statuses) == 0
	for _, s := range q.Statuses {
		status = status || s == a.Status
	}
	return status && (q.RunID == "" || q.RunID == a.RunID) && (q.Server == "" || q.Server == a.Server)
}

// overdue reports whether it is too late to decide.
func (a Approval) overdue(now time.Time) bool {
	return a.ExpiresAt > 0 && now.UnixMilli() >= a.ExpiresAt
}

// Decision is the answer of a person to a call that waits for approval.
type Decision struct {
	Approved bool
	Message  string // for the model; "" = none
}

// maxReason is the maximum length of the reason of a decision, in bytes.
const maxReason = 4 << 10

// Decide records a decision about an approval of the org, and returns the approval as it is
// then. The run goes on when all its approvals are decided, in whatever process claims it. The
// same decision again changes nothing and is no error. The error wraps org.ErrNotFound if the
// org has no such approval; it is a [fault.Error] if the approval has another decision, has
// expired, or is void.
func (r *Runner) Decide(ctx context.Context, orgID, id string, d Decision, by org.Author) (Approval, error) {
	if len(d.Message) > maxReason {
		return Approval{}, fault.New(fault.Invalid, "invalid_value", "reason has %d bytes, and at most %d are allowed", len(d.Message), maxReason).In("reason")
	}
	a, err := r.o.Archive.Approval(ctx, orgID, id)
	if err != nil {
		return a, err
	}
	if a.Status == ApprovalWaiting {
		if a, err = r.audience.decide(ctx, a, d, by); err != nil {
			return a, err
		}
	}
	return a, a.accepts(d)
}

// decide decides an approval that waits. If nobody is left who may have the answer of its run,
// the run ends, and the approval is void.
func (u *audience) decide(ctx context.Context, a Approval, d Decision, by org.Author) (Approval, error) {
	w := a.waitingRun()
	code, err := u.gone(ctx, w)
	switch {
	case err != nil:
		return a, unavailable(err)
	case code == "":
		return u.resolve(ctx, a, d, by)
	}
	if err := u.endGone(ctx, w, code); err != nil {
		return a, err
	}
	return u.o.Archive.Approval(ctx, a.Org, a.ID)
}

// accepts returns nil if the approval has the decision, or an error that says why not.
func (a Approval) accepts(d Decision) error {
	switch a.Status {
	case ApprovalApproved, ApprovalDenied:
		if (a.Status == ApprovalApproved) == d.Approved {
			return nil
		}
		return fault.New(fault.Conflict, "already_decided", "approval %s is %s already; a decision cannot be changed", a.ID, a.Status)
	case ApprovalExpired:
		return fault.New(fault.Conflict, "approval_expired", "approval %s has expired; the call counts as denied", a.ID)
	case ApprovalVoid:
		return fault.New(fault.Conflict, "approval_void", "approval %s is void: %s", a.ID, a.whyVoid())
	}
	return fmt.Errorf("approval %s: the store has not taken the decision", a.ID)
}

// whyVoid returns why an approval is void, for the error of a decision that comes too late.
func (a Approval) whyVoid() string {
	if why := goneWords(a.Reason); why != "" {
		return why + " (" + a.Reason + "); nothing is executed"
	}
	return "its run has ended or is being cancelled, or the call has changed and was asked for again"
}

// goneWords says what ended a run for which nobody is left who may have its answer; "" = code is
// no such code.
func goneWords(code string) string {
	switch code {
	case loop.ClientGone:
		return "the client left while the call waited, and nobody can come back for the answer"
	case loop.KeyRevoked:
		return "the API key that started the run is revoked"
	case loop.Deleted:
		return "the org or the response of the run is deleted"
	}
	return ""
}

// resolve appends the decision, or that it is too late, and returns the approval as it is
// then. Somebody else may have decided meanwhile.
func (u *audience) resolve(ctx context.Context, a Approval, d Decision, by org.Author) (Approval, error) {
	var body loop.Body = loop.CallResolved{WaitID: a.ID, Approved: d.Approved, By: by.Principal, Message: d.Message}
	row := a.entry(by.At, by.Principal, ApprovalDenied, d.Message)
	switch {
	case a.overdue(u.o.Now()):
		body, row = loop.Expired{WaitID: a.ID}, a.entry(by.At, "", ApprovalExpired, "")
	case d.Approved:
		row = a.entry(by.At, by.Principal, ApprovalApproved, d.Message)
	}
	var account *ledger.Account // nil for an approval that expires: that is never refused for lack of memory
	if body.Kind() == loop.KindCallResolved {
		account = u.o.Ledger.Open(a.Org)
		defer account.Close()
	}
	err := u.append(ctx, account, a.Org, a.RunID, body, []audit.Entry{row})
	var settled *fault.Error
	if errors.As(err, &settled) && settled.Code == fault.Conflict { // decided meanwhile, or the run has ended
		err = nil
	}
	if err != nil {
		return a, err
	}
	crash.At(crash.AfterDecision)
	u.leases.claimSoon()
	u.followers.ring(approvalsOf(a.Org))
	return u.o.Archive.Approval(ctx, a.Org, a.ID)
}

// entry returns the audit entry for something that has happened to the approval. by is the
// principal; "" = nobody's doing.
func (a Approval) entry(at int64, by string, action ApprovalStatus, reason string) audit.Entry {
	return audit.Entry{Kind: audit.KindApproval, At: at, Principal: by, RunID: a.RunID, RequestID: a.RunID, Body: audit.Approval{
		ID: a.ID, RunID: a.RunID, Action: string(action), Server: a.Server, Tool: a.Tool, Principal: a.Principal, Asker: string(a.Asker),
		ToolDigest: a.ToolDigest, ArgsDigest: a.ArgsDigest, Policy: a.Policy, Reason: reason, WaitedMS: max(0, at-a.CreatedAt),
	}}
}

// expiredAtOnce is how many approvals are looked for at a time that nobody has decided in time.
const expiredAtOnce = 256

// expireApprovals ends the approvals that nobody has decided in time: they count as denied, and
// their runs go on.
func (u *audience) expireApprovals(ctx context.Context) error {
	tried := map[string]bool{} // those that cannot be expired; the next tick tries them again
	for {
		now := u.o.Now().UnixMilli()
		due, err := u.o.Archive.DueApprovals(ctx, now, expiredAtOnce+len(tried))
		if err != nil {
			return err
		}
		progress := false
		for _, a := range due {
			key := a.Org + " " + a.ID
			if tried[key] {
				continue
			}
			got, err := u.resolve(ctx, a, Decision{}, org.Author{At: now})
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil && !errors.Is(err, org.ErrNotFound), err == nil && got.Status == ApprovalWaiting:
				tried[key] = true
				u.o.Log.Error("an approval cannot be ended", "approval", a.ID, "run", a.RunID, "org", a.Org, "error", err)
			default:
				progress = true
				if got.Status != ApprovalExpired { // somebody has decided, or ended the run
					continue
				}
				u.o.Log.Info("an approval has expired", "approval", a.ID, "run", a.RunID, "org", a.Org, "server", a.Server, "tool", a.Tool)
			}
		}
		if !progress {
			return nil
		}
	}
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

// MayDecide returns nil if the principal may decide the approval, or the error for its caller. What
// only the caller's own request asks for is always the caller's own to decide.
func (a Approval) MayDecide(o *org.Org, p org.Principal) error {
	own := p.ID == a.Principal
	switch {
	case own && a.Asker == loop.AskedByRequest:
		return nil
	case own && o.Runtime.Approvers == org.OthersApprove:
		return fault.New(fault.Forbidden, "own_approval", "the org does not let the key that asked for a tool call approve it (runtime.approvers: others); another key must decide approval %s", a.ID)
	case p.Role.MayApprove():
		return nil
	}
	return fault.New(fault.Forbidden, "approver_required", "a key with the role %q may not decide approval %s, which the settings of the server %s ask for; "+
		"a key with the role approver, admin or owner decides it with POST /v1/approvals/%s", p.Role, a.ID, a.Server, a.ID)
}

// park appends that the calls wait for a person. A waiting run has no
// goroutine, lease or slot. A light run becomes durable: the request and the tools are stored
// for its next owner.
func (d *driver) park(a loop.Interrupt) error {
	if ended, err := noticeGone(d); ended || err != nil {
		return cmp.Or(err, errDecideAgain)
	}
	s := d.run.state()
	var bodies []loop.Body
	for _, key := range a.Calls {
		if c, _ := s.Call(key); c.Wait == nil {
			bodies = append(bodies, s.AskFor(key, d.o.NewID(approvalPrefix), d.run.now()))
		}
	}
	active := d.run.now() - s.ActiveSince
	var rows []Row
	if !d.run.durable() {
		rows = append(d.run.requestRows(), d.tools.row())
	}
	rows = append(rows, d.run.userMessageRows(bodies)...)
	if err := d.keepResponse(nil); err != nil {
		return err
	}
	err := d.run.append(rows, append(bodies, loop.Parked{ActiveMS: active})...)
	var capped *org.CapError
	if errors.Is(err, errDecideAgain) || errors.As(err, &capped) {
		dropResponse(d) // the run goes on, and its response with it
	}
	if errors.As(err, &capped) {
		return d.calls.refuseToAsk(a.Calls, capped)
	}
	if err == nil {
		d.asked()
		for _, body := range bodies {
			if w, ok := body.(loop.CallWaiting); ok {
				d.run.log.Warn("approval_needed", "approval", w.WaitID, "call", w.Key, "server", w.Server, "tool", w.Tool,
					"principal", d.run.req.Principal, "expires_at", time.UnixMilli(w.ExpiresAt).UTC())
			}
		}
	}
	return err
}

// refuseToAsk answers the calls that cannot be asked for.
func (t *toolCaller) refuseToAsk(calls []loop.CallKey, why error) error {
	t.run.log.Warn("tool calls are not executed: no more approvals can wait", "principal", t.run.req.Principal, "calls", len(calls), "error", why)
	var bodies []loop.Body
	for _, key := range calls {
		c, _ := t.run.state().Call(key)
		if c.Wait != nil {
			continue
		}
		p := *c.Prepared
		p.Again++
		p.Verdict, p.Answer = loop.Tell, `{"error":"the call needs the approval of a person, and too many calls wait for one already; try again later"}`
		bodies = append(bodies, p)
	}
	if err := t.run.append(nil, bodies...); err != nil {
		return err
	}
	return errDecideAgain
}

// waitingEvent returns the event of a run that waits, with the approvals that are not decided.
func waitingEvent(p *projection, at int64) (event.Waiting, error) {
	s := &p.state
	e := event.Waiting{
		Usage: s.Usage, Rounds: s.Counts.Rounds, ToolCalls: s.Counts.Calls, SideEffects: s.SideEffects, At: time.UnixMilli(at).UTC(),
	}
	for _, c := range s.Calls {
		if c.Wait == nil || c.Resolved || c.Done {
			continue
		}
		arguments, err := p.argumentsOf(c)
		if err != nil {
			return e, err
		}
		e.Approvals = append(e.Approvals, approvalEvent(*c.Wait, arguments))
	}
	return e, nil
}

// decisionEvent returns the event of a decided approval.
func decisionEvent(s *loop.State, waitID, by, reason string, status ApprovalStatus, at int64) event.ApprovalDecided {
	e := event.ApprovalDecided{ID: waitID, Decision: string(status), By: by, Reason: reason, At: time.UnixMilli(at).UTC()}
	for _, c := range s.Calls {
		if c.WaitID() == waitID {
			e.Key = string(c.Key)
		}
	}
	return e
}
