package responses

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// encoder turns the events of a run into output items, and into events of the API if the
// answer is a stream. It makes the same items for both, with the same ids.
//
//	created · in_progress                         before the first item
//	  output_item.added … output_item.done        for each item; those of a model call end before the next
//	                                              item begins if the provider marks their ends, else with the call
//	completed | incomplete | failed, [DONE]       exactly one
//
// Until the first item, nothing is sent, so that a failure has its HTTP status.
type encoder struct {
	*surface.Answer
	stream *surface.Stream // nil = the answer is one object
	echo   echo
	tools  clientTools
	mcp    mcpOutput
	hosted hostedOutput

	held     []event.Event // all events, for an answer with the texts of the last round only
	created  bool          // response.created was sent
	queued   bool          // the run has not begun, as far as its events say
	sequence int64         // of the next event
	after    int64         // events up to this number are not sent; -1 = all are
	output   []any         // the items; one that is open has the form of its begin
	open     []*openItem   // of the model call in progress, in the order of their indices
	calling  bool          // a model call is in progress
	begun    int           // how many items there were when it began
	native   int           // bytes of the items of the provider's own tools in it
	replay   bool          // the events were held, and charged
	made     []event.File  // files of code that no message names yet
}

// openItem is an item of the model call in progress.
type openItem struct {
	kind  model.DeltaKind // CallDelta, ReasoningDelta, NativeDelta, or TextDelta for every message
	item  int             // its number in the model call
	id    string
	index int // in the output
	parts []openPart
	call  event.ClientCall // of a call
	phase string           // of a message; "" = not known

	encrypted *string         // content of reasoning that only the provider can read
	native    json.RawMessage // the begin of an item of a provider's own tool

	ended  bool // no delta of it follows
	closed bool // its end was sent
}

// openPart is a text of a message or of reasoning, or the arguments of a call.
type openPart struct {
	kind  model.DeltaKind
	begun bool
	text  surface.Text

	annotations []any
}

func newEncoder(a *surface.Answer, s *surface.Stream, asked echo, tools clientTools) *encoder {
	e := &encoder{Answer: a, stream: s, echo: asked, tools: tools, output: []any{}, after: -1}
	e.mcp.out, e.hosted.out = e, e
	return e
}

// suffix is the part of the run's id that the ids of the response and its items have.
func (e *encoder) suffix() string { return suffixOf(e.Started.RunID) + e.Started.Part }

func suffixOf(runID string) string { return strings.TrimPrefix(runID, "run_") }

// Event implements surface.Encoder and surface.Object.
func (e *encoder) Event(ev event.Event) error {
	if started, is := ev.(event.Started); is && started.Queued {
		e.queued = true
		e.begin()
	} else if e.queued {
		e.queued = false
		e.sendState("response.in_progress", "in_progress")
	}
	if !e.FinalOnly {
		return e.add(ev)
	}
	if started, ok := ev.(event.RoundStarted); ok { // a repeated round is void
		e.held = slices.DeleteFunc(e.held, func(h event.Event) bool { return eventlog.RoundOf(h) == started.Round })
	}
	e.held = append(e.held, ev)
	return e.Charge(eventlog.EventSize(ev))
}

// add adds an event to the output.
func (e *encoder) add(ev event.Event) error {
	switch ev := ev.(type) {
	case event.RoundStarted:
		e.startRound()
	case event.TextDelta:
		return e.say(model.TextDelta, "msg", ev)
	case event.RefusalDelta:
		return e.say(model.RefusalDelta, "msg", event.TextDelta(ev))
	case event.ReasoningDelta:
		return e.say(model.ReasoningDelta, "rs", event.TextDelta{Round: ev.Round, Item: ev.Item, Part: ev.Part, Text: ev.Text})
	case event.CallDelta:
		if e.Relayed {
			return e.argue(ev)
		}
	case event.NativeItem:
		return e.addNative(ev)
	case event.NativeProgress:
		return e.addProgress(ev)
	case event.Citation:
		return e.cite(ev)
	case event.ItemDone:
		e.itemDone(ev.Item)
	case event.RoundDone:
		if ev.Stop != model.StopCalls {
			e.citeMade()
		}
		e.endRound(ev.Stop)
	case event.Waiting:
		return e.ask(ev)
	case event.ModelFallback: // the items have no provider
	case event.HookRan: // the client gets what takes effect
	case event.Compacted: // the client has its whole conversation
	case event.Paused, event.LimitsRaised: // the response goes on when the limit is raised
	case event.Started, event.ToolsListed, event.ToolStarted, event.ToolDone, event.ApprovalDecided,
		event.RelayHead, event.RelayBody, event.Finished:
		if err := e.charge(eventlog.EventSize(ev)); err != nil {
			return err
		}
		e.mcp.run, e.hosted.run = e.suffix(), e.suffix()
		e.hosted.container, e.hosted.outputs = cmp.Or(e.echo.container, file.ContainerOf(e.Started.RunID)), e.echo.outputs
		e.mcp.event(ev)
		e.hosted.event(ev)
		if done, ok := ev.(event.ToolDone); ok {
			e.made = append(e.made, done.Files...)
		}
	}
	return nil
}

// ask adds the calls that wait for approval.
func (e *encoder) ask(ev event.Waiting) error {
	for _, a := range ev.Approvals {
		if err := e.charge(len(a.Arguments)); err != nil {
			return err
		}
		item := newApprovalRequest(a)
		e.doneItem(e.addItem(item), item)
	}
	return nil
}

// startRound begins a model call. What an earlier attempt at it said is void: no client has
// got it.
func (e *encoder) startRound() {
	for _, o := range e.open {
		for i := range o.parts {
			e.Release(o.parts[i].text.Size())
		}
	}
	if e.calling {
		e.output = e.output[:e.begun]
		e.Release(e.native)
	}
	e.open, e.calling, e.begun, e.native = nil, true, len(e.output), 0
}

// keep appends to a text that the response ends with.
func (e *encoder) keep(in *surface.Text, text string) error {
	if e.replay {
		in.Add(text)
		return nil
	}
	return e.Keep(in, text)
}

// charge charges the account for an item that is not a text of the model.
func (e *encoder) charge(n int) error {
	if e.replay {
		return nil
	}
	return e.Charge(n)
}

// opened returns the open item with a number, which begins if it is new.
func (e *encoder) opened(kind model.DeltaKind, prefix string, round, item int, begin func(id string) any) *openItem {
	for _, o := range e.open {
		if o.item == item && o.kind == kind {
			return o
		}
	}
	e.closeEnded()
	id := fmt.Sprintf("%s_%s_%d_%d", prefix, e.suffix(), round, item)
	o := &openItem{kind: kind, item: item, id: id, index: e.addItem(begin(id))}
	e.open = append(e.open, o)
	return o
}

// part returns a part of an item. Parts that the model leaves empty are there, too.
func (o *openItem) part(index int, kind model.DeltaKind) *openPart {
	for len(o.parts) <= index {
		o.parts = append(o.parts, openPart{kind: kind})
	}
	return &o.parts[index]
}

// say adds a piece of a text.
func (e *encoder) say(kind model.DeltaKind, prefix string, d event.TextDelta) error {
	var o *openItem
	if kind == model.ReasoningDelta {
		o = e.opened(kind, prefix, d.Round, d.Item, func(id string) any { return newReasoning(id) })
	} else {
		o = e.opened(model.TextDelta, prefix, d.Round, d.Item, func(id string) any { return newMessage(id, "in_progress", d.Phase) })
		if o.phase == "" {
			o.phase = d.Phase
		}
	}
	p := o.part(d.Part, kind)
	if err := e.keep(&p.text, d.Text); err != nil {
		return err
	}
	for i := range o.parts[:d.Part+1] {
		e.beginPart(o, i)
	}
	surface.Pieces(d.Text, surface.MaxPiece, func(piece string) { e.sendDelta(o, d.Part, piece) })
	return nil
}

func newMessage(id, status, phase string) message {
	return message{id, "message", status, "assistant", phase, []any{}}
}

func newReasoning(id string) reasoning {
	return reasoning{ID: id, Type: "reasoning", Summary: []summaryText{}}
}

// addNative adds an item that a tool of the provider's own has made, as it is, or the
// encrypted content of reasoning.
func (e *encoder) addNative(ev event.NativeItem) error {
	if err := e.charge(len(ev.JSON)); err != nil {
		return err
	}
	var w struct {
		Type      string  `json:"type"`
		Encrypted *string `json:"encrypted_content"`
	}
	e.native += len(ev.JSON)
	if err := json.Unmarshal(ev.JSON, &w); err != nil {
		return fmt.Errorf("item of a provider: %w", err)
	}
	if w.Type != "reasoning" {
		e.endNative(ev)
		return nil
	}
	if e.echo.encrypted {
		o := e.opened(model.ReasoningDelta, "rs", ev.Round, ev.Item, func(id string) any { return newReasoning(id) })
		o.encrypted = w.Encrypted
	}
	return nil
}

// beginPart sends that a part begins, once.
func (e *encoder) beginPart(o *openItem, part int) {
	p := &o.parts[part]
	if p.begun {
		return
	}
	p.begun = true
	if o.kind == model.ReasoningDelta {
		e.send("response.reasoning_summary_part.added", &summaryPartEvent{at: o.at(), SummaryIndex: part, Part: summaryText{Type: "summary_text"}})
		return
	}
	e.send("response.content_part.added", &contentPartEvent{at: o.at(), ContentIndex: part, Part: p.content("")})
}

// content returns a part of a message.
func (p *openPart) content(text string) any {
	if p.kind == model.RefusalDelta {
		return refusal{"refusal", text}
	}
	out := newOutputText(text)
	out.Annotations = append(out.Annotations, p.annotations...)
	return out
}

func (o *openItem) at() at { return at{o.id, o.index} }

func (e *encoder) sendDelta(o *openItem, part int, piece string) {
	switch o.parts[part].kind {
	case model.ReasoningDelta:
		e.send("response.reasoning_summary_text.delta", &summaryEvent{at: o.at(), SummaryIndex: part, Delta: &piece})
	case model.RefusalDelta:
		e.send("response.refusal.delta", &textEvent{at: o.at(), ContentIndex: part, Delta: &piece})
	default:
		e.send("response.output_text.delta", &textEvent{at: o.at(), ContentIndex: part, Delta: &piece, Logprobs: []any{}})
	}
}

// argue adds a piece of a call of a relay. The input of a custom tool is sent at its end: it
// is text inside of JSON.
func (e *encoder) argue(ev event.CallDelta) error {
	o := e.opened(model.CallDelta, "fc", ev.Round, ev.Item, func(id string) any {
		return e.callItem(id, "in_progress", event.ClientCall{ID: ev.CallID, Name: ev.Name})
	})
	if ev.Name != "" {
		o.call = event.ClientCall{ID: ev.CallID, Name: ev.Name}
	}
	p := o.part(0, model.CallDelta)
	if err := e.keep(&p.text, ev.Arguments); err != nil {
		return err
	}
	if !e.tools.sent[o.call.Name].custom {
		surface.Pieces(ev.Arguments, surface.MaxPiece, func(piece string) {
			e.send("response.function_call_arguments.delta", &argumentsEvent{at: o.at(), Delta: &piece})
		})
	}
	return nil
}

// endRound ends the items of a model call. If the model was cut off, the last one is
// incomplete.
func (e *encoder) endRound(stop model.Stop) {
	last := "completed"
	if stop == model.StopLength || stop == model.StopFilter {
		last = "incomplete"
	}
	e.closeItems(last)
}

// itemDone notes that no delta of an item follows. Reasoning ends at once. A message and a
// call end when the next item begins: if they are the last, the end of the model call says
// whether they are complete.
func (e *encoder) itemDone(number int) {
	for _, o := range e.open {
		if o.item != number || o.closed {
			continue
		}
		o.ended = true
		if o.kind == model.ReasoningDelta {
			e.closeItem(o, "completed")
		}
	}
}

// closeEnded ends the items of which no delta follows, before the next item begins.
func (e *encoder) closeEnded() {
	for _, o := range e.open {
		if o.ended && !o.closed {
			e.closeItem(o, "completed")
		}
	}
}

// closeItems ends the open items; the last one has the status.
func (e *encoder) closeItems(last string) {
	slices.SortFunc(e.open, func(a, b *openItem) int { return cmp.Compare(a.index, b.index) })
	for i, o := range e.open {
		status := "completed"
		if i == len(e.open)-1 {
			status = last
		}
		if !o.closed {
			e.closeItem(o, status)
		}
	}
	e.open, e.calling, e.begun, e.native = nil, false, len(e.output), 0
}

// closeItem ends an item of a model.
func (e *encoder) closeItem(o *openItem, status string) {
	o.closed = true
	switch o.kind {
	case model.NativeDelta:
		e.doneItem(o.index, cutOff(o.native))
		return
	case model.CallDelta:
		o.call.Arguments = o.part(0, model.CallDelta).text.String()
		e.endCall(o.id, o.index, status, o.call)
		return
	case model.ReasoningDelta:
		item := newReasoning(o.id)
		item.Encrypted = o.encrypted
		for i := range o.parts {
			part := summaryText{"summary_text", o.parts[i].text.String()}
			e.send("response.reasoning_summary_text.done", &summaryEvent{at: o.at(), SummaryIndex: i, Text: &part.Text})
			e.send("response.reasoning_summary_part.done", &summaryPartEvent{at: o.at(), SummaryIndex: i, Part: part})
			item.Summary = append(item.Summary, part)
		}
		e.doneItem(o.index, item)
		return
	}
	item := newMessage(o.id, status, o.phase)
	for i := range o.parts {
		text := o.parts[i].text.String()
		part := o.parts[i].content(text)
		if o.parts[i].kind == model.RefusalDelta {
			e.send("response.refusal.done", &textEvent{at: o.at(), ContentIndex: i, Refusal: &text})
		} else {
			e.send("response.output_text.done", &textEvent{at: o.at(), ContentIndex: i, Text: &text, Logprobs: []any{}})
		}
		e.send("response.content_part.done", &contentPartEvent{at: o.at(), ContentIndex: i, Part: part})
		item.Content = append(item.Content, part)
	}
	e.doneItem(o.index, item)
}

// callItem returns the item of a call of a tool of the client.
func (e *encoder) callItem(id, status string, c event.ClientCall) any {
	sent, known := e.tools.sent[c.Name]
	if !known {
		sent.name = c.Name
	}
	if sent.custom {
		input := ""
		if c.Arguments != "" {
			input = customInput(c.Arguments)
		}
		return customCall{"ctc" + strings.TrimPrefix(id, "fc"), "custom_tool_call", status, c.ID, sent.name, sent.namespace, input}
	}
	return functionCall{id, "function_call", status, c.ID, sent.name, sent.namespace, c.Arguments}
}

// endCall sends the end of a call of a tool of the client.
func (e *encoder) endCall(id string, index int, status string, c event.ClientCall) {
	item := e.callItem(id, status, c)
	switch item := item.(type) {
	case customCall:
		where := at{item.ID, index}
		if item.Input != "" {
			e.send("response.custom_tool_call_input.delta", &argumentsEvent{at: where, Delta: &item.Input})
		}
		e.send("response.custom_tool_call_input.done", &argumentsEvent{at: where, Input: &item.Input})
	case functionCall:
		e.send("response.function_call_arguments.done", &argumentsEvent{at: at{item.ID, index}, Name: &item.Name, Arguments: &item.Arguments})
	}
	e.doneItem(index, item)
}

// handOver adds the calls that the client executes.
func (e *encoder) handOver() {
	for i, c := range e.End.Calls {
		id := fmt.Sprintf("fc_%s_%d", e.suffix(), i)
		begin := c
		begin.Arguments = ""
		index := e.addItem(e.callItem(id, "in_progress", begin))
		if !e.tools.sent[c.Name].custom {
			surface.Pieces(c.Arguments, surface.MaxPiece, func(piece string) {
				e.send("response.function_call_arguments.delta", &argumentsEvent{at: at{id, index}, Delta: &piece})
			})
		}
		e.endCall(id, index, "completed", c)
	}
}

// addItem implements outputs.
func (e *encoder) addItem(item any) int {
	e.output = append(e.output, item)
	index := len(e.output) - 1
	e.send("response.output_item.added", &itemEvent{OutputIndex: index, Item: item})
	return index
}

// itemEvent implements outputs.
func (e *encoder) itemEvent(name, id string, index int, member, value string) {
	where := at{id, index}
	switch member {
	case "delta":
		e.send(name, &argumentsEvent{at: where, Delta: &value})
	case "arguments":
		e.send(name, &argumentsEvent{at: where, Arguments: &value})
	case "code":
		e.send(name, &argumentsEvent{at: where, Code: &value})
	default:
		e.send(name, &stepEvent{at: where})
	}
}

// doneItem implements outputs.
func (e *encoder) doneItem(index int, item any) {
	e.output[index] = item
	e.send("response.output_item.done", &itemEvent{OutputIndex: index, Item: item})
}

// numbered is an event of the stream.
type numbered interface {
	begin(kind string, sequence int64, obfuscation string)
}

// send sends an event, after the first two if it is the first.
func (e *encoder) send(kind string, ev numbered) {
	if e.stream == nil {
		return
	}
	e.begin()
	padding := ""
	if n, is := deltaBytes(ev); is && !e.echo.plain {
		padding = surface.Obfuscation(e.Started.RunID+e.Started.Part, e.sequence, n)
	}
	ev.begin(kind, e.sequence, padding)
	e.sequence++
	if e.sequence > e.after+1 {
		e.stream.SendJSON(kind, ev)
	}
}

// begin sends the first two events, once.
func (e *encoder) begin() {
	if e.created {
		return
	}
	e.created = true
	status, kind := "in_progress", "response.in_progress"
	if e.queued {
		status, kind = "queued", "response.queued"
	}
	e.sendState("response.created", status)
	e.sendState(kind, status)
}

// sendState sends the response without output, in a state.
func (e *encoder) sendState(kind, status string) {
	r := e.response()
	r.Status, r.Output = status, []any{}
	e.send(kind, &responseEvent{Response: r})
}

// soFar returns the response of a run that has not ended, with what there is of its output.
func (e *encoder) soFar(queued bool) *response {
	r := e.response()
	r.Status = "in_progress"
	if queued && e.queued {
		r.Status = "queued"
	}
	r.Output = slices.Clone(e.output)
	for _, o := range e.open {
		if o.closed {
			continue
		}
		switch o.kind {
		case model.ReasoningDelta:
			item := newReasoning(o.id)
			for i := range o.parts {
				item.Summary = append(item.Summary, summaryText{"summary_text", o.parts[i].text.String()})
			}
			r.Output[o.index] = item
		case model.TextDelta:
			item := newMessage(o.id, "in_progress", o.phase)
			for i := range o.parts {
				item.Content = append(item.Content, o.parts[i].content(o.parts[i].text.String()))
			}
			r.Output[o.index] = item
		default: // it has the form of its begin
		}
	}
	return r
}

// response returns the response object without an end. Its usage is what has been counted:
// zeros before the end. OpenAI sends null there. Its own document has an object or no
// member, and Open Responses has an object or null: only an object is valid in both.
func (e *encoder) response() *response {
	return &response{
		Usage: newUsage(e.End.Usage), ID: conversation.SegmentID(e.Started.RunID, e.Started.Part), Object: "response", CreatedAt: e.Started.At.Unix(), Model: e.Started.Model, Output: e.output, Background: e.echo.background, echo: e.echo,
	}
}

// Value implements surface.Object.
func (e *encoder) Value() any { return e.finished() }

// finished returns the whole response of a run that has not failed.
func (e *encoder) finished() *response {
	e.finishOutput()
	return e.ended()
}

// Finish implements surface.Encoder.
func (e *encoder) Finish() {
	r := e.finished()
	e.send("response."+r.Status, &responseEvent{Response: r})
	e.stream.Send("", []byte("[DONE]"))
}

// finishOutput adds what comes with the end of the run.
func (e *encoder) finishOutput() {
	last := e.End.Rounds - 1
	e.replay = true
	for _, ev := range e.held {
		if r := eventlog.RoundOf(ev); r < 0 || r >= last || e.End.Reason.Limit() {
			_ = e.add(ev) // only a charge can fail, and held events are charged
		}
	}
	e.held = nil
	e.closeItems("incomplete") // of a model call that did not end
	e.mcp.cut()
	e.hosted.cut()
	if !e.Relayed {
		e.handOver()
	}
}

// incomplete has the reason of incomplete_details for each reason for which a response is
// incomplete. Those that OpenAI does not have are documented in docs/responses.md.
var incomplete = map[event.Reason]string{
	event.OutputCut:  "max_output_tokens",
	event.Refused:    "content_filter",
	event.MaxRounds:  "max_rounds",
	event.Deadline:   "deadline",
	event.Tokens:     "run_tokens",
	event.Money:      "run_cost",
	event.NoProgress: "no_progress",
}

// ended returns the response object of a run that has not failed.
func (e *encoder) ended() *response {
	r := e.response()
	r.Status, r.Extra, r.ServiceTier = "completed", e.Extra(), e.servedTier()
	if reason, is := incomplete[e.End.Reason]; is {
		r.Status, r.IncompleteDetails = "incomplete", &incompleteDetails{reason}
	} else if e.End.Reason == event.MaxCalls {
		r.IncompleteDetails = &incompleteDetails{"max_tool_calls"}
	}
	if at := e.End.At; !at.IsZero() && r.Status == "completed" {
		seconds := at.Unix()
		r.CompletedAt = &seconds
	}
	return r
}

// servedTier returns the service tier that the provider named for every model call of the run.
func (e *encoder) servedTier() string { return cmp.Or(e.End.Usage.ServiceTier, "default") }

// failed returns the response object of a run that failed with the error object of the API. A
// run that was cancelled, by somebody or because its client left, has no error.
func (e *encoder) failed(object []byte) *response {
	e.held = nil
	e.closeItems("incomplete")
	e.mcp.cut()
	e.hosted.cut()
	r := e.response()
	r.Status, r.Error, r.Extra, r.ServiceTier = "failed", newResponseError(object), e.Extra(), e.servedTier()
	switch e.End.Reason {
	case event.Cancelled, event.CallerGone:
		r.Status, r.Error = "cancelled", nil
	}
	return r
}

// Resumable implements surface.Resumable.
func (e *encoder) Resumable() bool { return e.echo.background && e.End.Reason == "" }

// Fail implements surface.Encoder.
func (e *encoder) Fail(object []byte) {
	r := e.failed(object)
	e.send("response.failed", &responseEvent{Response: r})
	e.stream.Send("", []byte("[DONE]"))
}

// codeBlocked is the code of a run that the outbound policy ended, also after the first byte.
const codeBlocked = "outbound_ssrf_blocked"

// newResponseError returns the error of a response from the error object of the API. A
// response has other codes than an HTTP error, so the message begins with the latter's.
// Only codeBlocked stays as it is.
func newResponseError(object []byte) *responseError {
	var w surface.OpenAIError
	if json.Unmarshal(object, &w) != nil {
		return &responseError{"server_error", string(object)}
	}
	out := &responseError{"server_error", w.Error.Message}
	switch w.Error.Type {
	case "rate_limit_error":
		out.Code = "rate_limit_exceeded"
	case "invalid_request_error":
		out.Code = "invalid_prompt"
	}
	if deref(w.Error.Code) == codeBlocked {
		out.Code = codeBlocked
	}
	if code := deref(w.Error.Code); code != "" && !strings.HasPrefix(out.Message, code) {
		out.Message = code + ": " + out.Message
	}
	return out
}
