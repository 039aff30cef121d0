package app_test

import (
	"fmt"
	"strings"
	"testing"
)

// Of two calls that wait, the one that is not decided is shown until it is. // L08
func TestACallThatWaitsIsShownUntilItIsDecided(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}, call{"mcp__tools__echo", `{"n":2}`}), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	session, streamed := d.begun(d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp")), "")
	run := d.runThat(session, isWaiting)
	path := "/api/agents/runs/" + run
	waits := elements(d.asOwner("GET", path, "", 200)["approvals"])
	if len(waits) != 2 {
		t.Fatalf("approvals: %v", waits)
	}
	for i, id := range waits {
		shown := d.asOwner("GET", path, "", 200)
		if left := elements(shown["approvals"]); shown["status"] != "waiting" || fmt.Sprint(left) != fmt.Sprint(waits[i:]) {
			t.Errorf("with %d decided: status %v, approvals %v, want %v", i, shown["status"], left, waits[i:])
		}
		d.asOwner("POST", path+"/approve", fmt.Sprintf(`{"approved":true,"approval_id":%q}`, id), 200)
	}
	if frames := agentFrames(t, (<-streamed).body); frames[len(frames)-1]["status"] != "completed" {
		t.Errorf("the run ended with %v", frames[len(frames)-1])
	}
	if shown := d.asOwner("GET", path, "", 200); len(elements(shown["approvals"])) != 0 {
		t.Errorf("after its end: %v", shown)
	}
}

// The sync run of an agent with tools is one model call, whose request has no tools key. // A13
func TestASyncRunHasNoTools(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(says("Hello.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	got := d.asOwner("POST", "/api/agents/"+id+"/run", `{"message":"hi"}`, 200)
	if got["content"] != "Hello." || got["tools_used"] != false {
		t.Errorf("the answer is %v", got)
	}
	if asked := up.requests(); len(asked) != 1 || strings.Contains(string(asked[0].body), `"tools"`) {
		t.Errorf("%d model calls, the first with %s", len(asked), asked[0].body)
	}
}
