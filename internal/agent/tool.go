package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// ToolPrefix begins the ids of custom tools.
const ToolPrefix = "tool_"

// ToolServer is the name of the server to which the custom tools of an agent belong in its runs: in events, in
// the audit log and in metrics. No MCP server has it.
const ToolServer = "agent:tools"

// Tool is a custom tool of an org: an HTTP endpoint that its agents can have.
type Tool struct {
	Org string
	ID  string // unique in its org
	ToolDefinition

	// Unsupported says what this build does not understand of the stored definition; "" = nothing. The tool
	// cannot be changed, and no agent with it can be resolved.
	Unsupported string

	CreatedAt time.Time
	UpdatedAt time.Time
}

// ToolDefinition is what a custom tool does. Its JSON has the rules of [Definition].
type ToolDefinition struct {
	Name           string            `json:"name"` // unique among the org's custom tools; the model sees it
	Description    string            `json:"description"`
	InputSchema    json.RawMessage   `json:"input_schema"`              // a JSON Schema of an object
	Endpoint       string            `json:"endpoint"`                  // a URL, which may have arguments in braces in its path and query
	Method         string            `json:"method"`                    // of org.HTTPTool
	Headers        map[string]string `json:"headers,omitempty"`         // a value may end in a reference to the vault
	TimeoutSeconds int               `json:"timeout_seconds,omitempty"` // of a call; 0 = DefaultToolTimeout
	Class          tool.Class        `json:"class,omitempty"`           // "" = once
}

// Limits of custom tools.
const (
	DefaultToolTimeout = 30 * time.Second
	MaxToolTimeout     = 300 * time.Second
	MaxToolCharacters  = 10_000 // of a response
	MaxToolDefinition  = 64 << 10
	maxToolRetries     = 2
	maxToolCalls       = 64 // at the same time
)

// Timeout is how long a call may take.
func (d ToolDefinition) Timeout() time.Duration {
	if d.TimeoutSeconds == 0 {
		return DefaultToolTimeout
	}
	return time.Duration(d.TimeoutSeconds) * time.Second
}

// HTTP returns the tool as one of the org's HTTP tools.
func (d ToolDefinition) HTTP(orgID string) org.HTTPTool {
	return org.HTTPTool{ // its headers refer to the vault only
		Org: orgID, Name: d.Name, Description: d.Description, InputSchema: d.InputSchema, URL: d.Endpoint, Method: d.Method, Headers: d.Headers,
		Class: cmp.Or(d.Class, tool.Once), RequireApproval: org.ApprovalNever, Timeout: d.Timeout(), MaxRetries: maxToolRetries, MaxCharacters: MaxToolCharacters,
		MaxConcurrentCalls: maxToolCalls, Enabled: true,
	}
}

// Check returns a [*FieldError] for the first member that must not be stored. It does not check what has the
// rules of the configuration file: see org.HTTPTool.
func (d ToolDefinition) Check() error {
	switch {
	case slices.Contains(builtin.OfAgents(), d.Name):
		return wrong("name", "%q is the name of a built-in tool; choose another name", d.Name)
	case !describesObject(d.InputSchema):
		return wrong("input_schema", `must be a JSON Schema of an object: {"type": "object", "properties": {…}}`)
	case d.TimeoutSeconds < 0 || d.Timeout() > MaxToolTimeout:
		return wrong("config.timeout_seconds", "must be a whole number from 1 to %d", int(MaxToolTimeout/time.Second))
	}
	text, err := d.Encode()
	if err != nil {
		return wrong("", "cannot be stored: %v", err)
	}
	if len(text) > MaxToolDefinition {
		return wrong("", "the tool has %d bytes with its schema and headers, and at most %d are allowed", len(text), MaxToolDefinition)
	}
	return nil
}

func describesObject(schema json.RawMessage) bool {
	var object struct {
		Type json.RawMessage `json:"type"`
	}
	return json.Unmarshal(schema, &object) == nil && (object.Type == nil || string(object.Type) == `"object"`)
}

// Encode returns the JSON that stores keep.
func (d ToolDefinition) Encode() ([]byte, error) { return json.Marshal(d) }

// Equal reports whether two definitions say the same.
func (d ToolDefinition) Equal(other ToolDefinition) bool {
	a, err := d.Encode()
	b, again := other.Encode()
	return err == nil && again == nil && string(a) == string(b)
}

// Clone returns a copy that shares no memory with d.
func (d ToolDefinition) Clone() ToolDefinition {
	text, err := d.Encode()
	var c ToolDefinition
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		panic(err) // it was encoded when it was stored
	}
	return c
}

// DecodeTool returns what [ToolDefinition.Encode] returned. Unsupported is that of [Tool].
func DecodeTool(text []byte) (d ToolDefinition, unsupported string, err error) {
	strict := json.NewDecoder(strings.NewReader(string(text)))
	strict.DisallowUnknownFields()
	unknown := strict.Decode(&d)
	if unknown == nil {
		return d, "", nil
	}
	d = ToolDefinition{}
	err = json.Unmarshal(text, &d)
	return d, "this build does not know all that is stored of the tool: " + unknown.Error(), err
}

// Tools stores the custom tools of orgs, with the contract of [Store].
type Tools interface {
	// Tools returns the custom tools of the org, ordered by name, at most limit of them from offset on, and how
	// many there are.
	Tools(ctx context.Context, orgID string, limit, offset int) (found []Tool, total int, err error)
	// Tool returns one custom tool, or org.ErrNotFound.
	Tool(ctx context.Context, orgID, id string) (Tool, error)
	// ToolNamed returns the custom tool with a name, or org.ErrNotFound.
	ToolNamed(ctx context.Context, orgID, name string) (Tool, error)
	// CreateTool adds a custom tool. It returns org.ErrNotFound without the org, org.ErrExists if the id or the
	// name is taken, or an *org.CapError.
	CreateTool(ctx context.Context, t Tool, by org.Author) error
	// UpdateTool replaces the definition of a tool and sets UpdatedAt. It returns org.ErrNotFound,
	// org.ErrChanged if the stored definition is not that of was, org.ErrExists if another tool has the name, or
	// a *ToolInUseError if the name differs and an agent has the tool in its latest version.
	UpdateTool(ctx context.Context, was, t Tool, by org.Author) error
	// RemoveTool deletes a custom tool. It returns org.ErrNotFound, or a *ToolInUseError.
	RemoveTool(ctx context.Context, orgID, id string, by org.Author) error
}

// ToolChanged returns the audit entry for a custom tool that was created (before is nil), deleted (after is
// nil) or updated. It contains no literal header.
func ToolChanged(by org.Author, before, after *Tool) audit.Entry {
	t := after
	if t == nil {
		t = before
	}
	return by.Changed(t.Org, "tool", t.ID, shownTool(before), shownTool(after))
}

// shownTool returns the members of a tool for an audit entry; nil without one.
func shownTool(t *Tool) map[string]json.RawMessage {
	if t == nil {
		return nil
	}
	d := t.Clone()
	m := org.MCPServer{URL: d.Endpoint, Headers: d.Headers}.WithoutCredentials()
	d.Endpoint, d.Headers = m.URL, m.Headers
	text, err := d.Encode()
	var out map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err) // a ToolDefinition has plain fields only
	}
	return out
}
