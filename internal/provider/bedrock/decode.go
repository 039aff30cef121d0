package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decode reads one answer, streamed or whole, reports its deltas and returns the turn. The
// turn stands beside an error where something had come before it. What the turn takes is
// charged to memory, if there is one. The error is a *model.Error, a [wire.Stopped], or
// what reading returned.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{Turn: wire.Turn{Emit: emit}, byIndex: map[int]*answerBlock{}}
	err := wire.DecodeEvents(src, memory, newFrames, a)
	if err == nil && malformed(a.Raw) {
		err = wire.Broken("ended the answer with "+a.Raw, nil) // the model may do better the next time
		a.Over = false
	}
	if err != nil && a.IsEmpty() {
		return nil, err
	}
	return wire.Announced(a.turn(), claude.StopOf(a.Raw), err)
}

// malformed reports whether the provider could not read what the model wrote.
func malformed(reason string) bool {
	return reason == "malformed_model_output" || reason == "malformed_tool_use"
}

// answer puts a turn together.
type answer struct {
	wire.Turn
	byIndex map[int]*answerBlock // the last one of each index
	usage   usage
	tier    serviceTier
	counted bool // the usage has come
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
	wire.Entry
	kind  blockKind
	whole json.RawMessage // the block, in an answer that is not streamed
	start json.RawMessage // the value of the member that began it, with all of its members

	signature []byte
	redacted  []byte // the bytes of reasoning that only the provider can read
	hidden    bool   // there are such
	results   []json.RawMessage
	citations []json.RawMessage
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
			err = a.End(&b.Entry)
		}
	case "messageStop":
		err = a.Stop(e.Stop, claude.StopOf(e.Stop))
	case "metadata":
		a.addUsage(e.Usage, e.Tier)
	}
	return a.Over && a.counted, err
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
	return a.Stop(m.Stop, claude.StopOf(m.Stop))
}

// take takes a whole block.
func (a *answer) take(index int, raw json.RawMessage) error {
	name, value := onlyMember(raw)
	b, err := a.open(index, raw)
	if err != nil {
		return err
	}
	b.whole, b.start = raw, value
	b.be(blockKind(name))
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
		var input json.RawMessage
		if input, err = b.read(); err != nil {
			return wire.Garbage(raw)
		}
		b.Input = input
		err = a.named(b)
	}
	if err == nil {
		err = a.Say(&b.Entry, text)
	}
	if err != nil {
		return err
	}
	return a.End(&b.Entry)
}

// onlyMember returns the member of a union.
func onlyMember(raw []byte) (name string, value []byte) {
	for n, v := range jsonscan.Members(raw) {
		return string(n), v
	}
	return "", nil
}

// open begins a block.
func (a *answer) open(index int, data []byte) (*answerBlock, error) {
	b := &answerBlock{}
	if err := a.Add(b); err != nil {
		return nil, err
	}
	a.byIndex[index] = b
	a.Content += len(data)
	return b, nil
}

// be sets what the block is.
func (b *answerBlock) be(kind blockKind) {
	b.kind, b.Kind = kind, item.Other
	switch kind {
	case aText, aCitation:
		b.Kind = item.Message
	case aReasoning:
		b.Kind = item.Reasoning
	case aCall:
		b.Kind = item.ToolCall
	}
}

// read reads what begins a call, and returns its input. A call that the provider runs itself is none for the gateway.
func (b *answerBlock) read() (input json.RawMessage, err error) {
	var start struct {
		ID    string          `json:"toolUseId"`
		Name  string          `json:"name"`
		Type  string          `json:"type"` // server_tool_use: the provider ran it itself
		Input json.RawMessage `json:"input"`
	}
	err = json.Unmarshal(b.start, &start)
	if b.ID, b.Name = start.ID, start.Name; start.Type != "" && start.Type != "tool_use" {
		b.Kind = item.Other
	}
	return start.Input, err
}

// begin takes the start of a block in a stream. Texts and reasoning have none, or an empty one:
// their pieces say what they are.
func (a *answer) begin(index int, start, data []byte) error {
	name, value := onlyMember(start)
	b, err := a.open(index, start)
	if err != nil {
		return err
	}
	b.start = bytes.Clone(value)
	if b.be(blockKind(name)); b.kind != aCall {
		return nil
	}
	input, err := b.read()
	if err != nil {
		return wire.Garbage(data)
	}
	if len(input) > len("{}") {
		b.Input, b.Whole = bytes.Clone(input), true
	}
	return a.named(b)
}

// named reports the beginning of a call for the gateway.
func (a *answer) named(b *answerBlock) error {
	if b.Kind != item.ToolCall {
		return nil
	}
	return a.Call(&b.Entry)
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
		if b, err = a.open(index, nil); err != nil {
			return err
		}
		b.be(d.kind())
	} else if kind := d.kind(); kind != "" && !b.kind.known() { // its start did not say what it is
		b.be(kind)
		if err := a.named(b); err != nil {
			return err
		}
	}
	switch {
	case b.Done:
		return wire.Broken("sent a piece of a block that has ended", nil)
	case !b.takes(d.kind()):
		return wire.Broken(fmt.Sprintf("sent a piece of %s in a block of %s", d.kind(), b.kind), nil)
	case d.Text != nil:
		a.Content += len(*d.Text)
		return a.Say(&b.Entry, *d.Text)
	case d.Call != nil:
		return a.Argue(&b.Entry, d.Call.Input)
	case d.Reasoning != nil:
		return a.reason(b, d.Reasoning, data)
	case d.Results != nil:
		a.Content += len(raw)
		for _, r := range d.Results {
			b.results = append(b.results, bytes.Clone(r))
		}
	case d.Citation != nil:
		a.Content += len(raw)
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
	a.Content += len(p.Text) + len(p.Signature)
	b.signature = append(b.signature, p.Signature...)
	if p.Redacted != nil {
		part, err := base64.StdEncoding.DecodeString(*p.Redacted)
		if err != nil {
			return wire.Garbage(data)
		}
		a.Content += len(*p.Redacted)
		b.redacted, b.hidden = append(b.redacted, part...), true
	}
	return a.Say(&b.Entry, p.Text)
}

func (a *answer) addUsage(raw, tier json.RawMessage) {
	if json.Unmarshal(raw, &a.usage) == nil { // what cannot be read was not reported
		a.counted = true
	}
	_ = json.Unmarshal(tier, &a.tier)
}
