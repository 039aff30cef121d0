package app_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestAnOrgMayKeepAsMuchAsTheOperatorSays(t *testing.T) { // P40
	noLeaks(t)
	yaml := "org_caps: {keys: 1, mcp_servers: 1, secrets: 1}\n" +
		site{upstream: "http://127.0.0.1:9", servers: []string{server("declared", "http://127.0.0.1:9")}}.withVault()
	d := manage(MustRun(t, yaml))
	refused := func(method, path, key, body, setting string) {
		t.Helper()
		e := d.do(method, path, key, body, 409)["error"].(map[string]any)
		if text := e["message"].(string); e["code"] != "cap_reached" || !strings.Contains(text, "raise "+setting) || !strings.Contains(text, " 1 ") {
			t.Errorf("%s %s is refused with %v", method, path, e)
		}
	}
	const key = `{"name":"k","role":"member"}`
	first := d.do("POST", "/api/keys", "owner-key", key, 201) // the five keys of the file do not count
	refused("POST", "/api/keys", "owner-key", key, "org_caps.keys")
	refused("POST", "/api/orgs/o/keys", "operator-key", key, "org_caps.keys")
	d.do("DELETE", "/api/keys/"+first["id"].(string), "owner-key", "", 200)
	d.do("POST", "/api/keys", "owner-key", key, 201)

	add := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"url":"https://example.com/mcp","enabled":false}`, name)
	}
	d.do("POST", "/api/mcp-servers", "owner-key", add("a"), 201)
	refused("POST", "/api/mcp-servers", "owner-key", add("b"), "org_caps.mcp_servers")
	d.do("PATCH", "/api/mcp-servers/a", "owner-key", `{"timeout":"3s"}`, 200)
	d.do("DELETE", "/api/mcp-servers/a", "owner-key", "", 200)
	d.do("POST", "/api/mcp-servers", "owner-key", add("b"), 201)

	d.do("PUT", "/api/secrets/a", "owner-key", `{"value":"x"}`, 200)
	refused("PUT", "/api/secrets/b", "owner-key", `{"value":"x"}`, "org_caps.secrets")
	d.do("PUT", "/api/secrets/a", "owner-key", `{"value":"y"}`, 200)
}

func TestAnOrgThatHasStoredItsShareRunsNothingNewAndStillRelays(t *testing.T) { // P40
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	yaml := "org_caps: {stored_mib: 1}\noperator_key: operator-key\n" + site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml()
	d := manage(MustRun(t, yaml))
	large := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 1<<20))
	if text, _ := d.post(large, "Idempotency-Key", "first").completion(t); text != "done" {
		t.Errorf("the first run answered %q", text)
	}
	for _, fields := range [][]string{{}, {"Idempotency-Key", "second"}} {
		a := d.post(chatBody, fields...)
		e := a.fault(t).Error
		if a.status != 429 || e.Code == nil || *e.Code != "insufficient_quota" || !strings.Contains(e.Message, "limit of 1 MiB of stored runs") || !strings.Contains(e.Message, "org_caps.stored_mib") {
			t.Errorf("one more run %v is refused with %d %+v", fields, a.status, e)
		}
	}
	if text, _ := d.post(large, "Idempotency-Key", "first").completion(t); text != "done" {
		t.Errorf("the first run, asked for again, answered %q", text)
	}
	if a := d.post(chatBody, "turnpike-mcp-disabled", "true"); a.status != 200 {
		t.Errorf("a relayed request is answered %d: %s", a.status, a.body)
	}
	if a := d.send("GET", "/readyz", nil); a.status != 200 {
		t.Errorf("the gateway is not ready for others: %d", a.status)
	}
}
