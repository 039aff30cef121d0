package app_test

import (
	"strings"
	"testing"
)

// An org that has stored as much as it may cannot store more in conversations. It can delete
// them. // G14
func TestConversationsCountForWhatAnOrgStores(t *testing.T) {
	noLeaks(t)
	g := MustRun(t, site{upstream: "http://127.0.0.1:1"}.yaml()+"org_caps: {stored_mib: 1}\n")
	send := func(method, path, body string) answer {
		return g.send(method, path, strings.NewReader(body), "Authorization", "Bearer owner-key")
	}
	items := func(size int) string {
		return `{"items":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}]}`
	}
	// Its items fill the space. They do not stay when the conversation is refused.
	if a := send("POST", "/v1/conversations", items(500_000)); a.status != 429 {
		t.Errorf("a conversation that is too large: %d %.200s", a.status, a.body)
	}
	made := send("POST", "/v1/conversations", items(100_000))
	_, rest, _ := strings.Cut(string(made.body), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if made.status != 200 {
		t.Fatalf("%d %s", made.status, made.body)
	}
	if a := send("POST", "/v1/conversations/"+id+"/items", items(500_000)); a.status != 200 {
		t.Errorf("items: %d %.200s", a.status, a.body)
	}
	if a := send("POST", "/v1/conversations/"+id+"/items", items(1)); a.status != 429 || !strings.Contains(string(a.body), "insufficient_quota") {
		t.Errorf("items: %d %.200s", a.status, a.body)
	}
	if a := send("POST", "/v1/conversations", "{}"); a.status != 429 {
		t.Errorf("another conversation: %d %.200s", a.status, a.body)
	}
	// A key is counted before anything is made with it.
	keyed := func() answer {
		return g.send("POST", "/v1/conversations", strings.NewReader("{}"), "Authorization", "Bearer owner-key", "Idempotency-Key", "k")
	}
	if a := keyed(); a.status != 429 {
		t.Errorf("another conversation, with a key: %d %.200s", a.status, a.body)
	}
	if a := send("DELETE", "/v1/conversations/"+id, ""); a.status != 200 {
		t.Errorf("the deletion: %d %.200s", a.status, a.body)
	}
	if a := send("POST", "/v1/conversations", "{}"); a.status != 200 {
		t.Errorf("after the deletion: %d %.200s", a.status, a.body)
	}
	if a, again := keyed(), keyed(); a.status != 200 || string(a.body) != string(again.body) {
		t.Errorf("with the key: %d %.200s, then %.200s", a.status, a.body, again.body)
	}
}
