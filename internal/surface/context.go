package surface

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// ContextMember is the member of a request that says how prompts that are too long are shortened.
const ContextMember = "context_management"

// minThreshold is the least compact_threshold of OpenAI's document, in tokens.
const minThreshold = 1000

// Context is what a request says of prompts that are too long for the context window. The zero value
// says nothing.
type Context struct {
	Mode string // one of the values of org.Runtime.Context; "" = nothing is said
	At   int64  // the size, in tokens, above which a prompt is shortened; 0 = as the model's window says

	// Listed says that the member has OpenAI's form, a list. Otherwise it has Anthropic's form, which
	// the Options of the request have.
	Listed bool

	// Dropped are places in the member that only a provider can understand.
	Dropped []string
}

// ReadContext reads [ContextMember]: a list as OpenAI's document has it, or an object with edits as
// Anthropic's has it, which a provider of Anthropic gets as it is. The latter is refused if no target of
// the request is of such a provider. In a run with the agent loop, the others shorten prompts as the
// gateway does. A relay keeps only targets that get the edits.
func ReadContext(req *run.Request, value json.RawMessage) (Context, error) {
	switch value = bytes.TrimSpace(value); {
	case SaysNothing(Member{Name: ContextMember, Value: value}):
		return Context{}, nil
	case len(value) > 0 && value[0] == '[':
		return readListed(value)
	case len(value) > 0 && value[0] == '{':
		return readEdits(req, value)
	}
	return Context{}, fault.New(fault.Invalid, "invalid_type", `%s must be a list such as [{"type":"compaction","compact_threshold":100000}], or an object with edits`, ContextMember).In(ContextMember)
}

// readListed reads OpenAI's form.
func readListed(value json.RawMessage) (Context, error) {
	c := Context{Mode: org.ContextAuto, Listed: true}
	for i, raw := range Elements(value) {
		at := fmt.Sprintf("%s[%d]", ContextMember, i)
		var entry struct {
			Type      string       `json:"type"`
			Threshold *json.Number `json:"compact_threshold"`
		}
		if json.Unmarshal(raw, &entry) != nil {
			return c, fault.New(fault.Invalid, "invalid_type", `%s must be an object such as {"type":"compaction","compact_threshold":100000}`, at).In(at)
		}
		if entry.Type != "compaction" {
			return c, fault.New(fault.Invalid, "invalid_value", "%s.type must be compaction", at).In(at + ".type")
		}
		for name := range Members(raw) {
			if name != "type" && name != "compact_threshold" {
				c.Dropped = append(c.Dropped, at+"."+name)
			}
		}
		if entry.Threshold == nil {
			continue
		}
		n, err := entry.Threshold.Int64()
		switch where := at + ".compact_threshold"; {
		case err != nil && strings.ContainsAny(entry.Threshold.String(), ".eE-"):
			return c, fault.New(fault.Invalid, "invalid_type", "%s must be an integer", where).In(where)
		case err != nil:
			n = math.MaxInt64
		case n < minThreshold:
			return c, fault.New(fault.Invalid, "integer_below_min_value", "%s must be at least %d", where, minThreshold).In(where)
		}
		c.At = leastOf(c.At, n)
	}
	return c, nil
}

// readEdits reads Anthropic's form.
func readEdits(req *run.Request, value json.RawMessage) (Context, error) {
	const place = ContextMember + ".edits"
	var w struct {
		Edits []struct {
			Type    string `json:"type"`
			Trigger struct {
				Type  string `json:"type"`
				Value int64  `json:"value"`
			} `json:"trigger"`
			Pause bool `json:"pause_after_compaction"`
		} `json:"edits"`
	}
	if json.Unmarshal(value, &w) != nil || len(w.Edits) == 0 {
		return Context{}, fault.New(fault.Invalid, "invalid_type", `%s must be a list of edits, such as [{"type":"compact_20260112"}]`, place).In(place)
	}
	able := slices.DeleteFunc(slices.Clone(req.Targets), func(t route.Target) bool { return !editsContext(t) })
	if len(able) == 0 {
		return Context{}, fault.New(fault.Invalid, "unsupported_value", "%s has the form of Anthropic, which the provider %s does not understand; "+
			`use a model of Anthropic, or [{"type":"compaction"}]`, ContextMember, req.Targets[0].Provider).In(ContextMember)
	}
	c := Context{Mode: org.ContextOff}
	for i, edit := range w.Edits {
		at := fmt.Sprintf("%s[%d]", place, i)
		switch {
		case edit.Pause:
			return c, fault.New(fault.Invalid, "unsupported_value", "%s.pause_after_compaction: the answer would end without a text; leave it out", at).In(at + ".pause_after_compaction")
		case strings.HasPrefix(edit.Type, "compact_"):
			c.Mode = org.ContextAuto
		case strings.HasPrefix(edit.Type, "clear_tool_uses_"):
			if c.Mode == org.ContextOff {
				c.Mode = org.ContextPrune
			}
		case strings.HasPrefix(edit.Type, "clear_thinking_"): // another provider gets no thinking of this one
		case len(able) < len(req.Targets):
			return c, fault.New(fault.Invalid, "invalid_value", "%s.type: the gateway does not know %q, and a target of the model is not of Anthropic; "+
				"use compact_20260112 or clear_tool_uses_20250919, or a model of Anthropic only", at, edit.Type).In(at + ".type")
		}
		if edit.Trigger.Type == "input_tokens" && edit.Trigger.Value > 0 {
			c.At = leastOf(c.At, edit.Trigger.Value)
		}
	}
	req.Options.ContextEdits = value
	if req.Relay != nil { // in which the gateway shortens nothing
		req.Targets = able
	}
	return c, nil
}

// editsContext reports whether the target's provider shortens prompts as Anthropic's form says.
func editsContext(t route.Target) bool {
	editor, ok := t.Client.(model.ContextEditor)
	return ok && editor.EditsContext()
}

// leastOf returns the lower of two sizes of which 0 is none.
func leastOf(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}
