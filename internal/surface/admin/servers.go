package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// servers answers requests for the MCP servers of an org.
type servers struct {
	base
	store     serverStore
	directory serverDirectory
	reader    serverReader
	judge     func(url string) error
}

// serverStore is the part of [org.Store] for MCP servers.
type serverStore interface {
	MCPServers(ctx context.Context, org string) ([]org.MCPServer, error)
	CreateMCPServer(ctx context.Context, s org.MCPServer, by org.Author) error
	UpdateMCPServer(ctx context.Context, was, s org.MCPServer, by org.Author) error
	DeleteMCPServer(ctx context.Context, org, name string, by org.Author) error
	ServersOff(ctx context.Context, org string) ([]string, error)
	SwitchServer(ctx context.Context, org, name string, on bool, by org.Author) error
}

// serverDirectory is the part of the Directory for MCP servers.
type serverDirectory interface {
	orgDirectory
	// ServerStatus says how an enabled server was last seen.
	ServerStatus(orgID, name string) org.ServerStatus
}

// serverReader is the part of the Reader for MCP servers.
type serverReader interface {
	// MCPServer reads a whole server. Patched as with keys.
	MCPServer(json []byte, patched bool) (org.MCPServer, error)
	// ServerSettings returns the settings of a server with the keys of the
	// configuration file, including literal values of headers.
	ServerSettings(s org.MCPServer) json.Marshaler
}

// List answers GET /api/mcp-servers.
func (h *servers) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		stored, err := h.store.MCPServers(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := []server{}
		off, err := h.store.ServersOff(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		for _, s := range org.WithSwitches(h.directory.FromFile(caller.Org.ID).Servers, off) {
			out = append(out, h.wire(s, true))
		}
		for _, s := range stored {
			out = append(out, h.wire(s, false))
		}
		return http.StatusOK, list[server]{out}, nil
	})
}

// Get answers GET /api/mcp-servers/{name}.
func (h *servers) Get() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		s, declared, err := h.find(r, caller)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, h.wire(s, declared), nil
	})
}

// Create answers POST /api/mcp-servers.
func (h *servers) Create() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		s, err := h.read(body, false)
		if err != nil {
			return 0, nil, err
		}
		if err := h.judge(s.URL); err != nil {
			return 0, nil, err
		}
		if declaredServer(h.directory.FromFile(caller.Org.ID), s.Name) != nil {
			return 0, nil, fault.New(fault.Conflict, "exists", "the configuration file already declares the MCP server %q; choose another name", s.Name).In("name")
		}
		if s.Name == org.HTTPTools && len(h.directory.FromFile(caller.Org.ID).HTTPTools) > 0 {
			return 0, nil, fault.New(fault.Conflict, "exists", "%q is the name of the server of the org's HTTP tools; choose another name", s.Name).In("name")
		}
		if s.Name == org.BuiltinTools {
			return 0, nil, fault.New(fault.Conflict, "exists", "%q is the name of the server of the org's built-in tools; choose another name", s.Name).In("name")
		}
		s.Org = caller.Org.ID
		if err := h.checkHosted(r.Context(), s); err != nil {
			return 0, nil, err
		}
		s.CreatedAt, s.UpdatedAt = h.now(), h.now()
		if err := h.store.CreateMCPServer(r.Context(), s, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "MCP server", Name: s.Name})
		}
		return http.StatusCreated, h.wire(s, false), h.directory.Reload(r.Context(), s.Org)
	})
}

// Patch answers PATCH /api/mcp-servers/{name}: members that are given
// replace those that are there (RFC 7396).
func (h *servers) Patch() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		old, declared, err := h.find(r, caller)
		switch {
		case err != nil:
			return 0, nil, err
		case old.Shared:
			return h.switchShared(r, caller, old)
		case declared:
			return 0, nil, surface.Declared("MCP server", old.Name)
		}
		_, patch, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		return surface.Repeat(func() (int, any, error) { return h.patch(r, caller, patch) })
	})
}

// patch applies the members to the stored server in the path.
func (h *servers) patch(r *http.Request, caller caller.Caller, patch []surface.Member) (int, any, error) {
	old, _, err := h.find(r, caller)
	if err != nil {
		return 0, nil, err
	}
	merged, err := merge(patch, h.reader.ServerSettings(old))
	if err != nil {
		return 0, nil, err
	}
	s, err := h.read(merged, true)
	if err != nil {
		return 0, nil, err
	}
	if s.Name != old.Name {
		return 0, nil, fault.New(fault.Invalid, "immutable", "the name of an MCP server cannot be changed; delete the server and create it with the new name").In("name")
	}
	if s.URL != old.URL { // a server from before the policy was changed can be changed otherwise
		if err := h.judge(s.URL); err != nil {
			return 0, nil, err
		}
	}
	s.Org, s.Position, s.CreatedAt, s.UpdatedAt = old.Org, old.Position, old.CreatedAt, h.now()
	if err := h.checkHosted(r.Context(), s); err != nil {
		return 0, nil, err
	}
	if err := h.store.UpdateMCPServer(r.Context(), old, s, caller.Author(h.now())); err != nil {
		return 0, nil, surface.Refused(err, surface.Thing{Kind: "MCP server", Name: s.Name})
	}
	return http.StatusOK, h.wire(s, false), h.directory.Reload(r.Context(), s.Org)
}

// switchShared switches a server that orgs share on or off for the caller's org.
func (h *servers) switchShared(r *http.Request, caller caller.Caller, old org.MCPServer) (int, any, error) {
	f, err := surface.ReadFields(r, caller.Account)
	if err != nil {
		return 0, nil, err
	}
	var enabled *bool
	surface.Field(f, "enabled", "true or false", &enabled)
	settings, err := surface.Marshal(h.reader.ServerSettings(old))
	if err != nil {
		return 0, nil, err
	}
	for name := range f.Rest() {
		if surface.FieldsOf("", settings).Has(name) {
			enabled = nil // it is a setting, and not for the org to change
		} else {
			return 0, nil, surface.Unknown("member", name, name, "enabled")
		}
	}
	if f.Err != nil || enabled == nil {
		return 0, nil, fault.New(fault.Conflict, "declared", "the operator shares the MCP server %q among orgs, so an org can only switch it on or off: "+
			`send {"enabled": false} or {"enabled": true}`, old.Name)
	}
	if declaredServer(h.directory.FromFile(caller.Org.ID), old.Name).Enabled { // else the operator has disabled it
		if err := h.store.SwitchServer(r.Context(), caller.Org.ID, old.Name, *enabled, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "MCP server", Name: old.Name})
		}
		old.Enabled = *enabled
	} else if *enabled {
		return 0, nil, surface.Declared("MCP server", old.Name)
	}
	if err := h.directory.Reload(r.Context(), caller.Org.ID); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.wire(old, true), nil
}

// Delete answers DELETE /api/mcp-servers/{name}.
func (h *servers) Delete() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		s, declared, err := h.find(r, caller)
		if err != nil {
			return 0, nil, err
		}
		if s.Shared {
			return 0, nil, fault.New(fault.Conflict, "declared", "the operator shares the MCP server %q among orgs, so an org cannot delete it; "+
				`switch it off with PATCH and {"enabled": false}`, s.Name)
		}
		if declared {
			return 0, nil, surface.Declared("MCP server", s.Name)
		}
		if err := h.store.DeleteMCPServer(r.Context(), s.Org, s.Name, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "MCP server", Name: s.Name})
		}
		return http.StatusOK, surface.Deleted(s.Name, ""), h.directory.Reload(r.Context(), s.Org)
	})
}

// find returns the server that the path names.
func (h *servers) find(r *http.Request, caller caller.Caller) (s org.MCPServer, declared bool, err error) {
	name := r.PathValue("name")
	if d := declaredServer(h.directory.FromFile(caller.Org.ID), name); d != nil {
		off, err := h.store.ServersOff(r.Context(), caller.Org.ID)
		return org.WithSwitches([]org.MCPServer{*d}, off)[0], true, err
	}
	stored, err := h.store.MCPServers(r.Context(), caller.Org.ID)
	if err != nil {
		return s, false, err
	}
	if i := slices.IndexFunc(stored, func(s org.MCPServer) bool { return s.Name == name }); i >= 0 {
		return stored[i], false, nil
	}
	return s, false, surface.Thing{Kind: "MCP server", Name: name}.Missing()
}

func declaredServer(d org.FromFile, name string) *org.MCPServer {
	for i := range d.Servers {
		if d.Servers[i].Name == name {
			return &d.Servers[i]
		}
	}
	return nil
}

// read reads settings with the file's rules, and with one of its own: an
// org must not reach what belongs to the operator (programs, environment, files)
// and a credential is not stored in the open.
func (h *servers) read(body []byte, patched bool) (org.MCPServer, error) {
	s, err := h.reader.MCPServer(body, patched)
	if err == nil {
		err = surface.CheckCredentials(s.URL, s.Headers)
	}
	return s, err
}

// checkHosted refuses a server with a type of hosted tools that another server of the org has.
func (h *servers) checkHosted(ctx context.Context, s org.MCPServer) error {
	mine := s.HostedTools()
	if len(mine) == 0 {
		return nil
	}
	stored, err := h.store.MCPServers(ctx, s.Org)
	if err != nil {
		return err
	}
	for _, other := range slices.Concat(h.directory.FromFile(s.Org).Servers, stored) {
		for _, kind := range slices.Sorted(maps.Keys(other.HostedTools())) {
			if mine[kind] != "" && other.Name != s.Name {
				return fault.New(fault.Conflict, "exists", "hosted of the MCP server %q already has %s; remove it there first", other.Name, kind).In("hosted")
			}
		}
	}
	return nil
}

// server is the JSON of an MCP server: its settings with the keys of the configuration
// file, and what only the gateway knows.
type server struct {
	settings json.Marshaler
	state    serverState
}

type serverState struct {
	Declared  bool             `json:"declared"`
	Shared    bool             `json:"shared,omitempty"` // by the operator, among orgs
	Status    org.ServerStatus `json:"status"`
	CreatedAt *int64           `json:"created_at"` // Unix seconds; null for declared ones
	UpdatedAt *int64           `json:"updated_at"`
}

// MarshalJSON implements json.Marshaler.
func (s server) MarshalJSON() ([]byte, error) {
	settings, err := s.settings.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var state bytes.Buffer
	encoder := json.NewEncoder(&state)
	encoder.SetEscapeHTML(false) // the encoder around it may escape
	if err := encoder.Encode(s.state); err != nil {
		return nil, err
	}
	return slices.Concat(settings[:len(settings)-1], []byte(","), state.Bytes()[1:]), nil // every server has a name
}

func (h *servers) wire(s org.MCPServer, declared bool) server {
	out := server{state: serverState{Declared: declared, Shared: s.Shared, Status: org.ServerStatus{State: "disabled"}}}
	if s.Enabled {
		out.state.Status = h.directory.ServerStatus(s.Org, s.Name)
	}
	if declared {
		s.Headers = redacted(s.Headers) // they may be credentials of the operator
		if s.Shared {
			s.URL = s.PublicURL()
		}
	} else {
		out.state.CreatedAt, out.state.UpdatedAt = new(s.CreatedAt.Unix()), new(s.UpdatedAt.Unix())
	}
	out.settings = h.reader.ServerSettings(s)
	return out
}

func redacted(headers map[string]string) map[string]string {
	out := make(map[string]string, len(headers))
	for name := range headers {
		out[name] = "[redacted]"
	}
	return out
}
