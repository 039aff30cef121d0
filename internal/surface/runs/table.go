package runs

import (
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// Routes returns the routes of the API. They are not limited like model requests: a stream
// of events may be open as long as its run. The endpoints of a nil Handler must not be
// called.
func (h *Handler) Routes() []surface.Route {
	starters := surface.Group{
		Errors: surface.OpenAIErrors(model.DialectChat), Roles: surface.Runners, MaxBody: surface.MaxManagementBody,
	}
	readers, management := starters.By(surface.RunReaders), starters
	management.Errors = surface.ManagementErrors()
	return []surface.Route{
		readers.Route("GET /v1/runs", surface.Admitted(h.List)),
		readers.Route("GET /v1/runs/{id}", surface.Admitted(h.Get)),
		readers.Open().Route("GET /v1/runs/{id}/events", h.Events(readers.Errors)),
		starters.Route("POST /v1/runs/{id}/cancel", surface.Admitted(h.Cancel)),
		starters.Route("POST /v1/runs/{id}/limits", surface.Admitted(h.Raise)),
		management.Route("POST /api/runs/{id}/cancel", surface.Admitted(h.Cancel)),
	}
}
