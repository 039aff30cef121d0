package mcpserver_test

import (
	"context"
	"encoding/json"
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
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/tool"
)

// toolSite is a gateway with an MCP server whose tools are look (which reads) and write.
func toolSite(t *testing.T, runtime string, more ...string) (*Gateway, *MCPServer) {
	t.Helper()
	tools := NewMCP(t, map[string]Handler{"look": Echo, "write": Echo}, "look")
	up := NewUpstream(t, SaysChat("hello"))
	return MustRun(t, Site{Upstream: up.URL, Runtime: runtime, Servers: []string{Server("tools", tools.URL, append(more, "trust: true")...)}}.Yaml()), tools
}

// Clients of every revision list and call the tools of the org. // D26
func TestAClientOfTheOfficialSDKListsAndCallsTheToolsOfAnOrg(t *testing.T) {
	NoLeaks(t)
	g, tools := toolSite(t, "")
	for _, version := range []string{"", "2025-11-25", "2025-06-18"} {
		c := g.Connect("member-key", version)
		if got := c.Names(); !slices.Equal(got, []string{"look", "write"}) {
			t.Fatalf("%s: the tools are %v", version, got)
		}
		if text, isError := c.Do("write", `{"n":7}`); text != `{"n":7}` || isError {
			t.Errorf("%s: the result is %q", version, text)
		}
		if code := c.Code("none"); code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: an unknown tool is answered with %d", version, code)
		}
		if text, isError := c.Do("look", `{"n":"x"}`); !isError || !strings.Contains(text, "invalid_arguments") {
			t.Errorf("%s: invalid arguments are answered with %q", version, text)
		}
		_ = c.Close()
	}
	if n := len(tools.Of("tools/call")); n != 3 {
		t.Errorf("the server got %d calls, want 3", n)
	}
}

// A token lists and calls what its role and its lists allow, and nothing else of the API. // K10 D26
func TestATokenIsLimitedToItsScope(t *testing.T) {
	NoLeaks(t)
	g, tools := toolSite(t, "")
	d := Manage(g)
	_, globbed := d.MakeKey(`{"name":"globbed","role":"tools","tools":["wr*"]}`)
	_, reads := d.MakeKey(`{"name":"reads","role":"tools","read_only":true}`)
	_, elsewhere := d.MakeKey(`{"name":"elsewhere","role":"tools","servers":[]}`)
	for _, c := range []struct {
		key     string
		want    []string
		outside string
	}{
		{"owner-key", []string{"look", "write"}, "none"}, {"admin-key", []string{"look", "write"}, "none"},
		{globbed, []string{"write"}, "look"}, {reads, []string{"look"}, "write"}, {elsewhere, nil, "look"},
	} {
		for _, version := range []string{"", "2025-06-18"} {
			o := g.Connect(c.key, version)
			if got := o.Names(); !slices.Equal(got, c.want) {
				t.Errorf("%s: the tools are %v, want %v", c.key, got, c.want)
			}
			if code := o.Code(c.outside); code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: a call of %s is answered with %d", c.key, c.outside, code)
			}
		}
	}
	if calls := tools.Of("tools/call"); len(calls) > 0 {
		t.Errorf("the server got %d calls out of scope", len(calls))
	}
	for _, key := range []string{"approver-key", "reader-key"} {
		if _, err := g.TryConnect(key, ""); err == nil {
			t.Errorf("%s may connect", key)
		}
	}
	for _, path := range []string{"GET /api/keys", "GET /v1/runs", "POST /v1/chat/completions", "GET /v1/approvals"} {
		method, path, _ := strings.Cut(path, " ")
		if a := g.Send(method, path, strings.NewReader(`{}`), "Authorization", "Bearer "+globbed); a.Status != http.StatusForbidden {
			t.Errorf("a token gets %d for %s", a.Status, path)
		}
	}
}

// Errors are those of JSON-RPC, with the status of HTTP. // D26
func TestErrorsOfTheMCPServer(t *testing.T) {
	NoLeaks(t)
	g, _ := toolSite(t, "requests_per_minute: 6, burst: 60") // so few that a slow machine reaches the limit, too
	session := g.Initialize("member-key")
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
		a, r := g.RPC(c.message, c.fields...)
		if a.Status != c.status || r.Error.Code != c.code || r.Error.Message == "" {
			t.Errorf("%s: answered with %d %s, want %d and the code %d", c.name, a.Status, a.Body, c.status, c.code)
		}
	}
	if a, _ := g.RPC(list, append(in, "Mcp-Protocol-Version", "2025-03-26")...); a.Status != http.StatusOK {
		t.Errorf("the revision that a missing header means is answered with %d %s", a.Status, a.Body)
	}
	if a := g.Send("GET", "/mcp", nil, append(in, "Accept", "text/event-stream", "Origin", "https://elsewhere.example")...); a.Status != http.StatusForbidden {
		t.Errorf("a stream for a page of another site is answered with %d", a.Status)
	}
	for _, method := range []string{"prompts/list", "resources/list"} {
		a, _ := g.RPC(`{"jsonrpc":"2.0","id":7,"method":"`+method+`"}`, in...)
		if !strings.Contains(string(a.Body), "-32601") {
			t.Errorf("%s is answered with %s", method, a.Body)
		}
	}
	limited := false
	for range 100 {
		a, r := g.RPC(list, in...)
		if limited = a.Status == http.StatusTooManyRequests; limited {
			if r.Error.Code != -32003 || r.Error.Data.Wait < 1 || a.Header.Get("Retry-After") == "" {
				t.Errorf("over the rate limit the answer is %s", a.Body)
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
	NoLeaks(t)
	g, tools := toolSite(t, "")
	first := []string{"Authorization", "Bearer member-key", "Accept", "application/json"}
	for _, params := range []string{`{"capabilities":[]}`, `{"capabilities":{"roots":[]}}`, `{"protocolVersion":7,"clientInfo":[]}`, `[]`} {
		a, r := g.RPC(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+params+`}`, first...)
		if a.Status != http.StatusOK || r.Error.Message != "" || !strings.Contains(string(a.Body), `"serverInfo"`) {
			t.Errorf("initialize with %s is answered with %d %s", params, a.Status, a.Body)
		}
	}
	in := []string{"Authorization", "Bearer member-key", "Mcp-Session-Id", g.Initialize("member-key")}
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
		a, _ := g.RPC(c.message, append(in, "Accept", c.accept)...)
		kind, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
		if a.Status != c.status || kind != c.contentType || !strings.Contains(string(a.Body), c.has) || c.has == "" && len(a.Body) > 0 {
			t.Errorf("%q with Accept %q is answered with %d %s %s", c.message, c.accept, a.Status, kind, a.Body)
		}
	}
	if n := len(tools.Of("tools/call")); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
}

// Over the rate limit of a tool the result is an error that models can read. Of 60 calls in one moment 50 are
// executed, and after 100 ms two more. // D27
func TestACallOverTheRateLimitOfItsToolIsAnErrorResult(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	var later atomic.Int64
	begun := time.Now()
	g := MustRunWith(t, NewData(t), Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL, "trust: true")}}.Yaml(), Environment(),
		app.Options{RateClock: func() time.Time { return begun.Add(time.Duration(later.Load())) }})
	c := g.Connect("member-key", "")
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
	if n := call(60); n != 10 || len(tools.Of("tools/call")) != 50 {
		t.Errorf("of 60 calls %d were refused and %d executed", n, len(tools.Of("tools/call")))
	}
	if text, isError := g.Connect("owner-key", "").Do("look", `{"n":1}`); isError {
		t.Errorf("another key is refused, too: %s", text)
	}
	later.Store(int64(100 * time.Millisecond))
	if n := call(4); n != 2 || len(tools.Of("tools/call")) != 53 {
		t.Errorf("100 ms later %d of 4 calls were refused, and %d executed in all", n, len(tools.Of("tools/call")))
	}
}

// A used-up budget refuses calls, and so do budgets that cannot be read.
func TestACallBeyondTheQuotaIsAnErrorResult(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"write": Echo})
	up := NewUpstream(t, Counts(990, 20))
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "budgets: [{scope: org, period: day, tokens: 1000}]", Servers: []string{Server("tools", tools.URL)}}.Yaml())
	c := g.Connect("member-key", "")
	if text, isError := c.Do("write", `{}`); isError {
		t.Fatal(text)
	}
	g.Post(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`)
	Eventually(t, "the budget is used up", func() bool {
		text, isError := c.Do("write", `{}`)
		return isError && strings.Contains(text, `"quota_exceeded"`)
	})
	before := len(tools.Of("tools/call"))
	if text, _ := c.Do("write", `{}`); !strings.Contains(text, "quota_exceeded") || len(tools.Of("tools/call")) != before {
		t.Errorf("a call beyond the quota is answered with %s", text)
	}
}

// Nothing that needs an approval runs without one, and the refusal says how to get it.
func TestAToolThatNeedsAnApprovalIsRefused(t *testing.T) {
	NoLeaks(t)
	g, tools := toolSite(t, "", "require_approval: writes")
	c := g.Connect("owner-key", "")
	if text, isError := c.Do("write", `{}`); !isError || !strings.Contains(text, `"approval_required"`) || !strings.Contains(text, "/v1/responses") {
		t.Errorf("the answer is %q", text)
	}
	if text, isError := c.Do("look", `{}`); isError {
		t.Errorf("a tool without approval is refused: %s", text)
	}
	if calls := tools.Of("tools/call"); len(calls) != 1 {
		t.Errorf("the server got %d calls, want 1", len(calls))
	}
	awaitAudit(t, g, "write denied", "look ok")
}

// auditOf returns tool and status of the calls over /mcp in the audit log, earliest first.
func auditOf(t *testing.T, g *Gateway) (out []string) {
	t.Helper()
	var page struct {
		Data []struct {
			Body struct{ Tool, Status string }
		}
	}
	a := g.Send("GET", "/api/audit?kind=audit_log.mcp.tool_call&limit=100", nil)
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
		t.Fatal(a.Status, string(a.Body), err)
	}
	for _, row := range page.Data {
		out = append(out, row.Body.Tool+" "+row.Body.Status)
	}
	return out
}

// awaitAudit waits until the audit log has exactly these calls.
func awaitAudit(t *testing.T, g *Gateway, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(Patience); !slices.Equal(got, want); got = auditOf(t, g) {
		if time.Now().After(end) {
			t.Fatalf("the audit log says %v, want %v", got, want)
		}
		PollPause()
	}
}

// A call that may write is in the audit log before it is executed. // L13
func TestAWriteIsAuditedBeforeItIsExecuted(t *testing.T) {
	NoLeaks(t)
	var g *Gateway
	var during []string
	tools := NewMCP(t, map[string]Handler{"look": Echo, "write": func(_ context.Context, arguments string) (string, error) {
		during = auditOf(t, g)
		return arguments, nil
	}}, "look")
	g = MustRun(t, Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL, "trust: true")}}.Yaml())
	c := g.Connect("member-key", "2025-06-18")
	c.Do("look", `{}`)
	c.Do("write", `{}`)
	if want := []string{"look ok", "write started"}; !slices.Equal(during, want) {
		t.Errorf("while the tool writes, the audit log says %v, want %v", during, want)
	}
	awaitAudit(t, g, "look ok", "write started", "write ok")
}

// A session ends with its key and with DELETE, and it belongs to one key of one org.
func TestASessionEndsWithItsKey(t *testing.T) {
	NoLeaks(t)
	g, _ := toolSite(t, "")
	d := Manage(g)
	id, secret := d.MakeKey(`{"name":"short","role":"tools"}`)
	session := g.Initialize(secret)
	stream := g.Request(t.Context(), "GET", "/mcp", nil, "Authorization", "Bearer "+secret, "Mcp-Session-Id", session, "Accept", "text/event-stream")
	resp, err := g.Client.Do(stream)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	d.Do("DELETE", "/api/keys/"+id, "owner-key", "", http.StatusOK)
	_, _ = io.ReadAll(resp.Body) // it ends
	if a, r := g.RPC(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Authorization", "Bearer "+secret, "Mcp-Session-Id", session); a.Status != 401 || r.Error.Code != -32001 {
		t.Errorf("after the revocation the answer is %d %s", a.Status, a.Body)
	}
	own := g.Initialize("member-key")
	if a := g.Send("DELETE", "/mcp", nil, "Mcp-Session-Id", own); a.Status != http.StatusNotFound {
		t.Errorf("another key may end a session: %d", a.Status)
	}
	if a := g.Send("DELETE", "/mcp", nil, "Authorization", "Bearer member-key", "Mcp-Session-Id", own); a.Status != http.StatusNoContent {
		t.Errorf("DELETE is answered with %d %s", a.Status, a.Body)
	}
	if a, _ := g.RPC(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", "Bearer member-key", "Mcp-Session-Id", own); a.Status != http.StatusNotFound {
		t.Errorf("a session that has ended answers with %d", a.Status)
	}
}

// Of 100 sessions only those hear of a change that see the tool. // D28
func TestOnlySessionsWhoseListHasChangedHearOfIt(t *testing.T) {
	NoLeaks(t)
	g, tools := toolSite(t, "")
	d := Manage(g)
	_, other := d.MakeKey(`{"name":"other","role":"tools","tools":["look"]}`)
	var see, rest []*Outside
	for i := range 100 {
		version := []string{"", "2025-06-18"}[i%2]
		if i%10 < 3 {
			see = append(see, g.Connect("member-key", version))
		} else {
			rest = append(rest, g.Connect(other, version))
		}
	}
	for _, c := range slices.Concat(see, rest) {
		c.Names()
	}
	tools.Add("grown", Echo, false)
	for _, c := range see {
		select {
		case <-c.Heard:
		case <-time.After(Patience):
			t.Fatal("a session that sees the new tool does not hear of it")
		}
		if got := c.Names(); !slices.Contains(got, "grown") {
			t.Errorf("the tools are %v", got)
		}
	}
	for _, c := range rest {
		if c.Changed.Load() > 0 {
			t.Fatal("a session that does not see the new tool hears of it")
		}
	}
}

// Two orgs see their own tools, and not the sessions of each other. // K07
func TestSessionsOfTwoOrgsAreSeparate(t *testing.T) {
	NoLeaks(t)
	mine, theirs := NewMCP(t, map[string]Handler{"mine": Echo}), NewMCP(t, map[string]Handler{"theirs": Echo})
	up := NewUpstream(t, SaysChat("hello"))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", mine.URL)}}.Yaml()+fmt.Sprintf(`
  - id: p
    features: [mcp_outbound]
    keys: [{name: a, key: other-org-key, role: owner}]
    mcp_servers: [{%s}]
`, Server("tools", theirs.URL)))
	a, b := g.Connect("member-key", ""), g.Connect("other-org-key", "")
	if !slices.Equal(a.Names(), []string{"mine"}) || !slices.Equal(b.Names(), []string{"theirs"}) {
		t.Errorf("the orgs see %v and %v", a.Names(), b.Names())
	}
	if code := b.Code("mine"); code != jsonrpc.CodeInvalidParams {
		t.Errorf("a tool of the other org is answered with %d", code)
	}
	session := g.Initialize("member-key")
	for _, method := range []string{"POST", "GET", "DELETE"} {
		got := g.Send(method, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), "Authorization", "Bearer other-org-key",
			"Mcp-Session-Id", session, "Accept", "application/json, text/event-stream")
		if got.Status != http.StatusNotFound {
			t.Errorf("%s with the session of another org is answered with %d", method, got.Status)
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
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo})
	yaml := Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g := MustRunWith(t, NewData(t), yaml, Environment(), app.Options{Tools: ownTools{hello{true}, hello{false}}})
	d := Manage(g)
	_, reads := d.MakeKey(`{"name":"reads","role":"tools","read_only":true}`)
	_, bound := d.MakeKey(`{"name":"bound","role":"tools","servers":["tools"]}`)
	for key, want := range map[string][]string{"member-key": {"look", "greet", "meet"}, reads: {"greet"}, bound: {"look"}} {
		if got := g.Connect(key, "").Names(); !slices.Equal(got, want) {
			t.Errorf("%s: the tools are %v, want %v", key, got, want)
		}
	}
	if text, isError := g.Connect("member-key", "").Do("meet", `{}`); text != "hello c" && !strings.HasPrefix(text, "hello ") || isError {
		t.Errorf("the tool answers %q", text)
	}
}

// A call ends when its client leaves, its token is revoked, or its session or the gateway ends. // O01
func TestACallEndsWithItsClient(t *testing.T) {
	for name, end := range map[string]func(d Documented, leave func(), id, secret, session string){
		"the client leaves":    func(_ Documented, leave func(), _, _, _ string) { leave() },
		"the token is revoked": func(d Documented, _ func(), id, _, _ string) { d.Do("DELETE", "/api/keys/"+id, "owner-key", "", 200) },
		"the session ends": func(d Documented, _ func(), _, secret, session string) {
			d.Send("DELETE", "/mcp", nil, "Authorization", "Bearer "+secret, "Mcp-Session-Id", session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			entered, left := make(chan struct{}), make(chan struct{})
			tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
				close(entered)
				<-ctx.Done()
				close(left)
				return "", ctx.Err()
			}})
			d := Manage(MustRun(t, Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()))
			id, secret := d.MakeKey(`{"name":"editor","role":"tools"}`)
			session := d.Initialize(secret)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := d.Request(ctx, "POST", "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}`),
				"Authorization", "Bearer "+secret, "Mcp-Session-Id", session, "Accept", "application/json, text/event-stream")
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := d.Client.Do(r); err == nil {
					_, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
			}()
			<-entered
			end(d, leave, id, secret, session)
			<-left
			<-done
			awaitAudit(t, d.Gateway, "wait started", "wait unknown")
		})
	}
}

// A deleted org takes its sessions along, and a stop of the gateway ends open streams at once.
func TestStreamsEndWithTheOrgAndWithTheGateway(t *testing.T) {
	NoLeaks(t)
	yaml := Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", NewMCP(t, map[string]Handler{"look": Echo}).URL)}}.WithVault()
	d := Manage(MustRun(t, yaml))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"short","features":["mcp_outbound"]}`, http.StatusCreated)
	key := d.Do("POST", "/api/orgs/short/keys", "operator-key", `{"name":"k","role":"tools"}`, http.StatusCreated)["key"].(string)
	ended := func(key string) <-chan struct{} {
		session, end := d.Initialize(key), make(chan struct{})
		resp, err := d.Client.Do(d.Request(t.Context(), "GET", "/mcp", nil, "Authorization", "Bearer "+key, "Mcp-Session-Id", session, "Accept", "text/event-stream"))
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
	d.Do("DELETE", "/api/orgs/short", "operator-key", "", http.StatusOK)
	<-theirs
	select {
	case <-mine:
		t.Fatal("a stream of another org has ended")
	default:
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	<-mine
}

// The price of a tool counts in budgets and in the usage of the token, as in a run.
func TestACallOverMCPCostsThePriceOfItsTool(t *testing.T) {
	NoLeaks(t)
	g, tools := toolSite(t, "max_run_cost_usd: 0.5, budgets: [{scope: org, period: day, usd: 1}], unpriced_tools: refuse", "tool_prices_usd: {write: 0.4}")
	c := g.Connect("member-key", "")
	for range 2 {
		if text, isError := c.Do("write", `{}`); isError {
			t.Fatal(text)
		}
	}
	if text, _ := c.Do("write", `{}`); !strings.Contains(text, "quota_exceeded") {
		t.Errorf("a call that the budget has no room for is answered with %s", text)
	}
	if text, isError := c.Do("look", `{}`); !isError || !strings.Contains(text, "price") {
		t.Errorf("a tool without a price is answered with %s", text)
	}
	if n := len(tools.Of("tools/call")); n != 2 {
		t.Errorf("the server got %d calls, want 2", n)
	}
	Eventually(t, "the usage has both calls", func() bool {
		return strings.Contains(string(g.Send("GET", "/api/usage?by=key", nil).Body), `"cost_usd":0.8,"tool_cost_usd":0.8`)
	})
}
