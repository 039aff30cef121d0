// Package httpd is the HTTP edge: every route on one page, who may use it, and
// the server's own limits.
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

// Directory knows the keys. Implemented by package app.
type Directory interface {
	// Authenticate returns who presents the key, or false.
	Authenticate(key string) (run.Caller, bool)
	// IsOperator reports whether the key is the operator's.
	IsOperator(key string) bool
}

// Options are what the routes need.
type Options struct {
	Directory Directory
	Chat      *chat.Handler
	Admin     *admin.Handler

	// Health says what keeps the gateway from taking work, or nil.
	Health func() error

	// Loopback says that only this machine can reach the gateway. Names that are
	// neither this machine's nor among Hosts are then refused.
	Loopback bool
	// Hosts are the names that the gateway is known by, in lower case and
	// without ports; with at least one, others are refused.
	Hosts []string
	// Origins are the sites whose pages may send what changes something, such as
	// https://app.example.com; nil = the gateway's own.
	Origins []string

	Limits Limits

	// Ledger is charged with what requests make the gateway retain; nil = one
	// with its default bounds.
	Ledger *ledger.Ledger

	// Overload says why no more requests for a model can be taken at the moment,
	// in words for their senders; "" = they can, as does nil. It is asked for each
	// of them.
	Overload func() string

	// Refuse says why no requests for a model are accepted at the moment, whatever
	// the load; nil = they are. It is asked for each of them.
	Refuse func() error

	// Log takes one line for each request, of the level info; nil = none is
	// written.
	Log *slog.Logger
	// Refused is told of each request that is answered with an error and has begun no
	// run: its org, "" where that is not known, and the error's code. Nil = nobody is.
	Refused func(org, code string)
	// Trace returns the context with the trace that a request's header names;
	// nil = there are no traces.
	Trace func(context.Context, http.Header) context.Context
}

// API is the gateway's HTTP interface.
type API struct {
	o     Options
	ready atomic.Bool
	mux   *http.ServeMux
	sites http.CrossOriginProtection
	under inFlight
	admission
}

// New returns the API. It is not ready yet. An origin that is none is an error.
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
		if err := a.sites.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	a.routes()
	return a, nil
}

// routes is the whole API.
func (a *API) routes() {
	a.mux.HandleFunc("POST /v1/chat/completions", a.as(org.Role.MayRun, a.calmly(a.unladen(a.o.Chat.Serve))))
	a.mux.HandleFunc("GET /v1/models", a.as(anyone, a.o.Chat.ServeModels))
	a.mux.HandleFunc("GET /v1/models/{model...}", a.as(anyone, a.o.Chat.ServeModel))

	m := a.o.Admin
	a.mux.HandleFunc("GET /api/org", a.managed(m.GetOrg()))
	a.mux.HandleFunc("PATCH /api/org/runtime", a.managed(m.PatchRuntime()))
	a.mux.HandleFunc("GET /api/keys", a.managed(m.ListKeys()))
	a.mux.HandleFunc("POST /api/keys", a.managed(m.CreateKey()))
	a.mux.HandleFunc("PATCH /api/keys/{id}", a.managed(m.PatchKey()))
	a.mux.HandleFunc("DELETE /api/keys/{id}", a.managed(m.RevokeKey()))
	a.mux.HandleFunc("GET /api/mcp-servers", a.managed(m.ListServers()))
	a.mux.HandleFunc("POST /api/mcp-servers", a.managed(m.CreateServer()))
	a.mux.HandleFunc("GET /api/mcp-servers/{name}", a.managed(m.GetServer()))
	a.mux.HandleFunc("PATCH /api/mcp-servers/{name}", a.managed(m.PatchServer()))
	a.mux.HandleFunc("DELETE /api/mcp-servers/{name}", a.managed(m.DeleteServer()))
	a.mux.HandleFunc("GET /api/secrets", a.managed(m.ListSecrets()))
	a.mux.HandleFunc("PUT /api/secrets/{name}", a.managed(m.PutSecret()))
	a.mux.HandleFunc("DELETE /api/secrets/{name}", a.managed(m.DeleteSecret()))
	a.mux.HandleFunc("POST /api/runs/{id}/cancel", a.managed(m.CancelRun()))
	a.mux.HandleFunc("GET /api/audit", a.managed(m.ListAudit()))
	a.mux.HandleFunc("GET /api/audit/export", a.managed(m.ExportAudit()))
	a.mux.HandleFunc("GET /api/orgs", a.operated(m.ListOrgs()))
	a.mux.HandleFunc("POST /api/orgs", a.operated(m.CreateOrg()))
	a.mux.HandleFunc("PATCH /api/orgs/{org}", a.operated(m.PatchOrg()))
	a.mux.HandleFunc("DELETE /api/orgs/{org}", a.operated(m.DeleteOrg()))
	a.mux.HandleFunc("POST /api/orgs/{org}/keys", a.operated(m.CreateOrgKey()))
	a.mux.HandleFunc("GET /openapi.json", admin.ServeDocument)

	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)

	a.mux.HandleFunc("/", a.elsewhere)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	identify(w.Header())
	if a.o.Trace != nil {
		r = r.WithContext(a.o.Trace(r.Context(), r.Header))
	}
	a.logged(w, r, a.answer)
}

// answer lets a request that can be let in through to its route.
func (a *API) answer(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if !isProbe(r) {
		if !a.under.enter() {
			unread(w, r)
			refuse(w, r, stoppingError())
			return
		}
		defer a.under.leave()
	}
	a.await(w, r)
	if err := a.admit(r); err != nil {
		unread(w, r)
		refuse(w, r, err)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// requestIDHeader names the request, in every answer and in the log.
const requestIDHeader = "Turnpike-Request-Id"

// identify gives the request an id, under our name for it and under the usual one,
// which the answer of a provider may replace.
func identify(h http.Header) {
	name := id.NewOrdered("req_")
	h.Set(requestIDHeader, name)
	h.Set("X-Request-Id", name)
}

// protect tells browsers and caches to do nothing with an answer of ours but
// hand it over. A relayed answer has the header that its provider gave it.
func protect(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// SetReady says whether the gateway takes work.
func (a *API) SetReady(ready bool) { a.ready.Store(ready) }

func (a *API) healthz(w http.ResponseWriter, _ *http.Request) { status(w, http.StatusOK, "ok") }

func (a *API) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.under.stopping() {
		status(w, http.StatusServiceUnavailable, "stopping")
		return
	}
	if !a.ready.Load() {
		status(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	if err := a.o.Health(); err != nil { // the log says more
		why := "the store cannot be written"
		if f := (*fault.Error)(nil); errors.As(err, &f) {
			why = f.Message
		}
		status(w, http.StatusServiceUnavailable, "not ready: "+why)
		return
	}
	status(w, http.StatusOK, "ready")
}

func status(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}

func anyone(org.Role) bool { return true }

// unread says that the body of the request will not be read: the answer does
// not wait for it, and a client that was refused holds nothing.
func unread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// as lets a request to the model API through to serve if its key is known and
// its role may.
func (a *API) as(may func(org.Role) bool, serve admin.Endpoint) http.HandlerFunc {
	return a.guarded(door{may, "owner, admin or member", chat.MaxBody, true, chat.WriteError}, serve)
}

// managed lets owners and admins of an org through.
func (a *API) managed(serve admin.Endpoint) http.HandlerFunc {
	return a.guarded(door{org.Role.MayManage, "owner or admin", admin.MaxBody, false, admin.WriteError}, serve)
}

// door is what stands before the endpoints of an API.
type door struct {
	may     func(org.Role) bool
	who     string // those roles, in words
	maxBody int64  // bytes
	model   bool   // what comes in counts for the rate of its org
	write   func(http.ResponseWriter, error)
}

// guarded is the one place where a key becomes a caller. Refusals are written in
// the form of the API that was asked.
func (a *API) guarded(d door, serve admin.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.caller(r)
		by(w, caller)
		if err == nil && !d.may(caller.Principal.Role) {
			err = fault.New(fault.Forbidden, "role_not_allowed",
				"a key with the role %s cannot do this; use a key with the role %s", caller.Principal.Role, d.who)
		}
		if err == nil && d.model {
			err = servable(caller)
		}
		if err == nil {
			err = a.withinRate(w, r, caller, d.model)
		}
		if err != nil {
			unread(w, r)
			d.write(w, err)
			return
		}
		a.serve(w, r, caller, d.maxBody, serve)
	}
}

// servable refuses what an org asks of a model while its settings ask for what
// this version cannot do: they may be there for safety.
func servable(caller run.Caller) error {
	if caller.Org.Refused == "" {
		return nil
	}
	return fault.New(fault.Unavailable, "settings_not_supported", "the stored settings of the org ask for something that this version of the gateway cannot do (%s); "+
		"an owner or admin changes them with PATCH /api/org/runtime", caller.Org.Refused)
}

// serve answers a caller who may ask.
func (a *API) serve(w http.ResponseWriter, r *http.Request, caller run.Caller, maxBody int64, serve admin.Endpoint) {
	caller.RequestID = w.Header().Get(requestIDHeader)
	caller.Account = a.o.Ledger.Open(orgOf(caller))
	defer caller.Account.Close()
	bounded, body := a.newBody(w, r, maxBody, caller.Account)
	serve(w, bounded, caller)
	body.linger(r.Header.Get("Expect") != "")
}

// orgOf returns whose account a request is charged to; empty for the operator's.
func orgOf(caller run.Caller) string {
	if caller.Org == nil {
		return ""
	}
	return caller.Org.ID
}

// caller returns who presents the request's key.
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

// operated lets the operator through.
func (a *API) operated(serve admin.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := bearer(r.Header.Get("Authorization"))
		_, known := a.o.Directory.Authenticate(key)
		if err == nil && a.o.Directory.IsOperator(key) {
			by(w, run.Caller{Principal: org.Principal{ID: "operator"}})
			a.serve(w, r, run.Caller{}, admin.MaxBody, serve)
			return
		}
		unread(w, r)
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

// elsewhere answers what no route does: another method of a path that is there,
// or nothing that is.
func (a *API) elsewhere(w http.ResponseWriter, r *http.Request) {
	unread(w, r)
	err := fault.New(fault.NotFound, "not_found", "there is no %s %s here; the API is POST /v1/chat/completions, GET /v1/models and /api (see /openapi.json)", r.Method, r.URL.Path)
	if methods := a.methods(r); len(methods) > 0 {
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		err = fault.New(fault.Method, "method_not_allowed", "%s takes %s, not %s", r.URL.Path, allow, r.Method)
	}
	refuse(w, r, err)
}

// refuse answers with err in the form of the API that was asked.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		admin.WriteError(w, err)
		return
	}
	chat.WriteError(w, err)
}

// methods returns what the path of the request may be asked with.
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
