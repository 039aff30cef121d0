package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A plain answer, and a second turn of its session, which sees the first. // N02 H10
func TestAnAgentAnswersInASession(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Hello."), Says("Again.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(`,"system_prompt":"Be brief."`)
	a := d.StreamAgent(id, `{"message":"hi"}`)
	if got, want := Told(t, a.Body), Golden(t, "plain"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	start := AgentFrames(t, a.Body)[0]
	run, session := start["run_id"].(string), start["session_id"].(string)
	if !strings.HasPrefix(run, "run_") || !strings.HasPrefix(session, "sess_") {
		t.Errorf("run %s of session %s", run, session)
	}
	d.StreamAgent(id, fmt.Sprintf(`{"message":"more","session_id":%q}`, session))
	asked := up.Requests()[1].Decode(t)
	var said []string
	for _, m := range asked.Messages {
		said = append(said, m.Role+" "+m.Content)
	}
	if got := strings.Join(said, "|"); got != "system Be brief.|user hi|assistant Hello.|user more" {
		t.Errorf("the second turn saw %s", got)
	}
}

// An agent has the tools of its own MCP servers, of which one is gone, and its last step has none. A client
// that comes back gets the frames after the last one that it has. // H15 N03
func TestAnAgentCallsTheToolsOfItsServers(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)).Saying("Looking."), Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q},{"name":"gone","url":%q}]`, tools.URL+"/mcp", ClosedURL+"/mcp"))
	a := d.StreamAgent(id, `{"message":"go","max_steps":2}`)
	if got, want := Told(t, a.Body), Golden(t, "two_rounds"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	if text := string(up.Requests()[1].Body); strings.Contains(text, `"tools":[`) {
		t.Errorf("the last step has tools: %s", text)
	}
	run := AgentFrames(t, a.Body)[0]["run_id"].(string)
	whole := string(a.Body)
	for _, block := range strings.Split(strings.TrimSuffix(whole, "\n\n"), "\n\n") {
		last, _, _ := strings.Cut(strings.TrimPrefix(block, "id: "), "\n")
		_, want, _ := strings.Cut(whole, block+"\n\n")
		got := d.Send("GET", "/api/agents/runs/"+run+"/events", nil, "Authorization", "Bearer owner-key", "Last-Event-ID", last)
		if want == "" && got.Status == 204 {
			continue
		}
		if got.Status != 200 || Told(t, got.Body) != Told(t, []byte(want)) {
			t.Errorf("after %s: %d\n%swant\n%s", last, got.Status, got.Body, want)
		}
	}
	shown := d.AsOwner("GET", "/api/agents/runs/"+run, "", 200)
	if shown["content"] != "Done." || shown["status"] != "completed" || shown["agent_version"] != 1.0 || len(Elements(shown["tool_calls"])) != 1 {
		t.Errorf("the run is %v", shown)
	}
}

// A call that waits is denied by somebody else while the stream is open; a session with a run that has not
// ended takes no second message; a run is cancelled; a repeated request is the same run. // N04 N12 P25
func TestARunOfAnAgentWaitsIsDeniedAndCancelled(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Then not."), Asks(Use("mcp__tools__echo", `{"n":2}`)), Says("Over.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", `{"title":"one"}`, 201)["id"].(string)
	path, body := "/api/sessions/"+session, fmt.Sprintf(`{"message":"go","session_id":%q}`, session)
	waits := func() string {
		for {
			if s := d.AsOwner("GET", path, "", 200); s["status"] == "waiting" {
				return s["last_run_id"].(string)
			}
		}
	}
	streamed := make(chan Answer, 1)
	go func() {
		streamed <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key", "Idempotency-Key", "k")
	}()
	run := waits()
	d.AsOwner("POST", "/api/agents/"+id+"/run", body, 409)
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":"yes"}`, 400)
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":false,"reason":"not today"}`, 200)
	first := <-streamed
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 404)
	got, want := Told(t, first.Body), Golden(t, "approval_denied")
	result := AgentFrames(t, first.Body)[4]
	want = strings.ReplaceAll(want, "CHARS", fmt.Sprint(result["result_meta"].(map[string]any)["char_count"]))
	want = strings.ReplaceAll(want, "RESULT", result["result_preview"].(string))
	if !strings.HasPrefix(got, want) || !strings.Contains(result["result_preview"].(string), "not today") || len(tools.Of("tools/call")) != 0 {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	again := d.StreamAgent(id, body, "Idempotency-Key", "k")
	if Told(t, again.Body) != got || d.AsOwner("GET", path, "", 200)["run_count"] != 1.0 {
		t.Errorf("the repeated request got\n%s", again.Body)
	}

	go func() {
		streamed <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	second := waits()
	d.AsOwner("POST", "/api/agents/runs/"+second+"/cancel", "", 202)
	cancelled := AgentFrames(t, (<-streamed).Body)
	if last := cancelled[len(cancelled)-1]; second == run || last["event"] != "complete" || last["status"] != "cancelled" {
		t.Errorf("the run %s ended with %v", second, last)
	}
	if s := d.AsOwner("GET", path, "", 200); s["status"] != "idle" || s["stop_reason"] != "interrupted" || s["run_count"] != 2.0 {
		t.Errorf("the session is %v", s)
	}
	if all := d.AsOwner("GET", path+"/runs", "", 200); all["total"] != 2.0 {
		t.Errorf("the runs are %v", all)
	}
	if all := Elements(d.AsOwner("GET", path+"/messages", "", 200)["messages"]); len(all) < 4 || all[0].(map[string]any)["content"] != "go" {
		t.Errorf("the messages are %v", all)
	}
	d.AsOwner("DELETE", "/api/agents/"+id, "", 200)
	for _, gone := range []string{path, path + "/messages", path + "/runs", "/api/agents/runs/" + run} {
		d.AsOwner("GET", gone, "", 404)
	}
}

// Whatever another org asks for is answered as what does not exist. // J21
func TestSessionsOfAnotherOrgDoNotExist(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Hello.")))
	yaml := Site{Upstream: up.URL}.Yaml() + "\n  - id: other\n    keys:\n      - {name: b, key: other-key, role: owner}\n"
	d := Manage(MustRun(t, yaml))
	id := d.NewAgent("")
	start := AgentFrames(t, d.StreamAgent(id, `{"message":"hi"}`).Body)[0]
	run, session := start["run_id"].(string), start["session_id"].(string)
	for path, own := range map[string]string{
		"GET /api/sessions/%s": session, "GET /api/sessions/%s/messages": session, "GET /api/sessions/%s/runs": session, "DELETE /api/sessions/%s": session,
		"GET /api/agents/runs/%s": run, "GET /api/agents/runs/%s/events": run, "POST /api/agents/runs/%s/cancel": run, "POST /api/agents/runs/%s/approve": run,
		"POST /api/agents/%s/run": id, "POST /api/agents/%s/run/stream": id, "GET /api/agents/%s/sessions": id, "POST /api/agents/%s/sessions": id,
	} {
		method, path, _ := strings.Cut(path, " ")
		body := ""
		if strings.HasSuffix(path, "/approve") {
			body = `{"approved":true}`
		} else if method == "POST" && strings.Contains(path, "/run") && !strings.HasSuffix(path, "/cancel") {
			body = `{"message":"x"}`
		}
		missing := own[:len(own)-1] + "0"
		if missing == own {
			missing = own[:len(own)-1] + "1"
		}
		ask := func(id string) string {
			a := d.Send(method, fmt.Sprintf(path, id), strings.NewReader(body), "Authorization", "Bearer other-key")
			return fmt.Sprint(a.Status, " ", strings.ReplaceAll(string(a.Body), id, "ID"))
		}
		if got, want := ask(own), ask(missing); got != want || !strings.HasPrefix(got, "404 ") {
			t.Errorf("%s %s: %s, and of a missing id %s", method, path, got, want)
		}
	}
	d.AsOwner("GET", "/api/sessions/"+session, "", 200)
}

// A run that repeats itself fails, with the text of the contract. // B13
func TestADoomLoopFailsTheRunOfAnAgent(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`))))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	d.Same("doom_loop", d.StreamAgent(id, `{"message":"go"}`).Body)
	if len(tools.Of("tools/call")) != 2 {
		t.Errorf("%d calls were made", len(tools.Of("tools/call")))
	}
}

// What a run of an agent cannot do is refused, and a model that fails is told.
func TestWhatAnAgentCannotDoIsRefused(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		http.Error(w, `{"error":{"message":"broken"}}`, 400)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent("")
	if got := d.AsOwner("POST", "/api/agents/"+id+"/run", `{"message":"x"}`, 400); got["status"] != "failed" || got["tools_used"] != false {
		t.Errorf("a model that fails: %v", got)
	}
	for body, param := range map[string]string{
		`{}`: "message", `{"message":"x","when_busy":"ignore"}`: "when_busy", `{"message":"x","max_steps":51}`: "max_steps", `{"message":"x","songs":1}`: "songs",
	} {
		if got := d.AsOwner("POST", "/api/agents/"+id+"/run", body, 400); got["param"] != param {
			t.Errorf("%s: %v", body, got)
		}
	}
	d.AsOwner("POST", "/api/agents/"+id+"/run", `{"message":"x","session_id":"sess_0"}`, 404)
	d.AsOwner("POST", "/api/agents/"+id+"/archive", "{}", 200)
	d.AsOwner("POST", "/api/agents/"+id+"/run", `{"message":"x"}`, 409)
	if all := d.AsOwner("GET", "/api/agents/"+id+"/sessions", "", 200); all["total"] != 1.0 {
		t.Errorf("refused runs have left sessions: %v", all)
	}
}

// A run that waits outlives the gateway: its next process calls the tools of the agent's own servers. // N12 G11
func TestARunOfAnAgentGoesOnInTheNextProcess(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Done.")))
	data, yaml := NewData(t), Site{Upstream: up.URL}.Yaml()
	first := Manage(MustRunIn(t, data, yaml, Environment()))
	id := first.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := first.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		first.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(fmt.Sprintf(`{"message":"go","session_id":%q}`, session)), "Authorization", "Bearer owner-key")
	}()
	var run string
	for run == "" {
		if s := first.AsOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "waiting" {
			run = s["last_run_id"].(string)
		}
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	<-streamed
	next := Manage(MustRunIn(t, data, yaml, Environment()))
	shown := next.AsOwner("GET", "/api/agents/runs/"+run, "", 200)
	if shown["status"] != "waiting" || len(Elements(shown["approvals"])) != 1 {
		t.Fatalf("after the restart the run is %v", shown)
	}
	next.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
	a := next.Send("GET", "/api/agents/runs/"+run+"/events", nil, "Authorization", "Bearer owner-key")
	all := AgentFrames(t, a.Body)
	if last := all[len(all)-1]; last["event"] != "complete" || last["content"] != "Done." || len(tools.Of("tools/call")) != 1 {
		t.Errorf("%d calls, and the run ends with %v", len(tools.Of("tools/call")), last)
	}
}

// A client that leaves stops its run, unless it is detached. // N04
func TestAClientThatLeavesStopsTheRunOfItsAgent(t *testing.T) {
	NoLeaks(t)
	asked, release := make(chan bool, 2), make(chan bool)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		asked <- true
		select {
		case <-release:
			Says("Done.").Write(w)
		case <-r.Context().Done():
		}
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent("")
	ends := func(detached bool) string {
		session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
		ctx, leave := context.WithCancel(t.Context())
		body := fmt.Sprintf(`{"message":"go","session_id":%q,"detached":%v}`, session, detached)
		r, err := http.NewRequestWithContext(ctx, "POST", d.URL+"/api/agents/"+id+"/run/stream", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer owner-key")
		left := make(chan struct{})
		go func() {
			defer close(left)
			if resp, err := d.Client.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		<-asked
		leave()
		<-left
		if detached {
			release <- true
		}
		for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if s := d.AsOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "idle" {
				return s["stop_reason"].(string)
			}
		}
		t.Fatal("the run did not end")
		return ""
	}
	if got := ends(false); got != "interrupted" {
		t.Errorf("the run of a client that has left ended with %s", got)
	}
	if got := ends(true); got != "answer" {
		t.Errorf("a detached run ended with %s", got)
	}
}

// A run is answered with one JSON object if the client takes no stream: with its tools at run/stream, and without them at
// run. A run that fails has the status of its cause. The record says what the run was asked, and by whom it was answered.
func TestARunOfAnAgentAsOneObject(t *testing.T) { // L08 J21
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	answers := Script(Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Done."), Says("Plain."))
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), "refuse") {
			Refuses(400)(w, r, got)
			return
		}
		answers(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(WithTools(tools))
	send := func(path, message string, want int) map[string]any {
		t.Helper()
		a := d.Send("POST", "/api/agents/"+id+path, strings.NewReader(fmt.Sprintf(`{"message":%q}`, message)), "Authorization", "Bearer owner-key", "Accept", "application/json")
		var out map[string]any
		if err := json.Unmarshal(a.Body, &out); err != nil || a.Status != want {
			t.Fatalf("%s answered %d: %s", path, a.Status, a.Body)
		}
		return out
	}
	got := send("/run/stream", "go", 200)
	if got["content"] != "Done." || got["status"] != "completed" || len(Elements(got["tool_calls"])) != 1 || got["tools_used"] != nil {
		t.Errorf("the run is %v", got)
	}
	record := d.AsOwner("GET", "/api/agents/runs/"+got["run_id"].(string), "", 200)
	one := Elements(record["tool_calls"])[0].(map[string]any)
	if record["input"] != "go" || record["model"] != "m" || len(Elements(record["targets"])) != 1 || one["result"] != `{"n":1}` || one["is_error"] != false || one["duration_ms"] == 0.0 {
		t.Errorf("the record is %v", record)
	}
	if got := send("/run", "go", 200); got["content"] != "Plain." || got["tools_used"] != false || !strings.Contains(got["hint"].(string), "run/stream") {
		t.Errorf("the run without tools is %v", got)
	}
	if got := send("/run", "refuse", 400); got["code"] == nil || got["status"] != "failed" {
		t.Errorf("the run that failed is %v", got)
	}
}
