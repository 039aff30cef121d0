package run

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// A run waits for approval only as long as somebody may have its answer: its key is not revoked,
// its org is there, and its client waits or can come back. Otherwise it ends, its approvals are
// void, and nothing that it asked for is executed. This is checked when the run is about to wait,
// when somebody decides, before an approved call is executed, when the client leaves, and for all
// runs that wait by endAbandoned. The runs that are performed end at once, too, when their key is
// revoked or their org deleted.

// callers are the requests of this process that are held open for the answers of runs to which
// nobody can come back. The zero value is ready to use.
type callers struct {
	mu sync.Mutex
	of map[journal.RunKey]bool
}

func (c *callers) enter(key journal.RunKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[journal.RunKey]bool{}
	}
	c.of[key] = true
}

func (c *callers) leave(key journal.RunKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, key)
}

func (c *callers) has(key journal.RunKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[key]
}

// audience knows who may have the answers of the runs that wait.
type audience struct {
	o         *Options
	followers *eventlog.Followers
	leases    *leaseKeeper
	append    func(ctx context.Context, account *memlimit.Account, orgID, runID string, f foreign) error         // Runner.appendForeign
	end       func(ctx context.Context, orgID, runID string, why loop.CancelRequested, rows []audit.Entry) error // Runner.requestEnd

	callers callers
	clients clients
	changed atomic.Bool // see Runner.Changed
	checked time.Time   // when endAbandoned was last called; used by maintain only
}

// gone returns why nobody is left who may have the answer of a run: loop.ClientGone,
// loop.KeyRevoked, loop.KeyExpired or loop.Deleted; "" if somebody is.
func (u *audience) gone(ctx context.Context, w journal.WaitingRun) (string, error) {
	if u.o.Gone != nil {
		if code := u.o.Gone(w.Org, w.Principal); code != "" {
			return code, nil
		}
	}
	left := false
	switch {
	case w.CallerAt == "":
	case w.CallerAt == u.o.Owner:
		left = !u.callers.has(journal.RunKey{Org: w.Org, Run: w.RunID})
	case u.o.Leases != nil:
		alive, err := u.o.Leases.Alive(ctx, w.CallerAt)
		if err != nil {
			return "", err
		}
		left = !alive
	}
	if left {
		return loop.ClientGone, nil
	}
	return "", nil
}

// Gone returns the error for a caller whose request ends because its key is revoked, or its org deleted:
// loop.KeyRevoked, loop.KeyExpired or loop.Deleted.
func Gone(code string) *fault.Error {
	switch code {
	case loop.Deleted:
		return fault.New(fault.Unauthorized, loop.Deleted, "the org of this API key was deleted while the request was open")
	case loop.KeyExpired:
		return fault.New(fault.Unauthorized, loop.KeyExpired, "this API key expired while the request was open; use another key")
	}
	return fault.New(fault.Unauthorized, loop.KeyRevoked, "this API key was revoked while the request was open; use another key")
}

// goneCode returns the code of an error that wraps one of Gone; "" = it does not.
func goneCode(err error) string {
	var gone *fault.Error
	if errors.As(err, &gone) && (gone.Reason == loop.KeyRevoked || gone.Reason == loop.KeyExpired || gone.Reason == loop.Deleted) {
		return gone.Reason
	}
	return ""
}

// endOfGone returns the fact that ends a run for a reason that gone has returned.
func endOfGone(principal, code string) loop.CancelRequested {
	if code == loop.ClientGone {
		return loop.CancelRequested{By: principal, Cause: event.CallerGone, Code: code}
	}
	return loop.CancelRequested{By: "turnpike", Cause: event.Cancelled, Code: code}
}

// endGone ends a run for a reason that gone has returned. A run that has ended is no error.
func (u *audience) endGone(ctx context.Context, w journal.WaitingRun, code string) error {
	err := u.end(ctx, w.Org, w.RunID, endOfGone(w.Principal, code), nil)
	var ended *fault.Error
	if errors.Is(err, org.ErrNotFound) || errors.As(err, &ended) && ended.Code == fault.Conflict {
		return nil
	}
	if err == nil {
		u.followers.Ring(approvalsOf(w.Org))
		u.o.Log.Info("a run that waits or is queued is ended", "run", w.RunID, "org", w.Org, "principal", w.Principal, "reason", code)
	}
	return err
}

// callerLeft ends the run of a request that was held open, if it waits or is light: nobody can come
// back for its answer. If the store fails, endAbandoned tries it again.
func (u *audience) callerLeft(ctx context.Context, req *Request, runID string) {
	u.callers.leave(journal.RunKey{Org: req.Org, Run: runID})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout)
	defer cancel()
	head, err := u.o.Archive.Head(ctx, req.Org, runID)
	s := head.Summary
	if err == nil && (s.Status.Waits() || s.Status != journal.Done && req.Policy.Grade == loop.Light) {
		err = u.endGone(ctx, journal.WaitingRun{Org: req.Org, RunID: runID, Principal: req.Principal}, loop.ClientGone)
	}
	if err != nil && !errors.Is(err, org.ErrNotFound) {
		u.o.Log.Warn("a run whose client has left is not ended yet", "run", runID, "org", req.Org, "error", err)
	}
}

// segmentDeleted ends the run of a segment that is about to be deleted, if the run waits and has
// no later part.
func (u *audience) segmentDeleted(ctx context.Context, orgID string, c *journal.Conversation) error {
	waiting, err := u.waitsAt(ctx, orgID, c)
	if waiting == nil || err != nil {
		return err
	}
	return u.endGone(ctx, *waiting, loop.Deleted)
}

// waitsAt returns the run of a stored segment if it waits and has no later part; otherwise nil.
func (u *audience) waitsAt(ctx context.Context, orgID string, c *journal.Conversation) (*journal.WaitingRun, error) {
	head, err := u.o.Archive.Head(ctx, orgID, c.RunID)
	if errors.Is(err, org.ErrNotFound) || err == nil && !head.Summary.Status.Waits() {
		return nil, nil
	} else if err != nil {
		return nil, journal.ReadError(c.RunID, err)
	}
	later, err := conversation.FindDeletable(ctx, u.o.Conversations, orgID, c.Owner, conversation.Segment{Run: c.RunID, Part: max(c.Part, 1)}.ID())
	if err != nil || later != nil {
		return nil, err
	}
	return &journal.WaitingRun{Org: orgID, RunID: c.RunID, Principal: head.Summary.Principal}, nil
}

// abandonedEvery is how often all runs that wait are checked, unless Changed is called.
const abandonedEvery = renewEvery - claimEvery/2

// maintain ends what waits for nobody and what has waited too long. It is called by one goroutine at
// a time.
func (u *audience) maintain(ctx context.Context) error {
	if u.o.Archive == nil {
		return nil
	}
	if err := errors.Join(u.endInterrupted(ctx), u.endOrphaned(ctx)); err != nil {
		return err
	}
	if u.changed.Swap(false) || time.Since(u.checked) > abandonedEvery {
		u.checked = time.Now()
		if err := u.endAbandoned(ctx); err != nil {
			u.changed.Store(true)
			return err
		}
	}
	return u.expireApprovals(ctx)
}

// endInterrupted ends the runs of sessions that are to end because a message that interrupts them was stored: its
// sender may be gone since.
func (u *audience) endInterrupted(ctx context.Context) error {
	const atOnce = 64
	runs, err := u.o.Archive.InterruptedRuns(ctx, atOnce)
	for _, k := range runs {
		failed := u.end(ctx, k.Org, k.RunID, loop.CancelRequested{By: k.Principal, Cause: event.Cancelled}, nil)
		if ended := new(fault.Error); errors.Is(failed, org.ErrNotFound) || errors.As(failed, &ended) && ended.Code == fault.Conflict {
			failed = nil
		}
		err = errors.Join(err, failed)
	}
	return err
}

// endOrphaned ends the runs whose session was deleted before they had ended: the process that has deleted it may
// have died before it could end them.
func (u *audience) endOrphaned(ctx context.Context) error {
	const atOnce = 64
	runs, err := u.o.Archive.OrphanedRuns(ctx, atOnce)
	for _, k := range runs {
		failed := u.endGone(ctx, k, loop.Deleted)
		if failed == nil && u.o.LaterDeleter != nil { // nothing else knows the run
			failed = u.o.LaterDeleter.DeleteLater(ctx, k.Org, k.RunID)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// endAbandoned ends the runs that wait, or are queued, although nobody is left who may have their answer, and
// the runs of this process whose key is gone.
func (u *audience) endAbandoned(ctx context.Context) error {
	if u.o.Gone != nil {
		u.leases.endOf(u.o.Gone)
	}
	if err := u.endQueuedOfGone(ctx); err != nil {
		return err
	}
	waiting, err := u.o.Archive.WaitingRuns(ctx)
	for _, w := range waiting {
		code, failed := u.gone(ctx, w)
		if failed == nil && code != "" {
			failed = u.endGone(ctx, w, code)
		}
		err = errors.Join(err, failed)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return err
}

// endQueuedAtOnce is how many queued runs of a key are read at a time, to be ended.
const endQueuedAtOnce = 64

// endQueuedOfGone ends the queued runs of keys that are revoked or have expired, and of deleted orgs.
func (u *audience) endQueuedOfGone(ctx context.Context) error {
	queued, err := u.o.Archive.QueuedRuns(ctx)
	for _, q := range queued {
		code := ""
		if u.o.Gone != nil {
			code = u.o.Gone(q.Org, q.Principal)
		}
		for code != "" && err == nil && ctx.Err() == nil {
			var runs []journal.Summary
			runs, err = u.o.Archive.Runs(ctx, q.Org, journal.Query{States: []string{string(journal.Queued)}, Principal: q.Principal, Limit: endQueuedAtOnce})
			for _, r := range runs {
				err = errors.Join(err, u.endGone(ctx, journal.WaitingRun{Org: q.Org, RunID: r.RunID, Principal: q.Principal}, code))
			}
			if len(runs) < endQueuedAtOnce {
				break
			}
		}
	}
	return err
}

// noticeGone ends the run if nobody is left who may have its answer. It reports whether it did.
func (d *driver) noticeGone() (bool, error) {
	a := d.run.state().Accepted
	code, err := d.audience.gone(d.run.ctx, journal.WaitingRun{Org: a.Org, RunID: a.RunID, Principal: a.Principal, CallerAt: a.CallerAt})
	switch {
	case err != nil && d.run.ctx.Err() != nil: // the run ends for another reason
		return false, nil
	case err != nil:
		return false, journal.Unavailable(err)
	case code == "":
		return false, nil
	}
	d.run.log.Info("the run does not wait: nobody is left who may have its answer", "reason", code)
	return true, d.run.append(nil, endOfGone(a.Principal, code))
}

// noticeKey ends the run before it calls a model or a tool if its key is revoked, has expired or
// may not use the model any more. It reports whether it did.
func (d *driver) noticeKey() (ended bool, err error) {
	s := d.run.state()
	if d.run.relay || s.Ended != "" { // the key of a relay was checked just now
		return false, nil
	}
	code := ""
	if d.o.Gone != nil {
		code = d.o.Gone(s.Accepted.Org, s.Accepted.Principal)
	}
	if code == "" && !d.run.accessNow().AllowsModel(s.Accepted.Model) {
		code = loop.ModelNotAllowed
	}
	if code == "" {
		return false, nil
	}
	d.run.log.Info("the run ends: its key may not go on", "principal", s.Accepted.Principal, "reason", code)
	return true, d.run.append(nil, endOfGone(s.Accepted.Principal, code))
}

// executesApproved reports whether a call is to be executed that a person has approved.
func executesApproved(s *loop.State) bool {
	for _, c := range s.Calls {
		if c.Wait != nil && c.Attempt == 0 && c.Runnable() {
			return true
		}
	}
	return false
}

// endSink notes whether the end of the run was reported.
type endSink struct {
	eventlog.Sink
	ended bool
}

// Emit implements Sink.
func (s *endSink) Emit(at event.Position, e event.Event) error {
	_, last := e.(event.Finished)
	s.ended = s.ended || last
	return s.Sink.Emit(at, e)
}

func (u *audience) clientOf(ctx context.Context, a journal.Approval) (Client, error) {
	if a.Status != journal.ApprovalWaiting {
		return "", nil
	}
	code, err := u.gone(ctx, a.WaitingRun())
	switch {
	case err != nil:
		return "", journal.Unavailable(err)
	case code != "":
		return ClientLeft, nil
	case a.CallerAt != "" || u.clients.has(journal.RunKey{Org: a.Org, Run: a.RunID}):
		return ClientConnected, nil
	}
	return ClientAway, nil
}
