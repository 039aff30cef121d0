package chat

import (
	"bufio"
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
func (h *Handler) ServeModels(w http.ResponseWriter, r *http.Request, caller run.Caller) {
	names := h.o.Models.Names(r.Context())
	counts := h.toolCounts(r.Context(), caller)
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriter(w) // a list may be long, and is not put together in memory
	_, _ = out.WriteString(`{"object":"list","data":[`)
	for i, k := range names {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(marshal(newModelObject(k, counts)))
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush() // a failure: the caller has left
}

// ServeModel answers GET /v1/models/{model}.
func (h *Handler) ServeModel(w http.ResponseWriter, r *http.Request, caller run.Caller) {
	name := r.PathValue("model")
	k, found := h.o.Models.Find(r.Context(), name)
	if !found {
		WriteError(w, fault.New(fault.NotFound, "model_not_found", "no provider lists the model %q; %s; GET /v1/models lists all names", name, h.hints()).In("model"))
		return
	}
	writeJSON(w, http.StatusOK, newModelObject(k, h.toolCounts(r.Context(), caller)))
}

func newModelObject(k route.Known, counts toolCounts) modelObject {
	return modelObject{ID: k.Name, Object: "model", Created: k.Created, OwnedBy: k.Provider, toolCounts: counts}
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
