package run

import (
	"errors"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// slotRetry is the Retry-After of a caller for whom no slot is free.
const slotRetry = 60 * time.Second

// accept opens the journal with the request.
func (d *driver) accept() error {
	if d.run.relay {
		return d.acceptRelay(d.run.req.accepted(d.run.lease.RunID))
	}
	if err := d.declared.dial(); err != nil {
		return err
	}
	memory := d.run.req.Account.Share()
	defer memory.Close()
	input, err := splice(d.run.ctx, d.o.Conversations, d.run.req, memory)
	if err != nil {
		return err
	}
	d.run.begins(input)
	body, items := d.run.req.accepted(d.run.lease.RunID), input.items
	memory.Close()
	room, err := d.run.roomFor(items)
	if err != nil {
		return err
	}
	defer room.Close()
	rows := d.run.events.Store("input", items) // which counts all items
	batch := journal.Batch{Rows: rows, Opening: &journal.Opening{Slots: body.Slots, Key: d.run.req.Key}}
	if body.Grade == loop.Durable {
		body.RequestRef = requestRef
		batch.Rows = append(batch.Rows, d.run.requestRows()...)
	}
	crash.At(crash.BeforeAccept)
	added := loop.InputAdded{ItemsRef: "input", By: loop.ByClient, Truncated: len(d.run.results.full) > 0, Bytes: eventlog.TextBytes(items)}
	if err := d.run.commit(batch, body, added); err != nil {
		return d.refused(err)
	}
	d.leases.confirm(&d.live)
	return nil
}

// roomFor charges what the run needs at least, before anything of it is stored: the items, and
// the request to the provider that is made of them, which is encoded in a buffer that grows. What
// is stored needs the same room, earlier.
func (s *runState) roomFor(items []item.Item) (*memlimit.Share, error) {
	n := eventlog.HeldBytes(items)
	room := s.req.Account.Share()
	if err := room.Acquire(3 * n); err != nil {
		return nil, err
	}
	room.Release(n) // Writer.Store counts it
	return room, nil
}

// begins takes what the transcript of the request begins with.
func (s *runState) begins(input beginning) {
	s.results.keep(input.full)
	if input.before == 0 {
		return
	}
	req := *s.req // which belongs to the caller
	req.notOwn, req.inherited, req.parts, req.lastTarget = input.before, input.inherited, input.parts, input.lastTarget
	for _, label := range input.listed {
		if !slices.Contains(req.Listed, label) {
			req.Listed = append(slices.Clip(req.Listed), label)
		}
	}
	s.req = &req
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
	return d.run.append(nil, body, loop.InputAdded{ItemsRef: "input", By: loop.ByClient, Bytes: eventlog.TextBytes(items)})
}

// accepted returns the fact that opens the journal of a run for the request.
func (r *Request) accepted(runID string) loop.Accepted {
	body := loop.Accepted{
		RunID: runID, Org: r.Org, Principal: r.Principal, Surface: r.Surface,
		Raw: r.Raw != nil, Model: r.Model, Policy: r.Policy.WithDefaults(), Listed: r.Listed, CallerAt: r.callerAt,
	}
	for _, t := range r.Targets {
		body.Targets = append(body.Targets, t.Target)
	}
	return body
}

// refused returns the error for the caller of a run that was not accepted.
func (d *driver) refused(err error) error {
	var known *journal.Submitted
	var capped *org.CapError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &capped):
		return &fault.Error{Code: fault.Limited, Reason: "insufficient_quota", Message: capped.Error(), Err: err}
	case errors.Is(err, journal.ErrNoSlot):
		refused := fault.New(fault.Limited, "concurrency_limit",
			"the org is at its limit of %d runs at a time (concurrency); try again later", d.run.req.Policy.Slots)
		refused.RetryAfter = slotRetry
		return refused
	}
	d.unsure = true
	return err
}
