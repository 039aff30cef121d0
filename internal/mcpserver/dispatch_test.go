package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

const dispatchSecret = "whsec_Q0FOQVJZLWRpc3BhdGNoLXNlY3JldC0wMDAwMDAwMA=="

// The dispatch URL executes the functions of requests, on chat and Responses, also in an org without MCP servers. It
// gets the name and the arguments as the model wrote them. What it answers is what the model gets. // E12 K14 A07
func TestTheToolDispatchURLExecutesFunctionsOfRequests(t *testing.T) {
	NoLeaks(t)
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
		"a long string":          {200, Quote(strings.Repeat("é", 11_000)), strings.Repeat("é", 10_000) + "\n\n[Truncated: the response is longer than 10000 characters]"},
	} {
		t.Run(name, func(t *testing.T) {
			shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			})
			up := NewUpstream(t, Calling(Use("status", `{"order": 7}`)))
			g := MustRun(t, Dispatching(Site{Upstream: up.URL, Feature: "none"}, shop.URL))
			for path, body := range map[string]string{
				"/v1/chat/completions": Functions("", "status"),
				"/v1/responses":        `{"model":"m","input":"go","tools":[{"type":"function","name":"status","parameters":{"type":"object","properties":{"order":{"type":"integer"}}}}]}`,
			} {
				before := len(up.Requests())
				if a := g.Send("POST", path, strings.NewReader(body)); a.Status != 200 || !strings.Contains(string(a.Body), "done") {
					t.Fatalf("%s answered %d: %s", path, a.Status, a.Body)
				}
				if path == ChatPath && strings.Count(string(g.Send("POST", path, strings.NewReader(Functions(`,"stream":true`, "status"))).Body), "event: agentic_tool_call_progress") != 2 {
					t.Error("a stream has no events of progress")
				}
				if told := up.Requests()[before+1].Results(t); len(told) != 1 || told[0] != c.told {
					t.Errorf("%s: the model is told %.200q", path, told)
				}
			}
			got, _ := shop.All()
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
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := NewUpstream(t, Calling(Use("status", `{"order":7}`)))
	g := MustRun(t, Dispatching(Site{Upstream: up.URL}, shop.URL))
	body := Functions(`,"tool_choice":{"type":"function","function":{"name":"status"}}`, "status", "refund")
	if a := g.Post(body); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	var asked struct{ Tools json.RawMessage }
	if err := json.Unmarshal([]byte(body), &asked); err != nil {
		t.Fatal(err)
	}
	var sent, want []map[string]any
	_ = json.Unmarshal(up.Requests()[0].Decode(t).Tools, &sent)
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
	if first := string(up.Requests()[0].Body); !strings.Contains(first, `"tool_choice":{"type":"function","function":{"name":"status"}}`) {
		t.Errorf("the choice of the client is lost: %s", first)
	}
}

// Each request is signed as a webhook is, with an id that is the same for all attempts. // E12 K06
func TestRequestsToTheToolDispatchURLAreSigned(t *testing.T) {
	NoLeaks(t)
	key, err := webhook.ParseSecret(secret.NewValue(dispatchSecret))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	shop := NewEndpoint(t, nil)
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
	up := NewUpstream(t, Calling(Use("status", `{"order":7}`)))
	variables := Environment()
	variables["DISPATCH"] = dispatchSecret
	g := MustRunIn(t, NewData(t), Dispatching(Site{Upstream: up.URL}, shop.URL, "tool_dispatch_secret: env:DISPATCH"), variables)
	for range 2 {
		if a := g.Post(Functions("", "status")); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	if len(ids) != 2 || ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("the ids are %q", ids)
	}
	if strings.Contains(g.Log.String(), dispatchSecret) {
		t.Error("the log has the secret")
	}
}

// What the URL does not execute stays with the client: all tools with the loop switched off, tools that the operator
// does not name, and those of keys that are limited to servers or to reading. // E12 A07
func TestClientsKeepTheFunctionsThatTheToolDispatchURLDoesNotExecute(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := NewUpstream(t, Calling(Use("status", `{"order":7}`), Use("refund", `{"order":7}`)))
	d := Manage(MustRun(t, Dispatching(Site{Upstream: up.URL, Feature: "none"}, shop.URL, `tool_dispatch_tools: ["stat*"]`)))
	limited := func(name, access string) string {
		return d.Do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":%q,"role":"member",%s}`, name, access), 201)["key"].(string)
	}
	for name, c := range map[string]struct {
		body     string
		fields   []string
		executed string
		kept     []string
		relayed  bool
	}{
		"switched off":       {Functions("", "status", "refund"), []string{"Turnpike-Mcp-Disabled", "true"}, "", []string{"status", "refund"}, true},
		"another name":       {Functions("", "refund"), nil, "", []string{"status", "refund"}, true},
		"one of two":         {Functions("", "status", "refund"), nil, "status", []string{"refund"}, false},
		"one key of servers": {Functions("", "status"), []string{"Authorization", "Bearer " + limited("s", `"servers":["x"]`)}, "", []string{"status", "refund"}, true},
		"a key that reads":   {Functions("", "status"), []string{"Authorization", "Bearer " + limited("r", `"read_only":true`)}, "", []string{"status", "refund"}, true},
		"a key of tools":     {Functions("", "status"), []string{"Authorization", "Bearer " + limited("t", `"tools":["re*"]`)}, "", []string{"status", "refund"}, true},
		"no tools":           {Question, nil, "", []string{"status", "refund"}, true},
	} {
		before, _ := shop.All()
		asked := len(up.Requests())
		a := d.Post(c.body, c.fields...)
		if a.Status != 200 {
			t.Fatalf("%s: %d %s", name, a.Status, a.Body)
		}
		for _, tool := range c.kept {
			if !strings.Contains(string(a.Body), `"name":"`+tool+`"`) {
				t.Errorf("%s: the client does not get the call of %s: %s", name, tool, a.Body)
			}
		}
		if c.executed != "" && strings.Contains(string(a.Body), `"function":{"name":"`+c.executed+`"`) {
			t.Errorf("%s: the client gets the call of %s, too: %s", name, c.executed, a.Body)
		}
		if sent := up.Requests()[asked]; c.relayed != (string(sent.Body) == c.body) {
			t.Errorf("%s: the provider gets %s", name, sent.Body)
		}
		if after, _ := shop.All(); (len(after) > len(before)) != (c.executed != "") {
			t.Errorf("%s: the endpoint got %v", name, after[len(before):])
		}
	}
}

// A function with the name of a tool of the gateway, two of one name, and one with a schema that cannot be used are
// refused, with the name. // E12 A16
func TestFunctionsThatTheToolDispatchURLCannotExecuteAreRefused(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Calling(Use("echo", `{}`)))
	g := MustRun(t, Dispatching(Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}, shop.URL))
	for body, want := range map[string]struct {
		status int
		code   string
		words  []string
	}{
		Functions("", "echo"):       {422, "tool_name_conflict", []string{`"echo"`, `"s"`}},
		Functions("", "one", "one"): {400, "invalid_value", []string{"two functions have the name one"}},
		`{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"odd","parameters":{"type":"array"}}}]}`: {400, "invalid_value", []string{"odd", "input schema"}},
	} {
		a := g.Post(body)
		if a.Status != want.status {
			t.Fatalf("%s: %d %s", body, a.Status, a.Body)
		}
		for _, word := range append(want.words, want.code) {
			if !strings.Contains(strings.ReplaceAll(string(a.Body), `\"`, `"`), word) {
				t.Errorf("the answer does not have %q: %s", word, a.Body)
			}
		}
	}
	if got, _ := shop.All(); len(got) != 0 {
		t.Errorf("the endpoint got %v", got)
	}
}

// The outbound policy applies to the URL, and its refusal ends the request. A URL that does not answer in time is told to
// the model, without its address. // E12 K05
func TestTheToolDispatchURLIsGuardedAndTimed(t *testing.T) {
	NoLeaks(t)
	release := make(chan struct{})
	shop := NewEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	up := NewUpstream(t, Calling(Use("status", `{"order":7}`)))
	refused := MustRun(t, Dispatching(Site{Upstream: up.URL, Allow: "10.9.9.9/32"}, shop.URL))
	if a := refused.Post(Functions("", "status")); a.Status != 403 || !strings.Contains(string(a.Body), "ssrf_blocked") {
		t.Errorf("a private address is answered with %d: %s", a.Status, a.Body)
	}
	if got, _ := shop.All(); len(got) != 0 {
		t.Errorf("the endpoint got %v", got)
	}
	slow := MustRun(t, Dispatching(Site{Upstream: up.URL}, shop.URL, "tool_dispatch_timeout: 1s"))
	before := len(up.Requests())
	if a := slow.Post(Functions("", "status")); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	told := up.Requests()[before+1].Results(t)
	if len(told) != 1 || !strings.Contains(told[0], "within 1s") || !strings.Contains(told[0], "may have been carried out") || strings.Contains(told[0], "127.0.0.1") {
		t.Errorf("the model is told %q", told)
	}
}

// A hook makes a dispatched call wait for a person, and a denied one is not sent. // E12 H03 J01
func TestDispatchedCallsWaitForApproval(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := NewUpstream(t, Calling(Use("refund", `{"order":7}`)))
	d := Manage(MustRun(t, Dispatching(Site{Upstream: up.URL, Runtime: `hooks: [{id: h, event: PreToolUse, type: approval, matcher: refund, config: {message: "Refund?"}}]`}, shop.URL)))
	for i, decision := range []string{"deny", "approve"} {
		answered := make(chan Answer, 1)
		go func() { answered <- d.Post(Functions("", "refund"), "Idempotency-Key", decision) }()
		var waiting []map[string]any
		ComesTrue(t, "the call waits", func() bool {
			waiting = Objects(d.Do("GET", "/v1/approvals?status=waiting", "owner-key", "", 200))
			return len(waiting) == 1
		})
		d.Do("POST", "/v1/approvals/"+waiting[0]["id"].(string), "approver-key", fmt.Sprintf(`{"decision":%q}`, decision), 200)
		if a := Wait(t, answered, "the answer"); a.Status != 200 || !strings.Contains(string(a.Body), "done") {
			t.Errorf("%s: %d %s", decision, a.Status, a.Body)
		}
		if got, _ := shop.All(); len(got) != i {
			t.Errorf("after %s the endpoint got %v", decision, got)
		}
	}
	if rows := string(d.Send("GET", "/api/audit", nil).Body); !strings.Contains(rows, `"dispatch:tools"`) {
		t.Errorf("the audit log does not name the server: %s", rows)
	}
}
