package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

func deletedConversations() []rule {
	return []rule{
		{"a deleted conversation is gone, with all of its keys", "whoever deletes it wants that; those of others stay", func(b *testBench) {
			c := conversation("r", "id 1")
			b.ok(b.save("a", "p", c, call("id 1"), response("id 2")))
			b.ok(b.save("a", "q", c, response("id 2")))
			b.ok(b.save("b", "p", c, response("id 2")))
			b.deleted("a", "p", session("id 2"), false)
			b.deleted("a", "p", response("id 2"), true)
			b.deleted("a", "p", response("id 2"), false)
			b.deleted("a", "p", call("id 1"), false)
			b.noConversation("a", "p", call("id 1"))
			b.noConversation("a", "p", response("id 2"))
			b.conversation("a", "q", response("id 2"), c)
			b.conversation("b", "p", response("id 2"), c)
			b.ok(b.save("a", "p", c, response("id 2"))) // the id is free again
		}},
	}
}

// sessionRules are those of the sessions of keys.
func sessionRules() []rule {
	return []rule{
		{"the sessions of a principal are listed, that first which was saved first", "the one that was not used for the longest time is deleted for a new one", storedSessions}, // J05
	}
}

// sessionRevokeCases are those of the sessions of keys that are revoked.
func sessionRevokeCases() []rule {
	return []rule{
		{"revoking a key deletes its sessions, and nothing else", "nobody can reach them any more", sessionsOfRevoked}, // J07
	}
}

// historyRules are those of FindAll and FindChain.
func historyRules() []rule {
	return []rule{
		{"several conversations are found at once", "in the order of the keys; what is not stored is left out", findAll},
		{"a chain of segments is found at once", "the latest first; it ends where a segment is not stored", findChain},
		{"a history has every field that continues it", "and none that only the answer itself needs", historyFields},
		{"an error ends a history", "the request is refused before the rest is read", func(b *testBench) {
			b.chain("1", "2", "3")
			refused, called := errors.New("refused"), 0
			b.checkError(b.Conversations.FindAll(b.Context(), "a", "", []journal.ConversationKey{response("1"), response("2")}, func(int, *journal.Conversation) error {
				called++
				return refused
			}), refused)
			b.checkError(b.Conversations.FindChain(b.Context(), "a", "", "3", func(*journal.Conversation) error {
				called++
				return refused
			}), refused)
			b.equal(called, 2)
		}},
	}
}

func conversationCases() []rule {
	return append(slices.Concat(deletedConversations(), sessionRules(), historyRules(), chainRules()), []rule{
		{"effects without items are listed, and no other", "a person resolves them", unknownEffects},
		{"a conversation is found by each of its keys", "it is returned as it was saved", func(b *testBench) {
			c := conversation("r", "id 1", "id 2")
			b.ok(b.save("a", "p", c, call("id 1"), call("id 2"), response("id 3")))
			for _, key := range []journal.ConversationKey{call("id 1"), call("id 2"), response("id 3")} {
				b.conversation("a", "p", key, c)
			}
			for _, key := range []journal.ConversationKey{call("id 3"), call("provider's id 1"), response("id 1"), session("id 3"), {}} {
				b.noConversation("a", "p", key)
			}
		}},
		{"every field of a conversation is stored", "what a build forgets, a caller gets wrong answers for", func(b *testBench) {
			var c journal.Conversation
			fill(&c, "Version", "Items", "RequestJSON")
			c.Items = item.List{item.NewText(item.User, "x")}
			c.RequestJSON = json.RawMessage(`{"x":1}`)
			b.ok(b.save("a", "p", c, response("id")))
			b.conversation("a", "p", response("id"), c)
		}},
		{"a conversation belongs to its principal", "for another key of the org, its ids are unknown", func(b *testBench) {
			for _, key := range []journal.ConversationKey{call("id"), response("id"), session("id")} {
				b.ok(b.save("a", "p", conversation("r"), key))
				b.noConversation("a", "q", key)
				b.noConversation("b", "p", key)
				b.noConversation("", "", key)
			}
			changed := conversation("changed")
			changed.Version = 1
			b.checkError(b.save("a", "q", changed, session("id")), journal.ErrChanged)
			b.conversation("a", "p", session("id"), conversation("r"))
		}},
		{"an id may be used by several principals and kinds", "each finds its own conversation", func(b *testBench) { // K07
			owners := [][2]string{{"a", "p"}, {"a", "q"}, {"b", "p"}}
			keys := []journal.ConversationKey{call("id"), response("id"), session("id")}
			for _, o := range owners {
				for _, key := range keys {
					b.ok(b.save(o[0], o[1], conversation(o[0]+o[1]+key.String()), key))
				}
			}
			for _, o := range owners {
				for _, key := range keys {
					b.conversation(o[0], o[1], key, conversation(o[0]+o[1]+key.String()))
				}
			}
		}},
		{"a new conversation overwrites nothing", "an id is used once: ErrExists, and nothing is stored", func(b *testBench) {
			first := conversation("first", "id 1", "id 2")
			b.ok(b.save("a", "p", first, call("id 1"), call("id 2")))
			b.checkError(b.save("a", "p", conversation("second"), call("id 2"), call("id 3")), org.ErrExists)
			b.checkError(b.save("a", "p", conversation("second"), call("id 3"), call("id 2")), org.ErrExists)
			b.checkError(b.save("a", "p", conversation("second"), call("id 1")), org.ErrExists)
			b.conversation("a", "p", call("id 1"), first)
			b.conversation("a", "p", call("id 2"), first)
			b.noConversation("a", "p", call("id 3"))
			b.ok(b.save("a", "p", first, session("s")))
			b.checkError(b.save("a", "p", conversation("second"), session("s")), org.ErrExists)
			b.conversation("a", "p", session("s"), first)
		}},
		{"calls and responses are never replaced", "a caller can continue from each of them, more than once", func(b *testBench) {
			for _, keys := range [][]journal.ConversationKey{{call("id")}, {response("id")}} {
				first := conversation("first")
				b.ok(b.save("a", "p", first, keys...))
				next := conversation("next")
				next.Version = 1
				b.checkRefused(b.save("a", "p", next, keys...))
				b.conversation("a", "p", keys[0], first)
			}
		}},
		{"the session of a conversation is replaced", "with the version that was read, and no other", replaced},
		{"two writers of a session cannot lose a change", "of those who read the same version, one can save", twoWriters},
		{"only a valid conversation is saved", "it has keys, each once, and an end; a session has no second key", func(b *testBench) {
			for _, keys := range [][]journal.ConversationKey{{}, {{}}, {{Kind: "thread", ID: "id"}}, {call("")}, {call("x"), call("x")}, {session("x"), call("x")}} {
				b.checkRefused(b.save("a", "p", conversation("r"), keys...))
			}
			b.checkRefused(b.Conversations.Save(b.Context(), "a", "p", conversation("r"), 0, call("x")))
			b.noConversation("a", "p", call("x"))
		}},
		{"a conversation expires", "after its time to live and not before; its keys are free again", expiry},
		{"a caller may modify a conversation", "Save and Find copy", func(b *testBench) {
			c := conversation("r", "id 1")
			b.ok(b.save("a", "p", c, call("id 1")))
			c.CallIDs["id 1"], c.Items[0] = "changed", item.Item{}
			got, err := b.Conversations.Find(b.Context(), "a", "p", call("id 1"))
			b.ok(err)
			got.CallIDs["id 1"], got.Items[0] = "changed", item.Item{}
			b.conversation("a", "p", call("id 1"), conversation("r", "id 1"))
		}},
	}...)
}

// chain saves segments with these ids, each after the one before it.
func (b *testBench) chain(ids ...string) {
	b.Helper()
	previous := ""
	for _, id := range ids {
		c := conversation(id)
		c.Previous = previous
		b.ok(b.save("a", "", c, response(id)))
		previous = id
	}
}

// chained returns the runs of the segments that FindChain finds from an id on.
func (b *testBench) chained(orgID, principal, id string) string {
	b.Helper()
	var runs []string
	b.ok(b.Conversations.FindChain(b.Context(), orgID, principal, id, func(c *journal.Conversation) error {
		runs = append(runs, c.RunID)
		return nil
	}))
	return strings.Join(runs, " ")
}

func findAll(b *testBench) {
	b.ok(b.Conversations.Save(b.Context(), "a", "p", conversation("brief"), time.Minute, response("brief")))
	for _, id := range []string{"x", "a", "m"} {
		b.ok(b.save("a", "p", conversation(id), response(id), call("of "+id)))
	}
	b.ok(b.save("a", "p", conversation("session"), session("a")))
	b.ok(b.save("a", "q", conversation("other principal"), response("y")))
	b.ok(b.save("b", "p", conversation("other org"), response("y")))
	found := func(keys ...journal.ConversationKey) string {
		var out []string
		b.ok(b.Conversations.FindAll(b.Context(), "a", "p", keys, func(i int, c *journal.Conversation) error {
			out = append(out, fmt.Sprint(i, " ", c.RunID, " ", c.Version))
			return nil
		}))
		return strings.Join(out, ", ")
	}
	b.equal(found(), "")
	b.equal(found(response("m"), response("y"), response("x"), session("a"), call("of a"), response("brief"), response("m")),
		"0 m 1, 2 x 1, 3 session 1, 4 a 1, 5 brief 1, 6 m 1")
	b.advance(time.Minute)
	b.equal(found(response("brief"), response("a")), "1 a 1")
}

func findChain(b *testBench) {
	b.chain("1", "2", "3")
	branch := conversation("branch")
	branch.Previous = "2"
	b.ok(b.Conversations.Save(b.Context(), "a", "", branch, time.Minute, response("branch")))
	last := conversation("last")
	last.Previous = "branch"
	b.ok(b.save("a", "", last, response("last")))
	b.ok(b.save("a", "p", conversation("of p"), response("of p")))
	b.ok(b.save("a", "", conversation("session"), session("s")))
	for id, want := range map[string]string{"1": "1", "3": "3 2 1", "branch": "branch 2 1", "last": "last branch 2 1", "of p": "", "s": "", "none": "", "": ""} {
		b.equal(b.chained("a", "", id), want)
	}
	b.equal(b.chained("a", "p", "of p"), "of p")
	b.equal(b.chained("a", "p", "3"), "")
	b.equal(b.chained("b", "", "3"), "")
	b.advance(time.Minute)
	b.equal(b.chained("a", "", "last"), "last")
	b.deleted("a", "", response("1"), true)
	b.equal(b.chained("a", "", "3"), "3 2")
}

func historyFields(b *testBench) {
	var c journal.Conversation
	fill(&c, "Version", "Items", "RequestJSON")
	c.Items = item.List{item.NewText(item.User, "x")}
	c.RequestJSON = json.RawMessage(`{"x":1}`)
	b.ok(b.save("a", "", c, response("id")))
	c.Version, c.Input, c.RequestJSON, c.Waiting = 1, nil, nil, nil
	b.ok(b.Conversations.FindChain(b.Context(), "a", "", "id", func(got *journal.Conversation) error {
		b.equal(got, &c)
		return nil
	}))
	c.Parts = nil
	b.ok(b.Conversations.FindAll(b.Context(), "a", "", []journal.ConversationKey{response("id")}, func(_ int, got *journal.Conversation) error {
		b.equal(got, &c)
		return nil
	}))
}

func replaced(b *testBench) {
	texts := []string{"first", "second, which is longer", "third"}
	for i, text := range texts {
		for _, version := range []int64{-1, 0, 1, 2, 3} {
			if version == int64(i) {
				continue
			}
			c := conversation("other")
			c.Version = version
			want := journal.ErrChanged
			if version == 0 {
				want = org.ErrExists
			}
			b.checkError(b.save("a", "p", c, session("s")), want)
		}
		c := conversation(text)
		c.Version = int64(i)
		b.ok(b.save("a", "p", c, session("s")))
		c.Version++
		b.conversation("a", "p", session("s"), c)
	}
	b.advance(journal.HandoverTTL)
	c := conversation("too late")
	c.Version = int64(len(texts))
	b.checkError(b.save("a", "p", c, session("s")), journal.ErrChanged)
	b.noConversation("a", "p", session("s"))
}

func twoWriters(b *testBench) {
	const writers, turns = 4, 20
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range turns {
				for !b.addTurn("s") {
				}
			}
		})
	}
	all.Wait()
	got, err := b.Conversations.Find(b.Context(), "a", "p", session("s"))
	b.ok(err)
	if got.Version != writers*turns || len(got.Items) != writers*turns {
		b.Errorf("version %d with %d items after %d changes", got.Version, len(got.Items), writers*turns)
	}
}

// addTurn adds an item to the session, and reports whether no other writer was faster.
func (b *testBench) addTurn(id string) bool {
	c, err := b.Conversations.Find(b.Context(), "a", "p", session(id))
	if c == nil {
		c = &journal.Conversation{}
	}
	c.Items = append(c.Items, item.NewText(item.User, "x"))
	if err == nil {
		err = b.save("a", "p", *c, session(id))
	}
	if errors.Is(err, journal.ErrChanged) || errors.Is(err, org.ErrExists) {
		return false
	}
	if err != nil {
		b.Error(err)
	}
	return true
}

func expiry(b *testBench) {
	const short, long = time.Minute, time.Hour
	brief, lasting := conversation("brief"), conversation("lasting")
	b.ok(b.Conversations.Save(b.Context(), "a", "p", lasting, long, response("lasting")))
	b.ok(b.Conversations.Save(b.Context(), "a", "p", brief, short, call("brief"), call("also")))
	b.ok(b.Conversations.Save(b.Context(), "a", "p", brief, short, session("s")))
	b.advance(short - time.Millisecond)
	b.conversation("a", "p", call("brief"), brief)
	replaced := conversation("replaced")
	replaced.Version = 1
	b.ok(b.Conversations.Save(b.Context(), "a", "p", replaced, short, session("s"))) // its time begins again
	b.advance(time.Millisecond)
	b.noConversation("a", "p", call("brief"))
	b.noConversation("a", "p", call("also"))
	replaced.Version = 2
	b.conversation("a", "p", session("s"), replaced)
	again := conversation("again")
	b.ok(b.Conversations.Save(b.Context(), "a", "p", again, short, call("also")))
	b.conversation("a", "p", call("also"), again)
	b.noConversation("a", "p", call("brief"))
	b.conversation("a", "p", response("lasting"), lasting)
	b.advance(long)
	b.noConversation("a", "p", response("lasting"))
}

func (b *testBench) sessionsOf(orgID, principal string) string {
	b.Helper()
	lister, ok := b.Conversations.(journal.SessionLister)
	if !ok {
		b.Fatal("the store has no list of sessions")
	}
	all, err := lister.StoredSessions(b.Context(), orgID, principal)
	b.ok(err)
	var ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	return strings.Join(ids, " ")
}

// chat is the key of a chat session of a principal.
func chat(principal, id string) journal.ConversationKey {
	return session(journal.SessionPrefix(principal) + id)
}

func storedSessions(b *testBench) {
	for _, id := range []string{"x", "a", "m"} {
		b.ok(b.save("a", "", conversation(id), chat("p", id)))
		b.advance(time.Millisecond)
	}
	b.ok(b.save("a", "", conversation("other"), chat("q", "other")))
	b.ok(b.save("a", "", conversation("other"), chat("p.q", "other")))
	b.ok(b.save("b", "", conversation("other"), chat("p", "other")))
	b.ok(b.save("a", "", conversation("named"), session("conv_1")))
	again := conversation("x")
	again.Version = 1
	b.ok(b.Conversations.Save(b.Context(), "a", "", again, time.Minute, chat("p", "x")))
	b.equal(b.sessionsOf("a", "p"), "a m x")
	b.advance(time.Minute)
	b.equal(b.sessionsOf("a", "p"), "a m")
}

func sessionsOfRevoked(b *testBench) {
	b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
	for i, id := range []string{"k", "other"} {
		b.ok(b.Orgs.CreateKey(b.Context(), org.Key{Org: "a", ID: id, Hash: hash(i), CreatedAt: b.now()}, org.Author{}))
		b.ok(b.addPart(journal.SessionPrefix(id)+"s", "resp_"+id))
		b.ok(b.save("a", id, conversation("r"), response("r")))
	}
	b.ok(b.save("a", "", conversation("named"), session("conv_1")))
	b.ok(b.Orgs.RevokeKey(b.Context(), "a", "k", b.now().UnixMilli(), org.Author{}))
	b.noConversation("a", "", chat("k", "s"))
	b.noConversation("a", "", response("resp_k"))
	b.conversation("a", "k", response("r"), conversation("r"))
	b.parts(journal.SessionPrefix("other")+"s", "resp_other")
	b.conversation("a", "", session("conv_1"), conversation("named"))
}

// P39
func unknownEffects(b *testBench) {
	effect := func(orgID, principal, id string, items item.List) {
		c := journal.Conversation{RunID: "r " + id, Items: items, RequestJSON: json.RawMessage(`{"call":"0.0"}`)}
		b.ok(b.save(orgID, principal, c, journal.ConversationKey{Kind: journal.EffectKey, ID: id}))
	}
	for _, id := range []string{"pay:C", "pay:A", "pay:B"} {
		effect("a", "", id, nil)
	}
	effect("a", "", "pay:D", item.List{item.NewResult("", "paid", false)})
	effect("a", "p", "pay:E", nil)
	effect("b", "", "pay:F", nil)
	b.ok(b.save("a", "", journal.Conversation{RunID: "r"}, response("pay:G")))
	effects, ok := b.Conversations.(journal.Effects)
	if !ok {
		b.Fatal("the store has no list of effects")
	}
	for after, want := range map[string]string{"": "pay:A pay:B", "pay:B": "pay:C", "pay:C": ""} {
		got, err := effects.UnknownEffects(b.Context(), "a", after, 2)
		b.ok(err)
		var ids []string
		for _, e := range got {
			ids = append(ids, e.ID)
			if e.Version != 1 || e.RunID != "r "+e.ID || string(e.RequestJSON) != `{"call":"0.0"}` || e.SavedAt != b.clock.Load() {
				b.Errorf("%+v", e)
			}
		}
		b.equal(strings.Join(ids, " "), want)
	}
	b.advance(journal.HandoverTTL)
	got, err := effects.UnknownEffects(b.Context(), "a", "", 2)
	b.ok(err)
	b.equal(len(got), 0)
}

// Constructors of keys.
func call(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.CallID, ID: id}
}
func response(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
}
func session(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.SessionID, ID: id}
}

// conversation returns a new conversation with calls that have these ids.
func conversation(runID string, ids ...string) journal.Conversation {
	c := journal.Conversation{RunID: runID, CallIDs: map[string]string{}}
	c.Items = item.List{{Kind: item.Message, Turn: 1, Role: item.Assistant, Native: item.Native{Dialect: "d", JSON: json.RawMessage(`{"signature":"<&>=="}`)}}}
	for _, id := range ids {
		c.CallIDs[id] = "provider's " + id
		call := item.NewCall("provider's "+id, "t", `{ "a" : "<&>" }`)
		call.Turn = 1
		c.Items = append(c.Items, call)
	}
	c.Items = append(c.Items, item.NewResult("hidden", runID, false))
	return c
}

// save saves the conversation for journal.HandoverTTL.
func (b *testBench) save(orgID, principal string, c journal.Conversation, keys ...journal.ConversationKey) error {
	return b.Conversations.Save(b.Context(), orgID, principal, c, journal.HandoverTTL, keys...)
}

// conversation fails the case unless Find returns want, whose Version 0 means 1.
func (b *testBench) conversation(orgID, principal string, key journal.ConversationKey, want journal.Conversation) {
	b.Helper()
	got, err := b.Conversations.Find(b.Context(), orgID, principal, key)
	b.ok(err)
	want.Version = max(want.Version, 1)
	b.equal(got, &want)
}

// noConversation fails the case unless Find returns nothing.
func (b *testBench) noConversation(orgID, principal string, key journal.ConversationKey) {
	b.Helper()
	got, err := b.Conversations.Find(b.Context(), orgID, principal, key)
	b.ok(err)
	if got != nil {
		b.Errorf("%s of %s in %s: got %+v, want nothing", key, principal, orgID, got)
	}
}

// deleted deletes a conversation, and fails the case unless it was there or not.
func (b *testBench) deleted(orgID, principal string, key journal.ConversationKey, want bool) {
	b.Helper()
	got, err := b.Conversations.Delete(b.Context(), orgID, principal, key)
	b.ok(err)
	if got != want {
		b.Errorf("delete %s of %s in %s: %v, want %v", key, principal, orgID, got, want)
	}
}

// checkRefused fails the case unless err is an error that the store makes before it reads.
func (b *testBench) checkRefused(err error) {
	b.Helper()
	if err == nil || errors.Is(err, org.ErrExists) || errors.Is(err, journal.ErrChanged) || errors.Is(err, org.ErrUnavailable) {
		b.Errorf("got %v, want the error of an invalid conversation", err)
	}
}
