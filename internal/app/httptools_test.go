package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// endpoint is an HTTP endpoint of a customer.
type endpoint struct {
	*httptest.Server
	mu  sync.Mutex
	got []string // method, URI, body
	key []string // Idempotency-Key and X-Key
}

func newEndpoint(t *testing.T, answer http.HandlerFunc) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.got = append(e.got, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		e.key = append(e.key, r.Header.Get("Idempotency-Key")+" "+r.Header.Get("X-Key"))
		e.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) all() ([]string, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.got...), append([]string{}, e.key...)
}

// httpTools is a configuration with two HTTP tools of the endpoint, and a vault.
func httpTools(s site, endpoint string) string {
	return strings.ReplaceAll(s.withVault(), "    runtime: {}\n", "    runtime: {catalog_ttl: 10m}\n") + fmt.Sprintf(`    http_tools:
      - name: get_order
        description: Returns an order.
        url: "%[1]s/orders/{order_id}"
        method: GET
        class: read
        input_schema: {type: object, properties: {order_id: {type: string}, full: {type: boolean}}, required: [order_id]}
        headers: {X-Key: "secret:shop"}
      - {name: refund, description: Refunds an order., url: "%[1]s/refunds", headers: {X-Key: "Bearer env:TOKEN"}, price_usd: 0.5}
`, endpoint)
}

// The tools of the configuration file are offered on chat and Responses, called with their headers, and
// their failures are told to the model. // E11 C22 K06
func TestHTTPToolsOnChatAndResponses(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			http.Error(w, `{"error":"no such order"}`, http.StatusUnprocessableEntity)
			return
		}
		_, _ = io.WriteString(w, `{"total":7}`)
	})
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"get_order", `{"order_id":"A/7","full":true}`}, call{"refund", `{"order":"A/7"}`}).write(w)
	})
	d := manage(MustRun(t, httpTools(site{upstream: up.URL}, shop.URL)))
	d.do("PUT", "/api/secrets/shop", "owner-key", `{"value":"CANARY-shop"}`, 200)
	for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
		body := question
		if path == "/v1/responses" {
			body = `{"model":"m","input":"go"}`
		}
		before := len(up.requests())
		if a := d.send("POST", path, strings.NewReader(body)); a.status != 200 || !strings.Contains(string(a.body), "done") {
			t.Fatalf("%s answered %d: %s", path, a.status, a.body)
		}
		asked := up.requests()[before:]
		if first := string(asked[0].body); !strings.Contains(first, `"name":"get_order"`) || !strings.Contains(first, `"name":"refund"`) || !strings.Contains(first, "Refunds an order.") {
			t.Errorf("%s: the model sees %s", path, first)
		}
		second := string(asked[1].body)
		for _, want := range []string{`{\"total\":7}`, "Error: the endpoint answered with 422 Unprocessable Entity: ", "no such order"} {
			if !strings.Contains(second, want) {
				t.Errorf("%s: the model does not get %q: %s", path, want, second)
			}
		}
	}
	got, keys := shop.all()
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
	if log := d.log.String(); strings.Contains(log, "CANARY") {
		t.Error("the log has a secret")
	}
	rows := d.send("GET", "/api/audit", nil)
	if text := string(rows.body); strings.Contains(text, "CANARY") || !strings.Contains(text, `"http_tools"`) {
		t.Errorf("the audit log: %s", text)
	}
}

// Keys with lists of tools or servers, and read-only keys, have the HTTP tools that these allow. A missing
// secret is told to the model, and the run completes. // E11 C22
func TestKeysHaveTheHTTPToolsThatTheyAllow(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"get_order", `{"order_id":"A"}`}).write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo, "refund": echo})
	d := manage(MustRun(t, httpTools(site{upstream: up.URL, servers: []string{server("s", tools.URL)}}, shop.URL)))
	made := 0
	for access, want := range map[string][]string{
		`"tools":["get_*"]`:        {"get_order"},
		`"servers":["http_tools"]`: {"get_order", "refund"},
		`"servers":["s"]`:          {"echo", "refund"},
		`"read_only":true`:         {"get_order"},
	} {
		made++
		key := d.do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":"k%d","role":"member",%s}`, made, access), 201)["key"].(string)
		before := len(up.requests())
		a := d.send("POST", "/v1/chat/completions", strings.NewReader(question), "Authorization", "Bearer "+key)
		if a.status != 200 {
			t.Fatalf("%s: %d %s", access, a.status, a.body)
		}
		var sent struct {
			Tools []struct{ Function struct{ Name string } }
		}
		if err := json.Unmarshal(up.requests()[before].body, &sent); err != nil {
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
	if got, _ := shop.all(); len(got) != 0 {
		t.Errorf("the endpoint got %v, although its secret is missing", got)
	}
	last := up.requests()[len(up.requests())-1]
	if !strings.Contains(string(last.body), "not sent: its headers could not be resolved") && !strings.Contains(string(last.body), "echo") {
		t.Errorf("the model gets %s", last.body)
	}
	if got := d.do("POST", "/api/mcp-servers", "owner-key", `{"name":"http_tools","url":"https://example.com/mcp"}`, 409)["error"].(map[string]any)["code"]; got != "exists" {
		t.Errorf("an MCP server with the name of the HTTP tools: %v", got)
	}
}

// Calls of a tool with require_approval wait, and those of one without do not. // E11 J01
func TestHTTPToolsWaitForApproval(t *testing.T) {
	noLeaks(t)
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"refund", `{"order":"A"}`}).write(w)
	})
	d := manage(MustRun(t, strings.Replace(httpTools(site{upstream: up.URL}, shop.URL), "price_usd: 0.5", "require_approval: always", 1)))
	answered := make(chan answer, 1)
	go func() {
		answered <- d.send("POST", "/v1/chat/completions", strings.NewReader(question), "Idempotency-Key", "one")
	}()
	var waiting []map[string]any
	comesTrue(t, "the call waits", func() bool {
		waiting = objects(d.do("GET", "/v1/approvals", "owner-key", "", 200))
		return len(waiting) == 1
	})
	if got, _ := shop.all(); len(got) != 0 {
		t.Errorf("before the approval, the endpoint got %v", got)
	}
	d.do("POST", "/v1/approvals/"+waiting[0]["id"].(string), "approver-key", `{"decision":"approve"}`, 200)
	if a := wait(t, answered, "the answer"); a.status != 200 || !strings.Contains(string(a.body), "done") {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if got, _ := shop.all(); fmt.Sprint(got) != `[POST /refunds {"order":"A"}]` {
		t.Errorf("the endpoint got %v", got)
	}
}

// A reload adds and removes HTTP tools. // E11 C19
func TestAReloadChangesHTTPTools(t *testing.T) {
	shop := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { says("done").write(w) })
	t.Setenv("TOKEN", "CANARY-token")
	with := httpTools(site{upstream: up.URL}, shop.URL)
	without, _, _ := strings.Cut(with, "    http_tools:")
	g := serve(t, without)
	offered := func() bool {
		before := len(up.requests())
		if a := g.post(question); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return strings.Contains(string(up.requests()[before].body), `"get_order"`)
	}
	if offered() {
		t.Error("without tools in the file, one is offered")
	}
	if log := g.reload(t, with, readAgain); !strings.Contains(log, "key=orgs[o].http_tools[get_order] old=absent new=present") {
		t.Errorf("the log: %s", log)
	}
	if !offered() {
		t.Error("the new tool is not offered")
	}
	changed := strings.Replace(with, "name: get_order\n", "name: get_order\n        enabled: false\n", 1)
	g.reload(t, changed, readAgain)
	if offered() {
		t.Error("a disabled tool is offered")
	}
	g.reload(t, without, readAgain)
	if offered() {
		t.Error("a removed tool is offered")
	}
	if strings.Contains(g.log.String(), "CANARY") {
		t.Error("the log has a secret")
	}
}
