package openai

import (
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// turn returns the turn so far. It is partial until the provider has ended it.
func (a *assembly) turn() *model.Turn {
	t := &model.Turn{ID: a.id, Model: a.model, Calls: a.calls.all(), RawStop: a.raw, Usage: a.usage}
	if t.Usage != (model.Usage{}) {
		t.Usage.ServiceTier, t.Usage.Estimated = model.Tier(a.tier), a.ended && !a.counted
	}
	t.Items = a.items(t.Calls)
	if a.ended {
		t.Stop = wire.Settled(stopOf(a.raw), len(a.calls.list))
	}
	return t
}

// items returns the message as items, in the order in which they began. The first
// carries all of it in its native form.
func (a *assembly) items(calls []model.Call) []item.Item {
	items := make([]item.Item, a.begun)
	if n := a.reasoningItem; n > 0 {
		items[n-1] = item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: string(a.reasoning)}}}
	}
	if n := a.messageItem; n > 0 {
		items[n-1] = item.Item{Kind: item.Message, Role: item.Assistant, Parts: a.parts(), Citations: a.citations[:a.cited]}
	}
	for i, c := range calls {
		if c.Complete {
			items[a.calls.list[i].item-1] = c.Item()
		}
	}
	items = slices.DeleteFunc(items, func(i item.Item) bool { return i.Kind == "" }) // calls that were cut off
	if len(items) == 0 {
		items = []item.Item{{Kind: item.Message, Role: item.Assistant}}
	}
	items[0].Native = item.Native{Dialect: model.DialectChat, JSON: a.native(), Opaque: a.opaque()}
	return items
}

// parts returns the parts of the message, in the order in which they began.
func (a *assembly) parts() []item.Part {
	parts := make([]item.Part, max(a.textPart, a.refusalPart))
	if n := a.textPart; n > 0 {
		parts[n-1] = item.Part{Kind: item.Text, Text: string(a.content.text)}
	}
	if n := a.refusalPart; n > 0 {
		parts[n-1] = item.Part{Kind: item.Refusal, Text: string(a.refusal)}
	}
	return parts
}

// stopOf maps a finish reason. An unknown one is StopEnd.
func stopOf(raw string) model.Stop {
	switch raw {
	case "tool_calls", "tool_use", "function_call":
		return model.StopCalls
	case "length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "model_length":
		return model.StopLength
	case "content_filter", "refusal", "guardrail_intervened", "SAFETY", "RECITATION",
		"PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "MODEL_ARMOR":
		return model.StopFilter
	}
	return model.StopEnd
}

// native returns the message that goes back with the next request: the one that the
// provider would have sent without streaming, with its complete calls.
func (a *assembly) native() []byte {
	dst := make([]byte, 0, 256+2*len(a.content.text)+2*len(a.reasoning))
	dst = append(dst, `{"role":"assistant","content":`...)
	done := slices.ContainsFunc(a.calls.list, func(c call) bool { return c.complete })
	if len(a.content.text) == 0 && len(a.content.parts) == 0 && (done || len(a.refusal) > 0) {
		dst = append(dst, `null`...)
	} else {
		dst = a.content.appendTo(dst)
	}
	if len(a.refusal) > 0 {
		dst = jsonscan.AppendString(append(dst, `,"refusal":`...), a.refusal)
	}
	dst = a.extra.appendTo(dst)
	if done {
		dst = a.calls.appendTo(append(dst, `,"tool_calls":`...))
	}
	return append(dst, '}')
}

// opaque reports whether the message has members that clients do not get: anything
// but text, refusals, readable reasoning and the standard members of calls.
func (a *assembly) opaque() bool {
	unknown := func(o *object, known ...string) bool {
		return slices.ContainsFunc(o.fields, func(f field) bool { return !slices.Contains(known, f.name) })
	}
	return unknown(&a.extra, "reasoning_content", "reasoning") ||
		slices.ContainsFunc(a.calls.list, func(c call) bool { return c.complete && unknown(&c.extra, "type") })
}

// addUsage takes a usage object. Some providers repeat it on every chunk, with
// all tokens so far: the last one counts.
func (a *assembly) addUsage(v []byte) {
	if jsonscan.IsKind(v, '{') {
		a.usage, a.counts = usageOf(v), true
	}
}

// usageOf reads a usage object. Where the numbers show that the output does not include the
// reasoning, it is added.
func usageOf(v []byte) (u model.Usage) {
	for name, v := range jsonscan.Members(v) {
		switch string(name) {
		case "prompt_tokens":
			u.Input = tokens(v, 0)
		case "completion_tokens":
			u.Output = tokens(v, 0)
		case "total_tokens":
			u.Total = tokens(v, 0)
		case "prompt_tokens_details":
			u.CachedInput = tokens(jsonscan.Member(v, "cached_tokens"), u.CachedInput)
			u.CacheWrite = tokens(jsonscan.Member(v, "cache_write_tokens"), u.CacheWrite)
			u.CacheWrite = max(u.CacheWrite, tokens(jsonscan.Member(v, "cache_creation_tokens"), 0)) // LiteLLM
			hour := jsonscan.Member(jsonscan.Member(v, "cache_creation_token_details"), "ephemeral_1h_input_tokens")
			u.CacheWrite1h = tokens(hour, u.CacheWrite1h)
		case "cached_tokens", "prompt_cache_hit_tokens": // Moonshot; DeepSeek
			u.CachedInput = max(u.CachedInput, tokens(v, 0))
		case "cache_creation_input_tokens": // gateways to Anthropic
			u.CacheWrite = max(u.CacheWrite, tokens(v, 0))
		case "gpu_ms": // servers that are billed by time
			u.GPUMS = tokens(v, 0)
		case "completion_tokens_details":
			u.Reasoning = tokens(jsonscan.Member(v, "reasoning_tokens"), 0)
		}
	}
	u.CacheWrite = max(u.CacheWrite, u.CacheWrite1h)
	if u.Reasoning > u.Output || u.Total == u.Input+u.Output+u.Reasoning { // xAI; gateways to Gemini
		u.Output = min(u.Output+u.Reasoning, wire.MaxUsage)
		if u.Total > 0 {
			u.Total = min(max(u.Total, u.Input+u.Output), wire.MaxUsage)
		}
	}
	return u
}

// tokens returns a token count between 0 and [wire.MaxUsage], or otherwise if v is not a
// number.
func tokens(v []byte, otherwise int64) int64 {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return otherwise
	}
	f, _ := strconv.ParseFloat(string(v), 64) // beyond its range it is infinite
	return int64(min(max(f, 0), wire.MaxUsage))
}
