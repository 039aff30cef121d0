package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// tmpStore stands in until the stores have landed.
type tmpStore struct {
	mu      sync.Mutex
	orgs    []org.Record
	keys    []org.Key
	servers []org.MCPServer
}

func (t *tmpStore) Orgs(context.Context) ([]org.Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.orgs), nil
}

func (t *tmpStore) CreateOrg(_ context.Context, r org.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.orgs, func(o org.Record) bool { return o.ID == r.ID }) {
		return org.ErrExists
	}
	t.orgs = append(t.orgs, r)
	return nil
}

func (t *tmpStore) UpdateOrg(_ context.Context, r org.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.orgs {
		if t.orgs[i].ID == r.ID {
			t.orgs[i] = r
			return nil
		}
	}
	return org.ErrNotFound
}

func (t *tmpStore) DeleteOrg(_ context.Context, id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.orgs)
	t.orgs = slices.DeleteFunc(t.orgs, func(o org.Record) bool { return o.ID == id })
	if n == len(t.orgs) {
		return org.ErrNotFound
	}
	return nil
}

func (t *tmpStore) Keys(_ context.Context, o string) ([]org.Key, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.keys), func(k org.Key) bool { return k.Org != o }), nil
}

func (t *tmpStore) CreateKey(_ context.Context, k org.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = append(t.keys, k)
	return nil
}

func (t *tmpStore) RevokeKey(_ context.Context, o, id string, at int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.keys {
		if t.keys[i].Org == o && t.keys[i].ID == id {
			t.keys[i].RevokedAt = time.UnixMilli(at)
			return nil
		}
	}
	return org.ErrNotFound
}

func (t *tmpStore) MCPServers(_ context.Context, o string) ([]org.MCPServer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.servers), func(s org.MCPServer) bool { return s.Org != o }), nil
}

func (t *tmpStore) CreateMCPServer(_ context.Context, s org.MCPServer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.servers = append(t.servers, s)
	return nil
}

func (t *tmpStore) UpdateMCPServer(_ context.Context, s org.MCPServer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.servers {
		if t.servers[i].Org == s.Org && t.servers[i].Name == s.Name {
			t.servers[i] = s
			return nil
		}
	}
	return org.ErrNotFound
}

func (t *tmpStore) DeleteMCPServer(_ context.Context, o, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.servers = slices.DeleteFunc(t.servers, func(s org.MCPServer) bool { return s.Org == o && s.Name == name })
	return nil
}
