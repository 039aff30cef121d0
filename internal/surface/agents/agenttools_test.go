package agents_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A custom tool is created, listed after the built-in ones, shown, changed and deleted. // E19
func TestCustomToolsOverTheAPI(t *testing.T) {
	d := agentsAt(t)
	made := d.AsOwner("POST", "/api/tools", `{"name":"status","description":"Status of an order.","tool_type":"custom",
		"input_schema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]},
		"config":{"endpoint":"https://example.com/orders/{id}","headers":{"X-Shop":"north"}}}`, 201)
	id := made["id"].(string)
	config := made["config"].(map[string]any)
	if !strings.HasPrefix(id, "tool_") || made["tool_type"] != "custom" || made["available"] != true || config["method"] != "POST" || config["timeout_seconds"] != 30.0 || config["class"] != "once" {
		t.Errorf("created %v", made)
	}
	d.AsOwner("POST", "/api/tools", `{"name":"about","description":"d","config":{"endpoint":"https://example.com/about","method":"GET","class":"read"}}`, 201)
	list := d.AsOwner("GET", "/api/tools", "", 200)
	all := list["tools"].([]any)
	if list["total"] != 10.0 || len(all) != 10 || all[7].(map[string]any)["id"] != nil || all[8].(map[string]any)["name"] != "about" || all[9].(map[string]any)["id"] != id {
		t.Errorf("tools: %v", list)
	}
	for query, want := range map[string]string{"?limit=2&offset=7": "web_scrape about", "?limit=1&offset=9": "status", "?limit=3&offset=10": "", "?limit=8": "database_query database_write http_request code_execute storage_read storage_write web_search web_scrape"} {
		var names []string
		for _, one := range d.AsOwner("GET", "/api/tools"+query, "", 200)["tools"].([]any) {
			names = append(names, one.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}

	path := "/api/tools/" + id
	changed := d.AsOwner("PUT", path, `{"description":"Changed.","config":{"method":"PUT","timeout_seconds":5}}`, 200)
	config = changed["config"].(map[string]any)
	if changed["description"] != "Changed." || config["method"] != "PUT" || config["timeout_seconds"] != 5.0 || config["endpoint"] != "https://example.com/orders/{id}" || config["headers"].(map[string]any)["X-Shop"] != "north" {
		t.Errorf("changed %v", changed)
	}
	if back := d.AsOwner("PUT", path, `{"config":{"method":null,"timeout_seconds":null,"headers":null}}`, 200)["config"].(map[string]any); back["method"] != "POST" || back["timeout_seconds"] != 30.0 || len(back["headers"].(map[string]any)) != 0 {
		t.Errorf("with defaults: %v", back)
	}
	d.AsOwner("PUT", path, `{"name":"about"}`, 409)
	if got := d.Do("GET", path, "member-key", "", 200); got["config"] != nil || got["input_schema"] == nil {
		t.Errorf("for a member: %v", got)
	}
	d.AsOwner("DELETE", path, "", 200)
	for _, method := range []string{"GET", "DELETE"} {
		d.AsOwner(method, path, "", 404)
	}
	d.AsOwner("PUT", path, "{}", 404)
}

// What a custom tool must not be is refused, with the member that is wrong. // E11 E19
func TestWrongCustomToolsAreRefused(t *testing.T) {
	d := agentsAt(t)
	d.AsOwner("POST", "/api/tools", `{"name":"taken","description":"d","config":{"endpoint":"https://example.com/x"}}`, 201)
	for _, c := range []struct {
		body   string
		status int
		param  string
	}{
		{`{}`, 400, "name"},
		{`{"name":"a b","description":"d","config":{"endpoint":"https://example.com/x"}}`, 400, "name"},
		{`{"name":"web_search","description":"d","config":{"endpoint":"https://example.com/x"}}`, 400, "name"},
		{`{"name":"taken","description":"d","config":{"endpoint":"https://example.com/x"}}`, 409, "name"},
		{`{"name":"a","config":{"endpoint":"https://example.com/x"}}`, 400, "description"},
		{`{"name":"a","description":"d"}`, 400, "config.endpoint"},
		{`{"name":"a","description":"d","config":{"endpoint":"ftp://example.com/x"}}`, 400, "config.endpoint"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://{host}/x"}}`, 400, "config.endpoint"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/{id}"}}`, 400, "config.endpoint"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://10.0.0.1/x"}}`, 422, "config.endpoint"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","method":"TRACE"}}`, 400, "config.method"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","class":"twice"}}`, 400, "config.class"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","timeout_seconds":301}}`, 400, "config.timeout_seconds"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","timeout_seconds":0}}`, 400, "config.timeout_seconds"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","retries":1}}`, 400, "config.retries"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","headers":{"Authorization":"Bearer literal"}}}`, 422, "config.headers.Authorization"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","headers":{"Authorization":"Bearer env:PATH"}}}`, 422, "config.headers.Authorization"},
		{`{"name":"a","description":"d","config":{"endpoint":"https://example.com/x","headers":{"X-A":"env:PATH"}}}`, 422, "config.headers.X-A"},
		{`{"name":"a","description":"d","input_schema":{"type":"string"},"config":{"endpoint":"https://example.com/x"}}`, 400, "input_schema"},
		{`{"name":"a","description":"d","input_schema":{"type":7},"config":{"endpoint":"https://example.com/x"}}`, 400, "input_schema"},
		{`{"name":"a","description":"d","input_schema":[],"config":{"endpoint":"https://example.com/x"}}`, 400, "input_schema"},
		{`{"name":"a","description":"d","tool_type":"builtin","config":{"endpoint":"https://example.com/x"}}`, 400, "tool_type"},
		{`{"name":"a","description":"d","handler":"x","config":{"endpoint":"https://example.com/x"}}`, 400, "handler"},
		{`{"name":"a","description":"` + strings.Repeat("d", 5000) + `","config":{"endpoint":"https://example.com/x"}}`, 400, "description"},
	} {
		if got := d.AsOwner("POST", "/api/tools", c.body, c.status); got["param"] != c.param {
			t.Errorf("%s: param %v, want %s (%v)", c.body, got["param"], c.param, got["error"])
		}
	}
	if total := d.AsOwner("GET", "/api/tools", "", 200)["total"]; total != 9.0 {
		t.Errorf("%v tools", total)
	}
}

// Tools are assigned, listed, changed and removed, which are versions of the agent. // N02 H23
func TestToolsAreAssignedToAgents(t *testing.T) {
	d := agentsAt(t)
	look := customTool(d, "look", `"endpoint":"https://example.com/look"`)
	send := customTool(d, "send", `"endpoint":"https://example.com/send"`)
	agent := d.NewAgent("")
	path := "/api/agents/" + agent + "/tools"
	made := d.AsOwner("POST", path, `{"tool_type":"custom","tool_name":"look","config_override":{"rules":[{"condition":"q CONTAINS secret","message":"Not that."}]}}`, 201)
	if made["tool_name"] != "look" || !strings.HasPrefix(made["id"].(string), "assigned_") || len(made) != 2 {
		t.Errorf("assigned %v", made)
	}
	for body, want := range map[string]struct {
		status int
		param  any
	}{
		`{"tool_name":"look"}`:                                                {400, "tool_type"},
		`{"tool_type":"custom"}`:                                              {400, "tool_name"},
		`{"tool_type":"mcp","tool_name":"look"}`:                              {400, "tool_type"},
		`{"tool_type":"custom","name":"look"}`:                                {400, "tool_name"},
		`{"tool_type":"custom","tool_name":"look"}`:                           {409, "tool_name"},
		`{"tool_type":"custom","tool_name":"gone"}`:                           {400, "tool_name"},
		`{"tool_type":"custom","tool_name":"web_search"}`:                     {400, "tool_name"},
		`{"tool_type":"builtin","tool_name":"send"}`:                          {400, "tool_name"},
		`{"tool_type":"builtin","tool_name":"web_search","tool_id":"tool_0"}`: {400, "tool_id"},
		`{"tool_type":"builtin","tool_name":"web_search","config_override":{"schemas":{"shop":["orders"]}}}`:                              {400, "config_override.schemas"},
		`{"tool_type":"custom","tool_name":"send","tool_id":"tool_0"}`:                                                                    {400, "tool_name"},
		`{"tool_type":"custom","tool_name":"send","tool_id":"` + look + `"}`:                                                              {400, "tool_name"},
		`{"tool_type":"custom","tool_name":"send","config_override":{"rules":[{"condition":"q LIKES x"}]}}`:                               {400, "config_override.condition"},
		`{"tool_type":"custom","tool_name":"send","config_override":{"rules":[{"condition":"q CONTAINS x","action":"allow"}]}}`:           {400, "config_override.rules[0].action"},
		`{"tool_type":"custom","tool_name":"send","config_override":{"limit":1}}`:                                                         {400, "config_override.limit"},
		`{"tool_type":"custom","tool_name":"send","config_override":{"schemas":{"shop":["orders"]}}}`:                                     {400, "config_override.schemas"},
		`{"tool_type":"builtin","tool_name":"database_query","config_override":{"schemas":{"pg_catalog":["pg_user"]}}}`:                   {400, "config_override.schemas.pg_catalog"},
		`{"tool_type":"builtin","tool_name":"database_query","config_override":{"schemas":{"Information_Schema":[]}}}`:                    {400, "config_override.schemas.Information_Schema"},
		`{"tool_type":"builtin","tool_name":"database_query","config_override":{"schemas":{"shop; DROP":[]}}}`:                            {400, "config_override.schemas"},
		`{"tool_type":"builtin","tool_name":"database_query","config_override":{"schemas":{"shop":["` + strings.Repeat("x", 65) + `"]}}}`: {400, "config_override.schemas.shop[0]"},
	} {
		if got := d.AsOwner("POST", path, body, want.status); got["param"] != want.param {
			t.Errorf("%s: param %v, want %v (%v)", body, got["param"], want.param, got["error"])
		}
	}
	list := d.AsOwner("GET", path, "", 200)
	one := Elements(list["tools"])[0].(map[string]any)
	if list["total"] != 1.0 || one["tool_id"] != look || !strings.Contains(fmt.Sprint(one["config_override"]), "q CONTAINS secret") {
		t.Errorf("tools %v", list)
	}

	if used := d.AsOwner("DELETE", "/api/tools/"+look, "", 409); used["code"] != "in_use" || !strings.Contains(used["error"].(string), "helper") {
		t.Errorf("deleted while it is used: %v", used)
	}
	d.AsOwner("PUT", "/api/tools/"+look, `{"name":"peek"}`, 409)
	d.AsOwner("PUT", "/api/tools/"+look, `{"description":"Other."}`, 200)
	d.AsOwner("DELETE", "/api/tools/"+send, "", 200)

	changed := d.AsOwner("PATCH", path+"/"+made["id"].(string), `{"config_override":{"rules":[{"condition":"q CONTAINS a"},{"condition":"q CONTAINS b"}]}}`, 200)
	if len(Elements(changed["config_override"].(map[string]any)["rules"])) != 2 {
		t.Errorf("changed %v", changed)
	}
	d.AsOwner("PATCH", path+"/"+made["id"].(string), `{"tool_name":"send"}`, 400)
	d.AsOwner("PATCH", path+"/assigned_0", `{}`, 404)
	if a := d.AsOwner("GET", "/api/agents/"+agent, "", 200); a["version"] != 3.0 || len(Elements(a["tools"])) != 1 {
		t.Errorf("the agent is %v", a)
	}
	if v := d.AsOwner("GET", "/api/agents/"+agent+"/versions/2", "", 200); len(Elements(v["tools"])) != 1 || strings.Contains(fmt.Sprint(v["tools"]), "CONTAINS b") {
		t.Errorf("version 2 is %v", v)
	}
	d.AsOwner("DELETE", path+"/"+made["id"].(string), "", 200)
	d.AsOwner("DELETE", path+"/"+made["id"].(string), "", 404)
	d.AsOwner("DELETE", "/api/tools/"+look, "", 200)
	d.AsOwner("PATCH", "/api/agents/"+agent, `{"tools":[{"name":"look"}]}`, 400)
}

// The tools of an agent are offered in its runs. An endpoint gets exactly the arguments, and the headers
// as they are in the vault at the moment. // E11 N02
func TestAnAgentCallsItsTools(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			_, _ = io.WriteString(w, strings.Repeat("x", 11_000))
			return
		}
		_, _ = io.WriteString(w, `{"sent":true}`)
	})
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if text := string(got.Body); strings.Contains(text, `"role":"tool"`) || !strings.Contains(text, `"tools":[`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("order", `{"b":"<&>", "a":[1,2.50]}`), Use("about", `{"q":"x y"}`)).Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL, Feature: "none"}.WithVault()))
	d.Do("PUT", "/api/secrets/shop", "owner-key", `{"value":"CANARY-one"}`, 200)
	order := customTool(d, "order", fmt.Sprintf(`"endpoint":%q,"headers":{"X-Key":"secret:shop"}`, shop.URL+"/orders"))
	customTool(d, "about", fmt.Sprintf(`"endpoint":%q,"method":"GET","class":"read"`, shop.URL+"/about"))
	id := d.NewAgent(`,"tools":[{"name":"order"},{"tool_type":"custom","tool_name":"about"}]`)
	first := d.StreamAgent(id, `{"message":"go"}`)
	session := AgentFrames(t, first.Body)[0]["session_id"].(string)
	d.Do("PUT", "/api/secrets/shop", "owner-key", `{"value":"CANARY-two"}`, 200)
	d.AsOwner("POST", "/api/agents/"+id+"/sessions", `{}`, 201)
	d.StreamAgent(id, `{"message":"go"}`)

	got, keys := shop.All()
	posts, gets := []string{}, 0
	for i, one := range got {
		switch {
		case one == `POST /orders {"b":"<&>", "a":[1,2.50]}`:
			key, value, _ := strings.Cut(keys[i], " ")
			if posts = append(posts, value); key == "" {
				t.Error("the call has no Idempotency-Key")
			}
		case one == "GET /about?q=x+y" && keys[i] == " ":
			gets++
		default:
			t.Errorf("the endpoint got %s with %q", one, keys[i])
		}
	}
	if strings.Join(posts, " ") != "CANARY-one CANARY-two" || gets != 2 {
		t.Errorf("%d reads, and writes with %q", gets, posts)
	}
	asked := string(up.Requests()[1].Body)
	if !strings.Contains(asked, `{\"sent\":true}`) || !strings.Contains(asked, "longer than 10000 characters") || strings.Contains(asked, strings.Repeat("x", 10_001)) { // C13
		t.Errorf("the model got %.2000s", asked)
	}
	if rows := d.Send("GET", "/api/audit", nil); strings.Contains(string(rows.Body), "CANARY") || !strings.Contains(string(rows.Body), `"agent:tools"`) {
		t.Errorf("the audit log: %s", rows.Body)
	}
	if log := d.Log.String(); strings.Contains(log, "CANARY") {
		t.Error("the log has a secret")
	}

	d.AsOwner("PUT", "/api/tools/"+order, fmt.Sprintf(`{"config":{"endpoint":%q}}`, shop.URL+"/other"), 200)
	up.Requests()
	more := len(got)
	d.StreamAgent(id, fmt.Sprintf(`{"message":"again","session_id":%q}`, session))
	if got, _ := shop.All(); len(got) != more { // the session has results of tools: the model asks for none
		t.Errorf("the endpoint got %v", got[more:])
	}
}

// A rule of an assignment denies a call before the hooks of the agent see it, and only calls of its tool. // H23
func TestARuleOfAnAssignmentDenies(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := NewUpstream(t, Script(Asks(Use("look", `{"q":"the secret"}`), Use("peek", `{"q":"the secret"}`)), Says("done")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	customTool(d, "look", fmt.Sprintf(`"endpoint":%q`, shop.URL+"/look"))
	customTool(d, "peek", fmt.Sprintf(`"endpoint":%q`, shop.URL+"/peek"))
	id := d.NewAgent(`,"hooks":[{"event":"PreToolUse","type":"rule","matcher":"look","config":{"condition":"q CONTAINS secret","message":"Of the hook."}}],
		"tools":[{"name":"look","config_override":{"rules":[{"condition":"q CONTAINS nothing"},{"condition":"q CONTAINS secret","message":"Not that."}]}},{"name":"peek"}]`)
	d.StreamAgent(id, `{"message":"go"}`)
	if got, _ := shop.All(); strings.Join(got, " ") != `POST /peek {"q":"the secret"}` {
		t.Errorf("the endpoint got %q", got)
	}
	if asked := string(up.Requests()[1].Body); !strings.Contains(asked, "Not that.") || strings.Contains(asked, "Of the hook.") {
		t.Errorf("the model got %s", asked)
	}
}

// A pinned session keeps the settings that its tools had; another one follows. A key that may use only some
// servers cannot run the agent.
func TestToolsOfSessionsAndKeys(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if text := string(got.Body); strings.HasSuffix(text[:strings.LastIndex(text, `]`)], `"tool"}`) || strings.Count(text, `"role":"tool"`) == strings.Count(text, `"role":"user"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("look", `{}`)).Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	tool := customTool(d, "look", fmt.Sprintf(`"endpoint":%q`, shop.URL+"/old"))
	id := d.NewAgent(`,"tools":[{"name":"look"}]`)
	session := func(body string) string {
		return d.AsOwner("POST", "/api/agents/"+id+"/sessions", body, 201)["id"].(string)
	}
	pinned, follows := session(`{"pinned":true}`), session(`{}`)
	d.AsOwner("PUT", "/api/tools/"+tool, fmt.Sprintf(`{"config":{"endpoint":%q}}`, shop.URL+"/new"), 200)
	for _, s := range []string{pinned, follows} {
		d.StreamAgent(id, fmt.Sprintf(`{"message":"go","session_id":%q}`, s))
	}
	if got, _ := shop.All(); strings.Join(got, " ") != "POST /old {} POST /new {}" {
		t.Errorf("the endpoint got %q", got)
	}
	limited := d.AsOwner("POST", "/api/keys", `{"name":"limited","role":"member","servers":["other"]}`, 201)["key"].(string)
	if got := d.Do("POST", "/api/agents/"+id+"/run/stream", limited, `{"message":"go"}`, 403); got["code"] != "server_not_allowed" {
		t.Errorf("a key for some servers: %v", got)
	}
}

// The tools of a server are listed live, and a server that does not answer is told in at most 500 characters. // D24
func TestTheToolsOfAnAgentsServerAreListed(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Says("hi")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q},{"name":"gone","url":%q}]`, tools.URL+"/mcp", ClosedURL+"/mcp"))
	path := "/api/agents/" + id + "/mcp-servers"
	servers := Elements(d.AsOwner("GET", path, "", 200)["mcp_servers"])
	listed := func(i, want int) map[string]any {
		return d.AsOwner("GET", path+"/"+servers[i].(map[string]any)["id"].(string)+"/tools", "", want)
	}
	if got := Elements(listed(0, 200)["tools"]); len(got) != 1 || got[0].(map[string]any)["name"] != "echo" || got[0].(map[string]any)["input_schema"] == nil {
		t.Errorf("tools %v", got)
	}
	failed := listed(1, 502)
	if text := failed["error"].(string); failed["code"] != "mcp_server_failed" || len(text) > 500 || strings.Contains(text, "127.0.0.1") {
		t.Errorf("a server that is gone: %v", failed)
	}
	d.AsOwner("GET", path+"/mcp_0/tools", "", 404)
}

// customTool creates a custom tool and returns its id.
func customTool(d Documented, name, config string) string {
	d.T.Helper()
	body := fmt.Sprintf(`{"name":%q,"description":"Does %[1]s.","config":{%s}}`, name, config)
	return d.AsOwner("POST", "/api/tools", body, 201)["id"].(string)
}

// What is wrong with a tool of an agent is said with the member that was sent, and with what to write.
// A path takes the id of an agent. // E11
func TestMistakesInToolsOfAgentsNameTheirRemedy(t *testing.T) {
	d := agentsAt(t)
	for body, want := range map[string][2]string{
		`{"name":"a","tools":["storage_write"]}`:                       {"tools[0]", `such as {"name": "storage_write"}`},
		`{"name":"a","tools":[{"name":"storage_wrte"}]}`:               {"tools[0].name", "did you mean the built-in tool storage_write?"},
		`{"name":"a","tools":[{"tool_name":"gone"}]}`:                  {"tools[0].tool_name", "create it with POST /api/tools"},
		`{"name":"a","tools":[{"tool_type":"builtin","name":"gone"}]}`: {"tools[0].name", "GET /api/tools lists the built-in tools"},
	} {
		if got := d.AsOwner("POST", "/api/agents", body, 400); got["param"] != want[0] || !strings.Contains(got["error"].(string), want[1]) {
			t.Errorf("%s: %v", body, got)
		}
	}
	got := d.AsOwner("POST", "/api/agents/scribe/run", `{"message":"x"}`, 404)["error"].(string)
	if !strings.Contains(got, `"scribe"; GET /api/agents?name=NAME finds the id of an agent by its name`) {
		t.Errorf("an unknown agent: %s", got)
	}
}
