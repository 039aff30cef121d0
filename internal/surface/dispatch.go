package surface

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// dispatches reports whether the tool dispatch URL executes the function of that name that a request of the
// caller defines. A key that is limited to servers, or to tools that only read, keeps its functions.
func (h *Handler) dispatches(caller caller.Caller, name string) bool {
	a := caller.Principal.Access
	return h.o.Dispatches != nil && a.AllowsAddresses() && !a.ReadOnly && a.AllowsTool(name) && h.o.Dispatches(name)
}

// asksFor reports whether a body has a member with a value.
func asksFor(members []Member, name string) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.Name == name && !SaysNothing(m) })
}

// engages reports whether the request names a session or a file of the gateway, or has a function that the tool dispatch URL executes. Then
// the agent loop runs, also in an org without MCP servers.
func (h *Handler) engages(caller caller.Caller, members []Member) bool {
	if h.s.SessionMember != "" && asksFor(members, h.s.SessionMember) {
		return true
	}
	if h.o.Files != nil && namesFile(members) {
		return true
	}
	return h.o.Dispatches != nil && h.s.Functions != nil &&
		slices.ContainsFunc(h.s.Functions(members), func(name string) bool { return h.dispatches(caller, name) })
}

// dispatch moves the functions that the tool dispatch URL executes from ClientTools to Dispatched.
func (h *Handler) dispatch(caller caller.Caller, req *run.Request, functions []string) error {
	if h.o.Dispatches == nil {
		return nil
	}
	var kept []model.Tool
	for i, t := range req.ClientTools {
		if !slices.Contains(functions, t.Name) || !h.dispatches(caller, t.Name) {
			kept = append(kept, t)
			continue
		}
		if slices.ContainsFunc(req.ClientTools[:i], func(earlier model.Tool) bool { return earlier.Name == t.Name }) {
			return fault.New(fault.Invalid, "invalid_value", "tools: two functions have the name %s; remove or rename one", t.Name).In("tools")
		}
		d := t.Definition
		if len(d.InputSchema) == 0 {
			d.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		if _, err := catalog.Usable(d); err != nil {
			return fault.New(fault.Invalid, "invalid_value", "tools: the gateway executes the function %s, and cannot use it: %v", t.Name, err).In("tools")
		}
		if req.Dispatched = append(req.Dispatched, t); len(req.Dispatched) > catalog.MaxTools {
			return fault.New(fault.Invalid, "invalid_value", "tools: the gateway executes at most %d functions of a request; remove some", catalog.MaxTools).In("tools")
		}
	}
	req.ClientTools = kept
	return nil
}
