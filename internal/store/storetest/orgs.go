package storetest

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func orgCases() []rule {
	return []rule{
		{"an org is stored as it was created", "with every field; nil and empty differ", func(b *testBench) {
			full := org.Record{ID: "full", Features: []string{"mcp_outbound"}, CreatedAt: b.now(), UpdatedAt: b.now()}
			fill(&full.Runtime)
			empty := org.Record{ID: "empty", Features: []string{}}
			b.ok(b.Orgs.CreateOrg(b.Context(), full, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), empty, org.Author{}))
			b.orgs(empty, full)
		}},
		{"orgs are listed by id", "the order does not depend on history", func(b *testBench) {
			for _, id := range []string{"b", "a", "C"} {
				b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: id}, org.Author{}))
			}
			b.orgs(org.Record{ID: "C"}, org.Record{ID: "a"}, org.Record{ID: "b"})
		}},
		{"an org id is unique", "CreateOrg never replaces: ErrExists", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a", Features: []string{"one"}}, org.Author{}))
			b.checkError(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}), org.ErrExists)
			b.orgs(org.Record{ID: "a", Features: []string{"one"}})
		}},
		{"an update keeps the creation time", "UpdateOrg replaces features and settings", func(b *testBench) {
			old := org.Record{ID: "a", Features: []string{"one"}, CreatedAt: b.now(), UpdatedAt: b.now()}
			fill(&old.Runtime)
			b.ok(b.Orgs.CreateOrg(b.Context(), old, org.Author{}))
			changed := org.Record{ID: "a", Features: []string{"two"}, CreatedAt: b.now().Add(time.Hour), UpdatedAt: b.now().Add(time.Hour)}
			b.ok(b.Orgs.UpdateOrg(b.Context(), changed, org.Author{}))
			changed.CreatedAt = old.CreatedAt
			b.orgs(changed)
		}},
		{"a missing org is not found", "update and delete: ErrNotFound", func(b *testBench) {
			b.checkError(b.Orgs.UpdateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}), org.ErrNotFound)
			b.checkError(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}), org.ErrNotFound)
			_, err := b.Orgs.Org(b.Context(), "a")
			b.checkError(err, org.ErrNotFound)
			b.orgs()
		}},
		{"deleting an org deletes its keys and servers and keeps its runs", "nothing of a deleted org can be used, but its history can be read", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			key := org.Key{Org: "a", ID: "k", Hash: hash(1)}
			b.ok(b.Orgs.CreateKey(b.Context(), key, org.Author{}))
			b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "s"}, org.Author{}))
			b.begin("a", "r")
			b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.keys("a")
			b.servers("a")
			b.ok(b.Orgs.CreateKey(b.Context(), key, org.Author{})) // the hash is free again
			_, err := b.Archive.Load(b.Context(), "a", "r")
			b.ok(err)
		}},
		{"a caller may modify a record", "the store copies records", func(b *testBench) {
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
func (b *testBench) orgs(want ...org.Record) {
	b.Helper()
	got, err := b.Orgs.Orgs(b.Context())
	b.ok(err)
	if len(want) == 0 {
		checkEmpty(b, got, err)
		return
	}
	b.equal(got, want)
	for _, r := range want {
		one, err := b.Orgs.Org(b.Context(), r.ID)
		b.ok(err)
		b.equal(one, r)
	}
}
