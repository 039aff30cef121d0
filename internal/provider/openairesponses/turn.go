package openairesponses

import (
	"cmp"
	"iter"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// sorted returns the output items in the order of the answer.
func (a *answer) sorted() []*output {
	list := slices.Clone(a.outputs)
	slices.SortFunc(list, func(x, y *output) int { return cmp.Compare(x.number, y.number) })
	return list
}

// turn returns what has been put together. Without an end it is a partial turn.
func (a *answer) turn() *model.Turn {
	t := &model.Turn{ID: a.id, Model: a.model, RawStop: a.raw, Usage: a.usage}
	if t.Usage != (model.Usage{}) {
		t.Usage.ServiceTier, t.Usage.Estimated = model.Tier(a.tier), a.ended && !a.counted
	}
	all := a.sorted()
	for i, o := range all {
		if o.kind == "function_call" {
			c := model.Call{ID: o.callID, Name: o.name, Arguments: string(o.arguments), Complete: o.complete()}
			if a.cut && i == len(all)-1 && !jsonscan.Valid(o.arguments) {
				c.Complete = false // the length ran out, even if the item was closed
			}
			t.Calls = append(t.Calls, c)
			if !c.Complete {
				continue
			}
		}
		if it, ok := o.entry(); ok {
			t.Items = append(t.Items, it)
		}
	}
	if t.Items == nil {
		t.Items = []item.Item{{Kind: item.Message, Role: item.Assistant}}
	}
	if a.ended {
		t.Stop = a.stop(len(t.Calls))
	}
	return t
}

// complete reports whether the end of a call has come and the provider does not
// say that the call was cut off.
func (o *output) complete() bool {
	if o.item == nil {
		return o.ended
	}
	status := jsonscan.Text(jsonscan.Member(o.item, "status"))
	return status == "" || status == "completed"
}

// entry returns the output item as an entry of the transcript. Nothing but a
// message and a call is kept of what has no end.
func (o *output) entry() (item.Item, bool) {
	native := item.Native{Dialect: model.DialectResponses, JSON: o.item}
	if o.item == nil {
		native = item.Native{}
	}
	switch o.kind {
	case "function_call":
		it := item.NewCall(o.callID, o.name, string(o.arguments))
		if jsonscan.Text(jsonscan.Member(o.item, "call_id")) == o.callID && jsonscan.Text(jsonscan.Member(o.item, "name")) == o.name {
			it.Native = native
		}
		return it, true
	case "message":
		it := item.Item{Kind: item.Message, Role: item.Assistant, Phase: o.phase, Parts: o.said(), Citations: o.citations}
		for range partsOf(o.item) { // one that says nothing at its end is not sent back
			native.Opaque = jsonscan.Member(o.item, "phase") != nil
			it.Native = native
			break
		}
		return it, it.Parts != nil
	case "reasoning":
		native.Opaque = o.item != nil && usable(o.item)
		return item.Item{Kind: item.Reasoning, Parts: o.said(), Native: native}, o.item != nil
	}
	native.Opaque = true
	return item.Item{Kind: item.Other, Native: native}, o.item != nil
}

// said returns what was reported of a message or of reasoning.
func (o *output) said() []item.Part {
	var out []item.Part
	for _, p := range o.parts {
		kind := item.Text
		if p.kind == model.RefusalDelta {
			kind = item.Refusal
		}
		out = append(out, item.Part{Kind: kind, Text: string(p.text)})
	}
	return out
}

// partsOf yields the readable parts of a message or of reasoning that are not
// empty, in their order.
func partsOf(object []byte) iter.Seq[part] {
	reasoning := jsonscan.Text(jsonscan.Member(object, "type")) == "reasoning"
	return func(yield func(part) bool) {
		for _, list := range [...]string{"summary", "content"} {
			for _, p := range jsonscan.Elements(jsonscan.Member(object, list)) {
				one, member := part{kind: model.TextDelta}, "text"
				switch kind := jsonscan.Text(jsonscan.Member(p, "type")); {
				case reasoning && (kind == "summary_text" || kind == "reasoning_text"):
					one.kind = model.ReasoningDelta
				case !reasoning && kind == "refusal":
					one.kind, member = model.RefusalDelta, "refusal"
				case reasoning || kind != "output_text":
					continue
				}
				one.text = jsonscan.AppendText(nil, jsonscan.Member(p, member))
				one.annotations = jsonscan.Member(p, "annotations")
				if len(one.text) > 0 && !yield(one) {
					return
				}
			}
		}
	}
}

// stop maps the end of the response. An incomplete one was cut off, if not by the
// provider's filter.
func (a *answer) stop(calls int) model.Stop {
	switch {
	case a.cut && a.raw == "content_filter":
		return model.StopFilter
	case a.cut:
		return model.StopLength
	case calls > 0:
		return model.StopCalls
	}
	return model.StopEnd
}

// usageOf reads the usage. The dialect counts cached input within the input and
// reasoning within the output; a server that adds reasoning only to the total is
// read as if it did.
func usageOf(object []byte) model.Usage {
	n := func(v []byte) int64 { return min(max(jsonscan.Number(v, 0), 0), wire.MaxUsage) }
	in, out := jsonscan.Member(object, "input_tokens_details"), jsonscan.Member(object, "output_tokens_details")
	u := model.Usage{
		Input: n(jsonscan.Member(object, "input_tokens")), Output: n(jsonscan.Member(object, "output_tokens")), Total: n(jsonscan.Member(object, "total_tokens")),
		CachedInput: n(jsonscan.Member(in, "cached_tokens")), CacheWrite: n(jsonscan.Member(in, "cache_write_tokens")), Reasoning: n(jsonscan.Member(out, "reasoning_tokens")),
	}
	if u.Reasoning > u.Output || u.Total == u.Input+u.Output+u.Reasoning {
		u.Output = min(u.Output+u.Reasoning, wire.MaxUsage)
		u.Total = max(u.Total, u.Input+u.Output)
	}
	if u.Total == 0 {
		u.Total = u.Input + u.Output
	}
	return u
}
