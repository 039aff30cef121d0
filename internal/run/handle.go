package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
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

// Lose ends a run as Cancel does, with the reason [event.Lost] and without an audit
// row of its own. It is for runs whose journal may be older than what they have
// done. Runs that nobody performs are ended by the next Open.
func (r *Runner) Lose(ctx context.Context, orgID, runID, by string) error {
	return r.requestEnd(ctx, orgID, runID, loop.CancelRequested{By: by, Cause: event.Lost}, nil)
}

// requestEnd records that the run is to end, with the rows for auditors.
func (r *Runner) requestEnd(ctx context.Context, orgID, runID string, end loop.CancelRequested, rows []audit.Entry) error {
	if err := r.appendForeign(ctx, nil, orgID, runID, foreign{bodies: []loop.Body{end}, audit: rows}); err != nil {
		return err
	}
	crash.At(crash.AfterCancel)
	key := journal.RunKey{Org: orgID, Run: runID}
	r.leases.wake(key)
	r.leases.claimSoon()
	if r.o.Elsewhere != nil {
		r.o.Elsewhere(key)
	}
	return nil
}

// Heard tells the callers that follow a run in this process that another process has appended to its journal. The zero key
// means any run.
func (r *Runner) Heard(key journal.RunKey) {
	if key == (journal.RunKey{}) {
		r.followers.RingAll()
		return
	}
	r.followers.Ring(key)
}

// HeardEnd makes a run that is performed in this process read that somebody has asked another process to end it.
func (r *Runner) HeardEnd(key journal.RunKey) { r.leases.wake(key) }

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
					return fault.New(fault.Conflict, "not_waiting", "run %s does not wait for this decision: it was made already, or nobody asked "+
						"for it", runID)
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
func (r *Runner) Raise(ctx context.Context, orgID, runID string, n NewLimits, by org.Author, account *memlimit.Account) (budget.Limits,
	error) {
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
