// Package httpd is the HTTP edge: the routes, authentication and authorisation,
// and the server's own limits.
package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
)

// Directory authenticates keys. Package app implements it. Its methods are safe
// for concurrent use.
type Directory interface {
	// Authenticate returns the caller of a key, or false if the key is not valid.
	Authenticate(key string) (run.Caller, bool)
	// IsOperator reports whether key is the operator's key.
	IsOperator(key string) bool
}

// Options configure the [API]. Directory, Chat, Admin and Health are required.
type Options struct {
	Directory Directory
	Chat      *chat.Handler
	Admin     *admin.Handler

	// Health returns why the gateway cannot take work, or nil.
	Health func() error

	// Loopback says that only this machine can reach the gateway. Host names that
	// are neither this machine's nor in Hosts are then refused.
	Loopback bool
	// Hosts are the gateway's own names, in lower case and without ports. If it
	// is not empty, other names are refused.
	Hosts []string
	// Origins are additional sites whose pages may send requests that change
	// something, such as https://app.example.com. Empty allows only the gateway's
	// own origin.
	Origins []string

	Limits Limits

	// Ledger is charged for the memory that requests retain. Nil uses one with
	// default limits.
	Ledger *ledger.Ledger

	// Overload returns why no model request can be taken at the moment, in words
	// for the client, or "". It is called for every model request. Nil means never.
	Overload func() string

	// Refuse returns an error if model requests are refused for a reason other
	// than load. It is called for every model request. Nil means never.
	Refuse func() error

	// Log receives one line per request at level info. Nil writes none.
	Log *slog.Logger
	// OnRefused is called for each request that is answered with an error and has
	// started no run, with the org ("" if unknown) and the error's code. Nil means
	// no call.
	OnRefused func(org, code string)
	// Trace returns ctx with the trace context from the request's header. Nil
	// disables tracing.
	Trace func(context.Context, http.Header) context.Context
}

// API is the gateway's HTTP interface.
type API struct {
	o           Options
	ready       atomic.Bool
	mux         *http.ServeMux
	crossOrigin http.CrossOriginProtection
	inFlight    inFlightCounter
	admission
}

// New returns the API, which is not ready yet. It returns an error if an entry of
// [Options.Origins] is not a valid origin.
func New(o Options) (*API, error) {
	o.Limits = o.Limits.withDefaults()
	if o.Refuse == nil {
		o.Refuse = func() error { return nil }
	}
	if o.Overload == nil {
		o.Overload = func() string { return "" }
	}
	if o.Ledger == nil {
		o.Ledger = ledger.New(ledger.Options{})
	}
	a := &API{o: o, mux: http.NewServeMux(), admission: newAdmission(o.Limits.Requests)}
	for _, origin := range o.Origins {
		if err := a.crossOrigin.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	a.routes()
	return a, nil
}

// routes registers every route of the API.
func (a *API) routes() {
	a.mux.HandleFunc("POST /v1/chat/completions", a.modelRoute(org.Role.MayRun, a.throttleRefusals(a.limitInFlight(a.o.Chat.Serve))))
	a.mux.HandleFunc("GET /v1/models", a.modelRoute(anyRole, a.o.Chat.ServeModels))
	a.mux.HandleFunc("GET /v1/models/{model...}", a.modelRoute(anyRole, a.o.Chat.ServeModel))

	m := a.o.Admin
	a.mux.HandleFunc("GET /api/org", a.managementRoute(m.GetOrg()))
	a.mux.HandleFunc("PATCH /api/org/runtime", a.managementRoute(m.PatchRuntime()))
	a.mux.HandleFunc("GET /api/keys", a.managementRoute(m.ListKeys()))
	a.mux.HandleFunc("POST /api/keys", a.managementRoute(m.CreateKey()))
	a.mux.HandleFunc("PATCH /api/keys/{id}", a.managementRoute(m.PatchKey()))
	a.mux.HandleFunc("DELETE /api/keys/{id}", a.managementRoute(m.RevokeKey()))
	a.mux.HandleFunc("GET /api/mcp-servers", a.managementRoute(m.ListServers()))
	a.mux.HandleFunc("POST /api/mcp-servers", a.managementRoute(m.CreateServer()))
	a.mux.HandleFunc("GET /api/mcp-servers/{name}", a.managementRoute(m.GetServer()))
	a.mux.HandleFunc("PATCH /api/mcp-servers/{name}", a.managementRoute(m.PatchServer()))
	a.mux.HandleFunc("DELETE /api/mcp-servers/{name}", a.managementRoute(m.DeleteServer()))
	a.mux.HandleFunc("GET /api/secrets", a.managementRoute(m.ListSecrets()))
	a.mux.HandleFunc("PUT /api/secrets/{name}", a.managementRoute(m.PutSecret()))
	a.mux.HandleFunc("DELETE /api/secrets/{name}", a.managementRoute(m.DeleteSecret()))
	a.mux.HandleFunc("POST /api/runs/{id}/cancel", a.managementRoute(m.CancelRun()))
	a.mux.HandleFunc("GET /api/audit", a.managementRoute(m.ListAudit()))
	a.mux.HandleFunc("GET /api/audit/export", a.managementRoute(m.ExportAudit()))
	a.mux.HandleFunc("GET /api/orgs", a.operatorRoute(m.ListOrgs()))
	a.mux.HandleFunc("POST /api/orgs", a.operatorRoute(m.CreateOrg()))
	a.mux.HandleFunc("PATCH /api/orgs/{org}", a.operatorRoute(m.PatchOrg()))
	a.mux.HandleFunc("DELETE /api/orgs/{org}", a.operatorRoute(m.DeleteOrg()))
	a.mux.HandleFunc("POST /api/orgs/{org}/keys", a.operatorRoute(m.CreateOrgKey()))
	a.mux.HandleFunc("GET /openapi.json", admin.ServeDocument)

	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)

	a.mux.HandleFunc("/", a.notFound)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setRequestID(w.Header())
	if a.o.Trace != nil {
		r = r.WithContext(a.o.Trace(r.Context(), r.Header))
	}
	a.withLog(w, r, a.dispatch)
}

// dispatch makes the checks that apply to every request and calls its route.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if !isProbe(r) {
		if !a.inFlight.begin() {
			closeAfterResponse(w, r)
			refuse(w, r, stoppingError())
			return
		}
		defer a.inFlight.end()
	}
	a.setBodyDeadline(w, r)
	if err := a.checkRequest(r); err != nil {
		closeAfterResponse(w, r)
		refuse(w, r, err)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// requestIDHeader carries the request id in every response.
const requestIDHeader = "Turnpike-Request-Id"

// setRequestID sets the request id under Turnpike's header and under the usual one.
// A relayed response may replace the latter with the provider's.
func setRequestID(h http.Header) {
	name := id.NewOrdered("req_")
	h.Set(requestIDHeader, name)
	h.Set("X-Request-Id", name)
}

// setSecurityHeaders sets headers that stop browsers and caches from interpreting, storing
// or framing a response. A relayed response replaces them with the provider's.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// SetReady sets what /readyz answers.
func (a *API) SetReady(ready bool) { a.ready.Store(ready) }

func (a *API) healthz(w http.ResponseWriter, _ *http.Request) { writeStatus(w, http.StatusOK, "ok") }

func (a *API) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.inFlight.stopping() {
		writeStatus(w, http.StatusServiceUnavailable, "stopping")
		return
	}
	if !a.ready.Load() {
		writeStatus(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	if err := a.o.Health(); err != nil { // the owner of Health logs the details
		why := "the store cannot be written"
		if f := (*fault.Error)(nil); errors.As(err, &f) {
			why = f.Message
		}
		writeStatus(w, http.StatusServiceUnavailable, "not ready: "+why)
		return
	}
	writeStatus(w, http.StatusOK, "ready")
}

func writeStatus(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}

func anyRole(org.Role) bool { return true }

// closeAfterResponse marks a request whose body will not be read: the connection is closed
// after the response, so the server does not wait for the body.
func closeAfterResponse(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// modelRoute returns a model API route for callers whose role satisfies may.
func (a *API) modelRoute(may func(org.Role) bool, serve admin.Endpoint) http.HandlerFunc {
	return a.authorize(routePolicy{may, "owner, admin or member", chat.MaxBody, true, chat.WriteError}, serve)
}

// managementRoute returns a management API route for owners and admins of an org.
func (a *API) managementRoute(serve admin.Endpoint) http.HandlerFunc {
	return a.authorize(routePolicy{org.Role.MayManage, "owner or admin", admin.MaxBody, false, admin.WriteError}, serve)
}

// routePolicy is the policy of a group of routes.
type routePolicy struct {
	allows     func(org.Role) bool
	roles      string                           // the allowed roles, for the error message
	maxBody    int64                            // bytes
	modelAPI   bool                             // a route of the model API: it counts for the rate limit of its org
	writeError func(http.ResponseWriter, error) // writes an error in the API's format
}

// authorize authenticates the caller, checks the role and the rate limits, and calls
// serve. It is the only place where a key of an org becomes a caller.
func (a *API) authorize(d routePolicy, serve admin.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.caller(r)
		noteCaller(w, caller)
		if err == nil && !d.allows(caller.Principal.Role) {
			err = fault.New(fault.Forbidden, "role_not_allowed",
				"a key with the role %s cannot do this; use a key with the role %s", caller.Principal.Role, d.roles)
		}
		if err == nil && d.modelAPI {
			err = checkSettings(caller)
		}
		if err == nil {
			err = a.checkRate(w, r, caller, d.modelAPI)
		}
		if err != nil {
			closeAfterResponse(w, r)
			d.writeError(w, err)
			return
		}
		a.serve(w, r, caller, d.maxBody, serve)
	}
}

// checkSettings refuses model requests of an org whose stored settings this version
// does not support. The settings may be safety limits, so they are not ignored.
func checkSettings(caller run.Caller) error {
	if caller.Org.Unsupported == "" {
		return nil
	}
	return fault.New(fault.Unavailable, "settings_not_supported", "the org's stored settings are not supported by this version of the gateway (%s); "+
		"an owner or admin can change them with PATCH /api/org/runtime", caller.Org.Unsupported)
}

// serve calls the endpoint with a limited body and an open account.
func (a *API) serve(w http.ResponseWriter, r *http.Request, caller run.Caller, maxBody int64, serve admin.Endpoint) {
	caller.RequestID = w.Header().Get(requestIDHeader)
	caller.Account = a.o.Ledger.Open(orgOf(caller))
	defer caller.Account.Close()
	bounded, body := a.newBody(w, r, maxBody, caller.Account)
	serve(w, bounded, caller)
	body.drainRefused(r.Header.Get("Expect") != "")
}

// orgOf returns the org whose account is charged; "" for the operator.
func orgOf(caller run.Caller) string {
	if caller.Org == nil {
		return ""
	}
	return caller.Org.ID
}

// caller authenticates the request's key.
func (a *API) caller(r *http.Request) (run.Caller, error) {
	key, err := bearer(r.Header.Get("Authorization"))
	if err != nil {
		return run.Caller{}, err
	}
	caller, ok := a.o.Directory.Authenticate(key)
	if !ok {
		return run.Caller{}, unknownKey()
	}
	return caller, nil
}

// operatorRoute returns a management API route for the operator.
func (a *API) operatorRoute(serve admin.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := bearer(r.Header.Get("Authorization"))
		_, known := a.o.Directory.Authenticate(key)
		if err == nil && a.o.Directory.IsOperator(key) {
			noteCaller(w, run.Caller{Principal: org.Principal{ID: "operator"}})
			a.serve(w, r, run.Caller{}, admin.MaxBody, serve)
			return
		}
		closeAfterResponse(w, r)
		switch {
		case err != nil:
			admin.WriteError(w, err)
		case known:
			admin.WriteError(w, fault.New(fault.Forbidden, "role_not_allowed", "only the operator can do this, with the operator_key of the configuration"))
		default:
			admin.WriteError(w, unknownKey())
		}
	}
}

func unknownKey() error {
	return fault.New(fault.Unauthorized, "invalid_api_key", "unknown API key; it may have been revoked")
}

func bearer(authorization string) (string, error) {
	scheme, key, _ := strings.Cut(authorization, " ")
	if key = strings.TrimSpace(key); !strings.EqualFold(scheme, "Bearer") || key == "" {
		return "", fault.New(fault.Unauthorized, "invalid_api_key", "no API key: send the header \"Authorization: Bearer KEY\"")
	}
	return key, nil
}

// notFound answers requests without a route: 405 if the path exists with another
// method, otherwise 404.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	closeAfterResponse(w, r)
	err := fault.New(fault.NotFound, "not_found", "no route for %s %s; the API is POST /v1/chat/completions, GET /v1/models and /api (see /openapi.json)", r.Method, r.URL.Path)
	if methods := a.methods(r); len(methods) > 0 {
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		err = fault.New(fault.Method, "method_not_allowed", "%s does not support %s; use %s", r.URL.Path, r.Method, allow)
	}
	refuse(w, r, err)
}

// refuse writes err in the error format of the API that the path belongs to.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		admin.WriteError(w, err)
		return
	}
	chat.WriteError(w, err)
}

// methods returns the methods that have a route for the request's path.
func (a *API) methods(r *http.Request) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := a.mux.Handler(other); pattern != "/" && pattern != "" {
			methods = append(methods, method)
		}
	}
	return methods
}
