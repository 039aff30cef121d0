package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/spelling"
)

// Known is what exists of what an agent can name. What a nil function would say is not known, and nothing is said of it.
type Known struct {
	// Serves reports whether a provider serves a model, or each one of a list of models.
	Serves func(model string) bool

	// Custom reports whether the org has the custom tool.
	Custom func(name string) bool

	// Selects reports whether selects holds for a tool of the org, or of an MCP server of the agent, by the name that the model sees and
	// the server's own.
	Selects func(selects func(name, own string) bool) bool

	// Unlisted names the MCP servers whose tools are not known.
	Unlisted []string
}

// Warning is a name in a definition that stands for nothing. It is no error, because what it names can be made later.
type Warning struct {
	Field   string // such as hooks[0].matcher
	Hook    int    // the place of the hook in Hooks; -1 = the warning is about something else
	Problem string
	Remedy  string
	Unsure  bool // a tool that is not known may have the name
}

func (w Warning) String() string { return w.Problem + "; " + w.Remedy }

// Warnings returns a warning for each model and custom tool that does not exist, and for each matcher of an enabled hook that selects no
// tool, so that the hook never runs.
func (d Definition) Warnings(k Known) (out []Warning) {
	warn := func(field, problem, remedy string) {
		out = append(out, Warning{Field: field, Hook: -1, Problem: problem, Remedy: remedy})
	}
	for _, one := range []struct{ field, name string }{{"model", d.Model}, {"settings.fallback_model", d.Settings.FallbackModel}} {
		if one.name != "" && k.Serves != nil && !k.Serves(one.name) {
			warn(one.field,
				fmt.Sprintf("no provider of this gateway serves the model %q, so runs of the agent are refused until one does", one.name),
				"GET /v1/models lists all names")
		}
	}
	for i, t := range d.Tools {
		if t.Type != CustomTool || t.ToolID != "" { // that of a stored agent exists
			continue
		}
		unknown := spelling.Nearest(t.Name, builtin.OfAgents()) != ""
		if k.Custom != nil {
			unknown = !k.Custom(t.Name)
		}
		if unknown {
			warn(fmt.Sprintf("tools[%d].tool_name", i),
				fmt.Sprintf("%q is not a built-in tool; runs of the agent are refused unless the org has a custom tool of that name", t.Name),
				MissingToolHelp(t.Name, createTool))
		}
	}
	if k.Selects == nil {
		return out
	}
	for i, h := range d.Hooks {
		if h.Matcher == "" || !h.Enabled {
			continue
		}
		if w, wrong := d.matcherWarning(h, k); wrong {
			w.Field, w.Hook = fmt.Sprintf("hooks[%d].matcher", i), i
			out = append(out, w)
		}
	}
	return out
}

// matcherWarning returns the warning about the matcher of a hook, if there is one.
func (d Definition) matcherWarning(h Hook, k Known) (w Warning, wrong bool) {
	selects := loop.Hook{Matcher: h.Matcher}.Selects
	own := make([]string, len(d.Tools))
	for i, t := range d.Tools {
		own[i] = t.Name
	}
	if slices.ContainsFunc(own, func(name string) bool { return selects(name, "") }) || k.Selects(selects) {
		return w, false
	}
	near := spelling.Nearest(h.Matcher, own)
	w.Problem = fmt.Sprintf("matcher %q matches no tool of the agent, so the hook runs for no call", h.Matcher)
	w.Remedy = "use a name or glob of a tool as the model or its server calls it"
	if len(k.Unlisted) > 0 {
		w.Problem = fmt.Sprintf("matcher %q matches no known tool of the agent; the tools of these are not known: %s",
			h.Matcher, strings.Join(k.Unlisted, ", "))
		w.Unsure = near == ""
	}
	if near != "" {
		w.Remedy = "did you mean " + near + "?"
	}
	return w, true
}

// createTool says how a custom tool comes to exist.
const createTool = "create it with POST /api/tools"

// MissingToolHelp says what to do about a tool that does not exist. otherwise is for a name that is not like that of a built-in tool.
func MissingToolHelp(name, otherwise string) string {
	if near := spelling.Nearest(name, builtin.OfAgents()); near != "" {
		return fmt.Sprintf("did you mean the built-in tool %s?", near)
	}
	return otherwise
}
