package agents

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// customTools answers requests for the tools that agents can have.
type customTools struct {
	base
	store  agent.Store
	reader Reader
	orgs   Orgs
	judge  func(url string) error
}

// toolObject is a tool that agents can have, on the wire. The members from InputSchema on are only those of
// custom tools, and Config is only for keys that may read the org's settings.
type toolObject struct {
	ID          *string `json:"id"` // nil for built-in tools
	Name        string  `json:"name"`
	Type        string  `json:"tool_type"`
	Description string  `json:"description"`
	Available   bool    `json:"available"`
	Missing     string  `json:"missing,omitempty"` // why it is not available

	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	Config      *toolConfig     `json:"config,omitempty"`
	Unsupported string          `json:"unsupported,omitempty"`
	CreatedAt   *string         `json:"created_at,omitempty"`
	UpdatedAt   *string         `json:"updated_at,omitempty"`
}

// toolConfig is how a custom tool is called.
type toolConfig struct {
	Endpoint       string            `json:"endpoint"`
	Method         string            `json:"method"`
	Headers        map[string]string `json:"headers"`
	TimeoutSeconds int               `json:"timeout_seconds"`
	Class          tool.Class        `json:"class"`
}

// The values of tool_type.
const (
	builtinTool = agent.BuiltinTool
	custom      = agent.CustomTool
)

// builtins returns the built-in tools. missing says what an org has to set before it can use one; "" = nothing.
func builtins(missing func(name string) string) []toolObject {
	var tools []toolObject
	for _, name := range builtin.OfAgents() {
		t, _ := builtin.Find(name)
		lacks := missing(name)
		tools = append(tools, toolObject{Name: name, Type: builtinTool, Description: t.Summary, Available: lacks == "", Missing: lacks})
	}
	return tools
}

func wireTool(t agent.Tool, caller caller.Caller) toolObject {
	out := toolObject{
		ID: &t.ID, Name: t.Name, Type: custom, Description: t.Description, Available: t.Unsupported == "", InputSchema: t.InputSchema,
		Unsupported: t.Unsupported, CreatedAt: millis.Time(t.CreatedAt), UpdatedAt: millis.Time(t.UpdatedAt),
	}
	if caller.Principal.Role.MayRead() {
		out.Config = &toolConfig{t.Endpoint, t.Method, t.Headers, int(t.Timeout().Seconds()), t.Class}
		if t.Headers == nil {
			out.Config.Headers = map[string]string{}
		}
	}
	return out
}

// Tools answers GET /api/tools: the built-in tools, then the custom ones by name.
func (h *customTools) Tools() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r)
		if err != nil {
			return 0, nil, err
		}
		all := builtins(func(name string) string { return h.orgs.MissingFor(r.Context(), caller.Org.ID, name) })
		shown := surface.Cut(all, page)
		stored, total, err := h.store.Tools(r.Context(), caller.Org.ID, max(page.Limit-len(shown), 1), max(page.Offset-len(all), 0))
		if err != nil {
			return 0, nil, err
		}
		for _, t := range stored[:min(len(stored), page.Limit-len(shown))] {
			shown = append(shown, wireTool(t, caller))
		}
		return http.StatusOK, page.Of("tools", shown, len(all)+total), nil
	})
}

// Tool answers GET /api/tools/{id}.
func (h *customTools) Tool() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		t, err := h.findTool(r, caller)
		return http.StatusOK, wireTool(t, caller), err
	})
}

func (h *customTools) findTool(r *http.Request, caller caller.Caller) (agent.Tool, error) {
	id := r.PathValue("id")
	t, err := h.store.Tool(r.Context(), caller.Org.ID, id)
	return t, surface.Refused(err, customTool(id))
}

// CreateTool answers POST /api/tools.
func (h *customTools) CreateTool() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		f, err := surface.ReadFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		t := agent.Tool{Org: caller.Org.ID, ID: h.newID(agent.ToolPrefix), CreatedAt: h.now(), UpdatedAt: h.now()}
		if err := h.applyTool(f, &t.ToolDefinition); err != nil {
			return 0, nil, err
		}
		err = h.store.CreateTool(r.Context(), t, caller.Author(h.now()))
		return http.StatusCreated, wireTool(t, caller), surface.Refused(err, customTool(t.ID))
	})
}

// ChangeTool answers PUT /api/tools/{id}: members that are given replace those that are there, also those of
// config. null gives a member its default.
func (h *customTools) ChangeTool() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		return surface.Repeat(func() (int, any, error) {
			t, err := h.changeTool(r, caller, surface.FieldsOf("", body))
			return http.StatusOK, wireTool(t, caller), surface.Refused(err, customTool(t.ID))
		})
	})
}

// changeTool applies the members to the tool in the path. It returns org.ErrChanged if another request changed the
// tool meanwhile.
func (h *customTools) changeTool(r *http.Request, caller caller.Caller, f *surface.Fields) (agent.Tool, error) {
	was, err := h.findTool(r, caller)
	switch {
	case err != nil:
		return was, err
	case was.Unsupported != "":
		return was, fault.New(fault.Conflict, "unsupported", "tool %s: %s", was.ID, was.Unsupported)
	}
	t := was
	t.ToolDefinition = was.Clone()
	if err := h.applyTool(f, &t.ToolDefinition); err != nil {
		return t, err
	}
	if t.Name != was.Name {
		if err := h.checkUndeclared(caller, was.Name); err != nil {
			return t, err
		}
	}
	if t.Equal(was.ToolDefinition) {
		return t, nil
	}
	t.UpdatedAt = h.now()
	return t, h.store.UpdateTool(r.Context(), was, t, caller.Author(h.now()))
}

// RemoveTool answers DELETE /api/tools/{id}.
func (h *customTools) RemoveTool() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		id := r.PathValue("id")
		t, err := h.findTool(r, caller)
		if err == nil {
			err = h.checkUndeclared(caller, t.Name)
		}
		if err != nil {
			return 0, nil, err
		}
		err = h.store.RemoveTool(r.Context(), caller.Org.ID, id, caller.Author(h.now()))
		return http.StatusOK, surface.Deleted(id, ""), surface.Refused(err, customTool(id))
	})
}

// checkUndeclared refuses to take a tool from an agent of the configuration file, which finds it by its name.
func (h *customTools) checkUndeclared(caller caller.Caller, name string) error {
	for _, a := range h.orgs.Declared(caller.Org.ID) {
		if slices.ContainsFunc(a.Tools, func(t agent.Assignment) bool { return t.Name == name }) {
			return surface.Refused(&agent.ToolInUseError{Tool: name, Agent: a.Name}, customTool(""))
		}
	}
	return nil
}

// applyTool applies the members of a body to a definition, and checks it. An endpoint that it had before is
// not judged again.
func (h *customTools) applyTool(f *surface.Fields, d *agent.ToolDefinition) error {
	before := d.Endpoint
	var kind string
	if f.Text("tool_type", &kind); kind != "" && kind != custom {
		f.Fail("tool_type", `must be "custom"; built-in tools cannot be created`)
	}
	f.Text("name", &d.Name)
	f.Text("description", &d.Description)
	if v, ok := f.Take("input_schema"); ok {
		d.InputSchema = v
	}
	if v, ok := f.Take("config"); ok && f.Err == nil {
		if surface.IsNull(v) {
			v = json.RawMessage(`{"method":null,"headers":null,"timeout_seconds":null,"class":null}`)
		}
		inside := surface.FieldsOf("config", v)
		var class string
		inside.Text("endpoint", &d.Endpoint)
		inside.Text("method", &d.Method)
		inside.Texts("headers", &d.Headers)
		readSeconds(inside, "timeout_seconds", agent.DefaultToolTimeout, &d.TimeoutSeconds)
		given := inside.Has("class")
		if inside.Text("class", &class); given {
			d.Class = tool.Class(class)
		}
		f.Err = inside.Done()
	}
	if err := f.Done(); err != nil {
		return err
	}
	if err := h.readTool(d); err != nil {
		return err
	}
	if err := d.Check(); err != nil {
		return surface.Refused(err, surface.Thing{})
	}
	if d.Endpoint == before {
		return nil
	}
	return inToolConfig(h.judge(regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(d.Endpoint, "x")))
}

// readTool reads the definition with the rules of the configuration file, and gives members that are not set
// their defaults.
func (h *customTools) readTool(d *agent.ToolDefinition) error {
	whole := map[string]any{}
	for name, text := range map[string]string{"name": d.Name, "description": d.Description, "url": d.Endpoint, "method": d.Method, "class": string(d.Class)} {
		if text != "" {
			whole[name] = text
		}
	}
	if d.InputSchema != nil {
		whole["input_schema"] = d.InputSchema
	}
	if len(d.Headers) > 0 {
		whole["headers"] = d.Headers
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	read, err := h.reader.HTTPTool(text)
	if err == nil {
		err = surface.CheckCredentials(read.URL, read.Headers)
	}
	if err != nil {
		return inToolConfig(err)
	}
	d.Name, d.Description, d.InputSchema = read.Name, read.Description, read.InputSchema
	d.Endpoint, d.Method, d.Headers, d.Class = read.URL, read.Method, read.Headers, read.Class
	return nil
}

// inToolConfig returns an error about an HTTP tool with the names that the members have here.
func inToolConfig(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) {
		return err
	}
	first, rest, _ := strings.Cut(e.Param, ".")
	at := map[string]string{"url": "config.endpoint", "method": "config.method", "headers": "config.headers", "class": "config.class"}[first]
	if at == "" {
		return err
	}
	out := *e
	out.Param = strings.Trim(at+"."+rest, ".")
	if after, found := strings.CutPrefix(e.Message, first+":"); found {
		out.Message = at + ":" + after
	}
	return &out
}
