package catalog

import "github.com/turnpike-gateway/turnpike/tool"

// Form is another way in which models call a tool of a source: under another name, and perhaps with other arguments. The definition of Tool
// has the name of the tool itself, so that its settings, and those of keys, are about all forms of it, and its limits count them together.
//
// A source lists forms beside the tool itself. Servers with [Server].Forms offer them; for others they do not exist.
type Form struct {
	tool.Tool
	As string // the name that the model sees

	// Unlisted says that models are not offered the form. A call of it is executed all the same, unless the client has a tool of that
	// name: models know some names from elsewhere, or from before an upgrade.
	Unlisted bool
}

// haveForms returns the names of the tools that have forms.
func (l *listing) haveForms() map[string]bool {
	names := map[string]bool{}
	for _, u := range l.tools {
		if u.form != nil && !u.form.Unlisted {
			names[u.definition.Name] = true
		}
	}
	return names
}

// listed says whether the server offers the tool, and whether it executes calls of it.
func (s Server) listed(u usable, haveForms map[string]bool) (offered, executed bool) {
	switch {
	case u.form == nil:
		return !s.Forms || !haveForms[u.definition.Name], true
	case !s.Forms:
		return false, false
	}
	return !u.form.Unlisted, true
}
