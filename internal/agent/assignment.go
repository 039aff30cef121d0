package agent

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// AssignmentPrefix begins the ids of the assignments of tools.
const AssignmentPrefix = "assigned_"

// MaxTools is how many tools an agent can have.
const MaxTools = 64

// The types of an assignment.
const (
	BuiltinTool = "builtin"
	CustomTool  = "custom"
)

// Assignment is a tool that an agent has.
type Assignment struct {
	ID     string     `json:"id"` // unique in the agent; its name for a declared agent
	Type   string     `json:"tool_type"`
	Name   string     `json:"tool_name"`         // unique in the agent
	ToolID string     `json:"tool_id,omitempty"` // of the custom tool; "" for a declared agent, which finds it by its name
	Rules  []HookRule `json:"rules,omitempty"`   // the first that holds denies the call, before the hooks of the agent

	// Schemas are the only schemas that a built-in tool for databases may use, and which of their tables;
	// no tables = all of the schema. Nil = all that the database has for the org.
	Schemas map[string][]string `json:"schemas,omitempty"`
}

// ForDatabases reports whether the assignment can have Schemas.
func (t Assignment) ForDatabases() bool {
	one, _ := builtin.Find(t.Name)
	return t.Type == BuiltinTool && one.Kind == builtin.Database
}

// ErrToolMissing reports that an agent has a custom tool that does not exist.
var ErrToolMissing = errors.New("the custom tool does not exist")

// ToolInUseError reports that a custom tool cannot be deleted or renamed. Nothing was stored.
type ToolInUseError struct{ Tool, Agent string } // names

// Error names the agent.
func (e *ToolInUseError) Error() string {
	return fmt.Sprintf("the agent %q has the tool %q; remove it from the agent first", e.Agent, e.Tool)
}

// ToolIDs returns the ids of the custom tools of the definition.
func (d Definition) ToolIDs() (ids []string) {
	for _, t := range d.Tools {
		if t.ToolID != "" {
			ids = append(ids, t.ToolID)
		}
	}
	return ids
}

func (d Definition) checkTools() error {
	if len(d.Tools) > MaxTools {
		return wrong("tools", "an agent has at most %d tools", MaxTools)
	}
	for i, t := range d.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if j := slices.IndexFunc(d.Tools, func(b Assignment) bool { return b.Name == t.Name }); j < i {
			return wrong(at+".tool_name", "%q is already used by tools[%d]", t.Name, j)
		}
		if len(t.Rules) > 0 {
			if err := checkRules(t.Rules); err != nil {
				return inside(at+".config_override", err)
			}
		}
	}
	return nil
}

// CheckRules returns a [*FieldError] for the first wrong rule of an assignment.
func (t Assignment) CheckRules() error {
	if len(t.Rules) == 0 {
		return nil
	}
	return checkRules(t.Rules)
}

// CheckSchemas returns a [*FieldError] unless each schema and each of its tables has the name of one that an org
// may give its agents.
func CheckSchemas(schemas map[string][]string) error {
	identifier := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`)
	for name, tables := range schemas {
		switch lower := strings.ToLower(name); {
		case !identifier.MatchString(name):
			return wrong("schemas", "%.80q is not the name of a schema; want %s", name, identifier)
		case strings.HasPrefix(lower, "pg_"), strings.HasPrefix(lower, "sqlite_"), lower == "information_schema":
			return wrong("schemas."+name, "is a schema of the database system, which agents cannot use")
		}
		for i, table := range tables {
			if !identifier.MatchString(table) {
				return wrong(fmt.Sprintf("schemas.%s[%d]", name, i), "%.80q is not the name of a table; want %s", table, identifier)
			}
		}
	}
	return nil
}

// SnapshotTool is a custom tool of an agent with all its settings.
type SnapshotTool struct {
	Assignment string         `json:"assignment"` // its id
	Tool       ToolDefinition `json:"tool"`
	Rules      []HookRule     `json:"rules,omitempty"`
}

// SnapshotBuiltin is a built-in tool of an agent. What the org sets for the tool is not part of it: a change of that
// acts on the next call.
type SnapshotBuiltin struct {
	Assignment string              `json:"assignment"` // its id
	Name       string              `json:"name"`
	Rules      []HookRule          `json:"rules,omitempty"`
	Schemas    map[string][]string `json:"schemas,omitempty"` // as in [Assignment]
}

// resolveBuiltins returns the built-in tools of the definition.
func (d Definition) resolveBuiltins() (out []SnapshotBuiltin) {
	for _, t := range d.Tools {
		if t.Type == BuiltinTool {
			out = append(out, SnapshotBuiltin{t.ID, t.Name, t.Rules, t.Schemas})
		}
	}
	return out
}

// resolveTools returns the custom tools of the definition with the settings that they have in all, the custom
// tools of the org.
func (d Definition) resolveTools(all []Tool) (out []SnapshotTool, err error) {
	for _, t := range d.Tools {
		if t.Type == BuiltinTool && slices.Contains(builtin.OfAgents(), t.Name) {
			continue
		}
		i := slices.IndexFunc(all, func(one Tool) bool { return one.ID == t.ToolID || t.ToolID == "" && one.Name == t.Name })
		switch {
		case t.Type != CustomTool:
			return nil, fmt.Errorf("this build does not have tools of the type %q", t.Type)
		case i < 0:
			return nil, fmt.Errorf("tool %s: %w; %s", t.Name, ErrToolMissing, MissingToolHelp(t.Name, createTool))
		case all[i].Unsupported != "":
			return nil, fmt.Errorf("tool %s: %s", t.Name, all[i].Unsupported)
		}
		out = append(out, SnapshotTool{Assignment: t.ID, Tool: all[i].ToolDefinition, Rules: t.Rules})
	}
	return out, nil
}

// HTTPTools returns the custom tools as HTTP tools of the org.
func (s Snapshot) HTTPTools(orgID string) (out []org.HTTPTool) {
	for _, t := range s.Tools {
		out = append(out, t.Tool.HTTP(orgID))
	}
	return out
}
