package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/model"
)

// Resources finds what a run needs that its journal does not hold: models by
// name, and the tool servers of its org as they are now. Implemented by package
// app.
type Resources interface {
	// For returns an error that says what is gone if the run cannot go on.
	For(ctx context.Context, a *loop.Accepted) ([]Target, []catalog.Server, error)
}

// The rows that a durable run keeps for its next owner.
const (
	requestRef = "request"
	catalogRef = "catalog"
	inputFull  = "full:input"
)

// storedRequest is what the run's request said beside Accepted.
type storedRequest struct {
	ClientTools    []model.Tool        `json:"client_tools,omitempty"`
	ToolChoice     model.ToolChoice    `json:"tool_choice,omitzero"`
	Options        model.Options       `json:"options,omitzero"`
	Params         []model.Param       `json:"params,omitempty"`
	Dialect        string              `json:"dialect,omitempty"`
	CatalogTTL     time.Duration       `json:"catalog_ttl_ns,omitempty"`
	CacheTTL       time.Duration       `json:"cache_ttl_ns,omitempty"`
	ArgValidation  toolexec.Validation `json:"arg_validation,omitempty"`
	ResultMaxBytes int                 `json:"result_max_bytes,omitempty"`
	Live           bool                `json:"live,omitempty"`
}

// requestRows returns the rows from which requestOf makes the request again.
func (d *drive) requestRows() []Row {
	q := d.req
	rows := []Row{{requestRef, storedRequest{
		q.ClientTools, q.ToolChoice, q.Options, q.Params, q.Dialect, q.CatalogTTL, q.CacheTTL, q.ArgValidation, q.ResultMaxBytes, q.Live,
	}}}
	if len(d.full) > 0 && d.state.Accepted == nil {
		rows = append(rows, Row{inputFull, d.full})
	}
	return rows
}

func (d *drive) catalogRow() Row { return Row{catalogRef, d.tools.Seal()} }

// requestOf returns the request of a run as far as its journal knows it.
func requestOf(a *loop.Accepted, rows map[string]json.RawMessage) (*Request, error) {
	var q storedRequest
	if raw, ok := rows[requestRef]; ok {
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, damaged(requestRef, err)
		}
	}
	return &Request{
		Org: a.Org, Principal: a.Principal, Surface: a.Surface, Grade: a.Grade, Model: a.Model,
		ClientTools: q.ClientTools, ToolChoice: q.ToolChoice, MaxTokens: a.MaxTokens, Options: q.Options, Params: q.Params, Dialect: q.Dialect,
		CatalogTTL: q.CatalogTTL, CacheTTL: q.CacheTTL, Limits: a.Limits, Budgets: a.Budgets, Parallelism: a.Parallelism,
		AbortOnTool: a.AbortOnTool, Guard: a.Guard, ArgValidation: q.ArgValidation, ResultMaxBytes: q.ResultMaxBytes, Live: q.Live,
	}, nil
}

// takeOver goes on with a run that was claimed, through the same fold and the
// same rules as any other. Callers can attach to it when takeOver returns.
func (r *Runner) takeOver(lease Lease) {
	d := r.newDrive(r.base, &Request{Org: lease.Org, Account: r.o.Ledger.Open(lease.Org)}, nil)
	d.lease, d.log = lease, r.o.Log.With("run", lease.RunID, "org", lease.Org)
	d.feed = newFeed(d.account)
	d.sink = d.feed
	if err := r.adopt(d, true); err != nil {
		d.account.Close()
		return // the lease expires
	}
	go d.lead(d.resume)
}

// resume folds the journal and goes on.
func (d *drive) resume() error {
	ctx, cancel := context.WithTimeout(d.ctx, storeTimeout)
	defer cancel()
	story, err := d.o.Archive.Load(ctx, d.lease.Org, d.lease.RunID)
	var bad *Unreadable
	if err != nil && !errors.As(err, &bad) {
		return unavailable(fmt.Errorf("run %s: %w", d.lease.RunID, err))
	}
	if err == nil {
		d.account.Add(story.size()) // a run that was accepted is gone on with whatever it takes
		if err = d.read(story); errors.As(err, &bad) {
			bad.Story, bad.Last = story, story.last()
		}
	}
	switch {
	case bad != nil && cancelled(bad.Story.Facts):
		return d.giveUp(bad.Story, bad.Last, bad)
	case bad != nil:
		return d.setAside(bad)
	case err != nil:
		return d.giveUp(story, story.last(), err)
	}
	if err := d.awaitTurn(); err != nil {
		return err
	}
	d.date()
	d.log.Info("run taken over", "grade", d.state.Grade, "epoch", d.lease.Epoch, "facts", len(story.Facts))
	if err := d.append(nil, loop.Resumed{By: d.lease.Owner, HandedOver: d.lease.Handed}); err != nil {
		return err
	}
	return d.observed(true, func() error { return d.goOn(story) })
}

// read folds the journal of a run that was taken over. The error wraps
// [loop.ErrUnsafe], or it is an *[Unreadable].
func (d *drive) read(story *Story) error {
	err := d.retell(story)
	if err == nil {
		d.req, err = requestOf(d.state.Accepted, story.Rows)
	}
	return err
}

// damaged returns the error for a row that cannot be decoded.
func damaged(ref string, err error) error { return &Unreadable{Ref: ref, Err: err} }

// goOn plays the rest of a run that was taken over.
func (d *drive) goOn(story *Story) error {
	defer d.expire()()
	if d.state.Ended == "" {
		err := d.equip(d.ctx, story.Rows)
		d.account.Release(story.size()) // its rows are needed no more
		var bad *Unreadable
		if errors.As(err, &bad) {
			return d.setAside(bad)
		}
		if err != nil && d.ctx.Err() == nil { // a run that was cut off here is not one that cannot go on
			d.log.Error("the run cannot go on", "error", err)
			if err := d.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost}); err != nil {
				return err
			}
		}
	}
	return d.play()
}

// giveUp ends a run whose journal is not safe to go on with. Every call that it
// started is accounted for first.
func (d *drive) giveUp(story *Story, last int64, why error) error {
	d.log.Error("the run is given up", "error", why)
	d.givenUp = why
	d.state = loop.Abandon(story.Facts, last)
	d.date()
	d.req, _ = requestOf(d.state.Accepted, nil) // without rows there is nothing to be decoded
	d.req.Org = d.lease.Org
	for ref := range story.Rows { // a row is stored once
		if d.items[ref] == nil {
			d.store(ref, nil)
		}
	}
	return d.observed(true, func() error {
		if d.state.Ended == "" {
			if err := d.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost}); err != nil {
				return err
			}
		}
		return d.play()
	})
}

// equip gets what the run works with: its models, and its tools as they were
// when it began.
func (d *drive) equip(ctx context.Context, rows map[string]json.RawMessage) error {
	var err error
	if d.req.Targets, d.req.Servers, err = d.o.Resources.For(ctx, d.state.Accepted); err != nil {
		return err
	}
	if d.state.Catalogued == nil {
		return nil // to be discovered
	}
	var sealed []catalog.Sealed
	if err := json.Unmarshal(rows[catalogRef], &sealed); err != nil {
		return damaged(catalogRef, err)
	}
	now, err := d.o.Catalog.For(ctx, d.req.Org, d.req.Servers, d.req.CatalogTTL)
	if err != nil {
		return err
	}
	if d.tools, err = now.Recall(sealed); err != nil {
		return damaged(catalogRef, err)
	}
	for _, c := range d.state.Calls {
		p, ok := d.args[c.Key]
		if !ok {
			if c.Runnable() {
				return damaged("args:"+string(c.Key), errors.New("the arguments of a call are missing"))
			}
			continue
		}
		if p.entry = d.visible().Lookup(c.Name); p.entry == nil {
			return damaged(catalogRef, fmt.Errorf("tool %q of call %s is missing", c.Name, c.Key))
		}
		d.keepArguments(c.Key, p)
	}
	return nil
}
