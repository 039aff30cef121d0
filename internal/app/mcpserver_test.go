package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/tool"
)

// bearing adds a key to requests.
type bearing struct {
	key  string
	next http.RoundTripper
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.next.RoundTrip(r)
}

// outside is an MCP client of the official SDK.
type outside struct {
	*mcp.ClientSession
	t       *testing.T
	changed atomic.Int32 // how often it heard that the list of tools has changed
	heard   chan struct{}
}

// connect connects a client to /mcp with a key. version "" is the newest that the SDK knows.
func (g *gateway) connect(key, version string) *outside {
	g.t.Helper()
	c, err := g.tryConnect(key, version)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

func (g *gateway) tryConnect(key, version string) (*outside, error) {
	o := &outside{t: g.t, heard: make(chan struct{}, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			o.changed.Add(1)
			o.heard <- struct{}{}
		},
	})
	transport := &mcp.StreamableClientTransport{
		Endpoint: g.URL + "/mcp", HTTPClient: &http.Client{Transport: bearing{key, g.client.Transport}}, MaxRetries: -1,
	}
	var options *mcp.ClientSessionOptions
	if version != "" {
		options = &mcp.ClientSessionOptions{ProtocolVersion: version}
	}
	session, err := client.Connect(g.t.Context(), transport, options)
	if err != nil {
		return nil, err
	}
	o.ClientSession = session
	g.t.Cleanup(func() { _ = session.Close() })
	return o, nil
}

// names lists the tools.
func (o *outside) names() (out []string) {
	o.t.Helper()
	list, err := o.ListTools(o.t.Context(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, one := range list.Tools {
		out = append(out, one.Name)
	}
	return out
}

// do calls a tool and returns the text of its result.
func (o *outside) do(name, arguments string) (text string, isError bool) {
	o.t.Helper()
	result, err := o.CallTool(o.t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, c := range result.Content {
		text += c.(*mcp.TextContent).Text
	}
	return text, result.IsError
}

// code calls a tool and returns the code of the JSON-RPC error.
func (o *outside) code(name string) int64 {
	o.t.Helper()
	_, err := o.CallTool(o.t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)})
	return codeOf(o.t, err)
}

func codeOf(t *testing.T, err error) int64 {
	t.Helper()
	rpc, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		t.Fatalf("the error is %v, not one of JSON-RPC", err)
	}
	return rpc.Code
}

// toolSite is a gateway with an MCP server whose tools are look (which reads) and write.
func toolSite(t *testing.T, runtime string, more ...string) (*gateway, *mcpServer) {
	t.Helper()
	tools := newMCP(t, map[string]handler{"look": echo, "write": echo}, "look")
	up := newUpstream(t, saysChat("hello"))
	return MustRun(t, site{upstream: up.URL, runtime: runtime, servers: []string{server("tools", tools.URL, append(more, "trust: true")...)}}.yaml()), tools
}

// Clients of every revision list and call the tools of the org. // D26
func TestAClientOfTheOfficialSDKListsAndCallsTheToolsOfAnOrg(t *testing.T) {
	noLeaks(t)
	g, tools := toolSite(t, "")
	for _, version := range []string{"", "2025-11-25", "2025-06-18"} {
		c := g.connect("member-key", version)
		if got := c.names(); !slices.Equal(got, []string{"look", "write"}) {
			t.Fatalf("%s: the tools are %v", version, got)
		}
		if text, isError := c.do("write", `{"n":7}`); text != `{"n":7}` || isError {
			t.Errorf("%s: the result is %q", version, text)
		}
		if code := c.code("none"); code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: an unknown tool is answered with %d", version, code)
		}
		if text, isError := c.do("look", `{"n":"x"}`); !isError || !strings.Contains(text, "invalid_arguments") {
			t.Errorf("%s: invalid arguments are answered with %q", version, text)
		}
		_ = c.Close()
	}
	if n := len(tools.of("tools/call")); n != 3 {
		t.Errorf("the server got %d calls, want 3", n)
	}
}

// makeKey creates a key over the management API and returns it with its secret.
func (d documented) makeKey(settings string) (id, secret string) {
	d.t.Helper()
	made := d.do("POST", "/api/keys", "owner-key", settings, http.StatusCreated)
	return made["id"].(string), made["key"].(string)
}

// A token lists and calls what its role and its lists allow, and nothing else of the API. // K10 D26
func TestATokenIsLimitedToItsScope(t *testing.T) {
	noLeaks(t)
	g, tools := toolSite(t, "")
	d := manage(g)
	_, globbed := d.makeKey(`{"name":"globbed","role":"tools","tools":["wr*"]}`)
	_, reads := d.makeKey(`{"name":"reads","role":"tools","read_only":true}`)
	_, elsewhere := d.makeKey(`{"name":"elsewhere","role":"tools","servers":[]}`)
	for _, c := range []struct {
		key     string
		want    []string
		outside string
	}{
		{"owner-key", []string{"look", "write"}, "none"}, {"admin-key", []string{"look", "write"}, "none"},
		{globbed, []string{"write"}, "look"}, {reads, []string{"look"}, "write"}, {elsewhere, nil, "look"},
	} {
		for _, version := range []string{"", "2025-06-18"} {
			o := g.connect(c.key, version)
			if got := o.names(); !slices.Equal(got, c.want) {
				t.Errorf("%s: the tools are %v, want %v", c.key, got, c.want)
			}
			if code := o.code(c.outside); code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: a call of %s is answered with %d", c.key, c.outside, code)
			}
		}
	}
	if calls := tools.of("tools/call"); len(calls) > 0 {
		t.Errorf("the server got %d calls out of scope", len(calls))
	}
	for _, key := range []string{"approver-key", "reader-key"} {
		if _, err := g.tryConnect(key, ""); err == nil {
			t.Errorf("%s may connect", key)
		}
	}
	for _, path := range []string{"GET /api/keys", "GET /v1/runs", "POST /v1/chat/completions", "GET /v1/approvals"} {
		method, path, _ := strings.Cut(path, " ")
		if a := g.send(method, path, strings.NewReader(`{}`), "Authorization", "Bearer "+globbed); a.status != http.StatusForbidden {
			t.Errorf("a token gets %d for %s", a.status, path)
		}
	}
}

// rpcAnswer is an answer to a JSON-RPC message.
type rpcAnswer struct {
	ID    json.RawMessage
	Error struct {
		Code    int64
		Message string
		Data    struct {
			Reason string
			Wait   int `json:"retry_after_secs"`
		}
	}
}

// rpc sends a message to /mcp. Header fields come in pairs.
func (g *gateway) rpc(message string, fields ...string) (answer, rpcAnswer) {
	g.t.Helper()
	a := g.send("POST", "/mcp", strings.NewReader(message), append([]string{"Accept", "application/json, text/event-stream"}, fields...)...)
	var r rpcAnswer
	_ = json.Unmarshal(a.body, &r)
	return a, r
}

const initializeMessage = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// initialize begins a session without the SDK and returns its id.
func (g *gateway) initialize(key string) string {
	g.t.Helper()
	a, _ := g.rpc(initializeMessage, "Authorization", "Bearer "+key)
	if a.status != http.StatusOK {
		g.t.Fatalf("initialize is answered with %d %s", a.status, a.body)
	}
	return a.header.Get("Mcp-Session-Id")
}

// Errors are those of JSON-RPC, with the status of HTTP. // D26
func TestErrorsOfTheMCPServer(t *testing.T) {
	noLeaks(t)
	g, _ := toolSite(t, "requests_per_minute: 6, burst: 60") // so few that a slow machine reaches the limit, too
	session := g.initialize("member-key")
	in := []string{"Authorization", "Bearer member-key", "Mcp-Session-Id", session}
	list := `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	for _, c := range []struct {
		name, message string
		fields        []string
		status        int
		code          int64
	}{
		{"no key", list, []string{"Authorization", ""}, 401, -32001},
		{"unknown key", list, []string{"Authorization", "Bearer nobody"}, 401, -32001},
		{"role", list, []string{"Authorization", "Bearer reader-key"}, 403, -32001},
		{"no session", list, nil, 400, -32600},
		{"session of another key", list, []string{"Mcp-Session-Id", session}, 404, -32600},
		{"unknown session", list, []string{"Mcp-Session-Id", "mcp_x"}, 404, -32600},
		{"not JSON", `{`, in, 400, -32700},
		{"batch", "[" + list + "]", in, 400, -32600},
		{"no message", `{"id":1}`, in, 400, -32600},
		{"unknown method", `{"jsonrpc":"2.0","id":7,"method":"tools/nothing"}`, in, 400, -32601},
		{"revision", list, append(in, "Mcp-Protocol-Version", "2024-11-05"), 400, -32600},
		{"origin", list, append(in, "Origin", "https://elsewhere.example"), 403, -32001},
	} {
		a, r := g.rpc(c.message, c.fields...)
		if a.status != c.status || r.Error.Code != c.code || r.Error.Message == "" {
			t.Errorf("%s: answered with %d %s, want %d and the code %d", c.name, a.status, a.body, c.status, c.code)
		}
	}
	if a, _ := g.rpc(list, append(in, "Mcp-Protocol-Version", "2025-03-26")...); a.status != http.StatusOK {
		t.Errorf("the revision that a missing header means is answered with %d %s", a.status, a.body)
	}
	if a := g.send("GET", "/mcp", nil, append(in, "Accept", "text/event-stream", "Origin", "https://elsewhere.example")...); a.status != http.StatusForbidden {
		t.Errorf("a stream for a page of another site is answered with %d", a.status)
	}
	for _, method := range []string{"prompts/list", "resources/list"} {
		a, _ := g.rpc(`{"jsonrpc":"2.0","id":7,"method":"`+method+`"}`, in...)
		if !strings.Contains(string(a.body), "-32601") {
			t.Errorf("%s is answered with %s", method, a.body)
		}
	}
	limited := false
	for range 100 {
		a, r := g.rpc(list, in...)
		if limited = a.status == http.StatusTooManyRequests; limited {
			if r.Error.Code != -32003 || r.Error.Data.Wait < 1 || a.header.Get("Retry-After") == "" {
				t.Errorf("over the rate limit the answer is %s", a.body)
			}
			break
		}
	}
	if !limited {
		t.Error("the rate limit of the org does not hold")
	}
}

// The answer is of a type that the client accepts, and its id is that of the request. A notification gets none. // D26
func TestTheMCPServerAnswersInTheFormOfTheClient(t *testing.T) {
	noLeaks(t)
	g, tools := toolSite(t, "")
	first := []string{"Authorization", "Bearer member-key", "Accept", "application/json"}
	for _, params := range []string{`{"capabilities":[]}`, `{"capabilities":{"roots":[]}}`, `{"protocolVersion":7,"clientInfo":[]}`, `[]`} {
		a, r := g.rpc(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+params+`}`, first...)
		if a.status != http.StatusOK || r.Error.Message != "" || !strings.Contains(string(a.body), `"serverInfo"`) {
			t.Errorf("initialize with %s is answered with %d %s", params, a.status, a.body)
		}
	}
	in := []string{"Authorization", "Bearer member-key", "Mcp-Session-Id", g.initialize("member-key")}
	for _, c := range []struct {
		accept, message  string
		status           int
		contentType, has string
	}{
		{"application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 200, "application/json", `"tools":[`},
		{"application/json", `{"jsonrpc":"2.0","id":1e308,"method":"ping"}`, 200, "application/json", `"id":1e308,"result":{}}`},
		{"text/event-stream", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, 200, "text/event-stream", `"id":9007199254740993,`},
		{"", `{"jsonrpc":"2.0","id":1.5,"method":"tools/nothing"}`, 400, "application/json", `"id":1.5,`},
		{"*/*", "\ufeff" + `{"jsonrpc":"2.0","id":-5,"method":"ping"}`, 200, "text/event-stream", `"id":-5,`},
		{"text/html", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400, "application/json", "Accept"},
		{"application/json", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`, 400, "application/json", "Accept"},
		{"application/json", `{"jsonrpc":"2.0","method":"notifications/vendor/x"}`, 202, "", ""},
		{"*/*", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, 202, "", ""},
		{"application/json", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"look","arguments":null}}`,
			200, "application/json", `"text":`},
	} {
		a, _ := g.rpc(c.message, append(in, "Accept", c.accept)...)
		kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
		if a.status != c.status || kind != c.contentType || !strings.Contains(string(a.body), c.has) || c.has == "" && len(a.body) > 0 {
			t.Errorf("%q with Accept %q is answered with %d %s %s", c.message, c.accept, a.status, kind, a.body)
		}
	}
	if n := len(tools.of("tools/call")); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
}

// Over the rate limit of a tool the result is an error that models can read. Of 60 calls in one moment 50 are
// executed, and after 100 ms two more. // D27
func TestACallOverTheRateLimitOfItsToolIsAnErrorResult(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"look": echo}, "look")
	var later atomic.Int64
	begun := time.Now()
	g := mustRunWith(t, t.TempDir(), site{upstream: newUpstream(t, saysChat("hello")).URL, servers: []string{server("tools", tools.URL, "trust: true")}}.yaml(), environment(),
		app.Options{RateClock: func() time.Time { return begun.Add(time.Duration(later.Load())) }})
	c := g.connect("member-key", "")
	call := func(times int) (refused int) {
		for range times {
			result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "look", Arguments: json.RawMessage(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			if !result.IsError {
				continue
			}
			refused++
			if kind := result.StructuredContent.(map[string]any)["kind"]; kind != "rate_limited" {
				t.Errorf("the call is refused with %v", kind)
			}
		}
		return refused
	}
	if n := call(60); n != 10 || len(tools.of("tools/call")) != 50 {
		t.Errorf("of 60 calls %d were refused and %d executed", n, len(tools.of("tools/call")))
	}
	if text, isError := g.connect("owner-key", "").do("look", `{"n":1}`); isError {
		t.Errorf("another key is refused, too: %s", text)
	}
	later.Store(int64(100 * time.Millisecond))
	if n := call(4); n != 2 || len(tools.of("tools/call")) != 53 {
		t.Errorf("100 ms later %d of 4 calls were refused, and %d executed in all", n, len(tools.of("tools/call")))
	}
}

// A used-up budget refuses calls, and so do budgets that cannot be read.
func TestACallBeyondTheQuotaIsAnErrorResult(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"write": echo})
	up := newUpstream(t, counts(990, 20))
	g := MustRun(t, site{upstream: up.URL, runtime: "budgets: [{scope: org, period: day, tokens: 1000}]", servers: []string{server("tools", tools.URL)}}.yaml())
	c := g.connect("member-key", "")
	if text, isError := c.do("write", `{}`); isError {
		t.Fatal(text)
	}
	g.post(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`)
	eventually(t, "the budget is used up", func() bool {
		text, isError := c.do("write", `{}`)
		return isError && strings.Contains(text, `"quota_exceeded"`)
	})
	before := len(tools.of("tools/call"))
	if text, _ := c.do("write", `{}`); !strings.Contains(text, "quota_exceeded") || len(tools.of("tools/call")) != before {
		t.Errorf("a call beyond the quota is answered with %s", text)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); pollPause() {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Nothing that needs an approval runs without one, and the refusal says how to get it.
func TestAToolThatNeedsAnApprovalIsRefused(t *testing.T) {
	noLeaks(t)
	g, tools := toolSite(t, "", "require_approval: writes")
	c := g.connect("owner-key", "")
	if text, isError := c.do("write", `{}`); !isError || !strings.Contains(text, `"approval_required"`) || !strings.Contains(text, "/v1/responses") {
		t.Errorf("the answer is %q", text)
	}
	if text, isError := c.do("look", `{}`); isError {
		t.Errorf("a tool without approval is refused: %s", text)
	}
	if calls := tools.of("tools/call"); len(calls) != 1 {
		t.Errorf("the server got %d calls, want 1", len(calls))
	}
	awaitAudit(t, g, "write denied", "look ok")
}

// auditOf returns tool and status of the calls over /mcp in the audit log, earliest first.
func auditOf(t *testing.T, g *gateway) (out []string) {
	t.Helper()
	var page struct {
		Data []struct {
			Body struct{ Tool, Status string }
		}
	}
	a := g.send("GET", "/api/audit?kind=audit_log.mcp.tool_call&limit=100", nil)
	if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
		t.Fatal(a.status, string(a.body), err)
	}
	for _, row := range page.Data {
		out = append(out, row.Body.Tool+" "+row.Body.Status)
	}
	return out
}

// awaitAudit waits until the audit log has exactly these calls.
func awaitAudit(t *testing.T, g *gateway, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(patience); !slices.Equal(got, want); got = auditOf(t, g) {
		if time.Now().After(end) {
			t.Fatalf("the audit log says %v, want %v", got, want)
		}
		pollPause()
	}
}

// A call that may write is in the audit log before it is executed. // L13
func TestAWriteIsAuditedBeforeItIsExecuted(t *testing.T) {
	noLeaks(t)
	var g *gateway
	var during []string
	tools := newMCP(t, map[string]handler{"look": echo, "write": func(_ context.Context, arguments string) (string, error) {
		during = auditOf(t, g)
		return arguments, nil
	}}, "look")
	g = MustRun(t, site{upstream: newUpstream(t, saysChat("hello")).URL, servers: []string{server("tools", tools.URL, "trust: true")}}.yaml())
	c := g.connect("member-key", "2025-06-18")
	c.do("look", `{}`)
	c.do("write", `{}`)
	if want := []string{"look ok", "write started"}; !slices.Equal(during, want) {
		t.Errorf("while the tool writes, the audit log says %v, want %v", during, want)
	}
	awaitAudit(t, g, "look ok", "write started", "write ok")
}

// A session ends with its key and with DELETE, and it belongs to one key of one org.
func TestASessionEndsWithItsKey(t *testing.T) {
	noLeaks(t)
	g, _ := toolSite(t, "")
	d := manage(g)
	id, secret := d.makeKey(`{"name":"short","role":"tools"}`)
	session := g.initialize(secret)
	stream := g.request(t.Context(), "GET", "/mcp", nil, "Authorization", "Bearer "+secret, "Mcp-Session-Id", session, "Accept", "text/event-stream")
	resp, err := g.client.Do(stream)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	d.do("DELETE", "/api/keys/"+id, "owner-key", "", http.StatusOK)
	_, _ = io.ReadAll(resp.Body) // it ends
	if a, r := g.rpc(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Authorization", "Bearer "+secret, "Mcp-Session-Id", session); a.status != 401 || r.Error.Code != -32001 {
		t.Errorf("after the revocation the answer is %d %s", a.status, a.body)
	}
	own := g.initialize("member-key")
	if a := g.send("DELETE", "/mcp", nil, "Mcp-Session-Id", own); a.status != http.StatusNotFound {
		t.Errorf("another key may end a session: %d", a.status)
	}
	if a := g.send("DELETE", "/mcp", nil, "Authorization", "Bearer member-key", "Mcp-Session-Id", own); a.status != http.StatusNoContent {
		t.Errorf("DELETE is answered with %d %s", a.status, a.body)
	}
	if a, _ := g.rpc(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", "Bearer member-key", "Mcp-Session-Id", own); a.status != http.StatusNotFound {
		t.Errorf("a session that has ended answers with %d", a.status)
	}
}

// Of 100 sessions only those hear of a change that see the tool. // D28
func TestOnlySessionsWhoseListHasChangedHearOfIt(t *testing.T) {
	noLeaks(t)
	g, tools := toolSite(t, "")
	d := manage(g)
	_, other := d.makeKey(`{"name":"other","role":"tools","tools":["look"]}`)
	var see, rest []*outside
	for i := range 100 {
		version := []string{"", "2025-06-18"}[i%2]
		if i%10 < 3 {
			see = append(see, g.connect("member-key", version))
		} else {
			rest = append(rest, g.connect(other, version))
		}
	}
	for _, c := range slices.Concat(see, rest) {
		c.names()
	}
	tools.add("grown", echo, false)
	for _, c := range see {
		select {
		case <-c.heard:
		case <-time.After(patience):
			t.Fatal("a session that sees the new tool does not hear of it")
		}
		if got := c.names(); !slices.Contains(got, "grown") {
			t.Errorf("the tools are %v", got)
		}
	}
	for _, c := range rest {
		if c.changed.Load() > 0 {
			t.Fatal("a session that does not see the new tool hears of it")
		}
	}
}

// Two orgs see their own tools, and not the sessions of each other. // K07
func TestSessionsOfTwoOrgsAreSeparate(t *testing.T) {
	noLeaks(t)
	mine, theirs := newMCP(t, map[string]handler{"mine": echo}), newMCP(t, map[string]handler{"theirs": echo})
	up := newUpstream(t, saysChat("hello"))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("tools", mine.URL)}}.yaml()+fmt.Sprintf(`
  - id: p
    features: [mcp_outbound]
    keys: [{name: a, key: other-org-key, role: owner}]
    mcp_servers: [{%s}]
`, server("tools", theirs.URL)))
	a, b := g.connect("member-key", ""), g.connect("other-org-key", "")
	if !slices.Equal(a.names(), []string{"mine"}) || !slices.Equal(b.names(), []string{"theirs"}) {
		t.Errorf("the orgs see %v and %v", a.names(), b.names())
	}
	if code := b.code("mine"); code != jsonrpc.CodeInvalidParams {
		t.Errorf("a tool of the other org is answered with %d", code)
	}
	session := g.initialize("member-key")
	for _, method := range []string{"POST", "GET", "DELETE"} {
		got := g.send(method, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), "Authorization", "Bearer other-org-key",
			"Mcp-Session-Id", session, "Accept", "application/json, text/event-stream")
		if got.status != http.StatusNotFound {
			t.Errorf("%s with the session of another org is answered with %d", method, got.status)
		}
	}
}

// ownTools are the tools of a program that the gateway is a part of.
type ownTools []tool.Tool

func (o ownTools) List(context.Context) ([]tool.Tool, error) { return o, nil }

// hello is such a tool. It greets its caller.
type hello struct{ reads bool }

func (h hello) Definition() tool.Definition {
	return tool.Definition{Name: map[bool]string{true: "greet", false: "meet"}[h.reads], InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (h hello) Class() tool.Class {
	return map[bool]tool.Class{true: tool.Read, false: tool.Once}[h.reads]
}

func (hello) Call(ctx context.Context, _ tool.Call) (tool.Result, error) {
	return tool.Text("hello " + tool.From(ctx).Caller.ID), nil
}

// Tools of a program that embeds the gateway are at /mcp, within what keys may use.
func TestToolsOfTheProgramAreListedAndCalled(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"look": echo})
	yaml := site{upstream: newUpstream(t, saysChat("hello")).URL, servers: []string{server("tools", tools.URL)}}.yaml()
	g := mustRunWith(t, t.TempDir(), yaml, environment(), app.Options{Tools: ownTools{hello{true}, hello{false}}})
	d := manage(g)
	_, reads := d.makeKey(`{"name":"reads","role":"tools","read_only":true}`)
	_, bound := d.makeKey(`{"name":"bound","role":"tools","servers":["tools"]}`)
	for key, want := range map[string][]string{"member-key": {"look", "greet", "meet"}, reads: {"greet"}, bound: {"look"}} {
		if got := g.connect(key, "").names(); !slices.Equal(got, want) {
			t.Errorf("%s: the tools are %v, want %v", key, got, want)
		}
	}
	if text, isError := g.connect("member-key", "").do("meet", `{}`); text != "hello c" && !strings.HasPrefix(text, "hello ") || isError {
		t.Errorf("the tool answers %q", text)
	}
}

// A call ends when its client leaves, its token is revoked, or its session or the gateway ends. // O01
func TestACallEndsWithItsClient(t *testing.T) {
	for name, end := range map[string]func(d documented, leave func(), id, secret, session string){
		"the client leaves":    func(_ documented, leave func(), _, _, _ string) { leave() },
		"the token is revoked": func(d documented, _ func(), id, _, _ string) { d.do("DELETE", "/api/keys/"+id, "owner-key", "", 200) },
		"the session ends": func(d documented, _ func(), _, secret, session string) {
			d.send("DELETE", "/mcp", nil, "Authorization", "Bearer "+secret, "Mcp-Session-Id", session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			entered, left := make(chan struct{}), make(chan struct{})
			tools := newMCP(t, map[string]handler{"wait": func(ctx context.Context, _ string) (string, error) {
				close(entered)
				<-ctx.Done()
				close(left)
				return "", ctx.Err()
			}})
			d := manage(MustRun(t, site{upstream: newUpstream(t, saysChat("hello")).URL, servers: []string{server("tools", tools.URL)}}.yaml()))
			id, secret := d.makeKey(`{"name":"editor","role":"tools"}`)
			session := d.initialize(secret)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := d.request(ctx, "POST", "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}`),
				"Authorization", "Bearer "+secret, "Mcp-Session-Id", session, "Accept", "application/json, text/event-stream")
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := d.client.Do(r); err == nil {
					_, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
			}()
			<-entered
			end(d, leave, id, secret, session)
			<-left
			<-done
			awaitAudit(t, d.gateway, "wait started", "wait unknown")
		})
	}
}

// A deleted org takes its sessions along, and a stop of the gateway ends open streams at once.
func TestStreamsEndWithTheOrgAndWithTheGateway(t *testing.T) {
	noLeaks(t)
	yaml := site{upstream: newUpstream(t, saysChat("hello")).URL, servers: []string{server("tools", newMCP(t, map[string]handler{"look": echo}).URL)}}.withVault()
	d := manage(MustRun(t, yaml))
	d.do("POST", "/api/orgs", "operator-key", `{"id":"short","features":["mcp_outbound"]}`, http.StatusCreated)
	key := d.do("POST", "/api/orgs/short/keys", "operator-key", `{"name":"k","role":"tools"}`, http.StatusCreated)["key"].(string)
	ended := func(key string) <-chan struct{} {
		session, end := d.initialize(key), make(chan struct{})
		resp, err := d.client.Do(d.request(t.Context(), "GET", "/mcp", nil, "Authorization", "Bearer "+key, "Mcp-Session-Id", session, "Accept", "text/event-stream"))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		go func() {
			defer close(end)
			_, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}()
		return end
	}
	theirs, mine := ended(key), ended("member-key")
	d.do("DELETE", "/api/orgs/short", "operator-key", "", http.StatusOK)
	<-theirs
	select {
	case <-mine:
		t.Fatal("a stream of another org has ended")
	default:
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	<-mine
}

// The price of a tool counts in budgets and in the usage of the token, as in a run.
func TestACallOverMCPCostsThePriceOfItsTool(t *testing.T) {
	noLeaks(t)
	g, tools := toolSite(t, "max_run_cost_usd: 0.5, budgets: [{scope: org, period: day, usd: 1}], unpriced_tools: refuse", "tool_prices_usd: {write: 0.4}")
	c := g.connect("member-key", "")
	for range 2 {
		if text, isError := c.do("write", `{}`); isError {
			t.Fatal(text)
		}
	}
	if text, _ := c.do("write", `{}`); !strings.Contains(text, "quota_exceeded") {
		t.Errorf("a call that the budget has no room for is answered with %s", text)
	}
	if text, isError := c.do("look", `{}`); !isError || !strings.Contains(text, "price") {
		t.Errorf("a tool without a price is answered with %s", text)
	}
	if n := len(tools.of("tools/call")); n != 2 {
		t.Errorf("the server got %d calls, want 2", n)
	}
	eventually(t, "the usage has both calls", func() bool {
		return strings.Contains(string(g.send("GET", "/api/usage?by=key", nil).body), `"cost_usd":0.8,"tool_cost_usd":0.8`)
	})
}
