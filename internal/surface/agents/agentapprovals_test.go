package agents_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// hookAsks is an agent with the tools of a server, and a hook that asks for approval of each call.
func hookAsks(s *MCPServer, config string) string {
	return WithTools(s) + `,"hooks":[{"event":"PreToolUse","type":"approval","matcher":"mcp__tools__*","config":{` + config + `}}]`
}

// An approval hook pauses the stream with its own text, until a person approves or denies, with and without the id of the
// approval, or the time of the hook is over. A denied call is not executed; its reason goes to the model, and the run goes
// on. // H03 H04 H05 H06
func TestAHookOfAnAgentAsksForApproval(t *testing.T) {
	NoLeaks(t)
	for name, c := range map[string]struct {
		config   string
		decision string // ID stands for the id of the approval; "" = nobody decides
		executed int
		told     string
	}{
		"approved":         {`"message":"May it?"`, `{"approved":true}`, 1, `{"n":1}`},
		"approved by id":   {`"message":"May it?","timeout":300`, `{"approved":true,"approval_id":"ID"}`, 1, `{"n":1}`},
		"denied":           {`"message":"May it?"`, `{"approved":false,"reason":"not now"}`, 0, "Tool call denied by user: not now"},
		"denied by id":     {`"message":"May it?"`, `{"approved":false,"reason":"not now","approval_id":"ID"}`, 0, "denied by user: not now"},
		"nobody decides":   {`"message":"May it?","timeout":1`, "", 0, "Approval timed out"},
		"without a reason": {`"message":"May it?"`, `{"approved":false}`, 0, "Tool call denied by user."},
	} {
		t.Run(name, func(t *testing.T) {
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Done.")))
			d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
			session, streamed := d.Begun(d.NewAgent(hookAsks(tools, c.config)), "")
			var run, approval string
			if c.decision != "" {
				run = d.RunThat(session, isWaiting)
				approval = Elements(d.AsOwner("GET", "/api/agents/runs/"+run, "", 200)["approvals"])[0].(string)
				if n := len(tools.Of("tools/call")); n != 0 {
					t.Errorf("%d calls were executed before the decision", n)
				}
				if got := d.AsOwner("GET", "/v1/approvals/"+approval, "", 200)["client"]; got != "connected" {
					t.Errorf("the client with the open stream is %v", got)
				}
				for body, status := range map[string]int{`{"approved":"yes"}`: 400, `{}`: 400, `{"approved":true,"approval_id":"appr_none"}`: 404} {
					d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", body, status)
				}
				if got := d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", strings.Replace(c.decision, "ID", approval, 1), 200)["status"]; got != "resumed" {
					t.Errorf("the decision is answered with %v", got)
				}
			}
			a := <-streamed
			var asked []map[string]any
			for _, f := range AgentFrames(t, a.Body) {
				if f["event"] == "approval_requested" {
					asked = append(asked, f)
				}
			}
			if len(asked) != 1 || asked[0]["message"] != "May it?" || approval != "" && asked[0]["approval_id"] != approval {
				t.Errorf("the stream asks for %v", asked)
			}
			if n := len(tools.Of("tools/call")); n != c.executed {
				t.Errorf("%d calls were executed, want %d", n, c.executed)
			}
			if got := up.Requests()[1].Results(t); len(got) != 1 || !strings.Contains(got[0], c.told) {
				t.Errorf("the model is told %q", got)
			}
			if !strings.Contains(string(a.Body), `"status":"completed"`) {
				t.Errorf("the run ends with %s", a.Body)
			}
			if run != "" { // it has ended
				d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 404)
			}
		})
	}
}

// A run that waits has the usage so far. One that was cancelled waits for no approval. A reason is stored as it was sent. // H04
func TestARunThatWaitsAndIsCancelled(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Asks(Use("mcp__tools__echo", `{"n":2}`))))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	session, streamed := d.Begun(d.NewAgent(hookAsks(tools, `"message":"May it?"`)), "")
	id := d.RunThat(session, isWaiting)
	path := "/api/agents/runs/" + id
	waits := func() []any { return Elements(d.AsOwner("GET", path, "", 200)["approvals"]) }
	first := waits()
	want := d.AsOwner("GET", "/v1/runs/"+id, "", 200)["usage"].(map[string]any)["total"]
	if got := d.AsOwner("GET", path, "", 200)["usage"].(map[string]any)["total_tokens"]; got != want || got == 0.0 {
		t.Errorf("%v tokens while it waits, want %v", got, want)
	}
	if refused := d.Do("POST", path+"/approve", "reader-key", `{"approved":true}`, 403); refused["code"] != "role_not_allowed" {
		t.Errorf("a reader gets %v", refused)
	}
	d.AsOwner("POST", path+"/approve", `{"approved":false,"reason":"not today"}`, 200)
	if got := d.AsOwner("GET", "/v1/approvals/"+first[0].(string), "", 200)["reason"]; got != "not today" {
		t.Errorf("the reason is %q", got)
	}
	d.RunThat(session, isWaiting)
	d.AsOwner("POST", path+"/cancel", "", 202)
	<-streamed
	if left := waits(); len(first) != 1 || len(left) != 0 {
		t.Errorf("%v waits, and %v after the run was cancelled", first, left)
	}
}

// Two early requests decide two calls, in their order, also before a hook asks for them. // H04 H10
func TestDecisionsBeforeAHookAsks(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	asked, decided := make(chan struct{}), make(chan struct{})
	scripted := Script(Asks(Use("mcp__tools__echo", `{"n":1}`), Use("mcp__tools__echo", `{"n":2}`)), Says("Done."))
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number == 0 {
			close(asked)
			<-decided
		}
		scripted(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	session, streamed := d.Begun(d.NewAgent(hookAsks(tools, `"message":"May it?"`)), "")
	Wait(t, asked, "the model call")
	run := d.AsOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string)
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true,"early":true}`, 200)
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":false,"early":true,"reason":"one is enough"}`, 200)
	close(decided)
	a := <-streamed
	if strings.Contains(string(a.Body), "approval_requested") {
		t.Errorf("the stream asks: %s", a.Body)
	}
	got := up.Requests()[1].Results(t)
	if len(got) != 2 || got[0] != `{"n":1}` || !strings.Contains(got[1], "one is enough") || len(tools.Of("tools/call")) != 1 {
		t.Errorf("the model is told %q, of %d calls", got, len(tools.Of("tools/call")))
	}
}
