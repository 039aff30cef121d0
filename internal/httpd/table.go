package httpd

import (
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
)

// route is one line of the table of routes.
type route struct {
	pattern string // as of http.ServeMux
	api
	serve surface.Endpoint // nil = an unknown path
}

// api is what the routes of one API have in common.
type api struct {
	errors  *surface.Errors // the format of every error of the routes
	roles   roles
	maxBody int64 // bytes

	modelAPI bool // its requests count for the rate limit of their org
	callsLLM bool // its requests call models and count for max_requests

	staysOpen bool // its requests may stay open for long, and end when their key is revoked
}

// open returns the group for a route whose requests may stay open for long.
func (a api) open() api {
	a.staysOpen = true
	return a
}

// roles says whose keys a route is for.
type roles string

const (
	anyRole      roles = ""
	runners      roles = "owner, admin or member"
	managers     roles = "owner or admin"
	readers      roles = "owner, admin or reader"         // of the org's settings and audit log
	runReaders   roles = "owner, admin, member or reader" // members read the runs of their key
	approvers    roles = "owner, admin or approver"
	waitReaders  roles = "owner, admin, approver or reader" // of approvals
	operatorOnly roles = "operator"
)

// allows reports whether a key of an org may use the route.
func (rs roles) allows(r org.Role) bool {
	switch rs {
	case anyRole:
		return true
	case runners:
		return r.MayRun()
	case managers:
		return r.MayManage()
	case readers:
		return r.MayRead()
	case runReaders:
		return r.MayRun() || r.MayRead()
	case approvers:
		return r.MayApprove()
	case waitReaders:
		return r.MayApprove() || r.MayRead()
	}
	return false
}

// apis returns the groups of routes. Their error formats are those of their surfaces.
func apis() (model, inResponses, storedResponses, models, stored, approve, storedAdmin, manage, operator api) {
	inChat, inAdmin := chat.Errors(), admin.Errors()
	model = api{errors: inChat, roles: runners, maxBody: surface.MaxBody, modelAPI: true, callsLLM: true, staysOpen: true}
	inResponses = model
	inResponses.errors = responses.Errors()
	storedResponses = api{errors: inResponses.errors, roles: runners, maxBody: admin.MaxBody, modelAPI: true}
	models = api{errors: inChat, maxBody: surface.MaxBody, modelAPI: true}
	// Stored runs are not limited like model requests: an event stream may be open as
	// long as its run.
	stored = api{errors: inChat, roles: runners, maxBody: admin.MaxBody}
	approve = api{errors: inChat, roles: approvers, maxBody: admin.MaxBody}
	storedAdmin = api{errors: inAdmin, roles: runners, maxBody: admin.MaxBody}
	manage = api{errors: inAdmin, roles: managers, maxBody: admin.MaxBody}
	operator = api{errors: inAdmin, roles: operatorOnly, maxBody: admin.MaxBody}
	return
}

// by returns the group of routes for other roles.
func (a api) by(rs roles) api {
	a.roles = rs
	return a
}

// table returns every route of the API. The endpoints of the zero Options must not be
// called.
func table(o Options) []route {
	model, inResponses, storedResponses, models, stored, approve, storedAdmin, manage, operator := apis()
	c, rs, as, m := o.Chat, o.Runs, o.Approvals, o.Admin
	return []route{
		{"POST /v1/chat/completions", model, c.Serve},
		{"POST /v1/responses", inResponses, o.Responses.Serve},
		{"POST /v1/responses/input_tokens", inResponses, o.Responses.InputTokens},
		{"POST /v1/responses/compact", inResponses, nil}, // an unknown path of the API, and not the id of a response
		{"GET /v1/responses/{id}", storedResponses.open(), o.Responses.Streamed(surface.Admitted(o.Responses.Get))},
		{"DELETE /v1/responses/{id}", storedResponses, surface.Admitted(o.Responses.Delete)},
		{"GET /v1/responses/{id}/input_items", storedResponses, surface.Admitted(o.Responses.InputItems)},
		{"POST /v1/conversations", storedResponses, surface.Admitted(o.Responses.CreateConversation)},
		{"GET /v1/conversations/{id}", storedResponses, surface.Admitted(o.Responses.GetConversation)},
		{"POST /v1/conversations/{id}", storedResponses, surface.Admitted(o.Responses.UpdateConversation)},
		{"DELETE /v1/conversations/{id}", storedResponses, surface.Admitted(o.Responses.DeleteConversation)},
		{"GET /v1/conversations/{id}/items", storedResponses, surface.Admitted(o.Responses.ListItems)},
		{"POST /v1/conversations/{id}/items", storedResponses, surface.Admitted(o.Responses.AddItems)},
		{"GET /v1/conversations/{id}/items/{item}", storedResponses, surface.Admitted(o.Responses.GetItem)},
		{"DELETE /v1/conversations/{id}/items/{item}", storedResponses, surface.Admitted(o.Responses.DeleteItem)},
		{"GET /v1/models", models, c.ServeModels},
		{"GET /v1/models/{model...}", models, c.ServeModel},

		{"GET /v1/runs", stored.by(runReaders), surface.Admitted(rs.List)},
		{"GET /v1/runs/{id}", stored.by(runReaders), surface.Admitted(rs.Get)},
		{"GET /v1/runs/{id}/events", stored.by(runReaders).open(), rs.Events(stored.errors)},
		{"POST /v1/runs/{id}/cancel", stored, surface.Admitted(rs.Cancel)},
		{"POST /api/runs/{id}/cancel", storedAdmin, surface.Admitted(rs.Cancel)},

		{"GET /v1/approvals", approve.by(waitReaders).open(), as.List},
		{"GET /v1/approvals/{id}", approve.by(waitReaders), surface.Admitted(as.Get)},
		{"POST /v1/approvals/{id}", approve, surface.Admitted(as.Decide)},

		{"GET /api/org", manage.by(readers), m.GetOrg()},
		{"PATCH /api/org/runtime", manage, m.PatchRuntime()},
		{"GET /api/keys", manage.by(readers), m.ListKeys()},
		{"POST /api/keys", manage, m.CreateKey()},
		{"PATCH /api/keys/{id}", manage, m.PatchKey()},
		{"DELETE /api/keys/{id}", manage, m.RevokeKey()},
		{"POST /api/keys/{id}/rotate", manage, m.RotateKey()},
		{"GET /api/mcp-servers", manage.by(readers), m.ListServers()},
		{"POST /api/mcp-servers", manage, m.CreateServer()},
		{"GET /api/mcp-servers/{name}", manage.by(readers), m.GetServer()},
		{"PATCH /api/mcp-servers/{name}", manage, m.PatchServer()},
		{"DELETE /api/mcp-servers/{name}", manage, m.DeleteServer()},
		{"GET /api/secrets", manage, m.ListSecrets()},
		{"PUT /api/secrets/{name}", manage, m.PutSecret()},
		{"DELETE /api/secrets/{name}", manage, m.DeleteSecret()},
		{"GET /api/routes", manage.by(readers), m.ListRoutes()},
		{"GET /api/budgets", manage.by(readers), m.ListBudgets()},
		{"GET /api/usage", manage.by(readers), m.ListUsage()},
		{"GET /api/audit", manage.by(readers), m.ListAudit()},
		{"GET /api/audit/export", manage.by(readers).open(), m.ExportAudit()},
		{"GET /api/orgs", operator, m.ListOrgs()},
		{"POST /api/orgs", operator, m.CreateOrg()},
		{"PATCH /api/orgs/{org}", operator, m.PatchOrg()},
		{"DELETE /api/orgs/{org}", operator, m.DeleteOrg()},
		{"POST /api/orgs/{org}/keys", operator, m.CreateOrgKey()},

		// Unknown paths. "/api" prevents that http.ServeMux redirects it to "/api/".
		{"/api/", manage, nil},
		{"/api", stored, nil},
		{"/", stored, nil},
	}
}

// routes finds the routes of requests. The zero value has none.
type routes struct {
	mux       *http.ServeMux
	byPattern map[string]route
}

// newRoutes registers the routes of a table with their handlers.
func newRoutes(table []route, handler func(route) http.HandlerFunc) routes {
	rs := routes{http.NewServeMux(), map[string]route{}}
	for _, rt := range table {
		rs.mux.HandleFunc(rt.pattern, handler(rt))
		rs.byPattern[rt.pattern] = rt
	}
	return rs
}

// find returns the route of a request. A route with a method and no endpoint is an unknown
// path. If the path has routes for other methods only, find returns one of these, and the
// methods of all. Requests outside the table, such as
// health checks, have the error format of unknown paths.
func (rs routes) find(r *http.Request) (rt route, methods []string) {
	rt, _ = rs.lookup(r, r.Method)
	if unknown := strings.Contains(rt.pattern, " "); unknown || rt.serve != nil {
		return rt, nil
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other, known := rs.lookup(r, method)
		if other.serve != nil {
			rt = other
		}
		if known {
			methods = append(methods, method)
		}
	}
	return rt, methods
}

// lookup returns the route for the path of a request and a method, and whether the path
// is known with the method.
func (rs routes) lookup(r *http.Request, method string) (rt route, known bool) {
	_, pattern := rs.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
	rt, listed := rs.byPattern[pattern]
	if !listed { // not in the table: a health check, for example
		return rs.byPattern["/"], pattern != ""
	}
	return rt, rt.serve != nil
}

// notFound answers requests without a route: 405 if the path exists with another
// method, otherwise 404.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	closeAfterResponse(w, r)
	rt, methods := a.find(r)
	err := fault.New(fault.NotFound, "not_found", "no route for %s %s; the API is POST /v1/chat/completions, POST /v1/responses, /v1/conversations, GET /v1/models, /v1/runs, /v1/approvals and /api (see /openapi.json)", r.Method, r.URL.Path)
	if len(methods) > 0 {
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		err = fault.New(fault.Method, "method_not_allowed", "%s does not support %s; use %s", r.URL.Path, r.Method, allow)
	}
	rt.errors.Write(w, err)
}

// refuse answers a request with an error that is found before its route is called, in
// the format of the route.
func (rs routes) refuse(w http.ResponseWriter, r *http.Request, err error) {
	rt, _ := rs.find(r)
	rt.errors.Write(w, err)
}
