package anthropic

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// turn returns what has been put together. Without an end it is a partial turn.
func (a *answer) turn() *model.Turn {
	t := &model.Turn{ID: a.id, Model: a.model, RawStop: a.raw, Usage: a.usage.sum()}
	for _, b := range a.blocks {
		if b.start.Type == "tool_use" {
			c := model.Call{ID: b.start.ID, Name: b.start.Name, Arguments: b.arguments(), Complete: b.complete && a.finished(b)}
			t.Calls = append(t.Calls, c)
			if !c.Complete {
				continue
			}
		}
		if it, ok := b.item(); ok {
			t.Items = append(t.Items, it)
		}
	}
	if t.Items == nil {
		t.Items = []item.Item{{Kind: item.Message, Role: item.Assistant}}
	}
	if a.ended {
		t.Usage.Estimated = !a.counted && t.Usage.Total > 0
		t.Stop = wire.Settled(stopOf(a.raw), len(t.Calls))
	}
	return t
}

// finished reports whether the model wrote all of a call. The provider also ends the block
// of a call at which the output limit was reached.
func (a *answer) finished(b *answerBlock) bool {
	return stopOf(a.raw) != model.StopLength || b != a.blocks[len(a.blocks)-1] || json.Valid(b.input)
}

// arguments returns the input of a call; {} where a complete call has none.
func (b *answerBlock) arguments() string {
	if len(b.input) == 0 && b.complete {
		return "{}"
	}
	return string(b.input)
}

// item returns the block as an entry of the transcript. A partial block that the
// provider would refuse has none.
func (b *answerBlock) item() (item.Item, bool) {
	native := item.Native{Dialect: model.DialectAnthropic}
	text := []item.Part{{Kind: item.Text, Text: string(b.text)}}
	switch b.start.Type {
	case "text":
		if len(b.citations) > 0 {
			native.JSON = wire.AsJSON(map[string]any{"type": "text", "text": string(b.text), "citations": b.citations})
		} else {
			native = item.Native{}
		}
		return item.Item{Kind: item.Message, Role: item.Assistant, Parts: text, Native: native}, true
	case "thinking":
		native.JSON = wire.AsJSON(map[string]string{"type": "thinking", "thinking": string(b.text), "signature": string(b.signature)})
		it := item.Item{Kind: item.Reasoning, Native: native}
		if len(b.text) > 0 {
			it.Parts = text
		}
		return it, b.complete
	case "redacted_thinking":
		native.JSON = b.raw
		return item.Item{Kind: item.Reasoning, Native: native}, true
	case "tool_use":
		it := item.NewCall(b.start.ID, b.start.Name, b.arguments())
		if b.hasMore() {
			native.JSON = b.withInput()
			it.Native = native
		}
		return it, true
	}
	native.JSON = b.withInput()
	if b.start.Type == compactionBlock {
		native.JSON = b.withSummary()
	}
	return item.Item{Kind: item.Other, Native: native}, b.complete
}

// compactionBlock is the type of a block with the provider's summary of what is before it.
const compactionBlock = "compaction"

// withSummary returns a compaction with what came after its begin.
func (b *answerBlock) withSummary() json.RawMessage {
	if b.summary == nil && b.encrypted == nil {
		return b.raw
	}
	out := map[string]json.RawMessage{}
	for name, v := range jsonscan.Members(b.raw) {
		out[string(name)] = v
	}
	if b.summary != nil {
		out["content"] = wire.AsJSON(string(b.summary))
	}
	if b.encrypted != nil {
		out["encrypted_content"] = b.encrypted
	}
	return wire.AsJSON(out)
}

// hasMore reports whether the block of a call has members that an item does not
// hold, such as who called the tool.
func (b *answerBlock) hasMore() bool {
	for name := range jsonscan.Members(b.raw) {
		switch string(name) {
		case "type", "id", "name", "input":
		default:
			return true
		}
	}
	return false
}

// withInput returns the block as it began, with the input that came after it.
func (b *answerBlock) withInput() json.RawMessage {
	if len(b.input) == 0 || !json.Valid(b.input) {
		return b.raw
	}
	var out []byte
	for name, v := range jsonscan.Members(b.raw) {
		if string(name) == "input" {
			v = b.input
		}
		out = append(out, ',')
		out = append(jsonscan.AppendString(out, name), ':')
		out = append(out, v...)
	}
	if out == nil {
		return b.raw
	}
	out[0] = '{'
	return append(out, '}')
}

// stopOf maps a stop reason; one that is not known ends the turn.
func stopOf(raw string) model.Stop {
	switch raw {
	case "tool_use":
		return model.StopCalls
	case "max_tokens", "model_context_window_exceeded":
		return model.StopLength
	case "refusal":
		return model.StopFilter
	}
	return model.StopEnd
}

// sum returns the usage with cached and written input as parts of the input, which the
// dialect counts beside it.
func (u usage) sum() model.Usage {
	n := func(v *int64) int64 {
		if v == nil {
			return 0
		}
		return min(max(*v, 0), wire.MaxUsage)
	}
	write := max(n(u.CacheWrite), n(u.Writes.Minutes)+n(u.Writes.Hour))
	out := model.Usage{
		Input: n(u.Input) + n(u.CacheRead) + write, Output: n(u.Output),
		CachedInput: n(u.CacheRead), CacheWrite: write, CacheWrite1h: n(u.Writes.Hour), Reasoning: n(u.Details.Thinking),
	}
	if u.Tier != nil {
		out.ServiceTier = model.Tier(*u.Tier)
	}
	for _, i := range u.Iterations {
		if i.Type != "compaction" {
			continue
		}
		out.Input = min(out.Input+n(i.Input)+n(i.CacheRead)+n(i.CacheWrite), wire.MaxUsage)
		out.CachedInput, out.CacheWrite = min(out.CachedInput+n(i.CacheRead), wire.MaxUsage), min(out.CacheWrite+n(i.CacheWrite), wire.MaxUsage)
		out.Output = min(out.Output+n(i.Output), wire.MaxUsage)
	}
	out.Total = out.Input + out.Output
	return out
}
