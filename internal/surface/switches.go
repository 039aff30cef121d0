package surface

import (
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
)

// Switched is what a body says of the agentic runtime.
type Switched struct {
	settings.Switches
	CodeAt       string // the member that asks for code execution
	CodeMember   string // the one that can ask for it
	RoundsAt     string // the member that limits rounds
	ShellAt      string // the one that asks for commands
	CodeTool     bool   // it is a tool of a type that a provider may have, too
	PermissionAt string // the member with Permission
	FilesAt      string // the member that asks for files; "" = it does not

	// Asks says that the body has a member of the agentic runtime, so that its client knows what such runs answer.
	Asks bool
}

// The words for what engages the agentic runtime.
const switchNames = "enable_search, enable_code_execution or max_tool_rounds in the org's runtime settings (PATCH /api/org/runtime), or tool_dispatch_url of the operator"

// switched reads what the body says of the agentic runtime, and refuses what the org or the key does not allow. It
// returns nil for an API that has no such members.
func (h *Handler) switched(header http.Header, caller caller.Caller, members []Member) (*Switched, error) {
	if h.s.Switches == nil {
		return nil, nil
	}
	s, err := h.s.Switches(members)
	if err != nil {
		return nil, err
	}
	rt := caller.Org.Runtime
	if s.Hosted && optedOut(header) { // the provider gets its hosted tools
		s.Code, s.Search, s.Shell = false, false, false
	}
	if s.Shell && (!rt.EnableCode || !offers(caller, builtin.Shell)) { // its provider may have the tool
		s.Shell = false
	}
	if s.CodeTool && !rt.EnableCode { // its provider may have the tool
		s.Code, s.CodeTool = false, false
	}
	switch most := settings.MaxToolRounds(h.o.MaxRoundsCap()); {
	case s.Rounds > most:
		return nil, fault.New(fault.Invalid, "invalid_value", "%s: %d is above max_rounds_cap (%d); use a whole number from 1 to %d", s.RoundsAt, s.Rounds, most, most).In(s.RoundsAt)
	case s.FilesAt != "" && !rt.EnableSearch && !rt.EnableCode && rt.MaxToolRounds == nil && !h.engages(caller, members):
		return nil, unsupported(s.FilesAt, "only runs of the agentic runtime make files, and nothing switches it on; leave files out, or set "+switchNames)
	case s.FilesAt != "" && !s.Code:
		return nil, NoCodeForFiles(s.FilesAt, s.CodeMember)
	case optedOut(header) && s.FilesAt != "":
		return nil, unsupported(s.FilesAt, "the agent loop is switched off for this request; leave the member out, or the header turnpike-mcp-disabled")
	case s.Code && !rt.EnableCode:
		return nil, unsupported(s.CodeAt, "code execution is off for the org; leave the member out, or an owner or admin sets enable_code_execution: true in the org's runtime settings (PATCH /api/org/runtime)")
	case optedOut(header) && s.Code:
		return nil, unsupported(s.CodeAt, "the agent loop is switched off for this request; leave the member out, or the header turnpike-mcp-disabled")
	case optedOut(header) && s.Rounds > 0:
		return nil, unsupported(s.RoundsAt, "the agent loop is switched off for this request; leave the member out, or the header turnpike-mcp-disabled")
	}
	if s.Code {
		s.Asks = !s.Hosted
		if err := mayRunCode(s.CodeAt, builtin.CodeExecute, caller); err != nil {
			return s, err
		}
	}
	if s.Shell {
		return s, mayRunCode(s.ShellAt, builtin.Shell, caller)
	}
	return s, nil
}

// offers reports whether the switches of the org can offer the tool.
func offers(caller caller.Caller, name string) bool {
	return caller.Switched != nil && slices.Contains(caller.Switched.Tools, name)
}

// mayRunCode refuses a key that may not use a tool that runs code, and a gateway without a sandbox.
func mayRunCode(at, name string, caller caller.Caller) error {
	a := caller.Principal.Access
	if !a.AllowsServer(org.BuiltinTools) || !a.AllowsTool(name) || a.ReadOnly {
		return fault.New(fault.Forbidden, "tool_not_allowed", "%s: this API key may not use the tool %s of the org; leave it out, or use another key", at, name).In(at)
	}
	if !offers(caller, name) {
		return unsupported(at, "this gateway has no sandbox; the operator sets sandbox.drivers in the configuration file")
	}
	return nil
}

// NoCodeForFiles refuses required files of a request whose run has no tool that makes files.
func NoCodeForFiles(at, codeMember string) *fault.Error {
	return unsupported(at, "the run has no code, which makes files; leave files out, or set "+codeMember+": true in the request (it needs the same setting of the org)")
}

func unsupported(at, why string) *fault.Error {
	return fault.New(fault.Invalid, "unsupported_parameter", "%s: %s", at, why).In(at)
}

// engaged reports whether the switches run the agent loop.
func (s *Switched) engaged(caller caller.Caller) bool {
	return s != nil && s.Engaged(caller.Org.Runtime)
}

// engage gives the run the tools that the switches offer.
func (s *Switched) engage(caller caller.Caller, req *run.Request) {
	if s != nil {
		req.Servers = catalog.Engage(req.Servers, caller.Switched, s.Offered(caller.Org.Runtime))
	}
}

// asks returns what the settings of the run need of it.
func (s *Switched) asks() *settings.Switches {
	if s == nil {
		return nil
	}
	return &s.Switches
}

// RunsCode reports whether the run has the built-in tool that runs code.
func RunsCode(req *run.Request) bool {
	return slices.ContainsFunc(req.Servers, func(s catalog.Server) bool {
		return s.Name == org.BuiltinTools && slices.Contains(s.Tools, builtin.CodeExecute)
	})
}

// checkStream refuses that calls wait for a client that asks for no stream: it would not hear of them.
func (s *Switched) checkStream(stream bool) error {
	if s == nil || s.Permission != policy.Ask || stream {
		return nil
	}
	return fault.New(fault.Unprocessable, "invalid_value", "%s: ask needs stream: true, because the stream says which calls wait; set it, or use auto or deny", s.PermissionAt).In(s.PermissionAt)
}

// extend adds the extensions that a run of the agentic runtime has, whether a switch of the server or the tool dispatch URL
// engages it: the trace, the files, and events of progress, where the API has them.
func (s *Switched) extend(x *Extensions, api Surface, caller caller.Caller, req *run.Request) {
	engaged, dispatched := s.engaged(caller), api.Progress && len(req.Dispatched) > 0
	x.Trace, x.Files = x.Trace || engaged || dispatched, x.Files || engaged
	x.Progress = api.Progress && (x.Progress || engaged || dispatched || s != nil && s.Asks)
}
