package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The members of the agentic runtime. They are read before the request is decoded, and no provider gets them from a
// run with the agent loop.
const (
	codeMember   = "enable_code_execution"
	roundsMember = "max_tool_rounds"
	filesMember  = "files"

	permissionMember = "agent_permission"
)

// switches implements surface.Surface.Switches. Of a repeated member the last counts. It is called for relays, too.
func switches(members []surface.Member) (*surface.Switched, error) {
	s := &surface.Switched{CodeMember: codeMember}
	var code, rounds, files, tools, permission surface.Member
	for _, m := range members {
		switch m.Name {
		case codeMember:
			code = m
		case roundsMember:
			rounds = m
		case filesMember:
			files = m
		case permissionMember:
			permission = m
		case "tools":
			tools = m
		}
	}
	if given(code) {
		if err := decodeInto(code, &s.Code); err != nil {
			return nil, err
		}
		s.CodeAt, s.Asks = code.Name, s.Code
	}
	if given(rounds) {
		if json.Unmarshal(rounds.Value, &s.Rounds) != nil || s.Rounds < 1 {
			return nil, fault.New(fault.Invalid, "invalid_value", "%s must be a whole number from 1 to %d", rounds.Name, org.MaxToolRounds).In(rounds.Name)
		}
		s.RoundsAt, s.Asks = rounds.Name, true
	}
	if given(permission) {
		if json.Unmarshal(permission.Value, &s.Permission) != nil || !slices.Contains(policy.Permissions(), s.Permission) {
			return nil, fault.New(fault.Invalid, "invalid_value", "%s must be auto, ask or deny", permission.Name).In(permission.Name)
		}
		s.PermissionAt, s.Asks = permission.Name, true
	}
	if given(files) {
		s.FilesAt, s.Asks = files.Name, true
	}
	if !s.Code && bytes.Contains(tools.Value, []byte(builtin.HostedCode)) {
		readCodeTool(tools.Value, s)
	}
	return s, nil
}

// given reports whether the body has the member, with another value than null.
func given(m surface.Member) bool { return m.Name != "" && string(m.Value) != "null" }

// readCodeTool looks for a tool of the type code_interpreter.
func readCodeTool(tools json.RawMessage, s *surface.Switched) {
	for i, one := range surface.Elements(tools) {
		if isCodeTool(one) {
			s.Code, s.CodeTool, s.CodeAt = true, true, fmt.Sprintf("tools[%d]", i)
			return
		}
	}
}

func isCodeTool(raw json.RawMessage) bool {
	var w struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(raw, &w) == nil && w.Type == builtin.HostedCode
}

// checkCodeTool refuses what a tool of the type code_interpreter says that the gateway's own cannot honour.
func checkCodeTool(at string, raw json.RawMessage) error {
	for name, value := range surface.Members(raw) {
		if name != "type" && name != "container" {
			return fault.New(fault.Invalid, "unsupported_parameter", "%s.%s: the gateway runs the code, and knows only type and container; leave it out", at, name).In(at + "." + name)
		}
		var c map[string]any
		if name == "container" && (json.Unmarshal(value, &c) != nil || len(c) != 1 || c["type"] != "auto") {
			return fault.New(fault.Invalid, "unsupported_value", `%s.container: the gateway runs the code in a container of its own; use {"type": "auto"}`, at).In(at + ".container")
		}
	}
	return nil
}
