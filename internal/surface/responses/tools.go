package responses

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// clientTools are the tools of the client that the model gets under another name or in
// another form.
type clientTools struct {
	sent map[string]clientTool // by the name that the model gets
}

// clientTool is a tool as the client declared it.
type clientTool struct {
	namespace, name string
	custom          bool // its input is text and not JSON
}

// wireTool is a tool of the client: a function, a custom tool or a namespace.
type wireTool struct {
	Type        string            `json:"type"`
	Name        string            `json:"name"`
	Description *string           `json:"description"`
	Parameters  json.RawMessage   `json:"parameters"`
	Strict      *bool             `json:"strict"`
	Format      *wireGrammar      `json:"format"`
	Tools       []json.RawMessage `json:"tools"`
}

// wireGrammar is the form that the input of a custom tool has.
type wireGrammar struct {
	Type       string `json:"type"`
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// relays reports whether the request can be passed on to the model that is asked first.
func (d *decoder) relays() bool {
	return len(d.req.Targets) > 0 && d.req.Targets[0].Relays(model.DialectResponses)
}

func (d *decoder) decodeTools(value json.RawMessage) error {
	if value == nil || string(value) == "null" {
		return nil
	}
	var list []json.RawMessage
	if err := into("tools", value, &list); err != nil {
		return err
	}
	for i, raw := range list {
		at := path("tools", i)
		if err := surface.CheckNames(at, raw, toolNames); err != nil {
			return err
		}
		var w struct {
			Type string `json:"type"`
		}
		if err := into(at, raw, &w); err != nil {
			return err
		}
		var err error
		switch w.Type {
		case "mcp":
			var left []string
			left, err = decodeMCPTool(d.req, i, raw)
			d.dropped = append(d.dropped, left...)
			raw = echoMCPTool(raw)
		default:
			raw, err = d.decodeTool(at, group{}, raw)
		}
		if err != nil {
			return err
		}
		d.echo.Tools = append(d.echo.Tools, raw)
	}
	return nil
}

// group is the namespace that a tool is in. The zero value is none.
type group struct{ name, description string }

// describe returns the description of a tool for the model, which does not get the namespace.
func (g group) describe(tool string) string {
	if g.description == "" || tool == "" {
		return g.description + tool
	}
	return g.description + "\n\n" + tool
}

// decodeTool reads a tool of the client, and returns it as the response repeats it.
func (d *decoder) decodeTool(at string, in group, raw json.RawMessage) (json.RawMessage, error) {
	var w wireTool
	if err := into(at, raw, &w); err != nil {
		return nil, err
	}
	err := checkOneType(at, raw)
	if err == nil && in.name != "" {
		err = surface.CheckNames(at, raw, toolNames)
	}
	if err != nil {
		return nil, err
	}
	switch w.Type {
	case "function", "custom", "namespace":
	case "":
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no type", at).In(at + ".type")
	case "mcp": // its credentials would be repeated and stored, and the provider must not get it
		return nil, fault.New(fault.Invalid, "invalid_value", "%s: a tool of the type mcp must be in the member tools", at).In(at + ".type")
	default: // a tool that an MCP server answers, or that only its provider can execute
		if in.name == "" {
			if answered, err := d.declareHosted(at, w.Type, raw); answered || err != nil {
				return raw, err
			}
		}
		if d.relays() && in.name == "" {
			d.req.Hosted = append(d.req.Hosted, model.HostedTool{Place: at, JSON: raw})
			d.provided[w.Type] = true
		} else {
			d.drop(at)
		}
		return raw, nil
	}
	if w.Name == "" {
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no name", at).In(at + ".name")
	}
	switch {
	case w.Type == "namespace" && in.name == "":
		d.dropOthers(at, raw, "type", "name", "description", "tools")
		for i, inner := range w.Tools {
			if _, err := d.decodeTool(path(at+".tools", i), group{w.Name, deref(w.Description)}, inner); err != nil {
				return nil, err
			}
		}
		return raw, nil
	case w.Type == "namespace":
		return nil, fault.New(fault.Invalid, "invalid_value", "%s: a namespace cannot be in another", at).In(at + ".type")
	}
	if p := w.Parameters; w.Type == "function" && p != nil && string(p) != "null" && !isObject(p) {
		return nil, fault.New(fault.Invalid, "invalid_type", "%s.parameters must be an object or null", at).In(at + ".parameters")
	}
	name := flatName(in.name, w.Name)
	earlier, is := d.declared[name]
	if is && !d.replaces {
		return nil, fault.New(fault.Invalid, "invalid_value", "%s: another tool of the request has the name %s, too", at, name).In(at + ".name")
	}
	t := model.Tool{Definition: tool.Definition{Name: name, Description: in.describe(deref(w.Description)), InputSchema: w.Parameters}, Strict: w.Strict}
	if string(w.Parameters) == "null" {
		t.InputSchema = nil
	}
	sent := clientTool{in.name, w.Name, w.Type == "custom"}
	if sent.custom {
		t = w.asFunction(name, in)
	} else if in.name == "" {
		t.Native = raw
	}
	if t.Native == nil || !d.relays() { // the provider does not get the tool as it is
		d.dropUnknown(at, w, raw)
	}
	delete(d.tools.sent, name)
	if sent.custom || in.name != "" {
		d.tools.sent[name] = sent
	}
	if is {
		d.req.ClientTools[earlier] = t
	} else {
		d.declared[name] = len(d.req.ClientTools)
		d.req.ClientTools = append(d.req.ClientTools, t)
	}
	if w.Type == "function" {
		return withDefaults(raw), nil
	}
	return raw, nil
}

// checkOneType refuses a tool with several types. A provider that gets the tool as it is could
// read another one than the gateway, whose decoder takes the last and ignores case.
func checkOneType(at string, raw json.RawMessage) error {
	types := 0
	members, _ := surface.Scan(nil, raw) // it was decoded before; null has no members
	for _, m := range members {
		if strings.EqualFold(m.Name, "type") {
			types++
		}
	}
	if types > 1 {
		return fault.New(fault.Invalid, "invalid_value", "%s has more than one type", at).In(at + ".type")
	}
	return nil
}

// addTools reads the tools that an input item of the type additional_tools declares. They
// are like those of the member tools, but replace earlier ones with their names. The model
// does not get the item.
func (d *decoder) addTools(at string, raw json.RawMessage) error {
	var w struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := into(at, raw, &w); err != nil {
		return err
	}
	d.replaces = true
	defer func() { d.replaces = false }()
	for i, one := range w.Tools {
		if _, err := d.decodeTool(path(at+".tools", i), group{}, one); err != nil {
			return err
		}
	}
	return nil
}

// dropUnknown notes the members of a function or custom tool that the provider does not get.
func (d *decoder) dropUnknown(at string, w wireTool, raw json.RawMessage) {
	if w.Type == "function" {
		d.dropOthers(at, raw, "type", "name", "description", "parameters", "strict")
		return
	}
	d.dropOthers(at, raw, "type", "name", "description", "format")
	if w.Format == nil {
		return
	}
	switch w.Format.Type {
	case "grammar", "text":
		var one struct{ Format json.RawMessage }
		_ = json.Unmarshal(raw, &one) // it was decoded before
		d.dropOthers(at+".format", one.Format, "type", "syntax", "definition")
	default:
		d.drop(at + ".format")
	}
}

// withDefaults returns a function with all the members that a response repeats of it.
func withDefaults(raw json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(raw, &members) // it was decoded before
	for name, otherwise := range map[string]string{"description": "null", "parameters": "null", "strict": "true"} {
		if members[name] == nil {
			members[name] = json.RawMessage(otherwise)
		}
	}
	out, err := surface.Marshal(members)
	if err != nil {
		return raw // unreachable: the members were decoded from JSON
	}
	return out
}

// asFunction returns a custom tool as a function with one parameter, which every provider
// can offer.
func (w wireTool) asFunction(name string, in group) model.Tool {
	about := in.describe(deref(w.Description))
	if w.Format != nil && w.Format.Type == "grammar" {
		about = strings.TrimSpace(fmt.Sprintf("%s\n\nThe input must match this grammar (%s):\n%s", about, w.Format.Syntax, w.Format.Definition))
	}
	return model.Tool{Definition: tool.Definition{
		Name: name, Description: about,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`),
	}}
}

// customInput returns the input of a custom tool from the arguments of its function. A model
// that ignores the schema has written the input itself.
func customInput(arguments string) string {
	var w struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(arguments), &w) == nil && w.Input != nil {
		return *w.Input
	}
	return arguments
}

// customArguments is the inverse of customInput.
func customArguments(input string) string {
	out, _ := surface.Marshal(map[string]string{"input": input}) // a string: cannot fail
	return string(out)
}

// wireChoice is a tool_choice that is an object.
type wireChoice struct {
	Type      string            `json:"type"`
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Mode      string            `json:"mode"`
	Tools     []json.RawMessage `json:"tools"`
}

func (d *decoder) decodeToolChoice(value json.RawMessage) error {
	const name = "tool_choice"
	if value == nil || string(value) == "null" {
		return nil
	}
	d.echo.ToolChoice = value
	if isText(value) {
		return d.decodeMode(value)
	}
	var w wireChoice
	if err := into(name, value, &w); err != nil {
		return err
	}
	switch w.Type {
	case "function", "custom":
		chosen, err := d.chosen(name, w)
		d.req.ToolChoice = model.ToolChoice{Mode: model.ChooseNamed, Name: chosen}
		return err
	case "mcp":
		return chooseMCP(d.req, value)
	case "allowed_tools":
		return d.decodeAllowed(w)
	}
	if answering := d.answering(w.Type); len(answering) > 0 {
		d.req.ToolChoice, d.req.OnlyOf = model.ToolChoice{Mode: model.ChooseNamed}, answering[:1]
		return nil
	}
	if d.provided[w.Type] {
		d.req.ToolChoice = model.ToolChoice{Mode: model.ChooseRequired, Native: value}
		return nil
	}
	return fault.New(fault.Invalid, "unsupported_value", "tool_choice of the type %q: the gateway does not offer this tool; choose a function or a tool of an MCP server", w.Type).In(name)
}

// decodeMode reads a choice without names.
func (d *decoder) decodeMode(value json.RawMessage) error {
	var mode model.ToolChoiceMode
	if err := into("tool_choice", value, &mode); err != nil {
		return err
	}
	switch mode {
	case model.ChooseAuto, model.ChooseNone, model.ChooseRequired:
		d.req.ToolChoice.Mode = mode
		return nil
	}
	return fault.New(fault.Invalid, "invalid_value", "tool_choice must be none, auto, required or an object").In("tool_choice")
}

// chosen returns the name that the model knows of a tool that a choice names.
func (d *decoder) chosen(at string, w wireChoice) (string, error) {
	name := flatName(w.Namespace, w.Name)
	if _, is := d.declared[name]; !is {
		return "", fault.New(fault.Invalid, "invalid_value", "%s names the tool %q, which the request does not declare", at, name).In(at)
	}
	return name, nil
}

// decodeAllowed reads the list of the tools among which the model chooses.
func (d *decoder) decodeAllowed(w wireChoice) error {
	mode := model.ToolChoiceMode(w.Mode)
	if mode != model.ChooseAuto && mode != model.ChooseRequired {
		return fault.New(fault.Invalid, "invalid_value", "tool_choice.mode must be auto or required").In("tool_choice.mode")
	}
	d.req.ToolChoice.Mode = mode
	only := []string{}
	var hosted []json.RawMessage
	var of []run.ServerTool
	for i, raw := range w.Tools {
		at := path("tool_choice.tools", i)
		var one wireChoice
		if err := into(at, raw, &one); err != nil {
			return err
		}
		switch one.Type {
		case "function", "custom":
			name, err := d.chosen(at, one)
			if err != nil {
				return err
			}
			only = append(only, name)
		case "mcp":
			server, err := decodeMCPChoice(d.req, at, raw)
			if err != nil {
				return err
			}
			of = append(of, server)
		default:
			if answering := d.answering(one.Type); len(answering) > 0 {
				of = append(of, answering...)
			} else if d.provided[one.Type] {
				hosted = append(hosted, raw)
			} else { // a tool that the gateway does not offer
				d.drop(at)
			}
		}
	}
	d.req.ToolChoice.Only, d.req.ToolChoice.OnlyHosted, d.req.OnlyOf = only, hosted, of
	return nil
}
