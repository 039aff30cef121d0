package chat

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

type modelList struct {
	Object string        `json:"object"`
	Data   []modelObject `json:"data"`
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func newModelObject(k route.Known) modelObject {
	return modelObject{ID: k.Name, Object: "model", OwnedBy: k.Provider}
}

// ServeModels answers GET /v1/models with the names that can be asked for.
// Names that only a pattern covers cannot be listed.
func (h *Handler) ServeModels(w http.ResponseWriter, _ *http.Request, _ run.Caller) {
	list := modelList{Object: "list", Data: []modelObject{}}
	for _, k := range h.o.Router.Known() {
		list.Data = append(list.Data, newModelObject(k))
	}
	writeJSON(w, http.StatusOK, list)
}

// ServeModel answers GET /v1/models/{model}.
func (h *Handler) ServeModel(w http.ResponseWriter, r *http.Request, _ run.Caller) {
	name := r.PathValue("model")
	targets := h.o.Router.Resolve(name)
	if targets == nil {
		WriteError(w, fault.New(fault.NotFound, "model_not_found", "no provider serves the model %q; %s", name, h.hints()).In("model"))
		return
	}
	writeJSON(w, http.StatusOK, newModelObject(route.Known{Name: name, Provider: targets[0].Provider}))
}
