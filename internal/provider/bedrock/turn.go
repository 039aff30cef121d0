package bedrock

import (
	"encoding/base64"
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// turn returns what has been put together. Without an end it is a partial turn. The
// dialect has no id of an answer, and no name of the model that answered.
func (a *answer) turn() *model.Turn {
	usage := a.usage.sum()
	usage.ServiceTier = model.Tier(a.tier.Type)
	return a.Result(usage, claude.StopOf(a.Raw))
}

// Item implements wire.Block.
func (b *answerBlock) Item() (item.Item, bool) {
	text := wire.TextParts(b.Text)
	switch {
	case b.Kind == item.ToolCall:
		it := item.NewCall(b.ID, b.Name, b.Arguments())
		if wire.HasMore(b.start, "toolUseId", "name", "input", "type") {
			it.Native = nativeOf(b.member(aCall, b.withInput()))
		}
		return it, true
	case b.kind == aText && b.citations == nil:
		return item.Item{Kind: item.Message, Role: item.Assistant, Parts: text}, true
	case (b.kind == aText || b.kind == aCitation) && len(b.Text) > 0:
		return item.Item{Kind: item.Message, Role: item.Assistant, Parts: text, Native: nativeOf(b.raw())}, true
	case b.kind == aReasoning:
		it := item.Item{Kind: item.Reasoning, Native: nativeOf(b.raw())}
		if len(b.Text) > 0 {
			it.Parts = text
		}
		return it, b.Done
	}
	return item.Item{Kind: item.Other, Native: nativeOf(b.raw())}, b.Done && b.known()
}

// known reports whether all of the block was read. A block of a later version is, if the
// answer was not streamed.
func (b *answerBlock) known() bool {
	return b.whole != nil || b.kind == aCall || b.kind == aResult || b.kind == aCitation
}

func nativeOf(raw json.RawMessage) item.Native {
	return item.Native{Dialect: model.DialectBedrock, JSON: raw}
}

// member returns a block with one member.
func (b *answerBlock) member(kind blockKind, value any) json.RawMessage {
	return wire.AsJSON(map[blockKind]any{kind: value})
}

// raw returns the block as the provider takes it back.
func (b *answerBlock) raw() json.RawMessage {
	switch {
	case b.whole != nil:
		return b.whole
	case b.kind == aReasoning && b.hidden:
		return b.member(aReasoning, map[string]string{"redactedContent": base64.StdEncoding.EncodeToString(b.redacted)})
	case b.kind == aReasoning:
		said := map[string]string{"text": string(b.Text)}
		if len(b.signature) > 0 {
			said["signature"] = string(b.signature)
		}
		return b.member(aReasoning, map[string]any{"reasoningText": said})
	case b.kind == aText || b.kind == aCitation:
		cited := map[string]any{"citations": b.citations}
		if len(b.Text) > 0 {
			cited["content"] = []map[string]string{{"text": string(b.Text)}}
		}
		return b.member(aCitation, cited)
	case b.kind == aCall:
		return b.member(aCall, b.withInput())
	case b.kind == aResult:
		return b.member(aResult, withMember(b.start, "content", wire.AsJSON(b.results)))
	}
	return b.member(b.kind, b.start)
}

// withInput returns a call as it began, with the input that came after it.
func (b *answerBlock) withInput() json.RawMessage {
	start := b.start
	if b.Kind == item.ToolCall {
		start = without(start, "type")
	}
	return withMember(start, "input", wire.AsJSON(wire.Input(b.Input)))
}

// withMember returns an object with a member at its end.
func withMember(object []byte, name string, value []byte) json.RawMessage {
	out := without(object, name)
	return append(jsonscan.AppendMember(out[:len(out)-1], name, value), '}')
}

// without returns an object without a member.
func without(object []byte, name string) []byte {
	out := []byte{'{'}
	for member, v := range jsonscan.Members(object) {
		if string(member) != name {
			out = jsonscan.AppendMember(out, member, v)
		}
	}
	return append(out, '}')
}

// sum returns the usage with cached and written input as parts of the input, which the
// dialect counts beside it.
func (u usage) sum() model.Usage {
	n := wire.Tokens
	out := model.Usage{
		Input: n(u.Input) + n(u.CacheRead) + n(u.CacheWrite), Output: n(u.Output),
		CachedInput: n(u.CacheRead), CacheWrite: n(u.CacheWrite),
	}
	for _, w := range u.Writes {
		if w.TTL == "1h" {
			out.CacheWrite1h = min(out.CacheWrite1h+n(w.Tokens), out.CacheWrite)
		}
	}
	out.Total = out.Input + out.Output
	return out
}
