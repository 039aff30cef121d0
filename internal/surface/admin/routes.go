package admin

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Routes says how the targets of models are. Implemented by *route.Router.
type Routes interface {
	// Routes returns the routes of the configuration.
	Routes() []route.Health
	// Targets returns the states of the targets of all routes, and of other targets whose
	// breaker is not closed.
	Targets() []route.TargetState
}

// routes answers requests for how the targets of models are.
type routes struct {
	base
	router Routes
}

type routeView struct {
	Model    string       `json:"model"`
	Strategy string       `json:"strategy"`
	Sticky   bool         `json:"sticky"`
	Targets  []targetView `json:"targets"`
}

type targetView struct {
	Provider  string   `json:"provider"`
	Model     string   `json:"model"`
	Weight    int      `json:"weight,omitempty"` // only for the strategy weighted
	Breaker   string   `json:"breaker"`
	Failures  int      `json:"failures"`
	OpenedAt  *string  `json:"opened_at"`  // nil for a closed breaker
	LatencyMS *float64 `json:"latency_ms"` // nil = not known
}

func viewOfTarget(s route.TargetState) targetView {
	v := targetView{
		Provider: s.Provider, Model: s.Model, Breaker: string(s.Breaker), Failures: s.Failures, OpenedAt: surface.Seconds.Time(s.OpenedAt),
	}
	if s.Latency > 0 {
		ms := float64(s.Latency.Microseconds()) / 1000
		v.LatencyMS = &ms
	}
	return v
}

// List answers GET /api/routes. They are the same for all orgs.
func (h *routes) List() surface.Endpoint {
	return h.endpoint(func(*http.Request, caller.Caller) (int, any, error) {
		routes, others := []routeView{}, []targetView{}
		in := map[[2]string]bool{}
		for _, r := range h.router.Routes() {
			view := routeView{Model: r.Model, Strategy: string(r.Strategy), Sticky: r.Sticky}
			for i, s := range r.States {
				in[[2]string{s.Provider, s.Model}] = true
				target := viewOfTarget(s)
				if r.Strategy == route.Weighted {
					target.Weight = max(1, r.Targets[i].Weight)
				}
				view.Targets = append(view.Targets, target)
			}
			routes = append(routes, view)
		}
		for _, s := range h.router.Targets() {
			if !in[[2]string{s.Provider, s.Model}] {
				others = append(others, viewOfTarget(s))
			}
		}
		return http.StatusOK, struct {
			Data   []routeView  `json:"data"`
			Others []targetView `json:"other_targets"` // of no route, whose breaker is not closed
		}{routes, others}, nil
	})
}
