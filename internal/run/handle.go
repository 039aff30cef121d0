package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
)

// Follow reports the events of a run to the sink, from the one after f.After to the end
// of the run, while they happen. The same run has the same events at the same positions,
// whenever and in whatever process it is followed; the pieces of a model call are events
// of their own in a durable run, in a light run each text is one.
//
// It returns nil after the last event, and the cause of ctx when ctx ends. The error wraps
// org.ErrNotFound if the org has no such run; it is a [fault.Error] if the run has too many
// followers, if its journal cannot be read, or if this process hands the run over. An
// error of the sink ends it too.
func (r *Runner) Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error {
	key := journal.RunKey{Org: f.Org, Run: f.RunID}
	if err := r.followers.Enter(key); err != nil {
		return err
	}
	defer r.followers.Leave(key)
	if f.Account != nil {
		if err := f.Account.Acquire(eventlog.FollowerBytes); err != nil {
			return err
		}
		defer f.Account.Release(eventlog.FollowerBytes)
	}
	return r.follow(ctx, f, sink, nil)
}

// follow is Follow without a place. own is the feed of a run that this request has
// started; it is read after the run has left the process too.
func (r *Runner) follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink, own *eventlog.Feed) error {
	key := journal.RunKey{Org: f.Org, Run: f.RunID}
	next, done := r.followers.Listen(key)
	defer done()
	if f.Client || f.WaitFor > 0 {
		defer r.audience.clients.enter(key)()
	}
	return eventlog.Report(ctx, f, sink, eventlog.Source{
		Archive: r.o.Archive,
		Feed: func() (*eventlog.Feed, func()) {
			if own != nil {
				return own, func() {}
			}
			return r.leases.following(key)
		},
		Next: next, Closing: r.leases.closing,
	})
}

// Start accepts a durable run, which goes on without its caller, and returns its id. If
// the request's key stands for a run already, it returns the id of that one. Otherwise
// what Run says about errors holds.
func (r *Runner) Start(ctx context.Context, req *Request) (string, error) {
	if req.Policy.Grade != loop.Durable {
		return "", fmt.Errorf("a run of the grade %s ends with its caller", req.Policy.Grade)
	}
	if req.Account == nil {
		req.Account = r.o.Memory.Open(req.Org)
		defer req.Account.Close()
	}
	feed, known, err := r.start(ctx, req, "")
	if err != nil || known != "" {
		return known, err
	}
	return feed.RunID, nil
}

// Cancel ends a run of the org, whoever performs it: what is under way is cut
// off and accounted for. The error wraps org.ErrNotFound for an id that the org
// has not; a run that is over is a [fault.Error].
func (r *Runner) Cancel(ctx context.Context, orgID, runID string, by org.Author) error {
	end := loop.CancelRequested{By: by.Principal, Cause: event.Cancelled}
	return r.requestEnd(ctx, orgID, runID, end, []audit.Entry{by.RunCancelled(orgID, runID)})
}

// Leave ends a run as Cancel does, with the reason [event.CallerGone]: nobody comes back for its answer.
func Leave(ctx context.Context, r *Runner, orgID, runID, principal string) error {
	return r.requestEnd(ctx, orgID, runID, loop.CancelRequested{By: principal, Cause: event.CallerGone}, nil)
}

// Lose ends a run as Cancel does, with the reason [event.Lost] and without an audit
// row of its own. It is for runs whose journal may be older than what they have
// done. Runs that nobody performs are ended by the next Open.
func (r *Runner) Lose(ctx context.Context, orgID, runID, by string) error {
	return r.requestEnd(ctx, orgID, runID, loop.CancelRequested{By: by, Cause: event.Lost}, nil)
}

// maxAdded is how many inputs a run can get while it is under way.
const maxAdded = 64

// deliver adds a message to a run that is a turn of a session and has not ended: the model sees it in its next call,
// after the results of the calls under way. The error is a [fault.Error] of the kind Conflict if the run ends or has not
// begun, of the kind Limited if it has got too many messages, and a *[journal.Submitted] if the session has an input with the key.
func deliver(ctx context.Context, r *Runner, orgID, runID string, d journal.Delivered, items []item.Item, account *memlimit.Account) error {
	ref := "input:" + d.Input.ID
	err := r.appendForeign(ctx, account, orgID, runID, foreign{delivered: &d, of: func(s *loop.State) (foreign, error) {
		switch {
		case s.Ended != "" || s.AwaitsInput():
			return foreign{}, fault.New(fault.Conflict, notSteerable, "run %s ends, or has not begun", runID)
		case s.Added() >= maxAdded:
			return foreign{}, fault.New(fault.Limited, "too_many_inputs", "run %s has got %d messages while it was under way, which is the limit; wait for its end, or send when_busy: enqueue", runID, maxAdded)
		}
		body := loop.InputAdded{ItemsRef: ref, By: loop.ByOther, Who: d.Input.Principal, Bytes: window.Bytes(items)}
		return foreign{bodies: []loop.Body{body}, rows: []journal.Row{{Ref: ref, Value: item.List(items)}}}, nil
	}})
	if err == nil {
		crash.At(crash.AfterDelivery)
	}
	return err
}

// requestEnd records that the run is to end, with the rows for auditors.
func (r *Runner) requestEnd(ctx context.Context, orgID, runID string, end loop.CancelRequested, rows []audit.Entry) error {
	if err := r.appendForeign(ctx, nil, orgID, runID, foreign{bodies: []loop.Body{end}, audit: rows}); err != nil {
		return err
	}
	crash.At(crash.AfterCancel)
	r.leases.wake(journal.RunKey{Org: orgID, Run: runID})
	r.leases.claimSoon()
	return nil
}

// foreign is what somebody else than the owner of a run appends, as one batch.
type foreign struct {
	bodies []loop.Body
	rows   []journal.Row
	audit  []audit.Entry

	// delivered is the input of a session that bodies add to the run; nil = none is.
	delivered *journal.Delivered

	// of returns bodies, rows and audit for a run in state s, if they depend on it; no bodies = nothing is
	// to be appended. It may be called several times. Nil = they are those above.
	of func(s *loop.State) (foreign, error)

	// state is the state of the run as far as the caller has read it; nil = it has read nothing. With of,
	// it is that with the new facts when they are appended.
	state *loop.State
}

// appendForeign appends facts to a run that this goroutine does not own. Every fact that is not
// written by a run's owner goes through it. The error is that of f.of, wraps org.ErrNotFound if the org
// has no such run, or is a [fault.Error] if the run has ended or its state does not allow the facts. It
// needs the journal only for facts for which the state of the run matters: see [journal.Head.Allow].
// account is charged with what is read then; nil = nothing is charged.
func (r *Runner) appendForeign(ctx context.Context, account *memlimit.Account, orgID, runID string, f foreign) error {
	var state loop.State // of the run, if the facts depend on it
	if f.state != nil {
		state = *f.state
	}
	for {
		head, err := r.o.Archive.Head(ctx, orgID, runID)
		if err != nil {
			return err
		}
		if head.Summary.Status == journal.Done {
			return fault.New(fault.Conflict, "run_finished", "run %s has already ended (%s)", runID, head.Summary.Reason)
		}
		at := max(r.o.Now().UnixMilli(), head.At) // the wall clock may have been set back since
		add, after, facts := f, state, []loop.Fact(nil)
		if f.of == nil && !slices.ContainsFunc(f.bodies, func(b loop.Body) bool { return !loop.AllowedAnytime(b) }) {
			for i, body := range f.bodies {
				facts = append(facts, loop.Fact{Seq: head.Seq + int64(i) + 1, At: at, Version: loop.Version, Body: body})
				err = cmp.Or(err, head.Allow(body))
			}
		} else if state, err = journal.Fold(ctx, r.o.Archive, account, orgID, runID, state, nil); err == nil {
			if f.of != nil {
				if add, err = f.of(&state); err != nil || len(add.bodies) == 0 {
					return err
				}
			}
			after = state
			if state.ActiveSince != 0 { // its active time is measured by the clock of its owner, which this one may be ahead of
				at = state.At
			}
			for _, body := range add.bodies {
				fact := loop.Fact{Seq: after.Seq + 1, At: max(at, after.At), Version: loop.Version, Body: body}
				if loop.Allowed(after, fact) != nil {
					return fault.New(fault.Conflict, "not_waiting", "run %s does not wait for this decision: it was made already, or nobody asked for it", runID)
				}
				facts, after = append(facts, fact), loop.Apply(after, fact)
			}
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", runID, err)
		}
		batch := journal.Batch{Sync: true, Audit: add.audit, Rows: add.rows, Facts: facts, Delivered: f.delivered}
		err = r.o.Journal.Append(ctx, journal.Lease{Org: orgID, RunID: runID}, facts[0].Seq-1, batch)
		var behind *journal.Behind
		if errors.As(err, &behind) || errors.As(err, new(*journal.Unreadable)) { // somebody else has written
			continue // the run may have finished since
		} else if err != nil {
			return fmt.Errorf("run %s: append %s: %w", runID, facts[0].Body.Kind(), err)
		}
		if f.state != nil {
			*f.state = after
		}
		r.followers.Ring(journal.RunKey{Org: orgID, Run: runID})
		if r.o.Observer != nil {
			for _, row := range add.audit {
				r.o.Observer.Recorded(orgID, row)
			}
		}
		return nil
	}
}

// maxReason is the maximum length of the reason of a decision, in bytes.
const maxReason = 4 << 10

// Decide records a decision about an approval of the org, and returns the approval as it is
// then. The run goes on when all its approvals are decided, in whatever process claims it. The
// same decision again changes nothing and is no error. The error wraps org.ErrNotFound if the
// org has no such approval; it is a [fault.Error] if the approval has another decision, has
// expired, or is void.
func (r *Runner) Decide(ctx context.Context, orgID, id string, d journal.Decision, by org.Author) (journal.Approval, error) {
	if len(d.Message) > maxReason {
		return journal.Approval{}, fault.New(fault.Invalid, "invalid_value", "reason has %d bytes, and at most %d are allowed", len(d.Message), maxReason).In("reason")
	}
	a, err := r.o.Archive.Approval(ctx, orgID, id)
	if err != nil {
		return a, err
	}
	if err := mayRemember(ctx, r.o.Archive, orgID, a.RunID, d); err != nil {
		return a, err
	}
	if d.Remember && a.Asker == loop.AskedByHook {
		return a, fault.New(fault.Invalid, "unsupported_value", "remember_for_session: a hook asks for approval of this call, and hooks ask each time; send the decision without it").In("remember_for_session")
	}
	if a.Status == journal.ApprovalWaiting {
		if a, err = r.audience.decide(ctx, a, d, by); err != nil {
			return a, err
		}
	}
	return a, a.Accepts(d)
}

// AwaitApprovals returns the approvals of the org that q selects, as [journal.Archive] returns them. If
// there are none, it waits until there is one, but not longer than the time: then it returns
// none. It also returns none when this process stops taking runs, so that callers ask its
// successor. Account is charged with what the caller holds; nil = nothing is counted.
//
// It returns the cause of ctx when ctx ends, and a [fault.Error] if too many callers of the org
// wait.
func (r *Runner) AwaitApprovals(ctx context.Context, orgID string, q journal.ApprovalQuery, longest time.Duration, account *memlimit.Account) ([]journal.Approval, error) {
	if err := r.approvalWaits.enter(orgID); err != nil {
		return nil, err
	}
	defer r.approvalWaits.leave(orgID)
	if account != nil {
		if err := account.Acquire(approvalWaitBytes); err != nil {
			return nil, err
		}
		defer account.Release(approvalWaitBytes)
	}
	next, done := r.followers.Listen(approvalsOf(orgID))
	defer done()
	end := time.NewTimer(longest)
	defer end.Stop()
	poll := time.NewTicker(approvalPoll)
	defer poll.Stop()
	for {
		changed := next()
		found, err := r.o.Archive.Approvals(ctx, orgID, q)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-end.C:
			return nil, nil
		case <-r.leases.closing:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Unfinished is a run whose segment is not stored yet: it has not ended, and does not wait for approvals.
type Unfinished struct {
	RunID  string
	Part   int // of the run, from 0
	Keep   StoreOptions
	Queued bool // the run has not begun
}

// UnfinishedSegment returns the run that will store a segment of the caller's org, or nil if the org
// has no such run, or one that has ended, whose segment was deleted or has an owner, or that stores none.
// A run that has waited for approvals has stored its first one. What it reads is charged to the
// caller's account.
func (r *Runner) UnfinishedSegment(ctx context.Context, caller caller.Caller, id string) (*Unfinished, error) {
	return unfinishedSegment(ctx, r.o.Archive, caller.Org.ID, "", caller.Account, id)
}

// unfinishedSegment does what [Runner.UnfinishedSegment] says, for the segments of an owner; "" = those that have
// none.
func unfinishedSegment(ctx context.Context, archive journal.Archive, orgID, owner string, account *memlimit.Account, id string) (*Unfinished, error) {
	for _, may := range conversation.MayBe(id) {
		u := Unfinished{RunID: may.Run, Part: may.Part}
		head, err := archive.Head(ctx, orgID, u.RunID)
		switch {
		case errors.Is(err, org.ErrNotFound):
			continue
		case err != nil:
			return nil, journal.ReadError(u.RunID, err)
		case head.Summary.Status == journal.Done:
			return nil, nil
		}
		state, err := journal.Fold(ctx, archive, account, orgID, u.RunID, loop.State{}, nil)
		if err != nil {
			return nil, journal.ReadError(u.RunID, err)
		}
		c := state.Cancelled
		if state.Parks != u.Part || u.Part > 0 && len(undecided(state)) > 0 || c != nil && journal.GoneReason(*c) == loop.Deleted {
			return nil, nil
		}
		keep, err := storeOptionsOf(ctx, archive, orgID, account, u, head.Summary.Grade)
		if keep == nil || keep.Owner != owner || err != nil {
			return nil, err
		}
		u.Keep, u.Queued = *keep, head.Summary.Status == journal.Queued
		return &u, nil
	}
	return nil, nil
}

// notEnded returns the error of a request that continues a segment which is not stored: conflict if
// the run that stores it has not ended, and otherwise that it is not stored. again says that it has
// ended meanwhile.
func (o *Options) notEnded(ctx context.Context, req *Request) (again bool, err error) {
	from := req.Continues
	u, err := unfinishedSegment(ctx, o.Archive, req.Org, "", req.Account, from.ID)
	if err != nil {
		return false, err
	}
	if u == nil {
		kept, err := conversation.FindSegment(ctx, o.Conversations, req.Org, from.ID)
		return kept != nil, cmp.Or(err, from.NotStored())
	}
	status := "in progress"
	if u.Queued {
		status = "queued"
	}
	refused := fault.New(fault.Conflict, "previous_response_not_ended", "%s: the response %q has not ended, it is %s; send the request again when it has ended, or cancel it", from.Member, from.ID, status).In(from.Member)
	refused.RetryAfter = eventlog.AttachRetry
	return false, refused
}

// storeOptionsOf reads how a segment is stored; nil = it is not.
func storeOptionsOf(ctx context.Context, archive journal.Archive, orgID string, account *memlimit.Account, u Unfinished, grade loop.Grade) (*StoreOptions, error) {
	read := func(ref string, into any) (bool, error) {
		var rows []json.RawMessage
		err := journal.ReadBatch(account, func(limit int) (err error) {
			rows, err = archive.Rows(ctx, orgID, u.RunID, []string{ref}, limit)
			return err
		})
		if err != nil || len(rows) == 0 {
			return false, journal.ReadError(u.RunID, err)
		}
		if err := json.Unmarshal(rows[0], into); err != nil {
			return false, journal.AsideError(u.RunID, journal.Damaged(ref, err).Error())
		}
		return true, nil
	}
	if grade != loop.Durable {
		var keep StoreOptions
		if there, err := read(storeRef, &keep); !there || err != nil {
			return nil, err
		}
		return &keep, nil
	}
	var part storedPart
	if u.Part > 0 {
		if there, err := read(partRef(u.Part), &part); there || err != nil {
			return part.Store, err
		}
	}
	var q storedRequest
	_, err := read(requestRef, &q)
	return q.Store, err
}

// HasPieces reports whether the pieces of what the model said in a run are stored, so that its
// events are the same whenever they are followed. The error wraps org.ErrNotFound if the org has
// no such run.
func (r *Runner) HasPieces(ctx context.Context, orgID, runID string) (bool, error) {
	head, err := r.o.Archive.Head(ctx, orgID, runID)
	if err != nil {
		return false, journal.ReadError(runID, err)
	}
	return head.Summary.Grade == loop.Durable, nil
}

// Reasons returns why runs of the org have ended, as [journal.Archive] does.
func (r *Runner) Reasons(ctx context.Context, orgID string, runIDs []string) (map[string]event.Reason, error) {
	if r.o.Archive == nil {
		return nil, nil
	}
	return r.o.Archive.Reasons(ctx, orgID, runIDs)
}

// DeleteSegment deletes a stored segment of the caller's org and of an owner ("" = none), with its run if
// nothing else of it is stored. A run that has not ended ends, if the segment is its latest. DeleteSegment
// reports whether there was one. It need not be readable.
func (r *Runner) DeleteSegment(ctx context.Context, caller caller.Caller, owner, id string) (bool, error) {
	orgID := caller.Org.ID
	for range 3 { // it may end, and be stored, while it is looked for
		c, err := conversation.FindDeletable(ctx, r.o.Conversations, orgID, owner, id)
		if err != nil {
			return false, err
		}
		if c != nil {
			return deleteStored(ctx, r, orgID, id, c)
		}
		u, err := unfinishedSegment(ctx, r.o.Archive, orgID, owner, caller.Account, id)
		if err != nil {
			return false, err
		}
		if u == nil {
			continue
		}
		err = r.requestEnd(ctx, orgID, u.RunID, endOfGone(caller.Principal.ID, loop.Deleted), nil)
		switch ended := new(fault.Error); {
		case errors.As(err, &ended) && ended.Code == fault.Conflict:
			continue
		case err != nil:
			return false, err
		case u.Part == 0:
			err = r.o.LaterDeleter.DeleteLater(ctx, orgID, u.RunID)
		}
		return err == nil, err
	}
	return false, nil
}

// EndOrphaned ends the runs of sessions that were deleted before they had ended. It is also done again and again, by
// every process, so that a caller that dies, or an error, only delays their end.
func EndOrphaned(ctx context.Context, r *Runner) error { return r.audience.endOrphaned(ctx) }

// deleteStored deletes a segment that is stored.
func deleteStored(ctx context.Context, r *Runner, orgID, id string, c *journal.Conversation) (bool, error) {
	if c.RunID == "" { // it is damaged, and nobody knows its run
		return conversation.DeleteSegment(ctx, r.o.Conversations, orgID, id)
	}
	if err := r.audience.segmentDeleted(ctx, orgID, c); err != nil {
		return false, err
	}
	if alone, err := conversation.IsAlone(ctx, r.o.Conversations, orgID, c); err != nil {
		return false, err
	} else if alone {
		if err := r.o.LaterDeleter.DeleteLater(ctx, orgID, c.RunID); err != nil {
			return false, err
		}
	}
	return conversation.DeleteSegment(ctx, r.o.Conversations, orgID, id)
}

// CancelSegment ends the run of a segment of the org, if it is in progress, or is the latest of
// a run that waits. A run that has ended is no error. CancelSegment waits until the run has ended, as long
// as ctx allows.
func (r *Runner) CancelSegment(ctx context.Context, orgID string, c *journal.Conversation, inProgress bool, by org.Author) error {
	if !inProgress {
		if waiting, err := r.audience.waitsAt(ctx, orgID, c); waiting == nil || err != nil {
			return err
		}
	}
	runID := c.RunID
	key := journal.RunKey{Org: orgID, Run: runID}
	next, done := r.followers.Listen(key)
	defer done()
	stored, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout) // it counts, also if the caller leaves
	defer cancel()
	err := r.Cancel(stored, orgID, runID, by)
	if ended := new(fault.Error); errors.As(err, &ended) && ended.Code == fault.Conflict {
		return nil
	} else if err != nil {
		return err
	}
	poll := time.NewTicker(cancelPoll)
	defer poll.Stop()
	for {
		changed := next()
		if head, err := r.o.Archive.Head(ctx, orgID, runID); err == nil && head.Summary.Status == journal.Done {
			return nil
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-r.leases.closing:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// cancelPoll is how often CancelSegment looks whether the run has ended, if nothing rings.
const cancelPoll = 200 * time.Millisecond

// checkOver returns an error unless the run has ended, cannot go on, waits, or has waited: once it
// has, a client may come back at any time and not only before the decision.
func (o *Options) checkOver(ctx context.Context, orgID, runID string) error {
	head, err := o.Archive.Head(ctx, orgID, runID)
	if err != nil {
		return journal.Unavailable(fmt.Errorf("run %s: %w", runID, err))
	}
	if s := head.Summary.Status; s == journal.Done || s == journal.IsAside || s.Waits() {
		return nil
	}
	asked, err := o.Archive.Approvals(ctx, orgID, journal.ApprovalQuery{RunID: runID, Pauses: true, Limit: 1})
	if err != nil {
		return journal.Unavailable(fmt.Errorf("run %s: %w", runID, err))
	}
	if len(asked) > 0 {
		return nil
	}
	busy := fault.New(fault.Conflict, "run_in_progress",
		"the run of this Idempotency-Key is under way; send the request again when it is over")
	busy.RetryAfter = eventlog.AttachRetry
	return busy
}

// Raise raises limits of a run that is paused, which then goes on in whatever process claims it, and
// returns the limits that the run has then. It also takes the budgets of the org as they are now. A run
// that waits because of a budget may be told to try again, without a raise.
//
// The run has the limits of n already: no error, and nothing is recorded. Otherwise the error wraps
// org.ErrNotFound if the org has no such run; it is a [fault.Error] if the run is not paused, if n is no
// raise or more than the org allows, and if the run would wait again at once.
func (r *Runner) Raise(ctx context.Context, orgID, runID string, n NewLimits, by org.Author, account *memlimit.Account) (budget.Limits, error) {
	var now budget.Limits
	wait := "" // that ends; "" = the run has the limits already
	err := r.appendForeign(ctx, account, orgID, runID, foreign{of: func(s *loop.State) (foreign, error) {
		now, wait = s.Limits, ""
		if s.Paused == nil || s.Ended != "" {
			return foreign{}, notPaused(s, runID, n)
		}
		body, err := raiseOf(s, n, by, r.o.Allowance)
		if err != nil {
			return foreign{}, err
		}
		now, wait = s.Limits.Raised(body.Raise), body.WaitID
		return foreign{bodies: []loop.Body{body}, audit: []audit.Entry{by.LimitsRaised(orgID, runID, s.Limits, now)}}, nil
	}})
	if err == nil && wait != "" {
		crash.At(crash.AfterDecision)
		r.leases.claimSoon()
	}
	return now, err
}
