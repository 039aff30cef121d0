package policy

import "slices"

// Approval is a rule that says which calls of a server wait for approval. The zero value
// selects none.
type Approval struct {
	Always *Tools `json:"always,omitempty"` // these wait, also if Never selects them
	Never  *Tools `json:"never,omitempty"`  // these do not wait
	Rest   bool   `json:"rest,omitempty"`   // those that neither selects wait
}

// Tools selects tools of a server that fulfil all its conditions. Nil, and a Tools without
// conditions, select none.
type Tools struct {
	Names    []string `json:"tool_names,omitzero"` // one of these names; nil = no condition
	ReadOnly *bool    `json:"read_only,omitempty"` // whether the tool only reads; nil = no condition
}

// Asks reports whether calls of a tool wait. name is the server's own name of the tool, and
// reads says that it is known to only read. has reports whether the server has a tool of a name.
//
// A rule that names a tool which the server does not have is probably misspelt. Then the tools
// that no rule names wait too, unless they are known to only read.
func (a Approval) Asks(name string, reads bool, has func(name string) bool) bool {
	switch {
	case a.Always.selects(name, reads):
		return true
	case a.Never.selects(name, reads):
		return false
	}
	return a.Rest || !reads && !slices.Contains(a.names(), name) && len(a.Unmatched(has)) > 0
}

// Unmatched returns the names in the rule that the server does not have a tool for, each once.
func (a Approval) Unmatched(has func(name string) bool) (out []string) {
	for _, name := range a.names() {
		if !has(name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// names returns the names of tools in the rule.
func (a Approval) names() (out []string) {
	for _, t := range []*Tools{a.Always, a.Never} {
		if t != nil {
			out = append(out, t.Names...)
		}
	}
	return out
}

// AsksNever reports whether no call waits, whatever its tool.
func (a Approval) AsksNever() bool { return !a.Rest && a.Always == nil }

func (t *Tools) selects(name string, reads bool) bool {
	if t == nil || t.Names == nil && t.ReadOnly == nil {
		return false
	}
	return (t.Names == nil || slices.Contains(t.Names, name)) && (t.ReadOnly == nil || *t.ReadOnly == reads)
}
