package storetest

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func secretCases() []rule { // K06
	return []rule{
		{"a secret is stored as it was put", "every byte of the sealed value, and the times", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			full := org.Secret{}
			fill(&full)
			full.Org = "a"
			b.ok(b.Orgs.PutSecret(b.Context(), full, org.Author{}))
			b.secret(full)
		}},
		{"a list contains no secret values", "not even sealed ones", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			for _, name := range []string{"z", "a", "M"} {
				b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: name, Sealed: []byte{1}, CreatedAt: b.now(), UpdatedAt: b.now()}, org.Author{}))
			}
			b.secrets("a",
				org.Secret{Org: "a", Name: "M", CreatedAt: b.now(), UpdatedAt: b.now()},
				org.Secret{Org: "a", Name: "a", CreatedAt: b.now(), UpdatedAt: b.now()},
				org.Secret{Org: "a", Name: "z", CreatedAt: b.now(), UpdatedAt: b.now()})
		}},
		{"a replaced secret keeps its creation time", "PutSecret leaves CreatedAt", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: "s", Sealed: []byte{1}, CreatedAt: b.now(), UpdatedAt: b.now()}, org.Author{}))
			later := b.now().Add(time.Hour)
			b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: "s", Sealed: []byte{2, 0, 3}, CreatedAt: later, UpdatedAt: later}, org.Author{}))
			b.secret(org.Secret{Org: "a", Name: "s", Sealed: []byte{2, 0, 3}, CreatedAt: b.now(), UpdatedAt: later})
			b.secrets("a", org.Secret{Org: "a", Name: "s", CreatedAt: b.now(), UpdatedAt: later})
		}},
		{"a secret needs its org", "ErrNotFound", func(b *testBench) {
			b.checkError(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: "s", Sealed: []byte{1}}, org.Author{}), org.ErrNotFound)
			b.secrets("a")
		}},
		{"a missing secret is not found", "reading and deleting: ErrNotFound, also if the org is missing", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: "s", Sealed: []byte{1}}, org.Author{}))
			b.ok(b.Orgs.DeleteSecret(b.Context(), "a", "s", org.Author{}))
			for _, orgID := range []string{"a", "nobody"} {
				_, err := b.Orgs.Secret(b.Context(), orgID, "s")
				b.checkNotFound(err, "secret s")
				b.checkNotFound(b.Orgs.DeleteSecret(b.Context(), orgID, "s", org.Author{}), "secret s")
				b.secrets(orgID)
			}
		}},
		{"deleting an org deletes its secrets", "a new org with the same id must not find them", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: "s", Sealed: []byte{1}}, org.Author{}))
			b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.secrets("a")
		}},
		{"a caller may modify a secret", "the store copies secrets", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			sealed := []byte{1, 2}
			b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "a", Name: "s", Sealed: sealed}, org.Author{}))
			sealed[0] = 9
			got, err := b.Orgs.Secret(b.Context(), "a", "s")
			b.ok(err)
			got.Sealed[1] = 9
			b.secret(org.Secret{Org: "a", Name: "s", Sealed: []byte{1, 2}})
		}},
	}
}

// secrets fails the case unless the org has exactly these secrets.
func (b *testBench) secrets(orgID string, want ...org.Secret) {
	b.Helper()
	got, err := b.Orgs.Secrets(b.Context(), orgID)
	if len(want) == 0 {
		checkEmpty(b, got, err)
		return
	}
	b.ok(err)
	b.equal(got, want)
}

// secret fails the case unless the secret is stored as want.
func (b *testBench) secret(want org.Secret) {
	b.Helper()
	got, err := b.Orgs.Secret(b.Context(), want.Org, want.Name)
	b.ok(err)
	b.equal(got, want)
}
