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
// reads says that it is known to only read.
func (a Approval) Asks(name string, reads bool) bool {
	switch {
	case a.Always.selects(name, reads):
		return true
	case a.Never.selects(name, reads):
		return false
	}
	return a.Rest
}

// AsksNever reports whether no call waits, whatever its tool.
func (a Approval) AsksNever() bool { return !a.Rest && a.Always == nil }

func (t *Tools) selects(name string, reads bool) bool {
	if t == nil || t.Names == nil && t.ReadOnly == nil {
		return false
	}
	return (t.Names == nil || slices.Contains(t.Names, name)) && (t.ReadOnly == nil || *t.ReadOnly == reads)
}
