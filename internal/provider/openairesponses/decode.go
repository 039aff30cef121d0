package openairesponses

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	// maxEvent is how many bytes one event may have. The last one repeats the whole
	// answer and the tools of the request.
	maxEvent = 16 << 20

	// maxItems is how many output items one turn may have, and how many parts in all
	// of them.
	maxItems = 4096
)

// decode reads one answer, streamed or whole, reports its deltas and returns the
// turn. The turn stands beside an error where something had come before it. What
// the turn takes is charged to memory, if there is one. native asks for [model.NativeDelta].
// The error is a
// *model.Error, a [wire.Stopped], or what reading returned.
func decode(src io.Reader, memory tool.Memory, native bool, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{Emit: emit, native: native, byIndex: map[int64]*output{}, byID: map[string]*output{}, numbers: map[int]bool{}}
	err := wire.Decode(src, memory, sse.ReaderOptions{MaxLine: maxEvent, MaxEvent: maxEvent}, a)
	if err != nil && a.id == "" && len(a.outputs) == 0 {
		return nil, err
	}
	return a.turn(), err
}

// answer puts a turn together.
type answer struct {
	wire.Emit
	native bool // whole items are reported, too

	id, model string
	outputs   []*output // in the order in which they began
	byIndex   map[int64]*output
	byID      map[string]*output // those that have an id
	numbers   map[int]bool       // that are taken
	calls     int
	parts     int
	citations int
	textBytes int // bytes of what the model said
	usage     model.Usage
	counted   bool   // the usage is that of the end
	tier      string // the service tier, in the provider's words
	raw       string // the status, or why the answer is incomplete
	ended     bool
	cut       bool // the status is incomplete
}

// output is one output item.
type output struct {
	number    int // of the item within the turn, as in model.Delta
	id        string
	kind      string // message, reasoning, function_call, …
	phase     string // of a message
	item      []byte // the whole item, as the provider wrote it; nil until its end came
	textBytes int    // bytes that count

	// What was reported of a message or of reasoning.
	parts     []part
	citations []item.Citation
	partAt    map[place]int // the index in parts

	// Of a call.
	callID, name string
	arguments    []byte
	reported     int  // bytes of arguments
	begun        bool // the id and the name were reported
	ended        bool // the arguments have come to their end

	open  bool // the begin of an item of the provider's own tools was reported
	told  bool // the whole item was reported
	heard bool // anything of it was reported
	done  bool // its end was reported: nothing follows
}

// part is a readable part of an item.
type part struct {
	kind model.DeltaKind
	text []byte

	annotations []byte // the list of the whole item
	annotated   int    // how many annotations have come
}

// place is where a part is in a message or in reasoning.
type place struct {
	kind    model.DeltaKind
	summary bool // in the list "summary", otherwise in "content"
	index   int64
}

// event is what is read of an event of a stream. Values stand in the data of the
// event.
type event struct {
	kind              string
	index             int64 // of the item; -1 = none
	part              int64 // of the content or the summary
	itemID            string
	item, response    []byte
	delta, name, args []byte
	annotation        []byte
	err               []byte
}

func read(data []byte) event {
	e := event{index: -1}
	for name, v := range jsonscan.Members(data) {
		switch string(name) {
		case "type":
			e.kind = jsonscan.Text(v)
		case "output_index":
			e.index = jsonscan.Number(v, -1)
		case "content_index", "summary_index":
			e.part = jsonscan.Number(v, 0)
		case "item_id":
			e.itemID = jsonscan.Text(v)
		case "item":
			e.item = v
		case "response":
			e.response = v
		case "delta":
			e.delta = v
		case "name":
			e.name = v
		case "arguments":
			e.args = v
		case "annotation":
			e.annotation = v
		case "error":
			e.err = v
		}
	}
	return e
}

// Ends implements wire.Decoder. The end of an item, or of a part of it, repeats it whole, and so
// does the last event.
func (a *answer) Ends(ev sse.Event) bool {
	switch kind := jsonscan.Text(jsonscan.Member(ev.Data, "type")); kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "error":
		return true
	default:
		return strings.HasSuffix(kind, ".done")
	}
}

// Ended implements wire.Decoder.
func (a *answer) Ended() bool { return a.ended }

// Size implements wire.Decoder.
func (a *answer) Size() (content, others int) { return a.textBytes, 0 }

// Event implements wire.Decoder.
func (a *answer) Event(ev sse.Event) (last bool, err error) {
	switch {
	case wire.Truncated(ev):
		return false, nil
	case string(ev.Data) == "[DONE]":
		return false, wire.Cut()
	}
	err = a.take(ev.Data)
	return a.ended, err
}

// take reads one event.
func (a *answer) take(data []byte) error {
	if !jsonscan.Valid(data) || !jsonscan.IsKind(data, '{') {
		return wire.Garbage(data)
	}
	e := read(data)
	switch e.kind {
	case "response.created", "response.in_progress", "response.queued":
		a.open(e.response)
	case "response.output_item.added":
		return a.begin(e)
	case "response.output_item.done":
		return a.finish(e.index, e.item)
	case "response.output_text.delta":
		return a.say(e, "message", place{kind: model.TextDelta})
	case "response.refusal.delta":
		return a.say(e, "message", place{kind: model.RefusalDelta})
	case "response.reasoning_summary_text.delta":
		return a.say(e, "reasoning", place{kind: model.ReasoningDelta, summary: true})
	case "response.reasoning_text.delta", "response.reasoning.delta":
		return a.say(e, "reasoning", place{kind: model.ReasoningDelta})
	case "response.output_text.annotation.added":
		return a.annotate(e)
	case "response.function_call_arguments.delta", "response.function_call_arguments.done":
		return a.argue(e)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return a.end(e.response, e.kind[len("response."):])
	case "error":
		if wire.SaysError(e.err) {
			return wire.AnswerError(data)
		}
		return failure(data)
	case "":
		if wire.SaysError(e.err) {
			return wire.AnswerError(data)
		}
	}
	return a.progress(e, data) // or the end of a part, or an event of a later version
}

// Whole implements wire.Decoder.
func (a *answer) Whole(data []byte) error {
	if !jsonscan.IsKind(jsonscan.Member(data, "output"), '[') {
		return wire.Foreign(data, "the answer is not a response")
	}
	return a.end(data, "completed")
}

// open takes the id, the model and the usage of a response.
func (a *answer) open(response []byte) {
	for name, v := range jsonscan.Members(response) {
		switch string(name) {
		case "id":
			a.id = jsonscan.Text(v)
		case "model":
			a.model = jsonscan.Text(v)
		case "service_tier":
			a.tier = jsonscan.Text(v)
		case "usage":
			if jsonscan.IsKind(v, '{') {
				a.usage = usageOf(v)
			}
		}
	}
}

// end takes the response as it is at its end. The event says what its status is
// where the response itself does not.
func (a *answer) end(response []byte, status string) error {
	a.open(response)
	a.counted = jsonscan.IsKind(jsonscan.Member(response, "usage"), '{')
	if s := jsonscan.Text(jsonscan.Member(response, "status")); s != "" {
		status = s
	}
	switch status {
	case "failed", "cancelled":
		if err := jsonscan.Member(response, "error"); jsonscan.IsKind(err, '{') {
			return failure(err)
		}
		return wire.Broken("ended the response with the status "+status, nil)
	case "queued", "in_progress":
		return wire.Broken("sent a response that is not complete: its status is "+status, nil)
	}
	if err := a.merge(jsonscan.Member(response, "output")); err != nil {
		return err
	}
	for _, o := range a.sorted() {
		if o.kind == "function_call" {
			if err := a.reportCall(o, true); err != nil { // one that was cut off before it had a name
				return err
			}
		}
	}
	a.raw, a.ended, a.cut = status, true, status == "incomplete"
	if a.cut {
		if reason := jsonscan.Text(jsonscan.Member(jsonscan.Member(response, "incomplete_details"), "reason")); reason != "" {
			a.raw = reason
		}
	}
	return nil
}

// failure is an error object inside an answer. It gets the form that errors with
// a status of their own have.
func failure(object []byte) error {
	return wire.AnswerError(append(append([]byte(`{"error":`), object...), '}'))
}

// begin takes an item that begins. Its content follows.
func (a *answer) begin(e event) error {
	id, kind := jsonscan.Text(jsonscan.Member(e.item, "id")), jsonscan.Text(jsonscan.Member(e.item, "type"))
	o := a.byID[id]
	if o == nil {
		var err error
		if o, err = a.add(e.index, id, kind); err != nil {
			return err
		}
	}
	if o.kind != "function_call" {
		o.setPhase(e.item)
		return a.beginTool(o, e.item)
	}
	a.identify(o, e.item)
	return a.reportCall(o, false)
}

// add begins an output item. It has the number of its index, or of the next item
// where it has none or shares it.
func (a *answer) add(index int64, id, kind string) (*output, error) {
	if len(a.outputs) >= maxItems {
		return nil, wire.Broken(fmt.Sprintf("sent a turn with more than %d items", maxItems), nil)
	}
	if kind == "function_call" {
		if a.calls++; a.calls > wire.MaxCalls {
			return nil, wire.Broken(fmt.Sprintf("sent a turn with more than %d tool calls", wire.MaxCalls), nil)
		}
	}
	o := &output{number: int(index), id: id, kind: kind}
	if index < 0 || index >= maxItems || a.numbers[o.number] {
		o.number = 0
		for n := range a.numbers {
			o.number = max(o.number, n+1)
		}
	}
	a.numbers[o.number] = true
	a.outputs = append(a.outputs, o)
	a.byIndex[index] = o
	if id != "" {
		a.byID[id] = o
	}
	a.count(o, len(id)+len(kind))
	return o, nil
}

// pieceOf returns the item of the kind that a piece belongs to; nil if it belongs
// to one of another kind. A server that does not say when an item begins gets one.
func (a *answer) pieceOf(e event, kind string) (*output, error) {
	o := a.byID[e.itemID]
	if o == nil {
		o = a.byIndex[e.index]
	}
	switch {
	case o == nil, o.kind != kind && (e.itemID == "" || o.id != e.itemID):
		return a.add(e.index, e.itemID, kind)
	case o.kind != kind:
		return nil, nil
	}
	return o, nil
}

// count adds bytes to what the model said.
func (a *answer) count(o *output, n int) {
	o.textBytes += n
	a.textBytes += n
}

// say takes a piece of what an item says, and reports it.
func (a *answer) say(e event, kind string, at place) error {
	text := jsonscan.Text(e.delta)
	if text == "" {
		return nil
	}
	o, err := a.pieceOf(e, kind)
	if err != nil || o == nil || o.item != nil { // after its end nothing belongs to it
		return err
	}
	a.count(o, len(text))
	at.index = e.part
	i, ok := o.partAt[at]
	if !ok {
		if i, err = a.addPart(o, at.kind); err != nil {
			return err
		}
		if o.partAt == nil {
			o.partAt = map[place]int{}
		}
		o.partAt[at] = i
	}
	return a.reportText(o, i, text)
}

// addPart begins a part of an item.
func (a *answer) addPart(o *output, kind model.DeltaKind) (int, error) {
	if a.parts++; a.parts > maxItems {
		return 0, wire.Broken(fmt.Sprintf("sent a turn with more than %d parts", maxItems), nil)
	}
	o.parts = append(o.parts, part{kind: kind})
	return len(o.parts) - 1, nil
}

func (a *answer) reportText(o *output, i int, text string) error {
	p := &o.parts[i]
	p.text = append(p.text, text...)
	d := model.Delta{Kind: p.kind, Item: o.number, Part: i, Text: text}
	if !o.heard {
		d.Phase = o.phase
	}
	o.heard = true
	return a.Report(d)
}

// maxPhase is the longest name of a phase, in bytes: more than twice that of the longest which is known.
const maxPhase = 32

// setPhase takes the phase of a message, unless a piece of it was reported.
func (o *output) setPhase(object []byte) {
	if phase := jsonscan.Text(jsonscan.Member(object, "phase")); o.kind == "message" && !o.heard && len(phase) <= maxPhase {
		o.phase = phase
	}
}

// argue takes a piece of a call's arguments, or all of them at their end.
func (a *answer) argue(e event) error {
	o, err := a.pieceOf(e, "function_call")
	if err != nil || o == nil || o.item != nil || o.ended {
		return err
	}
	if e.kind == "response.function_call_arguments.delta" {
		o.arguments = jsonscan.AppendText(o.arguments, e.delta)
		a.count(o, len(e.delta))
		return a.reportCall(o, false)
	}
	if !o.begun && jsonscan.HasText(e.name) {
		o.name = jsonscan.Text(e.name)
	}
	a.count(o, max(0, len(e.args)+len(e.name)-o.textBytes))
	if err := o.settle(e.args); err != nil {
		return err
	}
	o.ended = true
	return a.reportCall(o, false)
}

// identify takes the id and the name of a call, unless they were reported.
func (a *answer) identify(o *output, object []byte) {
	if !o.begun {
		o.callID, o.name = jsonscan.Text(jsonscan.Member(object, "call_id")), jsonscan.Text(jsonscan.Member(object, "name"))
		a.count(o, len(o.callID)+len(o.name))
	}
}

// settle takes the arguments as they are at their end. Some servers write them
// differently from the pieces: then the pieces count, if they are whole.
func (o *output) settle(arguments []byte) error {
	if !jsonscan.IsKind(arguments, '"') {
		return nil // none at the end
	}
	final := jsonscan.AppendText(nil, arguments)
	switch {
	case o.reported == 0 || bytes.HasPrefix(final, o.arguments):
		o.arguments = final
	case !jsonscan.Valid(o.arguments):
		return wire.Broken("sent a tool call whose arguments are not what their pieces were", nil)
	}
	return nil
}

// reportCall reports what has not been reported of a call: nothing until its id
// and its name are known, or will not change any more.
func (a *answer) reportCall(o *output, final bool) error {
	d := model.Delta{Kind: model.CallDelta, Item: o.number}
	if !o.begun {
		if !final && (o.callID == "" || o.name == "") {
			return nil
		}
		d.CallID, d.Name = o.callID, o.name
	}
	d.Text = string(o.arguments[o.reported:])
	if o.begun && d.Text == "" {
		return nil
	}
	o.begun, o.reported, o.heard = true, len(o.arguments), true
	return a.Report(d)
}

// finish takes a whole item, from its end or from the end of the response.
func (a *answer) finish(index int64, raw []byte) error {
	if !jsonscan.IsKind(raw, '{') {
		return wire.Garbage(raw)
	}
	o, err := a.endOf(index, raw)
	if err != nil {
		return err
	}
	return a.fill(o, raw)
}

// endOf returns the output item that a whole item completes. Some servers change
// the id of an item while it is streamed; some give all items the same index.
func (a *answer) endOf(index int64, raw []byte) (*output, error) {
	id, kind := jsonscan.Text(jsonscan.Member(raw, "id")), jsonscan.Text(jsonscan.Member(raw, "type"))
	if o := a.byID[id]; o != nil && o.kind == kind {
		return o, nil
	}
	o := a.byIndex[index]
	if o != nil && o.kind == kind && (o.item == nil || kind != "function_call" || o.callID == jsonscan.Text(jsonscan.Member(raw, "call_id"))) {
		return o, nil
	}
	return a.add(index, id, kind)
}

// fill completes an output with the whole item, and reports what has not been
// reported of it, and that it has ended. An end that is repeated has no effect.
func (a *answer) fill(o *output, raw []byte) error {
	if o.done {
		return nil
	}
	if err := a.complete(o, raw); err != nil || !o.heard {
		return err
	}
	o.done = true
	return a.Report(model.Delta{Kind: model.DoneDelta, Item: o.number})
}

// complete does so without its end.
func (a *answer) complete(o *output, raw []byte) error {
	if o.kind == "function_call" && !o.ended {
		if err := o.settle(jsonscan.Member(raw, "arguments")); err != nil {
			return err
		}
	}
	o.item = bytes.Clone(raw)
	a.count(o, max(0, len(raw)-o.textBytes))
	if o.kind == "function_call" {
		a.identify(o, raw)
		return a.reportCall(o, true)
	}
	if o.kind != "message" && o.kind != "reasoning" {
		return a.reportNative(o)
	}
	o.setPhase(raw)
	i := 0
	for p := range partsOf(raw) {
		if i == len(o.parts) {
			if _, err := a.addPart(o, p.kind); err != nil {
				return err
			}
		}
		rest, ok := bytes.CutPrefix(p.text, o.parts[i].text)
		if !ok || p.kind != o.parts[i].kind {
			return nil // it was reported otherwise: that cannot be taken back
		}
		if len(rest) > 0 {
			if err := a.reportText(o, i, string(rest)); err != nil {
				return err
			}
		}
		if err := a.annotateWhole(o, i, p.annotations); err != nil {
			return err
		}
		i++
	}
	if o.kind == "reasoning" && usable(o.item) {
		return a.reportNative(o)
	}
	return nil
}

// ofGateway reports whether items of a type are the gateway's own: calls of MCP servers, and what
// belongs to them. No request offers MCP servers to a provider. An item of a provider that looks
// like one goes back to the provider only: a client would take it for one of the gateway.
func ofGateway(kind string) bool {
	switch kind {
	case "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response":
		return true
	}
	return false
}

// reportNative reports a whole item to a client of this dialect, once.
func (a *answer) reportNative(o *output) error {
	if !a.native || o.told || ofGateway(o.kind) {
		return nil
	}
	o.told, o.heard = true, o.kind == "reasoning" // a whole item of another kind needs no end
	return a.Report(model.Delta{Kind: model.NativeDelta, Item: o.number, Text: string(o.item)})
}

// merge takes the items of the whole response: those whose end has not come, and
// where a server has streamed none of a kind, all of the kind.
func (a *answer) merge(list []byte) error {
	sorted := a.sorted()
	had, calls := map[string]bool{}, map[string]bool{}
	for _, o := range sorted {
		had[o.kind] = true
		if o.kind == "function_call" {
			calls[o.callID] = true
		}
	}
	for i, raw := range jsonscan.Elements(list) {
		if !jsonscan.IsKind(raw, '{') {
			return wire.Garbage(raw)
		}
		id, kind := jsonscan.Text(jsonscan.Member(raw, "id")), jsonscan.Text(jsonscan.Member(raw, "type"))
		o := a.byID[id]
		if o == nil && i < len(sorted) && sorted[i].kind == kind {
			o = sorted[i]
		}
		if o == nil {
			if had[kind] && (kind != "function_call" || calls[jsonscan.Text(jsonscan.Member(raw, "call_id"))]) {
				continue // an item that came under another id
			}
			var err error
			if o, err = a.add(int64(i), id, kind); err != nil {
				return err
			}
		}
		if o.item != nil {
			continue
		}
		if err := a.fill(o, raw); err != nil {
			return err
		}
	}
	return nil
}
