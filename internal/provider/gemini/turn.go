package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// turn returns what has been put together. Without an end it is a partial turn.
func (a *answer) turn() *model.Turn {
	t := &model.Turn{ID: a.id, Model: a.model, RawStop: a.raw, Usage: a.usage.sum()}
	for _, r := range a.runs {
		if r.kind == call {
			t.Calls = append(t.Calls, model.Call{ID: r.id, Name: r.name, Arguments: string(r.arguments), Complete: !r.open})
		}
		if !r.open {
			t.Items = append(t.Items, r.item())
		}
	}
	if t.Items == nil {
		t.Items = []item.Item{{Kind: item.Message, Role: item.Assistant}}
	}
	if a.ended {
		t.Usage.Estimated = !a.counted && t.Usage.Input+t.Usage.Output > 0
		t.Stop = wire.Settled(stopOf(a.raw), len(t.Calls)) // the dialect has no reason of its own for calls
	}
	return t
}

// item returns a run as an entry of the transcript.
func (r *run) item() item.Item {
	native := item.Native{Dialect: model.DialectGemini, JSON: r.native(), Opaque: r.signed()}
	text := []item.Part{{Kind: item.Text, Text: string(r.text)}}
	switch r.kind {
	case texts:
		it := item.Item{Kind: item.Message, Role: item.Assistant, Parts: text}
		if len(r.parts) > 1 || r.parts[0].raw != nil {
			it.Native = native
		}
		return it
	case thoughts:
		it := item.Item{Kind: item.Reasoning, Native: native}
		if len(r.text) > 0 {
			it.Parts = text
		}
		return it
	case call:
		it := item.NewCall(r.id, r.name, string(r.arguments))
		it.Native = native
		return it
	}
	return item.Item{Kind: item.Other, Native: native}
}

// native returns the parts of a run as they go back to the provider, in an array.
func (r *run) native() json.RawMessage {
	if r.kind == call {
		return bytes.Join([][]byte{[]byte("["), r.callPart(), []byte("]")}, nil)
	}
	out := []byte{'['}
	for i, p := range r.parts {
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case p.raw != nil:
			out = append(out, p.raw...)
		case r.kind == thoughts:
			out = append(jsonscan.AppendString(append(out, `{"thought":true,"text":`...), string(p.text)), '}')
		default:
			out = append(jsonscan.AppendString(append(out, `{"text":`...), string(p.text)), '}')
		}
	}
	return append(out, ']')
}

// callPart returns the part of a call, with the arguments that came after it, or that
// are not an object.
func (r *run) callPart() []byte {
	raw := r.parts[0].raw
	f := jsonscan.Member(raw, "functionCall")
	args := jsonscan.Member(f, "args")
	if jsonscan.Member(f, "willContinue") == nil && (args == nil || jsonscan.IsKind(args, '{')) {
		return raw
	}
	var changed []byte
	for name, v := range jsonscan.Members(f) {
		if string(name) != "willContinue" && string(name) != "args" {
			changed = appendMember(changed, name, v)
		}
	}
	changed = append(appendMember(changed, []byte("args"), wire.Input(r.arguments).Object()), '}')
	var out []byte
	for name, v := range jsonscan.Members(raw) {
		if string(name) == "functionCall" {
			v = changed
		}
		out = appendMember(out, name, v)
	}
	return append(out, '}')
}

// appendMember appends a member to an object that has no end yet.
func appendMember(object, name, v []byte) []byte {
	object = append(object, "{,"[min(len(object), 1)])
	return append(append(jsonscan.AppendString(object, name), ':'), v...)
}

// signed reports whether a part of the run has a signature.
func (r *run) signed() bool {
	for _, p := range r.parts {
		if p.raw != nil && jsonscan.Member(p.raw, "thoughtSignature") != nil {
			return true
		}
	}
	return false
}

// failure returns the error of a turn whose finish reason says that it failed; nil = it
// did not.
func (a *answer) failure() error {
	silent := len(a.runs) == 0
	switch a.raw {
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE":
	case "LANGUAGE", "OTHER", "NO_IMAGE", "IMAGE_OTHER", "FINISH_REASON_UNSPECIFIED":
		if !silent {
			return nil
		}
	default:
		return nil
	}
	message := a.message
	if message == "" {
		message = fmt.Sprintf("ended its answer with %s", a.raw)
	}
	err := wire.Broken(message, nil)
	err.Code = a.raw
	return err
}

// stopOf maps a finish reason; one that is not known ends the turn.
func stopOf(raw string) model.Stop {
	switch raw {
	case "MAX_TOKENS":
		return model.StopLength
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "JAILBREAK",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return model.StopFilter
	}
	return model.StopEnd
}

// sum returns the usage with the tokens of thoughts as a part of the output, which the
// dialect counts beside it, and those of the provider's own tools as a part of the
// input.
func (u usage) sum() model.Usage {
	n := func(v int64) int64 { return min(max(v, 0), wire.MaxUsage) }
	out := model.Usage{Input: n(u.Prompt) + n(u.ToolUse), Output: n(u.Candidates) + n(u.Thoughts), CachedInput: n(u.Cached), Reasoning: n(u.Thoughts)}
	out.ServiceTier = model.Tier(cmp.Or(strings.ToLower(u.Tier), trafficTiers()[u.Traffic]))
	out.Total = out.Input + out.Output
	return out
}

// trafficTiers are the service tiers that Vertex AI has names of its own for.
func trafficTiers() map[string]string {
	return map[string]string{"ON_DEMAND_FLEX": model.TierFlex, "ON_DEMAND_PRIORITY": model.TierPriority}
}
