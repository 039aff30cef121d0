package files_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// codeTools returns the names under which the switch offers code, sorted.
func codeTools() []string {
	return []string{"execute_javascript", "execute_python", "list_files", "read_file", "surface_outputs"}
}

// With nothing but enable_search, every chat request runs the agent loop with the search tools, also in an org
// without the feature mcp_outbound. Nothing else gets them. // A07 C18
func TestTheSwitchForSearch(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("web_search", `{"query":"q"}`)).Write(w)
	})
	d := Manage(MustRun(t, SwitchedOrg(up.URL, fmt.Sprintf(Searching, search.URL), "")))
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":"required","web_search_options":{"search_context_size":"low"}%s}`
	for _, stream := range []string{"", `,"stream":true`} {
		before, sent := len(up.Requests()), func() int { all, _ := search.All(); return len(all) }()
		a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(body, stream)))
		all := up.Requests()[before:]
		if a.Status != 200 || len(all) != 2 || !slices.Equal(OfferedTools(t, all[0]), []string{"fetch_page", "web_search"}) {
			t.Fatalf("%d %s, %v", a.Status, a.Body, all)
		}
		if !strings.Contains(string(all[0].Body), `"tool_choice":"required"`) || strings.Contains(string(all[1].Body), `"tool_choice":"required"`) { // C18
			t.Errorf("tool_choice of the calls: %s\n%s", all[0].Body, all[1].Body)
		}
		if one := SearchesOf(t, search, sent); len(one) != 1 || one[0]["search_context_size"] != "low" {
			t.Errorf("the endpoint got %v", one)
		}
		if strings.Count(string(a.Body), `"agentic_tool_calls":[{"call_key":"0.0","round":0,"name":"web_search","arguments":"{\"query\":\"q\"}","result_content":`) != 1 || strings.Contains(string(a.Body), "event: agentic_tool_call_progress") != (stream != "") {
			t.Errorf("the answer is %s", a.Body)
		}
	}
	before := len(up.Requests())
	if a := d.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x"}`)); a.Status != 200 || len(OfferedTools(t, up.Requests()[before])) > 0 {
		t.Errorf("responses: %d %s, offered %q", a.Status, a.Body, OfferedTools(t, up.Requests()[before]))
	}
	before = len(up.Requests())
	if a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(body, "")), "turnpike-mcp-disabled", "true"); a.Status != 200 || !strings.Contains(string(a.Body), `"tool_calls"`) || len(OfferedTools(t, up.Requests()[before])) > 0 {
		t.Errorf("with the loop off: %d %s", a.Status, a.Body)
	}
}

// Code execution needs the switch and the request. // A07
func TestTheSwitchForCode(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("done").Write(w) })
	const sandbox = "sandbox: {url: 'http://127.0.0.1:9', drivers: [remote]}\n"
	on := Manage(MustRun(t, SwitchedOrg(up.URL, "{enable_code_execution: true}", sandbox)))
	off := Manage(MustRun(t, SwitchedOrg(up.URL, "{}", sandbox)))
	const question = `{"model":"m","messages":[{"role":"user","content":"x"}]%s}`
	for more, want := range map[string][]string{
		``:                               {},
		`,"enable_code_execution":false`: {},
		`,"enable_code_execution":null`:  {},
		`,"enable_code_execution":true`:  codeTools(),
		`,"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`:                                              codeTools(),
		`,"enable_code_execution":true,"tools":[{"type":"function","function":{"name":"f"}},{"type":"code_interpreter"}]`: slices.Sorted(slices.Values(append(codeTools(), "f"))),
	} {
		before := len(up.Requests())
		a := on.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, more)))
		if a.Status != 200 {
			t.Fatalf("%s: %d %s", more, a.Status, a.Body)
		}
		got := up.Requests()[before]
		if !slices.Equal(OfferedTools(t, got), want) || strings.Contains(string(got.Body), "enable_code_execution\":true") {
			t.Errorf("%s: the provider got %s", more, got.Body)
		}
	}
	for more, want := range map[string]string{
		`,"enable_code_execution":true`:  "enable_code_execution",
		`,"enable_code_execution":"yes"`: "enable_code_execution",
		`,"max_tool_rounds":0`:           "max_tool_rounds",
		`,"files":[{"name":"a.png"}]`:    "files",
	} {
		a := off.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, more)))
		if a.Status != 400 || *a.Fault(t).Error.Param != want {
			t.Errorf("%s: %d %s", more, a.Status, a.Body)
		}
	}
	for more, want := range map[string]string{
		`,"tools":[{"type":"code_interpreter","container":"cntr_1"}]`: "tools[0].container",
		`,"tools":[{"type":"code_interpreter","memory":"4g"}]`:        "tools[0].memory",
		`,"files":[{"name":"a.png"}]`:                                 "files", // A17
	} {
		a := on.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, more)))
		if a.Status != 400 || *a.Fault(t).Error.Param != want {
			t.Errorf("%s: %d %s", more, a.Status, a.Body)
		}
	}
	a := off.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, `,"files":[]`))) // A17
	if f := a.Fault(t).Error; *f.Code != "unsupported_parameter" || !strings.Contains(f.Message, "enable_search, enable_code_execution or max_tool_rounds") || !strings.Contains(f.Message, "tool_dispatch_url") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	a = on.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, `,"enable_code_execution":true`)), "turnpike-mcp-disabled", "true")
	if a.Status != 400 || !strings.Contains(string(a.Body), "turnpike-mcp-disabled") {
		t.Errorf("with the loop off: %d %s", a.Status, a.Body)
	}
	a = on.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, `,"enable_code_execution":true,"tools":[{"type":"function","function":{"name":"execute_python"}}]`))) // A16
	if f := a.Fault(t).Error; a.Status != 422 || !strings.Contains(f.Message, `"execute_python" conflicts with an internal tool`) {
		t.Errorf("a tool with the name of an internal one: %d %s", a.Status, a.Body)
	}
}

// A request's max_tool_rounds replaces that of the org. The model is called once more, and its calls go to the client.
// B14
func TestTheRoundsOfTools(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		n := strings.Count(string(got.Body), `"role":"tool"`)
		Asks(Use("web_search", fmt.Sprintf(`{"query":"q%d"}`, n))).Write(w)
	})
	runtime := strings.Replace(fmt.Sprintf(Searching, search.URL), "{", "{deadline: 30m, max_tool_rounds: 3, ", 1)
	d := Manage(MustRun(t, SwitchedOrg(up.URL, runtime, "")))
	for more, calls := range map[string]int{"": 4, `,"max_tool_rounds":5`: 6, `,"max_tool_rounds":1`: 2, `,"max_tool_rounds":5,"stream":true`: 6, `,"max_tool_rounds":256`: 257} {
		before := len(up.Requests())
		a := d.Send("POST", ChatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]`+more+`}`))
		if stream := strings.Contains(more, "stream"); !stream && a.Header.Get("Turnpike-Limit-Reached") != "max_rounds" {
			t.Errorf("%s: the answer does not say that it is at its limit: %v", more, a.Header)
		}
		rows := d.Do("GET", "/api/audit?kind=audit_log.agent.budget_exhausted&run_id="+a.Header.Get("Turnpike-Run-Id"), "owner-key", "", 200)["data"].([]any)
		if len(rows) != 1 || !strings.Contains(fmt.Sprint(rows), "max_rounds") {
			t.Errorf("%s: the rows of the limit are %v", more, rows)
		}
		if a.Status != 200 || len(up.Requests())-before != calls {
			t.Fatalf("%s: %d model calls, want %d: %s", more, len(up.Requests())-before, calls, a.Body)
		}
		body := string(a.Body)
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
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Asks(Use("web_search", `{}`)).Write(w) })
	org := SwitchedOrg(up.URL, fmt.Sprintf(Searching, "http://127.0.0.1:9"), "")
	const question = `{"model":"m","messages":[{"role":"user","content":"x"}]%s}`
	for most, d := range map[int]*Gateway{256: MustRun(t, org), 2: MustRun(t, "max_rounds_cap: 2\n"+org)} {
		for _, rounds := range []int{most + 1, 1000} {
			a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, fmt.Sprintf(`,"max_tool_rounds":%d`, rounds))))
			if f := a.Fault(t).Error; a.Status != 400 || *f.Param != "max_tool_rounds" || !strings.Contains(f.Message, fmt.Sprintf("above max_rounds_cap (%d)", most)) {
				t.Errorf("%d rounds: %d %s", rounds, a.Status, a.Body)
			}
		}
		if most == 2 {
			before := len(up.Requests())
			if a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(question, ``))); a.Status != 200 || len(up.Requests())-before != 3 {
				t.Errorf("%d model calls: %d %s", len(up.Requests())-before, a.Status, a.Body)
			}
		}
	}
}

// Switches without what they need are refused when they are set.
func TestSwitchesWithoutWhatTheyNeed(t *testing.T) {
	d := Manage(MustRun(t, strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.WithVault(), "    runtime: {}\n", "", 1)))
	for body, want := range map[string]string{
		`{"enable_search":true}`: "web.search.api_key",
		`{"enable_search":true,"web":{"search":{"provider":"duckduckgo"}},"builtin_tools":[{"name":"web_search","enabled":false}]}`: "builtin_tools disables",
		`{"enable_code_execution":true}`: "sandbox.drivers",
		`{"max_tool_rounds":0}`:          "1..256",
	} {
		if got := fmt.Sprint(d.Do("PATCH", "/api/org/runtime", "owner-key", body, 422)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
	if got := d.Do("PATCH", "/api/org/runtime", "owner-key", `{"enable_search":true,"web":{"search":{"provider":"duckduckgo"}},"max_tool_rounds":7}`, 200); !strings.Contains(fmt.Sprint(got), "enable_search:true") {
		t.Errorf("%v", got)
	}
}
