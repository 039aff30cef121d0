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
	usage := a.usage.sum()
	usage.Estimated = a.Over && !a.counted && usage.Total > 0
	return a.Result(usage, stopOf(a.Raw)) // the dialect has no reason of its own for calls
}

// Item implements wire.Block.
func (r *run) Item() (item.Item, bool) {
	native := item.Native{Dialect: model.DialectGemini, JSON: r.native(), Opaque: r.signed()}
	it := item.Item{Kind: r.Kind, Native: native}
	switch r.Kind {
	case item.Message:
		it.Role, it.Parts = item.Assistant, wire.TextParts(r.Text)
		if len(r.parts) == 1 && r.parts[0].raw == nil {
			it.Native = item.Native{}
		}
	case item.Reasoning:
		if len(r.Text) > 0 {
			it.Parts = wire.TextParts(r.Text)
		}
	case item.ToolCall:
		it = item.NewCall(r.ID, r.Name, r.Arguments())
		it.Native = native
	}
	return it, true
}

// native returns the parts of a run as they go back to the provider, in an array.
func (r *run) native() json.RawMessage {
	if r.Kind == item.ToolCall {
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
		case r.Kind == item.Reasoning:
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
	changed := []byte{'{'}
	for name, v := range jsonscan.Members(f) {
		if string(name) != "willContinue" && string(name) != "args" {
			changed = jsonscan.AppendMember(changed, name, v)
		}
	}
	changed = append(jsonscan.AppendMember(changed, "args", wire.Input(r.Input).Object()), '}')
	out := []byte{'{'}
	for name, v := range jsonscan.Members(raw) {
		if string(name) == "functionCall" {
			v = changed
		}
		out = jsonscan.AppendMember(out, name, v)
	}
	return append(out, '}')
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
	switch a.Raw {
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE":
	case "LANGUAGE", "OTHER", "NO_IMAGE", "IMAGE_OTHER", "FINISH_REASON_UNSPECIFIED":
		if a.last != nil {
			return nil
		}
	default:
		return nil
	}
	message := a.message
	if message == "" {
		message = fmt.Sprintf("ended its answer with %s", a.Raw)
	}
	err := wire.Broken(message, nil)
	err.Code = a.Raw
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
	n := wire.Tokens
	out := model.Usage{Input: n(u.Prompt) + n(u.ToolUse), Output: n(u.Candidates) + n(u.Thoughts), CachedInput: n(u.Cached), Reasoning: n(u.Thoughts)}
	out.ServiceTier = model.Tier(cmp.Or(strings.ToLower(u.Tier), trafficTiers()[u.Traffic]))
	out.Total = out.Input + out.Output
	return out
}

// trafficTiers are the service tiers that Vertex AI has names of its own for.
func trafficTiers() map[string]string {
	return map[string]string{"ON_DEMAND_FLEX": model.TierFlex, "ON_DEMAND_PRIORITY": model.TierPriority}
}
