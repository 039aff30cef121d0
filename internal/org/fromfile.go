package org

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// File is what the configuration file says of orgs. The zero value is nothing.
type File struct {
	Orgs   map[string]FromFile
	Shared []SharedServer
}

// Of returns what the file says of an org, with the servers that it shares with it.
func (f File) Of(orgID string) FromFile {
	of := f.Orgs[orgID]
	for _, s := range f.Shared {
		if m, ok := s.For(orgID); ok {
			of.Servers = append(slices.Clip(of.Servers), m)
		}
	}
	return of
}

// FromFile is what the configuration file says of an org. The zero value is nothing.
type FromFile struct {
	Org     bool // the file contains the org
	Runtime bool // the file contains settings of the org
	Record  Record
	Keys    []Key
	Servers []MCPServer

	HTTPTools []HTTPTool
	Webhooks  []FileWebhook
}

// FileWebhook is a webhook of the configuration file. In a store it has no sealed secret: see
// [Webhook.Declared].
type FileWebhook struct {
	Webhook
	Secrets []secret.Value // that sign: the current one and, during a rotation, the previous one
}

// Webhook returns the webhook with the name, or nil.
func (f FromFile) Webhook(name string) *FileWebhook {
	for i := range f.Webhooks {
		if f.Webhooks[i].Name == name {
			return &f.Webhooks[i]
		}
	}
	return nil
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
