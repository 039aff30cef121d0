package storetest

import (
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func keyCases() []rule {
	return []rule{
		{"a key is stored as it was created", "with every field; the key itself is not one of them", func(b *testBench) { // K08
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			full := org.Key{}
			fill(&full)
			full.Org = "a"
			b.ok(b.Orgs.CreateKey(b.Context(), full, org.Author{}))
			b.keys("a", full)
		}},
		{"keys are listed oldest first", "keys of the same time by id", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			late := org.Key{Org: "a", ID: "a", Hash: hash(1), CreatedAt: b.now().Add(time.Millisecond)}
			early := org.Key{Org: "a", ID: "z", Hash: hash(2), CreatedAt: b.now()}
			twin := org.Key{Org: "a", ID: "y", Hash: hash(3), CreatedAt: b.now()}
			for _, k := range []org.Key{late, early, twin} {
				b.ok(b.Orgs.CreateKey(b.Context(), k, org.Author{}))
			}
			b.keys("a", twin, early, late)
			for _, tt := range []struct {
				after org.KeyPlace
				limit int
				want  []org.Key
			}{
				{org.KeyPlace{}, 2, []org.Key{twin, early}}, {early.Place(), 2, []org.Key{late}}, {twin.Place(), 1, []org.Key{early}},
				{org.KeyPlace{CreatedAt: early.CreatedAt.UnixMilli(), ID: "yy"}, 9, []org.Key{early, late}}, // of a key that was deleted
				{late.Place(), 9, nil},
			} {
				page, err := b.Orgs.KeysAfter(b.Context(), "a", tt.after, tt.limit)
				b.ok(err)
				if !slices.EqualFunc(page, tt.want, func(k, want org.Key) bool { return k.ID == want.ID }) {
					b.Errorf("after %+v: %+v", tt.after, page)
				}
			}
			page, err := b.Orgs.KeysAfter(b.Context(), "nobody", org.KeyPlace{}, 9)
			checkEmpty(b, page, err)
		}},
		{"a key needs its org", "ErrNotFound, even if the hash is taken", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: "a", ID: "k", Hash: hash(1)}, org.Author{}))
			b.checkError(b.Orgs.CreateKey(b.Context(), org.Key{Org: "nobody", ID: "k", Hash: hash(1)}, org.Author{}), org.ErrNotFound)
			b.keys("nobody")
		}},
		{"a key id is unique in its org", "ErrExists; another org may use it", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			k := org.Key{Org: "a", ID: "k", Hash: hash(1)}
			b.ok(b.Orgs.CreateKey(b.Context(), k, org.Author{}))
			b.checkError(b.Orgs.CreateKey(b.Context(), org.Key{Org: "a", ID: "k", Hash: hash(2)}, org.Author{}), org.ErrExists)
			b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: "b", ID: "k", Hash: hash(2)}, org.Author{}))
			b.keys("a", k)
		}},
		{"a key hash is unique over all orgs", "a key determines its org", func(b *testBench) { // K07
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "b"}, org.Author{}))
			b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: "a", ID: "k", Hash: hash(1)}, org.Author{}))
			b.checkError(b.Orgs.CreateKey(b.Context(), org.Key{Org: "b", ID: "other", Hash: hash(1)}, org.Author{}), org.ErrExists)
			b.keys("b")
		}},
		{"a key is revoked once", "the first time is kept", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			k := org.Key{Org: "a", ID: "k", Hash: hash(1), CreatedAt: b.now()}
			b.ok(b.Orgs.CreateKey(b.Context(), k, org.Author{}))
			b.ok(b.Orgs.RevokeKey(b.Context(), "a", "k", b.now().UnixMilli(), org.Author{}))
			b.ok(b.Orgs.RevokeKey(b.Context(), "a", "k", b.now().Add(time.Hour).UnixMilli(), org.Author{}))
			k.RevokedAt = b.now()
			b.keys("a", k)
		}},
		{"a missing key cannot be revoked", "ErrNotFound", func(b *testBench) {
			_, err := b.Orgs.Key(b.Context(), "a", "k")
			b.checkError(err, org.ErrNotFound)
			b.checkError(b.Orgs.RevokeKey(b.Context(), "a", "k", 1, org.Author{}), org.ErrNotFound)
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.checkError(b.Orgs.RevokeKey(b.Context(), "a", "k", 1, org.Author{}), org.ErrNotFound)
		}},
	}
}

// keys fails the case unless the org has exactly these keys.
func (b *testBench) keys(orgID string, want ...org.Key) {
	b.Helper()
	got, err := b.Orgs.Keys(b.Context(), orgID)
	if len(want) == 0 {
		checkEmpty(b, got, err)
		return
	}
	b.ok(err)
	b.equal(got, want)
	for _, k := range want {
		one, err := b.Orgs.Key(b.Context(), orgID, k.ID)
		b.ok(err)
		b.equal(one, k)
		_, err = b.Orgs.Key(b.Context(), orgID+"-other", k.ID)
		b.checkError(err, org.ErrNotFound)
	}
}
