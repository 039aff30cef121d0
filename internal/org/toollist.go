package org

import (
	"maps"
	"slices"
)

// ToolList is a setting of an MCP server that names tools of the server.
type ToolList struct {
	Setting string   `json:"setting"` // its key in the configuration file
	Names   []string `json:"names"`   // the server's own names
}

// ToolLists returns the settings that name tools of the server, all but require_approval.
func (s MCPServer) ToolLists() []ToolList {
	return slices.DeleteFunc([]ToolList{
		{"tools", s.Tools},
		{"polling", s.Polling},
		{"reads", s.Reads},
		{"keyed", s.Keyed},
		{"hosted", slices.Sorted(maps.Values(s.HostedTools()))},
		{"cache", s.Cache.Names},
		{"tool_prices_usd", slices.Sorted(maps.Keys(s.ToolPrices))},
	}, func(l ToolList) bool { return len(l.Names) == 0 })
}

// Unmatched returns the part of the lists that the server does not have a tool for, each name
// once per setting. has reports whether the server has a tool of a name.
func Unmatched(lists []ToolList, has func(name string) bool) (out []ToolList) {
	for _, l := range lists {
		var names []string
		for _, name := range l.Names {
			if !has(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if names != nil {
			out = append(out, ToolList{l.Setting, names})
		}
	}
	return out
}
