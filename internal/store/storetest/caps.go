package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func capCases() []rule {
	return []rule{
		{"active keys are capped", "per org; revoking a key makes room", keysCapped},
		{"revoked keys are capped", "the latest are kept, so that daily rotation does not grow the list forever", revokedCapped},
		{"servers are capped", "deleting one makes room, and an existing one can be updated", serversCapped},
		{"secrets are capped", "an existing one can be replaced", secretsCapped},
	}
}

// runCapCases are those of runs and their conversations.
func runCapCases() []rule {
	return []rule{
		{"conversations are capped", "a new one is accepted and the oldest is dropped, because its run has already ended", conversationsCapped},
		{"stored bytes are capped", "new runs are refused; running ones can finish, a repeated key gets its run, and other orgs are not affected", storedCapped},
	}
}

// capped replaces the case's store by one with caps and the orgs a and b.
func (b *testBench) capped(caps org.Caps) {
	b.Helper()
	b.Store = b.maker.Capped(b.T, b.clocks(), caps)
	for _, id := range []string{"a", "b"} {
		b.createOrg(id)
	}
}

// checkCapError fails the case unless err is a *org.CapError with this setting and limit.
func (b *testBench) checkCapError(err error, setting string, most int64) {
	b.Helper()
	var capped *org.CapError
	if !errors.As(err, &capped) || capped.Setting != setting || capped.Max != most {
		b.Errorf("got error %v, want a *org.CapError for %s = %d", err, setting, most)
	}
}

func keysCapped(b *testBench) {
	b.capped(org.Caps{Keys: 2})
	key := func(orgID string, n int) error {
		return b.Orgs.CreateKey(b.Context(), org.Key{Org: orgID, ID: fmt.Sprint(n), Hash: hash(n), CreatedAt: b.now()}, org.Author{})
	}
	b.ok(key("a", 1))
	b.ok(key("a", 2))
	b.checkCapError(key("a", 3), "org_caps.keys", 2)
	b.ok(key("b", 4))
	b.ok(b.Orgs.RevokeKey(b.Context(), "a", "1", b.now().UnixMilli(), org.Author{}))
	b.ok(key("a", 3))
	b.checkCapError(key("a", 5), "org_caps.keys", 2)
}

func revokedCapped(b *testBench) {
	b.capped(org.Caps{Keys: 2})
	for n := range 5 {
		b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: "a", ID: fmt.Sprint(n), Hash: hash(n), CreatedAt: b.now()}, org.Author{}))
		b.ok(b.Orgs.RevokeKey(b.Context(), "a", fmt.Sprint(n), b.now().UnixMilli(), org.Author{}))
		b.advance(time.Second)
	}
	keys, err := b.Orgs.Keys(b.Context(), "a")
	b.ok(err)
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	b.equal(ids, []string{"3", "4"})
}

func serversCapped(b *testBench) {
	b.capped(org.Caps{MCPServers: 1})
	b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "s"}, org.Author{}))
	b.checkCapError(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "t"}, org.Author{}), "org_caps.mcp_servers", 1)
	b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "b", Name: "t"}, org.Author{}))
	b.ok(b.updateServer(org.MCPServer{Org: "a", Name: "s", URL: "http://x"}, org.Author{}))
	b.ok(b.Orgs.DeleteMCPServer(b.Context(), "a", "s", org.Author{}))
	b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "t"}, org.Author{}))
}

func secretsCapped(b *testBench) {
	b.capped(org.Caps{Secrets: 1})
	put := func(orgID, name string) error {
		return b.Orgs.PutSecret(b.Context(), org.Secret{Org: orgID, Name: name, Sealed: []byte("x")}, org.Author{})
	}
	b.ok(put("a", "s"))
	b.checkCapError(put("a", "t"), "org_caps.secrets", 1)
	b.ok(put("a", "s"))
	b.ok(put("b", "t"))
	b.ok(b.Orgs.DeleteSecret(b.Context(), "a", "s", org.Author{}))
	b.ok(put("a", "t"))
}

func conversationsCapped(b *testBench) {
	b.capped(org.Caps{Handovers: 2, Responses: 3})
	other := conversation("other", "id")
	b.ok(b.save("b", "p", other, call("id")))
	principal := func(i int) string { return fmt.Sprintf("p%d", i%2) } // all principals of an org share its cap
	var saved []journal.Conversation
	for i := range 4 {
		ids := []string{fmt.Sprintf("id %d", i), fmt.Sprintf("second id %d", i)}
		saved = append(saved, conversation(fmt.Sprint(i), ids...))
		b.ok(b.save("a", principal(i), saved[i], call(ids[0]), call(ids[1])))
		b.advance(time.Second)
	}
	for i, c := range saved {
		for _, id := range []string{fmt.Sprintf("id %d", i), fmt.Sprintf("second id %d", i)} {
			if i < 2 {
				b.noConversation("a", principal(i), call(id))
			} else {
				b.conversation("a", principal(i), call(id), c)
			}
		}
	}
	b.conversation("b", "p", call("id"), other)

	first := conversation("first")
	b.ok(b.save("a", "p", first, session("s")))
	b.advance(time.Second)
	b.ok(b.save("a", "p", conversation("1"), response("1")))
	b.advance(time.Second)
	first.Version = 1
	b.ok(b.save("a", "p", first, session("s"))) // it is now the latest
	b.advance(time.Second)
	for i := 2; i < 4; i++ {
		b.conversation("a", "p", response("1"), conversation("1"))
		b.ok(b.save("a", "p", conversation(fmt.Sprint(i)), response(fmt.Sprint(i))))
		b.advance(time.Second)
	}
	b.noConversation("a", "p", response("1"))
	first.Version = 2
	b.conversation("a", "p", session("s"), first)
	for i, c := range saved[2:] { // handovers do not count as responses, nor the other way round
		b.conversation("a", principal(i), call(fmt.Sprintf("id %d", i+2)), c)
	}
}

func storedCapped(b *testBench) {
	b.capped(org.Caps{Stored: 1 << 20})
	keyed := journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: "k", Hash: "h"}}
	first := b.author("a", "first")
	b.ok(first.open(keyed))
	small := journal.Row{Ref: "small", Value: "x"}
	b.ok(first.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{small}}, loop.InputAdded{ItemsRef: "small", By: loop.ByClient}))
	second := b.author("a", "second")
	b.ok(second.open(journal.Opening{}))
	large := journal.Row{Ref: "large", Value: strings.Repeat("x", 1<<20)}
	b.ok(second.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{large}}, loop.InputAdded{ItemsRef: "large", By: loop.ByClient}))

	b.checkCapError(b.author("a", "third").open(journal.Opening{}), "org_caps.stored_mib", 1)
	b.checkMissing("a", "third")
	var known *journal.Submitted
	if err := b.author("a", "again").open(keyed); !errors.As(err, &known) || known.RunID != "first" {
		b.Errorf("a repeated key got %v, want its run", err)
	}
	b.ok(second.append(b.Context(), journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "more", Value: "x"}}}, loop.InputAdded{ItemsRef: "more", By: loop.ByClient}))
	second.write(loop.Finished{Reason: "complete"})
	b.ok(b.author("b", "first").open(journal.Opening{}))
}
