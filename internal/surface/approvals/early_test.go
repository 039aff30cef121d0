package approvals_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Decisions that are made before their calls are asked for take effect in their order, one for each call, and
// nothing waits. What nobody has decided early waits; the same decision of it again is accepted, and another one
// is not. A run that has ended takes none. // H04 H10
func TestCallsAreDecidedBeforeTheyAreAskedFor(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	scripted := Script(
		Asks(Use("mcp__tools__echo", `{"n":1}`), Use("mcp__tools__echo", `{"n":2}`)), Asks(Use("mcp__tools__echo", `{"n":3}`)), Says("Done."))
	asked, release, quit := make(chan bool), make(chan bool), make(chan bool)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		select {
		case asked <- true:
		case <-r.Context().Done():
			return
		case <-quit:
			return
		}
		select {
		case <-release:
		case <-r.Context().Done():
			return
		case <-quit:
			return
		}
		scripted(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	t.Cleanup(func() { close(quit) })
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	streamed := make(chan Answer, 1)
	go func() {
		streamed <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(fmt.Sprintf(`{"message":"go","session_id":%q}`, session)), "Authorization", "Bearer owner-key")
	}()
	Wait(t, asked, "a call of the model")
	run := d.AsOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string)
	path := "/api/agents/runs/" + run + "/approve"
	for body, want := range map[string]int{`{"approved":"yes"}`: 400, `{}`: 400, `{"approved":true,"approval_id":"appr_0"}`: 404, `{"approved":true,"early":"yes"}`: 400} {
		d.AsOwner("POST", path, body, want)
	}
	d.Do("POST", path, "member-key", `{"approved":true}`, 404) // it does not see the run
	for _, body := range []string{`{"approved":true,"early":true}`, `{"approved":false,"early":true,"reason":"one is enough"}`} {
		if got := d.AsOwner("POST", path, body, 200); got["status"] != "resumed" || got["approval_id"] != nil {
			t.Errorf("an early decision: %v", got)
		}
	}
	release <- true
	Wait(t, asked, "a call of the model") // the results of the first two calls: nothing has waited
	for _, status := range []string{"approved", "denied"} {
		if all := Elements(d.AsOwner("GET", "/v1/approvals?status="+status, "", 200)["data"]); len(all) != 1 || len(tools.Of("tools/call")) != 1 {
			t.Errorf("%d calls were made, and %v are %s", len(tools.Of("tools/call")), all, status)
		}
	}
	release <- true
	d.WaitingRun(session)
	got := d.AsOwner("POST", path, `{"approved":true}`, 200)
	named := fmt.Sprintf(`{"approved":%%v,"approval_id":%q}`, got["approval_id"])
	d.AsOwner("POST", path, fmt.Sprintf(named, true), 200)
	d.AsOwner("POST", path, fmt.Sprintf(named, false), 409)
	Wait(t, asked, "a call of the model")
	release <- true
	frames := AgentFrames(t, Wait(t, streamed, "the end of the run").Body)
	var results, waits []string
	for _, f := range frames {
		switch f["event"] {
		case "tool_result":
			results = append(results, f["result_preview"].(string))
		case "approval_requested":
			waits = append(waits, f["approval_id"].(string))
		}
	}
	if len(results) != 3 || !strings.Contains(strings.Join(results, " "), "denied by user: one is enough") || len(waits) != 1 || len(tools.Of("tools/call")) != 2 {
		t.Errorf("the results are %q, and %q waited", results, waits)
	}
	for _, body := range []string{`{"approved":true}`, `{"approved":true,"approval_id":"appr_0"}`} {
		d.AsOwner("POST", path, body, 404)
	}
	d.AsOwner("POST", path, fmt.Sprintf(named, true), 200)
}

// A run keeps no more than 16 decisions. // H10
func TestARunKeepsFewDecisions(t *testing.T) {
	NoLeaks(t)
	asked, release, quit := make(chan bool), make(chan bool), make(chan bool)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		select {
		case asked <- true:
		case <-r.Context().Done():
			return
		case <-quit:
			return
		}
		select {
		case <-release:
		case <-r.Context().Done():
			return
		case <-quit:
			return
		}
		Says("Done.").Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	t.Cleanup(func() { close(quit) })
	session := d.AsOwner("POST", "/api/agents/"+d.NewAgent("")+"/sessions", "", 201)
	streamed := make(chan Answer, 1)
	go func() {
		streamed <- d.Send("POST", fmt.Sprintf("/api/agents/%s/run/stream", session["agent_id"]), strings.NewReader(fmt.Sprintf(`{"message":"go","session_id":%q}`, session["id"])), "Authorization", "Bearer owner-key")
	}()
	Wait(t, asked, "a call of the model")
	run := d.AsOwner("GET", fmt.Sprintf("/api/sessions/%s", session["id"]), "", 200)["last_run_id"].(string)
	for range 16 {
		d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true,"early":true}`, 200)
	}
	if got := d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true,"early":true}`, 409); got["code"] != "too_many_decisions" {
		t.Errorf("the 17th decision: %v", got)
	}
	release <- true
	Wait(t, streamed, "the end of the run")
}

// A decision without an id needs exactly one call that waits. Of several at the same time one decides, and the next
// call of the run waits all the same. // H04
func TestADecisionWithoutAnIDIsAboutOneCall(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	scripted := Script(
		Asks(Use("mcp__tools__echo", `{"n":1}`), Use("mcp__tools__echo", `{"n":2}`)), Asks(Use("mcp__tools__echo", `{"n":3}`)),
		Asks(Use("mcp__tools__echo", `{"n":4}`)), Says("Done."))
	release, quit := make(chan bool), make(chan bool)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number > 0 {
			select {
			case <-release:
			case <-quit:
				return
			}
		}
		scripted(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	t.Cleanup(func() { close(quit) })
	session, streamed := d.Begun(d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp")), "")
	run := d.WaitingRun(session)
	bare := map[string]string{"/api/agents/runs/" + run + "/approve": `{"approved":true%s}`, "/v1/agent/approvals/" + run: `{"decision":"approve"%s}`}
	refused := func(more, code string) string {
		t.Helper()
		said := ""
		for path, body := range bare {
			got := string(d.Send("POST", path, strings.NewReader(fmt.Sprintf(body, more)), "Authorization", "Bearer owner-key").Body)
			if !strings.Contains(got, fmt.Sprintf(`"code":%q`, code)) {
				t.Errorf("POST %s%s: %s, want %s", path, more, got, code)
			}
			said += got
		}
		return said
	}
	ids := Elements(d.AsOwner("GET", "/api/agents/runs/"+run, "", 200)["approvals"])
	if len(ids) != 2 {
		t.Fatalf("%v wait", ids)
	}
	said := refused("", "several_wait") + refused(`,"early":true`, "several_wait")
	for _, id := range ids {
		if strings.Count(said, id.(string)) != 4 {
			t.Errorf("%s is not named: %s", id, said)
		}
		d.AsOwner("POST", "/v1/approvals/"+id.(string), `{"decision":"approve"}`, 200)
	}
	refused("", "nothing_waits")
	for path, body := range bare {
		release <- true
		d.WaitingRun(session)
		answers := make(chan Answer)
		for range 4 {
			go func() {
				answers <- d.Send("POST", path, strings.NewReader(fmt.Sprintf(body, "")), "Authorization", "Bearer owner-key")
			}()
		}
		decided := 0
		for range 4 {
			if a := <-answers; a.Status == 200 {
				decided++
			} else if !strings.Contains(string(a.Body), `"code":"nothing_waits"`) {
				t.Errorf("POST %s: %d %s", path, a.Status, a.Body)
			}
		}
		if decided != 1 {
			t.Errorf("POST %s: %d of 4 decisions were taken", path, decided)
		}
	}
	release <- true
	if a := Wait(t, streamed, "the end of the run"); !strings.Contains(string(a.Body), `"content":"Done."`) || len(tools.Of("tools/call")) != 4 {
		t.Errorf("%d calls: %s", len(tools.Of("tools/call")), a.Body)
	}
	for path, body := range bare {
		d.AsOwner("POST", path, fmt.Sprintf(body, ""), 404)
	}
}
