package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// MCPServers implements org.Store.
func (o *Orgs) MCPServers(_ context.Context, orgID string) ([]org.MCPServer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, nil
	}
	out := make([]org.MCPServer, len(r.servers))
	for i, s := range r.servers {
		out[i] = cloneServer(s)
	}
	return out, nil
}

// CreateMCPServer implements org.Store.
func (o *Orgs) CreateMCPServer(_ context.Context, s org.MCPServer, by org.Author) error {
	if err := s.Storable(); err != nil {
		return fmt.Errorf("MCP server %s: %w", s.Name, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(s.Org)
	switch {
	case err != nil:
		return fmt.Errorf("MCP server %s: %w", s.Name, err)
	case o.Caps.MCPServers > 0 && len(r.servers) >= o.Caps.MCPServers:
		return fmt.Errorf("MCP server %s: %w", s.Name, o.Caps.MCPServersError())
	case r.server(s.Name) >= 0:
		return fmt.Errorf("MCP server %s: %w", s.Name, org.ErrExists)
	}
	s.Position = 0
	if n := len(r.servers); n > 0 {
		s.Position = r.servers[n-1].Position + 1
	}
	r.servers = append(r.servers, cloneServer(s))
	return o.record(s.Org, by, by.MCPServerChanged(nil, &s))
}

// UpdateMCPServer implements org.Store.
func (o *Orgs) UpdateMCPServer(_ context.Context, s org.MCPServer, by org.Author) error {
	if err := s.Storable(); err != nil {
		return fmt.Errorf("MCP server %s: %w", s.Name, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i := o.findServer(s.Org, s.Name)
	if i < 0 {
		return fmt.Errorf("MCP server %s: %w", s.Name, org.ErrNotFound)
	}
	s.Position, s.CreatedAt = r.servers[i].Position, r.servers[i].CreatedAt
	before := r.servers[i]
	r.servers[i] = cloneServer(s)
	return o.record(s.Org, by, by.MCPServerChanged(&before, &s))
}

// DeleteMCPServer implements org.Store.
func (o *Orgs) DeleteMCPServer(_ context.Context, orgID, name string, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i := o.findServer(orgID, name)
	if i < 0 {
		return fmt.Errorf("MCP server %s: %w", name, org.ErrNotFound)
	}
	before := r.servers[i]
	r.servers = slices.Delete(r.servers, i, i+1)
	return o.record(orgID, by, by.MCPServerChanged(&before, nil))
}

// findServer returns the index of a server, or -1. It is called with mu held.
func (o *Orgs) findServer(orgID, name string) (*orgRecord, int) {
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, -1
	}
	i := r.server(name)
	return r, i
}

func (r *orgRecord) server(name string) int {
	return slices.IndexFunc(r.servers, func(s org.MCPServer) bool { return s.Name == name })
}

func cloneServer(s org.MCPServer) org.MCPServer {
	s.Tools, s.Polling, s.Headers = slices.Clone(s.Tools), slices.Clone(s.Polling), maps.Clone(s.Headers)
	s.Reads, s.Keyed, s.Cache.Names = slices.Clone(s.Reads), slices.Clone(s.Keyed), slices.Clone(s.Cache.Names)
	return s
}
