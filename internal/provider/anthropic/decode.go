package anthropic

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decode reads one answer, streamed or whole, reports its deltas and returns the
// turn. The turn stands beside an error where something had come before it. What
// the turn takes is charged to memory, if there is one. The error is a
// *model.Error, a [wire.Stopped], or what reading returned.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{Turn: wire.Turn{Emit: emit, Marks: true}, byIndex: map[int]*answerBlock{}}
	err := wire.Decode(src, memory, sse.ReaderOptions{}, a)
	if err != nil && a.IsEmpty() {
		return nil, err
	}
	return wire.Announced(a.turn(), claude.StopOf(a.Raw), err)
}

// answer puts a turn together.
type answer struct {
	wire.Turn
	byIndex    map[int]*answerBlock // the last one of each index
	usage      usage
	counted    bool // the usage is that of the end, and not of the beginning
	unstreamed bool // the answer is one object
}

// answerBlock is a block of the answer.
type answerBlock struct {
	wire.Entry
	start     blockStart
	raw       json.RawMessage // the start, with all of its members
	signature []byte
	citations []json.RawMessage

	summary   []byte          // of a compaction, if it came in pieces
	encrypted json.RawMessage // of it, too
}

// blockStart is what is read of a block: all of it where the answer is whole.
type blockStart struct {
	Type      string            `json:"type"`
	Text      string            `json:"text"`
	Thinking  string            `json:"thinking"`
	Signature string            `json:"signature"`
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Input     json.RawMessage   `json:"input"`
	Citations []json.RawMessage `json:"citations"`
}

// event is any event of a stream.
type event struct {
	Type    string          `json:"type"`
	Index   int             `json:"index"`
	Message json.RawMessage `json:"message"`
	Block   json.RawMessage `json:"content_block"`
	Delta   struct {
		Type       string          `json:"type"`
		Text       string          `json:"text"`
		Thinking   string          `json:"thinking"`
		Signature  string          `json:"signature"`
		Partial    string          `json:"partial_json"`
		Citation   json.RawMessage `json:"citation"`
		Content    string          `json:"content"`           // of a compaction
		Encrypted  json.RawMessage `json:"encrypted_content"` // of it, too
		StopReason string          `json:"stop_reason"`
	} `json:"delta"`
	Usage json.RawMessage `json:"usage"`
}

// envelope is a whole answer, or what begins a stream.
type envelope struct {
	Type       string            `json:"type"`
	ID         string            `json:"id"`
	Model      string            `json:"model"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      json.RawMessage   `json:"usage"`
}

// usage counts tokens as the provider reports them. Later events repeat what has
// grown.
type usage struct {
	Input      *int64   `json:"input_tokens"`
	Output     *int64   `json:"output_tokens"`
	CacheRead  *int64   `json:"cache_read_input_tokens"`
	CacheWrite *int64   `json:"cache_creation_input_tokens"`
	Writes     struct { // parts of CacheWrite, by how long they are cached
		Minutes *int64 `json:"ephemeral_5m_input_tokens"`
		Hour    *int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Tier    *string `json:"service_tier"`
	Details struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`

	// Iterations are the samplings of a call with a compaction. The members above have those of the
	// type message only.
	Iterations []iteration `json:"iterations"`
}

// iteration is the usage of one sampling.
type iteration struct {
	Type       string `json:"type"` // message or compaction
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// Ends implements wire.Decoder.
func (a *answer) Ends(ev sse.Event) bool {
	switch jsonscan.Text(jsonscan.Member(ev.Data, "type")) {
	case "content_block_stop", "message_delta", "message_stop", "error":
		return true
	}
	return false
}

// Event implements wire.Decoder.
func (a *answer) Event(ev sse.Event) (last bool, err error) {
	if wire.Truncated(ev) {
		return false, nil
	}
	data := ev.Data
	var e event
	if json.Unmarshal(data, &e) != nil {
		if isLater(data) {
			return false, nil
		}
		return false, wire.Garbage(data)
	}
	switch e.Type {
	case "error":
		return false, wire.AnswerError(bytes.Clone(data))
	case "message_start":
		var m envelope
		if json.Unmarshal(e.Message, &m) != nil {
			return false, wire.Garbage(data)
		}
		return false, a.open(m)
	case "content_block_start":
		return false, a.begin(e.Index, e.Block)
	case "content_block_delta":
		return false, a.add(e)
	case "content_block_stop":
		if b := a.byIndex[e.Index]; b != nil {
			return false, a.End(&b.Entry)
		}
	case "message_delta":
		a.addUsage(e.Usage)
		a.counted = a.counted || jsonscan.IsKind(e.Usage, '{') && jsonscan.Member(e.Usage, "output_tokens") != nil
		if e.Delta.StopReason != "" {
			return false, a.Stop(e.Delta.StopReason, claude.StopOf(e.Delta.StopReason))
		}
	case "message_stop":
		a.Over = true
		return true, nil
	}
	return false, nil // a ping, or an event of a later version
}

// isLater reports whether an event, or a piece of a block, is of a type of a later version.
func isLater(data []byte) bool {
	if !jsonscan.Valid(data) || !jsonscan.IsKind(data, '{') {
		return false
	}
	switch jsonscan.Text(jsonscan.Member(data, "type")) {
	case "error", "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop":
		return false
	case "content_block_delta":
		switch jsonscan.Text(jsonscan.Member(jsonscan.Member(data, "delta"), "type")) {
		case "input_json_delta", "signature_delta", "citations_delta", "text_delta", "thinking_delta", "compaction_delta", "":
			return false
		}
	}
	return true
}

// Whole implements wire.Decoder.
func (a *answer) Whole(data []byte) error {
	var m envelope
	if json.Unmarshal(data, &m) != nil || m.Type != "message" {
		return wire.Foreign(data, "the answer is not a message")
	}
	blocks := m.Content
	m.Content, a.unstreamed, a.counted = nil, true, true
	if err := a.open(m); err != nil {
		return err
	}
	for i, raw := range blocks {
		if err := a.begin(i, raw); err != nil {
			return err
		}
		if err := a.End(&a.byIndex[i].Entry); err != nil {
			return err
		}
	}
	return a.Stop(m.StopReason, claude.StopOf(m.StopReason))
}

// open takes the id, the model, the usage and the blocks of a message.
func (a *answer) open(m envelope) error {
	a.ID, a.Model = m.ID, m.Model
	a.addUsage(m.Usage)
	for i, raw := range m.Content {
		if err := a.begin(i, raw); err != nil {
			return err
		}
	}
	return nil
}

// begin takes the start of a block, which holds all of it in a whole answer.
func (a *answer) begin(index int, raw json.RawMessage) error {
	b := &answerBlock{raw: bytes.Clone(raw)}
	if !jsonscan.IsKind(raw, '{') {
		return wire.Garbage(raw)
	}
	if json.Unmarshal(raw, &b.start) != nil {
		b.start = blockStart{Type: jsonscan.Text(jsonscan.Member(raw, "type"))}
		switch b.start.Type {
		case "text", "thinking", "redacted_thinking", "tool_use", "":
			return wire.Garbage(raw)
		}
	}
	b.signature, b.citations = []byte(b.start.Signature), b.start.Citations
	b.ID, b.Name = b.start.ID, b.start.Name
	if len(b.start.Input) > 2 { // {} begins the input of a stream
		b.Input, b.Whole = bytes.Clone(b.start.Input), !a.unstreamed
	}
	if err := a.Add(b); err != nil {
		return err
	}
	a.byIndex[index] = b
	a.Content += len(raw)
	switch b.start.Type {
	case "text":
		b.Kind = item.Message
	case "thinking":
		b.Kind = item.Reasoning
	case "tool_use":
		b.Kind = item.ToolCall
		return a.Call(&b.Entry)
	}
	return a.Say(&b.Entry, b.start.Text+b.start.Thinking)
}

// add takes a piece of a block.
func (a *answer) add(e event) error {
	b := a.byIndex[e.Index]
	switch {
	case b == nil:
		return wire.Broken("sent a piece of a block that has not begun", nil)
	case b.Done:
		return wire.Broken("sent a piece of a block that has ended", nil)
	}
	d := e.Delta
	a.Content += len(d.Signature) + len(d.Citation)
	switch d.Type {
	case "input_json_delta":
		return a.Argue(&b.Entry, d.Partial)
	case "signature_delta":
		b.signature = append(b.signature, d.Signature...)
	case "citations_delta":
		b.citations = append(b.citations, bytes.Clone(d.Citation))
	case "compaction_delta":
		a.Content += len(d.Content) + len(d.Encrypted)
		b.summary = append(b.summary, d.Content...)
		if len(d.Encrypted) > 0 && !jsonscan.IsNull(d.Encrypted) {
			b.encrypted = bytes.Clone(d.Encrypted)
		}
	case "text_delta":
		a.Content += len(d.Text)
		return a.Say(&b.Entry, d.Text)
	case "thinking_delta":
		a.Content += len(d.Thinking)
		return a.Say(&b.Entry, d.Thinking)
	}
	return nil
}

func (a *answer) addUsage(raw json.RawMessage) {
	_ = json.Unmarshal(raw, &a.usage) // what cannot be read was not reported
}
