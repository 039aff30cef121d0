package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Options are what a Runner needs. Catalog, Journal and Conversations are required;
// without Leases, Archive and Resources there are no durable runs.
type Options struct {
	Catalog       *catalog.Catalog
	Journal       journal.Journal
	Conversations journal.Conversations
	Leases        journal.Leases
	Archive       journal.Archive
	Forgetter     journal.Forgetter // nil = no responses are deleted
	Resources     Resources
	Router        Router           // nil = the targets of a request are tried in its order
	Dialer        Dialer           // nil = requests declare no servers
	Cache         Cache            // nil = results of tools are not cached
	Results       ResultReader     // nil = the model cannot read the rest of a truncated result
	Recorder      journal.Recorder // nil = relays are not audited

	// Keys seal the addresses and the credentials of the servers that requests declare, in
	// the stored requests of durable runs. Nil = they are not stored: the next owner of such
	// a run does not have its servers.
	Keys *secret.Keyring

	// Memory opens accounts for runs whose request brings none; nil = one with its
	// default bounds.
	Memory *memlimit.Limiter
	// MaxFollowers is how many callers may follow a run at a time, beside the one that
	// started it; 0 = DefaultFollowers.
	MaxFollowers int

	// Gone returns loop.KeyRevoked if a principal of an org has no key any more, loop.KeyExpired
	// if its key has expired, loop.Deleted if there is no such org, and otherwise "". The runs of
	// such a principal do not wait for approval, and make no further calls. Nil = nobody is gone.
	Gone func(orgID, principal string) string

	// Access returns what a principal of an org may use now. Calls of other models and tools are
	// not made, also in a run that began when the principal might. Nil = everybody may use all.
	Access func(orgID, principal string) org.Access

	Observer Observer // nil = none

	// Owner is the name of this process in leases. It must differ at every start; "" = a
	// name is made.
	Owner string

	// Build is the name of this build of the program. A run that is set aside because its
	// journal seems damaged is tried again by a build with another name.
	Build string

	Log    *slog.Logger                            // nil = discard
	Now    func() time.Time                        // the wall clock; nil = clock.Wall
	NewID  func(prefix string) string              // nil = id.NewOrdered
	Jitter func(limit time.Duration) time.Duration // returns a random time in 0..limit; nil = evenly distributed
}

// Runner runs requests. It is safe for concurrent use. Between [Runner.Open]
// and [Runner.Close] it keeps the leases of its runs and takes over those whose
// owner is gone.
type Runner struct {
	o Options

	leases    *leaseKeeper
	followers *eventlog.Followers // callers that follow a run

	approvalWaits approvalWaits
	audience      audience
	dropped       droppedHeaders // of relays
}

// New returns a Runner.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.NewID == nil {
		o.NewID = id.NewOrdered
	}
	if o.Jitter == nil {
		o.Jitter = func(limit time.Duration) time.Duration { return rand.N(limit + 1) }
	}
	if o.Owner == "" {
		o.Owner = o.NewID("gw_")
	}
	if o.Memory == nil {
		o.Memory = memlimit.New(memlimit.Options{})
	}
	r := &Runner{o: o, followers: eventlog.NewFollowers(o.MaxFollowers)}
	r.audience = audience{o: &r.o, followers: r.followers, append: r.appendForeign, end: r.requestEnd}
	r.leases = newLeaseKeeper(o.Leases, o.Owner, &storeHealth{log: o.Log}, r.takeOver, r.audience.maintain)
	r.audience.leases = r.leases
	return r
}

// Open takes over the runs whose owner is gone, and renews the leases of the runs of this
// process until Close. It returns when every run that can be claimed was claimed: then
// callers can follow them.
func (r *Runner) Open(ctx context.Context) error {
	if err := r.restore(ctx); err != nil {
		return fmt.Errorf("runs that were set aside: %w", err)
	}
	if r.o.Archive != nil {
		if err := r.audience.endAbandoned(ctx); err != nil && ctx.Err() == nil { // the first tick tries it again
			r.o.Log.Warn("runs that wait for nobody were not ended", "error", err)
		}
	}
	return r.leases.open(ctx)
}

// Close ends the service. Runs in progress continue for the time soft. Then durable runs
// are handed over at their next fact, and when ctx ends, all that is left is cancelled.
// Close returns when no run is left. It may be called more than once.
func (r *Runner) Close(ctx context.Context, soft time.Duration) { r.leases.close(ctx, soft) }

// SetMaxFollowers replaces [Options.MaxFollowers]. Callers that follow a run already
// continue to follow it.
func (r *Runner) SetMaxFollowers(n int) { r.followers.Limit(n) }

// Health returns why the store cannot be written, or nil.
func (r *Runner) Health() error { return r.leases.health.err() }

// carried returns the context of a durable run that a request with ctx starts.
func (r *Runner) carried(ctx context.Context) context.Context {
	if r.o.Observer == nil {
		return r.leases.base
	}
	return r.o.Observer.Carry(r.leases.base, ctx)
}

// The causes for which a run's context ends.
var (
	errDeadline  = errors.New("the run's active time is used up")
	errStopped   = errors.New("the gateway is stopping")
	errWoken     = errors.New("another writer has appended to the journal")
	errHandOver  = errors.New("the run was handed over")
	errDiscarded = errors.New("the run is over")
)

// Run performs the request and emits events to sink until Finished, which is emitted exactly
// once, or Waiting. It returns when all goroutines that it started for the caller have ended.
// An error means that the run could not be recorded, or was not accepted (a [fault.Error]);
// Finished was not emitted then.
//
// When ctx ends, a light run is cancelled with its model call and tool calls. A durable run
// continues without its caller.
func (r *Runner) Run(ctx context.Context, req *Request, sink eventlog.Sink) error {
	if req.Account == nil {
		req.Account = r.o.Memory.Open(req.Org)
		defer req.Account.Close()
	}
	if len(req.Answers) > 0 {
		if done, err := r.continues(ctx, req, sink); done {
			return err
		}
	}
	if req.held() {
		req.callerAt = r.o.Owner
	}
	if req.Policy.Grade == loop.Durable {
		return r.submit(ctx, req, sink)
	}
	lease := r.o.newLease(req)
	if req.Policy.Grade != loop.Relay {
		sink = r.followers.Ringing(lease.Key(), sink)
	}
	if req.Policy.Grade == loop.Relay {
		d := r.newDriver(ctx, req, lease, req.Account, sink)
		defer d.run.cancel(errDiscarded)
		return d.relay()
	}
	if req.WaitFor > 0 && req.Policy.MayWait() { // before the run exists, for hold
		if err := req.Account.Acquire(eventlog.FollowerBytes); err != nil {
			return err
		}
		defer req.Account.Release(eventlog.FollowerBytes)
	}
	if req.callerAt != "" {
		key := lease.Key()
		r.audience.callers.enter(key)
		defer r.audience.callers.leave(key)
	}
	waiting, err := r.runLight(ctx, req, lease, sink)
	switch {
	case errors.Is(err, journal.ErrFenced) || errors.Is(err, errHandOver):
		return &fault.Error{Code: fault.Internal, Reason: "run_lost", Message: "the run was lost: another process has ended it", Err: err}
	case err == nil && waiting.Seq > 0 && req.WaitFor > 0:
		return r.hold(ctx, req, lease, waiting, sink)
	}
	return err
}

// runLight performs a light run until it ends or waits. It returns the position of the last
// event of a run that waits.
func (r *Runner) runLight(ctx context.Context, req *Request, lease journal.Lease, sink eventlog.Sink) (waiting event.Position, err error) {
	d := r.newDriver(ctx, req, lease, req.Account, sink)
	defer d.run.cancel(errDiscarded)
	if err := r.leases.adopt(&d.live, false); err != nil {
		return waiting, err
	}
	defer d.unregister()
	err = d.perform()
	if s := d.run.state(); s.Finished == nil && s.Accepted != nil && s.ActiveSince == 0 {
		waiting.Seq = d.run.events.Last()
	}
	return waiting, err
}

// hold reports the rest of a light run that waits for approvals, and is durable now, to the
// caller of its request: until the run ends, and for as long as its approvals wait. If the caller
// leaves, the run ends. The account is charged with a follower already.
func (r *Runner) hold(ctx context.Context, req *Request, lease journal.Lease, waiting event.Position, sink eventlog.Sink) error {
	r.leases.claimSoon() // somebody may have decided already
	end := &endSink{Sink: sink}
	err := r.follow(ctx, eventlog.Follow{
		Org: lease.Org, RunID: lease.RunID, After: waiting, Account: req.Account, Final: true, ToWaiting: true, WaitFor: req.WaitFor + holdGrace,
	}, end, nil)
	if !end.ended && req.callerAt != "" {
		r.audience.callerLeft(ctx, req, lease.RunID)
	}
	return err
}

// holdGrace is how much longer than its approvals the caller of a light run is held: the run
// goes on when they have expired.
const holdGrace = 5 * time.Second
