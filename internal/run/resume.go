package run

import (
	"context"
	"encoding/json"
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
		q.ClientTools, q.ToolChoice, q.Params, q.Dialect, q.CatalogTTL, q.CacheTTL, q.ArgValidation, q.ResultMaxBytes, q.Live,
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
			return nil, fmt.Errorf("row %s: %w", requestRef, err)
		}
	}
	return &Request{
		Org: a.Org, Principal: a.Principal, Surface: a.Surface, Grade: a.Grade, Model: a.Model,
		ClientTools: q.ClientTools, ToolChoice: q.ToolChoice, MaxTokens: a.MaxTokens, Params: q.Params, Dialect: q.Dialect,
		CatalogTTL: q.CatalogTTL, CacheTTL: q.CacheTTL, Limits: a.Limits, Budgets: a.Budgets, Parallelism: a.Parallelism,
		AbortOnTool: a.AbortOnTool, Guard: a.Guard, ArgValidation: q.ArgValidation, ResultMaxBytes: q.ResultMaxBytes, Live: q.Live,
	}, nil
}

// takeOver goes on with a run that was claimed, through the same fold and the
// same rules as any other. Callers can attach to it when takeOver returns.
func (r *Runner) takeOver(lease Lease) {
	d := r.newDrive(r.base, &Request{Org: lease.Org}, nil)
	d.lease, d.log = lease, r.o.Log.With("run", lease.RunID, "org", lease.Org)
	d.feed = newFeed()
	d.sink = d.feed
	if err := r.adopt(d, true); err != nil {
		return // the lease expires
	}
	go d.lead(d.resume)
}

// resume folds the journal and goes on.
func (d *drive) resume() error {
	ctx, cancel := context.WithTimeout(d.ctx, storeTimeout)
	defer cancel()
	story, err := d.o.Archive.Load(ctx, d.lease.Org, d.lease.RunID)
	if err != nil {
		return unavailable(fmt.Errorf("run %s: %w", d.lease.RunID, err))
	}
	if err := d.retell(story, true); err != nil {
		return d.giveUp(err)
	}
	if d.req, err = requestOf(d.state.Accepted, story.Rows); err != nil {
		return d.giveUp(err)
	}
	d.log.Info("run taken over", "grade", d.state.Grade, "epoch", d.lease.Epoch, "facts", len(story.Facts))
	if err := d.append(nil, loop.Resumed{By: d.lease.Owner}); err != nil {
		return err
	}
	return d.observed(true, func() error { return d.goOn(story) })
}

// goOn plays the rest of a run that was taken over.
func (d *drive) goOn(story *Story) error {
	defer d.expire()()
	if d.state.Ended == "" {
		err := d.equip(d.ctx, story.Rows)
		if err != nil && d.ctx.Err() == nil { // a run that was cut off here is not one that cannot go on
			d.log.Error("the run cannot go on", "error", err)
			if err := d.append(nil, loop.CancelRequested{By: "turnpike", Cause: event.Lost}); err != nil {
				return err
			}
		}
	}
	return d.play()
}

// giveUp ends a run whose journal the rules would not write.
func (d *drive) giveUp(why error) error {
	d.log.Error("the journal of the run is not one that the rules allow", "error", why)
	body := loop.Finished{Reason: event.Lost, Code: "journal_refused", Detail: why.Error()}
	if err := d.append(nil, body); err != nil {
		return err
	}
	d.emit(d.ending(body))
	return nil
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
		return fmt.Errorf("row %s: %w", catalogRef, err)
	}
	now, err := d.o.Catalog.For(ctx, d.req.Org, d.req.Servers, d.req.CatalogTTL)
	if err != nil {
		return err
	}
	if d.tools, err = now.Recall(sealed); err != nil {
		return err
	}
	for _, c := range d.state.Calls {
		if p, ok := d.args[c.Key]; ok {
			p.entry = d.visible().Lookup(c.Name)
			d.keepArguments(c.Key, p)
		}
	}
	return nil
}
