package route

import (
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// MayServe reports whether a request can ask for a model whose name matches the glob. It may be
// true for a glob without a model: which names a provider with globs serves is not known.
func (r *Router) MayServe(pattern string) bool {
	if !org.IsPattern(pattern) {
		return r.Resolve(pattern) != nil
	}
	if slices.ContainsFunc(r.exact(), func(name string) bool { return org.Matches(pattern, name) }) {
		return true
	}
	for _, p := range r.providers() {
		served := slices.Concat(p.Models, []string{p.Name + "/*"})
		if slices.ContainsFunc(served, func(name string) bool {
			if !org.IsPattern(name) {
				return org.Matches(pattern, name)
			}
			return overlap(literalPart(pattern), literalPart(name))
		}) {
			return true
		}
	}
	return false
}

// overlap reports whether one of the texts begins with the other.
func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// literalPart returns the part of a glob before its first special character.
func literalPart(glob string) string {
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		return glob[:i]
	}
	return glob
}
