package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// assignmentObject is a tool of an agent on the wire.
type assignmentObject struct {
	ID       string         `json:"id"`
	Type     string         `json:"tool_type"`
	Name     string         `json:"tool_name"`
	ToolID   *string        `json:"tool_id"` // nil for an agent of the configuration file
	Override overrideObject `json:"config_override"`
}

// overrideObject is what an agent says of one of its tools.
type overrideObject struct {
	Rules   []ruleConfig        `json:"rules,omitempty"`
	Schemas map[string][]string `json:"schemas,omitempty"`
}

func wireAssignment(t agent.Assignment) assignmentObject {
	out := assignmentObject{ID: t.ID, Type: t.Type, Name: t.Name, ToolID: surface.Given(t.ToolID)}
	out.Override.Schemas = t.Schemas
	for _, one := range t.Rules {
		out.Override.Rules = append(out.Override.Rules, ruleConfig{one.Condition, agent.HookDeny, one.Message})
	}
	return out
}

func wireAssignments(a agent.Agent) []assignmentObject {
	return surface.Each(a.Tools, wireAssignment)
}

// resolve returns what the agent does now.
func (h *lookup) resolve(r *http.Request, caller caller.Caller, a agent.Agent) (agent.Snapshot, error) {
	tools, err := h.toolsOf(r.Context(), a)
	if err != nil {
		return agent.Snapshot{}, err
	}
	s, err := a.Resolve(agent.DefaultsOf(caller.Org.Runtime.Agents), tools)
	switch {
	case errors.Is(err, agent.ErrArchived):
		return s, fault.New(fault.Conflict, "archived", "the agent %s is archived; restore it with POST /api/agents/%s/restore", a.ID, a.ID)
	case errors.Is(err, agent.ErrToolMissing): // of the configuration file, which finds it by its name
		return s, fault.New(fault.Conflict, "tool_missing", "%v", err)
	case err != nil:
		return s, fault.New(fault.Conflict, "unsupported", "%v", err)
	}
	return s, nil
}

// toolsOf returns the custom tools that an agent has.
func (h *lookup) toolsOf(ctx context.Context, a agent.Agent) (all []agent.Tool, err error) {
	for _, one := range a.Tools {
		if one.Type == builtinTool {
			continue
		}
		t, err := h.customTool(ctx, a.Org, one)
		if errors.Is(err, org.ErrNotFound) {
			continue // Resolve says which one is missing
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// customTool returns the tool of an assignment, found by its id, or by its name if it has none.
func (h *lookup) customTool(ctx context.Context, orgID string, one agent.Assignment) (agent.Tool, error) {
	if one.ToolID == "" {
		return h.store.ToolNamed(ctx, orgID, one.Name)
	}
	return h.store.Tool(ctx, orgID, one.ToolID)
}

// readAssignment reads an assignment without its id. In a list of an agent, "name" stands for tool_name, and
// tool_type follows from it.
func (h *definitions) readAssignment(ctx context.Context, orgID string, f *surface.Fields) (one agent.Assignment, err error) {
	var short string
	member := "tool_name"
	f.Text("tool_type", &one.Type)
	f.Text("tool_name", &one.Name)
	f.Text("tool_id", &one.ToolID)
	if f.Path != "" {
		f.Take("id") // of what GET has returned
		f.Text("name", &short)
		if one.Name == "" {
			one.Name, member = short, "name"
		}
		if one.Type == "" {
			one.Type = custom
			if slices.Contains(builtin.OfAgents(), one.Name) {
				one.Type = builtinTool
			}
		}
	}
	readOverride(f, &one)
	switch {
	case one.Type != builtinTool && one.Type != custom:
		f.Fail("tool_type", "must be builtin or custom")
	case one.Name == "":
		f.Fail("tool_name", "is required")
	case short != "" && short != one.Name:
		f.Fail("name", "differs from tool_name")
	}
	if err := f.Done(); err != nil {
		return one, err
	}
	err = h.findAssigned(ctx, orgID, f, member, &one)
	return one, err
}

// findAssigned finds the tool of an assignment, which the member names, and sets its id.
func (h *definitions) findAssigned(
	ctx context.Context, orgID string, f *surface.Fields, member string, one *agent.Assignment,
) error {
	if one.Type == builtinTool {
		if !slices.Contains(builtin.OfAgents(), one.Name) {
			return unknownTool(f, member, one, "GET /api/tools lists the built-in tools first")
		}
		if one.ToolID != "" {
			return surface.InvalidValue(f.At("tool_id"), "%s is for custom tools; a built-in tool has none", f.At("tool_id"))
		}
		return nil
	}
	t, err := h.customTool(ctx, orgID, *one)
	switch {
	case errors.Is(err, org.ErrNotFound), err == nil && t.Name != one.Name:
		return unknownTool(f, member, one, "create it with POST /api/tools")
	case err != nil:
		return err
	}
	one.ToolID = t.ID
	return nil
}

// unknownTool is the error for a tool that does not exist. help says what to do.
func unknownTool(f *surface.Fields, member string, one *agent.Assignment, help string) error {
	return fault.New(fault.Invalid, "unknown_tool", "there is no %s tool with the name %.80q; %s",
		one.Type, one.Name, agent.MissingToolHelp(one.Name, help)).
		In(f.At(member))
}

// readOverride reads config_override.
func readOverride(f *surface.Fields, one *agent.Assignment) {
	v, given := f.Take("config_override")
	if !given || f.Err != nil {
		return
	}
	if surface.IsNull(v) {
		v = json.RawMessage("{}")
	}
	inside := surface.FieldsOf(f.At("config_override"), v)
	one.Schemas = nil
	surface.Field(inside, "schemas", "an object of lists of names", &one.Schemas)
	rules, _ := inside.List("rules")
	one.Rules = nil
	for i, v := range rules {
		rule := surface.FieldsOf(fmt.Sprintf("%s[%d]", inside.At("rules"), i), v)
		one.Rules = append(one.Rules, readRule(rule))
		inside.Keep(rule.Done())
	}
	err := inside.Done()
	if err == nil {
		err = inPath(inside.Path, surface.Refused(agent.CheckSchemas(one.Schemas), surface.Thing{}))
	}
	if err == nil && len(one.Schemas) > 0 && !one.ForDatabases() {
		err = surface.InvalidValue(
			inside.At("schemas"),
			"%s is for database_query and database_write; other tools have none",
			inside.At("schemas"),
		)
	}
	if err == nil {
		err = inPath(inside.Path, surface.Refused(one.CheckRules(), surface.Thing{}))
	}
	f.Err = err
}

// applyTools replaces the tools of a definition, if the body has any. One with the name of a tool that is there
// keeps its id.
func (h *definitions) applyTools(ctx context.Context, caller caller.Caller, f *surface.Fields, d *agent.Definition) error {
	all, given := f.List("tools")
	if !given || f.Err != nil {
		return f.Err
	}
	if len(all) > agent.MaxTools {
		return surface.InvalidValue("tools", "tools: an agent has at most %d tools", agent.MaxTools)
	}
	before := d.Tools
	d.Tools = nil
	for i, v := range all {
		at := fmt.Sprintf("tools[%d]", i)
		if text := ""; json.Unmarshal(v, &text) == nil && !surface.IsNull(v) {
			return surface.InvalidValue(at, `%s: must be a JSON object, such as {"name": %.80q}`, at, text)
		}
		one, err := h.readAssignment(ctx, caller.Org.ID, surface.FieldsOf(at, v))
		if err != nil {
			return err
		}
		if j := slices.IndexFunc(before, func(b agent.Assignment) bool { return b.Name == one.Name }); j >= 0 {
			one.ID = before[j].ID
		} else {
			one.ID = h.newID(agent.AssignmentPrefix)
		}
		d.Tools = append(d.Tools, one)
	}
	return nil
}

// Assignments answers GET /api/agents/{id}/tools, in the order of their assignment.
func (h *definitions) Assignments() surface.Endpoint {
	return h.listOf(func(r *http.Request, caller caller.Caller, a agent.Agent, page surface.OffsetPage) (int, any, error) {
		return http.StatusOK, page.Of("tools", surface.Cut(wireAssignments(a), page), len(a.Tools)), nil
	})
}

// AssignTool answers POST /api/agents/{id}/tools.
func (h *definitions) AssignTool() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if _, err := h.find(r, caller); err != nil {
			return 0, nil, err
		}
		f, err := surface.ReadFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		one, err := h.readAssignment(r.Context(), caller.Org.ID, f)
		if err != nil {
			return 0, nil, err
		}
		one.ID = h.newID(agent.AssignmentPrefix)
		_, err = h.change(r, caller, func(d *agent.Definition) error {
			switch {
			case slices.ContainsFunc(d.Tools, func(b agent.Assignment) bool { return b.Name == one.Name }):
				return fault.New(fault.Conflict, "exists", "the agent already has the tool %q", one.Name).In("tool_name")
			case len(d.Tools) >= agent.MaxTools:
				return fault.New(fault.Conflict, "cap_reached", "an agent has at most %d tools; remove one", agent.MaxTools)
			}
			d.Tools = append(d.Tools, one)
			return nil
		})
		return http.StatusCreated, struct {
			ID   string `json:"id"`
			Name string `json:"tool_name"`
		}{one.ID, one.Name}, err
	})
}

// findAssignment returns the place of the assignment that the path names.
func findAssignment(r *http.Request, d agent.Definition) (int, error) {
	return placeOf(r, "aid", "tool of the agent", d.Tools, func(t agent.Assignment) string { return t.ID })
}

// ChangeAssignment answers PATCH /api/agents/{id}/tools/{aid}, which replaces config_override.
func (h *definitions) ChangeAssignment() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		var at int
		a, err := h.change(r, caller, func(d *agent.Definition) (err error) {
			if at, err = findAssignment(r, *d); err != nil {
				return err
			}
			f := surface.FieldsOf("", body)
			readOverride(f, &d.Tools[at])
			return f.Done()
		})
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, wireAssignment(a.Tools[at]), nil
	})
}

// RemoveAssignment answers DELETE /api/agents/{id}/tools/{aid}.
func (h *definitions) RemoveAssignment() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		_, err := h.change(r, caller, func(d *agent.Definition) error {
			i, err := findAssignment(r, *d)
			if err == nil {
				d.Tools = slices.Delete(d.Tools, i, i+1)
			}
			return err
		})
		return http.StatusOK, surface.Deleted(r.PathValue("aid"), ""), err
	})
}
