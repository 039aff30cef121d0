package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// projection folds the facts of a run, with the rows that they refer to, into the
// run's state and its events. Every event of a run comes from here, except the head
// and body of a raw relay. The owner of a run adds each fact when the store has taken it,
// and each delta of a model call when it arrives. A follower ([storedRun]) adds what is
// stored.
type projection struct {
	sink Sink
	stop func(error) // called when the sink returns an error

	account *memlimit.Account // charged with the items that the run keeps

	state  loop.State
	call   event.Position         // of the latest piece of the latest model call
	round  int                    // of the latest model call
	last   int64                  // Seq of the last event's position
	items  map[string][]item.Item // by ref: what the journal's rows hold
	args   map[loop.CallKey]prepared
	full   map[string]string    // results that were truncated, whole, by the id that the model knows
	listed []event.ListedServer // what the owner lists for the caller, until it is told
	failed *model.Error         // the last failed model call

	rowless bool      // the run has stored no rows: it is to be forgotten, and has not waited
	texts   factTexts // that are not in the facts, because they were withheld at first

	// rows reads a row of the store; it returns nil for a row that the run does not have.
	// Nil for the owner of a run, which keeps the items and the whole results of all
	// rows for later model calls.
	rows func(ref string) (json.RawMessage, error)
}

// add folds a fact after which the state is next, and emits its event. It is for the owner.
func (p *projection) add(f loop.Fact, next loop.State) {
	p.state = next
	_ = p.tell(f) // reads nothing
}

// emit passes e to the sink.
func (p *projection) emit(at event.Position, e event.Event) {
	p.last = at.Seq
	if err := p.sink.Emit(at, e); err != nil {
		p.stop(fmt.Errorf("%w: %w", errNobody, err))
	}
}

// recover folds a journal for its next owner, without events: they were
// emitted when the facts were stored. The error wraps [loop.ErrUnsafe] for a journal that
// is not safe, and is an *[journal.Unreadable] for one that refers to what cannot be decoded.
func (p *projection) recover(story *journal.Story) (err error) {
	if p.texts, err = recallTexts(story.Rows[textsRef]); err != nil {
		return err
	}
	for _, f := range story.Facts {
		f.Body = loop.WithTexts(f.Body, p.texts[f.Seq])
		if err := loop.CheckSafety(p.state, f); err != nil {
			return err
		}
		if a, ok := f.Body.(loop.Accepted); ok {
			p.rowless = a.ForgetsTexts() && !parks(story.Facts)
		}
		p.state = loop.Apply(p.state, f)
		p.last = f.Seq
		if err := p.recall(f, story.Rows); err != nil {
			var bad *journal.Unreadable
			if errors.As(err, &bad) {
				return err
			}
			return &journal.Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err}
		}
	}
	return nil
}

// recall reads the rows that the owner of a run needs of those that a fact refers to.
func (p *projection) recall(f loop.Fact, rows map[string]json.RawMessage) error {
	if p.rowless { // it ends
		return nil
	}
	switch b := f.Body.(type) {
	case loop.InputAdded:
		if err := p.recallFull(rows); err != nil {
			return err
		}
		return p.recallItems(b.ItemsRef, rows)
	case loop.TurnFailed:
		if err := p.recallFailure(b.ErrorRef, rows[b.ErrorRef]); err != nil {
			return err
		}
		return p.recallItems(b.PartialRef, rows)
	case loop.Turn:
		if err := p.recallItems(b.ItemsRef, rows); err != nil {
			return err
		}
		// Items of version 1 have no number among the run's turns.
		item.SetTurn(p.items[b.ItemsRef], item.LastTurn(p.items["input"])+b.Round+1)
	case loop.CallPrepared:
		if b.ArgsRef != "" {
			if !json.Valid(rows[b.ArgsRef]) {
				return journal.Damaged(b.ArgsRef, errors.New("no JSON"))
			}
			p.keepArguments(b.Key, prepared{arguments: rows[b.ArgsRef]})
		}
	case loop.CallDone:
		if b.FullRef != "" {
			var text string
			if err := json.Unmarshal(rows[b.FullRef], &text); err != nil {
				return journal.Damaged(b.FullRef, err)
			}
			p.keepFull(map[string]string{rereadID(p.state.Accepted.RunID, b.Key): text})
		}
		if err := p.recallItems(b.ResultRef, rows); err != nil {
			return err
		}
		if len(p.items[b.ResultRef]) == 0 {
			return fmt.Errorf("row %s holds no result", b.ResultRef)
		}
	case loop.Finished:
		return p.checkEnd(b)
	case loop.Accepted, loop.Blocked, loop.CallResolved, loop.CallStarted, loop.CallWaiting,
		loop.CancelRequested, loop.Catalogued, loop.Expired, loop.Parked, loop.ReserveRefused, loop.Reserved,
		loop.Resumed, loop.TurnStarted: // they refer to no rows
	}
	return nil
}

// itemsOf returns the items of a row.
func (p *projection) itemsOf(ref string) ([]item.Item, error) {
	if p.rows == nil || ref == "" {
		return p.items[ref], nil
	}
	raw, err := p.rows(ref)
	if err != nil {
		return nil, err
	}
	var items item.List
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	return items, nil
}

// argumentsOf returns the arguments of a prepared call.
func (p *projection) argumentsOf(c loop.Call) (json.RawMessage, error) {
	if p.rows == nil || c.Prepared.ArgsRef == "" {
		return p.args[c.Key].arguments, nil
	}
	raw, err := p.rows(c.Prepared.ArgsRef)
	if err == nil && !json.Valid(raw) {
		err = journal.Damaged(c.Prepared.ArgsRef, errors.New("no JSON"))
	}
	return raw, err
}

// checkEnd refuses an end that is told from a fact which is not there.
func (p *projection) checkEnd(b loop.Finished) error {
	switch {
	case b.Reason == event.Blocked && p.state.Blocked == nil,
		(b.Reason == event.Invalid || b.Reason == event.ServerUnavailable) && p.state.Catalogued == nil:
		return fmt.Errorf("nothing before it says why it ended (%s)", b.Reason)
	}
	for _, h := range b.HandedOver {
		if _, ok := p.state.Call(h.Key); !ok {
			return fmt.Errorf("there is no call %s to be handed over", h.Key)
		}
	}
	return nil
}

func (p *projection) recallItems(ref string, rows map[string]json.RawMessage) error {
	if ref == "" {
		return nil
	}
	var items item.List
	if err := json.Unmarshal(rows[ref], &items); err != nil {
		return journal.Damaged(ref, err)
	}
	p.store(ref, items)
	return nil
}

func (p *projection) recallFull(rows map[string]json.RawMessage) error {
	raw, ok := rows[inputFull]
	if !ok {
		return nil
	}
	var full map[string]string
	if err := json.Unmarshal(raw, &full); err != nil {
		return journal.Damaged(inputFull, err)
	}
	p.keepFull(full)
	return nil
}

// tell emits the event of a fact that was just folded. A fact has at most one event
// beside the deltas. The error is an *[journal.Unreadable] for a row that cannot be decoded, or
// that of the store.
func (p *projection) tell(f loop.Fact) error {
	at := event.Position{Seq: f.Seq}
	switch b := f.Body.(type) {
	case loop.Accepted:
		p.emit(at, event.Started{RunID: b.RunID, Model: b.Model, At: time.UnixMilli(f.At).UTC()})
	case loop.TurnStarted:
		p.call, p.round = at, b.Round
		if b.Purpose != loop.PurposeRaw {
			p.emit(at, event.RoundStarted{Round: b.Round, Attempt: b.Attempt, Missing: p.state.MissingServers()})
		}
	case loop.TurnFailed:
		return p.tellFailedCall(f.Seq, b)
	case loop.Turn:
		if b.Purpose == loop.PurposeRaw {
			return nil
		}
		if err := p.tellItems(f.Seq, b.Round, b.ItemsRef, b.Calls, true); err != nil {
			return err
		}
		p.emit(at, event.RoundDone{Round: b.Round, Stop: b.Stop, Usage: b.Usage})
	case loop.Catalogued:
		list := p.listed
		p.listed = nil
		if b.ListedRef == "" {
			return nil
		}
		if p.rows != nil {
			var err error
			if list, err = recallListed(b.ListedRef, p.rows); err != nil {
				return err
			}
		}
		p.emit(at, event.ToolsListed{Servers: list})
	case loop.CallStarted:
		if c, ok := p.state.Call(b.Key); ok && c.Prepared != nil {
			arguments, err := p.argumentsOf(c)
			if err != nil {
				return err
			}
			e := event.ToolStarted{
				Round: p.state.Turn.Round, Key: string(c.Key), Name: c.Name, Server: loop.LabelOf(c.Prepared.Server), Arguments: arguments,
			}
			e.Shown, e.Hosted, e.Tool = p.state.ShownAs(c)
			e.Approval = c.WaitID()
			p.emit(at, e)
		}
	case loop.CallDone:
		return p.tellCallDone(at, b)
	case loop.Parked:
		e, err := waitingEvent(p, f.At)
		if err != nil {
			return err
		}
		p.emit(at, e)
	case loop.CallResolved:
		status := journal.ApprovalDenied
		if b.Approved {
			status = journal.ApprovalApproved
		}
		p.emit(at, decisionEvent(&p.state, b.WaitID, b.By, b.Message, status, f.At))
	case loop.Expired:
		if b.WaitID != "" {
			p.emit(at, decisionEvent(&p.state, b.WaitID, "", "", journal.ApprovalExpired, f.At))
		}
	case loop.Finished:
		if err := p.checkEnd(b); err != nil {
			return &journal.Unreadable{Seq: f.Seq, Kind: b.Kind(), Version: f.Version, Err: err}
		}
		p.emit(at, p.ending(b, f.At))
	case loop.Blocked, loop.CallPrepared, loop.CallWaiting, loop.CancelRequested, loop.InputAdded,
		loop.ReserveRefused, loop.Reserved, loop.Resumed: // no event
	}
	return nil
}

// skip does what tell does, without events and without reading rows, for a fact whose events
// are not wanted. It returns false if tell is needed all the same.
func (p *projection) skip(f loop.Fact) bool {
	switch b := f.Body.(type) {
	case loop.TurnFailed, loop.Finished: // the end is told from them
		return false
	case loop.TurnStarted:
		p.call, p.round = event.Position{Seq: f.Seq}, b.Round
	case loop.Accepted, loop.Blocked, loop.CallDone, loop.CallPrepared, loop.CallResolved, loop.CallStarted,
		loop.CallWaiting, loop.CancelRequested, loop.Catalogued, loop.Expired, loop.InputAdded, loop.Parked,
		loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Turn: // no deltas belong to them
	}
	p.last = f.Seq
	return true
}

// tellFailedCall emits what the model said before its call failed.
func (p *projection) tellFailedCall(seq int64, b loop.TurnFailed) error {
	if p.rows == nil {
		return nil
	}
	row, err := p.rows(b.ErrorRef)
	if err != nil {
		return err
	}
	if err := p.recallFailure(b.ErrorRef, row); err != nil {
		return err
	}
	return p.tellItems(seq, p.state.Spent.Rounds, b.PartialRef, nil, false)
}

func (p *projection) tellCallDone(at event.Position, b loop.CallDone) error {
	c, ok := p.state.Call(b.Key)
	if !ok {
		return nil
	}
	result, err := p.itemsOf(b.ResultRef)
	if err != nil {
		return err
	}
	if len(result) == 0 {
		return journal.Damaged(b.ResultRef, errors.New("it holds no result"))
	}
	e := event.ToolDone{
		Round: p.state.Turn.Round, Key: string(c.Key), Name: c.Name, Outcome: b.Outcome,
		Text: item.PlainText(result[0].Parts), Duration: time.Duration(b.Micros) * time.Microsecond,
	}
	if c.Prepared != nil {
		e.Server = loop.LabelOf(c.Prepared.Server)
	}
	e.Approval = c.WaitID()
	if e.Shown, e.Hosted, e.Tool = p.state.ShownAs(c); e.Tool != "" && c.Attempt == 0 {
		e.Arguments = p.rawArguments(c)
	}
	if e.Hosted == "image_generation" {
		e.Image = firstImage(result[0].Parts)
	}
	p.emit(at, e)
	return nil
}

// firstImage returns the base64 of the first image; "" = there is none.
func firstImage(parts []item.Part) string {
	for _, part := range parts {
		if part.Kind == item.Image && part.Data != "" {
			return part.Data
		}
	}
	return ""
}

// recallListed reads the tools that the run lists for its caller.
func recallListed(ref string, rows func(string) (json.RawMessage, error)) ([]event.ListedServer, error) {
	raw, err := rows(ref)
	if err != nil {
		return nil, err
	}
	var list []event.ListedServer
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	return list, nil
}

// nextDelta returns the position of the next piece of the model call.
func (p *projection) nextDelta() event.Position {
	p.call.Delta++
	return p.call
}

// callDeltas reports whether pieces of tool calls are events. A durable run has them only
// if its surface sends them, because it stores its events.
func (p *projection) callDeltas() bool {
	owner := p.rows == nil
	return owner && p.state.Grade != loop.Durable || slices.Contains(p.state.Accepted.Live, model.CallDelta)
}

// delta emits the event of a delta of the model call that is under way.
func (p *projection) delta(round int, d model.Delta) {
	switch d.Kind {
	case model.TextDelta:
		p.emit(p.nextDelta(), event.TextDelta{Round: round, Item: d.Item, Part: d.Part, Text: d.Text})
	case model.ReasoningDelta:
		p.emit(p.nextDelta(), event.ReasoningDelta{Round: round, Item: d.Item, Part: d.Part, Text: d.Text})
	case model.RefusalDelta:
		p.emit(p.nextDelta(), event.RefusalDelta{Round: round, Item: d.Item, Part: d.Part, Text: d.Text})
	case model.CallDelta:
		if p.callDeltas() {
			p.emit(p.nextDelta(), event.CallDelta{Round: round, Item: d.Item, CallID: d.CallID, Name: d.Name, Arguments: d.Text})
		}
	case model.NativeDelta:
		if p.state.Accepted.Native != "" {
			p.emit(p.nextDelta(), event.NativeItem{Round: round, Item: d.Item, JSON: json.RawMessage(d.Text)})
		}
	case model.ProgressDelta:
		if p.state.Accepted.Native != "" {
			p.emit(p.nextDelta(), event.NativeProgress{Round: round, Item: d.Item, JSON: json.RawMessage(d.Text)})
		}
	case model.CitationDelta:
		var c item.Citation
		if json.Unmarshal([]byte(d.Text), &c) == nil { // what an adapter wrote
			p.emit(p.nextDelta(), event.Citation{Round: round, Item: d.Item, Citation: c})
		}
	case model.DoneDelta:
		if p.state.Accepted.ItemEnds {
			p.emit(p.nextDelta(), event.ItemDone{Round: round, Item: d.Item})
		}
	}
}

// tellItems emits what the model said, with one delta for each part and call, for the fact
// seq that ends the model call. The items have the numbers that they had when they arrived.
// calls are all calls of the turn: those that were cut off are not among the items, but
// had a number. whole says that all items have come to their end. It emits nothing if the
// deltas were emitted as they arrived.
func (p *projection) tellItems(seq int64, round int, ref string, calls []loop.TurnCall, whole bool) error {
	if p.rows == nil || p.call.Delta > 0 && p.last == p.call.Seq {
		return nil
	}
	items, err := p.itemsOf(ref)
	if err != nil {
		return err
	}
	if p.last > p.call.Seq { // a fact with an event came between, which no release writes
		p.call = event.Position{Seq: seq - 1}
	}
	n := 0
	tellCall := func() {
		c := calls[0]
		calls = calls[1:]
		p.delta(round, model.Delta{Kind: model.CallDelta, Item: n, CallID: c.ProviderID, Name: c.Name, Text: c.Arguments})
		n++
	}
	for _, it := range items {
		switch {
		case it.Kind == item.ToolCall:
			for len(calls) > 0 && !calls[0].Complete {
				tellCall()
			}
			if len(calls) > 0 {
				tellCall()
			}
		case it.Kind == item.Message && len(it.Parts) == 0: // a turn without items
		default:
			before := p.call.Delta
			p.tellParts(round, n, it)
			if it.Native.Opaque && (it.Kind == item.Reasoning || it.Kind == item.Other) && it.Native.Dialect == p.state.Accepted.Native {
				p.delta(round, model.Delta{Kind: model.NativeDelta, Item: n, Text: string(it.Native.JSON)})
			}
			if whole && p.call.Delta > before && it.Kind != item.Other {
				p.delta(round, model.Delta{Kind: model.DoneDelta, Item: n})
			}
			n++
		}
	}
	for len(calls) > 0 {
		tellCall()
	}
	return nil
}

func (p *projection) tellParts(round, n int, it item.Item) {
	for i, part := range it.Parts {
		d := model.Delta{Kind: model.TextDelta, Item: n, Part: i, Text: part.Text}
		switch {
		case part.Text == "": // was not reported either
			continue
		case it.Kind == item.Reasoning:
			d.Kind = model.ReasoningDelta
		case part.Kind == item.Refusal:
			d.Kind = model.RefusalDelta
		case part.Kind != item.Text:
			continue
		}
		p.delta(round, d)
	}
	for _, c := range it.Citations {
		p.emit(p.nextDelta(), event.Citation{Round: round, Item: n, Citation: c})
	}
}
