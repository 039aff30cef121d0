package catalog

import "log/slog"

// maxReported is how many tools of one server are logged as left out or changed. Of the
// others only the number is logged: a server with hundreds of bad tools would otherwise
// fill the log at every discovery.
const maxReported = 10

// report logs which of one server's tools are left out or changed.
type report struct {
	log    *slog.Logger
	said   int
	unsaid int
}

// tool logs a message about one tool.
func (r *report) tool(code, name string, more ...any) {
	if r.said == maxReported {
		r.unsaid++
		return
	}
	r.said++
	r.log.Warn(code, append([]any{"tool", shorten(name, MaxName)}, more...)...)
}

// examined logs what was changed in a valid tool, which the model sees under this name.
func (r *report) examined(name string, u usable) {
	if u.hidden > 0 {
		r.tool("mcp_tool_hidden_text", name, "characters", u.hidden)
	}
	if u.cut > 0 {
		r.tool("mcp_tool_description_cut", name, "bytes", u.cut)
	}
}

// end logs how many messages were left out.
func (r *report) end() {
	if r.unsaid > 0 {
		r.log.Warn("mcp_tools_unreported", "more", r.unsaid)
	}
}
