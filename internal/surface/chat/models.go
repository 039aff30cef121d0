package chat

import (
	"bufio"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// modelObject is a model of the dialect, and what the gateway adds to every
// model of the org: tools that it executes itself, and what it knows of the model. Official clients
// ignore members that they do not know.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`

	ToolsAvailable      bool `json:"tools_available"`
	MCPToolsCount       int  `json:"mcp_tools_count"`
	MCPServersConnected int  `json:"mcp_servers_connected"`

	Turnpike surface.ModelInfo `json:"turnpike"`
}

func newModelObject(m surface.Model, tools surface.Tools, info surface.ModelInfo) modelObject {
	out := modelObject{
		ID: m.Name, Object: "model", OwnedBy: m.Provider,
		ToolsAvailable: tools.Offered > 0, MCPToolsCount: tools.Offered, MCPServersConnected: tools.Connected, Turnpike: info,
	}
	if !m.Created.IsZero() {
		out.Created = m.Created.Unix()
	}
	return out
}

// ServeModels answers GET /v1/models with the names that can be asked for.
func (h *Handler) ServeModels(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	tools := h.kit.Tools(r.Context(), caller)
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriter(w) // a list may be long, and is not put together in memory
	_, _ = out.WriteString(`{"object":"list","data":[`)
	separator := ""
	h.kit.Models(r.Context(), caller, func(m surface.Model) {
		_, _ = out.WriteString(separator)
		object, _ := surface.Marshal(newModelObject(m, tools, h.kit.ModelInfo(m.Name))) // strings and numbers: cannot fail
		_, _ = out.Write(object)
		separator = ","
	})
	_, _ = out.WriteString("]}\n")
	_ = out.Flush() // a failure: the caller has left
	return nil
}

// ServeModel answers GET /v1/models/{model}.
func (h *Handler) ServeModel(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	m, err := h.kit.Model(r.Context(), caller, r.PathValue("model"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newModelObject(m, h.kit.Tools(r.Context(), caller), h.kit.ModelInfo(m.Name)))
}
