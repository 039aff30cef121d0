package responses

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

var isWebSearch = regexp.MustCompile(`^web_search(_preview)?(_[0-9]{4}_[0-9]{2}_[0-9]{2})?$`)

// hostedType returns the type of a hosted tool without its version.
func hostedType(kind string) string {
	if isWebSearch.MatchString(kind) {
		return builtin.HostedSearch
	}
	return kind
}

// declareHosted adds a hosted tool that a tool of the run answers. It returns false if there is none for the type.
func (d *decoder) declareHosted(at, kind string, raw json.RawMessage) (bool, error) {
	kind = hostedType(kind)
	h, ok := surface.HostedTool(d.req, kind)
	if !ok {
		return false, nil
	}
	if !h.TakesOptions() {
		if err := d.dropHosted(at, raw, &h); err != nil {
			return true, err
		}
	} else if err := h.ReadOptions(at, optionsOf(raw)); err != nil {
		return true, err
	}
	if h.Contradicts(d.hosted) {
		return true, fault.New(fault.Invalid, "invalid_value", "%s: the request has %s twice, with other options; remove one", at, kind).In(at)
	}
	if !d.answers(kind) {
		d.hosted = append(d.hosted, h.HostedTool)
		if too, ok := h.Too(); ok {
			d.hosted = append(d.hosted, too)
		}
		if (kind == builtin.HostedCode || kind == builtin.HostedShell) && h.TakesOptions() {
			d.code = append(d.code, newCodeTool(at, raw, h))
		}
	}
	return true, nil
}

// optionsOf returns a hosted tool without its type.
func optionsOf(raw json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(raw, &members) // it was decoded before
	delete(members, "type")
	out, _ := surface.Marshal(members) // they were decoded from JSON
	return out
}

// dropHosted notes the members of a hosted tool that the tool of the MCP server does not get.
// Members that the API requires are not noted, and max_uses is not for the server.
func (d *decoder) dropHosted(at string, raw json.RawMessage, h *surface.Hosted) error {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(raw, &members) // it was decoded before
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch name {
		case "type", "vector_store_ids", "container", "max_uses":
			continue
		}
		if v := string(members[name]); v != "null" {
			d.drop(at + "." + name)
		}
	}
	return h.ReadMaxUses(at, members["max_uses"])
}

// answering returns the tools that answer a hosted tool of the request; nil = none. The first one is that of the hosted tool itself.
func (d *decoder) answering(kind string) (all []run.ServerTool) {
	kind = hostedType(kind)
	for _, h := range d.hosted {
		if h.Type == kind {
			all = append(all, run.ServerTool{Server: h.Server, Tool: h.Tool})
		}
	}
	return all
}

// answers reports whether a tool of the run answers the request's hosted tool of the type.
func (d *decoder) answers(kind string) bool { return len(d.answering(kind)) > 0 }
