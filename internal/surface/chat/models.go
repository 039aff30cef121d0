package chat

import (
	"context"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// toolsTimeout bounds how long a list of models waits for servers.
const toolsTimeout = 5 * time.Second

type modelList struct {
	Object string        `json:"object"`
	Data   []modelObject `json:"data"`
}

// modelObject is a model of the dialect, and what the gateway adds to every
// model of the org: tools that it executes itself.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`

	toolCounts
}

type toolCounts struct {
	ToolsAvailable      bool `json:"tools_available"`
	MCPToolsCount       int  `json:"mcp_tools_count"`
	MCPServersConnected int  `json:"mcp_servers_connected"`
}

// ServeModels answers GET /v1/models with the names that can be asked for.
// Names that only a pattern covers cannot be listed.
func (h *Handler) ServeModels(w http.ResponseWriter, r *http.Request, caller run.Caller) {
	counts := h.toolCounts(r.Context(), caller)
	list := modelList{Object: "list", Data: []modelObject{}}
	for _, k := range h.o.Router.Known() {
		list.Data = append(list.Data, newModelObject(k, counts))
	}
	writeJSON(w, http.StatusOK, list)
}

// ServeModel answers GET /v1/models/{model}.
func (h *Handler) ServeModel(w http.ResponseWriter, r *http.Request, caller run.Caller) {
	name := r.PathValue("model")
	targets := h.o.Router.Resolve(name)
	if targets == nil {
		WriteError(w, fault.New(fault.NotFound, "model_not_found", "no provider serves the model %q; %s", name, h.hints()).In("model"))
		return
	}
	writeJSON(w, http.StatusOK, newModelObject(route.Known{Name: name, Provider: targets[0].Provider}, h.toolCounts(r.Context(), caller)))
}

func newModelObject(k route.Known, counts toolCounts) modelObject {
	return modelObject{ID: k.Name, Object: "model", OwnedBy: k.Provider, toolCounts: counts}
}

// toolCounts says what a run of the caller would see now.
func (h *Handler) toolCounts(ctx context.Context, caller run.Caller) toolCounts {
	if !caller.LoopActive() {
		return toolCounts{}
	}
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	set, err := h.o.Catalog.For(ctx, caller.Org.ID, caller.Servers, caller.Org.Runtime.CatalogTTL)
	if err != nil {
		return toolCounts{}
	}
	return count(set)
}

func count(set *catalog.Set) toolCounts {
	c := toolCounts{MCPToolsCount: len(set.Offered())}
	for _, s := range set.Servers {
		if s.Error == "" {
			c.MCPServersConnected++
		}
	}
	c.ToolsAvailable = c.MCPToolsCount > 0
	return c
}
