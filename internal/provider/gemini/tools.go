package gemini

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/model"
)

type toolSet struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

// functionDeclaration is a tool. The provider takes its arguments as a subset of JSON
// Schema, which says more than the older OpenAPI form in "parameters".
type functionDeclaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parametersJsonSchema"`
}

type toolConfig struct {
	FunctionCalling functionCallingConfig `json:"functionCallingConfig"`
}

type functionCallingConfig struct {
	Mode    string   `json:"mode"` // AUTO, ANY or NONE
	Allowed []string `json:"allowedFunctionNames,omitempty"`
}

// tools sets the tools that the model may call, and how.
func (t *translation) tools() {
	choice := t.req.ToolChoice
	forced := choice.Mode == model.ChooseRequired || choice.Mode == model.ChooseNamed
	var declared []functionDeclaration
	for i, offered := range t.req.Tools {
		if !forced && choice.Only != nil && !slices.Contains(choice.Only, offered.Name) {
			continue // the dialect has a choice among some of the tools only if it is forced
		}
		if offered.Name == "" { // one that only its own provider executes
			t.LeaveOut(t.req, i)
			continue
		}
		d := functionDeclaration{Name: alias(offered.Name)}
		parameters, description, _ := schema.Arguments(offered.InputSchema, offered.Description)
		d.Description = description
		d.Parameters, _ = subset(parameters) // the gateway, or the client, checks arguments against all of it
		t.Drop(wire.NameOf(t.req, wire.MemberToolStrict), offered.Strict != nil && *offered.Strict)
		declared = append(declared, d)
	}
	if declared == nil {
		return
	}
	t.Tools = []toolSet{{declared}}
	t.ToolConfig = t.choice(declared)
}

// choice returns how the model may use the tools; nil = the request leaves it to the
// model.
func (t *translation) choice(declared []functionDeclaration) *toolConfig {
	var c functionCallingConfig
	only := t.req.ToolChoice.Only
	switch t.req.ToolChoice.Mode {
	case model.ChooseNone:
		c.Mode = "NONE"
	case model.ChooseAuto:
		c.Mode = "AUTO"
	case model.ChooseNamed:
		c.Mode, only = "ANY", []string{t.req.ToolChoice.Name} // by their own names
	case model.ChooseRequired:
		c.Mode = "ANY"
	default:
		return nil
	}
	if c.Mode == "ANY" && only != nil {
		for _, d := range declared {
			if slices.ContainsFunc(only, func(name string) bool { return alias(name) == d.Name }) {
				c.Allowed = append(c.Allowed, d.Name)
			}
		}
		if c.Allowed == nil { // an empty list means all
			t.Drop("tool_choice", true)
			c.Mode = "NONE"
		}
	}
	return &toolConfig{c}
}
