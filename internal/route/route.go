// Package route finds the providers that serve a model name, and the names that
// they serve.
package route

import (
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/model"
)

// Provider is one model API and the names that it serves.
type Provider struct {
	Name   string
	Models []string // exact names and globs
	Model  model.Model

	RelayHeaders []string // see Target
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
	relayer, ok := t.Client.(model.Relayer)
	return ok && relayer.Relays(dialect)
}

// Router maps model names to providers. It is safe for concurrent use.
type Router struct{ current atomic.Pointer[[]Provider] }

// New returns a Router over the providers, the preferred ones first.
func New(providers []Provider) *Router {
	r := &Router{}
	r.replace(providers)
	return r
}

// replace routes to other providers from now on. Targets that Resolve has returned stay
// usable.
func (r *Router) replace(providers []Provider) {
	providers = slices.Clone(providers)
	r.current.Store(&providers)
}

// providers returns the current providers, which never change.
func (r *Router) providers() []Provider { return *r.current.Load() }

// Resolve returns the targets for a model name, best first: providers that list
// the name exactly, then those with a glob that matches. "provider/model"
// always means the provider called so. Nil means that nobody serves it.
func (r *Router) Resolve(name string) []Target {
	providers := r.providers()
	if p, rest, ok := strings.Cut(name, "/"); ok {
		for _, provider := range providers {
			if provider.Name == p && rest != "" {
				return []Target{provider.target(rest)}
			}
		}
	}
	for _, serves := range []func(Provider, string) bool{Provider.lists, Provider.globs} {
		var targets []Target
		for _, p := range providers {
			if serves(p, name) {
				targets = append(targets, p.target(name))
			}
		}
		if targets != nil {
			return targets
		}
	}
	return nil
}

func (p Provider) target(name string) Target {
	return Target{Target: loop.Target{Provider: p.Name, Model: name}, Client: p.Model, RelayHeaders: p.RelayHeaders}
}

// exact returns the names of the configuration, globs left out, each once.
func (r *Router) exact() []string {
	var names []string
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
