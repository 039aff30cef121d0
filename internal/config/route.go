package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/route"
)

// The values of [Route.Sticky].
const (
	stickySession = "session"
	stickyNone    = "none"
)

// maxTargets is how many targets a route may have.
const maxTargets = 16

// checkRouted checks the model name of a route: a name and no glob, and no list.
func checkRouted(name string) error {
	switch {
	case strings.ContainsAny(name, "*?["):
		return errors.New("must be a name without *, ? and [: a route has one model name")
	case strings.Contains(name, ","):
		return errors.New("must not contain a comma, which separates the names of a list of models")
	}
	return checkWord(name)
}

// checkRoute compares a route with the providers and its keys with each other.
func (d *decoder) checkRoute(path string, r *Route, providers []Provider) {
	switch n := len(r.Targets); {
	case n == 0 && d.has(path+".targets"):
		d.failPath(path+".targets", "is empty, so no request could use the route; list a target, such as {provider: %s, model: NAME}", firstOf(providers))
	case n > maxTargets:
		d.failPath(path+".targets", "has %d targets; want at most %d", n, maxTargets)
	case n == 1 && r.Sticky == stickySession:
		d.failPath(path+".sticky", "session has no effect with one target; remove it")
	}
	for i, t := range r.Targets {
		at := fmt.Sprintf("%s.targets[%d]", path, i)
		if t.Provider != "" && !slices.ContainsFunc(providers, func(p Provider) bool { return p.Name == t.Provider }) {
			d.failPath(at+".provider", "no provider is called %s; %s", quote(t.Provider), suggestedProvider(t.Provider, providers))
		}
		if r.Strategy != string(route.Weighted) && d.has(at+".weight") {
			d.failPath(at+".weight", "is only for strategy: weighted; the strategy %s ignores it", r.Strategy)
		}
		same := func(o RouteTarget) bool { return o.Provider == t.Provider && o.Model == t.Model }
		if j := slices.IndexFunc(r.Targets, same); j < i && t.Provider != "" && t.Model != "" {
			d.failPath(at, "is the same target as %s.targets[%d]; remove one of them", path, j)
		}
	}
}

// has reports whether a key was given.
func (d *decoder) has(path string) bool {
	_, given := d.where[path]
	return given
}

func firstOf(providers []Provider) string {
	if len(providers) == 0 {
		return "NAME"
	}
	return providers[0].Name
}

// suggestedProvider helps with a provider that there is not.
func suggestedProvider(name string, providers []Provider) string {
	keys := make([]key, len(providers))
	for i, p := range providers {
		keys[i].name = p.Name
	}
	return suggestion(name, keys)
}

// Ordered returns the routes as the router has them.
func (c *Config) Ordered() []route.Route {
	out := make([]route.Route, len(c.Routes))
	for i, r := range c.Routes {
		out[i] = route.Route{Model: r.Model, Strategy: route.Strategy(r.Strategy), Sticky: r.Sticky != stickyNone && len(r.Targets) > 1}
		for _, t := range r.Targets {
			out[i].Targets = append(out[i].Targets, route.WeightedTarget{Provider: t.Provider, Model: t.Model, Weight: t.Weight})
		}
	}
	return out
}
