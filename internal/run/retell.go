package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// retold reports a run that is over to the sink, as it was reported when it
// happened: what came in pieces then comes at once.
// The error may be that of the account, which has no room for it.
func (r *Runner) retold(key runKey, account *ledger.Account, story *Story, sink Sink) error {
	d := r.newDrive(r.base, &Request{Org: key.org, Account: account}, sink)
	defer d.cancel(errDiscarded)
	d.lease.RunID = story.Summary.RunID
	maps.DeleteFunc(story.Rows, func(ref string, _ json.RawMessage) bool { return isKept(ref) })
	d.retelling = true
	err := d.retell(story)
	if errors.As(context.Cause(d.ctx), &d.overdrawn) {
		return d.overdrawn
	}
	var bad *Unreadable
	switch {
	case err == nil || d.tellGivenUp(story):
		return nil
	case errors.As(err, &bad):
		return unreadable(story.Summary.RunID, bad.Error())
	}
	return fault.New(fault.Internal, codeRefused, "the journal of run %s cannot be repeated: %v", story.Summary.RunID, err)
}

// codeRefused is how a run ends that was given up because of its journal.
const codeRefused = "journal_refused"

// tellGivenUp reports the end of a run that was given up because of its journal,
// and whether it was.
func (d *drive) tellGivenUp(story *Story) bool {
	if len(story.Facts) == 0 {
		return false
	}
	end, _ := story.Facts[len(story.Facts)-1].Body.(loop.Finished)
	if end.Code != codeRefused {
		return false
	}
	d.state = loop.Abandon(story.Facts, story.last())
	d.emit(d.ending(end))
	return true
}

// retell folds a journal, of whichever release, and reports what it tells. The
// error wraps [loop.ErrUnsafe] for a journal that is not safe, and is an
// *[Unreadable] for one that refers to what cannot be decoded.
func (d *drive) retell(story *Story) error {
	for _, f := range story.Facts {
		if err := loop.CheckSafety(d.state, f); err != nil {
			return err
		}
		d.state = loop.Apply(d.state, f)
		if err := d.recall(f, story.Rows); err != nil {
			var bad *Unreadable
			if errors.As(err, &bad) {
				return err
			}
			return &Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err}
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
		if err := d.recallItems(b.ItemsRef, rows); err != nil {
			return err
		}
		// Items of version 1 have no number among the run's turns.
		item.SetTurn(d.items[b.ItemsRef], item.LastTurn(d.items["input"])+b.Round+1)
	case loop.CallPrepared:
		if b.ArgsRef != "" {
			if !json.Valid(rows[b.ArgsRef]) {
				return damaged(b.ArgsRef, errors.New("no JSON"))
			}
			d.keepArguments(b.Key, prepared{arguments: rows[b.ArgsRef]})
		}
	case loop.CallDone:
		if b.FullRef != "" && !d.retelling {
			var text string
			if err := json.Unmarshal(rows[b.FullRef], &text); err != nil {
				return damaged(b.FullRef, err)
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
	for _, h := range b.HandedOver {
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
	var items item.List
	if err := json.Unmarshal(rows[ref], &items); err != nil {
		return damaged(ref, err)
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
		return damaged(inputFull, err)
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

	Credential bool `json:"credential,omitempty"` // the provider refuses ours
}

func newStoredFailure(e *model.Error) storedFailure {
	return storedFailure{e.Class, e.Status, e.Header, e.Body, e.Message, e.Error(), e.Credential}
}

func (d *drive) recallFailure(b loop.TurnFailed, rows map[string]json.RawMessage) error {
	var f storedFailure
	if err := json.Unmarshal(rows[b.ErrorRef], &f); err != nil {
		return damaged(b.ErrorRef, err)
	}
	d.failed = f.error()
	return nil
}

func (f storedFailure) error() *model.Error {
	return &model.Error{Class: f.Class, Status: f.Status, Header: f.Header, Body: f.Body, Message: f.Message, Credential: f.Credential}
}

// ModelFailure is a failed model call, for people.
type ModelFailure struct {
	Message string // what the provider did, and its own words where it gave any
	Cause   string // why there is no answer; "" where the provider answered
	Body    []byte // of the provider's error answer; nil where it gave none
}

// ModelFailure returns how the model call failed that the fact is about. The zero
// ModelFailure: the journal does not have it.
func (s *Story) ModelFailure(provider string, b loop.TurnFailed) ModelFailure {
	var f storedFailure
	if json.Unmarshal(s.Rows[b.ErrorRef], &f) != nil {
		return ModelFailure{}
	}
	out := ModelFailure{Message: modelMessage(provider, f.error()), Body: f.Body}
	if f.Status == 0 {
		out.Cause = strings.TrimPrefix(f.Error, "provider call: ")
	}
	return out
}

// Failure says why the run has failed, in the words that its caller got, as far
// as the journal has them. Nil: it has not failed, or has not ended.
func (s *Story) Failure() *event.Failure {
	if !s.Summary.Reason.Failed() {
		return nil
	}
	d := &drive{retelling: true}
	for _, f := range s.Facts {
		if loop.CheckSafety(d.state, f) != nil {
			return nil
		}
		d.state = loop.Apply(d.state, f)
		switch f.Body.(type) {
		case loop.TurnFailed, loop.CallDone, loop.Finished: // all that a failure is told from
			if d.recall(f, s.Rows) != nil {
				return nil
			}
		}
	}
	return d.failure(s.Summary.Reason)
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
			d.emit(d.toolDone(c, b.Outcome, d.items[b.ResultRef][0].Text(), time.Duration(b.Took())*time.Microsecond))
		}
	case loop.Finished:
		d.emit(d.ending(b))
	}
}

// tellItems reports what the model said, in as many pieces as it has parts.
func (d *drive) tellItems(round int, items []item.Item) {
	for _, it := range items {
		for _, p := range it.Parts {
			switch {
			case it.Kind == item.Reasoning:
				d.emit(event.ReasoningDelta{Round: round, Text: p.Text})
			case p.Kind == item.Text:
				d.emit(event.TextDelta{Round: round, Text: p.Text})
			case p.Kind == item.Refusal:
				d.emit(event.RefusalDelta{Round: round, Text: p.Text})
			}
		}
	}
}

// ending is the batch that ends a run which somebody else performs.
func (r *Runner) ending(head Head, end loop.CancelRequested, rows []audit.Entry) Batch {
	at := max(r.o.Now().UnixMilli(), head.At) // the wall clock may have been set back since
	return Batch{Sync: true, Audit: rows, Facts: []loop.Fact{{
		Seq: head.Seq + 1, At: at, Version: loop.Version, Body: end,
	}}}
}
