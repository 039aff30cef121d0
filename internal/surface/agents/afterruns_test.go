package agents_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A hook of an org at OnRunComplete is told of each run that is complete, on each surface, streamed or
// not, after PreResponse hooks; it changes nothing, and the record of the run shows what became of it. Runs that end in
// another way are not told. // H14 H15 H20
func TestHooksAreToldOfCompleteRuns(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), "fail") {
			http.Error(w, `{"error":{"message":"broken"}}`, 400)
			return
		}
		Says("the password is tiger").Write(w)
	})
	receiver := NewHookServer(t, Replies(map[string]string{"PreResponse": `{"action":"modify","modified_output":"redacted"}`, "OnRunComplete": `{"action":"deny","message":"ignored"}`}))
	broken := NewHookServer(t, Replies(map[string]string{"OnRunComplete": "500"}))
	hooks := fmt.Sprintf(`hooks: [{id: last, event: OnRunComplete, type: http, position: 1, config: {url: %[1]q, include_run_context: true}}, {id: broken, event: OnRunComplete, type: http, config: {url: %[2]q}},
		{id: local, event: OnRunComplete, type: http, position: 2, config: {url: "http://169.254.169.254/"}}, {id: other, event: OnRunComplete, type: http, keys: [b], config: {url: %[1]q}},
		{id: answer, event: PreResponse, type: http, config: {url: %[1]q}}]`, receiver.URL, broken.URL)
	d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: hooks}.Yaml()+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"))
	for i, r := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
		{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`},
		{"/v1/responses", `{"model":"m","input":"hello"}`},
		{"/v1/responses", `{"model":"m","stream":true,"input":"hello"}`},
		{"/v1/responses", `{"model":"m","input":"hello","store":false}`},
	} {
		a := d.Send("POST", r.path, strings.NewReader(r.body), "Authorization", "Bearer owner-key")
		if a.Status != 200 || !strings.Contains(string(a.Body), "redacted") {
			t.Fatalf("%s: %d %s", r.path, a.Status, a.Body)
		}
		run := a.Header.Get("Turnpike-Run-Id")
		if got, want := d.ToldOf("/v1/runs/"+run), "broken failed, last succeeded, local failed"; got != want {
			t.Errorf("%s: the record of %s says %q, want %q", r.path, run, got, want)
		}
		all := receiver.Events("OnRunComplete")
		if len(all) != i+1 {
			t.Fatalf("%s: told %d times: %v", r.path, len(all), all)
		}
		got := all[i]
		want := map[string]any{"event": "OnRunComplete", "data": map[string]any{"model": "m", "output": "redacted"}, "output": "redacted", "run": map[string]any{
			"execution_id": run, "model": "m", "key": "a", "surface": map[bool]string{true: "chat", false: "responses"}[strings.Contains(r.path, "chat")],
		}}
		if strings.Contains(r.body, "store") { // nothing of the answer is stored
			delete(want, "output")
			want["data"] = map[string]any{"model": "m"}
		}
		got["run"].(map[string]any)["key"] = "a" // the id of the key
		if Quoted(got) != Quoted(want) {
			t.Errorf("%s: told %s, want %s", r.path, Quoted(got), Quoted(want))
		}
		rows := Elements(d.AsOwner("GET", "/api/audit?kind=audit_log.agent.hook&run_id="+run, "", 200)["data"])
		failed := 0
		for _, row := range rows {
			if body := row.(map[string]any)["body"].(map[string]any); body["event"] == "OnRunComplete" && body["status"] == "failed" && body["action"] == "allow" {
				failed++
			}
		}
		if failed != 2 {
			t.Errorf("%s: the audit log has %v", r.path, rows)
		}
	}
	if a := d.Post(`{"model":"m","messages":[{"role":"user","content":"fail"}]}`); a.Status == 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	ComesTrue(t, "the metric counts the hooks", func() bool {
		got := Scrape(t, d.Gateway)
		return got["turnpike_hooks_total{failed=false,point=run_complete,type=http,verdict=allow}"] == 5 && got["turnpike_hooks_total{failed=true,point=run_complete,type=http,verdict=allow}"] == 10
	})
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(receiver.Events("OnRunComplete")); n != 5 || strings.Count(d.Log.String(), "hook_failed") != 10 {
		t.Errorf("told %d times, and the log has\n%s", n, d.Log.String())
	}
}

// An agent's hook at OnRunComplete gets the headers and the signature of the hook, beside that of the org. A
// run that fails tells nobody. One in a stream is complete before the hook is told. // H14 H15
func TestAHookOfAnAgentIsToldOfCompleteRuns(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("It is 42."), Says("It is 43.")))
	release := make(chan struct{})
	receiver := NewHookServer(t, func(w http.ResponseWriter, _ map[string]any) { <-release; fmt.Fprint(w, "fine") })
	org := NewHookServer(t, Replies(map[string]string{"OnRunComplete": `{}`}))
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: fmt.Sprintf("hooks: [{id: org, event: OnRunComplete, type: http, config: {url: %q}}]", org.URL)}.Yaml()))
	id := d.NewAgent(WithTools(tools) + fmt.Sprintf(`,"hooks":[{"event":"OnRunComplete","type":"http","config":{"url":%q}}]`, receiver.URL))
	hook := Elements(d.AsOwner("GET", "/api/agents/"+id+"/hooks", "", 200)["hooks"])[0].(map[string]any)["id"].(string)
	a := d.StreamAgent(id, `{"message":"go"}`)
	frames := AgentFrames(t, a.Body)
	if last := frames[len(frames)-1]; last["event"] != "complete" || last["status"] != "completed" {
		t.Fatalf("%v", frames)
	}
	run := frames[0]["run_id"].(string)
	before := Told(t, a.Body)
	close(release)
	if got, want := d.ToldOf("/api/agents/runs/"+run), "org succeeded, "+hook+" succeeded"; got != want {
		t.Errorf("the record says %q, want %q", got, want)
	}
	observed := Elements(d.AsOwner("GET", "/api/observability/agent-runs", "", 200)["agent_runs"])
	if len(observed) != 1 || observed[0].(map[string]any)["on_run_complete"] != "succeeded" {
		t.Errorf("observed are %v", observed)
	}
	if after := Told(t, d.Send("GET", "/api/agents/runs/"+run+"/events", nil).Body); after != before {
		t.Errorf("the events of the run have changed:\n%s\n%s", before, after)
	}
	got := receiver.Events("OnRunComplete")
	if len(got) != 1 || got[0]["output"] != "It is 42." || len(org.Events("OnRunComplete")) != 1 {
		t.Errorf("told %v", got)
	}
}
