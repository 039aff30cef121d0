package app_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// sharedYAML is a gateway with the orgs a and b, whose owners have the keys a-owner-key-0000 and
// b-owner-key-0000, and shared servers: YAML maps without their braces.
func sharedYAML(upstream string, servers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
listen: 127.0.0.1:0
operator_key: operator-key-0000
providers: [{name: up, base_url: %q, api_key: env:UPSTREAM_KEY, models: [m]}]
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
mcp_servers:
`, upstream+"/v1")
	for _, s := range servers {
		fmt.Fprintf(&b, "  - {%s}\n", s)
	}
	b.WriteString("orgs:\n")
	for _, id := range []string{"a", "b"} {
		fmt.Fprintf(&b, "  - {id: %[1]s, features: [mcp_outbound], keys: [{name: k, key: %[1]s-owner-key-0000, role: owner}]}\n", id)
	}
	return b.String()
}

// Two orgs use one declaration, each with a connection and a header of its own. Neither can
// change it, each can switch it off, and that is kept over a restart. // P47
func TestOrgsShareAServerOfTheFile(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Asks(Use("read", `{}`)), Says("done"), Asks(Use("read", `{}`)), Says("done"), Says("done")))
	docs := NewMCP(t, map[string]Handler{"read": Echo})
	yaml := sharedYAML(up.URL, Server("docs", docs.URL+"/?key=CANARY", `orgs: "*", headers: {X-Org: "org {org}", Authorization: "Bearer env:TOKEN"}`))
	data := t.TempDir()
	g := MustRunIn(t, data, yaml, Environment())
	as := func(org, method, path, body string) Answer {
		t.Helper()
		return g.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+org+"-owner-key-0000")
	}
	for _, org := range []string{"a", "b"} {
		if a := as(org, "POST", "/v1/chat/completions", Question); a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		calls := docs.Of("tools/call")
		if h := calls[len(calls)-1].Header; h.Get("X-Org") != "org "+org || h.Get("Authorization") != "Bearer CANARY-token" {
			t.Errorf("the headers of a call of the org %s are %v", org, h)
		}
	}
	list := string(as("a", "GET", "/api/mcp-servers", "").Body)
	if !strings.Contains(list, `"name":"docs"`) || !strings.Contains(list, `"shared":true`) || strings.Contains(list, "CANARY") || strings.Contains(list, "org a") {
		t.Errorf("the org sees %s", list)
	}
	for _, tt := range []struct{ method, path, body string }{
		{"PATCH", "/api/mcp-servers/docs", `{"tools":["x"]}`},
		{"PATCH", "/api/mcp-servers/docs", `{"enabled":false,"url":"http://127.0.0.1:1"}`},
		{"PATCH", "/api/mcp-servers/docs", `{}`},
		{"DELETE", "/api/mcp-servers/docs", ``},
		{"POST", "/api/mcp-servers", fmt.Sprintf(`{"name":"docs","url":%q}`, docs.URL)},
	} {
		if a := as("a", tt.method, tt.path, tt.body); a.Status != 409 {
			t.Errorf("%s %s %s: status %d: %s", tt.method, tt.path, tt.body, a.Status, a.Body)
		}
	}
	misspelt := as("a", "PATCH", "/api/mcp-servers/docs", `{"enabld":false}`)
	if misspelt.Status != 400 || !strings.Contains(string(misspelt.Body), "did you mean enabled?") {
		t.Errorf("status %d: %s", misspelt.Status, misspelt.Body)
	}
	tools := func(org string, want int) {
		t.Helper()
		a := as(org, "GET", "/v1/models", "")
		if !strings.Contains(string(a.Body), fmt.Sprintf(`"mcp_tools_count":%d`, want)) {
			t.Errorf("org %s: %s, want %d tools", org, a.Body, want)
		}
	}
	if a := as("a", "PATCH", "/api/mcp-servers/docs", `{"enabled":false}`); a.Status != 200 || !strings.Contains(string(a.Body), `"state":"disabled"`) {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	tools("a", 0)
	tools("b", 1)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	g = MustRunIn(t, data, yaml, Environment())
	tools("a", 0)
	tools("b", 1)
	if a := as("a", "PATCH", "/api/mcp-servers/docs", `{"enabled":true}`); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	tools("a", 1)
	rows := string(as("a", "GET", "/api/audit?kind=management&limit=50", "").Body)
	if !strings.Contains(rows, `"before":{"enabled":true}`) || !strings.Contains(rows, `"after":{"enabled":false}`) {
		t.Errorf("the audit log has %s", rows)
	}
}

// A server is shared with the orgs of its list, and with "*" also with orgs of the API. An org
// cannot switch on what the operator has disabled. // P47
func TestASharedServerIsForItsOrgs(t *testing.T) {
	NoLeaks(t)
	docs := NewMCP(t, map[string]Handler{"read": Echo})
	yaml := sharedYAML(docs.URL, Server("all", docs.URL, `orgs: "*"`), Server("some", docs.URL, `orgs: [a, c]`), Server("off", docs.URL, `orgs: "*", enabled: false`))
	g := MustRun(t, yaml)
	as := func(key, method, path, body string) Answer {
		t.Helper()
		return g.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+key)
	}
	if a := as("operator-key-0000", "POST", "/api/orgs", `{"id":"c","features":["mcp_outbound"]}`); a.Status != 201 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	made := string(as("operator-key-0000", "POST", "/api/orgs/c/keys", `{"name":"k","role":"owner"}`).Body)
	_, rest, _ := strings.Cut(made, `"key":"`)
	ofC, _, _ := strings.Cut(rest, `"`)
	for key, want := range map[string]string{"a-owner-key-0000": "[all some off]", "b-owner-key-0000": "[all off]", ofC: "[all some off]"} {
		list := string(as(key, "GET", "/api/mcp-servers", "").Body)
		var names []string
		for _, name := range []string{"all", "some", "off"} {
			if strings.Contains(list, `"name":"`+name+`"`) {
				names = append(names, name)
			}
		}
		if fmt.Sprint(names) != want {
			t.Errorf("%s sees %v, want %s", key, names, want)
		}
	}
	if a := as(ofC, "PATCH", "/api/mcp-servers/off", `{"enabled":true}`); a.Status != 409 {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	if a := as(ofC, "PATCH", "/api/mcp-servers/all", `{"enabled":false}`); a.Status != 200 {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
}

// What a shared server cannot have is a mistake of the file. // P47
func TestMistakesOfSharedServers(t *testing.T) {
	for text, want := range map[string]string{
		`{name: s, url: "http://x"}`:                                                            "orgs: is missing",
		`{name: s, url: "http://x", orgs: "*", headers: {A: "secret:x"}}`:                       "secret:x is a secret of one org",
		`{name: s, url: "http://x", orgs: "*", headers: {A: "env:T_{org}"}}`:                    "env",
		`{name: s, url: "http://x", orgs: "*"}, {name: s, url: "http://y", orgs: [q]}`:          "already used by mcp_servers[0].name",
		`{name: own, url: "http://x", orgs: [o]}`:                                               "already used by mcp_servers[0].name, which the org shares",
		`{name: s, url: "http://x", orgs: [o], hosted: ["web_search=a"]}`:                       "web_search is already in mcp_servers[0].hosted",
		`{name: s, orgs: "*"}`:                                                                  "url: is missing",
		`{name: s, url: "http://x", orgs: "*", headers: {A: "file:a/{org}"}}`:                   "{org} cannot be in a reference",
		`{name: s, url: "http://x", orgs: [o], headers: {A: "b {org}", B: "Bearer env:TOKEN"}}`: "",
	} {
		yaml := "mcp_servers: [" + text + "]\norgs: [{id: o, features: [mcp_outbound], mcp_servers: [{name: own, url: \"http://z\", hosted: [\"web_search=b\"]}]}]"
		_, err := config.Parse("test.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
