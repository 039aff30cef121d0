package agents_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Of two calls that wait, the one that is not decided is shown until it is. // L08
func TestACallThatWaitsIsShownUntilItIsDecided(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`), Use("mcp__tools__echo", `{"n":2}`)), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	session, streamed := d.Begun(d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp")), "")
	run := d.RunThat(session, isWaiting)
	path := "/api/agents/runs/" + run
	waits := Elements(d.AsOwner("GET", path, "", 200)["approvals"])
	if len(waits) != 2 {
		t.Fatalf("approvals: %v", waits)
	}
	for i, id := range waits {
		shown := d.AsOwner("GET", path, "", 200)
		if left := Elements(shown["approvals"]); shown["status"] != "waiting" || fmt.Sprint(left) != fmt.Sprint(waits[i:]) {
			t.Errorf("with %d decided: status %v, approvals %v, want %v", i, shown["status"], left, waits[i:])
		}
		d.AsOwner("POST", path+"/approve", fmt.Sprintf(`{"approved":true,"approval_id":%q}`, id), 200)
	}
	if frames := AgentFrames(t, (<-streamed).Body); frames[len(frames)-1]["status"] != "completed" {
		t.Errorf("the run ended with %v", frames[len(frames)-1])
	}
	if shown := d.AsOwner("GET", path, "", 200); len(Elements(shown["approvals"])) != 0 {
		t.Errorf("after its end: %v", shown)
	}
}

// The sync run of an agent with tools is one model call, whose request has no tools key. // A13
func TestASyncRunHasNoTools(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Says("Hello.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	got := d.AsOwner("POST", "/api/agents/"+id+"/run", `{"message":"hi"}`, 200)
	if got["content"] != "Hello." || got["tools_used"] != false {
		t.Errorf("the answer is %v", got)
	}
	if asked := up.Requests(); len(asked) != 1 || strings.Contains(string(asked[0].Body), `"tools"`) {
		t.Errorf("%d model calls, the first with %s", len(asked), asked[0].Body)
	}
}
