package memory

import (
	"context"
	"encoding/json"
	"fmt"
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
	return r.cloneServers(), nil
}

func (r *orgRecord) cloneServers() []org.MCPServer {
	out := slices.Clone(r.servers)
	for i, s := range out {
		out[i] = cloneServer(s)
	}
	return out
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
func (o *Orgs) UpdateMCPServer(_ context.Context, was, s org.MCPServer, by org.Author) error {
	if err := s.Storable(); err != nil {
		return fmt.Errorf("MCP server %s: %w", s.Name, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i := o.findServer(s.Org, s.Name)
	switch {
	case i < 0:
		return fmt.Errorf("MCP server %s: %w", s.Name, org.ErrNotFound)
	case !r.servers[i].Same(was):
		return fmt.Errorf("MCP server %s: %w", s.Name, org.ErrChanged)
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

// cloneServer copies a server by its JSON, so that it keeps what other stores keep.
func cloneServer(s org.MCPServer) org.MCPServer {
	settings, err := json.Marshal(s)
	c := org.MCPServer{Org: s.Org, Name: s.Name, Position: s.Position, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
	if err == nil {
		err = json.Unmarshal(settings, &c)
	}
	if err != nil {
		panic(err) // an MCPServer has plain fields only
	}
	return c
}

// ServersOff implements org.Store.
func (o *Orgs) ServersOff(_ context.Context, orgID string) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.orgs[orgID]; ok {
		return slices.Clone(r.off), nil
	}
	return nil, nil
}

// SwitchServer implements org.Store.
func (o *Orgs) SwitchServer(_ context.Context, orgID, name string, on bool, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(orgID)
	if err != nil {
		return fmt.Errorf("MCP server %s: %w", name, err)
	}
	i, isOff := slices.BinarySearch(r.off, name)
	switch {
	case isOff == !on:
		return nil
	case on:
		r.off = slices.Delete(r.off, i, i+1)
	default:
		r.off = slices.Insert(r.off, i, name)
	}
	return o.record(orgID, by, by.ServerSwitched(orgID, name, on))
}
