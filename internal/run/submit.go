package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// attachRetry is how long a caller is asked to wait that may not follow a run
// which is under way.
const attachRetry = time.Second

// submit starts a durable run and follows it; where the request's key stands
// for a run already, it follows or repeats that one. // P24
func (r *Runner) submit(ctx context.Context, req *Request, sink Sink) error {
	d := r.newDrive(r.carried(ctx), req, nil)
	d.feed = newFeed()
	d.sink = d.feed
	if err := r.adopt(d, false); err != nil {
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
	var known *Submitted
	if errors.As(err, &known) {
		return r.again(ctx, req, known, sink)
	}
	return err
}

// lead performs a durable run in a goroutine of its own, which Stop waits for.
func (d *drive) lead(perform func() error) {
	defer d.cancel(errDiscarded)
	err := perform()
	if errors.Is(err, errHandOver) || errors.Is(err, ErrFenced) {
		err = elsewhere(err)
	} else if err != nil {
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
	if f := r.following(runKey{req.Org, known.RunID}); f != nil && (req.Attach || f.ended()) {
		return f.follow(ctx, sink)
	}
	story, err := r.o.Archive.Load(ctx, req.Org, known.RunID)
	if err != nil {
		return unavailable(fmt.Errorf("run %s: %w", known.RunID, err))
	}
	if story.Summary.Status != Done {
		busy := fault.New(fault.Conflict, "run_in_progress",
			"the run of this Idempotency-Key is under way; send the request again when it is over")
		busy.RetryAfter = attachRetry
		return busy
	}
	return r.retold(req, story, sink)
}

// Cancel ends a run of the org, whoever performs it: what is under way is cut
// off and accounted for. The error wraps org.ErrNotFound for an id that the org
// has not; a run that is over is a [fault.Error].
func (r *Runner) Cancel(ctx context.Context, org, runID, by string) error {
	for {
		story, err := r.o.Archive.Load(ctx, org, runID)
		if err != nil {
			return err
		}
		if story.Summary.Status == Done {
			return fault.New(fault.Conflict, "run_finished", "run %s is over (%s)", runID, story.Summary.Reason)
		}
		err = r.o.Journal.Append(ctx, Lease{Org: org, RunID: runID}, int64(len(story.Facts)), r.cancellation(story, by))
		var behind *Behind
		if errors.As(err, &behind) {
			continue
		} else if err != nil {
			return fmt.Errorf("run %s: cancel: %w", runID, err)
		}
		crash.At("C20")
		r.meddle(runKey{org, runID})
		return nil
	}
}
