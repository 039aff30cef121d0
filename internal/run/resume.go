package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/model"
)

// The refs of the rows that a durable run stores for its next owner.
const (
	requestRef = "request"
	catalogRef = "catalog"
	inputFull  = "full:input"
	traceRef   = "trace" // of the run's trace context, see Observer
)

// storedRequest is the part of a run's request that Accepted does not have.
type storedRequest struct {
	ClientTools []model.Tool       `json:"client_tools,omitempty"`
	Hosted      []model.HostedTool `json:"hosted_tools,omitempty"`
	ToolChoice  model.ToolChoice   `json:"tool_choice,omitzero"`
	Options     model.Options      `json:"options,omitzero"`
	Params      []model.Param      `json:"params,omitempty"`
	Dialect     string             `json:"dialect,omitempty"`
	OnlyOf      []ServerTool       `json:"only_of,omitempty"`
	Brought     []string           `json:"brought_servers,omitempty"` // names, see Request.brought
	Declared    []storedDeclared   `json:"declared_servers,omitempty"`
	Previous    string             `json:"previous,omitempty"`
	Session     string             `json:"session,omitempty"`
	Settings    map[string]string  `json:"settings,omitempty"`
	Keep        *Keep              `json:"keep,omitempty"`
	NotOwn      int                `json:"not_own,omitempty"`
	Parts       []string           `json:"parts,omitempty"`
	Inherited   map[string]bool    `json:"inherited,omitempty"`
}

// requestRows returns the rows from which requestOf restores the request.
func (s *runState) requestRows() []journal.Row {
	q := s.req
	rows := []journal.Row{{Ref: requestRef, Value: storedRequest{
		ClientTools: q.ClientTools, Hosted: q.Hosted, ToolChoice: q.ToolChoice, Options: q.Options, Params: q.Params, Dialect: q.Dialect,
		OnlyOf: q.OnlyOf, Brought: q.namesOfBrought(), Declared: s.storeDeclared(),
		Previous: q.Previous, Session: q.Session, Settings: q.Settings, Keep: q.Keep, NotOwn: q.notOwn, Parts: q.parts, Inherited: q.inherited,
	}}}
	if len(s.results.full) > 0 { // of a run that waits now, its own as well
		rows = append(rows, journal.Row{Ref: inputFull, Value: s.results.full})
	}
	return rows
}

// requestOf restores the request of a run from its journal. The policy, the models and
// the servers are missing: the policy is in Accepted, for the others see restoreResources.
//
// parks is how often the run has waited: requests may have continued it since.
func requestOf(a *loop.Accepted, parks int, rows map[string]json.RawMessage) (*Request, error) {
	var q storedRequest
	if raw, ok := rows[requestRef]; ok {
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, journal.Damaged(requestRef, err)
		}
	}
	for n := 1; n <= parks; n++ { // what the requests brought that have continued the run
		raw, ok := rows[partRef(n)]
		if !ok {
			continue
		}
		var part storedPart
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, journal.Damaged(partRef(n), err)
		}
		q.take(part)
	}
	return &Request{
		Org: a.Org, Principal: a.Principal, Surface: a.Surface, Model: a.Model,
		ClientTools: q.ClientTools, Hosted: q.Hosted, ToolChoice: q.ToolChoice, Options: q.Options, Params: q.Params, Dialect: q.Dialect,
		OnlyOf: q.OnlyOf, brought: q.Brought, stored: q.Declared, Previous: q.Previous, Session: q.Session, Keep: q.Keep, notOwn: q.NotOwn, parts: q.Parts, inherited: q.Inherited,
	}, nil
}

// take takes what a request brought that has continued the run: how its response is stored, and
// the credentials of its servers.
func (q *storedRequest) take(part storedPart) {
	q.Keep = part.Keep
	for i := range q.Declared {
		for _, again := range part.Declared {
			if again.Label == q.Declared[i].Label {
				q.Declared[i].Address = again.Address
			}
		}
	}
}

// takeOver performs a run that was claimed. Callers can follow it when takeOver returns.
func (r *Runner) takeOver(lease journal.Lease) {
	account := r.o.Memory.Open(lease.Org)
	feed := r.followers.NewFeed(lease.Key(), account, false)
	d := r.newDriver(r.leases.base, &Request{Org: lease.Org, Account: account}, lease, account, feed)
	d.live.feed = feed
	if err := r.leases.adopt(&d.live, true); err != nil {
		account.Close()
		return // the lease expires
	}
	go d.lead(d.resume)
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
	d.run.log.Info("run taken over", "grade", d.run.state().Grade, "epoch", d.run.lease.Epoch, "facts", len(story.Facts))
	if err := d.run.append(nil, loop.Resumed{By: d.run.lease.Owner, HandedOver: d.run.lease.Handed}); err != nil {
		return err
	}
	return d.observed(true, func() error { return d.playRest(story) })
}

// read folds the journal of a claimed run and restores its request. The error wraps
// [loop.ErrUnsafe], or it is an *[journal.Unreadable].
func (d *driver) read(story *journal.Story) error {
	err := d.run.events.Recover(story, func(b loop.Body) error { return d.run.results.recall(d.run.lease.RunID, b, story.Rows) })
	if err == nil {
		d.run.req, err = requestOf(d.run.state().Accepted, d.run.state().Parks, story.Rows)
	}
	return err
}

// playRest plays the rest of a claimed run. A run whose models or tools are not available any
// more is lost.
func (d *driver) playRest(story *journal.Story) error {
	stop := d.deadline.start(&d.run)
	defer stop()
	if d.run.state().Ended == "" && executesApproved(d.run.state()) {
		if _, err := noticeGone(d); err != nil && !errors.Is(err, errDecideAgain) {
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
		if err != nil && d.run.ctx.Err() == nil { // if ctx has ended, that is the reason for the error
			d.run.log.Error("the run cannot continue", "error", err)
			if err := d.run.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost}); err != nil {
				return err
			}
		} else if err == nil && now != nil {
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
	d.run.req, _ = requestOf(d.run.state().Accepted, 0, nil) // without rows there is nothing to be decoded
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
	d.run.req.Declared = d.run.recallDeclared(d.run.req.stored)
	if err := d.declared.dial(); err != nil {
		return nil, err
	}
	if d.run.state().Catalogued == nil { // Discover follows
		return nil, d.run.req.missesBrought()
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
		entry := d.tools.withReread(d.tools.catalog).Lookup(c.Name)
		if entry == nil {
			return nil, journal.Damaged(catalogRef, fmt.Errorf("tool %q of call %s is missing", c.Name, c.Key))
		}
		d.calls.keep(c.Key, prepared{entry, arguments})
	}
	return now, nil
}

// listAge returns how old the tool lists may be from which a run goes on. Those for a call
// that a person has approved are from after the decision.
func (s *runState) listAge() time.Duration {
	age := time.Duration(s.policy().CatalogTTLNS)
	for _, c := range s.state().Calls {
		if approvedToRun(c) {
			age = min(age, time.Duration(max(0, s.now()-c.Decided))*time.Millisecond)
		}
	}
	return age
}

// accepted returns the digests of the tools that were changed since the run began and were
// shown to a person since, by name.
func (s *runState) accepted() map[string]string {
	out := map[string]string{}
	for _, c := range s.state().Calls {
		if c.Prepared != nil && c.Prepared.Again > 0 {
			out[c.Name] = c.Prepared.ToolDigest
		}
	}
	return out
}
