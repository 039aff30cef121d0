package apptest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

// HasTools reports whether a request offers the model tools.
func (r Received) HasTools() bool { return strings.Contains(string(r.Body), `"tools":[`) }

func (d Documented) AsOwner(method, path, body string, want int) map[string]any {
	d.T.Helper()
	return d.Do(method, path, "owner-key", body, want)
}

// CustomTool creates a custom tool and returns its id.
func (d Documented) CustomTool(name, config string) string {
	d.T.Helper()
	return d.AsOwner("POST", "/api/tools", fmt.Sprintf(`{"name":%q,"description":"Does %[1]s.","config":{%s}}`, name, config), 201)["id"].(string)
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

// Shown returns an approval as it is shown alone. A list must show the same, but for the client, which
// may have come or left meanwhile.
func (g *Gated) Shown(id string) map[string]any {
	g.T.Helper()
	alone := g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
	for _, a := range Objects(g.Do("GET", "/v1/approvals", "approver-key", "", 200)) {
		a["client"] = alone["client"]
		if a["id"] == id && fmt.Sprint(a) != fmt.Sprint(alone) {
			g.T.Errorf("the list has %v\nalone it is %v", a, alone)
		}
	}
	return alone
}

// ClientIs waits until an approval says this of its client.
func (g *Gated) ClientIs(id string, want any) {
	g.T.Helper()
	g.WaitUntil(func() (bool, any) {
		a := g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
		return a["client"] == want, a
	})
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

// What is added to agents.
const (
	AgentServer = `{"name":"tools","url":"https://example.com/mcp"}`
	AgentHook   = `{"event":"PreToolUse","type":"rule","config":{"condition":"sql CONTAINS DROP"}}`
)

// InBackground sends a request for a response in the background, and returns its answer.
func (g *Gateway) InBackground(t *testing.T, body string) (id, status string) {
	t.Helper()
	a := g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
	var r struct {
		ID         string
		Status     string
		Background bool
	}
	if err := json.Unmarshal(a.Body, &r); err != nil || a.Status != 200 || !r.Background || a.Header.Get("Turnpike-Run-Id") != strings.Replace(r.ID, "resp_", "run_", 1) {
		t.Fatalf("%s: %d %s", body, a.Status, a.Body)
	}
	return r.ID, r.Status
}

// Becomes asks for the response until it has the status.
func (g *Gateway) Becomes(t *testing.T, id, status string) string {
	t.Helper()
	until := time.Now().Add(20 * time.Second)
	for {
		a := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key")
		if strings.Contains(string(a.Body), fmt.Sprintf(`"status":%q,"background"`, status)) {
			return string(a.Body)
		}
		if time.Now().After(until) {
			t.Fatalf("the response does not become %s: %d %s", status, a.Status, a.Body)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Continued sends a request that continues the response.
func (g *Gateway) Continued(id, more string) Answer {
	return g.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(`{"model":"m","input":"y","previous_response_id":%q%s}`, id, more)), "Authorization", "Bearer owner-key")
}

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

// Refuses reports whether an answer is an error with a code ("" = any) about a member.
func (a Answer) Refuses(t *testing.T, status int, code, param string) bool {
	t.Helper()
	e := a.Fault(t).Error
	return a.Status == status && e.Code != nil && (code == "" || *e.Code == code) && e.Param != nil && *e.Param == param
}

// SendTo enqueues a message in the background; session "" begins a new one.
func (d Documented) SendTo(id, session, message string) chan Answer {
	out := make(chan Answer, 1)
	body := fmt.Sprintf(`{"message":%q,"when_busy":"enqueue","detached":true}`, message)
	if session != "" {
		body = fmt.Sprintf(`{"message":%q,"session_id":%q,"when_busy":"enqueue","detached":true}`, message, session)
	}
	go func() {
		defer close(out)
		out <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	return out
}

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

// FieldsOf returns the fields of a form that the provider got; of files, their bytes.
func (r Received) FieldsOf(t *testing.T) map[string][]string {
	t.Helper()
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			return out
		}
		data, readErr := io.ReadAll(part)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		out[part.FormName()] = append(out[part.FormName()], string(data))
		if part.FileName() != "" {
			out["name of "+part.FormName()] = []string{part.FileName()}
		}
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

func (g *Gateway) Dial() net.Conn {
	g.T.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		g.T.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(Patience))
	return c
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

func Raise(most *atomic.Int32, now int32) {
	for {
		old := most.Load()
		if now <= old || most.CompareAndSwap(old, now) {
			return
		}
	}
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

// Leave sends a request, goes away once reached is closed, and returns when it
// left.
func (g *Gateway) Leave(body string, reached <-chan struct{}) time.Time {
	g.T.Helper()
	ctx, cancel := context.WithCancel(g.T.Context())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		resp, err := g.Client.Do(g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(body)))
		if err == nil {
			buf := make([]byte, 512)
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			resp.Body.Close()
		}
	}()
	Wait(g.T, reached, "the neighbour to be reached")
	left := time.Now()
	cancel()
	Wait(g.T, over, "the client's end")
	return left
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

// Models returns the list as the gateway answers, as OWNER/ID@CREATED.
func (d Documented) Models() (all []string) {
	d.T.Helper()
	a := d.Send("GET", "/v1/models", nil)
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" {
		d.T.Fatalf("status %d: %.300s", a.Status, a.Body)
	}
	d.Conforms("GET", "/v1/models", a)
	var list struct {
		Data []struct {
			ID      string
			Created int64
			OwnedBy string `json:"owned_by"`
		}
	}
	if err := json.Unmarshal(a.Body, &list); err != nil {
		d.T.Fatal(err)
	}
	for _, m := range list.Data {
		all = append(all, fmt.Sprintf("%s/%s@%d", m.OwnedBy, m.ID, m.Created))
	}
	return all
}

// PausedRun returns the one run that is paused, as GET /v1/runs/{id} shows it.
func (g *Gated) PausedRun() map[string]any {
	g.T.Helper()
	found := Objects(g.Do("GET", "/v1/runs?state=paused", "owner-key", "", 200))
	if len(found) != 1 {
		g.T.Fatalf("paused are %v", found)
	}
	return g.Do("GET", "/v1/runs/"+found[0]["id"].(string), "owner-key", "", 200)
}

// Said are the texts of a message.
func (it RespItem) Said() (text string) {
	for _, p := range it.Content {
		if it.Type == "message" {
			text += p.Text + p.Refusal
		}
	}
	return text
}

// AgentDecide sends a decision of the agentic runtime.
func (g *Gated) AgentDecide(id, key, body string, status int) map[string]any {
	g.T.Helper()
	return g.Do("POST", "/v1/agent/approvals/"+id, key, body, status)
}

// Replayed gets the stream of a stored response again.
func (g *Gateway) Replayed(id, query string) Answer {
	g.T.Helper()
	return g.Send("GET", "/v1/responses/"+id+"?stream=true"+query, nil, "Authorization", "Bearer owner-key")
}

// Raw sends the text on a connection of its own.
func (g *Gateway) Raw(text string) net.Conn {
	g.T.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		g.T.Fatal(err)
	}
	g.T.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, text) // a request that is refused early is not read to its end
	return c
}

// RewoundResponse fails the test unless a response that was rewound is stored, and goes on as a branch.
func (d Documented) RewoundResponse(id string, up *Upstream) {
	d.T.Helper()
	send := func(method, path, body string) Answer {
		return d.Send(method, path, strings.NewReader(body), "Authorization", "Bearer owner-key")
	}
	if a := send("GET", "/v1/responses/"+id, ""); a.Status != 200 {
		d.T.Errorf("a response that was rewound: %d %s", a.Status, a.Body)
	}
	send("POST", "/v1/responses", fmt.Sprintf(`{"model":"m","previous_response_id":%q,"input":"branch"}`, id))
	seen := up.Requests()
	const want = "user before|user one|assistant re: one|user two|assistant re: two|user branch"
	if got := strings.Join(Prompt(d.T, seen[len(seen)-1]), "|"); got != want {
		d.T.Errorf("the branch saw %s", got)
	}
}

// Calls returns the tool calls of an answer, whose pieces clients join by their index.
func (a Answer) Calls() []Call {
	type piece struct {
		Index    int
		Function struct{ Name, Arguments string }
	}
	type said struct {
		ToolCalls []piece `json:"tool_calls"`
	}
	var out []Call
	for line := range strings.Lines(string(a.Body)) {
		var c struct {
			Choices []struct{ Message, Delta said }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &c) != nil || len(c.Choices) == 0 {
			continue // an empty line, the usage or the end mark
		}
		for _, p := range c.Choices[0].Message.ToolCalls {
			out = append(out, Use(p.Function.Name, p.Function.Arguments))
		}
		for _, p := range c.Choices[0].Delta.ToolCalls {
			if p.Index == len(out) {
				out = append(out, Call{})
			}
			out[p.Index].Name += p.Function.Name
			out[p.Index].Arguments += p.Function.Arguments
		}
	}
	return out
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

// TurnIsApart asks for the turn of a session as a response, a conversation and an item, and expects the answers
// about ids that do not exist.
func (d Documented) TurnIsApart(key, run, session, part, output string) {
	d.T.Helper()
	for _, request := range []string{
		"GET /v1/responses/resp_RUN", "GET /v1/responses/resp_RUN?stream=true", "GET /v1/responses/resp_RUN/input_items", "POST /v1/responses/resp_RUN/cancel", "DELETE /v1/responses/resp_RUN",
		`POST /v1/responses {"model":"m","input":"x","previous_response_id":"resp_RUN"}`,
		`POST /v1/responses {"model":"m","input":"x","background":true,"previous_response_id":"resp_RUN"}`,
		`POST /v1/responses/input_tokens {"model":"m","input":"x","previous_response_id":"resp_RUN"}`,
		`POST /v1/responses/compact {"model":"m","previous_response_id":"resp_RUN"}`,
		`POST /v1/responses {"model":"m","input":"x","conversation":"sess_SESSION"}`,
		`POST /v1/responses {"model":"m","input":[{"type":"item_reference","id":"ITEM"}]}`,
		"GET /v1/conversations/sess_SESSION", "GET /v1/conversations/sess_SESSION/items", "DELETE /v1/conversations/sess_SESSION", "GET /v1/conversations/items_SESSION",
		`POST /v1/conversations/sess_SESSION {"metadata":{}}`, `POST /v1/conversations/sess_SESSION/items {"items":[{"type":"message","role":"user","content":"x"}]}`,
		"GET /v1/conversations/sess_SESSION/items/ITEM", "DELETE /v1/conversations/sess_SESSION/items/ITEM",
		"GET /v1/runs/resp_RUN", "GET /v1/runs/sess_SESSION", "POST /v1/runs/resp_RUN/cancel",
	} {
		ask := func(run, session string) string {
			item := fmt.Sprintf(strings.ReplaceAll(output, "%s", "%[1]s"), run+part)
			filled := strings.NewReplacer("RUN", run+part, "SESSION", session, "ITEM", item).Replace(request)
			method, rest, _ := strings.Cut(filled, " ")
			path, body, _ := strings.Cut(rest, " ")
			a := d.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+key)
			return fmt.Sprint(a.Status, " ", strings.NewReplacer(run, "RUN", session, "SESSION").Replace(string(a.Body)))
		}
		changed := func(id string) string {
			if last := id[len(id)-1:]; last == "0" {
				return id[:len(id)-1] + "1"
			}
			return id[:len(id)-1] + "0"
		}
		if got, want := ask(run, session), ask(changed(run), changed(session)); got != want || strings.HasPrefix(got, "2") {
			d.T.Errorf("%s with %s: %s\nand of a missing id: %s", request, key, got, want)
		}
	}
}

// Two master keys, as openssl rand -base64 32 makes them.
const (
	MasterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="
	OtherKey  = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
)

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

// Keep adds a server over the API that gets the secret gh as a bearer token.
func (d Documented) Keep(name, url, key string) {
	d.T.Helper()
	d.Do("POST", "/api/mcp-servers", key, fmt.Sprintf(`{"name":%q,"url":%q,"headers":{"Authorization":"Bearer secret:gh"}}`, name, url), 201)
}

func (d Documented) Status(server, key string) (state, why string) {
	d.T.Helper()
	s := d.Do("GET", "/api/mcp-servers/"+server, key, "", 200)["status"].(map[string]any)
	why, _ = s["error"].(string)
	return s["state"].(string), why
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
