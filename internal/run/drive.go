package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// driver performs one run: it asks the rules what to do next, and does it with its parts.
// The goroutine that performs the run owns it.
type driver struct {
	o        *Options
	leases   *leaseKeeper
	audience *audience

	run      runState
	model    modelCaller
	reserver reserver
	observer runObserver
	deadline deadline

	*loopParts // nil for a raw relay

	aside   bool  // the run is set aside
	failed  bool  // an error has stopped it here
	givenUp error // why the run cannot be continued; nil = it can
	unsure  bool  // it is unknown whether the journal was opened
}

// loopParts are the parts that a run needs beyond its model calls.
type loopParts struct {
	tools     toolSet
	compactor compactor
	calls     toolCaller
	declared  declaredServers
	live      liveRun
	asked     func() // called when the run has asked for approvals
	session   sessionKeeper
}

// newDriver returns the driver of a run under the lease. Its parts share one run state. account is
// charged with what the run keeps.
func newDriver(ctx context.Context, r *Runner, req *Request, lease journal.Lease, account *memlimit.Account, sink eventlog.Sink) *driver {
	d := &driver{o: &r.o, leases: r.leases, audience: &r.audience}
	d.observer.observer = r.o.Observer
	if req.Relay == nil {
		own := *req // the driver sets its servers, and those of a run that was taken over
		req.begins, req = nil, &own
	}
	d.run = runState{
		req: req, start: startOf(req), lease: lease, journal: r.o.Journal, others: othersInput{r.o.Archive}, storeFailed: r.leases.health.failed,
		keys: r.o.Keys, allowed: r.o.Access, relay: req.Relay != nil, observer: &d.observer, timing: &d.model.timing, log: r.o.Log, dates: clock.NewSteady(r.o.Now()),
	}
	if !d.run.relay {
		d.run.log = d.run.log.With("run", lease.RunID, "org", lease.Org)
	}
	d.run.ctx, d.run.cancel = context.WithCancelCause(ctx)
	d.run.account = account
	d.run.events = eventlog.NewWriter(sink, account, d.run.cancel)
	d.reserver = reserver{run: &d.run, spend: r.o.Spend}
	d.model = modelCaller{run: &d.run, jitter: r.o.Jitter, observer: &d.observer, dropped: &r.dropped, router: r.o.Router, reserver: &d.reserver}
	if !req.Relay.isRaw() {
		addLoop(d, r)
	}
	return d
}

// addLoop adds the parts that a raw relay does not need.
func addLoop(d *driver, r *Runner) {
	d.loopParts = &loopParts{}
	d.run.results = &results{account: d.run.account}
	d.tools = toolSet{run: &d.run, reader: r.o.Results}
	d.model.tools = &d.tools
	d.compactor = compactor{run: &d.run, tools: &d.tools, observer: &d.observer, reserver: &d.reserver, models: r.o.Models}
	d.calls = toolCaller{run: &d.run, tools: &d.tools, catalog: r.o.Catalog, cache: resultCache{r.o.Cache, &d.run}, observer: &d.observer, yields: d.yields, reserver: &d.reserver}
	d.calls.hooks = hookCaller{run: &d.run, hooks: r.o.Hooks, observer: &d.observer}
	d.declared = declaredServers{run: &d.run, dialer: r.o.Dialer, dispatcher: r.o.Dispatcher, own: r.o.OwnServers}
	d.live = liveRun{lease: d.run.lease, cancel: d.run.cancel, caller: d.run.req.Principal}
	d.session = sessionKeeper{o: &r.o, run: &d.run, sessions: r.sessions}
	org := d.run.lease.Org
	d.asked = func() { r.followers.Ring(approvalsOf(org)) }
}

// newLease returns the lease of a new run. A relay that is recorded has the id of its
// request, any other run an id of its own.
func (o *Options) newLease(req *Request) journal.Lease {
	lease := journal.Lease{Org: req.Org, Epoch: 1, Owner: o.Owner}
	switch {
	case req.Relay == nil && req.RunID != "":
		lease.RunID = req.RunID
	case req.Relay == nil || o.Recorder == nil:
		lease.RunID = o.NewID("run_")
	case req.ID != "":
		lease.RunID = req.ID
	default:
		lease.RunID = o.NewID("req_")
	}
	return lease
}

// perform opens the journal and plays the run. It returns nil after Finished or Parked.
func (d *driver) perform() error {
	if err := d.accept(); err != nil {
		return err
	}
	return d.playUntilDeadline()
}

// playUntilDeadline plays the run, and ends it at its deadline.
func (d *driver) playUntilDeadline() error {
	stop := d.deadline.start(&d.run)
	defer stop()
	return d.observed(false, d.play)
}

// observed performs play and reports it to the observer.
func (d *driver) observed(takenOver bool, play func() error) error {
	if d.o.Observer == nil {
		return play()
	}
	b := Begun{
		Org: d.run.lease.Org, Principal: d.run.req.Principal, RunID: d.run.lease.RunID, Surface: d.run.req.Surface,
		Grade: d.run.policy().Grade, Model: d.run.state().Accepted.Model, TakenOver: takenOver,
	}
	if len(d.run.req.Targets) > 0 {
		b.Target = d.run.req.Targets[0]
	}
	if relay := d.run.req.Relay; relay != nil {
		b.Relay = relay.Reason
	}
	ctx, end := d.observer.begin(d.run.ctx, b)
	d.run.ctx = ctx
	err := play()
	end(endOf(d.run.state(), &d.model))
	return err
}

// deadline cancels the context of a run with errDeadline when its time is used up; of a run that pauses,
// a little later. noticeEnd then appends Expired, and the rules end the run. A relay has none.
type deadline struct {
	timer *time.Timer // nil = there is none
	at    int64       // when it fires, in Unix milliseconds
}

// start starts it, until stop is called.
func (d *deadline) start(run *runState) (stop func()) {
	at := run.state().CutAt()
	if run.relay || at == 0 {
		return func() {}
	}
	timer := time.AfterFunc(time.Duration(at-run.now())*time.Millisecond, func() { run.cancel(errDeadline) })
	d.timer, d.at = timer, at
	return func() { timer.Stop() }
}

// follow moves it if somebody has raised the time limit, unless it has passed.
func (d *deadline) follow(run *runState) {
	at := run.state().CutAt()
	if d.timer == nil || at == 0 || at == d.at {
		return
	}
	d.at = at
	if d.timer.Stop() {
		d.timer.Reset(time.Duration(at-run.now()) * time.Millisecond)
	}
}

// play asks the rules for the next action and performs it, until the run has ended or waits.
func (d *driver) play() error {
	for {
		if err := d.noticeEnd(); err != nil {
			return err
		}
		d.deadline.follow(&d.run)
		var err error
		switch a := loop.Decide(*d.run.state()).(type) {
		case loop.AddInput:
			err = d.addInput()
		case loop.Discover:
			err = d.discover()
		case loop.Route:
			err = d.model.route(a)
		case loop.CallModel:
			var ended bool
			if ended, err = d.noticeKey(); !ended && err == nil {
				err = d.model.call(a)
			}
		case loop.Compact:
			var ended bool
			if ended, err = d.noticeKey(); !ended && err == nil {
				err = d.compactor.compact(a)
			}
		case loop.PrepareTools:
			err = d.calls.prepare(a)
		case loop.RunHooks:
			err = d.calls.hooks.runHooks(a)
		case loop.AnswerCalls:
			err = d.calls.answer(a)
		case loop.ExecuteTools:
			var ended bool
			if ended, err = d.noticeKey(); !ended && err == nil {
				err = d.calls.execute(a)
			}
		case loop.Interrupt:
			if err = d.park(a); err == nil {
				return nil
			}
		case loop.Pause:
			if err = d.pause(a); err == nil {
				return nil
			}
		case loop.Finish:
			if err = d.finish(a); err == nil {
				return nil
			}
		default:
			panic(fmt.Sprintf("the driver does not know the action %T", a))
		}
		if err != nil && !errors.Is(err, errDecideAgain) {
			return err
		}
	}
}

// here performs the run in this goroutine. leased says that it has its lease.
func (d *driver) here(leased bool, perform func() error) (Performed, error) {
	defer d.run.cancel(errDiscarded)
	if err := d.leases.adopt(&d.live, leased); err != nil {
		return Performed{}, err
	}
	defer d.unregister()
	defer d.leases.renewMeanwhile()()
	err := perform()
	switch {
	case errors.Is(err, journal.ErrFenced), errors.Is(err, errHandOver):
		err = &NotNow{RunID: d.run.lease.RunID, Status: journal.Running}
	}
	p := Performed{State: *d.run.state()}
	if p.State.Accepted != nil {
		p.Items = d.run.events.Transcript(d.run.state().Refs())
		p.Input = len(d.run.events.Items("input"))
		p.Caller, p.Failed = d.run.req.caller(), d.run.events.Reported()
	}
	return p, err
}

// unregister ends the run's work in this process. If the run has to be continued, its lease
// is released.
func (d *driver) unregister() {
	d.declared.hangUp()
	d.calls.settleHolds()
	d.endTurn()
	defer d.run.appends.end()
	state := d.run.state()
	over := d.aside || state.Finished != nil || state.Accepted != nil && state.ActiveSince == 0
	d.leases.unregister(d.run.ctx, &d.live, over, d.unsure, d.failed)
}

// noticeEnd appends the fact for the end of the run's context, if it has ended. It returns
// errHandOver or ErrFenced if another owner continues the run, and an error if the lease
// could not be renewed in time.
func (d *driver) noticeEnd() error {
	if d.yields() {
		return errHandOver
	}
	if !d.run.relay {
		if err := d.leases.check(d.run.written); err != nil {
			return journal.Unavailable(err)
		}
	}
	if d.run.state().Ended != "" {
		return nil
	}
	if d.run.ctx.Err() == nil {
		if d.run.state().TimeIsUp(d.run.now()) {
			return d.run.append(nil, loop.Expired{})
		}
		return nil
	}
	var refused *memlimit.Refused
	switch cause := context.Cause(d.run.ctx); {
	case errors.As(cause, &refused):
		limit := fault.From(refused)
		return d.run.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Memory, Code: limit.Reason, Detail: limit.Message})
	case errors.Is(cause, journal.ErrFenced):
		return journal.ErrFenced
	case errors.Is(cause, errDeadline):
		return d.run.append(nil, loop.Expired{Cut: d.run.policy().Pauses()})
	case errors.Is(cause, errWoken):
		return d.catchUp()
	case goneCode(cause) != "":
		return d.run.append(nil, endOfGone(d.run.req.Principal, goneCode(cause)))
	case errors.Is(cause, errStopped) && d.run.durable():
		return errHandOver
	case errors.Is(cause, errStopped):
		return d.run.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost})
	}
	return d.run.append(nil, loop.CancelRequested{By: d.run.req.Principal, Cause: event.CallerGone})
}

// catchUp reads and applies the facts with which another writer ends the run.
func (d *driver) catchUp() error {
	if err := d.run.append(nil); err != nil || d.run.state().Ended != "" {
		return err
	}
	return fmt.Errorf("run %s: %w, but the run does not end by it", d.run.lease.RunID, errWoken)
}

// yields reports whether the run must be handed over to its next owner, because this process
// is stopping. Only durable runs can be continued.
func (d *driver) yields() bool {
	return d.run.durable() && d.leases.yielding.Load()
}

// finish appends the end of the run. Calls that the caller executes are stored as a
// handover before.
func (d *driver) finish(a loop.Finish) error {
	body := loop.Finished{Reason: a.Reason, Code: a.Cause.Code(a.Reason)}
	var callIDs map[string]string
	if len(a.HandOver) > 0 {
		var err error
		if body.HandedOver, callIDs, err = d.handOver(a.HandOver); err != nil {
			return err
		}
	}
	if err := d.keepSegment(callIDs); err != nil {
		return err
	}
	if d.loopParts != nil {
		if err := d.session.close(a.Reason, d.givenUp != nil, callIDs); err != nil {
			return err
		}
	}
	switch {
	case d.givenUp != nil:
		body.Code, body.Detail = loop.CodeJournalRefused, d.givenUp.Error()
	case a.Reason == event.Lost:
		body.Detail = eventlog.FatalCall(d.run.state(), a.Cause)
	case a.Reason == event.Memory:
		body.Detail = a.Cause.Detail
	}
	crash.At(crash.BeforeFinish)
	if err := d.run.append(nil, body); err != nil {
		if errors.Is(err, errDecideAgain) {
			d.dropSegment() // the run goes on, and what it has said with it
		}
		return err
	}
	d.run.log.Debug("finished", "reason", a.Reason, "rounds", d.run.state().Spent.Rounds, "tokens", d.run.state().Spent.Tokens)
	return nil
}

// discover lists the tools of the org's servers and appends what it found.
func (d *driver) discover() error {
	run := &d.run
	set, err := d.o.Catalog.For(run.ctx, run.req.Org, run.req.Servers, time.Duration(run.policy().CatalogTTLNS))
	if err != nil {
		return run.stopped(err, failedServer(err))
	}
	d.tools.catalog = set
	d.tools.choose()
	known := d.tools.known()
	body := loop.Catalogued{
		Servers: run.state().Announce(set.Servers), Collisions: set.NewCollisions(), Conflict: known.Conflict(), Missing: known.Missing(d.tools.choice),
	}
	for _, t := range d.tools.offered(false) {
		body.Bytes += int64(len(t.Name) + len(t.Description) + len(t.InputSchema))
	}
	memory := run.account.Share()
	defer memory.Close()
	rows, err := d.tools.listed(&body, memory)
	if err != nil {
		return err
	}
	if run.durable() {
		body.CatalogRef = catalogRef
		rows = append(rows, d.tools.row())
	}
	return run.append(rows, body)
}

// park appends that the calls wait for a person. A waiting run has no
// goroutine, lease or slot. A light run becomes durable: the request and the tools are stored
// for its next owner. Calls that were decided before they are asked for do not wait.
func (d *driver) park(a loop.Interrupt) error {
	if ended, err := d.noticeGone(); ended || err != nil {
		return cmp.Or(err, errDecideAgain)
	}
	s := d.run.state()
	var asked []loop.CallWaiting
	for _, key := range a.Calls {
		if c, _ := s.Call(key); c.Wait == nil {
			asked = append(asked, s.AskFor(key, d.o.NewID(approvalPrefix), d.run.now()))
		}
	}
	early := s.DecidedEarly(asked)
	bodies := bodiesOf(asked, early)
	if len(early) == len(a.Calls) {
		err := d.run.append(d.run.userMessageRows(bodies), bodies...)
		if capped := new(org.CapError); errors.As(err, &capped) {
			return d.calls.refuseToAsk(a.Calls, capped)
		}
		return cmp.Or(err, errDecideAgain) // it does not wait
	}
	active := d.run.now() - s.ActiveSince
	var rows []journal.Row
	if !d.run.durable() {
		rows = append(d.run.requestRows(), d.tools.row())
	}
	rows = append(rows, d.run.userMessageRows(bodies)...)
	if err := d.keepSegment(nil); err != nil {
		return err
	}
	err := d.run.append(rows, append(bodies, loop.Parked{ActiveMS: active})...)
	var capped *org.CapError
	if errors.Is(err, errDecideAgain) || errors.As(err, &capped) {
		d.dropSegment() // the run goes on, and its response with it
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

// bodiesOf returns the facts that ask for calls and decide some of them.
func bodiesOf(asked []loop.CallWaiting, early []loop.CallResolved) (out []loop.Body) {
	for _, w := range asked {
		out = append(out, w)
	}
	for _, d := range early {
		out = append(out, d)
	}
	return out
}

// pausePrefix begins the ids of the waits for a raise of limits.
const pausePrefix = "pause_"

// pause appends that the run waits for a raise of its limits. Like a run that waits for a person, it has no
// goroutine, lease or slot. A run that may not wait ends for its limit.
func (d *driver) pause(a loop.Pause) error {
	if ended, err := d.noticeGone(); ended || err != nil {
		return cmp.Or(err, errDecideAgain)
	}
	b := d.run.state().PauseFor(a, d.o.NewID(pausePrefix), d.run.now())
	err := d.run.append(nil, b)
	var capped *org.CapError
	switch {
	case errors.As(err, &capped):
		d.run.log.Warn("the run ends at its limit instead of waiting: no more runs can wait", "limit", a.Reason, "error", capped)
		b.Refused = capped.Error()
		return cmp.Or(d.run.append(nil, b), errDecideAgain)
	case err == nil:
		d.run.log.Warn("run_paused", "pause", b.WaitID, "limit", b.Reason, "budget", b.Scope, "principal", d.run.req.Principal,
			"expires_at", time.UnixMilli(b.ExpiresAt).UTC())
	}
	return err
}

// handOver returns the calls with the ids under which the caller gets them. If the run
// has items that the caller cannot send back, the ids are new, and the items are stored
// under them first; callIDs maps them to the provider's.
func (d *driver) handOver(keys []loop.CallKey) (calls []loop.HandedOverCall, callIDs map[string]string, err error) {
	run := &d.run
	h := journal.Conversation{RunID: run.lease.RunID, CallIDs: map[string]string{}}
	hides := run.state().HidesItems()
	var ids []journal.ConversationKey
	for _, key := range keys {
		c, _ := run.state().Call(key)
		id := c.ProviderID
		if hides {
			id = d.o.NewID(conversation.MintedPrefix)
			h.CallIDs[id] = c.ProviderID
			ids = append(ids, journal.ConversationKey{Kind: journal.CallID, ID: id})
		}
		calls = append(calls, loop.HandedOverCall{Key: c.Key, ID: id})
	}
	if !hides {
		return calls, nil, nil
	}
	h.Full = run.results.full
	h.Items = run.events.Transcript(run.state().HiddenRefs())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	if err := d.o.Conversations.Save(ctx, run.req.Org, run.req.Principal, h, journal.HandoverTTL, ids...); err != nil {
		run.storeFailed(err)
		return nil, nil, journal.Unavailable(fmt.Errorf("run %s: hand over: %w", run.lease.RunID, err))
	}
	return calls, h.CallIDs, nil
}

// keepSegment stores what the run has added to its conversation before the run ends or waits. callIDs
// are the ids of the calls that the client executes.
//
// The error wraps an *[journal.Unreadable] if the named conversation of a durable run cannot be decoded. A light
// run, which nobody could go on with, ends nevertheless, without its segment in the conversation. So
// does a run that is ended from outside or by a limit.
func (d *driver) keepSegment(callIDs map[string]string) error {
	run := &d.run
	keep := run.start.store
	if keep == nil || run.relay || run.state().AwaitsInput() {
		return nil
	}
	if c := run.state().Cancelled; c != nil && journal.GoneReason(*c) == loop.Deleted {
		d.dropSegment() // it may have been stored just before
		return nil
	}
	c := run.segment(callIDs)
	c.Previous, c.Parts, c.Owner = previousOf(run.req.Continues), run.start.parts, keep.Owner
	c.Input, c.RequestJSON, c.FinalOnly = keep.Input, keep.RequestJSON, keep.FinalOnly
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	encoded := heldBySegment(&c) + keep.bytes() // also beyond the limit: the run is at its end
	run.req.Account.Add(encoded)
	defer run.req.Account.Release(encoded)
	id := conversation.Segment{Run: run.lease.RunID, Part: run.state().Parks}.ID()
	err := conversation.SaveSegment(ctx, d.o.Conversations, run.req.Org, id, c, keep.For)
	if errors.Is(err, org.ErrExists) && run.state().Added() > 0 { // an owner before this one has stored it, and input has come since
		if _, err = conversation.DeleteSegment(ctx, d.o.Conversations, run.req.Org, id); err == nil {
			err = conversation.SaveSegment(ctx, d.o.Conversations, run.req.Org, id, c, keep.For)
		}
	}
	if named := run.req.Continues; named.Named && (err == nil || errors.Is(err, org.ErrExists)) { // an owner before this one may have stored it
		err = conversation.Append(ctx, d.o.Conversations, d.o.Archive, run.req.Org, named.ID, run.lease.RunID, id, keep.For)
	} else if errors.Is(err, org.ErrExists) {
		err = nil
	}
	var bad *journal.Unreadable
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad) && (run.state().Ended != "" || !run.durable()):
		run.log.Error("what a run has said is not added to its conversation", "segment", id, "error", err)
		return nil
	case bad != nil:
		return err
	}
	run.storeFailed(err)
	return journal.Unavailable(fmt.Errorf("run %s: store its part of the conversation: %w", run.lease.RunID, err))
}

// segment returns what the run has added to its conversation. callIDs are the ids of the calls that the client executes.
func (s *runState) segment(callIDs map[string]string) journal.Conversation {
	input := s.events.Items("input")
	input = input[min(s.start.notOwn, len(input)):]
	c := journal.Conversation{
		RunID: s.lease.RunID, Items: append(slices.Clip(input), s.events.Transcript(s.state().HiddenRefs())...), Part: s.state().Parks + 1,
		Full: map[string]string{}, CallIDs: callIDs, Listed: s.state().Listed(), Target: lastTarget(s.state()),
	}
	c.Items = append(c.Items, s.unansweredCalls()...)
	c.Items = append(c.Items, s.cutText()...)
	c.Items = append(c.Items, s.events.Transcript(s.state().LateRefs())...)
	c.Origins, c.Compaction = s.origins(len(input)), s.compaction(c.Items)
	for id, text := range s.results.full {
		if !s.start.inherited[id] {
			c.Full[id] = text
		}
	}
	return c
}

// heldBySegment returns the memory that a segment occupies, in bytes.
func heldBySegment(c *journal.Conversation) int {
	return eventlog.HeldBytes(c.Items) + heldByCompaction(c.Compaction)
}

// relay performs a relay and records it in the audit log. While the store cannot be
// written, nothing is relayed.
func (d *driver) relay() error {
	if d.o.Recorder == nil {
		return d.perform()
	}
	if err := d.leases.health.err(); err != nil {
		return journal.Unavailable(err)
	}
	if err := d.perform(); err != nil {
		return err
	}
	ctx := context.WithoutCancel(d.run.ctx) // also if the caller has disconnected
	entry := d.relayEntry()
	if err := d.o.Recorder.Record(ctx, d.run.req.Org, entry); err != nil {
		d.run.log.Error("a relayed request was not recorded in the audit log", "request", d.run.lease.RunID, "org", d.run.req.Org, "error", err)
		d.run.storeFailed(err)
		return nil
	}
	d.observer.recorded(d.run.req.Org, entry)
	return nil
}

// relayEntry returns the audit entry of the relay.
func (d *driver) relayEntry() audit.Entry {
	target, now := d.run.req.Targets[d.run.state().Attempt.Target], d.o.Now()
	r := audit.Request{
		Surface: audit.SurfaceRelay, Via: d.run.req.Surface, EndUser: d.run.req.EndUser, Provider: target.Provider, Model: d.run.req.Model, Target: target.Model,
		Attempts: d.model.relayed.attempts, Status: audit.OK, HTTPStatus: d.model.relayed.status, Bytes: d.model.relayed.bytes,
	}
	r.LatencyMS, r.TTFTMS = d.model.timing.times(time.Now())
	u := d.run.state().Usage // of a translated relay, or of one that spends from budgets
	r.CachedTokens, r.ReasoningTokens, r.GPUMS, r.CacheWriteTokens = u.CachedInput, u.Reasoning, u.GPUMS, u.CacheWrite
	charged(&r, d.run.state().Charged)
	if turn := d.run.state().Turn; turn != nil && turn.Purpose == loop.PurposeTurn {
		r.ToolCalls, r.Stop = len(turn.Calls), string(turn.Stop)
	}
	if d.model.relayed.status >= 400 || d.model.relayed.attempts == 0 { // refused by the provider, or by a budget
		r.Status = audit.Failed
	}
	if failed := d.run.state().Attempt.Failed; failed != nil {
		r.Status, r.Class = audit.Failed, string(failed.Class)
	}
	return audit.Entry{Kind: audit.KindRequest, At: now.UnixMilli(), Principal: d.run.req.Principal, RunID: d.run.req.Within, RequestID: d.run.lease.RunID, Body: r}
}

// lastTarget returns the target that has answered last in the run; zero = none has.
func lastTarget(state *loop.State) event.Target {
	if state.Turn == nil {
		return event.Target{}
	}
	i := state.Attempt.Target
	if i < 0 || i >= len(state.Accepted.Targets) {
		return event.Target{}
	}
	t := state.Accepted.Targets[i]
	return event.Target{Provider: t.Provider, Model: t.Model}
}
