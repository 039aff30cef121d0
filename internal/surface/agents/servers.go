package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// serverObject is an MCP server of an agent on the wire. Config has the other settings of MCP servers, with
// the names of the configuration file.
type serverObject struct {
	ID        string                     `json:"id"`
	Name      string                     `json:"name"`
	URL       string                     `json:"url"`
	Transport string                     `json:"transport"`
	Headers   map[string]string          `json:"headers"`
	Config    map[string]json.RawMessage `json:"config"`
	Enabled   bool                       `json:"enabled"`
}

// transportHTTP is the only transport: JSON-RPC over HTTP.
const transportHTTP = "http"

// notInConfig are settings of MCP servers that are not in config: members beside it, and what is about other
// APIs than that of agents.
func notInConfig() []string { return []string{"name", "url", "enabled", "headers", "hosted"} }

func (h *definitions) wireServers(a agent.Agent) ([]serverObject, error) {
	out := []serverObject{}
	for _, s := range a.Servers {
		one, err := h.wireServer(s, a.Declared)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (h *definitions) wireServer(s agent.Server, declared bool) (serverObject, error) {
	out := serverObject{ID: s.ID, Name: s.Name, URL: s.Settings.URL, Transport: transportHTTP, Headers: map[string]string{}, Enabled: s.Settings.Enabled}
	for name, value := range s.Settings.Headers {
		if declared { // it may be a credential of the operator
			value = "[redacted]"
		}
		out.Headers[name] = value
	}
	text, err := h.reader.ServerSettings(s.Settings).MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &out.Config)
	}
	for _, name := range notInConfig() {
		delete(out.Config, name)
	}
	return out, err
}

// applyServers replaces the servers of a definition, if the body has any. One with the name of a server that
// is there keeps its id.
func (h *definitions) applyServers(f *surface.Fields, d *agent.Definition) error {
	all, given := f.List("mcp_servers")
	if !given || f.Err != nil {
		return f.Err
	}
	if len(all) > agent.MaxServers {
		return surface.InvalidValue("mcp_servers", "mcp_servers: an agent has at most %d MCP servers", agent.MaxServers)
	}
	before := d.Servers
	d.Servers = nil
	for i, one := range all {
		s := agent.Server{}
		if err := h.applyServer(surface.FieldsOf(fmt.Sprintf("mcp_servers[%d]", i), one), &s, ""); err != nil {
			return err
		}
		if j := slices.IndexFunc(before, func(b agent.Server) bool { return b.Name == s.Name }); j >= 0 {
			s.ID = before[j].ID
		}
		if s.ID == "" {
			s.ID = h.newID(agent.ServerPrefix)
		}
		d.Servers = append(d.Servers, s)
	}
	return nil
}

// applyServer applies the members of an object to a server. A URL that it had before is not judged again.
func (h *definitions) applyServer(f *surface.Fields, s *agent.Server, before string) error {
	_, known := f.Take("id") // of what GET has returned
	if known && f.Path == "" {
		f.Fail("id", "cannot be set")
	}
	name, url, transport, enabled, headers := s.Name, s.Settings.URL, transportHTTP, s.Settings.Enabled || s.ID == "", s.Settings.Headers
	f.Text("name", &name)
	f.Text("url", &url)
	f.Text("transport", &transport)
	f.Bool("enabled", true, &enabled)
	f.Texts("headers", &headers)
	config := map[string]json.RawMessage{}
	if v, ok := f.Take("config"); ok && !surface.IsNull(v) {
		inside := surface.FieldsOf(f.At("config"), v)
		config = inside.Rest()
		for _, name := range append(notInConfig(), "command", "env") {
			if _, ok := config[name]; ok {
				inside.Fail(name, "is not a setting of config")
			}
		}
		f.Keep(inside.Err)
	} else if !ok && s.ID != "" {
		stored, err := h.wireServer(*s, false)
		if err != nil {
			return err
		}
		config = stored.Config
	}
	if transport != "" && transport != transportHTTP {
		f.Fail("transport", `must be "http": servers are called over HTTP`)
	}
	if err := f.Done(); err != nil {
		return err
	}
	settings, err := h.readServer(f, name, url, enabled, headers, config)
	if err != nil {
		return err
	}
	if url != before {
		if err := h.judge(url); err != nil {
			return inPath(f.Path, err)
		}
	}
	s.Name, s.Settings = name, settings
	return nil
}

// readServer reads a server with the rules of the configuration file. Its tools are called
// mcp__server__tool unless the config says otherwise.
func (h *definitions) readServer(f *surface.Fields, name, url string, enabled bool, headers map[string]string, config map[string]json.RawMessage) (m org.MCPServer, err error) {
	whole := map[string]any{"name": name, "enabled": enabled, "naming": "namespaced"}
	if url != "" {
		whole["url"] = url
	}
	if len(headers) > 0 {
		whole["headers"] = headers
	}
	for key, v := range config {
		if key != "naming" || !surface.IsNull(v) {
			whole[key] = v
		}
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return m, err
	}
	m, err = h.reader.MCPServer(text, true)
	if err == nil {
		err = surface.CheckCredentials(m.URL, m.Headers)
	}
	if err == nil {
		m.Name = "" // it is that of the agent's server
		return m, nil
	}
	if e := fault.From(err); e.Code == fault.Unprocessable && e.Reason == "invalid_value" {
		first, _, _ := strings.Cut(e.Param, ".")
		first, _, _ = strings.Cut(first, "[")
		at := f.Path
		if first != "" && !slices.Contains(notInConfig(), first) {
			at = f.At("config")
		}
		invalid := *e
		invalid.Code = fault.Invalid
		return m, inPath(at, &invalid)
	}
	return m, inPath(f.Path, err)
}

// inPath returns an error for the caller with the path of the object that it is about.
func inPath(path string, err error) error {
	var e *fault.Error
	if path == "" || !errors.As(err, &e) {
		return err
	}
	inside := *e
	inside.Param = strings.Trim(path+"."+e.Param, ".")
	inside.Message = path + ": " + e.Message
	if e.Param != "" && strings.HasPrefix(e.Message, e.Param) {
		inside.Message = path + "." + e.Message
	}
	return &inside
}

// Servers answers GET /api/agents/{id}/mcp-servers.
func (h *definitions) Servers() surface.Endpoint {
	return h.listOf(func(r *http.Request, caller caller.Caller, a agent.Agent, page surface.OffsetPage) (int, any, error) {
		all, err := h.wireServers(a)
		return http.StatusOK, page.Of("mcp_servers", surface.Cut(all, page), len(all)), err
	})
}

// Server answers GET /api/agents/{id}/mcp-servers/{sid}.
func (h *definitions) Server() surface.Endpoint {
	return h.ofAgent(func(r *http.Request, caller caller.Caller, a agent.Agent) (int, any, error) {
		i, err := findServer(r, a.Definition)
		if err != nil {
			return 0, nil, err
		}
		out, err := h.wireServer(a.Servers[i], a.Declared)
		return http.StatusOK, out, err
	})
}

// findServer returns the place of the server that the path names.
func findServer(r *http.Request, d agent.Definition) (int, error) {
	return placeOf(r, "sid", "MCP server of the agent", d.Servers, func(s agent.Server) string { return s.ID })
}

// AddServer answers POST /api/agents/{id}/mcp-servers.
func (h *definitions) AddServer() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		return h.changeServer(r, caller, http.StatusCreated, func(d *agent.Definition) (int, error) {
			s := agent.Server{}
			if err := h.applyServer(surface.FieldsOf("", body), &s, ""); err != nil {
				return 0, err
			}
			if len(d.Servers) >= agent.MaxServers {
				return 0, fault.New(fault.Conflict, "cap_reached", "an agent has at most %d MCP servers; delete one", agent.MaxServers)
			}
			s.ID = h.newID(agent.ServerPrefix)
			d.Servers = append(d.Servers, s)
			return len(d.Servers) - 1, nil
		})
	})
}

// ChangeServer answers PUT /api/agents/{id}/mcp-servers/{sid}: members that are given replace those that are
// there.
func (h *definitions) ChangeServer() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		return h.changeServer(r, caller, http.StatusOK, func(d *agent.Definition) (int, error) {
			i, err := findServer(r, *d)
			if err != nil {
				return 0, err
			}
			return i, h.applyServer(surface.FieldsOf("", body), &d.Servers[i], d.Servers[i].Settings.URL)
		})
	})
}

// changeServer changes the agent that the path names, and answers with the server whose place apply returns.
func (h *definitions) changeServer(r *http.Request, caller caller.Caller, status int, apply func(*agent.Definition) (int, error)) (int, any, error) {
	var at int
	a, err := h.change(r, caller, func(d *agent.Definition) (err error) {
		if at, err = apply(d); err != nil {
			return err
		}
		for i, s := range d.Servers {
			if i != at && s.Name == d.Servers[at].Name {
				return surface.Thing{Kind: "MCP server of the agent"}.Taken()
			}
		}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	out, err := h.wireServer(a.Servers[at], false)
	return status, out, err
}

// RemoveServer answers DELETE /api/agents/{id}/mcp-servers/{sid}.
func (h *definitions) RemoveServer() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		_, err := h.change(r, caller, func(d *agent.Definition) error {
			i, err := findServer(r, *d)
			if err == nil {
				d.Servers = slices.Delete(d.Servers, i, i+1)
			}
			return err
		})
		return http.StatusOK, surface.Deleted(r.PathValue("sid"), ""), err
	})
}
