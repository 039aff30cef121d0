package directory

import (
	"iter"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// ExpiresSoon is how long before its end a key counts as one that expires soon.
const ExpiresSoon = 7 * 24 * time.Hour

// Unmatched returns the names and globs in the lists of a key for which there is nothing: no MCP
// server of the org, no tool of the servers that the key may use, no model. Such an entry allows
// nothing. Tools are looked at only when all these servers have listed theirs.
func (d *Directory) Unmatched(orgID string, k org.Key) []org.ToolList {
	s := d.snapshot(orgID)
	return slices.DeleteFunc([]org.ToolList{
		{Setting: "servers", Names: without(k.Access.Servers, func(name string) bool { return slices.Contains(s.serverNames, name) })},
		{Setting: "tools", Names: d.unmatchedTools(orgID, s, k.Access)},
		{Setting: "models", Names: without(k.Access.Models, func(pattern string) bool { return d.options.Models == nil || d.options.Models(pattern) })},
	}, func(l org.ToolList) bool { return l.Names == nil })
}

// unmatchedTools returns the globs of a key that no tool matches.
func (d *Directory) unmatchedTools(orgID string, s *snapshot, a org.Access) []string {
	var tools []string
	for _, server := range s.servers {
		if !a.AllowsServer(server.Name) {
			continue
		}
		names, known := d.options.Pool.Tools(orgID, server.Name)
		if !known {
			return nil
		}
		tools = append(tools, names...)
	}
	return without(a.Tools, func(pattern string) bool {
		return slices.ContainsFunc(tools, func(name string) bool { return org.Matches(pattern, name) })
	})
}

// without returns the texts for which there is nothing; nil = there are none.
func without(all []string, there func(string) bool) []string {
	var out []string
	for _, text := range all {
		if !there(text) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// IDs returns the ids of all orgs.
func (d *Directory) IDs() iter.Seq[string] { return slices.Values(d.ids(nil, nil)) }

// EachKey calls yield for the keys of all orgs that are not revoked.
func (d *Directory) EachKey(yield func(org.Key)) {
	for _, id := range d.ids(nil, nil) {
		for _, k := range d.snapshot(id).byID {
			if k.RevokedAt.IsZero() {
				yield(k)
			}
		}
	}
}

// Expiring returns how many keys of all orgs expire soon.
func (d *Directory) Expiring() (n int) {
	now := d.options.Now()
	d.EachKey(func(k org.Key) {
		if !k.ExpiresAt.IsZero() && !k.Expired(now) && k.Expired(now.Add(ExpiresSoon)) {
			n++
		}
	})
	return n
}

// Has reports whether there is an org with the id.
func (d *Directory) Has(orgID string) bool { return d.snapshot(orgID).org != nil }
