package apptest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// frameKinds returns the types of frames, of a golden file or as told has them.
func frameKinds(frames string) (out []string) {
	for line := range strings.Lines(frames) {
		kind, _, _ := strings.Cut(line, " ")
		out = append(out, kind)
	}
	return out
}

// WantEvents fails the test unless a stream has the events, and is that of the golden file.
func (d Documented) WantEvents(name, events string, stream []byte) {
	d.T.Helper()
	want := strings.Fields(events)
	for what, frames := range map[string]string{"stream": Told(d.T, stream), "golden file": Golden(d.T, name)} {
		if diff := cmp.Diff(want, frameKinds(frames)); diff != "" {
			d.T.Errorf("%s: the events of the %s (-want +got):\n%s", name, what, diff)
		}
	}
	d.Same(name, stream)
}

// Prompt returns the messages of a request to the model, as "role text".
func Prompt(t *testing.T, got Received) (out []string) {
	t.Helper()
	for _, m := range got.Decode(t).Messages {
		out = append(out, m.Role+" "+m.Content)
	}
	return out
}

// SendLater streams an agent in the background; the answer comes over the channel.
func (d Documented) SendLater(id, session, message, members string, header ...string) chan Answer {
	out := make(chan Answer, 1)
	body := fmt.Sprintf(`{"message":%q,"session_id":%q%s}`, message, session, members)
	go func() {
		defer close(out) // after a failure the test goes on, and ends
		out <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), append([]string{"Authorization", "Bearer owner-key"}, header...)...)
	}()
	return out
}

// Inputs waits until the session has n inputs and returns them as "kind processed|waits".
func (d Documented) Inputs(session string, n int) (out []string) {
	d.T.Helper()
	for ; len(out) < n; PollPause() {
		out = nil
		for _, v := range Elements(d.AsOwner("GET", "/api/sessions/"+session+"/inputs", "", 200)["inputs"]) {
			in := v.(map[string]any)
			state := "processed"
			if in["processed_at"] == nil {
				state = "waits"
			}
			out = append(out, in["kind"].(string)+" "+state)
		}
	}
	return out
}

// AgentFrames returns the frames of a stream, without what differs between runs.
func AgentFrames(t *testing.T, body []byte) (out []map[string]any) {
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

// Told returns the frames of a stream as the golden files have them.
func Told(t *testing.T, body []byte) string {
	t.Helper()
	var b strings.Builder
	ids := map[string]string{}
	for _, f := range AgentFrames(t, body) {
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
		for _, c := range Elements(f["tool_calls"]) {
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

// Golden returns the frames of a story, which were written by hand.
func Golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/agentruns/" + name + ".frames")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func Elements(v any) []any {
	all, _ := v.([]any)
	return all
}

// NewAgent creates an agent with the model m and returns its id.
func (d Documented) NewAgent(members string) string {
	d.T.Helper()
	return d.AsOwner("POST", "/api/agents", `{"name":"helper","model":"m"`+members+`}`, 201)["id"].(string)
}

// StreamAgent runs an agent and returns its stream.
func (d Documented) StreamAgent(id, body string, header ...string) Answer {
	d.T.Helper()
	a := d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), append([]string{"Authorization", "Bearer owner-key"}, header...)...)
	if a.Status != 200 {
		d.T.Fatalf("the stream answered %d: %s", a.Status, a.Body)
	}
	return a
}

// WithTools returns the members of an agent that has the tools of an MCP server.
func WithTools(s *MCPServer, config ...string) string {
	more := ""
	if len(config) > 0 {
		more = `,"config":{` + config[0] + `}`
	}
	return fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q%s}]`, s.URL+"/mcp", more)
}

// Prompt returns the messages of a request to the model, as "role content|role content".
func (r Received) Prompt(t *testing.T) string {
	t.Helper()
	var said []string
	for _, m := range r.Decode(t).Messages {
		said = append(said, m.Role+" "+m.Content)
	}
	return strings.Join(said, "|")
}

// Said returns the messages of a session.
func (d Documented) Said(session string) string {
	d.T.Helper()
	var said []string
	for _, m := range Elements(d.AsOwner("GET", "/api/sessions/"+session+"/messages", "", 200)["messages"]) {
		m := m.(map[string]any)
		said = append(said, fmt.Sprint(m["role"], " ", m["content"]))
	}
	return strings.Join(said, "|")
}

// Same fails the test if a stream is not that of a golden file. Texts of errors that a provider has written are not
// compared.
func (d Documented) Same(name string, stream []byte) {
	d.T.Helper()
	got, want := Told(d.T, stream), Golden(d.T, name)
	if strings.Contains(want, `"error":"ERROR"`) {
		got = regexp.MustCompile(`"error":"[^"]+"`).ReplaceAllString(got, `"error":"ERROR"`)
		got = regexp.MustCompile(`"code":"[^"]+"`).ReplaceAllString(got, `"code":"CODE"`)
	}
	if got != want {
		d.T.Errorf("%s: the stream is\n%swant\n%s", name, got, want)
	}
}

// Begun starts a run in a session of its own, and returns the session and the stream, when it has ended.
func (d Documented) Begun(agent, members string) (session string, streamed <-chan Answer) {
	d.T.Helper()
	session = d.AsOwner("POST", "/api/agents/"+agent+"/sessions", "", 201)["id"].(string)
	out, body := make(chan Answer, 1), fmt.Sprintf(`{"message":"go","session_id":%q%s}`, session, members)
	go func() {
		out <- d.Send("POST", "/api/agents/"+agent+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	return session, out
}

// RunThat waits for the run of a session in which something holds, and returns its id.
func (d Documented) RunThat(session string, holds func(run map[string]any) bool) string {
	d.T.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if id, is := d.AsOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string); is {
			if holds(d.AsOwner("GET", "/api/agents/runs/"+id, "", 200)) {
				return id
			}
		}
	}
	d.T.Fatalf("the run of the session %s did not come so far", session)
	return ""
}
