package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

const dispatchSecret = "whsec_Q0FOQVJZLWRpc3BhdGNoLXNlY3JldC0wMDAwMDAwMA=="

// dispatching is a configuration with a tool dispatch URL. more has further lines.
func dispatching(s site, endpoint string, more ...string) string {
	return s.yaml() + fmt.Sprintf("tool_dispatch_url: %q\n", endpoint+"/tools?v=1") + strings.Join(more, "\n") + "\n"
}

// functions is a chat request with functions of these names. Each takes an order.
func functions(more string, names ...string) string {
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"About orders.","strict":true,"parameters":{"type":"object","properties":{"order":{"type":"integer"}},"required":["order"],"additionalProperties":false}}}`, name)
	}
	return `{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[` + strings.Join(tools, ",") + `]` + more + `}`
}

// calling asks for the calls until it is told of results, and then says done.
func calling(calls ...call) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(calls...).write(w)
	}
}

// The dispatch URL executes the functions of requests, on chat and Responses, also in an org without MCP servers. It
// gets the name and the arguments as the model wrote them. What it answers is what the model gets. // E12 K14 A07
func TestTheToolDispatchURLExecutesFunctionsOfRequests(t *testing.T) {
	noLeaks(t)
	for name, c := range map[string]struct {
		status       int
		answer, told string
	}{
		"a string":               {200, `"sent \u00e9"`, "sent é"},
		"an object":              {200, ` {"content": "sent", "more": 1} `, "sent"},
		"plain text":             {200, `sent`, "sent"},
		"other JSON":             {200, `{"state":"sent"}`, `{"state":"sent"}`},
		"an empty string":        {200, `""`, "[no content: the endpoint answered with 200 OK]"},
		"no content":             {204, ``, "[no content: the endpoint answered with 204 No Content]"},
		"a failure":              {500, `"the shop is closed"`, "Error: the endpoint answered with 500 Internal Server Error: the shop is closed"},
		"a failure as an object": {422, `{"content":"no such order"}`, "Error: the endpoint answered with 422 Unprocessable Entity: no such order"},
		"a long string":          {200, quote(strings.Repeat("é", 11_000)), strings.Repeat("é", 10_000) + "\n\n[Truncated: the response is longer than 10000 characters]"},
	} {
		t.Run(name, func(t *testing.T) {
			shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			})
			up := newUpstream(t, calling(call{"status", `{"order": 7}`}))
			g := MustRun(t, dispatching(site{upstream: up.URL, feature: "none"}, shop.URL))
			for path, body := range map[string]string{
				"/v1/chat/completions": functions("", "status"),
				"/v1/responses":        `{"model":"m","input":"go","tools":[{"type":"function","name":"status","parameters":{"type":"object","properties":{"order":{"type":"integer"}}}}]}`,
			} {
				before := len(up.requests())
				if a := g.send("POST", path, strings.NewReader(body)); a.status != 200 || !strings.Contains(string(a.body), "done") {
					t.Fatalf("%s answered %d: %s", path, a.status, a.body)
				}
				if path == chatPath && strings.Count(string(g.send("POST", path, strings.NewReader(functions(`,"stream":true`, "status"))).body), "event: agentic_tool_call_progress") != 2 {
					t.Error("a stream has no events of progress")
				}
				if told := up.requests()[before+1].results(t); len(told) != 1 || told[0] != c.told {
					t.Errorf("%s: the model is told %.200q", path, told)
				}
			}
			got, _ := shop.all()
			for _, one := range got {
				if one != `POST /tools?v=1 {"name":"status","arguments":{"order":7}}` {
					t.Errorf("the endpoint got %s", one)
				}
			}
			if len(got) != 3 {
				t.Errorf("the endpoint got %d requests", len(got))
			}
		})
	}
}

// The model gets the functions as the client wrote them. // E12
func TestDispatchedFunctionsAreOfferedAsTheClientWroteThem(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := newUpstream(t, calling(call{"status", `{"order":7}`}))
	g := MustRun(t, dispatching(site{upstream: up.URL}, shop.URL))
	body := functions(`,"tool_choice":{"type":"function","function":{"name":"status"}}`, "status", "refund")
	if a := g.post(body); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var asked struct{ Tools json.RawMessage }
	if err := json.Unmarshal([]byte(body), &asked); err != nil {
		t.Fatal(err)
	}
	var sent, want []map[string]any
	_ = json.Unmarshal(up.requests()[0].decode(t).Tools, &sent)
	_ = json.Unmarshal(asked.Tools, &want)
	byName := func(tools []map[string]any) map[string]string {
		out := map[string]string{}
		for _, one := range tools {
			text, _ := json.Marshal(one)
			out[one["function"].(map[string]any)["name"].(string)] = string(text)
		}
		return out
	}
	if got, want := byName(sent), byName(want); len(sent) != 2 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the model gets %v, want %v", got, want)
	}
	if first := string(up.requests()[0].body); !strings.Contains(first, `"tool_choice":{"type":"function","function":{"name":"status"}}`) {
		t.Errorf("the choice of the client is lost: %s", first)
	}
}

// Each request is signed as a webhook is, with an id that is the same for all attempts. // E12 K06
func TestRequestsToTheToolDispatchURLAreSigned(t *testing.T) {
	noLeaks(t)
	key, err := webhook.ParseSecret(secret.NewValue(dispatchSecret))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	shop := newEndpoint(t, nil)
	shop.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		stamp, err := strconv.ParseInt(r.Header.Get("Webhook-Timestamp"), 10, 64)
		if err != nil {
			t.Error(err)
		}
		again := http.Header{}
		if err := webhook.Sign(again, r.Header.Get("Webhook-Id"), time.Unix(stamp, 0), body, key); err != nil || again.Get("Webhook-Signature") != r.Header.Get("Webhook-Signature") {
			t.Errorf("the signature %q does not hold: %v", r.Header.Get("Webhook-Signature"), err)
		}
		if r.Header.Get("Webhook-Id") != r.Header.Get("Idempotency-Key") {
			t.Errorf("the id is %q and the key %q", r.Header.Get("Webhook-Id"), r.Header.Get("Idempotency-Key"))
		}
		ids = append(ids, r.Header.Get("Webhook-Id"))
		_, _ = io.WriteString(w, `"sent"`)
	})
	up := newUpstream(t, calling(call{"status", `{"order":7}`}))
	variables := environment()
	variables["DISPATCH"] = dispatchSecret
	g := mustRunIn(t, t.TempDir(), dispatching(site{upstream: up.URL}, shop.URL, "tool_dispatch_secret: env:DISPATCH"), variables)
	for range 2 {
		if a := g.post(functions("", "status")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if len(ids) != 2 || ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("the ids are %q", ids)
	}
	if strings.Contains(g.log.String(), dispatchSecret) {
		t.Error("the log has the secret")
	}
}

// What the URL does not execute stays with the client: all tools with the loop switched off, tools that the operator
// does not name, and those of keys that are limited to servers or to reading. // E12 A07
func TestClientsKeepTheFunctionsThatTheToolDispatchURLDoesNotExecute(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := newUpstream(t, calling(call{"status", `{"order":7}`}, call{"refund", `{"order":7}`}))
	d := manage(MustRun(t, dispatching(site{upstream: up.URL, feature: "none"}, shop.URL, `tool_dispatch_tools: ["stat*"]`)))
	limited := func(name, access string) string {
		return d.do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":%q,"role":"member",%s}`, name, access), 201)["key"].(string)
	}
	for name, c := range map[string]struct {
		body     string
		fields   []string
		executed string
		kept     []string
		relayed  bool
	}{
		"switched off":       {functions("", "status", "refund"), []string{"Turnpike-Mcp-Disabled", "true"}, "", []string{"status", "refund"}, true},
		"another name":       {functions("", "refund"), nil, "", []string{"status", "refund"}, true},
		"one of two":         {functions("", "status", "refund"), nil, "status", []string{"refund"}, false},
		"one key of servers": {functions("", "status"), []string{"Authorization", "Bearer " + limited("s", `"servers":["x"]`)}, "", []string{"status", "refund"}, true},
		"a key that reads":   {functions("", "status"), []string{"Authorization", "Bearer " + limited("r", `"read_only":true`)}, "", []string{"status", "refund"}, true},
		"a key of tools":     {functions("", "status"), []string{"Authorization", "Bearer " + limited("t", `"tools":["re*"]`)}, "", []string{"status", "refund"}, true},
		"no tools":           {question, nil, "", []string{"status", "refund"}, true},
	} {
		before, _ := shop.all()
		asked := len(up.requests())
		a := d.post(c.body, c.fields...)
		if a.status != 200 {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		for _, tool := range c.kept {
			if !strings.Contains(string(a.body), `"name":"`+tool+`"`) {
				t.Errorf("%s: the client does not get the call of %s: %s", name, tool, a.body)
			}
		}
		if c.executed != "" && strings.Contains(string(a.body), `"name":"`+c.executed+`"`) {
			t.Errorf("%s: the client gets the call of %s, too: %s", name, c.executed, a.body)
		}
		if sent := up.requests()[asked]; c.relayed != (string(sent.body) == c.body) {
			t.Errorf("%s: the provider gets %s", name, sent.body)
		}
		if after, _ := shop.all(); (len(after) > len(before)) != (c.executed != "") {
			t.Errorf("%s: the endpoint got %v", name, after[len(before):])
		}
	}
}

// A function with the name of a tool of the gateway, two of one name, and one with a schema that cannot be used are
// refused, with the name. // E12 A16
func TestFunctionsThatTheToolDispatchURLCannotExecuteAreRefused(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, calling(call{"echo", `{}`}))
	g := MustRun(t, dispatching(site{upstream: up.URL, servers: []string{server("s", tools.URL)}}, shop.URL))
	for body, want := range map[string]struct {
		status int
		code   string
		words  []string
	}{
		functions("", "echo"):       {422, "tool_name_conflict", []string{`"echo"`, `"s"`}},
		functions("", "one", "one"): {400, "invalid_value", []string{"two functions have the name one"}},
		`{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"odd","parameters":{"type":"array"}}}]}`: {400, "invalid_value", []string{"odd", "input schema"}},
	} {
		a := g.post(body)
		if a.status != want.status {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
		for _, word := range append(want.words, want.code) {
			if !strings.Contains(strings.ReplaceAll(string(a.body), `\"`, `"`), word) {
				t.Errorf("the answer does not have %q: %s", word, a.body)
			}
		}
	}
	if got, _ := shop.all(); len(got) != 0 {
		t.Errorf("the endpoint got %v", got)
	}
}

// The outbound policy applies to the URL, and its refusal ends the request. A URL that does not answer in time is told to
// the model, without its address. // E12 K05
func TestTheToolDispatchURLIsGuardedAndTimed(t *testing.T) {
	noLeaks(t)
	release := make(chan struct{})
	shop := newEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	up := newUpstream(t, calling(call{"status", `{"order":7}`}))
	refused := MustRun(t, dispatching(site{upstream: up.URL, allow: "10.9.9.9/32"}, shop.URL))
	if a := refused.post(functions("", "status")); a.status != 403 || !strings.Contains(string(a.body), "ssrf_blocked") {
		t.Errorf("a private address is answered with %d: %s", a.status, a.body)
	}
	if got, _ := shop.all(); len(got) != 0 {
		t.Errorf("the endpoint got %v", got)
	}
	slow := MustRun(t, dispatching(site{upstream: up.URL}, shop.URL, "tool_dispatch_timeout: 1s"))
	before := len(up.requests())
	if a := slow.post(functions("", "status")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	told := up.requests()[before+1].results(t)
	if len(told) != 1 || !strings.Contains(told[0], "within 1s") || !strings.Contains(told[0], "may have been carried out") || strings.Contains(told[0], "127.0.0.1") {
		t.Errorf("the model is told %q", told)
	}
}

// A hook makes a dispatched call wait for a person, and a denied one is not sent. // E12 H03 J01
func TestDispatchedCallsWaitForApproval(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := newUpstream(t, calling(call{"refund", `{"order":7}`}))
	d := manage(MustRun(t, dispatching(site{upstream: up.URL, runtime: `hooks: [{id: h, event: PreToolUse, type: approval, matcher: refund, config: {message: "Refund?"}}]`}, shop.URL)))
	for i, decision := range []string{"deny", "approve"} {
		answered := make(chan answer, 1)
		go func() { answered <- d.post(functions("", "refund"), "Idempotency-Key", decision) }()
		var waiting []map[string]any
		comesTrue(t, "the call waits", func() bool {
			waiting = objects(d.do("GET", "/v1/approvals?status=waiting", "owner-key", "", 200))
			return len(waiting) == 1
		})
		d.do("POST", "/v1/approvals/"+waiting[0]["id"].(string), "approver-key", fmt.Sprintf(`{"decision":%q}`, decision), 200)
		if a := wait(t, answered, "the answer"); a.status != 200 || !strings.Contains(string(a.body), "done") {
			t.Errorf("%s: %d %s", decision, a.status, a.body)
		}
		if got, _ := shop.all(); len(got) != i {
			t.Errorf("after %s the endpoint got %v", decision, got)
		}
	}
	if rows := string(d.send("GET", "/api/audit", nil).body); !strings.Contains(rows, `"dispatch:tools"`) {
		t.Errorf("the audit log does not name the server: %s", rows)
	}
}

// A reload sets and removes the URL. // E12 C19
func TestAReloadChangesTheToolDispatchURL(t *testing.T) {
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := newUpstream(t, calling(call{"status", `{"order":7}`}))
	without := site{upstream: up.URL, feature: "none"}.yaml()
	g := serve(t, without)
	executes := func() bool {
		before, _ := shop.all()
		if a := g.post(functions("", "status")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		after, _ := shop.all()
		return len(after) > len(before)
	}
	if executes() {
		t.Error("without a URL, the function is executed")
	}
	g.reload(t, dispatching(site{upstream: up.URL, feature: "none"}, shop.URL), readAgain)
	if !executes() {
		t.Error("with the URL, the function is not executed")
	}
	g.reload(t, without, readAgain)
	if executes() {
		t.Error("after the URL was removed, the function is executed")
	}
}

// A gateway that is killed while the URL executes a call does not repeat it: the model is told that it may have been
// carried out. Functions that were not called yet are executed by the next process. // E12 R4
func TestADispatchedCallIsNotRepeatedAfterAKill(t *testing.T) {
	reached, release := make(chan struct{}, 8), make(chan struct{})
	shop := newEndpoint(t, nil)
	shop.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		shop.mu.Lock()
		shop.got = append(shop.got, string(body))
		shop.mu.Unlock()
		if strings.Contains(string(body), "refund") {
			reached <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `"sent"`)
	})
	t.Cleanup(func() { close(release) })
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		switch n := len(got.results(t)); n {
		case 0:
			asks(call{"refund", `{"order":7}`}).write(w)
		case 1:
			asks(call{"status", `{"order":7}`}).write(w)
		default:
			says("done").write(w)
		}
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "turnpike.yaml")
	if err := os.WriteFile(file, []byte(dispatching(site{upstream: up.URL, feature: "none"}, shop.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (*gateway, *exec.Cmd) {
		cmd := exec.Command(program(t), "serve", "--config", file)
		cmd.Env = append(os.Environ(), "UPSTREAM_KEY=k", "TURNPIKE_DATA="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		g := &gateway{t: t, URL: listensOn(t, out), client: &http.Client{Transport: &http.Transport{}}}
		t.Cleanup(g.client.CloseIdleConnections)
		return g, cmd
	}
	first, killed := start()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req := first.request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(functions("", "refund", "status")), "Idempotency-Key", "one")
		if resp, err := first.client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	wait(t, reached, "the call")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	wait(t, gone, "the client to be left")
	second, _ := start()
	var a answer
	comesTrue(t, "the run is answered", func() bool {
		a = second.post(functions("", "refund", "status"), "Idempotency-Key", "one")
		return a.status == 200
	})
	if !strings.Contains(string(a.body), "done") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	all := up.requests()
	told := all[len(all)-1].results(t)
	if len(told) != 2 || !strings.HasPrefix(told[0], "outcome_unknown: ") || told[1] != "sent" {
		t.Errorf("the model is told %q", told)
	}
	if got, _ := shop.all(); fmt.Sprint(got) != `[{"name":"refund","arguments":{"order":7}} {"name":"status","arguments":{"order":7}}]` {
		t.Errorf("the endpoint got %v", got)
	}
}
