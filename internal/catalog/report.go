package catalog

import "log/slog"

// maxReported is how many tools of one server are named in the log for being
// left out or changed; of the others there is the number. A server that lists
// five hundred bad ones would otherwise fill the log at every discovery.
const maxReported = 10

// report tells the log what became of one server's tools.
type report struct {
	log    *slog.Logger
	said   int
	unsaid int
}

// tool says something of one tool.
func (r *report) tool(code, name string, more ...any) {
	if r.said == maxReported {
		r.unsaid++
		return
	}
	r.said++
	r.log.Warn(code, append([]any{"tool", shorten(name, MaxName)}, more...)...)
}

// examined says what had to be changed in a tool that is used.
func (r *report) examined(u usable) {
	if u.hidden > 0 {
		r.tool("mcp_tool_hidden_text", u.definition.Name, "characters", u.hidden)
	}
	if u.cut > 0 {
		r.tool("mcp_tool_description_cut", u.definition.Name, "bytes", u.cut)
	}
}

// end says how much was not said.
func (r *report) end() {
	if r.unsaid > 0 {
		r.log.Warn("mcp_tools_unreported", "more", r.unsaid)
	}
}
