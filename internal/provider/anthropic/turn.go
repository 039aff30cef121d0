package anthropic

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// turn returns what has been put together. Without an end it is a partial turn.
func (a *answer) turn() *model.Turn {
	usage := a.usage.sum()
	usage.Estimated = a.Over && !a.counted && usage.Total > 0
	return a.Result(usage, claude.StopOf(a.Raw))
}

// Item implements wire.Block.
func (b *answerBlock) Item() (item.Item, bool) {
	native := item.Native{Dialect: model.DialectAnthropic}
	text := wire.TextParts(b.Text)
	switch b.start.Type {
	case "text":
		if len(b.citations) > 0 {
			native.JSON = wire.AsJSON(map[string]any{"type": "text", "text": string(b.Text), "citations": b.citations})
		} else {
			native = item.Native{}
		}
		return item.Item{Kind: item.Message, Role: item.Assistant, Parts: text, Native: native}, true
	case "thinking":
		native.JSON = wire.AsJSON(map[string]string{"type": "thinking", "thinking": string(b.Text), "signature": string(b.signature)})
		it := item.Item{Kind: item.Reasoning, Native: native}
		if len(b.Text) > 0 {
			it.Parts = text
		}
		return it, b.Done
	case "redacted_thinking":
		native.JSON = b.raw
		return item.Item{Kind: item.Reasoning, Native: native}, true
	case "tool_use":
		it := item.NewCall(b.ID, b.Name, b.Arguments())
		if wire.HasMore(b.raw, "type", "id", "name", "input") {
			native.JSON = b.withInput()
			it.Native = native
		}
		return it, true
	}
	native.JSON = b.withInput()
	if b.start.Type == compactionBlock {
		native.JSON = b.withSummary()
	}
	return item.Item{Kind: item.Other, Native: native}, b.Done
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

// withInput returns the block as it began, with the input that came after it.
func (b *answerBlock) withInput() json.RawMessage {
	if len(b.Input) == 0 || !json.Valid(b.Input) {
		return b.raw
	}
	out := []byte{'{'}
	for name, v := range jsonscan.Members(b.raw) {
		if string(name) == "input" {
			v = b.Input
		}
		out = jsonscan.AppendMember(out, name, v)
	}
	return append(out, '}')
}

// sum returns the usage with cached and written input as parts of the input, which the
// dialect counts beside it.
func (u usage) sum() model.Usage {
	n := func(v *int64) int64 {
		if v == nil {
			return 0
		}
		return wire.Tokens(*v)
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
