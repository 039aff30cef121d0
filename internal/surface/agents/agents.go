package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// lookup finds agents, changes them, and resolves what they do now.
type lookup struct {
	base
	store agent.Store
	orgs  Orgs
}

// definitions answers requests for agents, their versions, MCP servers, hooks and tools.
type definitions struct {
	lookup
	kit     *surface.Handler
	reader  Reader
	vault   *secret.Keyring
	servers Servers
	judge   func(url string) error
}

// agentObject is an agent on the wire. Servers, Tools and Hooks are only in the answers about one agent to keys
// that may read the org's settings.
type agentObject struct {
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Description  string         `json:"description"`
	Model        string         `json:"model"`
	SystemPrompt string         `json:"system_prompt"`
	Settings     agent.Settings `json:"settings"`
	Version      int            `json:"version"`
	Declared     bool           `json:"declared"`
	Unsupported  string         `json:"unsupported,omitempty"`
	ArchivedAt   *string        `json:"archived_at"`
	CreatedAt    *string        `json:"created_at"` // nil for declared agents
	UpdatedAt    *string        `json:"updated_at"`

	Servers []serverObject     `json:"mcp_servers,omitzero"`
	Tools   []assignmentObject `json:"tools,omitzero"`
	Hooks   []hookObject       `json:"hooks,omitzero"`

	Warnings []string `json:"warnings,omitempty"` // in the answer to a change
}

func wireAgent(a agent.Agent) agentObject {
	return agentObject{
		ID: a.ID, Name: a.Name, Description: a.Description, Model: a.Model, SystemPrompt: a.SystemPrompt, Settings: a.Settings,
		Version: a.Version, Declared: a.Declared, Unsupported: a.Unsupported,
		ArchivedAt: millis.Time(a.ArchivedAt), CreatedAt: millis.Time(a.CreatedAt), UpdatedAt: millis.Time(a.UpdatedAt),
	}
}

// whole is wireAgent with the servers, tools and hooks, if the caller may see them.
func (h *definitions) whole(a agent.Agent, caller caller.Caller) (agentObject, error) {
	out := wireAgent(a)
	if !caller.Principal.Role.MayRead() {
		return out, nil
	}
	var err error
	if out.Servers, err = h.wireServers(a); err != nil {
		return out, err
	}
	out.Tools, out.Hooks = wireAssignments(a), wireHooks(a)
	return out, nil
}

// List answers GET /api/agents: declared agents first, then the stored ones, the latest created first.
func (h *definitions) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r, "name", "archived")
		if err != nil {
			return 0, nil, err
		}
		q := agent.Query{Name: r.URL.Query().Get("name")}
		switch text := r.URL.Query().Get("archived"); text {
		case "", "false":
		case "true", "all":
			q.Archived = agent.Which(text)
		default:
			return 0, nil, surface.InvalidValue("archived", "archived must be true, false or all")
		}
		out := []agentObject{}
		before := 0
		for _, a := range h.orgs.Declared(caller.Org.ID) {
			if !q.Has(a) {
				continue
			}
			if before >= page.Offset && len(out) < page.Limit {
				out = append(out, wireAgent(a))
			}
			before++
		}
		q.Limit, q.Offset = max(page.Limit-len(out), 1), max(page.Offset-before, 0)
		stored, total, err := h.store.Agents(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		for _, a := range stored[:min(len(stored), page.Limit-len(out))] {
			out = append(out, wireAgent(a))
		}
		return http.StatusOK, page.Of("agents", out, before+total), nil
	})
}

// Get answers GET /api/agents/{id}.
func (h *definitions) Get() surface.Endpoint {
	return h.ofAgent(func(r *http.Request, caller caller.Caller, a agent.Agent) (int, any, error) {
		out, err := h.whole(a, caller)
		return http.StatusOK, out, err
	})
}

// Create answers POST /api/agents.
func (h *definitions) Create() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, err := surface.ReadFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		a := agent.Agent{Org: caller.Org.ID, ID: h.newID(agent.Prefix), Version: 1, CreatedAt: h.now(), UpdatedAt: h.now()}
		hooked := body.Has("hooks")
		if err := h.apply(r, caller, body, &a.Definition); err != nil {
			return 0, nil, err
		}
		setModel(caller, &a.Definition)
		if err := a.Check(); err != nil {
			return 0, nil, surface.Refused(err, anAgent(a.ID))
		}
		if err := h.checkDeclaredName(caller, a.Name); err != nil {
			return 0, nil, err
		}
		if err := h.store.CreateAgent(r.Context(), a, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, anAgent(a.ID))
		}
		out, err := h.whole(a, caller)
		out.Warnings = h.unserved(a)
		if err == nil && hooked {
			out.Hooks = h.warned(r, caller, a, out.Hooks)
		}
		return http.StatusCreated, out, err
	})
}

// setModel gives a definition without a model the default of the org.
func setModel(caller caller.Caller, d *agent.Definition) {
	d.Model = cmp.Or(d.Model, agent.DefaultsOf(caller.Org.Runtime.Agents).DefaultModel)
}

// Patch answers PATCH /api/agents/{id}: members that are given replace those that are there (RFC 7396).
// null gives a member its default. A list is replaced as a whole.
func (h *definitions) Patch() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		a, err := h.change(r, caller, func(d *agent.Definition) error {
			err := h.apply(r, caller, surface.FieldsOf("", body), d)
			setModel(caller, d)
			return err
		})
		if err != nil {
			return 0, nil, err
		}
		out, err := h.whole(a, caller)
		out.Warnings = h.unserved(a)
		if err == nil && surface.FieldsOf("", body).Has("hooks") {
			out.Hooks = h.warned(r, caller, a, out.Hooks)
		}
		return http.StatusOK, out, err
	})
}

// unserved returns a warning for each model of an agent that nobody serves now. It is no error: a route of that name can be
// made later.
func (h *definitions) unserved(a agent.Agent) (warnings []string) {
	for _, w := range a.Warnings(agent.Known{Serves: h.kit.Serves}) {
		warnings = append(warnings, w.Field+": "+w.String())
	}
	return warnings
}

// apply applies the members of a body to a definition.
func (h *definitions) apply(r *http.Request, caller caller.Caller, f *surface.Fields, d *agent.Definition) error {
	f.Text("name", &d.Name)
	f.Text("description", &d.Description)
	f.Text("model", &d.Model)
	f.Text("system_prompt", &d.SystemPrompt)
	if v, ok := f.Take("settings"); ok && f.Err == nil {
		f.Err = applySettings(v, &d.Settings)
	}
	if f.Err == nil {
		f.Err = h.applyTools(r.Context(), caller, f, d)
	}
	if f.Err == nil {
		f.Err = h.applyServers(f, d)
	}
	if f.Err == nil {
		f.Err = h.applyHooks(f, d)
	}
	return f.Done()
}

func applySettings(v json.RawMessage, s *agent.Settings) error {
	if surface.IsNull(v) {
		*s = agent.Settings{}
		return nil
	}
	f := surface.FieldsOf("settings", v)
	f.Decimal("temperature", &s.Temperature)
	f.Number("max_steps", &s.MaxSteps)
	f.Number("max_tokens", &s.MaxTokens)
	f.Number("max_context_tokens", &s.MaxContextTokens)
	f.Number("timeout_seconds", &s.TimeoutSeconds)
	f.Text("fallback_model", &s.FallbackModel)
	f.Text("reasoning_effort", &s.ReasoningEffort)
	return f.Done()
}

// Archive answers POST /api/agents/{id}/archive, or /restore.
func (h *definitions) Archive(archive bool) surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		a, err := h.find(r, caller)
		switch {
		case err != nil:
			return 0, nil, err
		case a.Declared:
			return 0, nil, surface.Declared("agent", a.Name)
		}
		now := h.now()
		var at time.Time
		if archive {
			at = now
		}
		if err := h.store.ArchiveAgent(r.Context(), a.Org, a.ID, at, now, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, anAgent(a.ID))
		}
		if a, err = h.store.Agent(r.Context(), a.Org, a.ID); err != nil {
			return 0, nil, surface.Refused(err, anAgent(a.ID))
		}
		out, err := h.whole(a, caller)
		return http.StatusOK, out, err
	})
}

// versionObject is a version on the wire.
type versionObject struct {
	Version      int                `json:"version"`
	Name         string             `json:"name"`
	Description  string             `json:"description"`
	Model        string             `json:"model"`
	SystemPrompt string             `json:"system_prompt"`
	Settings     agent.Settings     `json:"settings"`
	Servers      []serverObject     `json:"mcp_servers"`
	Tools        []assignmentObject `json:"tools"`
	Hooks        []hookObject       `json:"hooks"`
	Unsupported  string             `json:"unsupported,omitempty"`
	CreatedBy    string             `json:"created_by"`
	CreatedAt    *string            `json:"created_at"`
}

func (h *definitions) wireVersion(v agent.Version, of agent.Agent) (out versionObject, err error) {
	a := agent.Agent{Org: of.Org, Declared: of.Declared, Definition: v.Definition}
	out = versionObject{
		Version:      v.Number,
		Name:         v.Name,
		Description:  v.Description,
		Model:        v.Model,
		SystemPrompt: v.SystemPrompt,
		Settings:     v.Settings,
		Tools: wireAssignments(
			a,
		),
		Hooks:       wireHooks(a),
		Unsupported: v.Unsupported,
		CreatedBy:   v.Principal,
		CreatedAt:   millis.Time(v.CreatedAt),
	}
	out.Servers, err = h.wireServers(a)
	return out, err
}

// Versions answers GET /api/agents/{id}/versions, the latest first.
func (h *definitions) Versions() surface.Endpoint {
	return h.listOf(func(r *http.Request, caller caller.Caller, a agent.Agent, page surface.OffsetPage) (int, any, error) {
		found, total, err := h.store.AgentVersions(r.Context(), a.Org, a.ID, page.Limit, page.Offset)
		if err != nil {
			return 0, nil, surface.Refused(err, anAgent(a.ID))
		}
		out := []versionObject{}
		for _, v := range found {
			one, err := h.wireVersion(v, a)
			if err != nil {
				return 0, nil, err
			}
			out = append(out, one)
		}
		return http.StatusOK, page.Of("versions", out, total), nil
	})
}

// Version answers GET /api/agents/{id}/versions/{version}.
func (h *definitions) Version() surface.Endpoint {
	return h.ofAgent(func(r *http.Request, caller caller.Caller, a agent.Agent) (int, any, error) {
		text := r.PathValue("version")
		number, bad := strconv.Atoi(text)
		v, err := agent.Version{}, org.ErrNotFound
		if bad == nil {
			v, err = h.store.AgentVersion(r.Context(), a.Org, a.ID, number)
		}
		if err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "version of the agent", ID: text, Hint: "the oldest ones are deleted"})
		}
		out, err := h.wireVersion(v, a)
		return http.StatusOK, out, err
	})
}

// find returns the agent that the path names.
func (h *lookup) find(r *http.Request, caller caller.Caller) (agent.Agent, error) {
	return h.byID(r.Context(), caller, r.PathValue("id"))
}

// byID returns the agent with an id.
func (h *lookup) byID(ctx context.Context, caller caller.Caller, id string) (agent.Agent, error) {
	if !strings.HasPrefix(id, agent.Prefix) {
		for _, a := range h.orgs.Declared(caller.Org.ID) {
			if a.ID == id {
				return a, nil
			}
		}
	}
	a, err := h.store.Agent(ctx, caller.Org.ID, id)
	return a, surface.Refused(err, anAgent(id))
}

// ofAgent is an endpoint for the agent that the path names.
func (h *lookup) ofAgent(serve func(*http.Request, caller.Caller, agent.Agent) (int, any, error)) surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		a, err := h.find(r, caller)
		if err != nil {
			return 0, nil, err
		}
		return serve(r, caller, a)
	})
}

// listOf is [lookup.ofAgent] for a page of a list.
func (h *lookup) listOf(
	serve func(*http.Request, caller.Caller, agent.Agent, surface.OffsetPage) (int, any, error),
) surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r)
		if err != nil {
			return 0, nil, err
		}
		a, err := h.find(r, caller)
		if err != nil {
			return 0, nil, err
		}
		return serve(r, caller, a, page)
	})
}

// placeOf returns the place in a list of an agent of the one whose id a parameter of the path has.
func placeOf[T any](r *http.Request, param, kind string, all []T, id func(T) string) (int, error) {
	wanted := r.PathValue(param)
	i := slices.IndexFunc(all, func(one T) bool { return id(one) == wanted })
	if i < 0 {
		return 0, surface.Thing{Kind: kind, ID: wanted}.Missing()
	}
	return i, nil
}

// change applies a change to the agent that the path names, and returns its new version. If another
// request changes the agent at the same time, it is applied again.
func (h *lookup) change(r *http.Request, caller caller.Caller, apply func(*agent.Definition) error) (agent.Agent, error) {
	for attempt := 1; ; attempt++ {
		a, err := h.find(r, caller)
		switch {
		case err != nil:
			return a, err
		case a.Declared:
			return a, surface.Declared("agent", a.Name)
		case a.Unsupported != "":
			return a, fault.New(fault.Conflict, "unsupported", "agent %s: %s", a.ID, a.Unsupported)
		}
		before := a.Clone()
		if err := apply(&a.Definition); err != nil {
			return a, err
		}
		if a.Equal(before) {
			return a, nil
		}
		if a.Name != before.Name {
			if err := h.checkDeclaredName(caller, a.Name); err != nil {
				return a, err
			}
		}
		if err := a.Check(); err != nil {
			return a, surface.Refused(err, anAgent(a.ID))
		}
		a.UpdatedAt = h.now()
		err = h.store.UpdateAgent(r.Context(), a.Version, a, caller.Author(h.now()))
		if errors.Is(err, org.ErrChanged) && attempt < surface.MaxAttempts {
			continue
		}
		a.Version++
		return a, surface.Refused(err, anAgent(a.ID))
	}
}

// checkDeclaredName refuses a name that the configuration file uses.
func (h *lookup) checkDeclaredName(caller caller.Caller, name string) error {
	for _, a := range h.orgs.Declared(caller.Org.ID) {
		if a.Name == name {
			return fault.New(fault.Conflict, "exists", "the configuration file already declares the agent %q; choose another name", name).
				In("name")
		}
	}
	return nil
}
