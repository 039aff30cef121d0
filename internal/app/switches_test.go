package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// switchedOrg is an org without the feature mcp_outbound and without MCP servers. more are top-level keys.
func switchedOrg(upstream, runtime, more string) string {
	yaml := site{upstream: upstream, feature: "none"}.withVault()
	return strings.ReplaceAll(yaml, "    runtime: {}\n", "    runtime: "+runtime+"\n") + "\n" + more
}

// offeredTools returns the names of the tools that the provider was offered, sorted.
func offeredTools(t *testing.T, r received) []string {
	t.Helper()
	var body struct {
		Tools []struct {
			Type     string
			Function struct{ Name string }
		}
	}
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, one := range body.Tools {
		names = append(names, one.Function.Name)
	}
	slices.Sort(names)
	return names
}

// codeTools returns the names under which the switch offers code, sorted.
func codeTools() []string {
	return []string{"execute_javascript", "execute_python", "list_files", "read_file", "surface_outputs"}
}

const (
	chatPath  = "/v1/chat/completions"
	searching = `{enable_search: true, web: {search: {provider: custom, url: %q}}}`
)

// With nothing but enable_search, every chat request runs the agent loop with the search tools, also in an org
// without the feature mcp_outbound. Nothing else gets them. // A07 C18
func TestTheSwitchForSearch(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"web_search", `{"query":"q"}`}).write(w)
	})
	d := manage(MustRun(t, switchedOrg(up.URL, fmt.Sprintf(searching, search.URL), "")))
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":"required","web_search_options":{"search_context_size":"low"}%s}`
	for _, stream := range []string{"", `,"stream":true`} {
		before, sent := len(up.requests()), func() int { all, _ := search.all(); return len(all) }()
		a := d.send("POST", chatPath, strings.NewReader(fmt.Sprintf(body, stream)))
		all := up.requests()[before:]
		if a.status != 200 || len(all) != 2 || !slices.Equal(offeredTools(t, all[0]), []string{"fetch_page", "web_search"}) {
			t.Fatalf("%d %s, %v", a.status, a.body, all)
		}
		if !strings.Contains(string(all[0].body), `"tool_choice":"required"`) || strings.Contains(string(all[1].body), `"tool_choice":"required"`) { // C18
			t.Errorf("tool_choice of the calls: %s\n%s", all[0].body, all[1].body)
		}
		if one := searchesOf(t, search, sent); len(one) != 1 || one[0]["search_context_size"] != "low" {
			t.Errorf("the endpoint got %v", one)
		}
		if strings.Count(string(a.body), `"agentic_tool_calls":[{"call_key":"0.0","round":0,"name":"web_search","arguments":"{\"query\":\"q\"}","result_content":`) != 1 || strings.Contains(string(a.body), "event: agentic_tool_call_progress") != (stream != "") {
			t.Errorf("the answer is %s", a.body)
		}
	}
	before := len(up.requests())
	if a := d.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x"}`)); a.status != 200 || len(offeredTools(t, up.requests()[before])) > 0 {
		t.Errorf("responses: %d %s, offered %q", a.status, a.body, offeredTools(t, up.requests()[before]))
	}
	before = len(up.requests())
	if a := d.send("POST", chatPath, strings.NewReader(fmt.Sprintf(body, "")), "turnpike-mcp-disabled", "true"); a.status != 200 || !strings.Contains(string(a.body), `"tool_calls"`) || len(offeredTools(t, up.requests()[before])) > 0 {
		t.Errorf("with the loop off: %d %s", a.status, a.body)
	}
}

// Code execution needs the switch and the request. // A07
func TestTheSwitchForCode(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { says("done").write(w) })
	const sandbox = "sandbox: {url: 'http://127.0.0.1:9', drivers: [remote]}\n"
	on := manage(MustRun(t, switchedOrg(up.URL, "{enable_code_execution: true}", sandbox)))
	off := manage(MustRun(t, switchedOrg(up.URL, "{}", sandbox)))
	const question = `{"model":"m","messages":[{"role":"user","content":"x"}]%s}`
	for more, want := range map[string][]string{
		``:                               {},
		`,"enable_code_execution":false`: {},
		`,"enable_code_execution":null`:  {},
		`,"enable_code_execution":true`:  codeTools(),
		`,"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`:                                              codeTools(),
		`,"enable_code_execution":true,"tools":[{"type":"function","function":{"name":"f"}},{"type":"code_interpreter"}]`: slices.Sorted(slices.Values(append(codeTools(), "f"))),
	} {
		before := len(up.requests())
		a := on.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, more)))
		if a.status != 200 {
			t.Fatalf("%s: %d %s", more, a.status, a.body)
		}
		got := up.requests()[before]
		if !slices.Equal(offeredTools(t, got), want) || strings.Contains(string(got.body), "enable_code_execution\":true") {
			t.Errorf("%s: the provider got %s", more, got.body)
		}
	}
	for more, want := range map[string]string{
		`,"enable_code_execution":true`:  "enable_code_execution",
		`,"enable_code_execution":"yes"`: "enable_code_execution",
		`,"max_tool_rounds":0`:           "max_tool_rounds",
		`,"files":[{"name":"a.png"}]`:    "files",
	} {
		a := off.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, more)))
		if a.status != 400 || *a.fault(t).Error.Param != want {
			t.Errorf("%s: %d %s", more, a.status, a.body)
		}
	}
	for more, want := range map[string]string{
		`,"tools":[{"type":"code_interpreter","container":"cntr_1"}]`: "tools[0].container",
		`,"tools":[{"type":"code_interpreter","memory":"4g"}]`:        "tools[0].memory",
		`,"files":[{"name":"a.png"}]`:                                 "files", // A17
	} {
		a := on.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, more)))
		if a.status != 400 || *a.fault(t).Error.Param != want {
			t.Errorf("%s: %d %s", more, a.status, a.body)
		}
	}
	a := off.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, `,"files":[]`))) // A17
	if f := a.fault(t).Error; *f.Code != "unsupported_parameter" || !strings.Contains(f.Message, "enable_search, enable_code_execution or max_tool_rounds") || !strings.Contains(f.Message, "tool_dispatch_url") {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = on.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, `,"enable_code_execution":true`)), "turnpike-mcp-disabled", "true")
	if a.status != 400 || !strings.Contains(string(a.body), "turnpike-mcp-disabled") {
		t.Errorf("with the loop off: %d %s", a.status, a.body)
	}
	a = on.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, `,"enable_code_execution":true,"tools":[{"type":"function","function":{"name":"execute_python"}}]`))) // A16
	if f := a.fault(t).Error; a.status != 422 || !strings.Contains(f.Message, `"execute_python" conflicts with an internal tool`) {
		t.Errorf("a tool with the name of an internal one: %d %s", a.status, a.body)
	}
}

// A request's max_tool_rounds replaces that of the org. The model is called once more, and its calls go to the client.
// B14
func TestTheRoundsOfTools(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		n := strings.Count(string(got.body), `"role":"tool"`)
		asks(call{"web_search", fmt.Sprintf(`{"query":"q%d"}`, n)}).write(w)
	})
	runtime := strings.Replace(fmt.Sprintf(searching, search.URL), "{", "{deadline: 30m, max_tool_rounds: 3, ", 1)
	d := manage(MustRun(t, switchedOrg(up.URL, runtime, "")))
	for more, calls := range map[string]int{"": 4, `,"max_tool_rounds":5`: 6, `,"max_tool_rounds":1`: 2, `,"max_tool_rounds":5,"stream":true`: 6, `,"max_tool_rounds":256`: 257} {
		before := len(up.requests())
		a := d.send("POST", chatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]`+more+`}`))
		if stream := strings.Contains(more, "stream"); !stream && a.header.Get("Turnpike-Limit-Reached") != "max_rounds" {
			t.Errorf("%s: the answer does not say that it is at its limit: %v", more, a.header)
		}
		rows := d.do("GET", "/api/audit?kind=audit_log.agent.budget_exhausted&run_id="+a.header.Get("Turnpike-Run-Id"), "owner-key", "", 200)["data"].([]any)
		if len(rows) != 1 || !strings.Contains(fmt.Sprint(rows), "max_rounds") {
			t.Errorf("%s: the rows of the limit are %v", more, rows)
		}
		if a.status != 200 || len(up.requests())-before != calls {
			t.Fatalf("%s: %d model calls, want %d: %s", more, len(up.requests())-before, calls, a.body)
		}
		body := string(a.body)
		if strings.Count(body, `"finish_reason":"tool_calls"`) != 1 || strings.Count(body, fmt.Sprintf(`"name":"web_search","arguments":"{\"query\":\"q%d\"}"}`, calls-1)) != 1 {
			t.Errorf("%s: the answer is %s", more, body)
		}
		if strings.Count(body, `"result_content"`) != calls-1 {
			t.Errorf("%s: the trace is of %d calls, want %d: %s", more, strings.Count(body, `"result_content"`), calls-1, body)
		}
	}
}

// An operator's max_rounds_cap holds for rounds of tools, too, and a request above it is refused. Without one it is 256.
// B14 B02
func TestTheCapOnRoundsOfTools(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { asks(call{"web_search", `{}`}).write(w) })
	org := switchedOrg(up.URL, fmt.Sprintf(searching, "http://127.0.0.1:9"), "")
	const question = `{"model":"m","messages":[{"role":"user","content":"x"}]%s}`
	for most, d := range map[int]*gateway{256: MustRun(t, org), 2: MustRun(t, "max_rounds_cap: 2\n"+org)} {
		for _, rounds := range []int{most + 1, 1000} {
			a := d.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, fmt.Sprintf(`,"max_tool_rounds":%d`, rounds))))
			if f := a.fault(t).Error; a.status != 400 || *f.Param != "max_tool_rounds" || !strings.Contains(f.Message, fmt.Sprintf("above max_rounds_cap (%d)", most)) {
				t.Errorf("%d rounds: %d %s", rounds, a.status, a.body)
			}
		}
		if most == 2 {
			before := len(up.requests())
			if a := d.send("POST", chatPath, strings.NewReader(fmt.Sprintf(question, ``))); a.status != 200 || len(up.requests())-before != 3 {
				t.Errorf("%d model calls: %d %s", len(up.requests())-before, a.status, a.body)
			}
		}
	}
}

// Switches without what they need are refused when they are set.
func TestSwitchesWithoutWhatTheyNeed(t *testing.T) {
	d := manage(MustRun(t, strings.Replace(site{upstream: "http://127.0.0.1:9"}.withVault(), "    runtime: {}\n", "", 1)))
	for body, want := range map[string]string{
		`{"enable_search":true}`: "web.search.api_key",
		`{"enable_search":true,"web":{"search":{"provider":"duckduckgo"}},"builtin_tools":[{"name":"web_search","enabled":false}]}`: "builtin_tools disables",
		`{"enable_code_execution":true}`: "sandbox.drivers",
		`{"max_tool_rounds":0}`:          "1..256",
	} {
		if got := fmt.Sprint(d.do("PATCH", "/api/org/runtime", "owner-key", body, 422)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
	if got := d.do("PATCH", "/api/org/runtime", "owner-key", `{"enable_search":true,"web":{"search":{"provider":"duckduckgo"}},"max_tool_rounds":7}`, 200); !strings.Contains(fmt.Sprint(got), "enable_search:true") {
		t.Errorf("%v", got)
	}
}
