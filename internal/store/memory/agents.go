package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// agentRecord is an agent with the versions that are kept, the oldest first.
type agentRecord struct {
	agent.Agent
	versions []agent.Version
}

// Agents implements agent.Store.
func (o *Orgs) Agents(_ context.Context, orgID string, q agent.Query) ([]agent.Agent, int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, 0, nil
	}
	var all []agent.Agent
	for _, a := range r.agents {
		if q.Has(a.Agent) {
			all = append(all, cloneAgent(a.Agent))
		}
	}
	slices.SortFunc(all, func(a, b agent.Agent) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	return page(all, q.Limit, q.Offset), len(all), nil
}

// page returns the part of the list that a limit and an offset select; nil = nothing.
func page[T any](all []T, limit, offset int) []T {
	all = all[min(offset, len(all)):]
	if all = all[:min(limit, len(all))]; len(all) == 0 {
		return nil
	}
	return all
}

// Agent implements agent.Store.
func (o *Orgs) Agent(_ context.Context, orgID, id string) (agent.Agent, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := o.findAgent(orgID, id)
	if err != nil {
		return agent.Agent{}, err
	}
	return cloneAgent(a.Agent), nil
}

// versionsOf returns the agent with its versions, which may be declared. It is called with mu held.
func (o *Orgs) versionsOf(orgID, id string) (*agentRecord, error) {
	if r, ok := o.orgs[orgID]; ok && !strings.HasPrefix(id, agent.Prefix) {
		if a := r.declaredAgent(id); a != nil {
			return a, nil
		}
	}
	return o.findAgent(orgID, id)
}

// declaredAgent returns the agent of the configuration file; nil = there was never one with the id.
func (r *orgRecord) declaredAgent(id string) *agentRecord {
	if i := slices.IndexFunc(r.declared, func(a *agentRecord) bool { return a.ID == id }); i >= 0 {
		return r.declared[i]
	}
	return nil
}

// DeclareAgents implements agent.Store.
func (o *Orgs) DeclareAgents(_ context.Context, orgID string, all []agent.Agent, at time.Time) ([]agent.Agent, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(orgID)
	if err != nil {
		return nil, fmt.Errorf("agents of %s: %w", orgID, err)
	}
	out := slices.Clone(all)
	for i := range out {
		a := &out[i]
		one := r.declaredAgent(a.ID)
		if one == nil {
			one = &agentRecord{Agent: agent.Agent{ID: a.ID}}
			r.declared = append(r.declared, one)
		}
		if one.Version == 0 || !one.Equal(a.Definition) {
			one.Definition, one.Version, one.UpdatedAt = a.Clone(), one.Version+1, at.UTC().Truncate(time.Millisecond)
			one.addVersion(org.Author{Principal: org.Operator})
		}
		a.Org, a.Version, a.UpdatedAt = orgID, one.Version, one.UpdatedAt
	}
	return out, nil
}

// findAgent is called with mu held.
func (o *Orgs) findAgent(orgID, id string) (*agentRecord, error) {
	if r, ok := o.orgs[orgID]; ok {
		if i := slices.IndexFunc(r.agents, func(a *agentRecord) bool { return a.ID == id }); i >= 0 {
			return r.agents[i], nil
		}
	}
	return nil, fmt.Errorf("agent %s: %w", id, org.ErrNotFound)
}

// AgentVersions implements agent.Store.
func (o *Orgs) AgentVersions(_ context.Context, orgID, id string, limit, offset int) ([]agent.Version, int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := o.versionsOf(orgID, id)
	if err != nil {
		return nil, 0, err
	}
	var all []agent.Version
	for _, v := range slices.Backward(a.versions) {
		all = append(all, cloneVersion(v))
	}
	return page(all, limit, offset), len(all), nil
}

// AgentVersion implements agent.Store.
func (o *Orgs) AgentVersion(_ context.Context, orgID, id string, number int) (agent.Version, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := o.versionsOf(orgID, id)
	if err != nil {
		return agent.Version{}, err
	}
	i := slices.IndexFunc(a.versions, func(v agent.Version) bool { return v.Number == number })
	if i < 0 {
		return agent.Version{}, fmt.Errorf("version %d of agent %s: %w", number, id, org.ErrNotFound)
	}
	return cloneVersion(a.versions[i]), nil
}

// CreateAgent implements agent.Store.
func (o *Orgs) CreateAgent(_ context.Context, a agent.Agent, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(a.Org)
	switch {
	case err != nil:
		return fmt.Errorf("agent %s: %w", a.Name, err)
	case o.Caps.Agents > 0 && len(r.agents) >= o.Caps.Agents:
		return fmt.Errorf("agent %s: %w", a.Name, o.Caps.AgentsError())
	case slices.ContainsFunc(r.agents, func(b *agentRecord) bool { return b.ID == a.ID || b.Name == a.Name }):
		return fmt.Errorf("agent %s: %w", a.Name, org.ErrExists)
	case r.lacksTool(a.Definition):
		return fmt.Errorf("agent %s: %w", a.Name, agent.ErrToolMissing)
	}
	a.Version = 1
	one := &agentRecord{Agent: cloneAgent(a)}
	one.addVersion(by)
	r.agents = append(r.agents, one)
	return o.record(a.Org, by, agent.Changed(by, nil, &a))
}

// addVersion keeps the present version of the agent.
func (a *agentRecord) addVersion(by org.Author) {
	var sizes []int
	for _, v := range a.versions {
		text, _ := v.Encode() // it was encoded when it was stored
		sizes = append(sizes, len(text))
	}
	a.versions = append(a.versions, agent.Version{Number: a.Version, Definition: a.Clone(), Principal: by.Principal, CreatedAt: a.UpdatedAt})
	a.versions = slices.Delete(a.versions, 0, agent.Outdated(sizes))
}

// UpdateAgent implements agent.Store.
func (o *Orgs) UpdateAgent(_ context.Context, was int, a agent.Agent, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, err := o.findAgent(a.Org, a.ID)
	switch {
	case err != nil:
		return err
	case old.Version != was:
		return fmt.Errorf("agent %s: %w", a.ID, org.ErrChanged)
	case slices.ContainsFunc(o.orgs[a.Org].agents, func(b *agentRecord) bool { return b.ID != a.ID && b.Name == a.Name }):
		return fmt.Errorf("agent %s: %w", a.ID, org.ErrExists)
	case o.orgs[a.Org].lacksTool(a.Definition):
		return fmt.Errorf("agent %s: %w", a.ID, agent.ErrToolMissing)
	}
	before := old.Agent
	old.Version, old.Definition, old.UpdatedAt = was+1, a.Clone(), a.UpdatedAt
	old.addVersion(by)
	return o.record(a.Org, by, agent.Changed(by, &before, &old.Agent))
}

// ArchiveAgent implements agent.Store.
func (o *Orgs) ArchiveAgent(_ context.Context, orgID, id string, at, updated time.Time, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := o.findAgent(orgID, id)
	if err != nil || a.ArchivedAt.IsZero() == at.IsZero() {
		return err
	}
	before := a.Agent
	a.ArchivedAt, a.UpdatedAt = at, updated
	return o.record(orgID, by, agent.Changed(by, &before, &a.Agent))
}

// RemoveAgent implements agent.Store.
func (o *Orgs) RemoveAgent(_ context.Context, orgID, id string, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := o.findAgent(orgID, id)
	if err != nil {
		return err
	}
	r := o.orgs[orgID]
	r.agents = slices.DeleteFunc(r.agents, func(b *agentRecord) bool { return b == a })
	if o.Audit != nil {
		o.Audit.dropSessions(orgID, id, o.Conversations)
	}
	return o.record(orgID, by, agent.Changed(by, &a.Agent, nil))
}

// AgentSettings implements agent.Store.
func (o *Orgs) AgentSettings(_ context.Context, orgID string) ([]agent.Setting, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.orgs[orgID]; ok {
		return slices.Clone(r.settings), nil
	}
	return nil, nil
}

// PutAgentSettings implements agent.Store.
func (o *Orgs) PutAgentSettings(_ context.Context, orgID string, settings []agent.Setting, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(orgID)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	before := slices.Clone(r.settings)
	for _, one := range settings {
		r.settings = slices.DeleteFunc(r.settings, func(s agent.Setting) bool { return s.Key == one.Key })
		if one.Value != "" {
			r.settings = append(r.settings, one)
		}
	}
	slices.SortFunc(r.settings, func(a, b agent.Setting) int { return strings.Compare(a.Key, b.Key) })
	same := func(a, b agent.Setting) bool { return a.Key == b.Key && a.Value == b.Value }
	if slices.EqualFunc(before, r.settings, same) {
		return nil
	}
	return o.record(orgID, by, agent.SettingsChanged(by, orgID, before, r.settings))
}

func cloneAgent(a agent.Agent) agent.Agent {
	a.Definition = a.Clone()
	return a
}

func cloneVersion(v agent.Version) agent.Version {
	v.Definition = v.Clone()
	return v
}
