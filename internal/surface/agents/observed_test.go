package agents_test

import (
	"fmt"
	"net/http"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// What agents did is listed in pages, with filters: readers see the org, members what they own, and other orgs
// nothing. // N13 L08
func TestWhatAgentsDidIsObserved(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	scripted := Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Done."), Says("Again."), Says("Member."))
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) { scripted(w, r, got) })
	yaml := Site{Upstream: up.URL}.Yaml() + "\n  - id: other\n    keys:\n      - {name: b, key: other-key, role: owner}\n"
	d := Manage(MustRun(t, yaml))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	start := AgentFrames(t, d.StreamAgent(id, `{"message":"go"}`).Body)[0]
	d.StreamAgent(id, fmt.Sprintf(`{"message":"more","session_id":%q}`, start["session_id"]))
	mine := d.Do("POST", "/api/agents/"+id+"/run", "member-key", `{"message":"mine"}`, 200)
	const runs, calls = "/api/observability/agent-runs", "/api/observability/tool-calls"
	for _, c := range []struct {
		path, key string
		total     float64
	}{
		{runs, "owner-key", 3}, {runs, "reader-key", 3}, {runs, "member-key", 1}, {runs, "other-key", 0},
		{runs + "?agent_id=" + id, "owner-key", 3}, {runs + "?agent_id=agent_0", "owner-key", 0},
		{runs + fmt.Sprintf("?session_id=%s", start["session_id"]), "owner-key", 2}, {runs + fmt.Sprintf("?session_id=%s", start["session_id"]), "member-key", 0},
		{runs + "?status=completed", "owner-key", 3}, {runs + "?status=failed", "owner-key", 0},
		{runs + "?created_after=2000-01-01T00:00:00Z", "owner-key", 3}, {runs + "?created_before=2000-01-01T00:00:00Z", "owner-key", 0},
		{calls, "owner-key", 1}, {calls, "member-key", 0}, {calls, "other-key", 0}, {calls + "?tool_name=echo&status=completed", "owner-key", 1},
		{calls + "?tool_name=other", "owner-key", 0}, {"/api/observability/orchestration-runs", "owner-key", 0},
	} {
		if got := d.Do("GET", c.path, c.key, "", 200); got["total"] != c.total {
			t.Errorf("%s of %s: %v", c.path, c.key, got)
		}
	}
	second := Elements(d.AsOwner("GET", runs+"?limit=1&offset=1", "", 200)["agent_runs"])
	if latest := Elements(d.AsOwner("GET", runs+"?limit=1", "", 200)["agent_runs"])[0].(map[string]any); len(second) != 1 || latest["run_id"] != mine["run_id"] || latest["stop_reason"] != "answer" {
		t.Errorf("the second page is %v, and the latest run %v, want %v", second, latest, mine["run_id"])
	}
	one := Elements(d.AsOwner("GET", calls, "", 200)["tool_calls"])[0].(map[string]any)
	if one["run_id"] != start["run_id"] || one["tool_name"] != "echo" || one["server"] != "tools" || one["step"] != 1.0 || one["status"] != "ok" {
		t.Errorf("the call is %v", one)
	}
	options := d.AsOwner("GET", "/api/observability/filter-options", "", 200)
	if fmt.Sprint(options["agents"], options["tool_names"]) != fmt.Sprintf("[map[id:%s]] [echo]", id) {
		t.Errorf("the options are %v", options)
	}
	if health := d.Do("GET", "/api/observability/health", "member-key", "", 200); health["agent_runs"].(map[string]any)["completed"] != 1.0 {
		t.Errorf("the health is %v", health)
	}
	for _, wrong := range []string{"?status=gone", "?created_after=today", "?limit=0", "?songs=1"} {
		d.AsOwner("GET", runs+wrong, "", 400)
	}
}
