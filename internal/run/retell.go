package run

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// retold reports a run that is over to the sink, as it was reported when it
// happened: what came in pieces then comes at once.
func (r *Runner) retold(req *Request, story *Story, sink Sink) error {
	d := r.newDrive(r.base, req, sink)
	defer d.cancel(errDiscarded)
	d.lease.RunID = story.Summary.RunID
	return d.retell(story, false)
}

// retell folds a journal and reports what it tells. If strict, every fact must
// be one that the rules allow in its place.
func (d *drive) retell(story *Story, strict bool) error {
	for _, f := range story.Facts {
		if strict {
			if err := loop.Allowed(d.state, f); err != nil {
				return fmt.Errorf("fact %d: %w", f.Seq, err)
			}
		}
		d.state = loop.Apply(d.state, f)
		if err := d.recall(f, story.Rows); err != nil {
			return fmt.Errorf("fact %d, %s: %w", f.Seq, f.Body.Kind(), err)
		}
		d.tell(f)
	}
	return nil
}

// recall reads the rows that a fact refers to.
func (d *drive) recall(f loop.Fact, rows map[string]json.RawMessage) error {
	switch b := f.Body.(type) {
	case loop.InputAdded:
		if err := d.recallFull(rows); err != nil {
			return err
		}
		return d.recallItems(b.ItemsRef, rows)
	case loop.TurnFailed:
		if err := d.recallFailure(b, rows); err != nil {
			return err
		}
		return d.recallItems(b.PartialRef, rows)
	case loop.Turn:
		return d.recallItems(b.ItemsRef, rows)
	case loop.CallPrepared:
		if b.ArgsRef != "" {
			d.keepArguments(b.Key, prepared{arguments: rows[b.ArgsRef]})
		}
	case loop.CallDone:
		if b.FullRef != "" {
			var text string
			if err := json.Unmarshal(rows[b.FullRef], &text); err != nil {
				return err
			}
			d.keepAll(map[string]string{d.rereadID(b.Key): text})
		}
		if err := d.recallItems(b.ResultRef, rows); err != nil {
			return err
		}
		if len(d.items[b.ResultRef]) == 0 {
			return fmt.Errorf("row %s holds no result", b.ResultRef)
		}
	case loop.Finished:
		return d.checkEnd(b)
	}
	return nil
}

// checkEnd refuses an end that is told from a fact which is not there.
func (d *drive) checkEnd(b loop.Finished) error {
	switch {
	case b.Reason == event.Blocked && d.state.Blocked == nil,
		(b.Reason == event.Invalid || b.Reason == event.ServerUnavailable) && d.state.Catalogued == nil:
		return fmt.Errorf("nothing before it says why it ended (%s)", b.Reason)
	}
	for _, h := range b.Handed {
		if _, ok := d.state.Call(h.Key); !ok {
			return fmt.Errorf("there is no call %s to be handed over", h.Key)
		}
	}
	return nil
}

func (d *drive) recallItems(ref string, rows map[string]json.RawMessage) error {
	if ref == "" {
		return nil
	}
	var items []item.Item
	if err := json.Unmarshal(rows[ref], &items); err != nil {
		return fmt.Errorf("row %s: %w", ref, err)
	}
	d.store(ref, items)
	return nil
}

func (d *drive) recallFull(rows map[string]json.RawMessage) error {
	raw, ok := rows[inputFull]
	if !ok {
		return nil
	}
	var full map[string]string
	if err := json.Unmarshal(raw, &full); err != nil {
		return fmt.Errorf("row %s: %w", inputFull, err)
	}
	d.keepAll(full)
	return nil
}

// storedFailure is a failed model call as a row holds it.
type storedFailure struct {
	Class   model.Class `json:"class"`
	Status  int         `json:"status,omitempty"`
	Header  http.Header `json:"header,omitempty"`
	Body    []byte      `json:"body,omitempty"`
	Message string      `json:"message,omitempty"`
	Error   string      `json:"error"` // for people
}

func newStoredFailure(e *model.Error) storedFailure {
	return storedFailure{e.Class, e.Status, e.Header, e.Body, e.Message, e.Error()}
}

func (d *drive) recallFailure(b loop.TurnFailed, rows map[string]json.RawMessage) error {
	var f storedFailure
	if err := json.Unmarshal(rows[b.ErrorRef], &f); err != nil {
		return fmt.Errorf("row %s: %w", b.ErrorRef, err)
	}
	d.failed = &model.Error{Class: f.Class, Status: f.Status, Header: f.Header, Body: f.Body, Message: f.Message}
	return nil
}

// tell reports what a fact tells.
func (d *drive) tell(f loop.Fact) {
	switch b := f.Body.(type) {
	case loop.Accepted:
		d.emit(event.Started{RunID: b.RunID, Model: b.Model, At: time.UnixMilli(f.At)})
	case loop.TurnStarted:
		d.emit(event.RoundStarted{Round: b.Round, Attempt: b.Attempt})
	case loop.TurnFailed:
		d.tellItems(d.state.Spent.Rounds, d.items[b.PartialRef])
	case loop.Turn:
		d.tellItems(b.Round, d.items[b.ItemsRef])
		d.emit(event.RoundDone{Round: b.Round, Stop: b.Stop, Usage: b.Usage})
	case loop.CallStarted:
		if c, ok := d.state.Call(b.Key); ok && c.Prepared != nil {
			d.emit(d.toolStarted(c))
		}
	case loop.CallDone:
		if c, ok := d.state.Call(b.Key); ok {
			d.emit(d.toolDone(c, b.Outcome, d.items[b.ResultRef][0].Text(), time.Duration(b.MS)*time.Millisecond))
		}
	case loop.Finished:
		d.emit(d.ending(b))
	}
}

// tellItems reports what the model said, in as many pieces as it has parts.
func (d *drive) tellItems(round int, items []item.Item) {
	for _, it := range items {
		for _, p := range it.Parts {
			switch p.Kind {
			case item.Text:
				d.emit(event.TextDelta{Round: round, Text: p.Text})
			case item.Reasoning:
				d.emit(event.ReasoningDelta{Round: round, Text: p.Text})
			case item.Refusal:
				d.emit(event.RefusalDelta{Round: round, Text: p.Text})
			}
		}
	}
}

// cancellation is the batch that ends a run which somebody else performs.
func (r *Runner) cancellation(story *Story, by string) Batch {
	return Batch{Sync: true, Facts: []loop.Fact{{
		Seq: int64(len(story.Facts)) + 1, At: r.o.Now().UnixMilli(), Version: loop.Version,
		Body: loop.CancelRequested{By: by, Cause: event.Cancelled},
	}}}
}
