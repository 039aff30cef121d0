package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// fileAgents is a configuration with agents.
func fileAgents(upstream, agents string) string {
	return Site{Upstream: upstream}.WithVault() + "    agents:\n" + agents
}

const helperOfFile = `      - {name: helper, model: m, system_prompt: Be brief., settings: {max_steps: 3}}
`

// An agent of the configuration file is listed and run by its name, cannot be changed over the API, gets a
// version when the file changes it, and leaves its sessions readable when it leaves the file. // N01 A12
func TestAgentsOfTheConfigurationFile(t *testing.T) {
	up := NewUpstream(t, Script(Says("Hello.")))
	first := fileAgents(up.URL, helperOfFile)
	s := serve(t, first)
	d := Manage(s.Gateway)
	const path = "/api/agents/helper"
	got := d.AsOwner("GET", path, "", 200)
	if got["id"] != "helper" || got["declared"] != true || got["version"] != 1.0 || got["created_at"] != nil || got["updated_at"] == nil || got["settings"].(map[string]any)["max_steps"] != 3.0 {
		t.Errorf("the agent is %v", got)
	}
	for change, body := range changesOfAgent() {
		method, below, _ := strings.Cut(change, " ")
		refused := d.AsOwner(method, path+below, body, 409)
		if refused["code"] != "declared" || refused["error"] != `the agent "helper" is declared in the configuration file and can only be changed there` {
			t.Errorf("%s: %v", change, refused)
		}
	}
	if refused := d.AsOwner("POST", "/api/agents", `{"name":"helper","model":"m"}`, 409); refused["code"] != "exists" {
		t.Errorf("an agent with its name: %v", refused)
	}
	other := d.AsOwner("POST", "/api/agents", `{"name":"other","model":"m"}`, 201)["id"].(string)
	list := d.AsOwner("GET", "/api/agents", "", 200)
	if all := list["agents"].([]any); list["total"] != 2.0 || all[0].(map[string]any)["id"] != "helper" || all[1].(map[string]any)["id"] != other {
		t.Errorf("the list is %v", list)
	}
	start := AgentFrames(t, d.StreamAgent("helper", `{"message":"hi"}`).Body)[0]
	session := start["session_id"].(string)
	if asked := up.Requests()[0].Decode(t); len(asked.Messages) != 2 || asked.Messages[0].Content != "Be brief." {
		t.Errorf("the model was asked %+v", asked)
	}
	if run := d.AsOwner("GET", "/api/agents/runs/"+start["run_id"].(string), "", 200); run["agent_id"] != "helper" || run["agent_version"] != 1.0 || run["status"] != "completed" {
		t.Errorf("the run is %v", run)
	}

	log := s.reload(t, strings.Replace(first, "Be brief.", "Be kind.", 1), readAgain)
	if !strings.Contains(log, "key=orgs[o].agents[helper].system_prompt") {
		t.Errorf("the log does not name the change:\n%s", log)
	}
	if got := d.AsOwner("GET", path, "", 200); got["id"] != "helper" || got["version"] != 2.0 || got["system_prompt"] != "Be kind." {
		t.Errorf("after the change: %v", got)
	}
	versions := d.AsOwner("GET", path+"/versions", "", 200)
	if all := versions["versions"].([]any); versions["total"] != 2.0 || all[1].(map[string]any)["system_prompt"] != "Be brief." || all[1].(map[string]any)["created_by"] != "@operator" {
		t.Errorf("versions: %v", versions)
	}
	d.AsOwner("GET", path+"/versions/3", "", 404)
	d.StreamAgent("helper", fmt.Sprintf(`{"message":"more","session_id":%q}`, session)) // it follows the agent
	if asked := up.Requests()[1].Decode(t); len(asked.Messages) != 4 || asked.Messages[0].Content != "Be kind." {
		t.Errorf("the model was asked %+v", asked)
	}
	if turns := d.AsOwner("GET", "/api/sessions/"+session+"/runs", "", 200)["runs"].([]any); len(turns) != 2 || turns[0].(map[string]any)["agent_version"] != 2.0 || turns[1].(map[string]any)["agent_version"] != 1.0 {
		t.Errorf("runs: %v", turns)
	}

	s.reload(t, Site{Upstream: up.URL}.WithVault(), readAgain) // it leaves the file
	d.AsOwner("GET", path, "", 404)
	d.AsOwner("POST", path+"/run", fmt.Sprintf(`{"message":"more","session_id":%q}`, session), 404)
	if got := d.AsOwner("GET", "/api/sessions/"+session, "", 200); got["agent_id"] != "helper" || got["run_count"] != 2.0 {
		t.Errorf("the session of an agent that has left: %v", got)
	}
	if got := d.AsOwner("GET", "/api/sessions/"+session+"/messages", "", 200); got["total"] != 4.0 {
		t.Errorf("its messages: %v", got)
	}
	s.reload(t, first, readAgain) // and comes back
	if got := d.AsOwner("GET", path, "", 200); got["version"] != 3.0 {
		t.Errorf("after it came back: %v", got)
	}
	d.AsOwner("POST", path+"/run", fmt.Sprintf(`{"message":"more","session_id":%q}`, session), 200)
	if log := s.reload(t, strings.Replace(first, "max_steps: 3", "max_steps: 51", 1), "has a mistake"); !strings.Contains(log, "orgs[0].agents[0].settings.max_steps: must be a whole number from 1 to 50") {
		t.Errorf("a file with a mistake:\n%s", log)
	}
	d.AsOwner("DELETE", "/api/sessions/"+session, "", 200)
	d.AsOwner("GET", "/api/sessions/"+session, "", 404)
}

// The version of an agent of the file, and its sessions, survive a restart. // N01
func TestAgentsOfTheFileSurviveARestart(t *testing.T) {
	NoLeaks(t)
	data := t.TempDir()
	up := NewUpstream(t, Script(Says("Hello.")))
	session := ""
	for i, prompt := range []string{"Be brief.", "Be brief.", "Be kind."} {
		g := MustRunIn(t, data, fileAgents(up.URL, strings.Replace(helperOfFile, "Be brief.", prompt, 1)), Environment())
		d := Manage(g)
		if got, want := d.AsOwner("GET", "/api/agents/helper", "", 200)["version"], float64(max(1, i)); got != want {
			t.Errorf("start %d: version %v, want %v", i, got, want)
		}
		body := `{"message":"hi"}`
		if session != "" {
			body = fmt.Sprintf(`{"message":"hi","session_id":%q}`, session)
		}
		session = AgentFrames(t, d.StreamAgent("helper", body).Body)[0]["session_id"].(string)
		if got := d.AsOwner("GET", "/api/agents/helper/sessions", "", 200); got["total"] != 1.0 {
			t.Errorf("start %d: sessions %v", i, got)
		}
		_ = g.Stop()
	}
}

// An agent of the file finds a custom tool by its name when a run begins, and has MCP servers whose
// credentials the operator keeps in the environment. // N02 N03
func TestToolsAndServersOfAgentsOfTheFile(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Asks(Use("status", `{"id":"7"}`), Use("mcp__shop__echo", `{"n":1}`), Use("mcp__shop__pay", `{"n":2}`)), Says("Done.")))
	shop := NewMCP(t, map[string]Handler{"echo": Echo, "pay": Echo})
	orders := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("shipped")) })
	variables := Environment()
	variables["SHOP_KEY"] = "canary-of-the-operator"
	g := MustRunIn(t, t.TempDir(), fileAgents(up.URL, fmt.Sprintf(`      - name: clerk
        model: m
        tools: [{name: status}]
        mcp_servers: [{name: shop, url: %q, headers: {Authorization: "Bearer env:SHOP_KEY"}}]
        hooks: [{event: PreToolUse, type: rule, matcher: pay, config: {condition: n CONTAINS 2, message: no}}]
`, shop.URL)), variables)
	d := Manage(g)
	refused := d.AsOwner("POST", "/api/agents/clerk/run", `{"message":"hi"}`, 409)
	if refused["code"] != "tool_missing" || refused["error"] != "agent clerk: tool status: the custom tool does not exist; create it with POST /api/tools" {
		t.Errorf("without the tool: %v", refused)
	}
	tool := d.AsOwner("POST", "/api/tools", fmt.Sprintf(`{"name":"status","description":"d","input_schema":{"type":"object","properties":{"id":{"type":"string"}}},"config":{"endpoint":%q}}`, orders.URL), 201)["id"].(string)
	for method, body := range map[string]string{"DELETE": "", "PUT": `{"name":"renamed"}`} {
		if refused := d.AsOwner(method, "/api/tools/"+tool, body, 409); refused["code"] != "in_use" {
			t.Errorf("%s of a tool that the agent has: %v", method, refused)
		}
	}
	d.StreamAgent("clerk", `{"message":"hi"}`)
	if got := strings.Join(up.Requests()[1].Results(t), "|"); !strings.HasPrefix(got, "shipped|") || !strings.Contains(got, `{"n":1}`) || strings.Contains(got, `{"n":2}`) || !strings.Contains(got, "no") {
		t.Errorf("the model was told %s", got)
	}
	if got := shop.Bearers("tools/call"); len(got) != 1 || got[0] != "canary-of-the-operator" {
		t.Errorf("the server got the keys %v", got)
	}
	for _, path := range []string{"", "/mcp-servers", "/mcp-servers/shop", "/hooks", "/hooks/agent:0", "/tools", "/versions"} {
		a := g.Send("GET", "/api/agents/clerk"+path, nil, "Authorization", "Bearer owner-key")
		if a.Status != 200 || strings.Contains(string(a.Body), "canary") || strings.Contains(string(a.Body), "SHOP_KEY") {
			t.Errorf("%s answered %d: %s", path, a.Status, a.Body)
		}
	}
	for path, method := range map[string]string{"/mcp-servers/shop": "DELETE", "/hooks/agent:0": "DELETE", "/tools/status": "DELETE"} {
		if refused := d.AsOwner(method, "/api/agents/clerk"+path, "", 409); refused["code"] != "declared" {
			t.Errorf("%s %s: %v", method, path, refused)
		}
	}
}

// bodies of requests that would change the agent.
func changesOfAgent() map[string]string {
	return map[string]string{
		"PATCH ": `{"description":"x"}`, "DELETE ": "", "POST /archive": "", "POST /restore": "",
		"POST /mcp-servers": `{"name":"x","url":"https://example.com"}`, "POST /hooks": `{"event":"OnRunStart","type":"rule","config":{"condition":"input CONTAINS x"}}`,
	}
}
