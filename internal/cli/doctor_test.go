package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// A route that has one good target works, and the provider that it replaces is degraded.
func TestARouteWithOneGoodTargetIsDegraded(t *testing.T) {
	route := func(name string, providers ...string) config.Route {
		r := config.Route{Model: name}
		for _, p := range providers {
			r.Targets = append(r.Targets, config.RouteTarget{Provider: p, Model: "m"})
		}
		return r
	}
	d := &doctor{config: &config.Config{Routes: []config.Route{
		route("chat", "good", "down"), route("whole", "good"), route("lost", "gone"), route("both", "good", "gone"),
	}}}
	d.well("provider", "", "good", "answers")
	for _, name := range []string{"down", "gone", "alone"} {
		d.wrong("provider", "", name, "does not answer", "check base_url")
	}
	d.checkRoutes()
	got := map[string]string{}
	for _, f := range d.found {
		got[f.Kind+" "+f.Name] = f.Status
	}
	want := map[string]string{
		"provider good": "well", "provider down": "degraded", "provider gone": "wrong", "provider alone": "wrong",
		"route chat": "degraded", "route whole": "well", "route lost": "wrong", "route both": "degraded",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
