// Package httpd is the HTTP edge: it serves the routes of the surfaces, with authentication,
// authorisation, and the server's own limits.
package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Directory authenticates keys. Package app implements it. Its methods are safe
// for concurrent use.
type Directory interface {
	// Authenticate returns the caller of a key, or false if the key is not valid.
	Authenticate(ctx context.Context, key string) (caller.Caller, bool)
	// IsOperator reports whether key is the operator's key.
	IsOperator(key string) bool
	// Gone returns why a principal that Authenticate has returned before is none any more:
	// loop.KeyRevoked or loop.Deleted; "" if it still is one.
	Gone(orgID, principal string) string
}

// Options configure the [API]. Directory, Routes, Document and Health are required.
type Options struct {
	Directory Directory

	// Routes are the routes of all surfaces. One is for "/": other paths get errors in
	// its format.
	Routes []surface.Route
	// Document answers GET /openapi.json, without authentication.
	Document http.HandlerFunc

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

	// Memory is charged for the memory that requests retain. Nil uses one with
	// default limits.
	Memory *memlimit.Limiter

	// Out returns an error if requests are refused, other than health checks, because the process may not have
	// the settings that hold. It is called for every request. Nil means never.
	Out func() error
	// Settle returns when every replica obeys the changes that this process has stored, or when ctx ends.
	// Changes are answered after it. Nil = there are no others.
	Settle func(ctx context.Context)
	// Living returns the number of living replicas, which share the rate limits. Nil = there is one.
	Living func() int

	// Overload returns why no model request can be taken at the moment, in words
	// for the client, or "". It is called for every model request. Nil means never.
	Overload func(org string) string

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
	o     Options
	ready atomic.Bool
	routes
	crossOrigin http.CrossOriginProtection
	leaving     atomic.Bool // it takes requests, and /readyz says that it stops
	inFlight    inFlightCounter
	open        openRequests
	logSource   uintptr // see logSource
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
		o.Overload = func(string) string { return "" }
	}
	if o.Memory == nil {
		o.Memory = memlimit.New(memlimit.Options{})
	}
	a := &API{o: o, logSource: logSource(), admission: newAdmission(o)}
	for _, origin := range o.Origins {
		if err := a.crossOrigin.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	a.routes = newRoutes(o.Routes, a.authorize)
	a.mux.HandleFunc("GET /openapi.json", o.Document)
	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)
	return a, nil
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setRequestID(w.Header())
	ctx := r.Context()
	if a.o.Trace != nil {
		ctx = a.o.Trace(ctx, r.Header)
	}
	a.withLog(ctx, w, r, a.dispatch)
}

// dispatch makes the checks that apply to every request and calls its route.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if !isProbe(r) {
		if !a.inFlight.begin() {
			closeAfterResponse(w, r)
			a.refuse(w, r, stoppingError())
			return
		}
		defer a.inFlight.end()
	}
	if a.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	a.setBodyDeadline(w, r)
	err := a.checkRequest(r)
	if err == nil && a.o.Out != nil && !isProbe(r) {
		err = a.o.Out()
	}
	if err != nil {
		closeAfterResponse(w, r)
		a.refuse(w, r, err)
		return
	}
	a.of(r.URL.Path).ServeHTTP(w, r)
}

// requestIDHeader carries the request id in every response.
const requestIDHeader = "Turnpike-Request-Id"

// setRequestID sets the request id under Turnpike's header and under the usual one.
// A relayed response may replace the latter with the provider's.
func setRequestID(h http.Header) {
	name := []string{id.NewOrdered("req_")}
	h[requestIDHeader] = name[:1:1] // the keys are in canonical form
	h["X-Request-Id"] = name[:1:1]
}

// setSecurityHeaders sets headers that stop browsers and caches from interpreting, storing
// or framing a response. A relayed response replaces them with the provider's.
func setSecurityHeaders(h http.Header) {
	h["X-Content-Type-Options"] = noSniff // the keys are in canonical form
	h["Cache-Control"] = noStore
	h["Content-Security-Policy"] = noContent
}

// Values of header fields, shared by all responses. They are never modified: Set
// replaces a value, and Add copies it because it has no spare capacity.
var (
	noSniff   = []string{"nosniff"}
	noStore   = []string{"no-store"}
	noContent = []string{"default-src 'none'; frame-ancestors 'none'"}
)

// SetReady sets what /readyz answers.
func (a *API) SetReady(ready bool) { a.ready.Store(ready) }

// Refuse refuses new requests from now on. It returns a channel that is closed when those in progress have
// ended.
func (a *API) Refuse() (idle <-chan struct{}) { return a.inFlight.stop() }

func (a *API) healthz(w http.ResponseWriter, _ *http.Request) { writeStatus(w, http.StatusOK, "ok") }

func (a *API) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.leaving.Load() || a.inFlight.stopping() {
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

// closeAfterResponse marks a request whose body will not be read: the connection is closed
// after the response, so the server does not wait for the body.
func closeAfterResponse(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// authorize returns the handler of a route: it authenticates the caller, checks the role
// and the rate limits, and calls the endpoint. It is the only place where a key of an
// org becomes a caller.
func (a *API) authorize(rt surface.Route) http.HandlerFunc {
	switch {
	case rt.Serve == nil:
		return a.notFound
	case rt.Roles == surface.Operator:
		return a.authorizeOperator(rt)
	}
	serve := a.answering(rt)
	if rt.Roles == surface.Signed {
		return func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, caller.Caller{}, rt, serve) }
	}
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.caller(r)
		noteCaller(w, caller)
		if err == nil {
			err = checkContentType(r, rt)
		}
		if err == nil && rt.ChecksOrigin {
			err = a.checkOriginAs(r, http.MethodPost)
		}
		if err == nil && !rt.Roles.Allow(caller.Principal.Role) {
			err = fault.New(fault.Forbidden, "role_not_allowed",
				"a key with the role %s cannot do this; use a key with the role %s", caller.Principal.Role, rt.Roles)
		}
		if err == nil && rt.ModelAPI {
			err = checkSettings(caller)
		}
		if err == nil {
			err = a.checkRate(w, r, caller, rt.ModelAPI)
		}
		if err == nil && rt.StaysOpen {
			ctx, done := a.open.add(w, r, caller)
			defer done()
			r = r.WithContext(ctx)
			_, err = a.caller(r) // the key may have been revoked since
		}
		if err != nil {
			closeAfterResponse(w, r)
			rt.Errors.Write(w, err)
			return
		}
		a.serve(w, r, caller, rt, serve)
	}
}

// answering returns a handler that calls the endpoint of the route, within the limits of
// model requests if it is one, and answers with its error.
func (a *API) answering(rt surface.Route) handler {
	serve := rt.Serve
	if rt.CallsModel {
		serve = a.limitInFlight(serve)
	}
	answer := func(w http.ResponseWriter, r *http.Request, caller caller.Caller) {
		if err := serve(w, r, caller); err != nil {
			rt.Errors.Write(w, err)
		}
	}
	if rt.CallsModel {
		return a.throttleRefusals(answer)
	}
	return answer
}

// handler answers one request of an authenticated caller.
type handler func(http.ResponseWriter, *http.Request, caller.Caller)

// checkSettings refuses model requests of an org whose stored settings this version
// does not support. The settings may be safety limits, so they are not ignored.
func checkSettings(caller caller.Caller) error {
	if caller.Org.Unsupported == "" {
		return nil
	}
	return fault.New(fault.Unavailable, "settings_not_supported", "the org's stored settings are not supported by this version of the gateway (%s); "+
		"an owner or admin can change them with PATCH /api/org/runtime", caller.Org.Unsupported)
}

// serve calls the handler with a limited body and an open account.
func (a *API) serve(w http.ResponseWriter, r *http.Request, caller caller.Caller, rt surface.Route, serve handler) {
	caller.RequestID = w.Header().Get(requestIDHeader)
	caller.Account, caller.Admission = a.o.Memory.Open(orgOf(caller)), &a.store
	defer caller.Account.Close()
	account := caller.Account
	if rt.Spools {
		account = nil
	}
	body := a.limitBody(w, r, rt.MaxBody, account)
	serve(w, r, caller)
	body.drainRefused(r.Header.Get("Expect") != "")
}

// orgOf returns the org whose account is charged; "" for the operator.
func orgOf(caller caller.Caller) string {
	if caller.Org == nil {
		return ""
	}
	return caller.Org.ID
}

// caller authenticates the request's key.
func (a *API) caller(r *http.Request) (caller.Caller, error) {
	key, err := bearer(r.Header.Get("Authorization"))
	if err != nil {
		return caller.Caller{}, err
	}
	found, ok := a.o.Directory.Authenticate(r.Context(), key)
	switch {
	case ok && found.Principal.Expired(clock.Wall()):
		return caller.Caller{}, expiredKey(found.Principal)
	case ok:
		return found, nil
	case a.o.Directory.IsOperator(key):
		return caller.Caller{}, fault.New(fault.Unauthorized, "invalid_api_key", "the operator_key is valid only for /api/orgs; use an API key of an org")
	}
	return caller.Caller{}, unknownKey()
}

// authorizeOperator returns the handler of a route for the operator.
func (a *API) authorizeOperator(rt surface.Route) http.HandlerFunc {
	serve := a.answering(rt)
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := bearer(r.Header.Get("Authorization"))
		isOperator := err == nil && a.o.Directory.IsOperator(key)
		if isOperator {
			noteCaller(w, caller.Caller{Principal: org.Principal{ID: "operator"}})
			err = checkContentType(r, rt)
		}
		switch {
		case isOperator && err == nil:
			a.serve(w, r, caller.Caller{}, rt, serve)
			return
		case err == nil:
			err = unknownKey()
			if _, known := a.o.Directory.Authenticate(r.Context(), key); known {
				err = fault.New(fault.Forbidden, "role_not_allowed", "only the operator can do this, with the operator_key of the configuration")
			}
		}
		closeAfterResponse(w, r)
		rt.Errors.Write(w, err)
	}
}

func expiredKey(p org.Principal) error {
	return fault.New(fault.Unauthorized, "key_expired", "this API key expired at %s; an owner or admin of the org can create a new one, or set expires_at of this key "+
		"(the old secret of a rotated key stays expired)", p.ExpiresAt.UTC().Format(time.RFC3339))
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
