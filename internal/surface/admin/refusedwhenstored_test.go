package admin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// URLs that the outbound policy refuses without a lookup are refused by every request that stores them, in every
// form that a URL parser accepts. // K01 K05
func TestURLsThatNoRequestCouldReachAreNotStored(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script())
	yaml := Site{Upstream: up.URL, Allow: "10.1.2.3/32"}.WithVault()
	yaml = strings.Replace(yaml, "    runtime: {}\n", "", 1)
	d := Manage(MustRun(t, yaml))
	agentID := d.AsOwner("POST", "/api/agents", `{"name":"helper","model":"m"}`, 201)["id"].(string)
	d.AsOwner("POST", "/api/mcp-servers", `{"name":"good","url":"https://mcp.example.com/"}`, 201)
	d.AsOwner("POST", "/api/webhooks", `{"name":"good","url":"https://example.com/","events":["*"]}`, 201)
	own := d.URL[strings.LastIndexByte(d.URL, ':'):]
	doors := []struct{ method, path, body, param string }{
		{"POST", "/api/mcp-servers", `{"name":"s","url":%q}`, "url"},
		{"PATCH", "/api/mcp-servers/good", `{"url":%q}`, "url"},
		{"POST", "/api/webhooks", `{"name":"w","url":%q,"events":["*"]}`, "url"},
		{"PATCH", "/api/webhooks/good", `{"url":%q}`, "url"},
		{"POST", "/api/tools", `{"name":"t","description":"d","config":{"endpoint":%q}}`, "config.endpoint"},
		{"POST", "/api/agents", `{"name":"a","model":"m","mcp_servers":[{"name":"s","url":%q}]}`, "mcp_servers[0].url"},
		{"POST", "/api/agents/" + agentID + "/mcp-servers", `{"name":"s","url":%q}`, "url"},
		{"POST", "/api/agents/" + agentID + "/hooks", `{"event":"PreToolUse","type":"http","config":{"url":%q}}`, "config.url"},
		{"PATCH", "/api/org/runtime", `{"hooks":[{"id":"h","event":"PreToolUse","type":"http","config":{"url":%q}}]}`, "hooks[0].config.url"},
		{"PATCH", "/api/org/runtime", `{"web":{"search":{"provider":"searxng","url":%q}}}`, "web.search.url"},
		{"PATCH", "/api/org/runtime", `{"web":{"scrape":{"provider":"firecrawl","url":%q}}}`, "web.scrape.url"},
		{"PATCH", "/api/org/runtime", `{"buckets":[{"name":"b","kind":"s3","bucket":"xx","endpoint":%q,"access_key":"secret:a","secret_key":"secret:b"}]}`, "buckets[0].endpoint"},
	}
	for url, reason := range map[string]string{
		"http://2130706433/x":       "ip_literal",
		"http://0x7f.1/x":           "ip_literal",
		"http://0x7f000001/x":       "ip_literal",
		"http://0177.0.0.1/x":       "ip_literal",
		"http://127.1/x":            "ip_literal",
		"http://2852039166/x":       "ip_literal",
		"http://[::ffff:10.0.0.1]/": "private",
		"http://127.0.0.1.:8080/x":  "loopback",
		"http://localhost:8080/x":   "internal_name",
		"http://example.com:6379/x": "port",
		"http://10.1.2.3:22/x":      "port",
		"http://10.0.0.1:22/x":      "port",
		"http://10.0.0.1:8080/x":    "private",
		"http://under--.-score/x":   "host_name",
		"http://127.0.0.1" + own:    "loopback",
	} {
		for _, door := range doors {
			a := d.Send(door.method, door.path, strings.NewReader(fmt.Sprintf(door.body, url)), "Authorization", "Bearer owner-key")
			if text := string(a.Body); a.Status != 422 || !strings.Contains(text, "outbound_ssrf_blocked") || !strings.Contains(text, door.param) ||
				!strings.Contains(text, "the outbound policy refuses this URL: "+reason+"; ") {
				t.Errorf("%s %s with %s: status %d: %s", door.method, door.path, url, a.Status, text)
			}
		}
	}
	if n := len(up.Requests()); n != 0 {
		t.Errorf("%d requests went out", n)
	}
}

// "config check" names every URL of the file that the policy refuses.
func TestConfigCheckNamesEveryURLThatThePolicyRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	yaml := Site{Upstream: "http://127.0.0.1:9", Runtime: "hooks: [{id: h, event: PreToolUse, type: http, config: {url: 'http://2130706433/h'}}]", Servers: []string{
		Server("s", "http://0x7f.1/mcp"),
	}}.Yaml() + `    webhooks:
      - {name: w, url: "http://example.com:22/w", events: ["*"], secret: whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA}
    agents:
      - name: helper
        model: m
        mcp_servers: [{name: s, url: "http://127.1/mcp"}]
        hooks: [{event: PreToolUse, type: http, config: {url: "http://10.0.0.1/h"}}]
`
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, errs := RunMain(t, "config", "check", "--strict", file)
	for _, want := range []string{
		"orgs[0].mcp_servers[0].url: the outbound policy refuses this URL: ip_literal; use another URL",
		"orgs[0].runtime.hooks[0].config.url: the outbound policy refuses this URL: ip_literal",
		"orgs[0].webhooks[0].url: the outbound policy refuses this URL: port",
		"orgs[0].agents[0].mcp_servers[0].url: the outbound policy refuses this URL: ip_literal",
		"orgs[0].agents[0].hooks[0].config.url: the outbound policy refuses this URL: private; the operator can allow it with",
	} {
		if status != 1 || !strings.Contains(errs, want) {
			t.Errorf("status %d, without %s:\n%s", status, want, errs)
		}
	}
}

// Two changes of different members at the same time both count, on every object that is patched.
func TestChangesAtTheSameTimeAreAllKept(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script())
	d := Manage(MustRun(t, strings.Replace(Site{Upstream: up.URL}.WithVault(), "    runtime: {}\n", "", 1)))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"new"}`, 201)
	owner := d.Do("POST", "/api/orgs/new/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	d.Do("POST", "/api/mcp-servers", owner, `{"name":"s","url":"https://mcp.example.com/"}`, 201)
	toolID := d.Do("POST", "/api/tools", owner, `{"name":"t","description":"d","config":{"endpoint":"https://example.com/"}}`, 201)["id"].(string)
	type change struct{ method, path, key, body string }
	var all []change
	for name, value := range map[string]string{"max_rounds": "7", "max_calls": "7", "deadline": `"7s"`, "concurrency": "7", "doom_threshold": "7", "tool_error_mode": `"abort"`} {
		all = append(all, change{"PATCH", "/api/org/runtime", owner, fmt.Sprintf(`{%q:%s}`, name, value)})
	}
	for name, value := range map[string]string{"max_retries": "5", "required": "true", "tools": `["a"]`, "trust": "true"} {
		all = append(all, change{"PATCH", "/api/mcp-servers/s", owner, fmt.Sprintf(`{%q:%s}`, name, value)})
	}
	for name, value := range map[string]string{"description": `"other"`, "name": `"u"`, "config": `{"method":"DELETE"}`} {
		all = append(all, change{"PUT", "/api/tools/" + toolID, owner, fmt.Sprintf(`{%q:%s}`, name, value)})
	}
	all = append(all, change{"PATCH", "/api/orgs/new", "operator-key", `{"features":["mcp_outbound"]}`})
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			if a := d.Send(c.method, c.path, strings.NewReader(c.body), "Authorization", "Bearer "+c.key); a.Status != 200 {
				t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.Status, a.Body)
			}
		})
	}
	wg.Wait()
	o := d.Do("GET", "/api/org", owner, "", 200)
	rt := o["runtime"].(map[string]any)
	s := d.Do("GET", "/api/mcp-servers/s", owner, "", 200)
	tool := d.Do("GET", "/api/tools/"+toolID, owner, "", 200)
	got := fmt.Sprintf("%v %v %v %v %v %v %v; %v %v %v %v; %v %v %v", o["features"], rt["max_rounds"], rt["max_calls"], rt["deadline"], rt["concurrency"], rt["doom_threshold"], rt["tool_error_mode"],
		s["max_retries"], s["required"], s["tools"], s["trust"], tool["description"], tool["name"], tool["config"].(map[string]any)["method"])
	if want := "[mcp_outbound] 7 7 7s 7 7 abort; 5 true [a] true; other u DELETE"; got != want {
		t.Errorf("stored: %s\nwant    %s", got, want)
	}
}
