package org

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

// BuiltinTools is the name of the server to which the built-in tools of an org belong: in the lists of keys, in
// events, in the audit log and in metrics. No MCP server of an org with built-in tools has it.
const BuiltinTools = "builtin_tools"

// BuiltinTool is a built-in tool that runs of an org can use: see [Runtime].BuiltinTools.
type BuiltinTool struct {
	Name            string `json:"name"` // of builtin.Names; unique in the org
	Disabled        bool   `json:"disabled,omitempty"`
	RequireApproval string `json:"require_approval,omitempty"` // ApprovalNever or ApprovalAlways; "" = as the tool itself asks
	Hosted          bool   `json:"hosted,omitempty"`           // web_search: it answers the hosted tool of requests with this name
	Price           *int64 `json:"price_nano_usd,omitempty"`   // of a call, in 10⁻⁹ US dollars; nil = nobody has said
	MaxUses         int    `json:"max_uses,omitempty"`         // calls of a run; 0 = no limit
}

// ToolSettings are what the settings of a tool say of its calls.
type ToolSettings struct {
	Name            string
	RequireApproval string // ApprovalNever or ApprovalAlways; "" = as the tool itself asks
	Price           *int64 // of a call, in 10⁻⁹ US dollars; nil = nobody has said
}

// Settings returns what the settings say of calls of the tool.
func (t BuiltinTool) Settings() ToolSettings {
	return ToolSettings{t.Name, t.RequireApproval, t.Price}
}

// Values of [Runtime].ToolNames; "" = ToolNamesStandard. With ToolNamesMistralRS the switches offer Python under the names of mistral.rs, which
// begin with builtin.MistralRSPrefix.
const (
	ToolNamesStandard  = "standard"
	ToolNamesMistralRS = "mistralrs"
)

// SwitchedBuiltins returns the built-in tools that the switches of the org can offer, with what BuiltinTools says
// of them. It leaves out web_scrape if that is disabled.
func (r Runtime) SwitchedBuiltins() (all []BuiltinTool) {
	add := func(names []string) {
		for _, name := range names {
			if t := r.BuiltinTool(name); !t.Disabled {
				all = append(all, t)
			}
		}
	}
	if r.EnableSearch {
		add(builtin.SwitchedBy(builtin.EnableSearch))
	}
	if r.EnableCode {
		add(builtin.SwitchedBy(builtin.EnableCode))
	}
	return all
}

// OffersWithoutSwitch reports whether BuiltinTools offers a tool that no switch does.
func (r Runtime) OffersWithoutSwitch() bool {
	switched := r.SwitchedBuiltins()
	return slices.ContainsFunc(r.EnabledBuiltins(), func(t BuiltinTool) bool {
		return !slices.ContainsFunc(switched, func(s BuiltinTool) bool { return s.Name == t.Name })
	})
}

// BuiltinTool returns what the org says of a built-in tool, also of one that is disabled.
func (r Runtime) BuiltinTool(name string) BuiltinTool {
	for _, t := range r.BuiltinTools {
		if t.Name == name {
			return t
		}
	}
	return BuiltinTool{Name: name}
}

// EnabledBuiltins returns the built-in tools of the org that are not disabled, in their order.
func (r Runtime) EnabledBuiltins() []BuiltinTool {
	return slices.DeleteFunc(slices.Clone(r.BuiltinTools), func(t BuiltinTool) bool { return t.Disabled })
}
