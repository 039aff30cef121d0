package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// toldOf returns what the record of a run says of its hooks at OnRunComplete, when none of them waits any more.
func (d documented) toldOf(path string) string {
	d.t.Helper()
	for ; d.t.Context().Err() == nil; pollPause() {
		var told []string
		waits := false
		for _, h := range elements(d.asOwner("GET", path, "", 200)["on_run_complete"]) {
			h := h.(map[string]any)
			waits = waits || h["status"] == "waiting" || h["ended_at"] == nil
			told = append(told, fmt.Sprint(h["hook_id"], " ", h["status"]))
		}
		if !waits {
			return strings.Join(told, ", ")
		}
	}
	return ""
}

// events returns the questions of an event that a receiver got.
func (h *hookServer) events(event string) (out []map[string]any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.got {
		if q["event"] == event {
			out = append(out, q)
		}
	}
	return out
}

// A hook of an org at OnRunComplete is told of each run that is complete, on each surface, streamed or
// not, after PreResponse hooks; it changes nothing, and the record of the run shows what became of it. Runs that end in
// another way are not told. // H14 H15 H20
func TestHooksAreToldOfCompleteRuns(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), "fail") {
			http.Error(w, `{"error":{"message":"broken"}}`, 400)
			return
		}
		says("the password is tiger").write(w)
	})
	receiver := newHookServer(t, replies(map[string]string{"PreResponse": `{"action":"modify","modified_output":"redacted"}`, "OnRunComplete": `{"action":"deny","message":"ignored"}`}))
	broken := newHookServer(t, replies(map[string]string{"OnRunComplete": "500"}))
	hooks := fmt.Sprintf(`hooks: [{id: last, event: OnRunComplete, type: http, position: 1, config: {url: %[1]q, include_run_context: true}}, {id: broken, event: OnRunComplete, type: http, config: {url: %[2]q}},
		{id: local, event: OnRunComplete, type: http, position: 2, config: {url: "http://169.254.169.254/"}}, {id: other, event: OnRunComplete, type: http, keys: [b], config: {url: %[1]q}},
		{id: answer, event: PreResponse, type: http, config: {url: %[1]q}}]`, receiver.URL, broken.URL)
	d := manage(mustRunIn(t, t.TempDir(), site{upstream: up.URL, runtime: hooks}.yaml()+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n", environment()))
	for i, r := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
		{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`},
		{"/v1/responses", `{"model":"m","input":"hello"}`},
		{"/v1/responses", `{"model":"m","stream":true,"input":"hello"}`},
		{"/v1/responses", `{"model":"m","input":"hello","store":false}`},
	} {
		a := d.send("POST", r.path, strings.NewReader(r.body), "Authorization", "Bearer owner-key")
		if a.status != 200 || !strings.Contains(string(a.body), "redacted") {
			t.Fatalf("%s: %d %s", r.path, a.status, a.body)
		}
		run := a.header.Get("Turnpike-Run-Id")
		if got, want := d.toldOf("/v1/runs/"+run), "broken failed, last succeeded, local failed"; got != want {
			t.Errorf("%s: the record of %s says %q, want %q", r.path, run, got, want)
		}
		all := receiver.events("OnRunComplete")
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
		if quoted(got) != quoted(want) {
			t.Errorf("%s: told %s, want %s", r.path, quoted(got), quoted(want))
		}
		rows := elements(d.asOwner("GET", "/api/audit?kind=audit_log.agent.hook&run_id="+run, "", 200)["data"])
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
	if a := d.post(`{"model":"m","messages":[{"role":"user","content":"fail"}]}`); a.status == 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	comesTrue(t, "the metric counts the hooks", func() bool {
		got := scrape(t, d.gateway)
		return got["turnpike_hooks_total{failed=false,point=run_complete,type=http,verdict=allow}"] == 5 && got["turnpike_hooks_total{failed=true,point=run_complete,type=http,verdict=allow}"] == 10
	})
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(receiver.events("OnRunComplete")); n != 5 || strings.Count(d.log.String(), "hook_failed") != 10 {
		t.Errorf("told %d times, and the log has\n%s", n, d.log.String())
	}
}

// An agent's hook at OnRunComplete gets the headers and the signature of the hook, beside that of the org. A
// run that fails tells nobody. One in a stream is complete before the hook is told. // H14 H15
func TestAHookOfAnAgentIsToldOfCompleteRuns(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("It is 42."), says("It is 43.")))
	release := make(chan struct{})
	receiver := newHookServer(t, func(w http.ResponseWriter, _ map[string]any) { <-release; fmt.Fprint(w, "fine") })
	org := newHookServer(t, replies(map[string]string{"OnRunComplete": `{}`}))
	tools := newMCP(t, map[string]handler{"echo": echo})
	d := manage(MustRun(t, site{upstream: up.URL, runtime: fmt.Sprintf("hooks: [{id: org, event: OnRunComplete, type: http, config: {url: %q}}]", org.URL)}.yaml()))
	id := d.newAgent(withTools(tools) + fmt.Sprintf(`,"hooks":[{"event":"OnRunComplete","type":"http","config":{"url":%q}}]`, receiver.URL))
	hook := elements(d.asOwner("GET", "/api/agents/"+id+"/hooks", "", 200)["hooks"])[0].(map[string]any)["id"].(string)
	a := d.streamAgent(id, `{"message":"go"}`)
	frames := agentFrames(t, a.body)
	if last := frames[len(frames)-1]; last["event"] != "complete" || last["status"] != "completed" {
		t.Fatalf("%v", frames)
	}
	run := frames[0]["run_id"].(string)
	before := told(t, a.body)
	close(release)
	if got, want := d.toldOf("/api/agents/runs/"+run), "org succeeded, "+hook+" succeeded"; got != want {
		t.Errorf("the record says %q, want %q", got, want)
	}
	observed := elements(d.asOwner("GET", "/api/observability/agent-runs", "", 200)["agent_runs"])
	if len(observed) != 1 || observed[0].(map[string]any)["on_run_complete"] != "succeeded" {
		t.Errorf("observed are %v", observed)
	}
	if after := told(t, d.send("GET", "/api/agents/runs/"+run+"/events", nil).body); after != before {
		t.Errorf("the events of the run have changed:\n%s\n%s", before, after)
	}
	got := receiver.events("OnRunComplete")
	if len(got) != 1 || got[0]["output"] != "It is 42." || len(org.events("OnRunComplete")) != 1 {
		t.Errorf("told %v", got)
	}
}
