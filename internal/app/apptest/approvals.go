package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// Forget drops what the receiver has got so far.
func (h *HookServer) Forget() {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.Got = nil
}

// Outputs returns the output of each question.
func (h *HookServer) Outputs() (out []string) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for _, got := range h.Got {
		out = append(out, fmt.Sprint(got["output"]))
	}
	return out
}

// GatedQuestion is a chat request with which askGated calls the tool delete.
const (
	GatedQuestion         = `{"model":"m","messages":[{"role":"user","content":"delete it"}]}`
	StreamedGatedQuestion = `{"model":"m","stream":true,"messages":[{"role":"user","content":"delete it"}]}`
)

// AskGated calls the calls in its first turn, and then repeats what the tools said.
func AskGated(calls ...Call) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, got Received) {
		if !bytes.Contains(got.Body, []byte(`"role":"tool"`)) {
			Asks(calls...).Write(w)
			return
		}
		Says("done").Write(w)
	}
}

// Gated is a gateway with a server whose tool delete needs approval.
type Gated struct {
	Documented
	Data     string
	Yaml     string
	Upstream *Upstream
	Tools    *MCPServer
}

// RunGated starts it. runtime and more are settings of the org and of the server.
func RunGated(t *testing.T, runtime string, more ...string) *Gated {
	t.Helper()
	up := NewUpstream(t, AskGated(Use("delete", `{"n":7}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo, "look": Echo}, "look")
	g := &Gated{Data: NewData(t), Upstream: up, Tools: tools}
	if len(more) == 0 {
		more = []string{"require_approval: always"}
	}
	g.Yaml = Site{Upstream: up.URL, Runtime: runtime, Servers: []string{Server("tools", tools.URL, more...)}}.Yaml()
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	return g
}

// Ask sends a chat request in the background.
func (g *Gated) Ask(body string, fields ...string) <-chan Answer {
	g.T.Helper()
	answers := make(chan Answer, 1)
	r := g.Request(g.T.Context(), "POST", "/v1/chat/completions", strings.NewReader(body), fields...)
	go func() {
		resp, err := g.Client.Do(r)
		if err != nil {
			answers <- Answer{Status: -1, Body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		answers <- Answer{Status: resp.StatusCode, Header: resp.Header, Body: data}
	}()
	return answers
}

// Waiting returns the approvals that wait, when there is one.
func (g *Gated) Waiting() []map[string]any {
	g.T.Helper()
	return Objects(g.Do("GET", "/v1/approvals?status=waiting&wait=20", "approver-key", "", 200))
}

// WaitingAre returns the approvals that wait, when there are n.
func (g *Gated) WaitingAre(n int) (found []map[string]any) {
	g.T.Helper()
	g.WaitUntil(func() (bool, any) {
		found = g.Waiting()
		return len(found) == n, found
	})
	return found
}

// WaitUntil asks until the answer is yes. It fails the test with the last answer if that takes too
// long.
func (g *Gated) WaitUntil(yes func() (bool, any)) {
	g.T.Helper()
	for begin := time.Now(); ; {
		ok, seen := yes()
		if ok {
			return
		}
		if time.Since(begin) > Patience {
			g.T.Fatalf("after %s: %v", Patience, seen)
		}
	}
}

// Only returns the id of the one approval that waits.
func (g *Gated) Only() string {
	g.T.Helper()
	found := g.Waiting()
	if len(found) != 1 {
		g.T.Fatalf("waiting: %v", found)
	}
	return found[0]["id"].(string)
}

func Objects(list map[string]any) (out []map[string]any) {
	for _, o := range list["data"].([]any) {
		out = append(out, o.(map[string]any))
	}
	return out
}

func (g *Gated) Decide(id, decision, reason string, status int) map[string]any {
	g.T.Helper()
	return g.Do("POST", "/v1/approvals/"+id, "approver-key", fmt.Sprintf(`{"decision":%q,"reason":%q}`, decision, reason), status)
}

// Again sends a request with its key again. It stays open until the run is over.
func (g *Gated) Again(body, key string) Answer {
	g.T.Helper()
	return g.Post(body, "Idempotency-Key", key)
}

// StatusOf returns the status of an approval.
func (g *Gated) StatusOf(id string) string {
	g.T.Helper()
	return g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)["status"].(string)
}

// Told returns what the tools told the model in its last request.
func (g *Gated) Told() string {
	g.T.Helper()
	all := g.Upstream.Requests()
	return strings.Join(all[len(all)-1].Results(g.T), "|")
}

// Executed returns how often a tool was called.
func (g *Gated) Executed() int { return len(g.Tools.Of("tools/call")) }

// Audited returns what the audit log has of an approval, in order.
func (g *Gated) Audited(id string) string {
	g.T.Helper()
	var out []string
	for _, row := range Objects(g.Do("GET", "/api/audit?kind=audit_log.agent.approval", "owner-key", "", 200)) {
		if body := row["body"].(map[string]any); body["approval_id"] == id {
			out = append(out, fmt.Sprintf("%v by %v", body["action"], row["key_id"]))
		}
	}
	return strings.Join(out, ", ")
}

// ClosedURL is a URL at which nobody listens. Systems do not give this port to servers that ask for any, so that no
// server of another test gets it.
const ClosedURL = "http://127.0.0.1:10009"

// settled returns an approval once it does not wait any more.
func (g *Gated) settled(id string) map[string]any {
	g.T.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		a := g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
		if a["status"] != "waiting" {
			return a
		}
		if time.Now().After(deadline) {
			g.T.Fatalf("%s still waits: %v", id, a)
		}
	}
}

// Ended returns a run of the org once it has ended.
func (g *Gated) Ended(runID any) map[string]any {
	g.T.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		r := g.Do("GET", "/v1/runs/"+runID.(string), "owner-key", "", 200)
		if state := r["state"]; state != "waiting" && state != "running" {
			return r
		}
		if time.Now().After(deadline) {
			g.T.Fatalf("run %s goes on: %v", runID, r)
		}
	}
}

// CheckVoid fails the test unless the approval is void for the reason, nobody can approve it,
// and nothing was executed.
func (g *Gated) CheckVoid(id, reason string) {
	g.T.Helper()
	a := g.settled(id)
	if a["status"] != "void" || a["reason"] != reason {
		g.T.Errorf("approval %s is %v, reason %v; want void, %s", id, a["status"], a["reason"], reason)
	}
	refused := g.Decide(id, "approve", "", 409)["error"].(map[string]any)
	if refused["code"] != "approval_void" || !strings.Contains(refused["message"].(string), reason) {
		g.T.Errorf("approving it is refused with %v", refused)
	}
	if r := g.Ended(a["run_id"]); g.Executed() != 0 || g.Upstream.Requests() == nil {
		g.T.Errorf("run %v: %d calls were executed", r, g.Executed())
	}
}

// opened is a stream that a client reads in the background.
type opened struct {
	status int
	body   <-chan string // all of it, when it has ended
}

// Open sends a request and returns when the answer has begun.
func (g *Gated) Open(method, path, key, body string, fields ...string) opened {
	g.T.Helper()
	resp, err := g.Client.Do(g.Request(g.T.Context(), method, path, strings.NewReader(body), append(fields, "Authorization", "Bearer "+key)...))
	if err != nil {
		g.T.Fatal(err)
	}
	all := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		all <- string(data)
	}()
	return opened{resp.StatusCode, all}
}

// Read returns what a stream has sent, when it has ended.
func (g *Gated) Read(o opened) string {
	g.T.Helper()
	select {
	case text := <-o.body:
		return text
	case <-time.After(30 * time.Second):
		g.T.Fatal("the stream has not ended")
		return ""
	}
}

// WaitingAll returns the approvals that wait, when there are n.
func (g *Gated) WaitingAll(n int) []map[string]any {
	g.T.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if all := g.Waiting(); len(all) == n {
			return all
		} else if time.Now().After(deadline) {
			g.T.Fatalf("%d wait, want %d", len(all), n)
		}
	}
}

func Quoted(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// HookServer is a receiver of hooks with behaviour.
type HookServer struct {
	*httptest.Server
	Mu  sync.Mutex
	Got []map[string]any
}

func NewHookServer(t *testing.T, answer func(w http.ResponseWriter, got map[string]any)) *HookServer {
	t.Helper()
	h := &HookServer{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got map[string]any
		data, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(data, &got)
		h.Mu.Lock()
		h.Got = append(h.Got, got)
		h.Mu.Unlock()
		answer(w, got)
	}))
	t.Cleanup(h.Close)
	return h
}

// Replies answers each event with a body; a number is a status.
func Replies(byEvent map[string]string) func(http.ResponseWriter, map[string]any) {
	return func(w http.ResponseWriter, got map[string]any) {
		body := byEvent[fmt.Sprint(got["event"])]
		if body == "500" {
			w.WriteHeader(500)
			return
		}
		fmt.Fprint(w, body)
	}
}

// RunShown returns what "turnpike runs show" says of a run.
func RunShown(t *testing.T, data, id string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args := []string{"runs", "show", id, "--org", "o", "--data", data}
	if status := cli.Main(t.Context(), cli.Process{Args: args, Env: NoEnvironment, Stdout: &stdout, Stderr: &stderr}); status != 0 {
		t.Fatalf("runs show: status %d, %s", status, stderr.String())
	}
	return stdout.String()
}
