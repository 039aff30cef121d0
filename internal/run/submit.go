package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// submit starts a durable run and follows it; where the request's key stands
// for a run already, it follows that one.
func (r *Runner) submit(ctx context.Context, req *Request, sink eventlog.Sink) error {
	f := eventlog.Follow{Org: req.Org, Account: r.o.Memory.Open(req.Org), ToWaiting: true, WaitFor: req.WaitFor, Final: true} // the run's account is not its reader's
	defer f.Account.Close()
	if req.WaitFor == 0 {
		f.Part = 1
	}
	if err := f.Account.Acquire(eventlog.FollowerBytes); err != nil { // before the run exists: a refused request may be sent again
		return err
	}
	feed, known, err := r.start(ctx, req)
	switch {
	case err != nil:
		return err
	case known == "":
		f.RunID = feed.RunID
		end := &endSink{Sink: sink}
		err := r.follow(ctx, f, end, feed)
		r.audience.callers.leave(journal.RunKey{Org: req.Org, Run: feed.RunID})
		if req.callerAt != "" && !end.ended {
			r.audience.callerLeft(ctx, req, feed.RunID)
		}
		return err
	}
	f.Account.Release(eventlog.FollowerBytes) // Follow charges it
	f.RunID = known
	if !req.Attach {
		if err := r.o.checkOver(ctx, req.Org, known); err != nil {
			return err
		}
	}
	return r.Follow(ctx, f, sink)
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
	feed, known, err := r.start(ctx, req)
	if err != nil || known != "" {
		return known, err
	}
	return feed.RunID, nil
}

// start starts a durable run and returns its feed, or returns the id of the run for which
// the request's key stands already.
func (r *Runner) start(ctx context.Context, req *Request) (*eventlog.Feed, string, error) {
	lease := r.o.newLease(req)
	account := req.Account.Retain() // the run outlives the request
	feed := r.followers.NewFeed(lease.Key(), account, true)
	d := r.newDriver(r.carried(ctx), req, lease, account, feed)
	d.live.feed = feed
	if req.callerAt != "" {
		r.audience.callers.enter(d.live.key())
	}
	if err := r.leases.adopt(&d.live, false); err != nil {
		r.audience.callers.leave(d.live.key())
		account.Close()
		return nil, "", err
	}
	err := d.accept()
	if err == nil {
		go d.lead(d.playUntilDeadline)
		return feed, "", nil
	}
	r.audience.callers.leave(d.live.key())
	feed.End(err)
	d.unregister()
	d.run.cancel(errDiscarded)
	account.Close()
	var known *journal.Submitted
	if !errors.As(err, &known) {
		return nil, "", err
	}
	if known.Hash != req.Key.Hash {
		return nil, "", fault.New(fault.Unprocessable, "idempotency_key_reused",
			"this Idempotency-Key was sent with another request; use a new key for a new request").In("Idempotency-Key")
	}
	return nil, known.RunID, nil
}

// checkOver returns an error unless the run has ended, cannot go on, waits, or has waited: once it
// has, a client may come back at any time and not only before the decision.
func (o *Options) checkOver(ctx context.Context, orgID, runID string) error {
	head, err := o.Archive.Head(ctx, orgID, runID)
	if err != nil {
		return journal.Unavailable(fmt.Errorf("run %s: %w", runID, err))
	}
	if s := head.Summary.Status; s == journal.Done || s == journal.IsAside || s == journal.Waiting {
		return nil
	}
	asked, err := o.Archive.Approvals(ctx, orgID, journal.ApprovalQuery{RunID: runID, Limit: 1})
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

// lead performs a durable run in a goroutine of its own, which Close waits for.
func (d *driver) lead(perform func() error) {
	defer d.run.account.Close()
	defer d.run.cancel(errDiscarded)
	err := perform()
	var bad *journal.Unreadable
	if errors.As(err, &bad) {
		err = d.setAside(bad)
	}
	if errors.Is(err, errHandOver) || errors.Is(err, journal.ErrFenced) {
		err = eventlog.HandedOver(err)
	} else if err != nil && !d.aside {
		d.failed = true
		d.run.log.Error("run stopped", "error", err)
	}
	d.live.feed.End(err)
	d.unregister()
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
	if err := r.appendForeign(ctx, nil, orgID, runID, end, rows); err != nil {
		return err
	}
	crash.At(crash.AfterCancel)
	r.leases.wake(journal.RunKey{Org: orgID, Run: runID})
	r.leases.claimSoon()
	return nil
}

// appendForeign appends a fact to a run that this goroutine does not own, with rows for
// auditors. Every fact that is not written by a run's owner goes through it. The error
// wraps org.ErrNotFound if the org has no such run, and is a [fault.Error] if the run has
// ended or its state does not allow the fact. It needs the journal only for a fact for
// which the state of the run matters: see [journal.Head.Allow]. account is charged with what is read
// then; nil = nothing is charged.
func (r *Runner) appendForeign(ctx context.Context, account *memlimit.Account, orgID, runID string, body loop.Body, rows []audit.Entry) error {
	var state loop.State // of the run, if the fact depends on it
	for {
		head, err := r.o.Archive.Head(ctx, orgID, runID)
		if err != nil {
			return err
		}
		if head.Summary.Status == journal.Done {
			return fault.New(fault.Conflict, "run_finished", "run %s has already ended (%s)", runID, head.Summary.Reason)
		}
		at := max(r.o.Now().UnixMilli(), head.At) // the wall clock may have been set back since
		fact := loop.Fact{Seq: head.Seq + 1, At: at, Version: loop.Version, Body: body}
		if loop.AllowedAnytime(body) {
			err = head.Allow(body)
		} else if state, err = journal.Fold(ctx, r.o.Archive, account, orgID, runID, state, nil); err == nil {
			fact.Seq, fact.At = state.Seq+1, max(at, state.At)
			if loop.Allowed(state, fact) != nil {
				return fault.New(fault.Conflict, "not_waiting", "run %s does not wait for this decision: it was made already, or nobody asked for it", runID)
			}
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", runID, err)
		}
		err = r.o.Journal.Append(ctx, journal.Lease{Org: orgID, RunID: runID}, fact.Seq-1, journal.Batch{Sync: true, Audit: rows, Facts: []loop.Fact{fact}})
		var behind *journal.Behind
		if errors.As(err, &behind) || errors.As(err, new(*journal.Unreadable)) { // somebody else has written
			continue // the run may have finished since
		} else if err != nil {
			return fmt.Errorf("run %s: append %s: %w", runID, body.Kind(), err)
		}
		r.followers.Ring(journal.RunKey{Org: orgID, Run: runID})
		if r.o.Observer != nil {
			for _, row := range rows {
				r.o.Observer.Recorded(orgID, row)
			}
		}
		return nil
	}
}
