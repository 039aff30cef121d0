package admin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// recorded returns the management rows that the org's owner sees, without secrets.
func recorded(d Documented, key string) (out []string) {
	d.T.Helper()
	for _, row := range d.Do("GET", "/api/audit?kind=audit_log.management&limit=200", key, "", 200)["data"].([]any) {
		row := row.(map[string]any)
		body := row["body"].(map[string]any)
		before, _ := json.Marshal(body["before"])
		after, _ := json.Marshal(body["after"])
		if row["request_id"] == "" {
			d.T.Errorf("no request id: %v", row)
		}
		out = append(out, fmt.Sprint(row["key_id"], " ", body["action"], " ", body["resource"], " ", string(before), " ", string(after)))
	}
	return out
}

func TestEveryChangeOverTheManagementAPIIsInTheAudit(t *testing.T) { // L13
	NoLeaks(t)
	data := NewData(t)
	up := NewUpstream(t, CallThenAnswer)
	variables := Environment()
	variables["TURNPIKE_MASTER_KEY"] = MasterKey
	g := MustRunIn(t, data, "operator_key: operator-key\n"+Site{Upstream: up.URL}.Yaml(), variables)
	d := Manage(g)
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"new"}`, 201)
	owner := d.Do("POST", "/api/orgs/new/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)
	key, keyID := owner["key"].(string), owner["id"].(string)
	d.Do("PATCH", "/api/orgs/new", "operator-key", `{"features":["has_mcp_outbound"]}`, 200)
	d.Do("PATCH", "/api/org/runtime", key, `{"max_rounds":3}`, 200)
	d.Do("PUT", "/api/secrets/token", key, `{"value":"CANARY-secret"}`, 200)
	d.Do("PUT", "/api/secrets/token", key, `{"value":"CANARY-second"}`, 200)
	d.Do("POST", "/api/mcp-servers", key, `{"name":"s","url":"http://127.0.0.1:65009/mcp?team=CANARY-url","headers":{"Authorization":"Bearer secret:token","X-Team":"CANARY-header"}}`, 201)
	d.Do("PATCH", "/api/mcp-servers/s", key, `{"enabled":false}`, 200)
	d.Do("DELETE", "/api/mcp-servers/s", key, "", 200)
	d.Do("DELETE", "/api/secrets/token", key, "", 200)
	second := d.Do("POST", "/api/keys", key, `{"name":"second","role":"member"}`, 201)
	for range 2 { // the second one changes nothing
		d.Do("DELETE", "/api/keys/"+second["id"].(string), key, "", 200)
	}
	d.Do("POST", "/api/keys", key, `{"name":"refused","role":"nobody"}`, 400)

	rows := recorded(d, key)
	want := []string{
		"@operator create org null {", "@operator create key null {", "@operator update org {", keyID + ` update org {"max_rounds":`,
		keyID + " create secret null null", keyID + " replace secret null null", keyID + " create mcp_server null {",
		keyID + ` update mcp_server {"enabled":true} {"enabled":false}`, keyID + " delete mcp_server {", keyID + " delete secret null null",
		keyID + " create key null {", keyID + ` revoke key {"revoked":false} {"revoked":true}`,
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d:\n%s", len(rows), len(want), strings.Join(rows, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(rows[i], want[i]) {
			t.Errorf("row %d is %s, want %s…", i+1, rows[i], want[i])
		}
	}
	if shown := rows[6]; !strings.Contains(shown, `"headers":{"Authorization":"secret:token","X-Team":"set"}`) || !strings.Contains(shown, "team=set") {
		t.Errorf("the server is shown as %s", shown)
	}
	all := strings.Join(rows, "\n")
	for _, hidden := range []string{"CANARY", key, second["key"].(string)} {
		if strings.Contains(all, hidden) {
			t.Errorf("the rows hold %q:\n%s", hidden, all)
		}
	}

	d.Do("DELETE", "/api/orgs/new", "operator-key", "", 200)
	status, out := AuditNow(t, data, "list", "--operator", "--kind", "audit_log.management")
	if status != 0 || strings.Count(out, "@operator") != 4 || !strings.Contains(out, `"action":"create"`) || !strings.Contains(out, `"action":"delete"`) {
		t.Errorf("the operator's chain: %d\n%s", status, out)
	}
	if status, out := AuditNow(t, data, "export", "--operator"); status != 0 || strings.Count(out, "\n") != 5 {
		t.Errorf("the operator's export: %d\n%s", status, out)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if status, out := AuditNow(t, data, "verify", "--operator"); status != 0 || !strings.Contains(out, "org @operator: 4 rows") {
		t.Errorf("the operator's chain: %d\n%s", status, out)
	}
	if status, out := AuditNow(t, data, "verify"); status != 0 || !strings.Contains(out, "org @operator: 4 rows") || !strings.Contains(out, "org new: 13 rows") {
		t.Errorf("all chains: %d\n%s", status, out)
	}
}

func TestRoleAndRateOfAKeyChangeWithTheNextRequest(t *testing.T) { // L13
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	made := d.Do("POST", "/api/keys", "owner-key", `{"name":"app","role":"member"}`, 201)
	path, key := "/api/keys/"+made["id"].(string), made["key"].(string)
	asks := func(want int) {
		t.Helper()
		if a := d.Post(ChatBody, "Authorization", "Bearer "+key); a.Status != want {
			t.Errorf("the key got %d, want %d: %s", a.Status, want, a.Body)
		}
	}
	asks(200)
	if got := d.Do("PATCH", path, "owner-key", `{"role":"reader","name":"renamed"}`, 200); got["role"] != "reader" || got["name"] != "renamed" || got["key"] != nil {
		t.Errorf("changed %v", got)
	}
	asks(403)
	d.Do("PATCH", path, "admin-key", `{"role":"member","requests_per_minute":1,"burst":2}`, 200)
	asks(200)
	asks(200)
	asks(429)
	d.Do("PATCH", path, "admin-key", `{"requests_per_minute":0,"burst":0}`, 200)
	asks(200)

	d.Do("PATCH", path, "admin-key", `{"role":"owner"}`, 403)
	d.Do("PATCH", path, "admin-key", `{"role":"nobody"}`, 400)
	d.Do("PATCH", path, "admin-key", `{"key":"x"}`, 400)
	d.Do("PATCH", "/api/keys/dev", "owner-key", `{"role":"reader"}`, 404)
	d.Do("PATCH", path, "owner-key", `{"role":"owner"}`, 200)
	d.Do("PATCH", path, "admin-key", `{"role":"reader"}`, 403)
	d.Do("DELETE", path, "owner-key", "", 200)
	d.Do("PATCH", path, "owner-key", `{"role":"reader"}`, 409)

	want := "a update key " + `{"name":"app","role":"member"} {"name":"renamed","role":"reader"}`
	if rows := recorded(d, "owner-key"); len(rows) != 6 || rows[1] != want {
		t.Errorf("the audit has %d rows; the second is not %s:\n%s", len(rows), want, strings.Join(rows, "\n"))
	}
}
