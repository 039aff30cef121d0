package eventlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Sink receives a run's events in order, from one goroutine. An error means that nobody
// receives events any more: the run ends as if its caller had disconnected. Implemented
// by the surfaces.
//
// at is higher than that of the event before. It is zero for RelayHead and RelayBody.
type Sink interface {
	Emit(at event.Position, e event.Event) error
}

// ErrSinkFailed is wrapped by the error for a run or a follower whose sink returns an error.
var ErrSinkFailed = errors.New("nobody is left to report to")

// fold folds the facts of a run into the run's state and its events. Every event of a run
// comes from here, except the head and body of a raw relay. The owner of a run ([Writer]) adds
// each fact when the store has taken it, and each delta of a model call when it arrives. A
// follower ([reader]) adds what is stored.
type fold struct {
	sink    Sink
	stop    func(error) // called when the sink returns an error
	content content

	state  loop.State
	call   event.Position // of the latest piece of the latest model call
	round  int            // of the latest model call
	last   int64          // Seq of the last event's position
	failed *model.Error   // the last failed model call
	first  *model.Error   // that of [loop.Attempt].First
	texts  factTexts      // that are not in the facts, because they were withheld at first
}

// content has what the facts of a run refer to. An error is an *[journal.Unreadable] for what
// cannot be decoded, or that of the store.
type content interface {
	itemsOf(ref string) ([]item.Item, error)
	argumentsOf(c loop.Call) (json.RawMessage, error)
	listedOf(ref string) ([]event.ListedServer, error) // what the run lists for its caller
	valueOf(ref string) (builtin.Encoded, error)       // the typed value of a result
	failureOf(ref string) (*model.Error, error)        // a failed model call

	// live reports whether every delta of a model call is emitted when it arrives.
	live() bool
}

// emit passes e to the sink.
func (p *fold) emit(at event.Position, e event.Event) {
	p.last = at.Seq
	if err := p.sink.Emit(at, e); err != nil {
		p.stop(fmt.Errorf("%w: %w", ErrSinkFailed, err))
	}
}

// tellCallStarted emits that a call is executed.
func (p *fold) tellCallStarted(f loop.Fact, b loop.CallStarted) error {
	c, ok := p.state.Call(b.Key)
	if !ok || c.Prepared == nil {
		return nil
	}
	arguments, err := p.content.argumentsOf(c)
	if err != nil {
		return err
	}
	e := event.ToolStarted{
		Round: p.state.Turn.Round, Key: string(c.Key), Name: c.Name, Server: loop.LabelOf(c.Prepared.Server), Arguments: arguments, Approval: c.WaitID(),
		At: timeOf(f),
	}
	e.Shown, e.Hosted, e.Tool = p.state.ShownAs(c)
	p.emit(event.Position{Seq: f.Seq}, e)
	return nil
}

// tell emits the event of a fact that was just folded. A fact has at most one event
// beside the deltas. The error is an *[journal.Unreadable] for a row that cannot be decoded, or
// that of the store.
func (p *fold) tell(f loop.Fact) error {
	at := event.Position{Seq: f.Seq}
	switch b := f.Body.(type) {
	case loop.Accepted:
		p.emit(at, event.Started{RunID: b.RunID, Model: b.Model, At: timeOf(f), Queued: b.Queued})
	case loop.TurnStarted:
		if b.Attempt == 1 && p.state.HeldAnswer() { // more input came, and the answer before it is no answer
			p.call = event.Position{Seq: f.Seq - 1}
			p.emit(p.nextDelta(), roundDone(&p.state, f))
		}
		p.call, p.round = at, b.Round
		if b.Purpose != loop.PurposeRaw {
			e := event.RoundStarted{Round: b.Round, Attempt: b.Attempt, Missing: p.state.MissingServers(b.Toolless), Continues: p.state.Continued, NoTools: p.state.NoServers()}
			e.Target, e.At = targetOf(&p.state, b.Target), timeOf(f)
			p.emit(at, e)
		}
	case loop.TurnFailed:
		return p.tellFailedCall(f.Seq, b)
	case loop.Turn:
		if b.Purpose == loop.PurposeRaw || p.state.HeldAnswer() {
			return nil
		}
		if err := p.tellItems(f.Seq, b.Round, b.ItemsRef, b.Calls, true); err != nil {
			return err
		}
		p.emit(at, roundDone(&p.state, f))
	case loop.Catalogued:
		if b.ListedRef == "" {
			return nil
		}
		list, err := p.content.listedOf(b.ListedRef)
		if err != nil {
			return err
		}
		p.emit(at, event.ToolsListed{Servers: list})
	case loop.CallStarted:
		return p.tellCallStarted(f, b)
	case loop.CallDone:
		return p.tellCallDone(f, b)
	case loop.Parked:
		e, err := p.waiting(f.At)
		if err != nil {
			return err
		}
		p.emit(at, e)
	case loop.CallResolved:
		if b.Early && b.WaitID == "" { // it is kept: nothing is decided yet
			return nil
		}
		status := journal.ApprovalDenied
		if b.Approved {
			status = journal.ApprovalApproved
		}
		p.emit(at, p.decision(b.WaitID, b.By, b.Message, status, f.At))
	case loop.Expired:
		if e := p.decision(b.WaitID, "", "", journal.ApprovalExpired, f.At); b.WaitID != "" && e.Key != "" { // not that of a pause
			p.emit(at, e)
		}
	case loop.Paused:
		if b.Refused == "" {
			p.emit(at, pausedEvent(&p.state, f.At))
		}
	case loop.LimitsRaised:
		if b.WaitID != "" {
			r := b.Raise
			e := event.LimitsRaised{
				ID: b.WaitID, By: b.By, Rounds: r.Rounds, Calls: r.Calls, Tokens: r.Tokens, Active: milliseconds(r.ActiveMS), At: timeOf(f),
			}
			if r.NanoUSD > 0 {
				e.USD = tool.NanoUSD(r.NanoUSD)
			}
			p.emit(at, e)
		}
	case loop.Compacted:
		p.emit(at, compactedEvent(&p.state, b, f.At))
	case loop.HookRan:
		p.emit(at, hookEvent(&p.state, b, f.At))
	case loop.Finished:
		if err := p.checkEnd(b); err != nil {
			return &journal.Unreadable{Seq: f.Seq, Kind: b.Kind(), Version: f.Version, Err: err}
		}
		if err := p.tellAnswer(f); err != nil {
			return err
		}
		p.emit(at, p.ending(b, f.At))
	case loop.Blocked, loop.CallPrepared, loop.CallWaiting, loop.CancelRequested,
		loop.InputAdded, loop.ReserveRefused, loop.Reserved, loop.Resumed: // no event
	case loop.Routed:
		if e, ok := fallbackEvent(&p.state, f); ok {
			p.emit(at, e)
		}
	}
	return nil
}

// hookEvent returns the event of a hook that has decided.
func hookEvent(s *loop.State, b loop.HookRan, at int64) event.HookRan {
	h, _ := s.HookOf(b.Hook)
	e := event.HookRan{
		ID: b.Hook, Position: h.Position, Event: b.Point.Event(), Key: string(b.Key), Status: event.HookSucceeded, Message: b.Message,
		Modified: b.Verdict == loop.HookModify, Blocked: b.Verdict == loop.HookDeny, Asked: b.Verdict == loop.HookAsk,
		Duration: time.Duration(b.Micros) * time.Microsecond, At: time.UnixMilli(at).UTC(),
	}
	switch {
	case b.TimedOut:
		e.Status, e.Message = event.HookTimedOut, cmp.Or(b.Message, "the hook did not answer in time")
	case b.Failed:
		e.Status, e.Message = event.HookFailed, cmp.Or(b.Message, "the hook has failed")
	}
	return e
}

// compactedEvent returns the event of a compaction.
func compactedEvent(s *loop.State, b loop.Compacted, at int64) event.Compacted {
	e := event.Compacted{Round: s.Spent.Rounds, Before: b.Before, After: b.After, Summarized: b.Summarized, Failed: b.Failed, At: time.UnixMilli(at).UTC()}
	if len(b.Refs) == 0 {
		e.After = b.Before
	}
	if b.Target < len(s.Accepted.Targets) && s.Accepted.Targets[b.Target].Price.Known() {
		net := b.NetNano
		e.NetNanoUSD = &net
	}
	return e
}

// skip does what tell does, without events and without reading rows, for a fact whose events
// are not wanted. It returns false if tell is needed all the same.
func (p *fold) skip(f loop.Fact) bool {
	switch b := f.Body.(type) {
	case loop.TurnFailed, loop.Finished: // the end is told from them
		return false
	case loop.TurnStarted:
		p.call, p.round = event.Position{Seq: f.Seq}, b.Round
	case loop.Accepted, loop.Blocked, loop.CallDone, loop.CallPrepared, loop.CallResolved, loop.CallStarted,
		loop.CallWaiting, loop.CancelRequested, loop.Catalogued, loop.Compacted, loop.Expired, loop.HookRan,
		loop.InputAdded, loop.LimitsRaised, loop.Parked, loop.Paused,
		loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed, loop.Turn: // no deltas belong to them
	}
	p.last = f.Seq
	return true
}

// noteFirst keeps the failure that a caller is told if all targets fail.
func (p *fold) noteFirst(b loop.TurnFailed) {
	if first := p.state.Attempt.First; first != nil && first.Attempt == b.Attempt {
		p.first = p.failed
	}
}

// targetOf returns a target of the run; the zero value if the journal does not have it.
func targetOf(s *loop.State, i int) event.Target {
	if i < 0 || i >= len(s.Accepted.Targets) {
		return event.Target{}
	}
	t := s.Accepted.Targets[i]
	return event.Target{Provider: t.Provider, Model: t.Model}
}

// fallbackEvent returns the event of a Routed that was just folded, if another target is tried than the one that has
// failed, or than the first one of a fallback list.
func fallbackEvent(s *loop.State, f loop.Fact) (event.ModelFallback, bool) {
	from, to, ok := s.Fallback()
	if !ok {
		return event.ModelFallback{}, false
	}
	e := event.ModelFallback{Round: s.Routed.Round, From: targetOf(s, from), To: targetOf(s, to), At: timeOf(f)}
	if s.Routed.Attempt > 0 {
		e.Class = s.Attempt.Failed.Class
	}
	for _, t := range s.SkippedTargets() {
		e.Skipped = append(e.Skipped, event.SkippedTarget{Target: targetOf(s, t.Target), Reason: t.Reason})
	}
	return e, true
}

// timeOf returns when a fact was appended, as events have it.
func timeOf(f loop.Fact) time.Time { return time.UnixMilli(f.At).UTC() }

// tellFailedCall emits what the model said before its call failed.
func (p *fold) tellFailedCall(seq int64, b loop.TurnFailed) error {
	var err error
	if p.failed, err = p.content.failureOf(b.ErrorRef); err != nil {
		return err
	}
	p.noteFirst(b)
	return p.tellItems(seq, p.state.Spent.Rounds, b.PartialRef, nil, false)
}

func (p *fold) tellCallDone(f loop.Fact, b loop.CallDone) error {
	c, ok := p.state.Call(b.Key)
	if !ok {
		return nil
	}
	result, err := p.content.itemsOf(b.ResultRef)
	if err != nil {
		return err
	}
	if len(result) == 0 {
		return journal.Damaged(b.ResultRef, errors.New("it holds no result"))
	}
	e := event.ToolDone{
		Round: p.state.Turn.Round, Key: string(c.Key), Name: c.Name, Outcome: b.Outcome,
		Text: item.PlainText(result[0].Parts), Label: string(b.Label), Duration: time.Duration(b.Micros) * time.Microsecond,
		At: timeOf(f),
	}
	if c.Prepared != nil {
		e.Server = loop.LabelOf(c.Prepared.Server)
	}
	e.Approval = c.WaitID()
	if e.Shown, e.Hosted, e.Tool = p.state.ShownAs(c); c.Attempt == 0 {
		e.Arguments = p.rawArguments(c)
	}
	if e.Hosted == builtin.HostedImage {
		e.Image = firstImage(result[0].Parts)
	}
	if e.Value, err = p.valueOf(b.ValueRef, result[0].Structured); err != nil {
		return err
	}
	e.Files = builtin.FilesOf(e.Value)
	if _, is := e.Value.(builtin.CodeResult); is { // its text is JSON, and its images are in the value
		e.Text = item.PlainText(slices.DeleteFunc(slices.Clone(result[0].Parts), func(p item.Part) bool { return p.Kind == item.Image }))
	}
	p.emit(event.Position{Seq: f.Seq}, e)
	return nil
}

// valueOf returns the typed value of a result with this structured content; nil = none.
func (p *fold) valueOf(ref string, structured json.RawMessage) (any, error) {
	if ref == "" {
		return nil, nil
	}
	stored, err := p.content.valueOf(ref)
	if err != nil {
		return nil, err
	}
	if stored.JSON == nil {
		stored.JSON = structured
	}
	value, err := stored.Value()
	if err != nil { // the text of the result is there
		return nil, nil //nolint:nilerr,nilnil // as for a result without a value
	}
	return value, nil
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

// waiting returns the event of a run that waits, with the approvals that are not decided.
func (p *fold) waiting(at int64) (event.Waiting, error) {
	s := &p.state
	e := event.Waiting{
		Usage: s.Usage, Rounds: s.Counts.Rounds, ToolCalls: s.Counts.Calls, SideEffects: s.SideEffects, Cost: paid(s),
		At: time.UnixMilli(at).UTC(),
	}
	for _, c := range s.Calls {
		if c.Wait == nil || c.Resolved || c.Done {
			continue
		}
		arguments, err := p.content.argumentsOf(*c)
		if err != nil {
			return e, err
		}
		e.Approvals = append(e.Approvals, ApprovalEvent(*c.Wait, arguments))
	}
	return e, nil
}

// decision returns the event of a decided approval.
func (p *fold) decision(waitID, by, reason string, status journal.ApprovalStatus, at int64) event.ApprovalDecided {
	e := event.ApprovalDecided{ID: waitID, Decision: string(status), By: by, Reason: reason, At: time.UnixMilli(at).UTC()}
	for _, c := range p.state.Calls {
		if c.WaitID() == waitID {
			e.Key = string(c.Key)
		}
	}
	return e
}

// ApprovalEvent returns what is asked for, as events have it.
func ApprovalEvent(w loop.CallWaiting, arguments json.RawMessage) event.Approval {
	a := event.Approval{ID: w.WaitID, Key: string(w.Key), Name: w.Name, Server: loop.LabelOf(w.Server), Tool: w.Tool, Arguments: arguments}
	if w.ExpiresAt > 0 {
		a.ExpiresAt = time.UnixMilli(w.ExpiresAt).UTC()
	}
	return a
}

// nextDelta returns the position of the next piece of the model call.
func (p *fold) nextDelta() event.Position {
	p.call.Delta++
	return p.call
}

// callDeltas reports whether pieces of tool calls are events. A durable run has them only
// if its surface sends them, because it stores its events.
func (p *fold) callDeltas() bool {
	return p.content.live() && p.state.Grade != loop.Durable || slices.Contains(p.state.Accepted.Live, model.CallDelta)
}

// delta emits the event of a delta of the model call that is under way.
func (p *fold) delta(round int, d model.Delta) {
	switch d.Kind {
	case model.TextDelta:
		p.emit(p.nextDelta(), event.TextDelta{Round: round, Item: d.Item, Part: d.Part, Text: d.Text, Phase: d.Phase})
	case model.ReasoningDelta:
		p.emit(p.nextDelta(), event.ReasoningDelta{Round: round, Item: d.Item, Part: d.Part, Text: d.Text})
	case model.RefusalDelta:
		p.emit(p.nextDelta(), event.RefusalDelta{Round: round, Item: d.Item, Part: d.Part, Text: d.Text, Phase: d.Phase})
	case model.CallDelta:
		if p.callDeltas() {
			p.emit(p.nextDelta(), event.CallDelta{
				Round: round, Item: d.Item, CallID: d.CallID, Name: d.Name, Arguments: d.Text,
			})
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
func (p *fold) tellItems(seq int64, round int, ref string, calls []loop.TurnCall, whole bool) error {
	if p.content.live() || p.call.Delta > 0 && p.last == p.call.Seq || p.state.Accepted.HoldsAnswers() {
		return nil
	}
	items, err := p.content.itemsOf(ref)
	if err != nil {
		return err
	}
	if p.last > p.call.Seq { // a fact with an event came between, which no release writes
		p.call = event.Position{Seq: seq - 1}
	}
	p.tellAll(round, items, calls, whole)
	return nil
}

// tellAnswer emits the answer of a run on which hooks decide, before the fact that ends the run: the
// answer as they have left it, or nothing if the run has ended before they have decided.
func (p *fold) tellAnswer(f loop.Fact) error {
	if !p.state.HeldAnswer() {
		return nil
	}
	p.call = event.Position{Seq: f.Seq - 1}
	if ref := p.state.JudgedAnswer(); ref != "" {
		items, err := p.content.itemsOf(ref)
		if err != nil {
			return err
		}
		p.tellAll(p.state.Turn.Round, items, nil, true)
	}
	p.emit(p.nextDelta(), roundDone(&p.state, f))
	return nil
}

// roundDone returns the event of the end of the latest turn, which f says.
func roundDone(s *loop.State, f loop.Fact) event.RoundDone {
	e := event.RoundDone{Round: s.Turn.Round, Stop: s.Turn.Stop, Usage: s.Turn.Usage, At: timeOf(f)}
	if s.HeldAnswer() && s.AnswerDenied() { // what is told is not from the model
		e.Stop = model.StopEnd
	}
	return e
}

// tellAll emits what the model said in a round.
func (p *fold) tellAll(round int, items []item.Item, calls []loop.TurnCall, whole bool) {
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
			native := it.Native.Opaque && (it.Kind == item.Reasoning || it.Kind == item.Other)
			if native && it.Native.Dialect == p.state.Accepted.Native {
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
}

func (p *fold) tellParts(round, n int, it item.Item) {
	phase := it.Phase
	for i, part := range it.Parts {
		d := model.Delta{Kind: model.TextDelta, Item: n, Part: i, Text: part.Text, Phase: phase}
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
		phase = ""
	}
	for _, c := range it.Citations {
		p.emit(p.nextDelta(), event.Citation{Round: round, Item: n, Citation: c})
	}
}

// checkEnd refuses an end that is told from a fact which is not there.
func (p *fold) checkEnd(b loop.Finished) error {
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

// rawArguments returns the arguments of a call as the model wrote them.
func (p *fold) rawArguments(c loop.Call) string {
	for i, tc := range p.state.Turn.Calls {
		if loop.Key(p.state.Turn.Round, i) == c.Key {
			return tc.Arguments
		}
	}
	return ""
}
