package org

import (
	"path"
	"slices"
	"strings"
)

// BuiltinTools is the name of the server to which the built-in tools of an org belong: in the lists of keys, in
// events, in the audit log and in metrics. No MCP server of an org with built-in tools has it.
const BuiltinTools = "builtin_tools"

// BuiltinTool is a built-in tool that runs of an org can use: see [Runtime].BuiltinTools.
type BuiltinTool struct {
	Name            string `json:"name"` // of BuiltinNames; unique in the org
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

// BuiltinNames returns the names of the built-in tools, in the order in which they are listed.
func BuiltinNames() []string {
	return []string{"database_query", "database_write", "http_request", "code_execute", Shell, "storage_read", "storage_write", "web_search", "web_scrape"}
}

// SearchTools returns the built-in tools that [Runtime].EnableSearch offers.
func SearchTools() []string { return []string{"web_search", "web_scrape"} }

// CodeTools returns those that [Runtime].EnableCode offers to a request that asks for them: the one that runs code, and the one that runs
// commands, if the operator allows it.
func CodeTools() []string { return []string{"code_execute", Shell} }

// Values of [Runtime].ToolNames; "" = ToolNamesStandard. With ToolNamesMistralRS the switches offer Python under the names of mistral.rs, which
// begin with MistralRSPrefix.
const (
	ToolNamesStandard  = "standard"
	ToolNamesMistralRS = "mistralrs"
	MistralRSPrefix    = "mistralrs_"
)

// The names under which the switches offer the built-in tools that run code and read pages. Their settings have the names of BuiltinNames.
const (
	ExecutePython     = "execute_python"
	ExecuteJavaScript = "execute_javascript"
	SurfaceOutputs    = "surface_outputs"
	ListFiles         = "list_files"
	ReadFile          = "read_file"
	FetchPage         = "fetch_page"

	// Shell is the tool that runs commands. It has settings of its own.
	Shell = "shell"
)

// namesOfTools returns the further names of built-in tools, by their own: those of one list are the same for a model.
func namesOfTools() map[string][][]string {
	return map[string][][]string{
		"code_execute": {
			{ExecutePython, MistralRSPrefix + ExecutePython}, {SurfaceOutputs, MistralRSPrefix + SurfaceOutputs}, {ExecuteJavaScript}, {ListFiles}, {ReadFile},
		},
		"web_scrape": {{FetchPage}},
	}
}

// SelectedToo returns the names of built-in tools that the pattern of a hook, see [path.Match], does not match, and whose calls it selects all the same.
// The own name of a tool selects calls by all its names. Any name selects calls by another that is the same for a model, and by
// the tool's own: such a call can do what a call by that name does.
func SelectedToo(pattern string) (names []string) {
	matches := func(name string) bool {
		ok, err := path.Match(pattern, name)
		return ok || err != nil
	}
	for own, lists := range namesOfTools() {
		anyForm := false
		for _, same := range lists {
			selects := slices.ContainsFunc(same, matches)
			anyForm = anyForm || selects
			for _, name := range same {
				if !matches(name) && (selects || matches(own)) {
					names = append(names, name)
				}
			}
		}
		if anyForm && !matches(own) {
			names = append(names, own)
		}
	}
	slices.Sort(names)
	return names
}

// CodeLanguage returns the language of code that a tool runs which the model calls by this name. It returns false for names that say
// nothing of it, such as code_execute.
func CodeLanguage(name string) (language string, ok bool) {
	switch strings.TrimPrefix(name, MistralRSPrefix) {
	case ExecutePython:
		return "python", true
	case ExecuteJavaScript:
		return "javascript", true
	}
	return "", false
}

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
		add(SearchTools())
	}
	if r.EnableCode {
		add(CodeTools())
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
