package org

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// OrgInHeader stands for the id of the org in a header of a [SharedServer].
const OrgInHeader = "{org}"

// SharedServer is an MCP server that the configuration file shares among orgs. Each org has it
// as its own, with a connection of its own, and may only switch it off.
type SharedServer struct {
	MCPServer
	Orgs []string // ids; nil = all orgs, also those that are created later
}

// For returns the server as the org has it, or false if the org does not have it.
func (s SharedServer) For(orgID string) (MCPServer, bool) {
	if s.Orgs != nil && !slices.Contains(s.Orgs, orgID) {
		return MCPServer{}, false
	}
	m := s.MCPServer
	m.Org, m.FromFile, m.Shared = orgID, true, true
	m.Headers = maps.Clone(m.Headers)
	for name, text := range m.Headers {
		t, err := secret.Parse(text)
		if err != nil {
			continue // the file was checked
		}
		m.Headers[name] = strings.ReplaceAll(t.Literal().Reveal(), OrgInHeader, orgID) + string(t.Ref())
	}
	return m, true
}

// WithSwitches returns the servers with the shared ones of these names switched off.
func WithSwitches(servers []MCPServer, off []string) []MCPServer {
	if len(off) == 0 {
		return servers
	}
	servers = slices.Clone(servers)
	for i := range servers {
		if servers[i].Shared && slices.Contains(off, servers[i].Name) {
			servers[i].Enabled = false
		}
	}
	return servers
}

// PublicURL returns the URL of a server without what may be a credential: its user and its query.
func (s MCPServer) PublicURL() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}
