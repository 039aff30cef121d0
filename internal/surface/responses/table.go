package responses

import "github.com/turnpike-gateway/turnpike/internal/surface"

// Routes returns the routes of the API. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	if h == nil {
		h = new(Handler)
	}
	requests := surface.ModelRequests(Errors())
	stored := surface.Group{
		Errors: requests.Errors, Roles: surface.Runners, MaxBody: surface.MaxManagementBody, ModelAPI: true,
	}
	return []surface.Route{
		requests.Route("POST /v1/responses", h.Serve),
		requests.Route("POST /v1/responses/input_tokens", h.InputTokens),
		requests.Route("POST /v1/responses/compact", h.Compact),

		stored.Open().Route("GET /v1/responses/{id}", h.Streamed(surface.Admitted(h.Get))),
		stored.Route("POST /v1/responses/{id}/cancel", h.Cancel),
		stored.Route("DELETE /v1/responses/{id}", surface.Admitted(h.Delete)),
		stored.Route("GET /v1/responses/{id}/input_items", surface.Admitted(h.InputItems)),
		stored.Route("POST /v1/conversations", surface.Admitted(h.CreateConversation)),
		stored.Route("GET /v1/conversations/{id}", surface.Admitted(h.GetConversation)),
		stored.Route("POST /v1/conversations/{id}", surface.Admitted(h.UpdateConversation)),
		stored.Route("DELETE /v1/conversations/{id}", surface.Admitted(h.DeleteConversation)),
		stored.Route("POST /v1/conversations/{id}/rewind", surface.Admitted(h.RewindConversation)),
		stored.Route("POST /v1/conversations/{id}/fork", surface.Admitted(h.ForkConversation)),
		stored.Route("GET /v1/conversations/{id}/items", surface.Admitted(h.ListItems)),
		stored.Route("POST /v1/conversations/{id}/items", surface.Admitted(h.AddItems)),
		stored.Route("GET /v1/conversations/{id}/items/{item}", surface.Admitted(h.GetItem)),
		stored.Route("DELETE /v1/conversations/{id}/items/{item}", surface.Admitted(h.DeleteItem)),
	}
}
