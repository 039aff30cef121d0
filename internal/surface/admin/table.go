package admin

import "github.com/turnpike-gateway/turnpike/internal/surface"

// Routes returns the routes of the management API. The endpoints of a nil Handler must not
// be called.
func (h *Handler) Routes() []surface.Route {
	if h == nil {
		h = new(Handler)
	}
	managers := surface.Group{
		Errors: surface.ManagementErrors(), Roles: surface.Managers, MaxBody: surface.MaxManagementBody,
	}
	readers, operator := managers.By(surface.Readers), managers.By(surface.Operator)
	return []surface.Route{
		readers.Route("GET /api/org", h.orgs.Get()),
		managers.Route("PATCH /api/org/runtime", h.orgs.PatchRuntime()),
		readers.Route("GET /api/keys", h.keys.List()),
		managers.Route("POST /api/keys", h.keys.Create()),
		managers.Route("PATCH /api/keys/{id}", h.keys.Patch()),
		managers.Route("DELETE /api/keys/{id}", h.keys.Revoke()),
		managers.Route("POST /api/keys/{id}/rotate", h.keys.Rotate()),
		readers.Route("GET /api/mcp-servers", h.servers.List()),
		managers.Route("POST /api/mcp-servers", h.servers.Create()),
		readers.Route("GET /api/mcp-servers/{name}", h.servers.Get()),
		managers.Route("PATCH /api/mcp-servers/{name}", h.servers.Patch()),
		managers.Route("DELETE /api/mcp-servers/{name}", h.servers.Delete()),
		managers.Route("GET /api/secrets", h.secrets.List()),
		managers.Route("PUT /api/secrets/{name}", h.secrets.Put()),
		managers.Route("DELETE /api/secrets/{name}", h.secrets.Delete()),
		managers.Route("GET /api/webhooks", h.webhooks.List()),
		managers.Route("POST /api/webhooks", h.webhooks.Create()),
		managers.Route("PATCH /api/webhooks/{name}", h.webhooks.Patch()),
		managers.Route("DELETE /api/webhooks/{name}", h.webhooks.Delete()),
		managers.Route("POST /api/webhooks/{name}/rotate", h.webhooks.Rotate()),
		managers.Route("POST /api/webhooks/{name}/test", h.webhooks.Test()),
		managers.Route("GET /api/webhooks/{name}/deliveries", h.webhooks.Deliveries()),
		managers.Route("POST /api/webhooks/{name}/deliveries/{id}/redeliver", h.webhooks.Redeliver()),
		readers.Route("GET /api/routes", h.routes.List()),
		readers.Route("GET /api/budgets", h.budgets.List()),
		readers.Route("GET /api/usage", h.audit.Usage()),
		readers.Route("GET /api/audit", h.audit.List()),
		readers.Open().Route("GET /api/audit/export", h.audit.Export()),
		operator.Route("GET /api/orgs", h.orgs.List()),
		operator.Route("POST /api/orgs", h.orgs.Create()),
		operator.Route("PATCH /api/orgs/{org}", h.orgs.Patch()),
		operator.Route("DELETE /api/orgs/{org}", h.orgs.Delete()),
		operator.Route("POST /api/orgs/{org}/keys", h.orgs.CreateKey()),

		managers.Route("/api/", nil), // an unknown path
	}
}
