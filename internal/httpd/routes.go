// Package httpd is the HTTP edge: every route on one page, who may use it, and
// the server's own limits.
package httpd

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
)

// Directory knows the keys. Implemented by package app.
type Directory interface {
	// Authenticate returns who presents the key, or false.
	Authenticate(key string) (run.Caller, bool)
}

// Options are what the routes need; all are required.
type Options struct {
	Directory Directory
	Chat      *chat.Handler
}

// API is the gateway's HTTP interface.
type API struct {
	o     Options
	ready atomic.Bool
	mux   *http.ServeMux
}

// New returns the API. It is not ready yet.
func New(o Options) *API {
	a := &API{o: o, mux: http.NewServeMux()}
	a.routes()
	return a
}

// routes is the whole API.
func (a *API) routes() {
	a.mux.HandleFunc("POST /v1/chat/completions", a.as(org.Role.MayRun, a.o.Chat.Serve))
	a.mux.HandleFunc("GET /v1/models", a.as(anyone, a.o.Chat.ServeModels))
	a.mux.HandleFunc("GET /v1/models/{model...}", a.as(anyone, a.o.Chat.ServeModel))

	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)

	a.mux.HandleFunc("/v1/chat/completions", only("POST"))
	a.mux.HandleFunc("/v1/models", only("GET"))
	a.mux.HandleFunc("/", notFound)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// SetReady says whether the gateway takes work.
func (a *API) SetReady(ready bool) { a.ready.Store(ready) }

func (a *API) healthz(w http.ResponseWriter, _ *http.Request) { status(w, http.StatusOK, "ok") }

func (a *API) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready.Load() {
		status(w, http.StatusServiceUnavailable, "not ready")
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

// as lets a request through to serve if its key is known and its role may.
func (a *API) as(may func(org.Role) bool, serve func(http.ResponseWriter, *http.Request, run.Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := bearer(r.Header.Get("Authorization"))
		if err != nil {
			chat.WriteError(w, err)
			return
		}
		caller, ok := a.o.Directory.Authenticate(key)
		switch {
		case !ok:
			chat.WriteError(w, fault.New(fault.Unauthorized, "invalid_api_key", "the API key is not known here"))
		case !may(caller.Principal.Role):
			chat.WriteError(w, fault.New(fault.Forbidden, "role_not_allowed",
				"a key with the role %s may not do this; owner, admin and member may", caller.Principal.Role))
		default:
			serve(w, r, caller)
		}
	}
}

func bearer(authorization string) (string, error) {
	scheme, key, _ := strings.Cut(authorization, " ")
	if key = strings.TrimSpace(key); !strings.EqualFold(scheme, "Bearer") || key == "" {
		return "", fault.New(fault.Unauthorized, "invalid_api_key", "no API key: send the header \"Authorization: Bearer KEY\"")
	}
	return key, nil
}

func notFound(w http.ResponseWriter, r *http.Request) {
	chat.WriteError(w, fault.New(fault.NotFound, "not_found", "there is no %s %s here; the API is POST /v1/chat/completions, GET /v1/models", r.Method, r.URL.Path))
}

func only(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		chat.WriteError(w, fault.New(fault.Method, "method_not_allowed", "%s takes %s, not %s", r.URL.Path, method, r.Method))
	}
}
