// Package endpoints is the surface of the endpoints of the OpenAI API that the gateway passes on
// to a provider: embeddings, pictures, speech, moderations and legacy completions.
//
//	POST /v1/embeddings ─► surface.Relay: body into the spool, model, targets ─► run.Runner ─► the provider
//
// They have what a relayed chat request has: keys, limits, budgets, routes, audit and metrics.
// /v1/batches is refused: all orgs share the provider's key, and so would see each other's batches.
package endpoints

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/spool"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// All returns what is relayed.
func All() []surface.Relayed {
	return []surface.Relayed{
		{Path: "/completions", Tells: true},
		{Path: "/embeddings", NoOutput: true},
		{Path: "/moderations", NoOutput: true},
		{Path: "/images/generations"},
		{Path: "/images/edits", Form: true},
		{Path: "/audio/speech"},
		{Path: "/audio/transcriptions", Form: true, Tells: true},
		{Path: "/audio/translations", Form: true, Tells: true},
	}
}

// Paths returns the paths of what is relayed.
func Paths() (paths []string) {
	for _, x := range All() {
		paths = append(paths, "/v1"+x.Path)
	}
	return paths
}

// Handler serves the endpoints.
type Handler struct {
	options surface.Options
	bodies  *spool.Spool
}

// New returns a handler that keeps bodies in the spool while their requests are served.
func New(o surface.Options, bodies *spool.Spool) *Handler { return &Handler{o, bodies} }

// Routes returns the routes of the API. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	requests := surface.ModelRequests(surface.EndpointErrors())
	requests.Forms, requests.Spools = true, true
	refused := surface.Group{Errors: requests.Errors, Roles: surface.Runners, MaxBody: surface.MaxManagementBody, Forms: true}
	var out []surface.Route
	for _, x := range All() {
		var serve surface.Endpoint
		if h != nil {
			requests.MaxBody = h.bodies.MaxBody()
			serve = surface.Relay(h.options, h.bodies, x)
		}
		out = append(out, requests.Route("POST /v1"+x.Path, serve))
	}
	for _, path := range []string{"/v1/batches", "/v1/batches/"} {
		out = append(out, refused.Route(path, refuse))
	}
	return out
}

// refuse answers requests for what is not relayed, because the batches of an org must not be those of
// another one.
func refuse(_ http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	return fault.New(fault.NotFound, "not_relayed", "%s is not relayed: all orgs of the gateway share the provider's key, and would see each other's batches; "+
		"use the provider's API with a key of your own", r.URL.Path)
}
