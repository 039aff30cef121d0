package anthropic

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/schema"
)

type toolDefinition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema"`
	Strict       bool            `json:"strict,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

// tools sets the tools that the model may call, and how.
func (t *translation) tools() {
	req := t.req
	for i, offered := range req.Tools {
		if req.ToolChoice.Only != nil && !slices.Contains(req.ToolChoice.Only, offered.Name) {
			continue // the dialect has no choice among some of the tools
		}
		d := toolDefinition{Name: offered.Name, Description: offered.Description, CacheControl: t.mark(offered.Cache)}
		var rest json.RawMessage
		d.InputSchema, d.Description, rest = schema.Arguments(offered.InputSchema, offered.Description)
		if !claude.TakesNames(d.InputSchema) {
			t.LeaveOut(t.req, i)
			continue
		}
		if offered.Strict != nil && *offered.Strict {
			strict := t.rules.Strict(d.InputSchema, rest == nil)
			if t.Drop(wire.NameOf(req, wire.MemberToolStrict), strict == nil); strict != nil {
				d.Strict, d.InputSchema = true, strict
			}
		}
		t.Tools = append(t.Tools, d)
	}
	if t.Tools != nil {
		single := req.ParallelCalls != nil && !*req.ParallelCalls
		t.ToolChoice = claude.ChoiceOf(t.rules.Mode(req.ToolChoice.Mode, &t.Losses), req.ToolChoice.Name, single)
	}
}
