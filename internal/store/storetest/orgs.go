package storetest

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func orgCases() []rule {
	return []rule{
		{"an org is kept as it was created", "every field of the record is stored; nil and empty differ", func(b *bench) {
			full := org.Record{ID: "full", Features: []string{"mcp_outbound"}, CreatedAt: b.now(), UpdatedAt: b.now()}
			fill(&full.Runtime)
			empty := org.Record{ID: "empty", Features: []string{}}
			b.ok(b.Orgs.CreateOrg(b.Context(), full, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), empty, org.Author{}))
			b.orgs(empty, full)
		}},
		{"orgs are listed by id", "an order that does not depend on history", func(b *bench) {
			for _, id := range []string{"b", "a", "C"} {
				b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: id}, org.Author{}))
			}
			b.orgs(org.Record{ID: "C"}, org.Record{ID: "a"}, org.Record{ID: "b"})
		}},
		{"an id is taken once", "create never replaces: ErrExists", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a", Features: []string{"one"}}, org.Author{}))
			b.refused(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}), org.ErrExists)
			b.orgs(org.Record{ID: "a", Features: []string{"one"}})
		}},
		{"an update replaces features and settings, and not the birth", "UpdateOrg leaves CreatedAt", func(b *bench) {
			old := org.Record{ID: "a", Features: []string{"one"}, CreatedAt: b.now(), UpdatedAt: b.now()}
			fill(&old.Runtime)
			b.ok(b.Orgs.CreateOrg(b.Context(), old, org.Author{}))
			changed := org.Record{ID: "a", Features: []string{"two"}, CreatedAt: b.now().Add(time.Hour), UpdatedAt: b.now().Add(time.Hour)}
			b.ok(b.Orgs.UpdateOrg(b.Context(), changed, org.Author{}))
			changed.CreatedAt = old.CreatedAt
			b.orgs(changed)
		}},
		{"an org that is not there is not found", "update and delete: ErrNotFound", func(b *bench) {
			b.refused(b.Orgs.UpdateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}), org.ErrNotFound)
			b.refused(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}), org.ErrNotFound)
			_, err := b.Orgs.Org(b.Context(), "a")
			b.refused(err, org.ErrNotFound)
			b.orgs()
		}},
		{"an org takes its keys and servers with it and leaves its runs", "nothing of a deleted org can be used, and its history can be read", func(b *bench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			key := org.Key{Org: "a", ID: "k", Hash: hash(1)}
			b.ok(b.Orgs.CreateKey(b.Context(), key, org.Author{}))
			b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "s"}, org.Author{}))
			b.begin("a", "r")
			b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.keys("a")
			b.servers("a")
			b.ok(b.Orgs.CreateKey(b.Context(), key, org.Author{})) // its hash is free again
			_, err := b.Archive.Load(b.Context(), "a", "r")
			b.ok(err)
		}},
		{"what a caller does with a list stays with the caller", "records are copied in and out", func(b *bench) {
			features, rounds, tokens := []string{"one"}, new(3), new(3)
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a", Features: features, Runtime: org.Runtime{MaxRounds: rounds, MaxRunTokens: tokens}}, org.Author{}))
			features[0], *rounds, *tokens = "changed", 99, 99
			list, err := b.Orgs.Orgs(b.Context())
			b.ok(err)
			list[0].Features[0], *list[0].Runtime.MaxRounds, *list[0].Runtime.MaxRunTokens = "changed", 99, 99
			b.orgs(org.Record{ID: "a", Features: []string{"one"}, Runtime: org.Runtime{MaxRounds: new(3), MaxRunTokens: new(3)}})
		}},
	}
}

// orgs fails the case unless the store has exactly these orgs.
func (b *bench) orgs(want ...org.Record) {
	b.Helper()
	got, err := b.Orgs.Orgs(b.Context())
	b.ok(err)
	if len(want) == 0 {
		none(b, got, err)
		return
	}
	b.same(got, want)
	for _, r := range want {
		one, err := b.Orgs.Org(b.Context(), r.ID)
		b.ok(err)
		b.same(one, r)
	}
}
