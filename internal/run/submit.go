package run

import (
	"context"
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

// attachRetry is how long a caller is asked to wait that may not follow a run
// which is under way.
const attachRetry = time.Second

// submit starts a durable run and follows it; where the request's key stands
// for a run already, it follows or repeats that one.
func (r *Runner) submit(ctx context.Context, req *Request, sink Sink) error {
	d := r.newDrive(r.carried(ctx), req, nil)
	d.account = req.Account.Hold() // the run outlives the request
	d.feed = newFeed(d.account)
	d.sink = d.feed
	if err := r.adopt(d, false); err != nil {
		d.account.Close()
		return err
	}
	err := d.accept()
	if err == nil {
		go d.lead(d.race)
		return d.feed.follow(ctx, sink)
	}
	d.feed.end(err)
	r.letGo(d)
	d.cancel(errDiscarded)
	d.account.Close()
	var known *Submitted
	if errors.As(err, &known) {
		return r.again(ctx, req, known, sink)
	}
	return err
}

// lead performs a durable run in a goroutine of its own, which Stop waits for.
func (d *drive) lead(perform func() error) {
	defer d.account.Close()
	defer d.cancel(errDiscarded)
	err := perform()
	if errors.Is(err, errHandOver) || errors.Is(err, ErrFenced) {
		err = elsewhere(err)
	} else if err != nil && !d.aside {
		d.log.Error("run stopped", "error", err)
	}
	d.feed.end(err)
	d.letGo(d)
}

// elsewhere tells a caller that its run goes on without this process.
func elsewhere(err error) error {
	f := fault.New(fault.Unavailable, "run_handed_over",
		"the gateway hands the run over to its next process; send the request again with the same Idempotency-Key to follow it")
	f.RetryAfter, f.Err = attachRetry, err
	return f
}

// again answers a request whose key stands for a run.
func (r *Runner) again(ctx context.Context, req *Request, known *Submitted, sink Sink) error {
	if known.Hash != req.Key.Hash {
		return fault.New(fault.Unprocessable, "idempotency_key_reused",
			"this Idempotency-Key was sent with another request; use a new key for a new request").In("Idempotency-Key")
	}
	key := runKey{req.Org, known.RunID}
	if err := r.followers.enter(key); err != nil {
		return err
	}
	defer r.followers.leave(key)
	if err := req.Account.Charge(followerBytes); err != nil {
		return err
	}
	defer req.Account.Release(followerBytes)
	f := r.following(key)
	if f == nil {
		return r.replayed(ctx, key, sink)
	}
	defer f.account.Close()
	if req.Attach || f.ended() {
		return f.follow(ctx, sink)
	}
	return inProgress()
}

// repeatUnreadable answers a request whose run has a journal that cannot be
// decoded: with its end if it was given up for that, else with an error.
func (r *Runner) repeatUnreadable(key runKey, account *ledger.Account, bad *Unreadable, sink Sink) error {
	d := r.newDrive(r.base, &Request{Org: key.org, Account: account}, sink)
	defer d.cancel(errDiscarded)
	d.lease.RunID = key.run
	if d.tellGivenUp(bad.Story) {
		return nil
	}
	return unreadable(key.run, bad.Error())
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
// done. Runs that nobody performs are ended by the next Start.
func (r *Runner) Lose(ctx context.Context, orgID, runID, by string) error {
	return r.requestEnd(ctx, orgID, runID, loop.CancelRequested{By: by, Cause: event.Lost}, nil)
}

// requestEnd records that the run is to end, with the rows for auditors.
func (r *Runner) requestEnd(ctx context.Context, orgID, runID string, end loop.CancelRequested, rows []audit.Entry) error {
	for {
		head, err := r.o.Archive.Head(ctx, orgID, runID)
		if err != nil {
			return err
		}
		if head.Summary.Status == Done {
			return fault.New(fault.Conflict, "run_finished", "run %s has already ended (%s)", runID, head.Summary.Reason)
		}
		err = r.o.Journal.Append(ctx, Lease{Org: orgID, RunID: runID}, head.Seq, r.ending(head, end, rows))
		var behind *Behind
		if errors.As(err, &behind) {
			continue
		} else if err != nil {
			return fmt.Errorf("run %s: cancel: %w", runID, err)
		}
		crash.At(crash.AfterCancel)
		r.meddle(runKey{orgID, runID})
		return nil
	}
}
