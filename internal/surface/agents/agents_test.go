package agents_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// agentsAt returns a gateway with a vault whose outbound policy is the default one but for loopback.
func agentsAt(t *testing.T) Documented {
	t.Helper()
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	return Manage(MustRun(t, Site{Upstream: up.URL}.WithVault()))
}

// An agent is created, listed, changed, archived, restored and deleted, and each change is a version. // N01
func TestAgentsOverTheAPI(t *testing.T) {
	d := agentsAt(t)
	d.AsOwner("PUT", "/api/settings/AGENT_DEFAULT_MODEL", `{"value":"default-model"}`, 200)
	made := d.AsOwner("POST", "/api/agents", `{"name":"helper","system_prompt":"Be brief.","settings":{"temperature":0.2,"max_steps":7}}`, 201)
	id := made["id"].(string)
	if made["model"] != "default-model" || made["version"] != 1.0 || made["archived_at"] != nil || !strings.HasPrefix(id, "agent_") {
		t.Errorf("created %v", made)
	}
	path := "/api/agents/" + id
	d.AsOwner("PUT", "/api/settings/AGENT_DEFAULT_MODEL", `{"value":"another"}`, 200)
	changed := d.AsOwner("PATCH", path, `{"settings":{"max_steps":null,"max_tokens":100},"description":"x"}`, 200)
	if s := changed["settings"].(map[string]any); changed["version"] != 2.0 || s["max_steps"] != nil || s["max_tokens"] != 100.0 || s["temperature"] != 0.2 || changed["model"] != "default-model" {
		t.Errorf("changed %v", changed)
	}
	if same := d.AsOwner("PATCH", path, `{"description":"x"}`, 200); same["version"] != 2.0 {
		t.Errorf("a change of nothing made version %v", same["version"])
	}
	if again := d.AsOwner("PATCH", path, `{"model":null}`, 200); again["model"] != "another" {
		t.Errorf("without a model: %v", again)
	}
	versions := d.AsOwner("GET", path+"/versions?limit=2", "", 200)
	if all := versions["versions"].([]any); versions["total"] != 3.0 || len(all) != 2 || all[0].(map[string]any)["version"] != 3.0 {
		t.Errorf("versions: %v", versions)
	}
	first := d.AsOwner("GET", path+"/versions/1", "", 200)
	if first["settings"].(map[string]any)["max_steps"] != 7.0 || first["created_by"] == "" {
		t.Errorf("version 1: %v", first)
	}
	for _, n := range []string{"0", "4", "x", "-1", "99999999999999999999"} {
		d.AsOwner("GET", path+"/versions/"+n, "", 404)
	}

	d.AsOwner("POST", "/api/agents", `{"name":"helper"}`, 409)
	other := d.AsOwner("POST", "/api/agents", `{"name":"other","model":"m"}`, 201)["id"].(string)
	d.AsOwner("PATCH", "/api/agents/"+other, `{"name":"helper"}`, 409)
	list := d.AsOwner("GET", "/api/agents?limit=1&offset=1", "", 200)
	if all := list["agents"].([]any); list["total"] != 2.0 || list["limit"] != 1.0 || list["offset"] != 1.0 || len(all) != 1 || all[0].(map[string]any)["name"] != "helper" {
		t.Errorf("list: %v", list)
	}
	if got := d.AsOwner("POST", path+"/archive", "{}", 200); got["archived_at"] == nil || got["version"] != 3.0 {
		t.Errorf("archived: %v", got)
	}
	for query, want := range map[string]float64{"": 1, "?archived=true": 1, "?archived=all": 2, "?name=helper": 0, "?name=helper&archived=all": 1} {
		if got := d.AsOwner("GET", "/api/agents"+query, "", 200); got["total"] != want {
			t.Errorf("%s: %v agents, want %v", query, got["total"], want)
		}
	}
	d.AsOwner("POST", "/api/agents", `{"name":"helper"}`, 409)
	if got := d.AsOwner("POST", path+"/restore", "{}", 200); got["archived_at"] != nil {
		t.Errorf("restored: %v", got)
	}
	if got := d.AsOwner("DELETE", path, "", 200); got["deleted"] != true {
		t.Errorf("deleted: %v", got)
	}
	d.AsOwner("GET", path, "", 404)
	d.AsOwner("GET", path+"/versions", "", 404)
	d.AsOwner("POST", "/api/agents", `{"name":"helper"}`, 201)
	got := []string{}
	for _, row := range d.AsOwner("GET", "/api/audit?limit=50", "", 200)["data"].([]any) {
		if m := row.(map[string]any)["body"].(map[string]any); m["resource"] == "agent" && m["id"] == id {
			got = append(got, m["action"].(string))
		}
	}
	if want := "[create update update archive restore delete]"; fmt.Sprint(got) != want {
		t.Errorf("the audit log has %v, want %s", got, want)
	}
}

// A mistake is a 400 that names the member, and nothing is stored. // N01 H18
func TestMistakesInAgentsAreNamed(t *testing.T) {
	d := agentsAt(t)
	hook := func(h string) string { return `{"name":"x","hooks":[` + h + `]}` }
	srv := func(s string) string { return `{"name":"x","mcp_servers":[` + s + `]}` }
	for body, param := range map[string]string{
		`[]`:                  "",
		`{`:                   "",
		`{}`:                  "name",
		`{"name":5}`:          "name",
		`{"name":"x","ml":1}`: "ml",
		`{"name":"x","settings":{"max_steps":51}}`:                                                                   "settings.max_steps",
		`{"name":"x","settings":{"max_steps":1.5}}`:                                                                  "settings.max_steps",
		`{"name":"x","settings":{"steps":1}}`:                                                                        "settings.steps",
		`{"name":"x","settings":[]}`:                                                                                 "settings",
		`{"name":"x","temperature":1}`:                                                                               "temperature",
		`{"name":"x","hooks":{}}`:                                                                                    "hooks",
		hook(`{"event":"before_run","type":"http"}`):                                                                 "hooks[0].event",
		hook(`{"event":"PreToolUse","type":"webhook"}`):                                                              "hooks[0].type",
		hook(`{"event":"PreToolUse","type":"rule"}`):                                                                 "hooks[0].config.condition",
		hook(`{"event":"PreToolUse","type":"rule","config":1}`):                                                      "hooks[0].config",
		hook(`{"event":"PreToolUse","type":"rule","config":{"condition":"a CONTAIN x"}}`):                            "hooks[0].config.condition",
		hook(`{"event":"PreToolUse","type":"rule","config":{"condition":"a CONTAINS x","action":"allow"}}`):          "hooks[0].config.action",
		hook(`{"event":"PreToolUse","type":"rule","config":{"rules":[{"condition":"a CONTAINS x"},{"message":1}]}}`): "hooks[0].config.rules[1].message",
		hook(`{"event":"PreToolUse","type":"rule","config":{"rules":[],"condition":"a CONTAINS x"}}`):                "hooks[0].config.condition",
		hook(`{"event":"PostToolUse","type":"rule","config":{"condition":"a CONTAINS x"}}`):                          "hooks[0].type",
		hook(`{"event":"OnRunComplete","type":"approval"}`):                                                          "hooks[0].type",
		hook(`{"event":"PreResponse","type":"http","matcher":"x","config":{"url":"https://example.com"}}`):           "hooks[0].matcher",
		hook(`{"event":"PreToolUse","type":"http","config":{"url":"https://example.com","headers":{"X":"env:X"}}}`):  "hooks[0].config.headers.X",
		hook(`{"event":"PreToolUse","type":"http","config":{"url":"https://example.com","headers":{"Host":"x"}}}`):   "hooks[0].config.headers",
		hook(`{"event":"PreToolUse","type":"http","config":{"url":"/x"}}`):                                           "hooks[0].config.url",
		hook(`{"event":"PreToolUse","type":"approval","config":{"timeout":-1}}`):                                     "hooks[0].config.timeout",
		srv(`{"name":"s"}`):                                                                  "mcp_servers[0].url",
		srv(`{"url":"https://example.com"}`):                                                 "mcp_servers[0].name",
		srv(`{"name":"s","url":"not a URL"}`):                                                "mcp_servers[0].url",
		srv(`{"name":"s","url":"https://example.com","transport":"sse"}`):                    "mcp_servers[0].transport",
		srv(`{"name":"s","url":"https://example.com","config":{"command":["x"]}}`):           "mcp_servers[0].config.command",
		srv(`{"name":"s","url":"https://example.com","config":{"timeout":"0s"}}`):            "mcp_servers[0].config.timeout",
		srv(`{"name":"s","url":"https://example.com","config":{"trusted":true}}`):            "mcp_servers[0].config.trusted",
		srv(`{"name":"s","url":"https://a.example"},{"name":"s","url":"https://b.example"}`): "mcp_servers[1].name",
	} {
		got := d.AsOwner("POST", "/api/agents", body, 400)
		if p, _ := got["param"].(string); p != param || !strings.Contains(got["error"].(string), param) || got["code"] == "" {
			t.Errorf("%s: %v, want the param %q", body, got, param)
		}
	}
	for body, code := range map[string]string{ // H24: the policy and credentials, as with the org's servers
		hook(`{"event":"PreToolUse","type":"http","config":{"url":"http://10.0.0.1/hook"}}`):                                            "outbound_ssrf_blocked",
		hook(`{"event":"PreToolUse","type":"http","config":{"url":"http://169.254.169.254/"}}`):                                         "outbound_ssrf_blocked",
		hook(`{"event":"PreToolUse","type":"http","config":{"url":"https://example.com","headers":{"Authorization":"Bearer canary"}}}`): "credential_in_the_open",
		srv(`{"name":"s","url":"http://10.0.0.1/mcp"}`):                                                                                 "outbound_ssrf_blocked",
		srv(`{"name":"s","url":"https://example.com/?token=canary"}`):                                                                   "credential_in_the_open",
		srv(`{"name":"s","url":"https://example.com","headers":{"X-Api-Key":"canary"}}`):                                                "credential_in_the_open",
		srv(`{"name":"s","url":"https://example.com","headers":{"X":"file:/etc/passwd"}}`):                                              "invalid_value",
	} {
		status := 422
		if code == "invalid_value" {
			status = 400
		}
		if got := d.AsOwner("POST", "/api/agents", body, status); got["code"] != code || strings.Contains(got["error"].(string), "canary") {
			t.Errorf("%s: %v, want %s", body, got, code)
		}
	}
	if got := d.AsOwner("POST", "/api/agents", `{"name":"x","tools":[{"tool_type":"builtin","tool_name":"grep"}]}`, 400); got["param"] != "tools[0].tool_name" {
		t.Errorf("with a tool: %v", got)
	}
	if got := d.AsOwner("GET", "/api/agents?archived=all", "", 200); got["total"] != 0.0 {
		t.Errorf("stored: %v", got)
	}
}

// MCP servers of an agent are unique in it, and are changed one by one. // N03
func TestServersOfAnAgentOverTheAPI(t *testing.T) {
	d := agentsAt(t)
	path := "/api/agents/" + d.AsOwner("POST", "/api/agents", `{"name":"a"}`, 201)["id"].(string)
	made := d.AsOwner("POST", path+"/mcp-servers", `{"name":"docs","url":"https://example.com/mcp","headers":{"Authorization":"Bearer secret:docs"},"config":{"trust":true,"require_approval":"writes","tools":["search"]}}`, 201)
	config := made["config"].(map[string]any)
	if made["transport"] != "http" || made["enabled"] != true || config["naming"] != "namespaced" || config["trust"] != true || config["timeout"] != "30s" {
		t.Errorf("created %v", made)
	}
	d.AsOwner("POST", path+"/mcp-servers", `{"name":"docs","url":"https://example.com/other"}`, 409)
	one := path + "/mcp-servers/" + made["id"].(string)
	if got := d.AsOwner("PUT", one, `{"enabled":false}`, 200); got["enabled"] != false || got["url"] != "https://example.com/mcp" || got["config"].(map[string]any)["trust"] != true {
		t.Errorf("disabled: %v", got)
	}
	if got := d.AsOwner("PUT", one, `{"enabled":null,"config":{}}`, 200); got["enabled"] != true || got["config"].(map[string]any)["trust"] != false {
		t.Errorf("with defaults: %v", got)
	}
	second := d.AsOwner("POST", path+"/mcp-servers", `{"name":"two","url":"https://example.com/two"}`, 201)["id"].(string)
	d.AsOwner("PUT", path+"/mcp-servers/"+second, `{"name":"docs"}`, 409)
	whole := d.AsOwner("GET", path, "", 200)
	if whole["version"] != 5.0 || len(whole["mcp_servers"].([]any)) != 2 {
		t.Errorf("the agent: %v", whole)
	}
	if got := d.Do("GET", path, "member-key", "", 200); got["mcp_servers"] != nil || got["hooks"] != nil {
		t.Errorf("a member sees %v", got)
	}
	replaced := d.AsOwner("PATCH", path, `{"mcp_servers":[{"name":"docs","url":"https://example.com/new"}]}`, 200)["mcp_servers"].([]any)
	if len(replaced) != 1 || replaced[0].(map[string]any)["id"] != made["id"] {
		t.Errorf("a server that is there got another id: %v", replaced)
	}
	d.AsOwner("DELETE", one, "", 200)
	d.AsOwner("GET", one, "", 404)
}

// Hooks are added and removed, and never changed. Two requests at the same time lose nothing. // N04
func TestHooksOfAnAgentOverTheAPI(t *testing.T) {
	d := agentsAt(t)
	path := "/api/agents/" + d.AsOwner("POST", "/api/agents", `{"name":"a"}`, 201)["id"].(string)
	for _, body := range []string{
		`{"event":"PreToolUse","type":"approval","matcher":"pay_*"}`,
		`{"event":"PostToolUse","type":"http","config":{"url":"https://example.com/hook","headers":{"X-Api-Key":"secret:hook"},"secret":"secret:sign","on_error":"deny"}}`,
		`{"event":"PreToolUse","type":"rule","position":3,"config":{"rules":[{"condition":"sql CONTAINS DROP","message":"No."},{"condition":"sql NOT STARTS_WITH SELECT"}]}}`,
	} {
		d.AsOwner("POST", path+"/hooks", body, 201)
	}
	all := d.AsOwner("GET", path+"/hooks", "", 200)["hooks"].([]any)
	hook := func(i int) map[string]any { return all[i].(map[string]any) }
	if said := fmt.Sprint(hook(0)["warnings"]); !strings.Contains(said, `matcher "pay_*" matches no tool`) || hook(1)["warnings"] != nil {
		t.Errorf("warnings: %s, %v", said, hook(1)["warnings"])
	}
	d.AsOwner("POST", path+"/hooks", `{"event":"PreToolUse","type":"approval","matcher":"pay["}`, 400)
	if len(all) != 3 || hook(0)["config"].(map[string]any)["timeout"] != 300.0 || hook(1)["config"].(map[string]any)["timeout_seconds"] != 5.0 || len(hook(2)["config"].(map[string]any)["rules"].([]any)) != 2 {
		t.Errorf("hooks: %v", all)
	}
	one := path + "/hooks/" + hook(0)["id"].(string)
	d.AsOwner("GET", one, "", 200)
	if a := d.Send("PATCH", one, strings.NewReader(`{}`)); a.Status != 405 {
		t.Errorf("a hook was changed: %d %s", a.Status, a.Body)
	}
	d.AsOwner("DELETE", one, "", 200)
	d.AsOwner("DELETE", one, "", 404)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if a := d.Send("POST", path+"/hooks", strings.NewReader(AgentHook)); a.Status != 201 {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
	}
	wait.Wait()
	if got := d.AsOwner("GET", path+"/hooks", "", 200); got["total"] != 10.0 {
		t.Errorf("%v hooks, want 10", got["total"])
	}
}

// The eight built-in tools are listed, and each can be assigned. // N02
func TestBuiltinToolsAreAssigned(t *testing.T) {
	d := agentsAt(t)
	path := "/api/agents/" + d.AsOwner("POST", "/api/agents", `{"name":"a"}`, 201)["id"].(string) + "/tools"
	list := d.AsOwner("GET", "/api/tools", "", 200)
	if all := list["tools"].([]any); list["total"] != 8.0 || all[0].(map[string]any)["id"] != nil || all[0].(map[string]any)["available"] != false {
		t.Errorf("tools: %v", list)
	}
	for _, one := range list["tools"].([]any) {
		d.AsOwner("POST", path, fmt.Sprintf(`{"tool_type":"builtin","tool_name":%q}`, one.(map[string]any)["name"]), 201)
	}
	for body, status := range map[string]int{
		`{"tool_name":"web_search"}`: 400, `{"tool_type":"builtin"}`: 400, `{"tool_type":"mcp","tool_name":"x"}`: 400, `{"tool_type":"builtin","tool_name":"x","y":1}`: 400,
		`{"tool_type":"builtin","tool_name":"x"}`: 400, `{"tool_type":"custom","tool_name":"x","tool_id":"t"}`: 400, `{"tool_type":"builtin","tool_name":"web_search"}`: 409,
	} {
		d.AsOwner("POST", path, body, status)
	}
}

// Both forms of PUT, limits, and secrets that nobody sees again. // N12
func TestSettingsOfAgentsOverTheAPI(t *testing.T) {
	d := agentsAt(t)
	value := func(key string) map[string]any {
		t.Helper()
		for _, one := range d.AsOwner("GET", "/api/settings", "", 200)["settings"].([]any) {
			if s := one.(map[string]any); s["key"] == key {
				return s
			}
		}
		t.Fatalf("no setting %s", key)
		return nil
	}
	if got := value("AGENT_DEFAULT_MODEL"); got["value"] != "gpt-5.4-mini" || got["is_set"] != false {
		t.Errorf("%v", got)
	}
	d.AsOwner("PUT", "/api/settings", `{"settings":{"EXA_API_KEY":"canary-exa","AGENT_MAX_STEPS":9,"VISION_MODEL":"eye"}}`, 200)
	d.AsOwner("PUT", "/api/settings/FIRECRAWL_API_KEY", `{"value":"canary-fire"}`, 200)
	if got := value("EXA_API_KEY"); got["value"] != "********" || got["is_set"] != true {
		t.Errorf("%v", got)
	}
	if got := value("AGENT_MAX_STEPS"); got["value"] != 9.0 || got["default"] != 25.0 {
		t.Errorf("%v", got)
	}
	if got := d.AsOwner("GET", "/api/secrets", "", 200)["data"].([]any); len(got) != 2 {
		t.Errorf("the vault has %v", got)
	}
	for body, param := range map[string]string{
		`{"settings":{"AGENT_MAX_STEPS":51}}`:                              "settings.AGENT_MAX_STEPS",
		`{"settings":{"AGENT_MAX_STEPS":"x","VISION_MODEL":"m"}}`:          "settings.AGENT_MAX_STEPS",
		`{"settings":{"VISION_MODEL":"changed","EXA_API_KEY":7}}`:          "settings.EXA_API_KEY",
		`{"settings":{"VISION_MODEL":"changed","EXA_API_KEY":"********"}}`: "settings.EXA_API_KEY",
		`{"settings":{"VISION_MODEL":"changed","LATER":"x"}}`:              "settings.LATER",
		`{"settings":[]}`: "settings",
		`{}`:              "settings",
	} {
		if got := d.AsOwner("PUT", "/api/settings", body, 400); got["param"] != param {
			t.Errorf("%s: %v", body, got)
		}
	}
	if got := value("VISION_MODEL"); got["value"] != "eye" {
		t.Errorf("a refused request changed %v", got)
	}
	d.AsOwner("PUT", "/api/settings/LATER", `{"value":"x"}`, 404)
	d.AsOwner("PUT", "/api/settings/VISION_MODEL", `{"value":""}`, 200)
	if got := value("VISION_MODEL"); got["is_set"] != false || got["value"] != "gpt-4.1-mini" {
		t.Errorf("%v", got)
	}
	d.AsOwner("POST", "/api/settings/reset-category", `{"category":"tools"}`, 200)
	if got := value("EXA_API_KEY"); got["is_set"] != false || got["value"] != nil {
		t.Errorf("%v", got)
	}
	d.AsOwner("DELETE", "/api/settings/AGENT_MAX_STEPS", "", 200)
	if got := value("AGENT_MAX_STEPS"); got["value"] != 25.0 {
		t.Errorf("%v", got)
	}
	for _, path := range []string{"/api/audit?limit=100", "/api/settings"} {
		if a := d.Send("GET", path, nil); strings.Contains(string(a.Body), "canary") {
			t.Errorf("%s shows a secret: %s", path, a.Body)
		}
	}
}
