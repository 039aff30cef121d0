package app_test

import (
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The stricter one of the permissions of the org and of the request holds. // H08 H09
func TestTheStricterPermissionHolds(t *testing.T) {
	NoLeaks(t)
	for name, c := range map[string]struct {
		org, request string
		waits, runs  bool
	}{
		"nobody says anything":                 {"", "", false, true},
		"auto":                                 {"auto", "auto", false, true},
		"deny of the org, auto of the request": {"deny", "auto", false, false},
		"auto of the org, deny of the request": {"auto", "deny", false, false},
		"ask of the org, deny of the request":  {"ask", "deny", false, false},
		"ask of the org, auto of the request":  {"ask", "auto", true, true},
		"ask of the request":                   {"", "ask", true, true},
	} {
		runtime, more := "", ""
		if c.org != "" {
			runtime = "agent_permission: " + c.org
		}
		if c.request != "" {
			more = `,"agent_permission":"` + c.request + `"`
		}
		g := RunGated(t, runtime, "enabled: true")
		answers := g.Ask(strings.Replace(StreamedGatedQuestion, `,"messages"`, more+`,"messages"`, 1))
		if c.waits {
			g.Decide(g.Only(), "approve", "", 200)
		}
		a := Wait(t, answers, "the answer")
		if a.Status != 200 || !strings.Contains(string(a.Body), "done") || (g.Executed() == 1) != c.runs {
			t.Errorf("%s: %d %s, %d calls", name, a.Status, a.Body, g.Executed())
		}
		if told := g.Told(); strings.Contains(told, "agent_permission is deny") == c.runs {
			t.Errorf("%s: the model read %s", name, told)
		}
		if strings.Contains(g.Upstream.Last(), "agent_permission\"") {
			t.Errorf("%s: the provider got %s", name, g.Upstream.Last())
		}
		if events := strings.Contains(string(a.Body), "agentic_tool_approval_required"); events != (c.waits && c.request != "") {
			t.Errorf("%s: the stream is %s", name, a.Body)
		}
	}
	g := RunGated(t, "", "enabled: true")
	for more, want := range map[string]int{`,"agent_permission":"ask"`: 422, `,"agent_permission":"never"`: 400, `,"agent_permission":null`: 200} {
		if a := Wait(t, g.Ask(strings.Replace(GatedQuestion, `,"messages"`, more+`,"messages"`, 1)), "the answer"); a.Status != want {
			t.Errorf("%s: %d %s", more, a.Status, a.Body)
		}
	}
}
