package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// OldChatSessions checks a migration of the sessions of chat clients that builds stored whole, under the principal. migrate
// applies it.
func OldChatSessions(t *testing.T, kept interface {
	journal.Conversations
	journal.Journal
}, migrate func(),
) {
	t.Helper()
	const busy = "run_1" // it has not ended
	begin := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 1, Epoch: 1, At: 1, Version: 1, Body: accepted("a", busy)}}}
	if err := kept.Append(t.Context(), journal.Lease{Org: "a", RunID: busy, Epoch: 1}, 0, begin); err != nil {
		t.Fatal(err)
	}
	save := func(principal string, key journal.ConversationKey, c journal.Conversation) {
		t.Helper()
		if err := kept.Save(t.Context(), "a", principal, c, time.Hour, key); err != nil {
			t.Fatal(err)
		}
	}
	find := func(principal string, key journal.ConversationKey) *journal.Conversation {
		t.Helper()
		c, err := kept.Find(t.Context(), "a", principal, key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := conversation(busy, "ours")
	old.Items[0].Parts = nil
	old.Items[0].Native.JSON = json.RawMessage("{\"content\":\"\\u0000 \\\"<ä>\\\" \xff 1.50\"}")
	old.Full, old.Listed = map[string]string{"full": "text"}, []string{"server"}
	old.RequestJSON = json.RawMessage(`{"created_at":1,"ttl_ms":2}`)
	save("p", session("x"), old)
	save("p", response("r"), conversation("r"))
	save("library:p", session("x"), conversation("library"))
	save("", session("conv_1"), conversation("named"))
	migrate()

	if find("p", session("x")) != nil {
		t.Error("the old session is still stored")
	}
	if find("p", response("r")) == nil || find("library:p", session("x")) == nil || find("", session("conv_1")) == nil {
		t.Error("other conversations than the session were changed")
	}
	id := journal.SessionPrefix("p") + "x"
	head := find("", session(id))
	if head == nil || len(head.Parts) != 1 || head.RunID != busy || string(head.RequestJSON) != string(old.RequestJSON) || head.Version != 1 {
		t.Fatalf("the session is %+v", head)
	}
	part := find("", session(head.Parts[0]))
	want := old
	want.Owner, want.Version = id, 1
	got, err := part.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := want.Encode(); err != nil || string(got) != string(text) {
		t.Errorf("its part is\n%s, want\n%s; %v", got, text, err)
	}
	branches := kept.(journal.Branches)
	if run, err := branches.AddingRun(t.Context(), "a", id); err != nil || run != busy {
		t.Errorf("the run %q adds to it; %v", run, err)
	}
	was, err := branches.DeleteWith(t.Context(), "a", id, head.Version, nil)
	if left := find("", session(head.Parts[0])); err != nil || !was || left != nil {
		t.Errorf("deleted: %t, %v; its part is %+v", was, err, left)
	}
}
