package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// documented sends management requests and checks every answer against the
// OpenAPI document that the gateway serves.
type documented struct {
	*gateway
	doc map[string]any
}

func manage(g *gateway) documented {
	if known := document.Load(); known != nil {
		return documented{g, *known}
	}
	var doc map[string]any
	if err := json.Unmarshal(g.send("GET", "/openapi.json", nil).body, &doc); err != nil {
		g.t.Fatal(err)
	}
	document.Store(&doc)
	return documented{g, doc}
}

// document is the document that a gateway served first; all serve the same. It is not changed.
var document atomic.Pointer[map[string]any]

// do sends a request as the holder of key and returns the decoded answer.
func (d documented) do(method, path, key, body string, want int) map[string]any {
	d.t.Helper()
	a := d.send(method, path, strings.NewReader(body), "Authorization", "Bearer "+key)
	if a.status != want {
		d.t.Fatalf("%s %s answered %d, want %d: %s", method, path, a.status, want, a.body)
	}
	d.conforms(method, path, a)
	if !bytes.HasSuffix(a.body, []byte("}\n")) {
		d.t.Errorf("%s %s: the answer does not end its line: %q", method, path, a.body)
	}
	var out map[string]any
	if err := json.Unmarshal(a.body, &out); err != nil {
		d.t.Fatalf("%s %s: %v: %s", method, path, err, a.body)
	}
	return out
}

// schemas are the schemas of the document that were compiled in this process, by their pointers.
var schemas sync.Map

// schema returns the schema at a pointer into the document, which is the same for all gateways.
func (d documented) schema(pointer string) (*jsonschema.Schema, error) {
	if known, ok := schemas.Load(pointer); ok {
		return known.(*jsonschema.Schema), nil
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///openapi.json", d.doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile("mem:///openapi.json#" + (&url.URL{Path: pointer}).EscapedPath())
	if err == nil {
		schemas.Store(pointer, schema)
	}
	return schema, err
}

// response returns the pointer to the response of a path, method and status.
func (d documented) response(method, path string, status int) string {
	template := d.template(path)
	method = strings.ToLower(method)
	operation, _ := d.doc["paths"].(map[string]any)[template].(map[string]any)[method].(map[string]any)
	responses, _ := operation["responses"].(map[string]any)
	response, _ := responses[fmt.Sprint(status)].(map[string]any)
	if ref, ok := response["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#")
	}
	return fmt.Sprintf("/paths/%s/%s/responses/%d", strings.NewReplacer("~", "~0", "/", "~1").Replace(template), method, status)
}

// conforms checks the answer against the schema of its path, method and status.
func (d documented) conforms(method, path string, a answer) {
	d.t.Helper()
	schema, err := d.schema(d.response(method, path, a.status) + "/content/application~1json/schema")
	if err != nil {
		d.t.Fatalf("the document says nothing of %s %s with %d: %v", method, d.template(path), a.status, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.body))
	if err != nil {
		d.t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		d.t.Errorf("%s %s answered %s, which is not what the document says: %v", method, path, a.body, err)
	}
}

// conformsStream checks each event of a stream against the schema of its path.
func (d documented) conformsStream(method, path string, a answer) {
	d.t.Helper()
	schema, err := d.schema(d.response(method, path, a.status) + "/content/text~1event-stream/schema")
	if err != nil {
		d.t.Errorf("the document says nothing of the stream of %s %s: %v", method, path, err)
		return
	}
	for block := range strings.SplitSeq(string(a.body), "\n\n") {
		for line := range strings.Lines(block) {
			data, is := strings.CutPrefix(line, "data: ")
			if !is {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
			if err == nil {
				err = schema.Validate(value)
			}
			if err != nil {
				d.t.Errorf("%s %s sends %s, which is not what the document says: %v", method, path, data, err)
			}
		}
	}
}

// send sends a request as it is. What /api/agents, /api/sessions, /api/tools and /api/settings answer is checked against the
// document, also the events of streams.
func (d documented) send(method, path string, body io.Reader, fields ...string) answer {
	d.t.Helper()
	a := d.gateway.send(method, path, body, fields...)
	plain, _, _ := strings.Cut(path, "?")
	if !slices.ContainsFunc([]string{"/api/agents", "/api/sessions", "/api/tools", "/api/settings"}, func(p string) bool { return plain == p || strings.HasPrefix(plain, p+"/") }) {
		return a
	}
	switch kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";"); {
	case kind == "text/event-stream":
		d.conformsStream(method, path, a)
	case kind == "application/json" && d.knows(method, path):
		d.conforms(method, path, a)
	}
	return a
}

// knows reports whether the document has the path and the method.
func (d documented) knows(method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	asked := strings.Split(path, "/")
	for template, verbs := range d.doc["paths"].(map[string]any) {
		parts := strings.Split(template, "/")
		same := len(parts) == len(asked)
		for i := 0; same && i < len(parts); i++ {
			same = parts[i] == asked[i] || strings.HasPrefix(parts[i], "{")
		}
		if _, has := verbs.(map[string]any)[strings.ToLower(method)]; same && has {
			return true
		}
	}
	return false
}

// template returns the document's path for a request's.
func (d documented) template(path string) string {
	d.t.Helper()
	path, _, _ = strings.Cut(path, "?")
	asked := strings.Split(path, "/")
	if _, exact := d.doc["paths"].(map[string]any)[path]; exact {
		return path
	}
	for template := range d.doc["paths"].(map[string]any) {
		parts := strings.Split(template, "/")
		same := len(parts) == len(asked) || len(parts) < len(asked) && strings.HasSuffix(template, "/files/{path}") // which may contain /
		for i := 0; same && i < len(parts); i++ {
			same = parts[i] == asked[i] || strings.HasPrefix(parts[i], "{")
		}
		if same {
			return template
		}
	}
	d.t.Fatalf("the document has no path for %s", path)
	return ""
}

const chatBody = `{"model":"m","messages":[{"role":"user","content":"echo this"}]}`

// callThenAnswer calls the tool echo if it is offered, once.
func callThenAnswer(w http.ResponseWriter, _ *http.Request, got received) {
	if bytes.Contains(got.body, []byte(`"echo"`)) && !bytes.Contains(got.body, []byte(`"role":"tool"`)) {
		asks(call{"echo", `{"n":1}`}).write(w)
		return
	}
	says("done").write(w)
}

// last returns what the upstream got last.
func (u *upstream) last() string {
	all := u.requests()
	return string(all[len(all)-1].body)
}

func TestAServerOverTheAPIWorksFromTheNextRequestOn(t *testing.T) { // A01 D29
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	calls := func() int { return len(tools.of("tools/call")) }
	lists := func() int { return len(tools.of("tools/list")) }
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))

	relayed := d.post(chatBody)
	if got := up.last(); got != chatBody {
		t.Fatalf("without a server the upstream got %s", got)
	}
	created := d.do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"tools","url":%q}`, tools.URL+"/mcp"), 201)
	if created["enabled"] != true || created["declared"] != false {
		t.Errorf("created %v", created)
	}
	if d.post(chatBody); calls() != 1 {
		t.Errorf("the next request made %d tool calls, want 1", calls())
	}
	if got := d.do("GET", "/api/mcp-servers/tools", "admin-key", "", 200)["status"].(map[string]any); got["state"] != "connected" {
		t.Errorf("status %v", got)
	}
	d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"enabled":false}`, 200)
	listed := lists()
	if again := d.post(chatBody); !bytes.Equal(again.body, relayed.body) || up.last() != chatBody || lists() != listed {
		t.Errorf("switched off, the upstream got %s", up.last())
	}
	d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"enabled":true}`, 200)
	if d.post(chatBody); calls() != 2 {
		t.Errorf("switched on again, %d tool calls, want 2", calls())
	}
	d.do("DELETE", "/api/mcp-servers/tools", "owner-key", "", 200)
	if d.post(chatBody); up.last() != chatBody {
		t.Errorf("deleted, the upstream got %s", up.last())
	}
	d.do("GET", "/api/mcp-servers/tools", "owner-key", "", 404)
}

func TestWhatTheFileDeclaresIsShownAndNotEditable(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	d := manage(MustRun(t, site{upstream: up.URL, runtime: "max_rounds: 7", servers: []string{
		server("filed", "http://127.0.0.1:9/mcp", `headers: {Authorization: "Bearer CANARY-literal"}`),
	}}.yaml()))
	list := d.do("GET", "/api/mcp-servers", "owner-key", "", 200)["data"].([]any)
	first := list[0].(map[string]any)
	if len(list) != 1 || first["declared"] != true || fmt.Sprint(first["headers"]) != "map[Authorization:[redacted]]" {
		t.Errorf("servers %v", list)
	}
	d.do("PATCH", "/api/mcp-servers/filed", "owner-key", `{"enabled":false}`, 409)
	d.do("DELETE", "/api/mcp-servers/filed", "owner-key", "", 409)
	d.do("POST", "/api/mcp-servers", "owner-key", `{"name":"filed","url":"https://example.com/mcp"}`, 409)
	d.do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":3}`, 409)
	if got := d.do("GET", "/api/org", "owner-key", "", 200)["runtime"].(map[string]any)["max_rounds"]; got != 7.0 {
		t.Errorf("max_rounds %v", got)
	}
	keys := d.do("GET", "/api/keys", "owner-key", "", 200)["data"].([]any)
	if len(keys) != 5 || strings.Contains(fmt.Sprint(keys), "owner-key") {
		t.Errorf("keys %v", keys)
	}
	d.do("DELETE", "/api/keys/a", "owner-key", "", 409)
}

func TestKeysWorkUntilTheyAreRevoked(t *testing.T) { // K08 K09
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	made := d.do("POST", "/api/keys", "admin-key", `{"name":"ci","role":"member"}`, 201)
	key := made["key"].(string)
	if a := d.post(chatBody, "Authorization", "Bearer "+key); a.status != 200 {
		t.Errorf("the new key got %d: %s", a.status, a.body)
	}
	for _, k := range d.do("GET", "/api/keys", "owner-key", "", 200)["data"].([]any) {
		if _, shown := k.(map[string]any)["key"]; shown {
			t.Errorf("the list shows a key: %v", k)
		}
	}
	d.do("DELETE", "/api/keys/"+made["id"].(string), "owner-key", "", 200)
	if a := d.post(chatBody, "Authorization", "Bearer "+key); a.status != 401 {
		t.Errorf("the revoked key got %d", a.status)
	}
	d.do("POST", "/api/keys", "admin-key", `{"name":"me","role":"owner"}`, 403)
	d.do("POST", "/api/keys", "owner-key", `{"name":"me","role":"king"}`, 400)
	d.do("POST", "/api/keys", "owner-key", `{"name":"","role":"member"}`, 400)
	d.do("DELETE", "/api/keys/nobody", "owner-key", "", 404)
}

func TestOnlyOwnersAndAdminsManage(t *testing.T) { // K09
	noLeaks(t)
	d := manage(MustRun(t, site{upstream: "http://127.0.0.1:9"}.yaml()))
	for _, key := range []string{"member-key", "approver-key"} {
		for _, r := range []string{"GET /api/org", "GET /api/keys", "POST /api/keys", "GET /api/mcp-servers", "POST /api/mcp-servers", "PATCH /api/org/runtime"} {
			method, path, _ := strings.Cut(r, " ")
			d.do(method, path, key, "{}", 403)
		}
	}
	d.do("GET", "/api/org", "nobody", "", 401)
	for _, key := range []string{"owner-key", "admin-key"} {
		d.do("GET", "/api/orgs", key, "", 403)
	}
}

func TestSettingsAreReadWithTheRulesOfTheFile(t *testing.T) { // B01
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	yaml := strings.Replace(site{upstream: up.URL}.yaml(), "    runtime: {}\n", "", 1)
	d := manage(MustRun(t, yaml))
	for _, body := range []string{`{"max_rounds":0}`, `{"max_rounds":51}`, `{"stream_mode":"loud"}`, `{"max_rouns":3}`, `{"deadline":"soon"}`} {
		d.do("PATCH", "/api/org/runtime", "owner-key", body, 422)
	}
	got := d.do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":1,"stream_mode":"final_only"}`, 200)["runtime"].(map[string]any)
	if got["max_rounds"] != 1.0 || got["stream_mode"] != "final_only" {
		t.Errorf("runtime %v", got)
	}
	if got := d.do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":null}`, 200)["runtime"].(map[string]any); got["max_rounds"] != nil {
		t.Errorf("max_rounds %v", got["max_rounds"])
	}
	for _, body := range []string{
		`{"name":"x"}`, `{"name":"x","url":"ftp://example.com"}`, `{"name":"x","url":"https://example.com","timout":"3s"}`,
		`{"name":"x","command":["sh","-c","id"]}`, `{"name":"x","url":"https://example.com","headers":{"X-A":"env:HOME"}}`,
		`{"name":"x","url":"https://example.com","headers":{"Authorization":"Bearer abc"}}`,
		`{"name":"x","url":"https://example.com/mcp?api_key=abc"}`,
	} {
		d.do("POST", "/api/mcp-servers", "owner-key", body, 422)
	}
	d.do("POST", "/api/mcp-servers", "owner-key", `{`, 400)
	d.do("POST", "/api/mcp-servers", "owner-key", `{"name":"`+strings.Repeat("x", 2<<20)+`"}`, 413)
}

func TestTheOperatorManagesOrgs(t *testing.T) { // A01 K07
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	d := manage(MustRun(t, "operator_key: operator-key\n"+site{upstream: up.URL}.yaml()))
	d.do("POST", "/api/orgs", "operator-key", `{"id":"new","features":["has_mcp_outbound"]}`, 201)
	d.do("POST", "/api/orgs", "operator-key", `{"id":"new"}`, 409)
	d.do("POST", "/api/orgs", "operator-key", `{"id":"-"}`, 400)
	key := d.do("POST", "/api/orgs/new/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	if a := d.post(chatBody, "Authorization", "Bearer "+key); a.status != 200 {
		t.Errorf("the new org's key got %d: %s", a.status, a.body)
	}
	d.do("POST", "/api/mcp-servers", key, `{"name":"mine","url":"https://example.com/mcp"}`, 201)
	d.do("GET", "/api/mcp-servers/mine", "owner-key", "", 404) // of another org
	d.do("DELETE", "/api/mcp-servers/mine", "owner-key", "", 404)
	if n := len(d.do("GET", "/api/orgs", "operator-key", "", 200)["data"].([]any)); n != 2 {
		t.Errorf("%d orgs", n)
	}
	d.do("PATCH", "/api/orgs/new", "operator-key", `{"features":[]}`, 200)
	d.do("PATCH", "/api/orgs/o", "operator-key", `{"features":[]}`, 409)
	d.do("DELETE", "/api/orgs/new", "operator-key", "", 200)
	if a := d.post(chatBody, "Authorization", "Bearer "+key); a.status != 401 {
		t.Errorf("the key of a deleted org got %d", a.status)
	}
	if a := d.send(http.MethodGet, "/api/org", nil, "Authorization", "Bearer operator-key"); a.status != 401 ||
		!strings.Contains(string(a.body), "the operator_key is valid only for /api/orgs; use an API key of an org") {
		t.Errorf("the operator is no org's principal: %d", a.status)
	}
}

func TestAnOrgHasSoManyRunsAtATime(t *testing.T) { // B07
	noLeaks(t)
	begun, release := make(chan struct{}, 3), make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		begun <- struct{}{}
		<-release
		says("done").write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	g := MustRun(t, site{upstream: up.URL, runtime: "concurrency: 2", servers: []string{server("s", tools.URL)}}.yaml())
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- g.post(chatBody) }()
	}
	for range 2 {
		wait(t, begun, "a run that reached the model")
	}
	refused := g.post(chatBody)
	if refused.status != 429 || refused.header.Get("Retry-After") != "60" || !bytes.Contains(refused.body, []byte(`"retry_after_secs":60`)) {
		t.Errorf("the third run got %d, %v: %s", refused.status, refused.header, refused.body)
	}
	close(release)
	for range 2 {
		if a := wait(t, answers, "an answer"); a.status != 200 {
			t.Errorf("status %d: %s", a.status, a.body)
		}
	}
	if a := g.post(chatBody); a.status != 200 {
		t.Errorf("a run afterwards got %d: %s", a.status, a.body)
	}
}

func TestModelsSayWhichToolsTheGatewayAdds(t *testing.T) { // D25
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo, "other": echo})
	d := manage(MustRun(t, site{upstream: "http://127.0.0.1:9", servers: []string{
		server("up", tools.URL), server("down", closedURL+"/mcp"),
	}}.yaml()))
	var list struct {
		Data []struct {
			ID        string
			Available bool `json:"tools_available"`
			Tools     int  `json:"mcp_tools_count"`
			Servers   int  `json:"mcp_servers_connected"`
		}
	}
	if err := json.Unmarshal(d.send("GET", "/v1/models", nil).body, &list); err != nil {
		t.Fatal(err)
	}
	if m := list.Data[0]; len(list.Data) != 1 || m.ID != "m" || !m.Available || m.Tools != 2 || m.Servers != 1 {
		t.Errorf("models %+v", list)
	}
	status := d.do("GET", "/api/mcp-servers/down", "owner-key", "", 200)["status"].(map[string]any)
	if status["state"] != "failed" || status["error"] == nil {
		t.Errorf("the server that is down has the status %v", status)
	}
}

func TestWhatToolChoiceDemandsMustBeThere(t *testing.T) { // C25
	noLeaks(t)
	up := newUpstream(t, script(asks(call{"echo", `{}`}, call{"other", `{}`}), says("done")))
	tools := newMCP(t, map[string]handler{"echo": echo, "other": echo})
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	with := func(choice string) string {
		return strings.Replace(chatBody, "{", `{"tool_choice":`+choice+",", 1)
	}
	if a := g.post(with(`{"type":"function","function":{"name":"ghost"}}`)); a.status != 400 || !bytes.Contains(a.body, []byte("ghost")) || *a.fault(t).Error.Param != "tool_choice" {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	only := `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"echo"}}]}}`
	if a := g.post(with(only)); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if got := tools.of("tools/call"); len(got) != 1 {
		t.Errorf("%d tool calls, want that of the allowed one", len(got))
	}
	all := up.requests()
	if first := string(all[0].body); !strings.Contains(first, only) {
		t.Errorf("the first round got %s", first)
	}
	if second := string(all[1].body); !strings.Contains(second, `"mode":"auto"`) || !strings.Contains(second, "not among the allowed tools") {
		t.Errorf("the second round got %s", second)
	}
	bare := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, "tools: []")}}.yaml())
	if a := bare.post(with(`"required"`)); a.status != 400 || !bytes.Contains(a.body, []byte("any tool")) {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}

func TestRequestFieldsThatALoopCannotCarryAreNamedOrRefused(t *testing.T) { // P22
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	body := strings.Replace(chatBody, "{", `{"logprobs":true,"made_up":{"a":1},`, 1)
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	a := g.post(body)
	if a.status != 200 || a.header.Get("Turnpike-Dropped-Params") != "logprobs" {
		t.Errorf("status %d, header %v", a.status, a.header)
	}
	if sent := up.last(); strings.Contains(sent, "logprobs") || !strings.Contains(sent, `"made_up":{"a":1}`) {
		t.Errorf("the upstream got %s", sent)
	}
	g = MustRun(t, site{upstream: up.URL, runtime: "dropped_params: refuse", servers: []string{server("s", tools.URL)}}.yaml())
	if a := g.post(body); a.status != 400 || !bytes.Contains(a.body, []byte("logprobs")) {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}

func TestAnnotationsPlanOnlyWhereTheServerIsTrusted(t *testing.T) { // D14
	noLeaks(t)
	for trust, together := range map[string]bool{"true": true, "false": false} {
		var now, most atomic.Int32
		slow := func(ctx context.Context, _ string) (string, error) {
			raise(&most, now.Add(1))
			defer now.Add(-1)
			if !together {
				return "ok", pause(ctx, 20*time.Millisecond)
			}
			for most.Load() < 2 { // each waits for the other, until the time for a call is over
				if err := pause(ctx, time.Millisecond); err != nil {
					return "", err
				}
			}
			return "ok", nil
		}
		tools := newMCP(t, map[string]handler{"a": slow}, "a")
		up := newUpstream(t, script(asks(call{"a", `{"n":1}`}, call{"a", `{"n":2}`}), says("done")))
		g := MustRun(t, site{upstream: up.URL, runtime: "tool_parallelism: safe", servers: []string{server("s", tools.URL, "trust: "+trust)}}.yaml())
		g.post(chatBody)
		if got := most.Load() > 1; got != together {
			t.Errorf("trust %s: calls that say they only read overlapped: %v", trust, got)
		}
	}
}

// An unknown member of a body is named, with the one that was probably meant; but nothing of the body of a secret is. // K06
func TestUnknownMembersOfManagementBodiesAreNamed(t *testing.T) {
	noLeaks(t)
	d := manage(MustRun(t, site{upstream: "http://127.0.0.1:9"}.withVault()))
	id := d.do("POST", "/api/keys", "owner-key", `{"name":"app","role":"member"}`, 201)["id"].(string)
	d.do("POST", "/api/webhooks", "owner-key", `{"name":"ops","url":"https://example.com/","events":["run.waiting"]}`, 201)
	for _, c := range [][4]string{
		{"POST", "/api/webhooks", `{"name":"x","url":"https://example.com/","evnts":["run.waiting"]}`, "did you mean events?"},
		{"PATCH", "/api/webhooks/ops", `{"Enabled":false}`, "write enabled"},
		{"PATCH", "/api/webhooks/ops", `{"retries":3}`, "known members are name, url, events, enabled"},
		{"POST", "/api/webhooks/ops/rotate", `{"overlap":"1h","overlp":"2h"}`, "did you mean overlap?"},
		{"POST", "/api/keys/" + id + "/rotate", `{"overlp":"1h"}`, "did you mean overlap?"},
		{"GET", "/api/keys?limt=3", "", "did you mean limit?"},
	} {
		e := d.do(c[0], c[1], "owner-key", c[2], 400)["error"].(map[string]any)
		if e["code"] != "unknown_parameter" || e["param"] == nil || !strings.Contains(e["message"].(string), c[3]) {
			t.Errorf("%s %s %s: %v", c[0], c[1], c[2], e)
		}
	}
	e := d.do("PUT", "/api/secrets/a", "owner-key", `{"valeu":"CANARY","CANARY":1}`, 400)["error"].(map[string]any)
	if e["param"] != nil || strings.Contains(fmt.Sprint(e), "CANARY") || strings.Contains(fmt.Sprint(e), "valeu") {
		t.Errorf("a secret: %v", e)
	}
}
