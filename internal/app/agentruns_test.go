package app_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
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
		for _, name := range []string{"run_id", "session_id", "approval_id"} {
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
	tools, gone := newMCP(t, map[string]handler{"echo": echo}), newMCP(t, nil)
	gone.Close()
	up := newUpstream(t, script(asks(call{"mcp__tools__echo", `{"n":1}`}).saying("Looking."), says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	id := d.newAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q},{"name":"gone","url":%q}]`, tools.URL+"/mcp", gone.URL+"/mcp"))
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
