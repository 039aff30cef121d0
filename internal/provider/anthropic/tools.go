package anthropic

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/model"
)

type toolDefinition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema"`
	Strict       bool            `json:"strict,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

// forced reports whether the model must call a tool.
func (c *toolChoice) forced() bool { return c != nil && (c.Type == "any" || c.Type == "tool") }

// tools sets the tools that the model may call, and how.
func (t *translation) tools() {
	req := t.req
	allowed := map[string]bool{}
	for _, name := range req.ToolChoice.Only {
		allowed[name] = true
	}
	for i, offered := range req.Tools {
		if req.ToolChoice.Only != nil && !allowed[offered.Name] {
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
			t.strict(&d, rest == nil)
		}
		t.Tools = append(t.Tools, d)
	}
	if t.Tools != nil {
		t.ToolChoice = t.choice()
	}
}

// strict asks the provider to hold the arguments to the schema, where it takes all of
// it: https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use.
func (t *translation) strict(d *toolDefinition, whole bool) {
	schema, lost := claude.AnswerSchema(d.InputSchema)
	if !t.rules.StrictTools || !whole || lost != nil {
		t.Drop(t.req.NameOf(model.MemberToolStrict), true)
		return
	}
	d.Strict, d.InputSchema = true, schema
}

// choice returns how the model may use the tools; nil = the request leaves it
// to the model.
func (t *translation) choice() *toolChoice {
	var c toolChoice
	switch t.req.ToolChoice.Mode {
	case model.ChooseNone:
		c.Type = "none"
	case model.ChooseRequired:
		c.Type = "any"
	case model.ChooseNamed:
		c.Type, c.Name = "tool", t.req.ToolChoice.Name
	case model.ChooseAuto:
		c.Type = "auto"
	}
	if c.forced() && t.rules.NoForcedCall {
		t.Drop("tool_choice", true)
		c = toolChoice{Type: "auto"}
	}
	if t.req.ParallelCalls != nil && !*t.req.ParallelCalls && c.Type != "none" {
		c.DisableParallel = true
		if c.Type == "" {
			c.Type = "auto"
		}
	}
	if c.Type == "" {
		return nil
	}
	return &c
}
