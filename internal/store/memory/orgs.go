package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Orgs is an org.Store and a toolcache.Store. The zero value is ready to use.
type Orgs struct {
	mu   sync.Mutex
	orgs map[string]*orgRecord
}

// orgRecord is an org with what it has.
type orgRecord struct {
	org.Record
	keys    []org.Key       // in the order of Keys
	servers []org.MCPServer // in the order of MCPServers
	secrets []org.Secret    // in the order of Secrets
	results results
}

// Orgs implements org.Store.
func (o *Orgs) Orgs(context.Context) ([]org.Record, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]org.Record, 0, len(o.orgs))
	for _, r := range o.orgs {
		out = append(out, cloneOrg(r.Record))
	}
	slices.SortFunc(out, func(a, b org.Record) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// CreateOrg implements org.Store.
func (o *Orgs) CreateOrg(_ context.Context, r org.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, taken := o.orgs[r.ID]; taken {
		return fmt.Errorf("org %s: %w", r.ID, org.ErrExists)
	}
	if o.orgs == nil {
		o.orgs = map[string]*orgRecord{}
	}
	o.orgs[r.ID] = &orgRecord{Record: cloneOrg(r)}
	return nil
}

// UpdateOrg implements org.Store.
func (o *Orgs) UpdateOrg(_ context.Context, r org.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, err := o.find(r.ID)
	if err != nil {
		return err
	}
	r.CreatedAt = old.CreatedAt
	old.Record = cloneOrg(r)
	return nil
}

// DeleteOrg implements org.Store.
func (o *Orgs) DeleteOrg(_ context.Context, id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.find(id); err != nil {
		return err
	}
	delete(o.orgs, id)
	return nil
}

// find is called with mu held.
func (o *Orgs) find(id string) (*orgRecord, error) {
	if r, ok := o.orgs[id]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("org %s: %w", id, org.ErrNotFound)
}

func cloneOrg(r org.Record) org.Record {
	r.Features = slices.Clone(r.Features)
	r.Runtime.MaxRounds = cloneInt(r.Runtime.MaxRounds)
	r.Runtime.MaxCalls = cloneInt(r.Runtime.MaxCalls)
	r.Runtime.ToolResultMaxBytes = cloneInt(r.Runtime.ToolResultMaxBytes)
	r.Runtime.MaxRunTokens = cloneInt(r.Runtime.MaxRunTokens)
	return r
}

func cloneInt(p *int) *int {
	if p == nil {
		return nil
	}
	return new(*p)
}
