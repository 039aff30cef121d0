package chat

import "github.com/turnpike-gateway/turnpike/internal/surface"

// Routes returns the routes of the API. Paths that no API has get its errors, but for those
// below /api/. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	requests := surface.ModelRequests(Errors())
	models := surface.Group{Errors: requests.Errors, MaxBody: surface.MaxBody, ModelAPI: true}
	unknown := surface.Group{Errors: requests.Errors, Roles: surface.Runners, MaxBody: surface.MaxManagementBody}
	return []surface.Route{
		requests.Route("POST /v1/chat/completions", h.Serve),
		models.Route("GET /v1/models", h.ServeModels),
		models.Route("GET /v1/models/{model...}", h.ServeModel),

		unknown.Route("/", nil),
	}
}
