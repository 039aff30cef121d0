package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Hosted is a tool of the run that answers a hosted tool of its request.
type Hosted struct {
	loop.HostedTool
	server catalog.Server
}

// HostedTool returns the tool that answers a hosted tool of the type, or false if no server of the run has one.
func HostedTool(req *run.Request, kind string) (Hosted, bool) {
	for _, s := range req.Servers {
		if name, ok := s.Hosted[kind]; ok {
			return Hosted{loop.HostedTool{Type: kind, Server: s.Name, Tool: name}, s}, true
		}
	}
	return Hosted{}, false
}

// TakesOptions reports whether the tool honours the options of the hosted tool. That of an MCP server does not.
func (h *Hosted) TakesOptions() bool { return h.server.HostedOptions != nil }

// Contradicts reports whether one of the tools answers the same hosted tool with other options.
func (h *Hosted) Contradicts(others []loop.HostedTool) bool {
	return slices.ContainsFunc(others, func(o loop.HostedTool) bool {
		return o.Type == h.Type && o.Tool == h.Tool && (!bytes.Equal(o.Options, h.Options) || o.MaxUses != h.MaxUses)
	})
}

// Too returns a further tool whose calls are calls of the hosted tool, or false.
func (h *Hosted) Too() (loop.HostedTool, bool) {
	name, ok := h.server.HostedToo[h.Type]
	return loop.HostedTool{Type: h.Type, Server: h.Server, Tool: name}, ok
}

// Replace puts the tool in its place in a list.
func (h *Hosted) Replace(in []loop.HostedTool) {
	for i := range in {
		if in[i].Type == h.Type && in[i].Tool == h.Tool {
			in[i] = h.HostedTool
		}
	}
}

// maxMaxUses is the most that max_uses can be.
const maxMaxUses = 10_000

// ReadMaxUses reads the option max_uses of the request, at a place; nil and null say nothing.
func (h *Hosted) ReadMaxUses(at string, value json.RawMessage) error {
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	if json.Unmarshal(value, &h.MaxUses) != nil || h.MaxUses < 1 || h.MaxUses > maxMaxUses {
		at += ".max_uses"
		return fault.New(fault.Invalid, "invalid_value", "%s must be a whole number from 1 to %d", at, maxMaxUses).In(at)
	}
	return nil
}

// ReadOptions reads the options that the request has at a place, a JSON object. The error names the first that the tool
// cannot honour.
func (h *Hosted) ReadOptions(at string, options json.RawMessage) (err error) {
	if !(org.Access{Tools: h.server.Only}).AllowsTool(h.Tool) {
		return fault.New(fault.Forbidden, "tool_not_allowed", "%s: this API key may not use the tool %s of the org; leave it out, or use another key", at, h.Tool).In(at)
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal(options, &members) == nil {
		if err := h.ReadMaxUses(at, members["max_uses"]); err != nil {
			return err
		}
		delete(members, "max_uses")
		options, _ = Marshal(members) // they were decoded from JSON
	}
	h.Options, err = h.server.HostedOptions(h.Type, options)
	if wrong, ok := errors.AsType[*catalog.OptionError](err); ok {
		if wrong.Member != "" {
			at += "." + wrong.Member
		}
		return fault.New(fault.Invalid, "unsupported_value", "%s: %s", at, wrong.Reason).In(at)
	}
	return err
}
