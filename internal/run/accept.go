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
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
)

// slotRetry is the Retry-After of a caller for whom no slot is free.
const slotRetry = 60 * time.Second

// accept opens the journal with the request.
func (d *driver) accept() (err error) {
	begins := d.opening()
	if err := checkPrices(begins); err != nil {
		return err
	}
	if d.run.relay {
		return d.acceptRelay(begins)
	}
	if err := d.declared.dial(); err != nil {
		return err
	}
	defer d.run.req.forget()
	d.run.nameInput()
	var deferred bool
	for { // again if the conversation has changed since it was read
		var opened *openedSession
		if opened, err = d.session.open(); err != nil {
			return err
		}
		deferred, err = d.open()
		if opened.accepted(&d.run, d.unsure, err); !errors.Is(err, journal.ErrChanged) || d.run.ctx.Err() != nil {
			break
		}
	}
	switch {
	case err != nil:
		return err
	case d.run.req.Background:
		return nil
	}
	d.leases.confirm(&d.live)
	if deferred {
		if err := d.addInput(); err != nil {
			d.run.log.Debug("the input of a run is not added yet", "error", err) // the rules ask for it again
		}
	}
	return nil
}

// open stores the first batch of the run. deferred says that the input is added later. An error that wraps
// journal.ErrChanged says that the conversation is another one than the run has read.
func (d *driver) open() (deferred bool, err error) {
	var input input
	defer input.free()
	asked := d.run.req
	d.run.start.listed = asked.Listed
	d.run.results.forget()
	switch {
	case asked.Deferred: // it is read when the run begins
	case asked.addsLater():
		if _, err := asked.beginning(d.run.ctx, d.o); err != nil {
			return false, err
		}
	default:
		if err := input.read(d); err != nil {
			return false, err
		}
	}
	body := d.opening()
	body.Deferred = asked.addsLater()
	batch := journal.Batch{Rows: input.rows, Opening: &journal.Opening{Slots: body.Slots, Key: d.run.req.Key, Turn: d.run.req.Turn}}
	if asked.Continues.Named {
		batch.Opening.Adds = &journal.Adds{Conversation: asked.Continues.ID, Version: input.version}
	} else if name, ok := d.run.sessionName(); ok {
		batch.Opening.Adds = &journal.Adds{Conversation: name.Stored(), Version: input.version, Alone: true}
	}
	if d.run.req.Background {
		body.Queued, batch.Opening.Slots, batch.Opening.Queue = true, 0, d.run.req.MaxQueued
	}
	if body.Grade == loop.Durable {
		body.RequestRef = requestRef
		batch.Rows = append(batch.Rows, d.run.requestRows()...)
	} else if keep := d.run.start.store; keep != nil {
		batch.Rows = append(batch.Rows, journal.Row{Ref: storeRef, Value: keep})
	}
	batch.Rows = append(batch.Rows, d.session.rows()...)
	crash.At(crash.BeforeAccept)
	err = d.run.commit(batch, append([]loop.Body{body}, input.facts...)...)
	if err != nil && !errors.Is(err, journal.ErrChanged) {
		err = d.refused(err)
	}
	return body.Deferred, err
}

// addInput adds the input of a run that was accepted without it. What was read of the conversation before the run was
// accepted is read again if it has changed, or if the turn before had not ended: only now no other turn can add to it.
func (d *driver) addInput() error {
	if read := d.run.req.begins; read != nil {
		parts, err := conversation.Parts(d.run.ctx, d.o.Conversations, d.run.req.Org, d.run.req.Continues.ID)
		if err != nil || read.Early || !slices.Equal(parts, read.Parts) {
			d.run.req.forget()
		}
	}
	var input input
	defer input.free()
	if err := input.read(d); err != nil {
		return d.cannotBegin(err)
	}
	crash.At(crash.BeforeInput)
	return d.run.append(append(slices.Clip(input.rows), d.run.requestRowsAs(begunRef)...), input.facts...)
}

// cannotBegin ends a run that was accepted without its input if the input cannot be added later either. Any other
// error is returned.
func (d *driver) cannotBegin(err error) error {
	var refused *fault.Error
	switch {
	case d.run.ctx.Err() != nil:
		return errDecideAgain
	case errors.Is(err, conversation.ErrNotStored):
		return d.run.append(nil, endOfGone(d.run.req.Principal, loop.Deleted))
	case errors.As(err, &refused) && (refused.Code == fault.Invalid || refused.Code == fault.TooLarge):
		return d.run.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Memory, Code: refused.Reason, Detail: refused.Message})
	}
	return err
}

// input is what the transcript of a run begins with, as it is stored. The zero value is nothing.
type input struct {
	rows  []journal.Row
	facts []loop.Body
	room  *memlimit.Share

	version int64 // of the named conversation that it continues; 0 = it continues none
}

// read reads what the request of the run continues, and makes it the begin of its transcript.
func (in *input) read(d *driver) error {
	asked := d.run.req
	defer asked.forget()
	began, err := asked.beginning(d.run.ctx, d.o)
	if err != nil {
		return err
	}
	d.run.begins(began)
	asked.Continues.Cut, in.version = began.Cut, began.Version
	asked.forget()
	files, err := asked.filesOf(&asked.Policy, began.Items)
	if err != nil {
		return err
	}
	if in.room, err = roomFor(d.run.req.Account, began.Items); err != nil {
		return err
	}
	d.run.events.Store("input", began.Items) // which counts all items
	front := len(asked.System)
	in.rows = []journal.Row{{Ref: "input", Value: journal.Prompt{Front: began.Items[:front], Rest: began.Items[front:]}}}
	in.facts = []loop.Body{loop.InputAdded{ItemsRef: "input", By: loop.ByClient, Truncated: len(d.run.results.full) > 0, Bytes: window.Bytes(files.Shown(began.Items))}}
	return nil
}

// free releases the memory that storing the input needs.
func (in *input) free() {
	if in.room != nil {
		in.room.Close()
	}
}

// nameInput gives each item of the input that is stored with the conversation an id.
func (s *runState) nameInput() {
	s.start.store = s.start.store.named(conversation.Segment{Run: s.lease.RunID})
}

// roomFor charges what the run needs at least, before anything of it is stored: the items, and
// the request to the provider that is made of them, which is encoded in a buffer that grows. What
// is stored needs the same room, earlier.
func roomFor(account *memlimit.Account, items []item.Item) (*memlimit.Share, error) {
	n := eventlog.HeldBytes(items)
	room := account.Share()
	if err := room.Acquire(3 * n); err != nil {
		return nil, err
	}
	room.Release(n) // Writer.Store counts it
	return room, nil
}

// begins takes what the transcript of the request begins with.
func (s *runState) begins(input *beginning) {
	s.results.keep(input.Full)
	s.start.place = input.Place
	s.start.notOwn, s.start.inherited, s.start.parts, s.start.lastTarget = input.Before, input.Inherited, input.Parts, input.LastTarget
	for _, label := range input.Listed {
		if !slices.Contains(s.start.listed, label) {
			s.start.listed = append(slices.Clip(s.start.listed), label)
		}
	}
}

// acceptRelay begins a relay, of which no facts are stored. The caller's items go to the
// provider unchanged, also call ids that the gateway has made for another run.
func (d *driver) acceptRelay(body loop.Accepted) error {
	if body.Raw {
		return d.run.append(nil, body)
	}
	d.tools.catalog = new(catalog.Set) // the gateway has no tools here
	d.tools.choose()
	if missing := d.tools.known().Missing(d.run.req.ToolChoice); missing != "" {
		return fault.New(fault.Invalid, loop.CodeToolChoice, "tool_choice requires a call of %s, but the request has no such tool", missing).In("tool_choice")
	}
	items := slices.Concat(d.run.req.System, d.run.req.Items)
	d.run.events.Store("input", items)
	return d.run.append(nil, body, loop.InputAdded{ItemsRef: "input", By: loop.ByClient, Bytes: window.Bytes(items)})
}

// opening returns the fact that opens the journal of the run.
func (d *driver) opening() loop.Accepted {
	body := d.run.req.accepted(d.run.lease.RunID, d.o.Price)
	body.Listed, body.CallerAt = d.run.start.listed, d.run.callerAt
	d.sealSummarizer(&body)
	return body
}

// accepted returns the fact that opens the journal of a run for the request, and seals the
// prices and windows in its targets. Price may be nil.
func (r *Request) accepted(runID string, price func(loop.Target) money.Price) loop.Accepted {
	body := loop.Accepted{
		RunID: runID, Org: r.Org, Principal: r.Principal, EndUser: r.EndUser, Surface: r.Surface,
		Raw: r.Relay.isRaw(), RawBytes: r.Relay.rawBytes(), Model: r.Model, Policy: r.Policy.WithDefaults(),
		AgentSession: r.AgentSession, Agent: r.Agent, Remembered: r.Continues.Remembered,
	}
	if r.Relay != nil {
		body.Grade = loop.Relay
	}
	for _, t := range r.Targets {
		sealed := t.Target
		if r.Policy.Context.Mode == loop.ContextOff {
			sealed.Window = window.Size{}
		}
		sealed.OwnContext = r.asksToShorten(t)
		if price != nil {
			sealed.Price = price(sealed)
		}
		body.Targets = append(body.Targets, sealed)
	}
	return body
}

// checkPrices refuses a run with a limit on money of whose models none has a price: nobody could say
// what it costs.
func checkPrices(a loop.Accepted) error {
	if !a.LimitsMoney() || slices.ContainsFunc(a.Targets, func(t loop.Target) bool { return t.Price.Known() }) {
		return nil
	}
	t := a.Targets[0]
	return fault.New(fault.Invalid, "model_without_price", "the model %s of the provider %s has no price, and a limit on money applies (budgets or max_run_cost_usd); "+
		"use a model with a price, or ask the operator to add one to rates", t.Model, t.Provider).In("model")
}

// refused returns the error for the caller of a run that was not accepted.
func (d *driver) refused(err error) error {
	if errors.Is(err, journal.ErrQueueFull) {
		d.run.log.Warn("a background run was refused: the queue of its org is full", "max_queued_runs", d.run.req.MaxQueued)
	}
	refused, answer := d.run.req.refusal(err)
	d.unsure = d.unsure || !refused
	return answer
}

// refusal returns the answer to an error of the store for a request whose run, or its session, is to begin. Not refused
// says that the error is returned, and nobody knows what the store has stored.
func (r *Request) refusal(err error) (refused bool, answer error) {
	var known *journal.Submitted
	var capped *org.CapError
	var busy *journal.SessionBusy
	switch {
	case errors.As(err, &known):
		return true, known
	case errors.As(err, &busy) && r.Continues.Resent:
		return true, conversation.Busy(r.Continues.ID)
	case errors.As(err, &busy):
		f := fault.New(fault.Conflict, "session_busy", "the session %s has the run %s, which has not ended; wait for its end, cancel it, or send when_busy", busy.Session, busy.RunID).In("session_id")
		f.Err = busy
		return true, f
	case r.Turn != nil && errors.Is(err, org.ErrNotFound): // it was deleted meanwhile
		return true, err
	case errors.As(err, &capped):
		return true, journal.Capped(capped)
	case errors.Is(err, journal.ErrNoSlot):
		f := fault.New(fault.Limited, "concurrency_limit",
			"the org is at its limit of %d runs at a time (concurrency); try again later", r.Policy.Slots)
		f.RetryAfter = slotRetry
		return true, f
	case errors.Is(err, journal.ErrQueueFull):
		f := fault.New(fault.Limited, "queue_full",
			"the org is at its limit of %d queued runs (max_queued_runs); try again later, or cancel some", r.MaxQueued)
		f.RetryAfter = slotRetry
		return true, f
	}
	return false, err
}

// resume folds the journal, appends Resumed and continues the run. It returns an *[journal.Unreadable] if
// the journal cannot be decoded, unless the run was cancelled. A journal that is not safe ends
// the run.
func (d *driver) resume() error {
	// The run may be woken or stopped meanwhile. What is read then says what to do.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.run.ctx), storeTimeout)
	defer cancel()
	story, err := d.o.Archive.Load(ctx, d.run.lease.Org, d.run.lease.RunID)
	var bad *journal.Unreadable
	if err != nil && !errors.As(err, &bad) {
		return journal.Unavailable(fmt.Errorf("run %s: %w", d.run.lease.RunID, err))
	}
	if err == nil {
		d.observer.recallTrace(story.Rows)
		d.run.account.Add(story.Size()) // also beyond the limit: the run was accepted
		if err = d.read(story); errors.As(err, &bad) {
			bad.Story, bad.Last = story, story.Last()
		}
	}
	switch {
	case bad != nil && cancelled(bad.Story.Facts):
		d.observer.recallTrace(bad.Story.Rows)
		return d.giveUp(bad.Story, bad.Last, bad)
	case bad != nil:
		return bad
	case err != nil:
		return d.giveUp(story, story.Last(), err)
	}
	if err := d.awaitTurn(); err != nil {
		return err
	}
	d.run.date()
	if s := d.run.state(); s.Accepted.Queued && s.ActiveSince == 0 && s.ActiveMS == 0 && s.Ended == "" {
		d.run.log.Debug("queued run begun", "grade", s.Grade, "queued_ms", d.run.now()-s.At)
	} else {
		d.run.log.Info("run goes on", "grade", s.Grade, "epoch", d.run.lease.Epoch, "facts", len(story.Facts))
	}
	if err := d.run.append(nil, loop.Resumed{By: d.run.lease.Owner, HandedOver: d.run.lease.Handed}); err != nil {
		return err
	}
	return d.observed(true, func() error { return d.playRest(story) })
}

// read folds the journal of a claimed run and restores its request. The error wraps
// [loop.ErrUnsafe], or it is an *[journal.Unreadable].
func (d *driver) read(story *journal.Story) error {
	err := d.run.events.Recover(story, func(b loop.Body) error { return d.run.results.load(d.run.lease.RunID, b, story.Rows) })
	if err == nil {
		d.run.req, d.run.start, err = requestOf(d.run.state().Accepted, d.run.state().Parks, story.Rows)
		d.leases.belongs(&d.live, d.run.state().Accepted.Principal)
	}
	return err
}

// playRest plays the rest of a claimed run. A run whose models or tools are not available any
// more is lost.
func (d *driver) playRest(story *journal.Story) error {
	stop := d.deadline.start(&d.run)
	defer stop()
	if d.run.state().Ended == "" && executesApproved(d.run.state()) {
		if _, err := d.noticeGone(); err != nil && !errors.Is(err, errDecideAgain) {
			return err
		}
	}
	if d.run.state().Ended == "" {
		now, err := d.restoreResources(d.run.ctx, story.Rows)
		d.run.account.Release(story.Size()) // the rows are not needed any more
		var bad *journal.Unreadable
		if errors.As(err, &bad) {
			return bad
		}
		switch {
		case errors.Is(err, errSessionGone):
			if err := d.run.append(nil, endOfGone(d.run.req.Principal, loop.Deleted)); err != nil {
				return err
			}
		case err != nil && d.run.ctx.Err() == nil: // if ctx has ended, that is the reason for the error
			d.run.log.Error("the run cannot continue", "error", err)
			if err := d.run.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost}); err != nil {
				return err
			}
		case err == nil && now != nil:
			d.calls.latest = now
			if err := d.calls.prepareAgain(now); err != nil && !errors.Is(err, errDecideAgain) {
				return err
			}
		}
	}
	return d.play()
}

// giveUp ends a run that cannot be continued safely with its journal. Every call that was
// started gets an outcome first.
func (d *driver) giveUp(story *journal.Story, last int64, why error) error {
	d.run.log.Error("the run is given up", "error", why)
	d.givenUp = why
	d.run.events.Abandon(story, last)
	d.run.date()
	d.run.req, d.run.start, _ = requestOf(d.run.state().Accepted, 0, nil) // without rows there is nothing to be decoded
	d.run.req.Org = d.run.lease.Org
	return d.observed(true, func() error {
		if d.run.state().Ended == "" {
			if err := d.run.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost}); err != nil {
				return err
			}
		}
		return d.play()
	})
}

// restoreResources finds the run's models and servers, and restores its tools as they were
// when it began. It returns the tools as the servers have them now; nil if the run has not
// listed them yet. The error is an *[journal.Unreadable] if its journal cannot be decoded.
func (d *driver) restoreResources(ctx context.Context, rows map[string]json.RawMessage) (now *catalog.Set, err error) {
	if d.run.req.Targets, d.run.req.Servers, err = d.o.Resources.For(ctx, d.run.state().Accepted); err != nil {
		return nil, err
	}
	d.run.req.RequestServers = d.run.loadRequestServers(d.run.start.declared)
	if err := d.declared.dial(); err != nil {
		return nil, err
	}
	if d.run.state().Catalogued == nil { // Discover follows
		return nil, d.run.missesBrought()
	}
	var sealed []catalog.Sealed
	if err := json.Unmarshal(rows[catalogRef], &sealed); err != nil {
		return nil, journal.Damaged(catalogRef, err)
	}
	if now, err = d.o.Catalog.For(ctx, d.run.req.Org, d.run.req.Servers, d.run.listAge()); err != nil {
		return nil, err
	}
	if d.tools.catalog, err = now.Recall(sealed, d.run.accepted()); err != nil {
		return nil, journal.Damaged(catalogRef, err)
	}
	d.tools.choose()
	for _, c := range d.run.state().Calls {
		arguments, ok := d.run.events.Arguments(c.Key)
		if !ok {
			if c.Runnable() {
				return nil, journal.Damaged("args:"+string(c.Key), errors.New("the arguments of a call are missing"))
			}
			continue
		}
		entry := d.tools.withReread(d.tools.catalog).Callable(c.Name)
		if entry == nil {
			return nil, journal.Damaged(catalogRef, fmt.Errorf("tool %q of call %s is missing", c.Name, c.Key))
		}
		d.calls.keep(c.Key, prepared{entry: entry, arguments: arguments})
	}
	return now, nil
}

// runDetached performs a durable run in a goroutine of its own, which Close waits for.
func (d *driver) runDetached(perform func() error) {
	d.leases.tasks.Add(1) // Close waits for what follows unregister, too
	defer d.leases.tasks.Done()
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
	if a := d.run.state().Accepted; a != nil && (a.Queued || d.run.req.Continues.Named) { // its slot is free, and so is its session: others may be queued
		d.leases.claimSoon()
	}
}

// awaitTurn waits until the run may be resumed, if it is a suspect. Its turn ends with the
// commit after which it is none. It returns an error if this process must not continue
// the run.
func (d *driver) awaitTurn() error {
	run := &d.run
	if !run.state().Suspect() {
		return nil
	}
	run.log.Warn("the last owners of the run died before it got further: no other such run is resumed at the same time", "owners", run.state().DeadOwners)
	run.onCommit = func() {
		if !run.state().Suspect() {
			d.endTurn()
		}
	}
	return d.leases.suspects.await(run.ctx, &d.live)
}

// endTurn ends the turn of a suspect. It does nothing for any other run.
func (d *driver) endTurn() {
	if d.run.onCommit != nil {
		d.run.onCommit = nil
		d.leases.suspects.leave(&d.live)
	}
}

// setAside ends the lease of a run of which something cannot be decoded, and returns the error
// for its callers. No process claims the run until it is cancelled, or until a build starts that
// may be able to decode it. The error is errHandOver if somebody has written to the run since it
// was read, or has its lease.
func (d *driver) setAside(why *journal.Unreadable) error {
	a := journal.Aside{Reason: why.Error(), Build: d.o.Build, At: d.o.Now().UnixMilli()}
	if why.Newer() {
		a.Kind, a.Version = why.Kind, why.Version
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.run.ctx), storeTimeout)
	defer cancel()
	done, err := d.o.Leases.SetAside(ctx, d.run.lease, cmp.Or(why.Last, d.run.state().Seq), a)
	if err != nil {
		d.run.storeFailed(err)
		return journal.Unavailable(fmt.Errorf("run %s: set aside: %w", d.run.lease.RunID, err))
	}
	if !done {
		return errHandOver
	}
	d.aside = true
	d.run.log.Error("run set aside: cancel it, or start the build that has written what cannot be decoded", "reason", a.Reason, "build", a.Build)
	return journal.AsideError(d.run.lease.RunID, a.Reason)
}

// cancelled reports whether the facts have a request to end the run.
func cancelled(facts []loop.Fact) bool {
	for _, f := range facts {
		if f.Body.Kind() == loop.KindCancelRequested {
			return true
		}
	}
	return false
}
