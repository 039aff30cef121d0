// Package route finds the targets that serve a model name, and the names that can be asked
// for. It says in which order the targets of a run are tried, and remembers how they answered.
//
//	name ─► Resolve: route, exact name, provider/model, glob ─► targets of the run
//	round ─► Order: strategy, then the conversation's target, then breakers ─► the order
//	answer ─► Report: breakers, latency, the conversation's target
//
// It decides nothing: package loop says which target is called, how often, and what is tried
// after a failure.
package route

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/model"
)

// Provider is one model API and the names that it serves.
type Provider struct {
	Name   string
	Models []string // exact names and globs
	Model  model.Model

	RelayHeaders []string // see Target

	// Windows are those of models. The first one that matches counts; what it leaves open, and other models,
	// are as package window knows.
	Windows []Window
}

// Window is what models of a provider take.
type Window struct {
	Model  string // the provider's name, or a glob
	Size   window.Size
	Images *bool // whether they take images; nil = as package window knows
}

// Target is a provider's model that may serve a run.
type Target struct {
	loop.Target             // as the run's first fact contains it
	Client      model.Model // sends requests to the provider

	// RelayHeaders are fields of a client's request that the provider gets when the request
	// is relayed, beside the usual ones. Names are in canonical form.
	RelayHeaders []string
}

// Relays reports whether requests of a dialect can be passed on to the target unchanged.
func (t Target) Relays(dialect string) bool {
	relayer, ok := t.Client.(relay.Model)
	return ok && relayer.Relays(dialect)
}

// Router maps model names to targets. It is safe for concurrent use.
type Router struct {
	current atomic.Pointer[table]
	now     func() time.Time // with a monotonic clock
	random  func() float64   // in [0, 1)

	mu       sync.Mutex
	breakers breakers
	pins     pins
	turns    map[string]uint64 // of the routes with round_robin, by model
}

// table is what a Router routes by. It never changes.
type table struct {
	providers []Provider
	routes    []Route

	mu       sync.Mutex
	resolved map[string][]Target // what Resolve has found; at most maxResolved, because clients can name any number of models
}

// maxResolved is how many names are remembered.
const maxResolved = 1_000

// New returns a Router over the providers, the preferred ones first, and the routes.
func New(providers []Provider, routes ...Route) *Router {
	return NewWithClock(time.Now, providers, routes...)
}

// NewWithClock is New with another clock for circuit breakers and the targets of conversations. The
// clock must not go back.
func NewWithClock(now func() time.Time, providers []Provider, routes ...Route) *Router {
	r := &Router{now: now, random: rand.Float64, turns: map[string]uint64{}}
	r.replace(providers, routes)
	return r
}

// replace routes to other providers from now on. Targets that Resolve has returned stay
// usable. What is known of targets is kept.
func (r *Router) replace(providers []Provider, routes []Route) {
	r.current.Store(&table{providers: slices.Clone(providers), routes: slices.Clone(routes), resolved: map[string][]Target{}})
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.turns)
}

// providers returns the current providers, which never change.
func (r *Router) providers() []Provider { return r.current.Load().providers }

// provider returns the provider with a name, or false.
func (t *table) provider(name string) (Provider, bool) {
	i := slices.IndexFunc(t.providers, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return Provider{}, false
	}
	return t.providers[i], true
}

// route returns the route with a model name, or false.
func (t *table) route(model string) (Route, bool) {
	i := slices.IndexFunc(t.routes, func(r Route) bool { return r.Model == model })
	if i < 0 {
		return Route{}, false
	}
	return t.routes[i], true
}

// Resolve returns the targets for a model name, in configuration order: those of the route
// with the name, or the providers that list the name exactly, or the provider of the name
// "provider/model", or the providers with a glob that matches. Nil means that nobody serves it. The caller must not
// change the targets.
func (r *Router) Resolve(name string) []Target {
	t := r.current.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	targets, known := t.resolved[name]
	if known {
		return targets
	}
	if targets = slices.Clip(t.resolve(name)); targets == nil {
		return nil
	}
	if len(t.resolved) >= maxResolved {
		clear(t.resolved)
	}
	t.resolved[name] = targets
	return targets
}

func (t *table) resolve(name string) []Target {
	if found, ok := t.route(name); ok {
		return t.targets(found)
	}
	if exact := t.serving(name, Provider.lists); exact != nil {
		return exact
	}
	if Names(name) != nil { // see ResolveList
		return nil
	}
	if p, rest, ok := strings.Cut(name, "/"); ok && rest != "" {
		if provider, ok := t.provider(p); ok {
			return []Target{provider.target(rest)}
		}
	}
	return t.serving(name, Provider.globs)
}

// serving returns a target of each provider that serves the name.
func (t *table) serving(name string, serves func(Provider, string) bool) (targets []Target) {
	for _, p := range t.providers {
		if serves(p, name) {
			targets = append(targets, p.target(name))
		}
	}
	return targets
}

// targets returns the targets of a route. Its providers exist.
func (t *table) targets(r Route) (targets []Target) {
	for _, rt := range r.Targets {
		if p, ok := t.provider(rt.Provider); ok {
			targets = append(targets, p.target(rt.Model))
		}
	}
	return targets
}

// Target returns the target of a provider for its name of a model. The provider need not list it.
func (r *Router) Target(provider, model string) (Target, bool) {
	p, ok := r.current.Load().provider(provider)
	return p.target(model), ok
}

// Relaying returns the names of the providers to which requests of a dialect can be passed on
// unchanged.
func (r *Router) Relaying(dialect string) (names []string) {
	for _, p := range r.providers() {
		if p.target("").Relays(dialect) {
			names = append(names, p.Name)
		}
	}
	return names
}

// FallsBack reports whether relayed requests for the name fall back: it is a route with several
// targets, or a list of models. Such a relay is translated, so that its stream can be held until
// its first content. Others are passed on unchanged to the first provider.
func (r *Router) FallsBack(name string) bool {
	t := r.current.Load()
	if found, ok := t.route(name); ok {
		return len(found.Targets) > 1
	}
	return t.serves(name) == nil && Names(name) != nil
}

// MaxList is how many names a list of models may have.
const MaxList = 8

// Names returns the names of a list of models, such as "a, b": a fallback list. It returns nil
// for a text that is no list.
func Names(list string) []string {
	if !strings.Contains(list, ",") {
		return nil
	}
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// ResolveList returns the targets of the names, each target once, in the order of the names.
// If nobody serves one of them, it returns that name.
func (r *Router) ResolveList(names []string) (targets []Target, unknown string) {
	for _, name := range names {
		found := r.Resolve(name)
		if found == nil {
			return nil, name
		}
		for _, t := range found {
			if !slices.ContainsFunc(targets, func(has Target) bool { return nameOf(has.Target) == nameOf(t.Target) }) {
				targets = append(targets, t)
			}
		}
	}
	return targets, ""
}

// Serves reports whether a provider serves the model with a name, or each one of a list of names.
func (r *Router) Serves(name string) bool {
	if len(r.Resolve(name)) > 0 {
		return true
	}
	names := Names(name)
	found, _ := r.ResolveList(names)
	return names != nil && found != nil
}

func (p Provider) target(name string) Target {
	t := Target{Target: loop.Target{Provider: p.Name, Model: name}, Client: p.Model, RelayHeaders: p.RelayHeaders}
	t.Window, t.Images = p.takes(name)
	return t
}

// takes returns the window of a model of the provider, and whether it takes images.
func (p Provider) takes(name string) (size window.Size, images bool) {
	size, images = window.Of(name), window.TakesImages(name)
	for _, w := range p.Windows {
		if w.Model != name && !matches(w.Model, name) {
			continue
		}
		if w.Size.Known() {
			size = w.Size
		}
		if w.Images != nil {
			images = *w.Images
		}
		break
	}
	return size, images
}

// exact returns the names of the configuration, globs left out, each once. Routes come first.
func (r *Router) exact() []string {
	var names []string
	for _, route := range r.current.Load().routes {
		names = append(names, route.Model)
	}
	for _, p := range r.providers() {
		for _, m := range p.Models {
			if !isGlob(m) && !slices.Contains(names, m) {
				names = append(names, m)
			}
		}
	}
	return names
}

// Hints returns names and patterns for a message to somebody who asked for a
// name that nobody serves.
func (r *Router) Hints() []string {
	var hints []string
	for _, route := range r.current.Load().routes {
		hints = append(hints, route.Model)
	}
	for _, p := range r.providers() {
		for _, m := range p.Models {
			if !slices.Contains(hints, m) {
				hints = append(hints, m)
			}
		}
	}
	return hints
}

func (p Provider) lists(name string) bool { return slices.Contains(p.Models, name) && !isGlob(name) }

func (p Provider) globs(name string) bool {
	return name != "" && slices.ContainsFunc(p.Models, func(pattern string) bool { return matches(pattern, name) })
}

func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?[") }

// flat returns the text without slashes, which path.Match sees as borders.
func flat(text string) string { return strings.ReplaceAll(text, "/", "\x00") }

// matches is a glob in which * also stands for slashes: model names have them.
func matches(pattern, name string) bool {
	if !isGlob(pattern) {
		return false
	}
	ok, err := path.Match(flat(pattern), flat(name))
	return ok && err == nil
}
