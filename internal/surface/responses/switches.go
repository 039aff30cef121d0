package responses

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// switches implements surface.Surface.Switches: the switches of the org answer hosted tools of the request. Of a repeated
// member the last counts.
func switches(members []surface.Member) (*surface.Switched, error) {
	s := new(surface.Switched)
	s.Hosted = true
	var tools json.RawMessage
	for _, m := range members {
		if m.Name == "tools" {
			tools = m.Value
		}
	}
	for i, raw := range surface.Elements(tools) {
		var w struct{ Type string }
		_ = json.Unmarshal(raw, &w) // what is wrong with a tool is found when it is decoded
		switch hostedType(w.Type) {
		case builtin.HostedCode:
			if !s.Code {
				s.Code, s.CodeTool, s.CodeAt = true, true, path("tools", i)
			}
		case builtin.HostedSearch:
			s.Search = true
		case builtin.HostedShell:
			if !s.Shell {
				s.Shell, s.ShellAt = true, path("tools", i)
			}
		}
	}
	return s, nil
}
