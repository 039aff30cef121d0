package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// decode reads one answer, streamed or whole, reports its deltas and returns the
// turn. The turn stands beside an error where something had come before it. What
// the turn takes is charged to memory, if there is one. The error is a
// *model.Error, a [wire.Stopped], or what reading returned.
func decode(src io.Reader, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{emit: emit, size: wire.Size{Memory: memory}}
	whole, src, err := wire.Sniff(src)
	switch {
	case errors.Is(err, io.EOF):
		err = wire.Cut()
	case err != nil:
	case whole:
		err = a.whole(src)
	default:
		err = a.stream(src)
	}
	if err != nil && a.id == "" && len(a.blocks) == 0 {
		return nil, err
	}
	return a.turn(), err
}

// answer puts a turn together.
type answer struct {
	emit func(model.Delta) error

	id, model string
	blocks    []*answerBlock // in the order in which they began
	calls     int
	words     int // bytes of text, thinking and arguments
	size      wire.Size
	usage     usage
	raw       string // the stop reason
	ended     bool
}

// answerBlock is a block of the answer.
type answerBlock struct {
	index int
	start blockStart
	raw   json.RawMessage // the start, with all of its members

	text      []byte // of a text or of thinking
	input     []byte // of a call, in JSON
	signature []byte
	citations []json.RawMessage
	complete  bool
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
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Details    struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// stream reads events until the message has ended.
func (a *answer) stream(src io.Reader) error {
	r := sse.NewReader(src, sse.ReaderOptions{})
	for {
		ev, err := r.Next()
		var limit *sse.LimitError
		switch {
		case err != nil && a.ended: // only message_stop is missing
			return nil
		case errors.Is(err, io.EOF):
			return wire.Cut()
		case errors.As(err, &limit):
			return wire.Broken("sent a stream that is too large", err)
		case err != nil:
			return err
		}
		data := wire.TrimSpace(ev.Data)
		if len(data) == 0 || ev.Partial && !wire.Valid(data) { // the rest follows as the reader's error
			continue
		}
		done, err := a.take(data)
		if err == nil {
			err = a.size.Check(a.words)
		}
		if done || err != nil {
			return err
		}
	}
}

// take reads one event, and reports whether it is the last.
func (a *answer) take(data []byte) (done bool, err error) {
	var e event
	if json.Unmarshal(data, &e) != nil {
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
		if b := a.block(e.Index); b != nil {
			b.complete = true
		}
	case "message_delta":
		a.addUsage(e.Usage)
		if e.Delta.StopReason != "" {
			a.raw, a.ended = e.Delta.StopReason, true
		}
	case "message_stop":
		a.ended = true
		return true, nil
	}
	return false, nil // a ping, or an event of a later version
}

// whole reads an answer that is one JSON object.
func (a *answer) whole(src io.Reader) error {
	data, err := wire.ReadWhole(src, a.size.Memory)
	if err != nil {
		return err
	}
	var m envelope
	if json.Unmarshal(data, &m) != nil || m.Type != "message" {
		failed := wire.AnswerError(data)
		if failed.Message == "" {
			failed.Message = "the answer is not a message"
		}
		return failed
	}
	if err := a.open(m); err != nil {
		return err
	}
	for i, b := range a.blocks {
		if b.index != i {
			return wire.Garbage(data)
		}
		b.complete = true
	}
	a.raw, a.ended = m.StopReason, true
	return a.size.Check(a.words)
}

// open takes the id, the model, the usage and the blocks of a message.
func (a *answer) open(m envelope) error {
	a.id, a.model = m.ID, m.Model
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
	b := &answerBlock{index: index, raw: bytes.Clone(raw)}
	if json.Unmarshal(raw, &b.start) != nil {
		return wire.Garbage(raw)
	}
	if b.start.Type == "tool_use" {
		if a.calls++; a.calls > wire.MaxCalls {
			return wire.Broken(fmt.Sprintf("sent a turn with more than %d tool calls", wire.MaxCalls), nil)
		}
	}
	a.blocks = append(a.blocks, b)
	b.signature, b.citations = []byte(b.start.Signature), b.start.Citations
	if len(b.start.Input) > 2 { // {} begins the input of a stream
		b.input = bytes.Clone(b.start.Input)
	}
	a.words += len(raw)
	return errors.Join(a.say(b, model.TextDelta, b.start.Text), a.say(b, model.ReasoningDelta, b.start.Thinking))
}

// block returns the last block of the index, nil without one.
func (a *answer) block(index int) *answerBlock {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if a.blocks[i].index == index {
			return a.blocks[i]
		}
	}
	return nil
}

// add takes a piece of a block.
func (a *answer) add(e event) error {
	b := a.block(e.Index)
	if b == nil {
		return wire.Broken("sent a piece of a block that has not begun", nil)
	}
	d := e.Delta
	a.words += len(d.Partial) + len(d.Signature) + len(d.Citation)
	switch d.Type {
	case "input_json_delta":
		b.input = append(b.input, d.Partial...)
	case "signature_delta":
		b.signature = append(b.signature, d.Signature...)
	case "citations_delta":
		b.citations = append(b.citations, bytes.Clone(d.Citation))
	case "text_delta":
		return a.piece(b, model.TextDelta, d.Text)
	case "thinking_delta":
		return a.piece(b, model.ReasoningDelta, d.Thinking)
	}
	return nil
}

func (a *answer) piece(b *answerBlock, kind model.DeltaKind, text string) error {
	a.words += len(text)
	return a.say(b, kind, text)
}

// say appends to the text of a block, and reports it.
func (a *answer) say(b *answerBlock, kind model.DeltaKind, text string) error {
	if text == "" {
		return nil
	}
	b.text = append(b.text, text...)
	if err := a.emit(model.Delta{Kind: kind, Text: text}); err != nil {
		return wire.Stopped{Err: err}
	}
	return nil
}

func (a *answer) addUsage(raw json.RawMessage) {
	_ = json.Unmarshal(raw, &a.usage) // what cannot be read was not reported
}
