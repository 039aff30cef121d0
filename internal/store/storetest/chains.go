package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// library is a principal whose heads own their segments.
const library = journal.LibraryPrefix + "ann"

// chainRules are those of journal.Chains.
func chainRules() []rule {
	return []rule{
		{"several conversations are saved together or not at all", "a head never names a segment that is not stored", savedTogether},
		{"heads are listed by what is said of when they were saved", "a new title does not move a session to the front", listedHeads},
		{"segments are deleted with the last head that reaches them", "a fork keeps what it has", sharedSegments},
		{"segments are deleted when the last head that reaches them expires", "nobody can reach them any more", expiredHead},
	}
}

func (b *testBench) chains() journal.Chains {
	b.Helper()
	chains, ok := b.Conversations.(journal.Chains)
	if !ok {
		b.Fatal("the store has no chains")
	}
	return chains
}

// linked returns a segment of a chain, and its head.
func linked(head, segment, previous string, version int64) []journal.Saved {
	one, of := conversation(segment), conversation(head)
	one.Previous, of.Previous, of.Version = previous, segment, version
	return []journal.Saved{
		{Conversation: one, TTL: journal.Kept, Keys: []journal.ConversationKey{response(segment)}},
		{Conversation: of, TTL: time.Hour, Keys: []journal.ConversationKey{session(head)}},
	}
}

func savedTogether(b *testBench) {
	save := func(all ...journal.Saved) error { return b.chains().SaveAll(b.Context(), "a", library, all...) }
	b.ok(save(linked("s", "1", "", 0)...))
	b.checkError(save(linked("s", "2", "1", 0)...), org.ErrExists)
	b.checkError(save(linked("s", "2", "1", 7)...), journal.ErrChanged)
	b.checkError(save(linked("s", "1", "1", 1)...), org.ErrExists)
	b.noConversation("a", library, response("2"))
	b.equal(b.chained("a", library, "1"), "1")
	b.ok(save(linked("s", "2", "1", 1)...))
	b.equal(b.chained("a", library, "2"), "2 1")
}

func listedHeads(b *testBench) {
	list := func(before string, limit int) string {
		heads, err := b.chains().Heads(b.Context(), "a", library, before, limit)
		b.ok(err)
		var out []string
		for _, h := range heads {
			out = append(out, fmt.Sprint(h.RunID, h.Version))
		}
		return strings.Join(out, " ")
	}
	for i, id := range []string{"x", "b", "c", "d"} {
		all := linked(id, "of "+id, "", 0)
		if all[1].At = b.now().UnixMilli() + int64(i/2); i == 3 { // two at each moment
			all[1].TTL = time.Minute
		}
		b.ok(b.chains().SaveAll(b.Context(), "a", library, all...))
	}
	b.ok(b.chains().SaveAll(b.Context(), "a", library+"a", linked("other", "of another", "", 0)...))
	b.equal(list("", 9), "d1 c1 x1 b1")
	b.equal(list("", 2)+", "+list("c", 2)+", "+list("b", 2)+", "+list("none", 2), "d1 c1, x1 b1, , ")
	moved := linked("b", "of b", "", 1)[1]
	moved.At = b.now().UnixMilli()
	b.ok(b.chains().SaveAll(b.Context(), "a", library, moved))
	b.equal(list("", 9), "d1 c1 x1 b2")
	b.advance(time.Minute)
	b.equal(list("", 9), "c1 x1 b2")
}

// twoHeads saves two heads: one with the segments 1 to 4, and one with 1 and 2.
func (b *testBench) twoHeads() {
	for i, id := range []string{"1", "2", "3", "4"} {
		previous := []string{"", "1", "2", "3"}[i]
		b.ok(b.chains().SaveAll(b.Context(), "a", library, linked("s", id, previous, int64(i))...))
	}
	b.ok(b.chains().SaveAll(b.Context(), "a", library, linked("fork", "2", "", 0)[1]))
}

func (b *testBench) segments() string {
	var out []string
	for _, id := range []string{"1", "2", "3", "4"} {
		c, err := b.Conversations.Find(b.Context(), "a", library, response(id))
		b.ok(err)
		if c != nil {
			out = append(out, id)
		}
	}
	return strings.Join(out, " ")
}

func sharedSegments(b *testBench) {
	b.twoHeads()
	b.ok(b.chains().SaveAll(b.Context(), "a", library, linked("s", "3", "", 4)[1])) // it moves back
	b.equal(b.segments(), "1 2 3")
	b.deleted("a", library, session("s"), true)
	b.equal(b.segments(), "1 2")
	b.equal(b.chained("a", library, "2"), "2 1")
	b.deleted("a", library, session("fork"), true)
	b.equal(b.segments(), "")

	b.twoHeads()
	b.deleted("a", library, session("fork"), true)
	b.equal(b.segments(), "1 2 3 4")
	none := linked("s", "", "", 4)[1]
	b.ok(b.chains().SaveAll(b.Context(), "a", library, none))
	b.equal(b.segments(), "")
}

func expiredHead(b *testBench) {
	b.twoHeads()
	lasting := linked("fork", "2", "", 1)[1]
	lasting.TTL = 2 * time.Hour
	b.ok(b.chains().SaveAll(b.Context(), "a", library, lasting))
	b.advance(time.Hour)
	b.ok(b.chains().SaveAll(b.Context(), "a", library, linked("next", "n", "", 0)...))
	b.equal(b.segments(), "1 2")
	b.advance(time.Hour)
	b.ok(b.chains().SaveAll(b.Context(), "a", library, linked("fork", "m", "", 0)...)) // begins anew
	b.equal(b.segments(), "")
}
