package wire

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// MaxBlocks is how many blocks one turn may have.
const MaxBlocks = 4096

// Emit takes the deltas of a turn.
type Emit func(model.Delta) error

// Report reports a delta. Its error is a [Stopped].
func (e Emit) Report(d model.Delta) error {
	if err := e(d); err != nil {
		return Stopped{Err: err}
	}
	return nil
}

// Cite reports a citation of an item.
func (e Emit) Cite(number int, c item.Citation) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err // unreachable: texts and numbers
	}
	return e.Report(model.Delta{Kind: model.CitationDelta, Item: number, Part: c.Part, Text: string(text)})
}

// Turn puts the turn of an answer together from blocks, each of which is one item, and reports their
// deltas. It is for dialects whose pieces each belong to one block: the decoder of such a dialect embeds
// a Turn, and says which block a piece belongs to.
type Turn struct {
	Emit

	ID, Model string
	Raw       string // the stop reason, in the provider's words
	Over      bool   // the turn is complete

	// Marks is true for dialects that report the end of blocks.
	Marks bool

	Content int // bytes of what the model said
	Others  int // bytes of what is only kept for the provider

	blocks []Block
	calls  int
	cut    bool // the last call is only complete if its arguments are valid
}

// Block is a block of an answer in one dialect. It embeds an [Entry].
type Block interface {
	// Common returns what all dialects know of the block: the embedded Entry implements it.
	Common() *Entry
	// Item returns the block as an entry of the transcript. ok is false for a partial block that the
	// provider would refuse.
	Item() (it item.Item, ok bool)
}

// Entry is what all dialects know of a block.
type Entry struct {
	// Kind decides how a block is reported: Message as text, Reasoning, ToolCall, and any other not at all.
	Kind item.Kind
	Done bool // the block is complete

	Text []byte // of a text or of reasoning

	ID, Name string // of a call
	Input    []byte // the arguments of a call, in JSON
	// Whole is true for an input that is reported at the end of its call: it came with the start of
	// the call, and pieces may repeat it.
	Whole bool

	number int // of its item
}

// Common implements [Block].
func (e *Entry) Common() *Entry { return e }

// Arguments returns the input of a call; {} where a complete call has none.
func (e *Entry) Arguments() string {
	if len(e.Input) == 0 && e.Done {
		return "{}"
	}
	return string(e.Input)
}

// Ended implements [Decoder].
func (t *Turn) Ended() bool { return t.Over }

// Size implements [Decoder].
func (t *Turn) Size() (content, others int) { return t.Content, t.Others }

// IsEmpty reports whether nothing of the turn has come.
func (t *Turn) IsEmpty() bool { return t.ID == "" && len(t.blocks) == 0 }

// Add adds a block, which gets the next number.
func (t *Turn) Add(b Block) error {
	if len(t.blocks) == MaxBlocks {
		return Broken(fmt.Sprintf("sent a turn with more than %d blocks", MaxBlocks), nil)
	}
	b.Common().number = len(t.blocks)
	t.blocks = append(t.blocks, b)
	return nil
}

// Call reports the beginning of a call, with the input that it has. One beyond the limit is no block of the turn.
func (t *Turn) Call(e *Entry) error {
	if t.calls++; t.calls > MaxCalls {
		t.blocks = slices.DeleteFunc(t.blocks, func(b Block) bool { return b.Common() == e })
		return Broken(fmt.Sprintf("sent a turn with more than %d tool calls", MaxCalls), nil)
	}
	d := model.Delta{Kind: model.CallDelta, Item: e.number, CallID: e.ID, Name: e.Name}
	if !e.Whole {
		d.Text = string(e.Input)
	}
	return t.Report(d)
}

// Calls returns how many calls have begun.
func (t *Turn) Calls() int { return t.calls }

// Argue adds a piece of the input of a call.
func (t *Turn) Argue(e *Entry, piece string) error {
	t.Content += len(piece)
	if piece == "" {
		return nil
	}
	if e.Whole { // the pieces repeat it
		e.Input, e.Whole = nil, false
	}
	e.Input = append(e.Input, piece...)
	if e.Kind != item.ToolCall {
		return nil
	}
	return t.Report(model.Delta{Kind: model.CallDelta, Item: e.number, Text: piece})
}

// Say adds a piece of text, or of reasoning.
func (t *Turn) Say(e *Entry, piece string) error {
	d := model.Delta{Item: e.number, Text: piece}
	switch {
	case piece == "":
		return nil
	case e.Kind == item.Message:
		d.Kind = model.TextDelta
	case e.Kind == item.Reasoning:
		d.Kind = model.ReasoningDelta
	default:
		return nil // such as a tool that the provider ran itself
	}
	e.Text = append(e.Text, piece...)
	return t.Report(d)
}

// End completes a block.
func (t *Turn) End(e *Entry) error {
	if e.Done {
		return nil
	}
	e.Done = true
	isCall := e.Kind == item.ToolCall
	if isCall && (len(e.Input) == 0 || e.Whole) {
		if err := t.Report(model.Delta{Kind: model.CallDelta, Item: e.number, Text: e.Arguments()}); err != nil {
			return err
		}
	}
	if !t.Marks || !isCall && len(e.Text) == 0 {
		return nil
	}
	return t.Report(model.Delta{Kind: model.DoneDelta, Item: e.number})
}

// Stop takes the reason for which the model stopped, of dialects that end the block of a call at which the
// output limit was reached. If it stopped for its calls, those are complete whose end did not come and whose
// input is whole.
func (t *Turn) Stop(raw string, stop model.Stop) error {
	t.Raw, t.Over, t.cut = raw, true, stop == model.StopLength
	if stop != model.StopCalls {
		return nil
	}
	for _, b := range t.blocks {
		e := b.Common()
		if e.Kind != item.ToolCall || len(e.Input) > 0 && !json.Valid(e.Input) {
			continue
		}
		if err := t.End(e); err != nil {
			return err
		}
	}
	return nil
}

// Result returns what has been put together. Without an end it is a partial turn.
func (t *Turn) Result(usage model.Usage, stop model.Stop) *model.Turn {
	out := &model.Turn{ID: t.ID, Model: t.Model, RawStop: t.Raw, Usage: usage}
	for i, b := range t.blocks {
		e := b.Common()
		if e.Kind == item.ToolCall {
			cut := t.cut && i == len(t.blocks)-1 && !json.Valid(e.Input)
			c := model.Call{ID: e.ID, Name: e.Name, Arguments: e.Arguments(), Complete: e.Done && !cut}
			out.Calls = append(out.Calls, c)
			if !c.Complete {
				continue
			}
		}
		if it, ok := b.Item(); ok {
			out.Items = append(out.Items, it)
		}
	}
	if out.Items == nil {
		out.Items = []item.Item{{Kind: item.Message, Role: item.Assistant}}
	}
	if t.Over {
		out.Stop = Settled(stop, len(out.Calls))
	}
	return out
}

// Tokens returns a number of tokens as an adapter reports it: between 0 and [MaxUsage].
func Tokens(n int64) int64 { return min(max(n, 0), MaxUsage) }

// TextParts returns a text as the parts of an item.
func TextParts(text []byte) []item.Part { return []item.Part{{Kind: item.Text, Text: string(text)}} }

// HasMore reports whether an object has other members than these, such as who called a tool: an item does not
// hold them.
func HasMore(object []byte, names ...string) bool {
	for name := range jsonscan.Members(object) {
		if !slices.Contains(names, string(name)) {
			return true
		}
	}
	return false
}
