package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxBlocks is how many blocks one turn may have.
const maxBlocks = 4096

// decode reads one answer, streamed or whole, reports its deltas and returns the turn. The
// turn stands beside an error where something had come before it. What the turn takes is
// charged to memory, if there is one. The error is a *model.Error, a [wire.Stopped], or
// what reading returned.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{emit: emit, byIndex: map[int]*answerBlock{}}
	err := wire.DecodeEvents(src, memory, newFrames, a)
	if err == nil && malformed(a.raw) {
		err = wire.Broken("ended the answer with "+a.raw, nil) // the model may do better the next time
		a.ended = false
	}
	if err != nil && len(a.blocks) == 0 {
		return nil, err
	}
	return wire.Announced(a.turn(), stopOf(a.raw), err)
}

// malformed reports whether the provider could not read what the model wrote.
func malformed(reason string) bool {
	return reason == "malformed_model_output" || reason == "malformed_tool_use"
}

// answer puts a turn together.
type answer struct {
	emit func(model.Delta) error

	blocks    []*answerBlock       // in the order in which they began
	byIndex   map[int]*answerBlock // the last one of each index
	calls     int
	textBytes int // bytes of text, reasoning and arguments
	usage     usage
	tier      serviceTier
	counted   bool   // the usage has come
	raw       string // the stop reason
	ended     bool
}

// blockKind is what a block is: the name of its member.
type blockKind string

const (
	aText      blockKind = "text"
	aCall      blockKind = "toolUse"
	aResult    blockKind = "toolResult" // of a tool that the provider ran itself
	aReasoning blockKind = "reasoningContent"
	aCitation  blockKind = "citationsContent"
)

// known reports whether the kind is one of this version.
func (k blockKind) known() bool {
	switch k {
	case aText, aCall, aResult, aReasoning, aCitation:
		return true
	}
	return false
}

// answerBlock is a block of the answer. In a stream its kind shows in its start, or in its
// first piece.
type answerBlock struct {
	kind   blockKind
	number int             // of its item: every block is one
	whole  json.RawMessage // the block, in an answer that is not streamed
	start  json.RawMessage // the value of the member that began it, with all of its members
	call   callStart

	text      []byte // of a text or of reasoning
	input     []byte // of a call, in JSON
	wholeCall bool   // input came with the start, and is not reported yet
	signature []byte
	redacted  []byte // the bytes of reasoning that only the provider can read
	hidden    bool   // there are such
	results   []json.RawMessage
	citations []json.RawMessage
	complete  bool
}

// callStart is what begins a call.
type callStart struct {
	ID    string          `json:"toolUseId"`
	Name  string          `json:"name"`
	Type  string          `json:"type"` // server_tool_use: the provider ran it itself
	Input json.RawMessage `json:"input"`
}

// ours reports whether the call is one for the gateway.
func (b *answerBlock) ours() bool {
	return b.kind == aCall && (b.call.Type == "" || b.call.Type == "tool_use")
}

// event is any event of a stream.
type event struct {
	Index int             `json:"contentBlockIndex"`
	Start json.RawMessage `json:"start"`
	Delta json.RawMessage `json:"delta"`
	Stop  string          `json:"stopReason"`
	Usage json.RawMessage `json:"usage"`
	Tier  json.RawMessage `json:"serviceTier"`
}

// delta is a piece of a block. It has one member.
type delta struct {
	Text *string `json:"text"`
	Call *struct {
		Input string `json:"input"`
	} `json:"toolUse"`
	Reasoning *reasoningPiece   `json:"reasoningContent"`
	Results   []json.RawMessage `json:"toolResult"`
	Citation  json.RawMessage   `json:"citation"`
}

type reasoningPiece struct {
	Text      string  `json:"text"`
	Signature string  `json:"signature"`
	Redacted  *string `json:"redactedContent"` // base64
}

// wholeAnswer is an answer that is not streamed.
type wholeAnswer struct {
	Output struct {
		Message *struct {
			Content []json.RawMessage `json:"content"`
		} `json:"message"`
	} `json:"output"`
	Stop  string          `json:"stopReason"`
	Usage json.RawMessage `json:"usage"`
	Tier  json.RawMessage `json:"serviceTier"`
}

// usage counts tokens as the provider reports them.
type usage struct {
	Input      int64      `json:"inputTokens"`
	Output     int64      `json:"outputTokens"`
	CacheRead  int64      `json:"cacheReadInputTokens"`
	CacheWrite int64      `json:"cacheWriteInputTokens"`
	Writes     []struct { // parts of CacheWrite
		TTL    string `json:"ttl"` // 5m or 1h
		Tokens int64  `json:"inputTokens"`
	} `json:"cacheDetails"`
}

// serviceTier is the tier that served the request.
type serviceTier struct {
	Type string `json:"type"`
}

// Ends implements wire.Decoder.
func (a *answer) Ends(ev sse.Event) bool {
	switch name := string(ev.Name); name {
	case "contentBlockStop", "messageStop", "metadata":
		return true
	default:
		return strings.HasPrefix(name, failedEvent)
	}
}

// Ended implements wire.Decoder. After messageStop only the usage is missing.
func (a *answer) Ended() bool { return a.ended }

// Size implements wire.Decoder.
func (a *answer) Size() (content, others int) { return a.textBytes, 0 }

// Event implements wire.Decoder.
func (a *answer) Event(ev sse.Event) (last bool, err error) {
	name := string(ev.Name)
	if kind, failed := strings.CutPrefix(name, failedEvent); failed {
		return false, wire.AnswerErrorOf(kind, ev.Data)
	}
	var e event
	switch name {
	case "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata":
	default: // messageStart, or an event of a later version
		return false, nil
	}
	if !jsonscan.IsKind(ev.Data, '{') || json.Unmarshal(ev.Data, &e) != nil {
		return false, wire.Garbage(ev.Data)
	}
	switch name {
	case "contentBlockStart":
		err = a.begin(e.Index, e.Start, ev.Data)
	case "contentBlockDelta":
		err = a.add(e.Index, e.Delta, ev.Data)
	case "contentBlockStop":
		if b := a.byIndex[e.Index]; b != nil {
			err = a.end(b)
		}
	case "messageStop":
		a.raw, a.ended = e.Stop, true
		err = a.endCalls()
	case "metadata":
		a.addUsage(e.Usage, e.Tier)
	}
	return a.ended && a.counted, err
}

// Whole implements wire.Decoder.
func (a *answer) Whole(data []byte) error {
	var m wholeAnswer
	if json.Unmarshal(data, &m) != nil || m.Output.Message == nil {
		return wire.Foreign(data, "the answer is not a message")
	}
	for i, raw := range m.Output.Message.Content {
		if err := a.take(i, bytes.Clone(raw)); err != nil {
			return err
		}
	}
	a.addUsage(m.Usage, m.Tier)
	a.raw, a.ended = m.Stop, true
	return nil
}

// take takes a whole block.
func (a *answer) take(index int, raw json.RawMessage) error {
	name, value := onlyMember(raw)
	b, err := a.open(index, blockKind(name), raw)
	if err != nil {
		return err
	}
	b.whole, b.start = raw, value
	var text string
	switch b.kind {
	case aText:
		text = jsonscan.Text(value)
	case aReasoning:
		text = jsonscan.Text(jsonscan.Member(jsonscan.Member(value, "reasoningText"), "text"))
	case aCitation:
		for _, piece := range jsonscan.Elements(jsonscan.Member(value, "content")) {
			text += jsonscan.Text(jsonscan.Member(piece, "text"))
		}
		b.citations = []json.RawMessage{value}
	case aCall:
		if json.Unmarshal(value, &b.call) != nil {
			return wire.Garbage(raw)
		}
		b.input = b.call.Input
		err = a.named(b)
	}
	if err == nil {
		err = a.say(b, text)
	}
	if err != nil {
		return err
	}
	return a.end(b)
}

// onlyMember returns the member of a union.
func onlyMember(raw []byte) (name string, value []byte) {
	for n, v := range jsonscan.Members(raw) {
		return string(n), v
	}
	return "", nil
}

// open begins a block.
func (a *answer) open(index int, kind blockKind, data []byte) (*answerBlock, error) {
	if len(a.blocks) == maxBlocks {
		return nil, wire.Broken(fmt.Sprintf("sent a turn with more than %d blocks", maxBlocks), nil)
	}
	b := &answerBlock{kind: kind, number: len(a.blocks)}
	a.blocks = append(a.blocks, b)
	a.byIndex[index] = b
	a.textBytes += len(data)
	return b, nil
}

// begin takes the start of a block in a stream. Texts and reasoning have none, or an empty one:
// their pieces say what they are.
func (a *answer) begin(index int, start, data []byte) error {
	name, value := onlyMember(start)
	b, err := a.open(index, blockKind(name), start)
	if err != nil {
		return err
	}
	b.start = bytes.Clone(value)
	if b.kind != aCall {
		return nil
	}
	if json.Unmarshal(value, &b.call) != nil {
		return wire.Garbage(data)
	}
	if err := a.named(b); err != nil {
		return err
	}
	if len(b.call.Input) > len("{}") {
		b.input, b.wholeCall = bytes.Clone(b.call.Input), true
	}
	return nil
}

// endCalls completes the calls whose end did not come, if the model stopped for its calls and
// wrote all of their input.
func (a *answer) endCalls() error {
	if stopOf(a.raw) != model.StopCalls {
		return nil
	}
	for _, b := range a.blocks {
		if !b.ours() || b.complete || len(b.input) > 0 && !json.Valid(b.input) {
			continue
		}
		if err := a.end(b); err != nil {
			return err
		}
	}
	return nil
}

// named reports the beginning of a call for the gateway.
func (a *answer) named(b *answerBlock) error {
	if !b.ours() {
		return nil
	}
	if a.calls++; a.calls > wire.MaxCalls {
		return wire.Broken(fmt.Sprintf("sent a turn with more than %d tool calls", wire.MaxCalls), nil)
	}
	return a.report(model.Delta{Kind: model.CallDelta, Item: b.number, CallID: b.call.ID, Name: b.call.Name, Text: string(b.input)})
}

// add takes a piece of a block.
func (a *answer) add(index int, raw, data []byte) error {
	var d delta
	if json.Unmarshal(raw, &d) != nil {
		return wire.Garbage(data)
	}
	b := a.byIndex[index]
	if b == nil {
		var err error
		if b, err = a.open(index, d.kind(), nil); err != nil {
			return err
		}
	}
	if kind := d.kind(); kind != "" && !b.kind.known() { // its start did not say what it is
		b.kind = kind
		if err := a.named(b); err != nil {
			return err
		}
	}
	switch {
	case b.complete:
		return wire.Broken("sent a piece of a block that has ended", nil)
	case !b.takes(d.kind()):
		return wire.Broken(fmt.Sprintf("sent a piece of %s in a block of %s", d.kind(), b.kind), nil)
	case d.Text != nil:
		a.textBytes += len(*d.Text)
		return a.say(b, *d.Text)
	case d.Call != nil:
		a.textBytes += len(d.Call.Input)
		if b.wholeCall && d.Call.Input != "" { // the pieces repeat it
			b.input, b.wholeCall = nil, false
		}
		b.input = append(b.input, d.Call.Input...)
		if b.ours() && d.Call.Input != "" {
			return a.report(model.Delta{Kind: model.CallDelta, Item: b.number, Text: d.Call.Input})
		}
	case d.Reasoning != nil:
		return a.reason(b, d.Reasoning, data)
	case d.Results != nil:
		a.textBytes += len(raw)
		for _, r := range d.Results {
			b.results = append(b.results, bytes.Clone(r))
		}
	case d.Citation != nil:
		a.textBytes += len(raw)
		b.citations = append(b.citations, bytes.Clone(d.Citation))
	}
	return nil
}

// kind returns the kind of a block that begins with the piece.
func (d delta) kind() blockKind {
	switch {
	case d.Text != nil:
		return aText
	case d.Call != nil:
		return aCall
	case d.Reasoning != nil:
		return aReasoning
	case d.Results != nil:
		return aResult
	case d.Citation != nil:
		return aCitation
	}
	return ""
}

// takes reports whether a piece of the kind belongs to the block. A text may have
// citations.
func (b *answerBlock) takes(kind blockKind) bool {
	said := func(k blockKind) bool { return k == aText || k == aCitation }
	return kind == b.kind || kind == "" || said(kind) && said(b.kind)
}

// reason takes a piece of reasoning.
func (a *answer) reason(b *answerBlock, p *reasoningPiece, data []byte) error {
	a.textBytes += len(p.Text) + len(p.Signature)
	b.signature = append(b.signature, p.Signature...)
	if p.Redacted != nil {
		part, err := base64.StdEncoding.DecodeString(*p.Redacted)
		if err != nil {
			return wire.Garbage(data)
		}
		a.textBytes += len(*p.Redacted)
		b.redacted, b.hidden = append(b.redacted, part...), true
	}
	return a.say(b, p.Text)
}

// end notes that a block is complete. The arguments of a call without input are {}.
func (a *answer) end(b *answerBlock) error {
	begun := !b.complete
	b.complete = true
	if !begun || !b.ours() || len(b.input) > 0 && !b.wholeCall {
		return nil
	}
	return a.report(model.Delta{Kind: model.CallDelta, Item: b.number, Text: b.arguments()})
}

// say appends to the text of a block of text or reasoning, and reports it.
func (a *answer) say(b *answerBlock, text string) error {
	d := model.Delta{Item: b.number, Text: text}
	switch {
	case text == "":
		return nil
	case b.kind == aText || b.kind == aCitation:
		d.Kind = model.TextDelta
	case b.kind == aReasoning:
		d.Kind = model.ReasoningDelta
	default:
		return nil
	}
	b.text = append(b.text, text...)
	return a.report(d)
}

func (a *answer) report(d model.Delta) error {
	if err := a.emit(d); err != nil {
		return wire.Stopped{Err: err}
	}
	return nil
}

func (a *answer) addUsage(raw, tier json.RawMessage) {
	if json.Unmarshal(raw, &a.usage) == nil { // what cannot be read was not reported
		a.counted = true
	}
	_ = json.Unmarshal(tier, &a.tier)
}
