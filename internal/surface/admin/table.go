package admin

import "github.com/turnpike-gateway/turnpike/internal/surface"

// Routes returns the routes of the management API. The endpoints of a nil Handler must not
// be called.
func (h *Handler) Routes() []surface.Route {
	managers := surface.Group{
		Errors: surface.ManagementErrors(), Roles: surface.Managers, MaxBody: surface.MaxManagementBody,
	}
	readers, operator := managers.By(surface.Readers), managers.By(surface.Operator)
	return []surface.Route{
		readers.Route("GET /api/org", h.GetOrg()),
		managers.Route("PATCH /api/org/runtime", h.PatchRuntime()),
		readers.Route("GET /api/keys", h.ListKeys()),
		managers.Route("POST /api/keys", h.CreateKey()),
		managers.Route("PATCH /api/keys/{id}", h.PatchKey()),
		managers.Route("DELETE /api/keys/{id}", h.RevokeKey()),
		managers.Route("POST /api/keys/{id}/rotate", h.RotateKey()),
		readers.Route("GET /api/mcp-servers", h.ListServers()),
		managers.Route("POST /api/mcp-servers", h.CreateServer()),
		readers.Route("GET /api/mcp-servers/{name}", h.GetServer()),
		managers.Route("PATCH /api/mcp-servers/{name}", h.PatchServer()),
		managers.Route("DELETE /api/mcp-servers/{name}", h.DeleteServer()),
		managers.Route("GET /api/secrets", h.ListSecrets()),
		managers.Route("PUT /api/secrets/{name}", h.PutSecret()),
		managers.Route("DELETE /api/secrets/{name}", h.DeleteSecret()),
		managers.Route("GET /api/webhooks", h.ListWebhooks()),
		managers.Route("POST /api/webhooks", h.CreateWebhook()),
		managers.Route("PATCH /api/webhooks/{name}", h.PatchWebhook()),
		managers.Route("DELETE /api/webhooks/{name}", h.DeleteWebhook()),
		managers.Route("POST /api/webhooks/{name}/rotate", h.RotateWebhook()),
		managers.Route("POST /api/webhooks/{name}/test", h.TestWebhook()),
		managers.Route("GET /api/webhooks/{name}/deliveries", h.ListDeliveries()),
		managers.Route("POST /api/webhooks/{name}/deliveries/{id}/redeliver", h.Redeliver()),
		readers.Route("GET /api/routes", h.ListRoutes()),
		readers.Route("GET /api/budgets", h.ListBudgets()),
		readers.Route("GET /api/usage", h.ListUsage()),
		readers.Route("GET /api/audit", h.ListAudit()),
		readers.Open().Route("GET /api/audit/export", h.ExportAudit()),
		operator.Route("GET /api/orgs", h.ListOrgs()),
		operator.Route("POST /api/orgs", h.CreateOrg()),
		operator.Route("PATCH /api/orgs/{org}", h.PatchOrg()),
		operator.Route("DELETE /api/orgs/{org}", h.DeleteOrg()),
		operator.Route("POST /api/orgs/{org}/keys", h.CreateOrgKey()),

		managers.Route("/api/", nil), // an unknown path
	}
}
