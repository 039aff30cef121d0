package org

// FromFile is what the configuration file says of an org. The zero value is nothing.
type FromFile struct {
	Org     bool // the file contains the org
	Runtime bool // the file contains settings of the org
	Record  Record
	Keys    []Key
	Servers []MCPServer
}

// ServerStatus is how an enabled server was last seen.
type ServerStatus struct {
	State string `json:"state"` // unknown, connected, failed, disabled
	Tools int    `json:"tools"`
	Error string `json:"error,omitempty"`

	// UnmatchedApprovals are the names in require_approval that the server has no tool for. As
	// long as there is one, all tools that no rule names need approval, unless they are known
	// to only read.
	UnmatchedApprovals []string `json:"unmatched_approvals,omitempty"`

	// UnmatchedTools are the names in the other settings, such as tools, that the server has no
	// tool for. They have no effect.
	UnmatchedTools []ToolList `json:"unmatched_tools,omitempty"`
}
