package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/route"
)

const twoProviders = `providers:
  - {name: one, api_key: env:K}
  - {name: two, api_key: env:K}
orgs:
  - {id: default, keys: [{name: dev, key: env:K}]}
`

func loadRoutes(t *testing.T, routes string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "turnpike.yaml")
	if err := os.WriteFile(file, []byte(twoProviders+routes), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(file, func(string) (string, bool) { return "", false })
}

func TestRoutesOfTheFile(t *testing.T) { // M09
	c, err := loadRoutes(t, `routes:
  - model: fast
    strategy: weighted
    targets: [{provider: one, model: a, weight: 3}, {provider: two, model: b}]
  - {model: each, sticky: none, targets: [{provider: two, model: b}, {provider: one, model: a}]}
  - {model: alone, targets: [{provider: two, model: b}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []route.Route{
		{Model: "fast", Strategy: route.Weighted, Sticky: true, Targets: []route.WeightedTarget{{Provider: "one", Model: "a", Weight: 3}, {Provider: "two", Model: "b", Weight: 1}}},
		{Model: "each", Strategy: route.Fallback, Targets: []route.WeightedTarget{{Provider: "two", Model: "b", Weight: 1}, {Provider: "one", Model: "a", Weight: 1}}},
		{Model: "alone", Strategy: route.Fallback, Targets: []route.WeightedTarget{{Provider: "two", Model: "b", Weight: 1}}},
	}
	if diff := cmp.Diff(want, c.Ordered()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each mistake is named with its line, and what to do.
func TestMistakesInRoutes(t *testing.T) { // M09
	for routes, want := range map[string]string{
		"routes: [{model: m, targets: []}]": ":6:30: routes[0].targets: is empty, so no request could use the route; list a target, such as {provider: one, model: NAME}",
		"routes: [{model: m}]":              ":6:10: routes[0].targets: is missing; want list of maps",
		"routes:\n  - model: m\n    targets:\n      - {provider: tow, model: x}":                                       ":9:20: routes[0].targets[0].provider: no provider is called \"tow\"; did you mean two?",
		"routes:\n  - model: m\n    targets: [{provider: one, model: x, weight: 2}]":                                   ":8:49: routes[0].targets[0].weight: is only for strategy: weighted; the strategy fallback ignores it",
		"routes: [{model: m, targets: [{provider: one, model: x}, {provider: one, model: x}]}]":                        ":6:58: routes[0].targets[1]: is the same target as routes[0].targets[0]; remove one of them",
		"routes: [{model: m, sticky: session, targets: [{provider: one, model: x}]}]":                                  ":6:29: routes[0].sticky: session has no effect with one target; remove it",
		"routes: [{model: \"a, b\", targets: [{provider: one, model: x}]}]":                                            "must not contain a comma",
		"routes: [{model: \"gpt-*\", targets: [{provider: one, model: x}]}]":                                           "must be a name without *",
		"routes: [{model: m, strategy: random, targets: [{provider: one, model: x}]}]":                                 "fallback, round_robin, weighted or latency",
		"routes: [{model: m, targets: [{provider: one, model: x, wieght: 1}]}]":                                        "did you mean weight?",
		"routes: [{model: m, targets: [{provider: one, model: x}]}, {model: m, targets: [{provider: two, model: x}]}]": "is already used by routes[0].model",
	} {
		_, err := loadRoutes(t, routes)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", routes, err, want)
		}
	}
}
