package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options are what a Runner needs. Catalog, Journal and Conversations are required;
// without Leases, Archive and Resources there are no durable runs.
type Options struct {
	Catalog       *catalog.Catalog
	Journal       journal.Journal
	Conversations journal.Conversations
	Leases        journal.Leases
	Archive       journal.Archive
	LaterDeleter  journal.LaterDeleter // nil = no responses are deleted
	Resources     Resources
	Router        Router           // nil = the targets of a request are tried in its order
	Dialer        Dialer           // nil = requests declare no servers
	Dispatcher    Dispatcher       // nil = callers execute all tools that requests define
	OwnServers    OwnServers       // nil = runs are no turns of sessions of agents
	Cache         Cache            // nil = results of tools are not cached
	Hooks         Hooks            // nil = hooks outside this package fail
	Results       ResultReader     // nil = the model cannot read the rest of a truncated result
	Recorder      journal.Recorder // nil = relays are not audited
	Spend         *spend.Keeper    // reserves the cost of relays and light runs; nil = light runs reserve as durable ones do, and relays have no budgets

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

	// Elsewhere is called after it was recorded that a run is to end, which another process may perform. It must not wait. Nil = there
	// is no other process.
	Elsewhere func(key journal.RunKey)

	// SessionDeleted is called for each session of a key that was deleted, with [tool.Call].Session of its calls. Nil = nobody is told.
	SessionDeleted func(orgID, session string)

	// Gone returns loop.KeyRevoked if a principal of an org has no key any more, loop.KeyExpired
	// if its key has expired, loop.Deleted if there is no such org, and otherwise "". The runs of
	// such a principal do not wait for approval, and make no further calls. Nil = nobody is gone.
	Gone func(orgID, principal string) string

	// Access returns what a principal of an org may use now. Calls of other models and tools are
	// not made, also in a run that began when the principal might. Nil = everybody may use all.
	Access func(orgID, principal string) org.Access

	// Allowance returns what the org of a run allows its limits now; false if the run's key or org is
	// gone. Nil = nothing is known of orgs: the bounds of package budget hold.
	Allowance func(orgID, principal, endUser string) (Allowance, bool)

	// MayClaim reports whether this process may take over runs at the moment: it has the settings that hold. Nil =
	// it always may.
	MayClaim func() bool

	// Alone says that Open is not called: each durable run renews the leases of this process by itself.
	Alone bool

	Observer Observer // nil = none

	// Price returns what a target's model costs now. It is called when a run is accepted,
	// and the result is sealed in the run. Nil = no model has a price.
	Price func(loop.Target) money.Price

	// Models finds the models that write summaries of prompts which are too long; nil = the model of a run writes them itself.
	Models Models

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
	sessions      *conversation.Sessions
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
	r.audience.leases, r.leases.mayClaim = r.leases, o.MayClaim
	r.sessions = conversation.NewSessions(o.Conversations, o.Now, o.NewID, func(n conversation.SessionName, since int64) {
		if o.SessionDeleted != nil {
			o.SessionDeleted(n.Org, nameForTools(n, since))
		}
	})
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

// detachedContext returns the context of a durable run that a request with ctx starts.
func (r *Runner) detachedContext(ctx context.Context) context.Context {
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
	if req.Policy.Grade == loop.Durable {
		return r.submit(ctx, req, sink)
	}
	lease := r.o.newLease(req)
	if req.Relay == nil {
		sink = r.followers.Ringing(lease.Key(), sink)
	}
	if req.Relay != nil {
		d := newDriver(ctx, r, req, lease, req.Account, sink)
		defer d.run.cancel(errDiscarded)
		return d.relay()
	}
	if req.WaitFor > 0 && req.Policy.MayWait() { // before the run exists, for hold
		if err := req.Account.Acquire(eventlog.FollowerBytes); err != nil {
			return err
		}
		defer req.Account.Release(eventlog.FollowerBytes)
	}
	if req.held() {
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

// holder returns the owner of the process that holds the request open, if nobody can come back for its answer; see
// [loop.Accepted].CallerAt.
func (r *Runner) holder(req *Request) string {
	if req.held() {
		return r.o.Owner
	}
	return ""
}

// runLight performs a light run until it ends or waits. It returns the position of the last
// event of a run that waits.
func (r *Runner) runLight(ctx context.Context, req *Request, lease journal.Lease, sink eventlog.Sink) (waiting event.Position, err error) {
	d := newDriver(ctx, r, req, lease, req.Account, sink)
	d.run.callerAt = r.holder(req)
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
	if !end.ended && req.held() {
		r.audience.callerLeft(ctx, req, lease.RunID)
	}
	return err
}

// holdGrace is how much longer than its approvals the caller of a light run is held: the run
// goes on when they have expired.
const holdGrace = 5 * time.Second

// submit starts a durable run and follows it; where the request's key stands
// for a run already, it follows that one.
func (r *Runner) submit(ctx context.Context, req *Request, sink eventlog.Sink) error {
	f := eventlog.Follow{Org: req.Org, Account: r.o.Memory.Open(req.Org), ToWaiting: true, WaitFor: req.WaitFor, PausedFor: req.PausedFor, Final: true} // the run's account is not its reader's
	defer f.Account.Close()
	if req.WaitFor == 0 {
		f.Part = 1
	}
	if err := f.Account.Acquire(eventlog.FollowerBytes); err != nil { // before the run exists: a refused request may be sent again
		return err
	}
	feed, known, err := r.start(ctx, req, r.holder(req))
	switch {
	case err != nil:
		return err
	case known == "" && req.Background:
		f.RunID = feed.RunID
		return r.follow(ctx, f, sink, nil)
	case known == "":
		f.RunID = feed.RunID
		end := &endSink{Sink: sink}
		err := r.follow(ctx, f, end, feed)
		r.audience.callers.leave(journal.RunKey{Org: req.Org, Run: feed.RunID})
		if req.held() && !end.ended {
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

// start starts a durable run and returns its feed, or returns the id of the run for which
// the request's key stands already. callerAt: see [loop.Accepted].
//
// A run in the background has neither goroutine nor feed afterwards: it is queued, and whoever
// claims it begins it.
func (r *Runner) start(ctx context.Context, req *Request, callerAt string) (*eventlog.Feed, string, error) {
	lease := r.o.newLease(req)
	if req.Background {
		return r.enqueue(ctx, req, lease, callerAt)
	}
	account := req.Account.Retain() // the run outlives the request
	feed := r.followers.NewFeed(lease.Key(), account, true)
	d := newDriver(r.detachedContext(ctx), r, req, lease, account, feed)
	d.live.feed, d.run.callerAt = feed, callerAt
	if callerAt != "" {
		r.audience.callers.enter(d.live.key())
	}
	if err := r.leases.adopt(&d.live, false); err != nil {
		r.audience.callers.leave(d.live.key())
		account.Close()
		return nil, "", err
	}
	err := d.accept()
	if err == nil {
		go d.runDetached(func() error {
			if r.o.Alone {
				defer r.leases.renewMeanwhile()()
			}
			return d.playUntilDeadline()
		})
		return feed, "", nil
	}
	r.audience.callers.leave(d.live.key())
	feed.End(err)
	d.unregister()
	d.run.cancel(errDiscarded)
	account.Close()
	of, err := knownRun(req, err)
	return nil, of, err
}

// enqueue stores the run as queued, without a lease. What holds for start holds for its results.
func (r *Runner) enqueue(ctx context.Context, req *Request, lease journal.Lease, callerAt string) (*eventlog.Feed, string, error) {
	if r.leases.isQuiet() {
		return nil, "", stopping()
	}
	lease.Epoch, lease.Owner = 0, ""
	account := req.Account.Retain()
	defer account.Close()
	feed := r.followers.NewFeed(lease.Key(), account, true)
	d := newDriver(r.detachedContext(ctx), r, req, lease, account, feed)
	d.run.callerAt = callerAt
	defer d.run.cancel(errDiscarded)
	defer d.run.appends.end()
	defer d.declared.hangUp()
	err := d.accept()
	feed.End(err)
	if err != nil {
		of, err := knownRun(req, err)
		return nil, of, err
	}
	d.run.log.Debug("run queued", "surface", req.Surface, "principal", req.Principal)
	r.leases.claimSoon()
	return feed, "", nil
}

// knownRun returns the run for which the key of a request stands already, if the error is for it.
func knownRun(req *Request, err error) (string, error) {
	var known *journal.Submitted
	if !errors.As(err, &known) {
		return "", err
	}
	if known.Hash != req.Key.Hash {
		return "", KeyReused()
	}
	return known.RunID, nil
}

// KeyReused is the error for a request whose Idempotency-Key was sent with another request.
func KeyReused() error {
	return fault.New(fault.Unprocessable, "idempotency_key_reused",
		"this Idempotency-Key was sent with another request; use a new key for a new request").In("Idempotency-Key")
}

// continues lets the request continue a run with its answers, and reports the next part of the
// run. It returns false for a request whose answers are all history, and that has new input:
// it is for a run of its own.
func (r *Runner) continues(ctx context.Context, req *Request, sink eventlog.Sink) (bool, error) {
	c := &continuation{&r.o, r, req}
	stored, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout) // a decision counts, also if the caller leaves
	defer cancel()
	for tries := 1; ; tries++ {
		approvals, err := c.answered(stored)
		if err != nil {
			return true, err
		}
		open := slices.ContainsFunc(approvals, isWaiting)
		if !open && len(req.Late) > 0 {
			took, err := c.tookInput(stored, approvals)
			if err != nil || !took {
				return err != nil, err
			}
		}
		next, err := c.decideAll(stored, approvals)
		if errors.Is(err, errDecideAgain) && tries < maxDecideTries { // somebody else has decided meanwhile
			continue
		} else if errors.Is(err, errDecideAgain) {
			err = journal.Unavailable(err)
		}
		if err != nil {
			return true, err
		}
		req.forget() // the run has a transcript of its own
		return true, c.tellNext(ctx, next, sink)
	}
}

// takeOver performs a run that was claimed. Callers can follow it when takeOver returns. It returns an error if the
// process is stopping.
func (r *Runner) takeOver(lease journal.Lease) error {
	account := r.o.Memory.Open(lease.Org)
	feed := r.followers.NewFeed(lease.Key(), account, false)
	d := newDriver(r.leases.base, r, &Request{Who: Who{Org: lease.Org, Account: account}}, lease, account, feed)
	d.live.feed = feed
	if err := r.leases.adopt(&d.live, true); err != nil {
		account.Close()
		return err
	}
	go d.runDetached(d.resume)
	return nil
}

// restore makes runs claimable that an earlier build has set aside, and that this build may
// be able to decode.
func (r *Runner) restore(ctx context.Context) error {
	n, err := r.o.Leases.Restore(ctx, func(a journal.Aside) bool { return a.Again(r.o.Build) })
	if err != nil {
		return err
	}
	if n > 0 {
		r.o.Log.Info("runs that were set aside are tried again", "runs", n)
	}
	return nil
}

// Changed says that a key was revoked or an org deleted: the runs that wait are checked at once.
func (r *Runner) Changed() {
	r.audience.changed.Store(true)
	r.leases.claimSoon()
}

// Dropped returns what each target leaves out of the request because its dialect
// cannot express it. It makes no model call. It asks about the transcript that the
// model would get, with the items that the gateway keeps for the caller: without its
// own reasoning, a model may be unable to continue to reason. The run of the request begins with
// what was read for it; a request that begins none keeps it charged to its account.
func (r *Runner) Dropped(ctx context.Context, req *Request) ([]Dropped, error) {
	items := slices.Concat(req.System, req.Items)
	if req.Relay == nil {
		whole, err := req.beginning(ctx, &r.o)
		if err != nil {
			return nil, err
		}
		files, err := req.filesOf(&req.Policy, whole.Items)
		if err != nil {
			return nil, err
		}
		items = files.Shown(whole.Items)
	}
	var out []Dropped
	for i, t := range req.Targets {
		translator, ok := t.Client.(model.Translator)
		if !ok {
			continue
		}
		asked := req.modelRequest(i, items)
		asked.MaxTokens = int(req.Policy.MaxTokens)
		if tool, ok := req.expectedTool(); ok {
			asked.Tools = append(slices.Clip(asked.Tools), tool)
		}
		params := translator.Dropped(asked)
		if !t.Relays(req.Dialect) {
			for _, h := range req.Hosted {
				params = append(params, h.Place)
			}
		}
		if name := req.Continues.Member; name != "" && slices.ContainsFunc(items, func(it item.Item) bool { return it.IsOtherOf(t.Provider) }) {
			params = append(params, name)
		}
		if len(params) > 0 {
			out = append(out, Dropped{t.Provider, params})
		}
	}
	return out, nil
}

// CountInput returns how many tokens the input of the run's first model call has, as the
// first target counts it, with the tools of the servers in Servers. If the provider cannot
// count, it is an estimate, as for a limit on tokens: rather too high.
func (r *Runner) CountInput(ctx context.Context, req *Request) (tokens int64, estimated bool, err error) {
	defer req.forget()
	whole, err := req.beginning(ctx, &r.o)
	if err != nil {
		return 0, false, err
	}
	files, err := req.filesOf(&req.Policy, whole.Items)
	if err != nil {
		return 0, false, err
	}
	items := files.Shown(whole.Items)
	set, err := r.o.Catalog.For(ctx, req.Org, req.Servers, time.Duration(req.Policy.CatalogTTLNS))
	if err != nil {
		refused := fault.New(fault.Unavailable, "server_unavailable", "the tools of a required MCP server are not available; \"turnpike mcp check\" shows the cause")
		refused.Err = err
		return 0, false, refused
	}
	asked := req.modelRequest(0, items)
	asked.Memory = req.Account
	if !takesNoTools(req.Targets[0]) {
		asked.Tools = append(slices.Clip(asked.Tools), set.Offered()...)
	}
	if counter, ok := req.Targets[0].Client.(model.Counter); ok {
		tokens, err := counter.CountInput(ctx, asked)
		if err == nil || ctx.Err() != nil {
			return tokens, false, err
		}
		r.o.Log.Debug("the provider does not count tokens", "provider", req.Targets[0].Provider, "error", err)
	}
	bytes := window.Bytes(items)
	for _, t := range asked.Tools {
		bytes += int64(len(t.Name) + len(t.Description) + len(t.InputSchema))
	}
	per := req.Policy.Rules.Estimate.WithDefaults(budget.DefaultEstimate()).BytesPerToken
	return (bytes + per - 1) / per, true, nil
}
