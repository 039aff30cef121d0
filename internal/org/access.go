package org

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Access is what a key may use. The zero value narrows nothing. A list that is nil allows
// everything, an empty list nothing. The stores keep its JSON, and audit entries show it.
type Access struct {
	Servers []string `json:"servers,omitzero"` // names of MCP servers of the org
	Tools   []string `json:"tools,omitzero"`   // globs over the servers' own names of tools
	Models  []string `json:"models,omitzero"`  // globs over names of models, as requests have them

	// EndUsers says that each model request must name its end user.
	EndUsers bool `json:"end_users,omitempty"`

	// ReadOnly says that only tools of class read may be used.
	ReadOnly bool `json:"read_only,omitempty"`

	// Budgets limit what the model calls of the key cost together, beside those of its org.
	// Their Scope is "".
	Budgets []Budget `json:"budgets,omitempty"`

	// Makers are the key that has made this one, if it was limited then, and the makers of that. The key spends from
	// their budgets, too, and has their hooks, also when they are revoked.
	Makers []Maker `json:"makers,omitempty"`

	// Context is what is done with prompts of the key that are too long, in place of the setting of the
	// org: see [Runtime.Context]. "" = as the org says. It narrows nothing.
	Context string `json:"context,omitempty"`
}

// Maker is a limited key that has made another.
type Maker struct {
	Key     string   `json:"key"`               // its id
	Budgets []Budget `json:"budgets,omitempty"` // as it has them; as it had them last, if there is no such key any more
}

// MadeBy returns the makers of a key that the principal makes; nil = nothing limits the principal.
func MadeBy(p Principal, hooks []Hook) []Maker {
	hooked := slices.ContainsFunc(hooks, func(h Hook) bool { return slices.Contains(h.Keys, p.ID) })
	if len(p.Access.Budgets) == 0 && len(p.Access.Makers) == 0 && !hooked {
		return nil
	}
	return append([]Maker{{p.ID, p.Access.Budgets}}, p.Access.Makers...)
}

// WithMakers returns the keys with the budgets that their makers have now, also those that are revoked.
func WithMakers(keys []Key) []Key {
	budgets := map[string][]Budget{}
	for _, k := range keys {
		budgets[k.ID] = k.Access.Budgets
	}
	keys = slices.Clone(keys)
	for i, k := range keys {
		makers := slices.Clone(k.Access.Makers)
		for j, m := range makers {
			if now, found := budgets[m.Key]; found {
				makers[j].Budgets = now
			}
		}
		keys[i].Access.Makers = makers
	}
	return keys
}

// NoAccess returns the Access of a key that may use nothing.
func NoAccess() Access { return Access{Servers: []string{}, Tools: []string{}, Models: []string{}} }

// IsFull reports whether nothing is narrowed.
func (a Access) IsFull() bool {
	return a.Servers == nil && a.Tools == nil && a.Models == nil && !a.EndUsers && !a.ReadOnly && len(a.Budgets) == 0
}

// Equal reports whether two keys may use the same.
func (a Access) Equal(b Access) bool {
	same := func(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
	return same(a.Servers, b.Servers) && same(a.Tools, b.Tools) && same(a.Models, b.Models) && a.EndUsers == b.EndUsers && a.ReadOnly == b.ReadOnly &&
		slices.Equal(a.Budgets, b.Budgets) && a.Context == b.Context &&
		slices.EqualFunc(a.Makers, b.Makers, func(m, n Maker) bool { return m.Key == n.Key && slices.Equal(m.Budgets, n.Budgets) })
}

// AllowsServer reports whether the key may use the org's server.
func (a Access) AllowsServer(name string) bool {
	return a.Servers == nil || slices.Contains(a.Servers, name)
}

// AllowsTool reports whether the key may use a tool that its server calls by this name. The
// server must be allowed, too.
func (a Access) AllowsTool(name string) bool { return allows(a.Tools, name) }

// AllowsModel reports whether the key may ask for the model, or for each model of a list such as
// "a, b".
func (a Access) AllowsModel(name string) bool {
	if slices.Contains(a.Models, name) {
		return true
	}
	for one := range strings.SplitSeq(name, ",") {
		if !allows(a.Models, strings.TrimSpace(one)) {
			return false
		}
	}
	return true
}

// AllowsAddresses reports whether requests with the key may declare MCP servers by their URL.
// A key that is limited to servers of the org may not: a label says nothing about the server.
func (a Access) AllowsAddresses() bool { return a.Servers == nil }

func allows(patterns []string, name string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(p string) bool { return Matches(p, name) })
}

// Matches reports whether the name is the pattern, or matches it as a glob: * is any text,
// also with slashes, ? one character, and [ab] one of these.
func Matches(pattern, name string) bool {
	if pattern == name {
		return true
	}
	ok, err := path.Match(flat(pattern), flat(name))
	return ok && err == nil
}

// flat returns the text without slashes, at which path.Match would end a *.
func flat(text string) string { return strings.ReplaceAll(text, "/", "\x00") }

// ValidPattern returns an error if the text is not a valid glob.
func ValidPattern(pattern string) error {
	if _, err := path.Match(flat(pattern), ""); err != nil {
		return fmt.Errorf("%q is not a valid glob; * stands for any text, ? for one character, [ab] for one of these", pattern)
	}
	return nil
}

// IsPattern reports whether the text is a glob that can match other names than itself.
func IsPattern(text string) bool { return strings.ContainsAny(text, `*?[\`) }

// Grant is what a key may use, how often and how long.
type Grant struct {
	Access
	Rate      Rate
	ExpiresAt time.Time // zero = never
}

// Exceeds returns the setting in which g allows more than by, and what by allows there; "" =
// in none. A key must not create, change or rotate a key that may do more than it may itself.
func (g Grant) Exceeds(by Grant) (setting, limit string) {
	for _, l := range []struct {
		setting string
		g, by   []string
	}{{"servers", g.Servers, by.Servers}, {"tools", g.Tools, by.Tools}, {"models", g.Models, by.Models}} {
		if !within(l.g, l.by) {
			return l.setting, cmp.Or(strings.Join(l.by, ", "), "none")
		}
	}
	for _, b := range by.Budgets {
		if !slices.ContainsFunc(g.Budgets, func(own Budget) bool { return own.Period == b.Period && own.within(b) }) {
			return "budgets", "a budget for the same period (" + b.Period + ") that is not larger"
		}
	}
	switch {
	case by.EndUsers && !g.EndUsers:
		return "end_users", "true"
	case by.ReadOnly && !g.ReadOnly:
		return "read_only", "true"
	case by.Rate.IsLimit() && (!g.Rate.IsLimit() || g.Rate.PerMinute > by.Rate.PerMinute || g.Rate.EffectiveBurst() > by.Rate.EffectiveBurst()):
		return "requests_per_minute", fmt.Sprintf("%d, with a burst of %d", by.Rate.PerMinute, by.Rate.EffectiveBurst())
	case !by.ExpiresAt.IsZero() && (g.ExpiresAt.IsZero() || g.ExpiresAt.After(by.ExpiresAt)):
		return "expires_at", by.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return "", ""
}

// within reports whether the patterns match nothing that the others do not match. It may be
// false for patterns for which that is hard to say.
func within(patterns, others []string) bool {
	if others == nil {
		return true
	}
	if patterns == nil {
		return slices.Contains(others, "*")
	}
	return !slices.ContainsFunc(patterns, func(p string) bool {
		return !slices.ContainsFunc(others, func(o string) bool { return covers(o, p) })
	})
}

// covers reports whether the glob matches all that p matches.
func covers(glob, p string) bool {
	if glob == p || !IsPattern(p) && Matches(glob, p) {
		return true
	}
	prefix, star := strings.CutSuffix(glob, "*") // the only form whose matches are easy to compare
	return star && !IsPattern(prefix) && strings.HasPrefix(p[:firstMeta(p)], prefix)
}

// firstMeta returns the length of the part of a glob that only matches itself.
func firstMeta(glob string) int {
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		return i
	}
	return len(glob)
}
