package run

import (
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// slotRetry is how long a caller is asked to wait for a slot: runs are over
// within their deadline.
const slotRetry = 60 * time.Second

// storeRetry is how long a caller is asked to wait for a store that cannot be
// written.
const storeRetry = 5 * time.Second

// accept opens the journal with what was asked for.
func (d *drive) accept() error {
	body := d.accepted()
	if body.Raw {
		if err := d.append(nil, body); err != nil {
			return err
		}
		d.emit(event.Started{RunID: d.lease.RunID, Model: d.req.Model, At: time.UnixMilli(d.state.At)})
		return nil
	}
	items, err := d.splice(d.req.Items)
	if err != nil {
		return err
	}
	batch := Batch{Rows: d.store("input", items), Opening: &Opening{Slots: d.req.Concurrency, Key: d.req.Key}}
	if d.req.Grade == loop.Durable {
		body.RequestRef = requestRef
		batch.Rows = append(batch.Rows, d.requestRows()...)
	}
	crash.At(crash.BeforeAccept)
	input := loop.InputAdded{ItemsRef: "input", By: "client", Truncated: len(d.full) > 0, Bytes: textBytes(items)}
	if err := d.commit(batch, body, input); err != nil {
		return d.refused(err)
	}
	crash.At(crash.AfterAccept)
	d.confirm(d)
	d.emit(event.Started{RunID: d.lease.RunID, Model: d.req.Model, At: time.UnixMilli(d.state.At)})
	return nil
}

func (d *drive) accepted() loop.Accepted {
	req := d.req
	body := loop.Accepted{
		RunID: d.lease.RunID, Org: req.Org, Principal: req.Principal, Surface: req.Surface, Grade: req.Grade,
		Raw: req.Raw != nil, Model: req.Model, Limits: req.Limits, Parallelism: req.Parallelism,
		AbortOnTool: req.AbortOnTool, NoTools: req.ToolChoice.Mode == "none", Guard: req.Guard, MaxTokens: req.MaxTokens, Budgets: req.Budgets,
	}
	for _, t := range req.Targets {
		body.Targets = append(body.Targets, loop.Target{Provider: t.Provider, Model: t.Name})
	}
	body.Rules = d.o.Rules
	return body.WithDefaults()
}

// refused says in words for the caller why a run was not accepted.
func (d *drive) refused(err error) error {
	var known *Submitted
	var capped *org.CapError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &capped):
		return &fault.Error{Code: fault.Limited, Reason: "insufficient_quota", Message: capped.Error(), Err: err}
	case errors.Is(err, ErrNoSlot):
		refused := fault.New(fault.Limited, "concurrency_limit",
			"the org is at its limit of %d runs at a time (concurrency); try again later", d.req.Concurrency)
		refused.RetryAfter = slotRetry
		return refused
	}
	d.unsure = true
	return err
}

// unavailable is what a caller is told while the store takes no writes.
func unavailable(err error) error {
	refused := fault.New(fault.Unavailable, "store_unavailable", "the gateway cannot record runs at the moment; try again later")
	refused.RetryAfter, refused.Err = storeRetry, err
	return refused
}

// textBytes is how much a model reads in the items: of each answer the larger of
// its native and its plain form, because the provider gets one of them.
func textBytes(items []item.Item) int64 {
	total := 0
	for turn := range item.Turns(items) {
		native, plain := 0, 0
		for _, it := range turn {
			native += len(it.Native.JSON)
			plain += len(it.Name) + len(it.Arguments)
			for _, p := range it.Parts {
				plain += len(p.Text)
			}
		}
		total += max(native, plain)
	}
	return int64(total)
}
