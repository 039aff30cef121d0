package apptest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// ToldOf returns what the record of a run says of its hooks at OnRunComplete, when none of them waits any more.
func (d Documented) ToldOf(path string) string {
	d.T.Helper()
	for ; d.T.Context().Err() == nil; PollPause() {
		var told []string
		waits := false
		for _, h := range Elements(d.AsOwner("GET", path, "", 200)["on_run_complete"]) {
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

// Events returns the questions of an event that a receiver got.
func (h *HookServer) Events(event string) (out []map[string]any) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for _, q := range h.Got {
		if q["event"] == event {
			out = append(out, q)
		}
	}
	return out
}

func (d Documented) AsOwner(method, path, body string, want int) map[string]any {
	d.T.Helper()
	return d.Do(method, path, "owner-key", body, want)
}

// Command runs "turnpike approvals" and returns its exit status and output.
func (g *Gated) Command(env map[string]string, args ...string) (int, string) {
	return g.Local(env, append([]string{"approvals"}, append(args, "--url", g.URL, "--data", g.Data)...)...)
}

// Local runs a local command and returns its exit status and output.
func (g *Gated) Local(env map[string]string, args ...string) (int, string) {
	var out bytes.Buffer
	status := cli.Main(g.T.Context(), cli.Process{
		Args:  args,
		Env:   func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
	})
	return status, out.String()
}

// Key makes a key over the management API, and returns its id and the header field that uses it.
func (g *Gated) Key(name, role string) (id string, field []string) {
	g.T.Helper()
	made := g.Do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":%q,"role":%q}`, name, role), 201)
	return made["id"].(string), []string{"Authorization", "Bearer " + made["key"].(string)}
}

// AuditNow runs a command of "turnpike audit" on a data directory.
func AuditNow(t *testing.T, data string, args ...string) (status int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := func(string) (string, bool) { return "", false }
	status = cli.Main(t.Context(), cli.Process{Args: append(append([]string{"audit"}, args...), "--data", data), Env: env, Stdout: &stdout, Stderr: &stderr})
	return status, stdout.String() + stderr.String()
}

// ChangeStore changes the database of a data directory behind the gateway's back.
func ChangeStore(t *testing.T, data string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, app.DatabaseFile)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// AgentHook is a hook that is added to agents.
const AgentHook = `{"event":"PreToolUse","type":"rule","config":{"condition":"sql CONTAINS DROP"}}`

// Counts answers a chat request and says how many tokens it had.
func Counts(input, output int) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, got Received) {
		usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, input, output, input+output)
		if strings.Contains(string(got.Body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Done.\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", usage)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}],"usage":%s}`, usage)
	}
}

// BudgetsOf returns the budgets of the org, by their ids.
func BudgetsOf(t *testing.T, g *Gateway) map[string]map[string]any {
	t.Helper()
	a := g.Send("GET", "/api/budgets?limit=200", nil, "Authorization", "Bearer owner-key")
	var page struct{ Data []map[string]any }
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != 200 {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	out := map[string]map[string]any{}
	for _, b := range page.Data {
		out[b["id"].(string)] = b
	}
	return out
}

// Told returns what tools have told the model in a request.
func (r Received) Told(t *testing.T) string { return strings.Join(r.Results(t), " ") }

// Dispatching is a configuration with a tool dispatch URL. more has further lines.
func Dispatching(s Site, endpoint string, more ...string) string {
	return s.Yaml() + fmt.Sprintf("tool_dispatch_url: %q\n", endpoint+"/tools?v=1") + strings.Join(more, "\n") + "\n"
}

// Functions is a chat request with functions of these names. Each takes an order.
func Functions(more string, names ...string) string {
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"About orders.","strict":true,"parameters":{"type":"object","properties":{"order":{"type":"integer"}},"required":["order"],"additionalProperties":false}}}`, name)
	}
	return `{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[` + strings.Join(tools, ",") + `]` + more + `}`
}

// Calling asks for the calls until it is told of results, and then says done.
func Calling(calls ...Call) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(calls...).Write(w)
	}
}

const Embedding = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1]}],"model":"x","usage":{"prompt_tokens":8,"total_tokens":8}}`

// AuditRows returns the audit log of the org once it has so many rows: a relay is recorded after its answer.
func (g *Gateway) AuditRows(n int) Answer {
	g.T.Helper()
	for end := time.Now().Add(Patience); ; PollPause() {
		rows := g.Send("GET", "/api/audit?limit=100", nil)
		if strings.Count(string(rows.Body), `"number":`) >= n || time.Now().After(end) {
			return rows
		}
	}
}

// SignedPath returns the path of a signed URL of a file.
func (d Documented) SignedPath(path string) string {
	d.T.Helper()
	signed := d.Do("POST", "/api/buckets/docs/signed-urls", "reader-key", fmt.Sprintf(`{"path":%q,"expires_in_seconds":600}`, path), 200)["signed_url"].(string)
	if !strings.HasPrefix(signed, d.URL+"/v1/blobs/") {
		d.T.Errorf("%s, want one of %s", signed, d.URL)
	}
	return strings.TrimPrefix(signed, d.URL)
}

// Turns answers the model calls of each request in turn, by the number of results after its last message of the user.
func Turns(calls ...Call) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, got Received) {
		_, last, _ := strings.Cut(string(got.Body), `"messages":`)
		last = last[strings.LastIndex(last, `"role":"user"`):]
		if n := strings.Count(last, `"role":"tool"`); n < len(calls) {
			Asks(calls[n]).Write(w)
			return
		}
		Says("done").Write(w)
	}
}

// Keys returns the idempotency key of each call that the server got.
func (m *MCPServer) Keys(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, r := range m.Of("tools/call") {
		var p struct {
			Meta struct {
				Key string `json:"turnpike/idempotencyKey"`
			} `json:"_meta"`
		}
		if err := json.Unmarshal(r.Params, &p); err != nil {
			t.Fatal(err)
		}
		if header := r.Header.Get("Idempotency-Key"); header != p.Meta.Key {
			t.Errorf("the header has the key %q, _meta %q", header, p.Meta.Key)
		}
		out = append(out, p.Meta.Key)
	}
	return out
}

// Follow reads the events of a run of an agent in the background, until they end.
func (d Documented) Follow(key, run string) <-chan Answer {
	d.T.Helper()
	resp, err := d.Client.Do(d.Request(d.T.Context(), "GET", "/api/agents/runs/"+run+"/events", nil, "Authorization", "Bearer "+key))
	if err != nil {
		d.T.Fatal(err)
	}
	out := make(chan Answer, 1)
	go func() {
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			body = []byte("data: {\"event\":\"broken: " + err.Error() + "\"}\n")
		}
		out <- Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	}()
	return out
}

// Pause is how a slow neighbour is slow.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LastSaid returns the latest message of a request to a model.
func LastSaid(body []byte) string {
	var asked struct{ Messages []struct{ Content any } }
	if json.Unmarshal(body, &asked) != nil || len(asked.Messages) == 0 {
		return ""
	}
	text, _ := asked.Messages[len(asked.Messages)-1].Content.(string)
	return text
}

// Leave runs an agent, and leaves its stream after the first frame. It returns the session and the run.
func (d Documented) Leave(key, agent, body string) (session, run string) {
	d.T.Helper()
	ctx, leave := context.WithCancel(d.T.Context())
	defer leave()
	resp, err := d.Client.Do(d.Request(ctx, "POST", "/api/agents/"+agent+"/run/stream", strings.NewReader(body), "Authorization", "Bearer "+key))
	if err != nil {
		d.T.Fatal(err)
	}
	defer resp.Body.Close()
	var begin []byte
	for buffer := make([]byte, 1024); !bytes.Contains(begin, []byte("\n\n")); {
		n, err := resp.Body.Read(buffer)
		if begin = append(begin, buffer[:n]...); err != nil && !bytes.Contains(begin, []byte("\n\n")) {
			d.T.Fatalf("%d %s: %v", resp.StatusCode, begin, err)
		}
	}
	first, _, _ := bytes.Cut(begin, []byte("\n\n"))
	start := AgentFrames(d.T, first)[0]
	return start["session_id"].(string), start["run_id"].(string)
}

// Becomes waits until a session has a status.
func (d Documented) Becomes(key, session, status string) map[string]any {
	d.T.Helper()
	for end := time.Now().Add(Patience); ; PollPause() {
		s := d.Do("GET", "/api/sessions/"+session, key, "", 200)
		if s["status"] == status {
			return s
		}
		if time.Now().After(end) {
			d.T.Fatalf("the session is %v, want %s", s, status)
		}
	}
}

// ListsModels answers with a list of models in place of a completion.
func ListsModels(status int, body string) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// WaitingRun returns the run of a session that waits, as soon as it does.
func (d Documented) WaitingRun(session string) string {
	d.T.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s := d.AsOwner("GET", "/api/sessions/"+session, "", 200); s["status"] == "waiting" {
			return s["last_run_id"].(string)
		}
	}
	d.T.Fatalf("the session %s does not wait", session)
	return ""
}

// MasterKey is a master key, as openssl rand -base64 32 makes one.
const MasterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="

// WithVault is a site's file with a master key.
func (s Site) WithVault() string {
	return "master_key: " + MasterKey + "\noperator_key: operator-key\n" + s.Yaml()
}

// Bearers returns the Authorization headers that came with the method.
func (r *recorder) Bearers(method string) (out []string) {
	for _, m := range r.Of(method) {
		out = append(out, strings.TrimPrefix(m.Header.Get("Authorization"), "Bearer "))
	}
	return out
}

// hooks is a receiver of webhooks. It remembers which secrets have signed each message.
type hooks struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []string // event, and the names of the secrets
}

func NewHooks(t *testing.T, secrets map[string]string) *hooks {
	t.Helper()
	h := &hooks{status: 200}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var message struct{ Type string }
		_ = json.Unmarshal(body, &message)
		line := message.Type
		for _, name := range []string{"first", "second", "api"} {
			if signedWith(secrets[name], r.Header, body) {
				line += " " + name
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, line)
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

// signedWith reports whether one of the signatures is of the secret.
func signedWith(text string, header http.Header, body []byte) bool {
	key, err := webhook.ParseSecret(secret.NewValue(text))
	if err != nil {
		return false
	}
	var seconds int64
	_, _ = fmt.Sscan(header.Get("Webhook-Timestamp"), &seconds)
	want := http.Header{}
	if err := webhook.Sign(want, header.Get("Webhook-Id"), time.Unix(seconds, 0), body, key); err != nil {
		return false
	}
	return strings.Contains(" "+header.Get("Webhook-Signature")+" ", " "+want.Get("Webhook-Signature")+" ")
}

func (h *hooks) All() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.got, "; ")
}

func (h *hooks) Answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}
