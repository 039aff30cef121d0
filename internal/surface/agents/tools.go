package agents

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// toolObject is a tool that agents can have, on the wire.
type toolObject struct {
	ID          *string `json:"id"` // nil for built-in tools
	Name        string  `json:"name"`
	Type        string  `json:"tool_type"`
	Description string  `json:"description"`
	Available   bool    `json:"available"`
	Missing     string  `json:"missing,omitempty"` // why it is not available
}

// builtin is the tool_type of built-in tools.
const builtin = "builtin"

// missing is what all built-in tools lack.
const missing = "this version of the gateway does not have the tool yet"

// builtins returns the built-in tools.
func builtins() []toolObject {
	tools := []toolObject{
		{Name: "database_query", Description: "Execute read-only SQL queries against a database of the org."},
		{Name: "database_write", Description: "Execute INSERT, UPDATE and DELETE against a database of the org."},
		{Name: "http_request", Description: "Send HTTP requests to external APIs."},
		{Name: "code_execute", Description: "Run Python or JavaScript in a sandbox."},
		{Name: "storage_read", Description: "List and download files of storage buckets."},
		{Name: "storage_write", Description: "Upload text to a storage bucket."},
		{Name: "web_search", Description: "Search the web."},
		{Name: "web_scrape", Description: "Extract the content of web pages."},
	}
	for i := range tools {
		tools[i].Type, tools[i].Missing = builtin, missing
	}
	return tools
}

// Tools answers GET /api/tools.
func (h *Handler) Tools() surface.Endpoint {
	return h.endpoint(func(r *http.Request, _ run.Caller) (int, any, error) {
		limit, offset, err := readPage(r)
		if err != nil {
			return 0, nil, err
		}
		all := builtins()
		return http.StatusOK, struct {
			Tools []toolObject `json:"tools"`
			pageOf
		}{cut(all, limit, offset), pageOf{len(all), limit, offset}}, nil
	})
}

// AssignTool answers POST /api/agents/{id}/tools. It refuses every tool: see missing.
func (h *Handler) AssignTool() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		if _, err := h.find(r, caller); err != nil {
			return 0, nil, err
		}
		f, err := readFields(r)
		if err != nil {
			return 0, nil, err
		}
		var kind, name, id string
		f.text("tool_type", &kind)
		f.text("tool_name", &name)
		f.text("tool_id", &id)
		f.take("config_override")
		switch err := f.done(); {
		case err != nil:
			return 0, nil, err
		case kind != builtin && kind != "custom":
			return 0, nil, surface.InvalidValue("tool_type", "tool_type must be builtin or custom")
		case name == "":
			return 0, nil, surface.InvalidValue("tool_name", "tool_name is required")
		}
		for _, t := range builtins() {
			if kind == builtin && t.Name == name {
				return 0, nil, fault.New(fault.NotConfigured, "tool_not_available", "%s cannot be assigned: %s", name, t.Missing).In("tool_name")
			}
		}
		return 0, nil, fault.New(fault.NotFound, "not_found", "there is no %s tool with the name %.80q", kind, name).In("tool_name")
	})
}
