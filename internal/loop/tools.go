package loop

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/model"
)

// Tools are the tools of a run, for the checks of [Discover]. The zero value has none.
type Tools struct {
	Client map[string]bool // names of the caller's tools

	// Gateway returns the server of the gateway tool with that name, or false; nil =
	// the gateway has no tools. Offered is the number of gateway tools that the model
	// is offered.
	Gateway func(name string) (server string, ok bool)
	Offered int

	Hosted int // the number of tools that the provider executes
}

// Conflict returns the client tool that has the name of a gateway tool; nil if there is
// none. Of several it returns the first by name.
func (t Tools) Conflict() *Conflict {
	var found *Conflict
	for name := range t.Client {
		if server, ok := t.gateway(name); ok && (found == nil || name < found.Tool) {
			found = &Conflict{Tool: name, Server: server}
		}
	}
	return found
}

// Missing returns the tool that the caller's tool choice forces, if the run does not
// have it: its name, or a description such as "any tool". "" = the choice can be met.
func (t Tools) Missing(choice model.ToolChoice) string {
	switch {
	case choice.Mode == model.ChooseNamed && choice.Name != "" && !t.has(choice.Name):
		return choice.Name
	case choice.Mode == model.ChooseRequired && choice.Only != nil && len(choice.OnlyHosted) == 0 && !slices.ContainsFunc(choice.Only, t.has):
		return "any of the allowed tools"
	case choice.Mode == model.ChooseRequired && len(t.Client)+t.Offered+t.Hosted == 0:
		return "any tool"
	}
	return ""
}

func (t Tools) has(name string) bool {
	_, ok := t.gateway(name)
	return ok || t.Client[name]
}

func (t Tools) gateway(name string) (server string, ok bool) {
	if t.Gateway == nil {
		return "", false
	}
	return t.Gateway(name)
}
