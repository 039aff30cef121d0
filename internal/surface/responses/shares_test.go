package responses_test

import (
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// An org that has stored as much as it may cannot store more in conversations. It can delete
// them. // G14
func TestConversationsCountForWhatAnOrgStores(t *testing.T) {
	NoLeaks(t)
	g := MustRun(t, Site{Upstream: "http://127.0.0.1:1"}.Yaml()+"org_caps: {stored_mib: 1}\n")
	send := func(method, path, body string) Answer {
		return g.Send(method, path, strings.NewReader(body), "Authorization", "Bearer owner-key")
	}
	items := func(size int) string {
		return `{"items":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}]}`
	}
	// Its items fill the space. They do not stay when the conversation is refused.
	if a := send("POST", "/v1/conversations", items(500_000)); a.Status != 429 {
		t.Errorf("a conversation that is too large: %d %.200s", a.Status, a.Body)
	}
	made := send("POST", "/v1/conversations", items(100_000))
	_, rest, _ := strings.Cut(string(made.Body), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if made.Status != 200 {
		t.Fatalf("%d %s", made.Status, made.Body)
	}
	if a := send("POST", "/v1/conversations/"+id+"/items", items(500_000)); a.Status != 200 {
		t.Errorf("items: %d %.200s", a.Status, a.Body)
	}
	if a := send("POST", "/v1/conversations/"+id+"/items", items(1)); a.Status != 429 || !strings.Contains(string(a.Body), "insufficient_quota") {
		t.Errorf("items: %d %.200s", a.Status, a.Body)
	}
	if a := send("POST", "/v1/conversations", "{}"); a.Status != 429 {
		t.Errorf("another conversation: %d %.200s", a.Status, a.Body)
	}
	// A key is counted before anything is made with it.
	keyed := func() Answer {
		return g.Send("POST", "/v1/conversations", strings.NewReader("{}"), "Authorization", "Bearer owner-key", "Idempotency-Key", "k")
	}
	if a := keyed(); a.Status != 429 {
		t.Errorf("another conversation, with a key: %d %.200s", a.Status, a.Body)
	}
	if a := send("DELETE", "/v1/conversations/"+id, ""); a.Status != 200 {
		t.Errorf("the deletion: %d %.200s", a.Status, a.Body)
	}
	if a := send("POST", "/v1/conversations", "{}"); a.Status != 200 {
		t.Errorf("after the deletion: %d %.200s", a.Status, a.Body)
	}
	if a, again := keyed(), keyed(); a.Status != 200 || string(a.Body) != string(again.Body) {
		t.Errorf("with the key: %d %.200s, then %.200s", a.Status, a.Body, again.Body)
	}
}
