package openai

import (
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// turn returns what has been put together. Without an end it is a partial turn.
func (a *assembly) turn() *model.Turn {
	t := &model.Turn{ID: a.id, Model: a.model, Calls: a.calls.all(), RawStop: a.raw, Usage: a.usage}
	t.Items = a.items(t.Calls)
	if a.ended {
		t.Stop = a.stop()
	}
	return t
}

// items returns the message as items. The first carries all of it in its native
// form.
func (a *assembly) items(calls []model.Call) []item.Item {
	var items []item.Item
	if len(a.reasoning) > 0 {
		items = append(items, item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: string(a.reasoning)}}})
	}
	said := item.Item{Kind: item.Message, Role: item.Assistant}
	for _, p := range []item.Part{{Kind: item.Text, Text: string(a.content.text)}, {Kind: item.Refusal, Text: string(a.refusal)}} {
		if p.Text != "" {
			said.Parts = append(said.Parts, p)
		}
	}
	done := slices.ContainsFunc(calls, func(c model.Call) bool { return c.Complete })
	if said.Parts != nil || !done && items == nil {
		items = append(items, said)
	}
	for _, c := range calls {
		if c.Complete {
			items = append(items, c.Item())
		}
	}
	items[0].Native = item.Native{Dialect: Dialect, JSON: a.native()}
	return items
}

// stop settles the two reasons that depend on whether there are calls.
func (a *assembly) stop() model.Stop {
	stop := stopOf(a.raw)
	switch {
	case stop == model.StopEnd && len(a.calls.list) > 0:
		return model.StopCalls
	case stop == model.StopCalls && len(a.calls.list) == 0:
		return model.StopEnd
	}
	return stop
}

// stopOf maps a finish reason; one that is not known ends the turn.
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

// native returns the message as the provider would have sent it whole, with
// the calls that are complete: what goes back with the next request.
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
		dst = wire.AppendString(append(dst, `,"refusal":`...), a.refusal)
	}
	dst = a.extra.appendTo(dst)
	if done {
		dst = a.calls.appendTo(append(dst, `,"tool_calls":`...))
	}
	return append(dst, '}')
}

// addUsage takes a usage object. Some providers repeat it on every chunk, as
// totals: the last one counts.
func (a *assembly) addUsage(v []byte) {
	if !wire.IsKind(v, '{') {
		return
	}
	var u model.Usage
	for name, v := range wire.Members(v) {
		switch string(name) {
		case "prompt_tokens":
			u.Input = tokens(v, 0)
		case "completion_tokens":
			u.Output = tokens(v, 0)
		case "total_tokens":
			u.Total = tokens(v, 0)
		case "prompt_tokens_details":
			u.CachedInput = tokens(wire.Member(v, "cached_tokens"), u.CachedInput)
			u.CacheWrite = tokens(wire.Member(v, "cache_write_tokens"), u.CacheWrite)
		case "prompt_cache_hit_tokens": // DeepSeek
			u.CachedInput = max(u.CachedInput, tokens(v, 0))
		case "cache_creation_input_tokens": // gateways to Anthropic
			u.CacheWrite = max(u.CacheWrite, tokens(v, 0))
		case "completion_tokens_details":
			u.Reasoning = tokens(wire.Member(v, "reasoning_tokens"), 0)
		}
	}
	a.usage = u
}

// maxUsage is how many tokens one call is believed to have used. A negative
// number would give back to budgets what others have spent, and sums of absurd
// ones would overflow.
const maxUsage = 1_000_000_000

// tokens returns a count of tokens within its bounds, or otherwise for what is no
// number.
func tokens(v []byte, otherwise int64) int64 {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return otherwise
	}
	f, _ := strconv.ParseFloat(string(v), 64) // beyond its range it is infinite
	return int64(min(max(f, 0), maxUsage))
}
