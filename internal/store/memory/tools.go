package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Tools implements agent.Tools.
func (o *Orgs) Tools(_ context.Context, orgID string, limit, offset int) ([]agent.Tool, int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.orgs[orgID]
	if !ok {
		return nil, 0, nil
	}
	var out []agent.Tool
	for _, t := range page(r.tools, limit, offset) {
		out = append(out, cloneTool(t))
	}
	return out, len(r.tools), nil
}

// Tool implements agent.Tools.
func (o *Orgs) Tool(_ context.Context, orgID, id string) (agent.Tool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i, err := o.findTool(orgID, id)
	if err != nil {
		return agent.Tool{}, err
	}
	return cloneTool(r.tools[i]), nil
}

// ToolNamed implements agent.Tools.
func (o *Orgs) ToolNamed(_ context.Context, orgID, name string) (agent.Tool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := o.orgs[orgID]; ok {
		for _, t := range r.tools {
			if t.Name == name {
				return cloneTool(t), nil
			}
		}
	}
	return agent.Tool{}, fmt.Errorf("tool %s: %w", name, org.ErrNotFound)
}

// lacksTool reports whether the org lacks a custom tool of the definition.
func (r *orgRecord) lacksTool(d agent.Definition) bool {
	return slices.ContainsFunc(d.ToolIDs(), func(id string) bool {
		return !slices.ContainsFunc(r.tools, func(t agent.Tool) bool { return t.ID == id })
	})
}

// inUse returns a *agent.ToolInUseError if an agent has the tool.
func (r *orgRecord) inUse(t agent.Tool) error {
	var names []string
	for _, a := range r.agents {
		if slices.Contains(a.ToolIDs(), t.ID) {
			names = append(names, a.Name)
		}
	}
	if names == nil {
		return nil
	}
	return &agent.ToolInUseError{Tool: t.Name, Agent: slices.Min(names)}
}

// findTool returns the place of a tool. It is called with mu held.
func (o *Orgs) findTool(orgID, id string) (*orgRecord, int, error) {
	if r, ok := o.orgs[orgID]; ok {
		if i := slices.IndexFunc(r.tools, func(t agent.Tool) bool { return t.ID == id }); i >= 0 {
			return r, i, nil
		}
	}
	return nil, 0, fmt.Errorf("tool %s: %w", id, org.ErrNotFound)
}

// CreateTool implements agent.Tools.
func (o *Orgs) CreateTool(_ context.Context, t agent.Tool, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(t.Org)
	switch {
	case err != nil:
		return fmt.Errorf("tool %s: %w", t.Name, err)
	case o.Caps.Tools > 0 && len(r.tools) >= o.Caps.Tools:
		return fmt.Errorf("tool %s: %w", t.Name, o.Caps.ToolsError())
	case slices.ContainsFunc(r.tools, func(b agent.Tool) bool { return b.ID == t.ID || b.Name == t.Name }):
		return fmt.Errorf("tool %s: %w", t.Name, org.ErrExists)
	}
	r.tools = append(r.tools, cloneTool(t))
	sortTools(r.tools)
	return o.record(t.Org, by, agent.ToolChanged(by, nil, &t))
}

// UpdateTool implements agent.Tools.
func (o *Orgs) UpdateTool(_ context.Context, was, t agent.Tool, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i, err := o.findTool(t.Org, t.ID)
	switch {
	case err != nil:
		return err
	case !r.tools[i].Equal(was.ToolDefinition):
		return fmt.Errorf("tool %s: %w", t.ID, org.ErrChanged)
	case slices.ContainsFunc(r.tools, func(b agent.Tool) bool { return b.ID != t.ID && b.Name == t.Name }):
		return fmt.Errorf("tool %s: %w", t.ID, org.ErrExists)
	}
	before, after := r.tools[i], r.tools[i]
	if before.Name != t.Name {
		if err := r.inUse(before); err != nil {
			return fmt.Errorf("tool %s: %w", t.ID, err)
		}
	}
	after.ToolDefinition, after.UpdatedAt = t.Clone(), t.UpdatedAt
	r.tools[i] = after
	sortTools(r.tools)
	return o.record(t.Org, by, agent.ToolChanged(by, &before, &after))
}

// RemoveTool implements agent.Tools.
func (o *Orgs) RemoveTool(_ context.Context, orgID, id string, by org.Author) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i, err := o.findTool(orgID, id)
	if err != nil {
		return err
	}
	before := r.tools[i]
	if err := r.inUse(before); err != nil {
		return fmt.Errorf("tool %s: %w", id, err)
	}
	r.tools = slices.Delete(r.tools, i, i+1)
	return o.record(orgID, by, agent.ToolChanged(by, &before, nil))
}

func sortTools(all []agent.Tool) {
	slices.SortFunc(all, func(a, b agent.Tool) int { return strings.Compare(a.Name, b.Name) })
}

func cloneTool(t agent.Tool) agent.Tool {
	t.ToolDefinition = t.Clone()
	return t
}
