package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func recordedCases() []rule {
	return []rule{
		{"a change is recorded with its author", "every change appends one row to the chain of its org", changeRecorded}, // L13
		{"a refused change leaves no audit row", "the row and the change are one transaction", refusalNotRecorded},
		{"the operator's changes are recorded twice", "they are also in the operator's chain, which remains when the org is deleted", operatorRecorded},
		{"a key is updated only if it has not changed since it was read", "concurrent updates must not undo each other", keyUpdated},
		{"a key is rotated only if it has the secret that was read", "RotateKey replaces the secrets and nothing else", keyRotated},
		{"an org switches shared servers off", "for itself, with an audit entry for each change", serverSwitched},
	}
}

// managed returns the management rows of a chain as "principal action resource org/id".
func (b *testBench) managed(chain string) (out []string) {
	b.Helper()
	rows, err := b.Audit.AuditRows(b.Context(), chain, audit.Query{Kind: audit.KindManagement})
	b.ok(err)
	for _, row := range rows {
		var m audit.Management
		b.ok(json.Unmarshal(row.Body, &m))
		if row.At != b.clock.Load() || row.RequestID != "req" {
			b.Errorf("row %d has the time %d and the request %q", row.Number, row.At, row.RequestID)
		}
		out = append(out, fmt.Sprint(row.Principal, " ", m.Action, " ", m.Resource, " ", m.Org, "/", m.ID))
	}
	return out
}

func (b *testBench) by(principal string) org.Author {
	return org.Author{Principal: principal, RequestID: "req", At: b.clock.Load()}
}

func changeRecorded(b *testBench) {
	ctx, by := b.Context(), b.by("k")
	key := org.Key{Org: "a", ID: "k", Role: org.Member, Hash: hash(1)}
	server := org.MCPServer{Org: "a", Name: "s", URL: "http://s"}
	put := org.Secret{Org: "a", Name: "v", Sealed: []byte{1}}
	changed := key
	changed.Role = org.Reader
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, by))
	b.ok(b.updateOrg(org.Record{ID: "a", Features: []string{"f"}}, by))
	b.ok(b.Orgs.CreateKey(ctx, key, by))
	b.ok(b.Orgs.UpdateKey(ctx, key, changed, by))
	b.ok(b.Orgs.RevokeKey(ctx, "a", "k", 1, by))
	b.ok(b.Orgs.RevokeKey(ctx, "a", "k", 2, by)) // already revoked: no row
	b.ok(b.Orgs.CreateMCPServer(ctx, server, by))
	b.ok(b.updateServer(server, by))
	b.ok(b.Orgs.DeleteMCPServer(ctx, "a", "s", by))
	b.ok(b.Orgs.PutSecret(ctx, put, by))
	b.ok(b.Orgs.PutSecret(ctx, put, by))
	b.ok(b.Orgs.PutSecret(ctx, put, org.Author{})) // by the gateway: no row
	b.ok(b.Orgs.DeleteSecret(ctx, "a", "v", by))
	b.equal(b.managed("a"), []string{
		"k create org a/a", "k update org a/a", "k create key a/k", "k update key a/k", "k revoke key a/k",
		"k create mcp_server a/s", "k update mcp_server a/s", "k delete mcp_server a/s",
		"k create secret a/v", "k replace secret a/v", "k delete secret a/v",
	})
	b.equal(b.managed(org.Operator), []string(nil))
	b.verifyChain("a")
}

func refusalNotRecorded(b *testBench) {
	ctx, by := b.Context(), b.by(org.Operator)
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, org.Author{}))
	b.checkError(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, by), org.ErrExists)
	b.checkError(b.updateOrg(org.Record{ID: "b"}, by), org.ErrNotFound)
	b.checkError(b.Orgs.DeleteOrg(ctx, "b", by), org.ErrNotFound)
	b.checkError(b.Orgs.CreateKey(ctx, org.Key{Org: "b", ID: "k"}, by), org.ErrNotFound)
	b.checkError(b.Orgs.UpdateKey(ctx, org.Key{Org: "a", ID: "k"}, org.Key{Org: "a", ID: "k"}, by), org.ErrNotFound)
	b.checkError(b.Orgs.RevokeKey(ctx, "a", "k", 1, by), org.ErrNotFound)
	b.checkError(b.updateServer(org.MCPServer{Org: "a", Name: "s"}, by), org.ErrNotFound)
	b.checkError(b.Orgs.DeleteMCPServer(ctx, "a", "s", by), org.ErrNotFound)
	b.checkError(b.Orgs.PutSecret(ctx, org.Secret{Org: "b", Name: "v"}, by), org.ErrNotFound)
	b.checkError(b.Orgs.DeleteSecret(ctx, "a", "v", by), org.ErrNotFound)
	for _, chain := range []string{"a", "b", org.Operator} {
		b.equal(b.managed(chain), []string(nil))
	}
}

func operatorRecorded(b *testBench) {
	ctx, by := b.Context(), b.by(org.Operator)
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, by))
	b.ok(b.Orgs.CreateKey(ctx, org.Key{Org: "a", ID: "k", Hash: hash(1)}, by))
	b.ok(b.updateOrg(org.Record{ID: "a", Features: []string{"f"}}, b.by("k")))
	b.ok(b.Orgs.DeleteOrg(ctx, "a", by))
	b.equal(b.managed(org.Operator), []string{"@operator create org a/a", "@operator create key a/k", "@operator delete org a/a"})
	b.equal(b.managed("a"), []string{"@operator create org a/a", "@operator create key a/k", "k update org a/a", "@operator delete org a/a"})
	b.verifyChain("a")
	b.verifyChain(org.Operator)
}

func keyRotated(b *testBench) { // P46
	ctx, by := b.Context(), b.by("k")
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, by))
	was := org.Key{Org: "a", ID: "k", Name: "n", Role: org.Owner, Hash: hash(1), Hint: "h1", CreatedAt: b.now()}
	b.ok(b.Orgs.CreateKey(ctx, was, by))
	b.ok(b.Orgs.CreateKey(ctx, org.Key{Org: "a", ID: "other", Hash: hash(9), CreatedAt: b.now().Add(time.Second)}, org.Author{}))
	now := was
	now.Hash, now.Hint, now.Previous = hash(2), "h2", org.PreviousSecret{Hash: hash(1), Hint: "h1", Until: b.now().Add(time.Hour)}
	changed := now
	changed.Name, changed.Role = "m", org.Member // RotateKey ignores them
	b.ok(b.Orgs.RotateKey(ctx, was, changed, by))
	one, err := b.Orgs.Key(ctx, "a", "k")
	b.ok(err)
	b.equal(one, now)
	b.checkError(b.Orgs.RotateKey(ctx, was, now, by), org.ErrChanged) // two at the same time: one wins
	taken := now
	taken.Hash = hash(9)
	b.checkError(b.Orgs.RotateKey(ctx, now, taken, by), org.ErrExists)
	b.checkError(b.Orgs.RotateKey(ctx, org.Key{Org: "a", ID: "none"}, org.Key{Org: "a", ID: "none"}, by), org.ErrNotFound)
	again := now
	again.Hash, again.Hint, again.Previous = hash(3), "h3", org.PreviousSecret{}
	b.ok(b.Orgs.RotateKey(ctx, now, again, by))
	one, err = b.Orgs.Key(ctx, "a", "k")
	b.ok(err)
	b.equal(one, again)
	b.equal(b.managed("a"), []string{"k create org a/a", "k create key a/k", "k rotate key a/k", "k rotate key a/k"})
}

func serverSwitched(b *testBench) { // P47
	ctx, by := b.Context(), b.by("k")
	off := func(orgID string, want ...string) {
		b.Helper()
		got, err := b.Orgs.ServersOff(ctx, orgID)
		b.ok(err)
		b.equal(append([]string{}, got...), append([]string{}, want...))
	}
	b.checkError(b.Orgs.SwitchServer(ctx, "a", "s", false, by), org.ErrNotFound)
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, org.Author{}))
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "b"}, org.Author{}))
	for _, name := range []string{"z", "s", "z"} {
		b.ok(b.Orgs.SwitchServer(ctx, "a", name, false, by))
	}
	b.ok(b.Orgs.SwitchServer(ctx, "b", "s", true, by)) // it is on
	off("a", "s", "z")
	off("b")
	b.ok(b.Orgs.EachOrg(ctx, func(c org.Contents) error {
		if c.ID == "a" {
			b.equal(c.Off, []string{"s", "z"})
		}
		return nil
	}))
	b.ok(b.Orgs.SwitchServer(ctx, "a", "z", true, by))
	off("a", "s")
	b.equal(b.managed("a"), []string{"k update mcp_server a/z", "k update mcp_server a/s", "k update mcp_server a/z"})
	b.ok(b.Orgs.DeleteOrg(ctx, "a", org.Author{}))
	off("a")
}

func keyUpdated(b *testBench) {
	ctx, by := b.Context(), b.by("k")
	b.ok(b.Orgs.CreateOrg(ctx, org.Record{ID: "a"}, by))
	was := org.Key{Org: "a", ID: "k", Name: "n", Role: org.Owner, Hash: hash(1), CreatedAt: b.now()}
	b.ok(b.Orgs.CreateKey(ctx, was, by))
	now := was
	now.Name, now.Role, now.Rate = "m", org.Member, org.Rate{PerMinute: 5, Burst: 2}
	now.Access, now.ExpiresAt = org.Access{Servers: []string{}, Models: []string{"g*"}, EndUsers: true, ReadOnly: true}, b.now().Add(time.Hour)
	now.Previous = org.PreviousSecret{Hash: hash(3), Until: b.now()} // UpdateKey ignores it, too
	now.Hash = hash(2)                                               // UpdateKey ignores the hash
	b.ok(b.Orgs.UpdateKey(ctx, was, now, by))
	now.Hash, now.Previous = hash(1), org.PreviousSecret{}
	b.keys("a", now)
	b.checkError(b.Orgs.UpdateKey(ctx, was, was, by), org.ErrChanged)
	b.ok(b.Orgs.RevokeKey(ctx, "a", "k", b.clock.Load(), by))
	b.checkError(b.Orgs.UpdateKey(ctx, now, now, by), org.ErrChanged)
}
