package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The tools of the configuration file are offered on chat and Responses, called with their headers, and
// their failures are told to the model. // E11 C22 K06
func TestHTTPToolsOnChatAndResponses(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			http.Error(w, `{"error":"no such order"}`, http.StatusUnprocessableEntity)
			return
		}
		_, _ = io.WriteString(w, `{"total":7}`)
	})
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("get_order", `{"order_id":"A/7","full":true}`), Use("refund", `{"order":"A/7"}`)).Write(w)
	})
	d := Manage(MustRun(t, HTTPTools(Site{Upstream: up.URL}, shop.URL)))
	d.Do("PUT", "/api/secrets/shop", "owner-key", `{"value":"CANARY-shop"}`, 200)
	for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
		body := Question
		if path == "/v1/responses" {
			body = `{"model":"m","input":"go"}`
		}
		before := len(up.Requests())
		if a := d.Send("POST", path, strings.NewReader(body)); a.Status != 200 || !strings.Contains(string(a.Body), "done") {
			t.Fatalf("%s answered %d: %s", path, a.Status, a.Body)
		}
		asked := up.Requests()[before:]
		if first := string(asked[0].Body); !strings.Contains(first, `"name":"get_order"`) || !strings.Contains(first, `"name":"refund"`) || !strings.Contains(first, "Refunds an order.") {
			t.Errorf("%s: the model sees %s", path, first)
		}
		second := string(asked[1].Body)
		for _, want := range []string{`{\"total\":7}`, "Error: the endpoint answered with 422 Unprocessable Entity: ", "no such order"} {
			if !strings.Contains(second, want) {
				t.Errorf("%s: the model does not get %q: %s", path, want, second)
			}
		}
	}
	got, keys := shop.All()
	reads, writes := 0, map[string]bool{}
	for i, one := range got {
		switch {
		case one == "GET /orders/A%2F7?full=true" && keys[i] == " CANARY-shop":
			reads++
		case one == `POST /refunds {"order":"A/7"}` && strings.HasSuffix(keys[i], " Bearer CANARY-token"):
			writes[keys[i]] = true
		default:
			t.Errorf("the endpoint got %s with %q", one, keys[i])
		}
	}
	if reads != 2 || len(writes) != 2 || writes[" Bearer CANARY-token"] {
		t.Errorf("%d reads, and writes with the keys %v", reads, writes)
	}
	if log := d.Log.String(); strings.Contains(log, "CANARY") {
		t.Error("the log has a secret")
	}
	rows := d.Send("GET", "/api/audit", nil)
	if text := string(rows.Body); strings.Contains(text, "CANARY") || !strings.Contains(text, `"http_tools"`) {
		t.Errorf("the audit log: %s", text)
	}
}

// Keys with lists of tools or servers, and read-only keys, have the HTTP tools that these allow. A missing
// secret is told to the model, and the run completes. // E11 C22
func TestKeysHaveTheHTTPToolsThatTheyAllow(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("get_order", `{"order_id":"A"}`)).Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo, "refund": Echo})
	d := Manage(MustRun(t, HTTPTools(Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}, shop.URL)))
	made := 0
	for access, want := range map[string][]string{
		`"tools":["get_*"]`:        {"get_order"},
		`"servers":["http_tools"]`: {"get_order", "refund"},
		`"servers":["s"]`:          {"echo", "refund"},
		`"read_only":true`:         {"get_order"},
	} {
		made++
		key := d.Do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":"k%d","role":"member",%s}`, made, access), 201)["key"].(string)
		before := len(up.Requests())
		a := d.Send("POST", "/v1/chat/completions", strings.NewReader(Question), "Authorization", "Bearer "+key)
		if a.Status != 200 {
			t.Fatalf("%s: %d %s", access, a.Status, a.Body)
		}
		var sent struct {
			Tools []struct{ Function struct{ Name string } }
		}
		if err := json.Unmarshal(up.Requests()[before].Body, &sent); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, one := range sent.Tools {
			names = append(names, one.Function.Name)
		}
		if fmt.Sprint(names) != fmt.Sprint(want) {
			t.Errorf("with %s the model sees %v, want %v", access, names, want)
		}
	}
	if got, _ := shop.All(); len(got) != 0 {
		t.Errorf("the endpoint got %v, although its secret is missing", got)
	}
	last := up.Requests()[len(up.Requests())-1]
	if !strings.Contains(string(last.Body), "not sent: its headers could not be resolved") && !strings.Contains(string(last.Body), "echo") {
		t.Errorf("the model gets %s", last.Body)
	}
	if got := d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"http_tools","url":"https://example.com/mcp"}`, 409)["error"].(map[string]any)["code"]; got != "exists" {
		t.Errorf("an MCP server with the name of the HTTP tools: %v", got)
	}
}

// Calls of a tool with require_approval wait, and those of one without do not. // E11 J01
func TestHTTPToolsWaitForApproval(t *testing.T) {
	NoLeaks(t)
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("refund", `{"order":"A"}`)).Write(w)
	})
	d := Manage(MustRun(t, strings.Replace(HTTPTools(Site{Upstream: up.URL}, shop.URL), "price_usd: 0.5", "require_approval: always", 1)))
	answered := make(chan Answer, 1)
	go func() {
		answered <- d.Send("POST", "/v1/chat/completions", strings.NewReader(Question), "Idempotency-Key", "one")
	}()
	var waiting []map[string]any
	ComesTrue(t, "the call waits", func() bool {
		waiting = Objects(d.Do("GET", "/v1/approvals", "owner-key", "", 200))
		return len(waiting) == 1
	})
	if got, _ := shop.All(); len(got) != 0 {
		t.Errorf("before the approval, the endpoint got %v", got)
	}
	d.Do("POST", "/v1/approvals/"+waiting[0]["id"].(string), "approver-key", `{"decision":"approve"}`, 200)
	if a := Wait(t, answered, "the answer"); a.Status != 200 || !strings.Contains(string(a.Body), "done") {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	if got, _ := shop.All(); fmt.Sprint(got) != `[POST /refunds {"order":"A"}]` {
		t.Errorf("the endpoint got %v", got)
	}
}
