package storetest

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func isolationCases() []rule {
	return []rule{
		{"two orgs with the same ids share nothing", "every stored key starts with the org", sameIDs}, // K07
		{"a change in one org does not affect another", "deletes, revocations and appends stay in their org", changesStayInOrg},
		{"an id of another org does not exist", "the answer is the same as for an unknown id", idsOfAnotherOrg},
	}
}

// populate creates an org with one of everything that the store has, with the same ids in every org.
func (b *testBench) populate(orgID string) {
	b.Helper()
	if b.Orgs != nil {
		b.populateOrg(orgID)
	}
	a := b.author(orgID, "run")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "row", Value: orgID}}}, accepted(orgID, "run"), started("0.0", 1)))
	b.ok(b.save(orgID, "key", conversation(orgID, "call"), call("call")))
}

func (b *testBench) populateOrg(orgID string) {
	b.Helper()
	b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: orgID, Features: []string{orgID}}, org.Author{}))
	b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: orgID, ID: "key", Name: orgID, Hash: hash(len(orgID))}, org.Author{}))
	b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: orgID, Name: "server", URL: "http://" + orgID}, org.Author{}))
	b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: orgID, Name: "secret", Sealed: []byte(orgID)}, org.Author{}))
	b.keepResult(orgID, b.entry("result", orgID))
}

// checkPopulated fails the case unless the org has exactly what populate created.
func (b *testBench) checkPopulated(orgID string) {
	b.Helper()
	if b.Orgs != nil {
		b.keys(orgID, org.Key{Org: orgID, ID: "key", Name: orgID, Hash: hash(len(orgID))})
		b.servers(orgID, org.MCPServer{Org: orgID, Name: "server", URL: "http://" + orgID})
		b.secrets(orgID, org.Secret{Org: orgID, Name: "secret"})
		b.secret(org.Secret{Org: orgID, Name: "secret", Sealed: []byte(orgID)})
		b.checkResult(orgID, b.entry("result", orgID))
	}
	story, err := b.Archive.Load(b.Context(), orgID, "run")
	b.ok(err)
	if got := string(story.Rows["row"]); got != `"`+orgID+`"` || len(story.Facts) != 2 || story.Summary.Principal != "key of "+orgID {
		b.Errorf("org %s has the run %+v", orgID, story)
	}
	runs, err := b.Archive.Runs(b.Context(), orgID, journal.Query{Limit: 10})
	b.ok(err)
	if len(runs) != 1 || runs[0].Org != orgID {
		b.Errorf("org %s has the runs %+v", orgID, runs)
	}
	b.conversation(orgID, "key", call("call"), conversation(orgID, "call"))
}

func sameIDs(b *testBench) {
	b.populate("a")
	b.populate("bb")
	b.checkPopulated("a")
	b.checkPopulated("bb")
}

func changesStayInOrg(b *testBench) {
	b.populate("a")
	b.populate("bb")
	if b.Orgs != nil {
		b.changeOrg()
	}
	theirs := b.author("bb", "run")
	theirs.facts = theirs.number(accepted("bb", "run"), started("0.0", 1))
	theirs.lease.Epoch = 9
	b.ok(theirs.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "more", Value: 1}}}, started("0.1", 1), loop.Finished{Reason: event.Complete}))
	b.checkPopulated("a")
	if b.Orgs != nil {
		b.ok(b.Orgs.DeleteOrg(b.Context(), "bb", org.Author{}))
		b.checkPopulated("a")
	}
}

// changeOrg changes and deletes what the org bb has besides runs.
func (b *testBench) changeOrg() {
	b.Helper()
	b.ok(b.updateOrg(org.Record{ID: "bb", Features: []string{"changed"}}, org.Author{}))
	b.orgs(org.Record{ID: "a", Features: []string{"a"}}, org.Record{ID: "bb", Features: []string{"changed"}})
	b.ok(b.Orgs.RevokeKey(b.Context(), "bb", "key", 1, org.Author{}))
	b.ok(b.updateServer(org.MCPServer{Org: "bb", Name: "server", URL: "http://changed"}, org.Author{}))
	b.ok(b.Orgs.DeleteMCPServer(b.Context(), "bb", "server", org.Author{}))
	b.ok(b.Orgs.PutSecret(b.Context(), org.Secret{Org: "bb", Name: "secret", Sealed: []byte("changed")}, org.Author{}))
	b.ok(b.Orgs.DeleteSecret(b.Context(), "bb", "secret", org.Author{}))
}

func idsOfAnotherOrg(b *testBench) {
	b.populate("a")
	b.createOrg("bb")
	b.noConversation("bb", "key", call("call"))
	for _, id := range []string{"run", "nobody's"} {
		_, err := b.Archive.Load(b.Context(), "bb", id)
		b.checkNotFound(err, "run "+id)
		_, err = b.Archive.Runs(b.Context(), "bb", journal.Query{Before: id, Limit: 10})
		b.checkNotFound(err, "run "+id)
	}
	if b.Orgs != nil {
		b.checkForeignOrg()
	}
	b.checkPopulated("a")
}

// checkForeignOrg fails the case unless the org bb has none of what populateOrg has created in another one.
func (b *testBench) checkForeignOrg() {
	b.Helper()
	b.keys("bb")
	b.servers("bb")
	b.checkNoResult("bb", "result")
	for _, id := range []string{"key", "nobody's"} {
		b.checkNotFound(b.Orgs.RevokeKey(b.Context(), "bb", id, 1, org.Author{}), "key "+id)
	}
	for _, id := range []string{"server", "nobody's"} {
		b.checkNotFound(b.updateServer(org.MCPServer{Org: "bb", Name: id}, org.Author{}), "MCP server "+id)
		b.checkNotFound(b.Orgs.DeleteMCPServer(b.Context(), "bb", id, org.Author{}), "MCP server "+id)
	}
	for _, id := range []string{"secret", "nobody's"} {
		_, err := b.Orgs.Secret(b.Context(), "bb", id)
		b.checkNotFound(err, "secret "+id)
		b.checkNotFound(b.Orgs.DeleteSecret(b.Context(), "bb", id, org.Author{}), "secret "+id)
	}
}

// checkNotFound fails the case unless err is "what: not found" and nothing more.
func (b *testBench) checkNotFound(err error, what string) {
	b.Helper()
	b.checkError(err, org.ErrNotFound)
	if want := what + ": " + org.ErrNotFound.Error(); err != nil && err.Error() != want {
		b.Errorf("got %q, want %q", err, want)
	}
}
