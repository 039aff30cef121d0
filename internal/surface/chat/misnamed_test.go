package chat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A name in a setting of a server that none of its tools has is seen in every place where
// someone looks for it. // P61
func TestAMisspeltToolNameIsVisible(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo, "get-sum": Echo})
	declared := Server("tools", tools.URL+"/mcp", "tools: [get_sum, echo]", "polling: [ehco]", "reads: [get-sum, gone]",
		"keyed: [echo, Echo]", "cache: [getsum]", "require_approval: {always: {tool_names: [get-sun]}, never: {tool_names: [echo]}}")
	yaml := Site{Upstream: up.URL, Servers: []string{declared}}.Yaml()
	d := Manage(MustRun(t, yaml))
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"more","url":"`+tools.URL+`/mcp","naming":"namespaced","hosted":["web_search=serach"],"tools":["get-sum","serach"]}`, 201)
	d.Post(ChatBody)
	status := func(name string) string {
		text, err := json.Marshal(d.Do("GET", "/api/mcp-servers/"+name, "owner-key", "", 200)["status"])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, want := range map[string]string{
		"tools": `{"state":"connected","tools":2,"unmatched_approvals":["get-sun"],"unmatched_tools":[` +
			`{"names":["get_sum"],"setting":"tools"},{"names":["ehco"],"setting":"polling"},{"names":["gone"],"setting":"reads"},` +
			`{"names":["Echo"],"setting":"keyed"},{"names":["getsum"],"setting":"cache"}]}`,
		"more": `{"state":"connected","tools":2,"unmatched_tools":[{"names":["serach"],"setting":"tools"},{"names":["serach"],"setting":"hosted"}]}`,
	} {
		if got := status(name); got != want {
			t.Errorf("the status of %s is\n%s, want\n%s", name, got, want)
		}
	}
	d.Post(ChatBody)
	if n := strings.Count(d.Log.String(), "mcp_tool_name_unmatched"); n != 7 {
		t.Errorf("logged %d times, want once per name and setting:\n%s", n, d.Log.String())
	}
	d.Do("PATCH", "/api/mcp-servers/more", "owner-key", `{"hosted":[],"tools":["get-sum"]}`, 200)
	d.Post(ChatBody)
	if got := status("more"); got != `{"state":"connected","tools":2}` {
		t.Errorf("corrected: %s", got)
	}

	file := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := RunMain(t, "mcp", "check", "tools", "--config", file, "--org", "o")
	if code != 1 || !strings.Contains(out, "missing   get_sum: tools names it, and the server has no such tool (did you mean get-sum?)") {
		t.Errorf("mcp check: %d\n%s", code, out)
	}
	for _, want := range []string{
		"server tools: tools names tools that the server does not have: get_sum (did you mean get-sum?); polling names tools that the server does not have: ehco (did you mean echo?); " +
			"reads names tools that the server does not have: gone; ",
		"keyed names tools that the server does not have: Echo (did you mean echo?)", "cache names tools that the server does not have: getsum (did you mean get-sum?)",
		"require_approval.always names tools that the server does not have: get-sun (did you mean get-sum?). Until require_approval is corrected, all tools",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("mcp check says\n%s, want\n%s", errs, want)
		}
	}
}
