package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// agentFrames returns the frames of a stream, without what differs between runs.
func agentFrames(t *testing.T, body []byte) (out []map[string]any) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var f map[string]any
		if err := json.Unmarshal([]byte(data), &f); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		out = append(out, f)
	}
	return out
}

// told returns the frames of a stream as the golden files have them.
func told(t *testing.T, body []byte) string {
	t.Helper()
	var b strings.Builder
	ids := map[string]string{}
	for _, f := range agentFrames(t, body) {
		kind := f["event"].(string)
		if f["type"] != kind {
			t.Errorf("the frame %v has two types", f)
		}
		delete(f, "event")
		delete(f, "type")
		delete(f, "ts")
		delete(f, "duration_ms")
		delete(f, "latency_ms")
		if _, has := f["tokens_before"]; has {
			f["tokens_before"], f["tokens_after"] = "TOKENS", "TOKENS"
		}
		for _, name := range []string{"run_id", "session_id", "approval_id", "hook_id"} {
			if id, is := f[name].(string); is {
				ids[id] = strings.ToUpper(strings.TrimSuffix(name, "_id"))
				f[name] = ids[id]
			}
		}
		if _, has := f["expires_at"]; has {
			f["expires_at"] = "T"
		}
		for _, c := range elements(f["tool_calls"]) {
			delete(c.(map[string]any), "duration_ms")
		}
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", kind, text)
	}
	return b.String()
}

// golden returns the frames of a story, which were written by hand.
func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/agentruns/" + name + ".frames")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func elements(v any) []any {
	all, _ := v.([]any)
	return all
}

// newAgent creates an agent with the model m and returns its id.
func (d documented) newAgent(members string) string {
	d.t.Helper()
	return d.asOwner("POST", "/api/agents", `{"name":"helper","model":"m"`+members+`}`, 201)["id"].(string)
}

// streamAgent runs an agent and returns its stream.
func (d documented) streamAgent(id, body string, header ...string) answer {
	d.t.Helper()
	a := d.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), append([]string{"Authorization", "Bearer owner-key"}, header...)...)
	if a.status != 200 {
		d.t.Fatalf("the stream answered %d: %s", a.status, a.body)
	}
	return a
}

// A plain answer, and a second turn of its session, which sees the first. // N02 H10
func TestAnAgentAnswersInASession(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Hello."), says("Again.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(`,"system_prompt":"Be brief."`)
	a := d.streamAgent(id, `{"message":"hi"}`)
	if got, want := told(t, a.body), golden(t, "plain"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	start := agentFrames(t, a.body)[0]
	run, session := start["run_id"].(string), start["session_id"].(string)
	if !strings.HasPrefix(run, "run_") || !strings.HasPrefix(session, "sess_") {
		t.Errorf("run %s of session %s", run, session)
	}
	d.streamAgent(id, fmt.Sprintf(`{"message":"more","session_id":%q}`, session))
	asked := up.requests()[1].decode(t)
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
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}).saying("Looking."), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q},{"name":"gone","url":%q}]`, tools.URL+"/mcp", closedURL+"/mcp"))
	a := d.streamAgent(id, `{"message":"go","max_steps":2}`)
	if got, want := told(t, a.body), golden(t, "two_rounds"); got != want {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	if text := string(up.requests()[1].body); strings.Contains(text, `"tools":[`) {
		t.Errorf("the last step has tools: %s", text)
	}
	run := agentFrames(t, a.body)[0]["run_id"].(string)
	whole := string(a.body)
	for _, block := range strings.Split(strings.TrimSuffix(whole, "\n\n"), "\n\n") {
		last, _, _ := strings.Cut(strings.TrimPrefix(block, "id: "), "\n")
		_, want, _ := strings.Cut(whole, block+"\n\n")
		got := d.send("GET", "/api/agents/runs/"+run+"/events", nil, "Authorization", "Bearer owner-key", "Last-Event-ID", last)
		if want == "" && got.status == 204 {
			continue
		}
		if got.status != 200 || told(t, got.body) != told(t, []byte(want)) {
			t.Errorf("after %s: %d\n%swant\n%s", last, got.status, got.body, want)
		}
	}
	shown := d.asOwner("GET", "/api/agents/runs/"+run, "", 200)
	if shown["content"] != "Done." || shown["status"] != "completed" || shown["agent_version"] != 1.0 || len(elements(shown["tool_calls"])) != 1 {
		t.Errorf("the run is %v", shown)
	}
}

// A call that waits is denied by somebody else while the stream is open; a session with a run that has not
// ended takes no second message; a run is cancelled; a repeated request is the same run. // N04 N12 P25
func TestARunOfAnAgentWaitsIsDeniedAndCancelled(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}), says("Then not."), asks(call{"mcp__tools__echo", `{"n":2}`}), says("Over.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := d.asOwner("POST", "/api/agents/"+id+"/sessions", `{"title":"one"}`, 201)["id"].(string)
	path, body := "/api/sessions/"+session, fmt.Sprintf(`{"message":"go","session_id":%q}`, session)
	waits := func() string {
		for {
			if s := d.asOwner("GET", path, "", 200); s["status"] == "waiting" {
				return s["last_run_id"].(string)
			}
		}
	}
	streamed := make(chan answer, 1)
	go func() {
		streamed <- d.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key", "Idempotency-Key", "k")
	}()
	run := waits()
	d.asOwner("POST", "/api/agents/"+id+"/run", body, 409)
	d.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":"yes"}`, 400)
	d.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":false,"reason":"not today"}`, 200)
	first := <-streamed
	d.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 404)
	got, want := told(t, first.body), golden(t, "approval_denied")
	result := agentFrames(t, first.body)[4]
	want = strings.ReplaceAll(want, "CHARS", fmt.Sprint(result["result_meta"].(map[string]any)["char_count"]))
	want = strings.ReplaceAll(want, "RESULT", result["result_preview"].(string))
	if !strings.HasPrefix(got, want) || !strings.Contains(result["result_preview"].(string), "not today") || len(tools.of("tools/call")) != 0 {
		t.Errorf("the stream is\n%swant\n%s", got, want)
	}
	again := d.streamAgent(id, body, "Idempotency-Key", "k")
	if told(t, again.body) != got || d.asOwner("GET", path, "", 200)["run_count"] != 1.0 {
		t.Errorf("the repeated request got\n%s", again.body)
	}

	go func() {
		streamed <- d.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	second := waits()
	d.asOwner("POST", "/api/agents/runs/"+second+"/cancel", "", 202)
	cancelled := agentFrames(t, (<-streamed).body)
	if last := cancelled[len(cancelled)-1]; second == run || last["event"] != "complete" || last["status"] != "cancelled" {
		t.Errorf("the run %s ended with %v", second, last)
	}
	if s := d.asOwner("GET", path, "", 200); s["status"] != "idle" || s["stop_reason"] != "interrupted" || s["run_count"] != 2.0 {
		t.Errorf("the session is %v", s)
	}
	if all := d.asOwner("GET", path+"/runs", "", 200); all["total"] != 2.0 {
		t.Errorf("the runs are %v", all)
	}
	if all := elements(d.asOwner("GET", path+"/messages", "", 200)["messages"]); len(all) < 4 || all[0].(map[string]any)["content"] != "go" {
		t.Errorf("the messages are %v", all)
	}
	d.asOwner("DELETE", "/api/agents/"+id, "", 200)
	for _, gone := range []string{path, path + "/messages", path + "/runs", "/api/agents/runs/" + run} {
		d.asOwner("GET", gone, "", 404)
	}
}

// Whatever another org asks for is answered as what does not exist. // J21
func TestSessionsOfAnotherOrgDoNotExist(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Hello.")))
	yaml := site{upstream: up.URL}.yaml() + "\n  - id: other\n    keys:\n      - {name: b, key: other-key, role: owner}\n"
	d := manage(MustRun(t, yaml))
	id := d.newAgent("")
	start := agentFrames(t, d.streamAgent(id, `{"message":"hi"}`).body)[0]
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
			a := d.send(method, fmt.Sprintf(path, id), strings.NewReader(body), "Authorization", "Bearer other-key")
			return fmt.Sprint(a.status, " ", strings.ReplaceAll(string(a.body), id, "ID"))
		}
		if got, want := ask(own), ask(missing); got != want || !strings.HasPrefix(got, "404 ") {
			t.Errorf("%s %s: %s, and of a missing id %s", method, path, got, want)
		}
	}
	d.asOwner("GET", "/api/sessions/"+session, "", 200)
}

// A run that repeats itself fails, with the text of the contract. // B13
func TestADoomLoopFailsTheRunOfAnAgent(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`})))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	d.same("doom_loop", d.streamAgent(id, `{"message":"go"}`).body)
	if len(tools.of("tools/call")) != 2 {
		t.Errorf("%d calls were made", len(tools.of("tools/call")))
	}
}

// What a run of an agent cannot do is refused, and a model that fails is told.
func TestWhatAnAgentCannotDoIsRefused(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		http.Error(w, `{"error":{"message":"broken"}}`, 400)
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent("")
	if got := d.asOwner("POST", "/api/agents/"+id+"/run", `{"message":"x"}`, 502); got["status"] != "failed" || got["tools_used"] != false {
		t.Errorf("a model that fails: %v", got)
	}
	for body, param := range map[string]string{
		`{}`: "message", `{"message":"x","when_busy":"ignore"}`: "when_busy", `{"message":"x","max_steps":51}`: "max_steps", `{"message":"x","songs":1}`: "songs",
	} {
		if got := d.asOwner("POST", "/api/agents/"+id+"/run", body, 400); got["param"] != param {
			t.Errorf("%s: %v", body, got)
		}
	}
	d.asOwner("POST", "/api/agents/"+id+"/run", `{"message":"x","session_id":"sess_0"}`, 404)
	d.asOwner("POST", "/api/agents/"+id+"/archive", "{}", 200)
	d.asOwner("POST", "/api/agents/"+id+"/run", `{"message":"x"}`, 409)
	if all := d.asOwner("GET", "/api/agents/"+id+"/sessions", "", 200); all["total"] != 1.0 {
		t.Errorf("refused runs have left sessions: %v", all)
	}
}

// A run that waits outlives the gateway: its next process calls the tools of the agent's own servers. // N12 G11
func TestARunOfAnAgentGoesOnInTheNextProcess(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}), says("Done.")))
	data, yaml := t.TempDir(), site{upstream: up.URL}.yaml()
	first := manage(mustRunIn(t, data, yaml, environment()))
	id := first.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := first.asOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		first.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(fmt.Sprintf(`{"message":"go","session_id":%q}`, session)), "Authorization", "Bearer owner-key")
	}()
	var run string
	for run == "" {
		if s := first.asOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "waiting" {
			run = s["last_run_id"].(string)
		}
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	<-streamed
	next := manage(mustRunIn(t, data, yaml, environment()))
	shown := next.asOwner("GET", "/api/agents/runs/"+run, "", 200)
	if shown["status"] != "waiting" || len(elements(shown["approvals"])) != 1 {
		t.Fatalf("after the restart the run is %v", shown)
	}
	next.asOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
	a := next.send("GET", "/api/agents/runs/"+run+"/events", nil, "Authorization", "Bearer owner-key")
	all := agentFrames(t, a.body)
	if last := all[len(all)-1]; last["event"] != "complete" || last["content"] != "Done." || len(tools.of("tools/call")) != 1 {
		t.Errorf("%d calls, and the run ends with %v", len(tools.of("tools/call")), last)
	}
}

// A client that leaves stops its run, unless it is detached. // N04
func TestAClientThatLeavesStopsTheRunOfItsAgent(t *testing.T) {
	noLeaks(t)
	asked, release := make(chan bool, 2), make(chan bool)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, _ received) {
		asked <- true
		select {
		case <-release:
			says("Done.").write(w)
		case <-r.Context().Done():
		}
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent("")
	ends := func(detached bool) string {
		session := d.asOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
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
			if resp, err := d.client.Do(r); err == nil {
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
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if s := d.asOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "idle" {
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
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	answers := script(asks(call{"mcp__tools__echo", `{"n":1}`}), says("Done."), says("Plain."))
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if strings.Contains(string(got.body), "refuse") {
			refuses(400)(w, r, got)
			return
		}
		answers(w, r, got)
	})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(withTools(tools))
	send := func(path, message string, want int) map[string]any {
		t.Helper()
		a := d.send("POST", "/api/agents/"+id+path, strings.NewReader(fmt.Sprintf(`{"message":%q}`, message)), "Authorization", "Bearer owner-key", "Accept", "application/json")
		var out map[string]any
		if err := json.Unmarshal(a.body, &out); err != nil || a.status != want {
			t.Fatalf("%s answered %d: %s", path, a.status, a.body)
		}
		return out
	}
	got := send("/run/stream", "go", 200)
	if got["content"] != "Done." || got["status"] != "completed" || len(elements(got["tool_calls"])) != 1 || got["tools_used"] != nil {
		t.Errorf("the run is %v", got)
	}
	record := d.asOwner("GET", "/api/agents/runs/"+got["run_id"].(string), "", 200)
	one := elements(record["tool_calls"])[0].(map[string]any)
	if record["input"] != "go" || record["model"] != "m" || len(elements(record["targets"])) != 1 || one["result"] != `{"n":1}` || one["is_error"] != false || one["duration_ms"] == 0.0 {
		t.Errorf("the record is %v", record)
	}
	if got := send("/run", "go", 200); got["content"] != "Plain." || got["tools_used"] != false || !strings.Contains(got["hint"].(string), "run/stream") {
		t.Errorf("the run without tools is %v", got)
	}
	if got := send("/run", "refuse", 400); got["code"] == nil || got["status"] != "failed" {
		t.Errorf("the run that failed is %v", got)
	}
}
