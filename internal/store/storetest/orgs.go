package storetest

import (
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func orgCases() []rule {
	return []rule{
		{"an org is stored as it was created", "with every field; nil and empty differ", func(b *testBench) {
			full := org.Record{ID: "full", Features: []string{"mcp_outbound"}, CreatedAt: b.now(), UpdatedAt: b.now()}
			fill(&full.Runtime)
			ofOrg(&full.Runtime)
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
			ofOrg(&old.Runtime)
			b.ok(b.Orgs.CreateOrg(b.Context(), old, org.Author{}))
			changed := org.Record{ID: "a", Features: []string{"two"}, CreatedAt: b.now().Add(time.Hour), UpdatedAt: b.now().Add(time.Hour)}
			b.ok(b.updateOrg(changed, org.Author{}))
			changed.CreatedAt = old.CreatedAt
			b.orgs(changed)
		}},
		{"an org that another request has changed is not replaced", "ErrChanged: two changes of different members both count", func(b *testBench) {
			first := org.Record{ID: "a", Features: []string{"one"}}
			b.ok(b.Orgs.CreateOrg(b.Context(), first, org.Author{}))
			second, third := first, first
			second.Features = []string{"two"}
			third.Runtime.Concurrency = 3
			b.ok(b.Orgs.UpdateOrg(b.Context(), first, second, b.by("k")))
			b.checkError(b.Orgs.UpdateOrg(b.Context(), first, third, b.by("k")), org.ErrChanged)
			third.Features = second.Features
			b.ok(b.Orgs.UpdateOrg(b.Context(), second, third, b.by("k")))
			b.checkError(b.Orgs.UpdateOrg(b.Context(), second, third, b.by("k")), org.ErrChanged)
			b.orgs(third)
			b.equal(b.managed("a"), []string{"k update org a/a", "k update org a/a"})
		}},
		{"a missing org is not found", "update and delete: ErrNotFound", func(b *testBench) {
			b.checkError(b.updateOrg(org.Record{ID: "a"}, org.Author{}), org.ErrNotFound)
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
			b.keys("a")
			b.servers("a")
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			key.Org = "b"
			b.ok(b.Orgs.CreateKey(b.Context(), key, org.Author{})) // the hash is free again
			_, err := b.Archive.Load(b.Context(), "a", "r")
			b.ok(err)
		}},
		{"the id of a deleted org is not used while its runs, conversations or audit rows are stored", "a new org would read them: *LeftError, and nothing is recorded", leftOfDeletedOrg}, // K07
		{"an org is not created where data of another is stored", "a build that did not check may have deleted it", func(b *testBench) {
			b.begin("a", "r")
			b.ok(b.save("bb", "p", conversation("first"), call("id")))
			b.checkLeft(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}), org.LeftRuns)
			b.checkLeft(b.Orgs.AddOrgs(b.Context(), []org.Record{{ID: "c"}, {ID: "bb"}}), org.LeftConversations)
			b.orgs()
		}},
		{"the id of a deleted org with nothing stored is free", "its budgets are new", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a", Features: []string{"new"}}, org.Author{}))
			b.orgs(org.Record{ID: "a", Features: []string{"new"}})
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

func leftOfDeletedOrg(b *testBench) {
	ctx := b.Context()
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, b.by(org.Operator)))
	b.begin("a", "r")
	b.ok(b.save("a", "p", conversation("first"), call("id")))
	b.ok(b.Orgs.DeleteOrg(ctx, "a", b.by(org.Operator)))
	rows := b.managed("a")
	all := []string{org.LeftRuns, org.LeftConversations, org.LeftAudit}
	b.checkLeft(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, b.by(org.Operator)), all...)
	b.checkLeft(b.Orgs.AddOrgs(ctx, []org.Record{{ID: "b"}, {ID: "a"}}), all...)
	b.orgs()
	b.equal(b.managed("a"), rows)
	if b.maker.Reopen != nil {
		b.Store = b.maker.Reopen(b.T, b.Store)
		b.checkLeft(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, org.Author{}), all...)
	}
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "b"}, org.Author{})) // another id
}

// checkLeft fails the case unless err says that these things are stored of a deleted org.
func (b *testBench) checkLeft(err error, left ...string) {
	b.Helper()
	var refused *org.LeftError
	if !errors.As(err, &refused) || !errors.Is(err, org.ErrExists) {
		b.Fatalf("error %v, want *org.LeftError", err)
	}
	b.equal(refused.Left, left)
}

// manyOrgCases are those of the methods that read or add many orgs at once.
func manyOrgCases() []rule {
	return []rule{
		{"all orgs are read at once with what they have", "EachOrg returns what the methods for one org return, in the order of the ids", func(b *testBench) {
			for i, id := range []string{"b", "a", "C", "d"} {
				b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: id, Features: []string{id}}, org.Author{}))
				if id == "C" { // has nothing
					continue
				}
				for n, name := range []string{"z", "y"} {
					b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: id, ID: name, Hash: hash(2*i + n), CreatedAt: b.now()}, org.Author{}))
					b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: id, Name: name, Headers: map[string]string{"X": id}}, org.Author{}))
					b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: id, Name: name, Sealed: []byte("sealed")}, org.Author{}))
				}
				b.ok(b.Orgs.RevokeKey(b.Context(), id, "z", 5, org.Author{}))
			}
			b.ok(b.Orgs.DeleteOrg(b.Context(), "d", org.Author{}))
			b.contents("C", "a", "b")
			stop := errors.New("enough")
			n := 0
			err := b.Orgs.EachOrg(b.Context(), func(org.Contents) error { n++; return stop })
			if b.checkError(err, stop); n != 1 {
				b.Errorf("EachOrg went on after an error: %d orgs", n)
			}
		}},
		{"orgs that are added keep what is there", "AddOrgs adds only those whose id is free", func(b *testBench) {
			b.ok(b.Orgs.AddOrgs(b.Context(), nil))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b", Features: []string{"one"}}, org.Author{}))
			b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: "b", ID: "k", Hash: hash(1)}, org.Author{}))
			added := org.Record{ID: "a", Features: []string{"two"}, CreatedAt: b.now(), UpdatedAt: b.now()}
			fill(&added.Runtime)
			ofOrg(&added.Runtime)
			b.ok(b.Orgs.AddOrgs(b.Context(), []org.Record{added, {ID: "b", Features: []string{"two"}}, {ID: "a"}}))
			b.orgs(added, org.Record{ID: "b", Features: []string{"one"}})
			b.contents("a", "b")
			b.keys("b", org.Key{Org: "b", ID: "k", Hash: hash(1)})
		}},
	}
}

// contents fails the case unless EachOrg returns these orgs, and of each what the other
// methods return.
func (b *testBench) contents(want ...string) {
	b.Helper()
	var all []org.Contents
	b.ok(b.Orgs.EachOrg(b.Context(), func(c org.Contents) error { all = append(all, c); return nil }))
	var got []string
	for _, c := range all {
		got = append(got, c.ID)
		record, err := b.Orgs.Org(b.Context(), c.ID)
		b.ok(err)
		b.equal(c.Record, record)
		keys, err := b.Orgs.Keys(b.Context(), c.ID)
		b.ok(err)
		b.equal(c.Keys, keys)
		servers, err := b.Orgs.MCPServers(b.Context(), c.ID)
		b.ok(err)
		b.equal(c.Servers, servers)
		secrets, err := b.Orgs.Secrets(b.Context(), c.ID)
		b.ok(err)
		b.equal(c.Secrets, secrets)
	}
	b.equal(got, want)
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

// ofOrg makes the hooks and databases those of an org: which of them belong to an agent or to the file is not stored.
func ofOrg(r *org.Runtime) {
	for i := range r.Hooks {
		r.Hooks[i].Agent, r.Hooks[i].Offered = false, false
	}
	for i := range r.Databases {
		r.Databases[i].FromFile = false
	}
}

// updateOrg replaces an org, whatever is stored.
func (b *testBench) updateOrg(r org.Record, by org.Author) error {
	was, err := b.Orgs.Org(b.Context(), r.ID)
	if err != nil {
		was = r
	}
	return b.Orgs.UpdateOrg(b.Context(), was, r, by)
}
