package chat_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestAnOrgMayKeepAsMuchAsTheOperatorSays(t *testing.T) { // P40
	NoLeaks(t)
	yaml := "org_caps: {keys: 1, mcp_servers: 1, secrets: 1}\n" +
		Site{Upstream: "http://127.0.0.1:9", Servers: []string{Server("declared", "http://127.0.0.1:9")}}.WithVault()
	d := Manage(MustRun(t, yaml))
	refused := func(method, path, key, body, setting string) {
		t.Helper()
		e := d.Do(method, path, key, body, 409)["error"].(map[string]any)
		if text := e["message"].(string); e["code"] != "cap_reached" || !strings.Contains(text, "raise "+setting) || !strings.Contains(text, " 1 ") {
			t.Errorf("%s %s is refused with %v", method, path, e)
		}
	}
	const key = `{"name":"k","role":"member"}`
	first := d.Do("POST", "/api/keys", "owner-key", key, 201) // the five keys of the file do not count
	refused("POST", "/api/keys", "owner-key", key, "org_caps.keys")
	refused("POST", "/api/orgs/o/keys", "operator-key", key, "org_caps.keys")
	d.Do("DELETE", "/api/keys/"+first["id"].(string), "owner-key", "", 200)
	d.Do("POST", "/api/keys", "owner-key", key, 201)

	add := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"url":"https://example.com/mcp","enabled":false}`, name)
	}
	d.Do("POST", "/api/mcp-servers", "owner-key", add("a"), 201)
	refused("POST", "/api/mcp-servers", "owner-key", add("b"), "org_caps.mcp_servers")
	d.Do("PATCH", "/api/mcp-servers/a", "owner-key", `{"timeout":"3s"}`, 200)
	d.Do("DELETE", "/api/mcp-servers/a", "owner-key", "", 200)
	d.Do("POST", "/api/mcp-servers", "owner-key", add("b"), 201)

	d.Do("PUT", "/api/secrets/a", "owner-key", `{"value":"x"}`, 200)
	refused("PUT", "/api/secrets/b", "owner-key", `{"value":"x"}`, "org_caps.secrets")
	d.Do("PUT", "/api/secrets/a", "owner-key", `{"value":"y"}`, 200)
}

func TestAnOrgThatHasStoredItsShareRunsNothingNewAndStillRelays(t *testing.T) { // P40
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := "org_caps: {stored_mib: 1}\noperator_key: operator-key\n" + Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	d := Manage(MustRun(t, yaml))
	large := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 1<<20))
	if text, _ := d.Post(large, "Idempotency-Key", "first").Completion(t); text != "done" {
		t.Errorf("the first run answered %q", text)
	}
	for _, fields := range [][]string{{}, {"Idempotency-Key", "second"}} {
		a := d.Post(ChatBody, fields...)
		e := a.Fault(t).Error
		if a.Status != 429 || e.Code == nil || *e.Code != "insufficient_quota" || !strings.Contains(e.Message, "limit of 1 MiB of stored runs") || !strings.Contains(e.Message, "org_caps.stored_mib") {
			t.Errorf("one more run %v is refused with %d %+v", fields, a.Status, e)
		}
	}
	if text, _ := d.Post(large, "Idempotency-Key", "first").Completion(t); text != "done" {
		t.Errorf("the first run, asked for again, answered %q", text)
	}
	if a := d.Post(ChatBody, "turnpike-mcp-disabled", "true"); a.Status != 200 {
		t.Errorf("a relayed request is answered %d: %s", a.Status, a.Body)
	}
	if a := d.Send("GET", "/readyz", nil); a.Status != 200 {
		t.Errorf("the gateway is not ready for others: %d", a.Status)
	}
}
