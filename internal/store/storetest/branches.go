package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func branchCases() []rule {
	return []rule{
		{"a conversation is busy while a run adds to it", "also while that is queued or waits: what it goes on from must stay", addingRuns},
		{"a run does not begin on a conversation that has changed", "it would go on from what a rewind has taken out", beginsOnVersion},
		{"a rewind and the begin of a run exclude each other", "one of them succeeds", rewindOrBegin},
		{"a rewind replaces the version that it has read", "what was added meanwhile is not lost", rewindsVersion},
		{"a shared part lives as long as the last conversation that has it", "deleting one leaves the other whole, whichever it is", sharedParts},
		{"a rewind of one conversation leaves the parts of the other", "and deletes those that no other has", sharedPartsRewound},
		{"a shared part outlives a conversation that expires", "its fork may be kept for longer", sharedPartsExpire},
		{"a part that was added is deleted with its conversation", "nothing else names it", addedToConversation},
		{"of two runs that are to be alone in a conversation one begins", "the other would go on from what it replaces", beginsAlone},
		{"added items go with the last conversation that has them", "also when they are taken out, or the conversation is deleted", addedParts},
		{"a fork of a session has its turns", "deleting the session leaves them, deleting the fork deletes the rest", forkedSessions},
		{"a fork of a session counts for its cap", "nothing is shared then", forkedSessionsCapped},
	}
}

func branchPersistenceCases() []rule {
	return []rule{{"what is busy and what is shared survives a restart", "the next process must know it", func(b *testBench) {
		b.head("sess_x", "resp_1", "items_2")
		b.begins("r", "sess_x", 0)
		b.head("sess_y", "items_3")
		b.ok(b.fork("sess_y", "sess_z"))
		b.Store = b.maker.Reopen(b.T, b.Store)
		b.adds("sess_x", "r")
		b.deleted("a", "", session("sess_y"), true)
		b.deleted("a", "", session("sess_z"), true)
		b.noConversation("a", "", session("items_3"))
	}}}
}

// branches returns the store as a journal.Branches.
func (b *testBench) branches() journal.Branches { return b.Conversations.(journal.Branches) }

func partKey(id string) journal.ConversationKey {
	if id[0] == 'i' {
		return session(id)
	}
	return response(id)
}

// head stores a conversation with parts of the org a, and the parts.
func (b *testBench) head(id string, parts ...string) {
	b.Helper()
	for _, part := range parts {
		b.ok(b.save("a", "", conversation(part), partKey(part)))
	}
	b.ok(b.save("a", "", journal.Conversation{Parts: parts}, session(id)))
}

// parts fails the case unless the conversation has these parts, and they are stored.
func (b *testBench) parts(id string, want ...string) *journal.Conversation {
	b.Helper()
	c, err := b.Conversations.Find(b.Context(), "a", "", session(id))
	b.ok(err)
	if c == nil || !slices.Equal(c.Parts, want) {
		b.Fatalf("conversation %s is %+v, want the parts %v", id, c, want)
	}
	for _, part := range want {
		b.conversation("a", "", partKey(part), conversation(part))
	}
	return c
}

func (b *testBench) fork(from, id string) error {
	c, err := b.Conversations.Find(b.Context(), "a", "", session(from))
	b.ok(err)
	f := journal.Fork{ID: id, Conversation: *c, From: from, Version: c.Version}
	for _, part := range c.Parts {
		f.Shared = append(f.Shared, partKey(part))
	}
	return b.branches().Fork(b.Context(), "a", f, journal.HandoverTTL)
}

// rewind leaves the first n parts of a conversation.
func (b *testBench) rewind(id string, n int) error {
	c, err := b.Conversations.Find(b.Context(), "a", "", session(id))
	b.ok(err)
	var dropped []journal.ConversationKey
	for _, part := range c.Parts[n:] {
		dropped = append(dropped, partKey(part))
	}
	c.Parts = c.Parts[:n]
	return b.branches().DropParts(b.Context(), "a", id, *c, journal.HandoverTTL, dropped, true)
}

func addedParts(b *testBench) {
	b.head("sess_x", "resp_1", "items_2", "items_3")
	stored := func(id string, want bool) {
		b.Helper()
		c, err := b.Conversations.Find(b.Context(), "a", "", partKey(id))
		if b.ok(err); (c != nil) != want {
			b.Fatalf("%s is stored: %t, want %t", id, c != nil, want)
		}
	}
	b.ok(b.fork("sess_x", "sess_y"))
	b.ok(b.rewind("sess_x", 2))
	stored("items_3", true)
	b.ok(b.rewind("sess_y", 2))
	stored("items_3", false)

	b.head("sess_z", "resp_4", "items_5")
	c := b.parts("sess_z", "resp_4", "items_5")
	deletes := func(id string, version int64, want bool, parts ...string) error {
		b.Helper()
		var keys []journal.ConversationKey
		for _, part := range parts {
			keys = append(keys, partKey(part))
		}
		was, err := b.branches().DeleteWith(b.Context(), "a", id, version, keys)
		b.equal(was, want)
		return err
	}
	b.checkError(deletes("sess_z", c.Version+1, false, c.Parts...), journal.ErrChanged)
	b.parts("sess_z", "resp_4", "items_5")
	b.ok(deletes("sess_z", c.Version, true, c.Parts...))
	stored("items_5", false)
	stored("resp_4", true) // a response of its own
	b.ok(deletes("sess_z", 0, false))
	b.ok(deletes("sess_x", 0, true, "resp_1", "items_2"))
	stored("items_2", true)
	b.ok(deletes("sess_y", 0, true, "resp_1", "items_2"))
	stored("items_2", false)
	stored("resp_1", false) // it was shared
}

// addPart adds a part to a conversation of the org a, in front of which are those of behind. The others are dropped.
func (b *testBench) addPart(id, part string, behind ...string) error {
	b.Helper()
	c, err := b.Conversations.Find(b.Context(), "a", "", session(id))
	b.ok(err)
	if c == nil {
		c = &journal.Conversation{}
	}
	var dropped []journal.ConversationKey
	for _, old := range c.Parts {
		if !slices.Contains(behind, old) && old != part {
			dropped = append(dropped, partKey(old))
		}
	}
	c.Parts = append(slices.Clone(behind), part)
	saved := journal.Saved{Conversation: conversation(part), TTL: journal.Kept, Keys: []journal.ConversationKey{partKey(part)}}
	return b.branches().AddPart(b.Context(), "a", id, saved, *c, journal.HandoverTTL, dropped)
}

func addedToConversation(b *testBench) {
	gone := func(parts ...string) {
		b.Helper()
		for _, part := range parts {
			b.noConversation("a", "", partKey(part))
		}
	}
	b.ok(b.addPart("chat_p/x", "items_1"))
	b.ok(b.addPart("chat_p/x", "resp_2", "items_1"))
	for range 2 {
		b.ok(b.addPart("chat_p/x", "resp_3", "items_1", "resp_2"))
		b.parts("chat_p/x", "items_1", "resp_2", "resp_3")
	}
	b.ok(b.fork("chat_p/x", "chat_p/y"))
	b.ok(b.addPart("chat_p/x", "resp_4", "items_1")) // the fork has the others
	b.parts("chat_p/x", "items_1", "resp_4")
	b.parts("chat_p/y", "items_1", "resp_2", "resp_3")
	b.ok(b.addPart("chat_p/y", "items_5"))
	gone("resp_2", "resp_3")
	b.ok(b.rewind("chat_p/x", 1))
	gone("resp_4")
	b.deleted("a", "", session("chat_p/x"), true)
	gone("items_1")
	b.step(2 * journal.HandoverTTL)
	b.ok(b.save("a", "", conversation("other"), response("other"))) // which deletes what has expired
	gone("items_5")

	b.ok(b.addPart("chat_p/z", "resp_6"))
	old := journal.Conversation{Version: 7, Parts: []string{"resp_6"}}
	part := journal.Saved{Conversation: conversation("else"), TTL: journal.Kept, Keys: []journal.ConversationKey{partKey("resp_6")}}
	b.checkError(b.branches().AddPart(b.Context(), "a", "chat_p/z", part, old, journal.HandoverTTL, nil), journal.ErrChanged)
	old.Version = 0
	b.checkError(b.branches().AddPart(b.Context(), "a", "chat_p/z", part, old, journal.HandoverTTL, nil), org.ErrExists)
	b.parts("chat_p/z", "resp_6")
}

func beginsAlone(b *testBench) {
	b.head("sess_x", "resp_1")
	alone := func(run string) (*author, error) {
		a := b.author("a", run)
		opening := &journal.Opening{Adds: &journal.Adds{Conversation: "sess_x", Version: 1, Alone: true}}
		err := a.append(b.Context(), journal.Batch{Sync: true, Opening: opening}, accepted("a", run))
		return a, err
	}
	var first *author
	var one, two error
	var both sync.WaitGroup
	both.Go(func() { first, one = alone("r1") })
	both.Go(func() { _, two = alone("r2") })
	both.Wait()
	busy, other := new(journal.SessionBusy), two
	if one != nil {
		other = one
	}
	if (one == nil) == (two == nil) || !errors.As(other, &busy) {
		b.Fatalf("the runs began with %v and %v", one, two)
	}
	if one == nil {
		first.write(input("input"))
		first.end()
		_, err := alone("r3")
		b.ok(err)
	}
}

// opens makes a run of the org a begin that adds to a conversation.
func (b *testBench) opens(run, id string, version int64, change func(*loop.Accepted)) (*author, error) {
	a, body := b.author("a", run), accepted("a", run)
	if change != nil {
		change(&body)
		a.lease.Epoch, a.lease.Owner = 0, ""
	}
	opening := &journal.Opening{Adds: &journal.Adds{Conversation: id, Version: version}}
	err := a.append(b.Context(), journal.Batch{Sync: true, Opening: opening}, body)
	return a, err
}

func (b *testBench) begins(run, id string, version int64) *author {
	b.Helper()
	a, err := b.opens(run, id, version, nil)
	b.ok(err)
	a.write(input("input"))
	return a
}

// adds fails the case unless the run adds to the conversation of the org a, and it is busy; "" = none does.
func (b *testBench) adds(id, want string) {
	b.Helper()
	got, err := b.branches().AddingRun(b.Context(), "a", id)
	b.ok(err)
	if got != want {
		b.Errorf("%q adds to %s, want %q", got, id, want)
	}
	if want == "" {
		return
	}
	for _, err := range []error{b.rewind(id, 0), b.fork(id, "sess_fork")} {
		if busy := new(journal.SessionBusy); !errors.As(err, &busy) || busy.RunID != want || busy.Session != id {
			b.Errorf("got %v, want the conversation busy with %s", err, want)
		}
	}
	b.noConversation("a", "", session("sess_fork"))
}

func addingRuns(b *testBench) {
	b.head("sess_x", "resp_1")
	b.head("sess_y")
	b.adds("sess_x", "")
	a := b.begins("r1", "sess_x", 1)
	b.adds("sess_x", "r1")
	b.adds("sess_y", "")
	if run, err := b.branches().AddingRun(b.Context(), "b", "sess_x"); run != "" || err != nil {
		b.Errorf("in another org: %q, %v", run, err)
	}
	a.write(asked("w", 0, "s", 0), loop.Parked{})
	b.adds("sess_x", "r1")
	a.end()
	b.adds("sess_x", "")
	_, err := b.opens("r2", "sess_x", 0, func(a *loop.Accepted) { a.Queued, a.Grade = true, loop.Durable })
	b.ok(err)
	b.adds("sess_x", "r2")
	b.parts("sess_x", "resp_1")
}

func beginsOnVersion(b *testBench) {
	b.head("sess_x", "resp_1")
	b.ok(b.rewind("sess_x", 0))
	_, err := b.opens("r", "sess_x", 1, nil)
	b.checkError(err, journal.ErrChanged)
	b.checkMissing("a", "r")
	b.adds("sess_x", "")
	_, err = b.opens("r", "sess_none", 1, nil)
	b.checkError(err, journal.ErrChanged)
	b.begins("r", "sess_x", 2).end()
	b.begins("later", "sess_x", 0).end()
}

func rewindOrBegin(b *testBench) {
	for i := range 20 {
		id := fmt.Sprintf("sess_%d", i)
		b.head(id, fmt.Sprintf("resp_%d", i))
		var began, rewound error
		var both sync.WaitGroup
		both.Go(func() { _, began = b.opens("r"+id, id, 1, nil) })
		both.Go(func() { rewound = b.rewind(id, 0) })
		both.Wait()
		if (began == nil) == (rewound == nil) {
			b.Fatalf("the run began with %v, the rewind ended with %v", began, rewound)
		}
	}
}

func rewindsVersion(b *testBench) {
	b.head("sess_x", "resp_1")
	c := b.parts("sess_x", "resp_1")
	b.ok(b.Conversations.Save(b.Context(), "a", "", *c, journal.HandoverTTL, session("sess_x")))
	old := *c
	old.Parts = nil
	b.checkError(b.branches().DropParts(b.Context(), "a", "sess_x", old, journal.HandoverTTL, nil, true), journal.ErrChanged)
	f := journal.Fork{ID: "sess_f", Conversation: journal.Conversation{Parts: c.Parts}, From: "sess_x", Version: 1}
	f.Shared = []journal.ConversationKey{response("resp_1")}
	b.checkError(b.branches().Fork(b.Context(), "a", f, journal.HandoverTTL), journal.ErrChanged)
	b.noConversation("a", "", session("sess_f"))
	f.ID, f.Version = "sess_x", 2
	b.checkError(b.branches().Fork(b.Context(), "a", f, journal.HandoverTTL), org.ErrExists)
	b.parts("sess_x", "resp_1")
	if shared, err := b.branches().Shared(b.Context(), "a", response("resp_1"), "sess_x"); shared || err != nil {
		b.Errorf("a fork that was refused shares a part: %v", err)
	}
}

func sharedParts(b *testBench) {
	for _, order := range [][]string{{"sess_x", "sess_y", "sess_z"}, {"sess_z", "sess_x", "sess_y"}, {"sess_y", "sess_z", "sess_x"}} {
		b.head("sess_x", "resp_1", "items_2")
		b.ok(b.fork("sess_x", "sess_y"))
		b.ok(b.fork("sess_y", "sess_z"))
		b.ok(b.save("a", "p", conversation("chat"), session(order[1]))) // a session of a key has no parts
		b.deleted("a", "p", session(order[1]), true)
		for i, id := range order {
			for _, left := range order[i:] {
				b.parts(left, "resp_1", "items_2")
			}
			shared, err := b.branches().Shared(b.Context(), "a", session("items_2"), id)
			b.ok(err)
			if last := i == len(order)-1; shared == last {
				b.Errorf("%s is the %d. that is deleted, and shares the part: %v", id, i, shared)
			}
			b.deleted("a", "", session(id), true)
		}
		b.noConversation("a", "", response("resp_1"))
		b.noConversation("a", "", session("items_2"))
	}
}

func sharedPartsRewound(b *testBench) {
	b.head("sess_x", "resp_1", "items_2")
	b.head("sess_alone", "resp_3")
	b.ok(b.fork("sess_x", "sess_y"))
	b.ok(b.rewind("sess_x", 1))
	b.parts("sess_x", "resp_1")
	b.parts("sess_y", "resp_1", "items_2")
	b.ok(b.rewind("sess_y", 0))
	b.noConversation("a", "", session("items_2"))
	b.parts("sess_x", "resp_1")
	b.ok(b.rewind("sess_alone", 0))
	b.conversation("a", "", response("resp_3"), conversation("resp_3")) // it was not shared
}

func sharedPartsExpire(b *testBench) {
	b.head("sess_x", "items_1")
	b.step(time.Hour)
	longer := func(c journal.Conversation, key journal.ConversationKey) {
		b.ok(b.Conversations.Save(b.Context(), "a", "", withVersion(c, 1), 100*journal.HandoverTTL, key))
	}
	longer(journal.Conversation{Parts: []string{"items_1"}}, session("sess_x"))
	longer(conversation("items_1"), session("items_1"))
	b.ok(b.fork("sess_x", "sess_y")) // for a shorter time
	b.step(2 * journal.HandoverTTL)
	b.ok(b.save("a", "", conversation("other"), response("other"))) // which deletes what has expired
	b.noConversation("a", "", session("sess_y"))
	b.conversation("a", "", session("items_1"), withVersion(conversation("items_1"), 2))
	b.deleted("a", "", session("sess_x"), true)
	b.noConversation("a", "", session("items_1"))
}

func withVersion(c journal.Conversation, version int64) journal.Conversation {
	c.Version = version
	return c
}

// forkedSession stores sess_1 with turns, and a fork of it with the first one.
func (b *testBench) forkedSession(turns ...string) {
	b.Helper()
	b.session("a", "sess_1")
	parts := []string{"items_1"}
	b.ok(b.save("a", "", conversation("items_1"), session("items_1")))
	for _, run := range turns {
		b.begun("run_" + run).end()
		b.ok(b.save("a", "", conversation("resp_"+run), response("resp_"+run)))
		parts = append(parts, "resp_"+run)
	}
	b.ok(b.Conversations.Save(b.Context(), "a", "", journal.Conversation{Version: 1, Parts: parts}, journal.Kept, session("sess_1")))
	b.ok(b.forkSession(parts[:2]))
}

func (b *testBench) forkSession(parts []string) error {
	b.step(time.Second)
	f := journal.Fork{Conversation: journal.Conversation{Parts: parts}, From: "sess_1", Version: 2}
	for _, part := range parts {
		f.Shared = append(f.Shared, partKey(part))
	}
	s := agent.Session{Org: "a", ID: "sess_2", Agent: "agent_a", Principal: "p", CreatedAt: b.now()}
	return b.Sessions.ForkSession(b.Context(), s, true, f)
}

func forkedSessions(b *testBench) {
	b.createOrg("a")
	gone := func(ids ...string) {
		b.Helper()
		for _, id := range ids {
			b.noConversation("a", "", partKey(id))
		}
	}
	b.forkedSession("1", "2")
	b.ok(b.removeSession("a", "sess_1", false))
	b.parts("sess_2", "items_1", "resp_1")
	gone("resp_2")
	b.ok(b.removeSession("a", "sess_2", false))
	gone("resp_1", "items_1")

	b.forkedSession("3", "4")
	b.ok(b.removeSession("a", "sess_2", false))
	b.parts("sess_1", "items_1", "resp_3", "resp_4")
	b.begun("run_5")
	busy := new(journal.SessionBusy)
	_, err := b.opens("run_6", "sess_1", 0, nil)
	b.ok(err)
	if err := b.forkSession([]string{"items_1"}); !errors.As(err, &busy) {
		b.Errorf("a fork of a busy session: %v", err)
	}
	_, err = b.Sessions.Session(b.Context(), "a", "sess_2")
	b.checkError(err, org.ErrNotFound)
	if b.Orgs != nil {
		b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	}
}

func forkedSessionsCapped(b *testBench) {
	b.Store = b.maker.Capped(b.T, b.clocks(), org.Caps{Sessions: 1})
	b.createOrg("a")
	b.session("a", "sess_1")
	b.ok(b.Conversations.Save(b.Context(), "a", "", journal.Conversation{Version: 1}, journal.Kept, session("sess_1")))
	capped := new(org.CapError)
	if err := b.forkSession(nil); !errors.As(err, &capped) {
		b.Errorf("got %v, want a *org.CapError", err)
	}
	b.noConversation("a", "", session("sess_2"))
}
