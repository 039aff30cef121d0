package approvals

import (
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// Routes returns the routes of the API. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	approvers := surface.Group{
		Errors: surface.OpenAIErrors(model.DialectChat), Roles: surface.Approvers, MaxBody: surface.MaxManagementBody,
	}
	readers := approvers.By(surface.ApprovalReaders)
	return []surface.Route{
		readers.Open().Route("GET /v1/approvals", h.List),
		readers.Route("GET /v1/approvals/{id}", surface.Admitted(h.Get)),
		approvers.Route("POST /v1/approvals/{id}", surface.Admitted(h.Decide)),
		approvers.By(surface.Deciders).Route("POST /v1/agent/approvals/{id}", surface.Admitted(h.DecideAgent)),
	}
}
