package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// limitedSite is a gateway with the servers docs (search, read, write) and crm (customer), and
// the key of an app.
type limitedSite struct {
	*Gateway
	up        *Upstream
	docs, crm *MCPServer
	key       string
}

// newLimitedSite boots the gateway with a script of the model and makes a key with these
// settings, which are JSON members.
func newLimitedSite(t *testing.T, settings string, turns ...Turn) *limitedSite {
	t.Helper()
	NoLeaks(t)
	s := &limitedSite{up: NewUpstream(t, Script(turns...))}
	s.docs = NewMCP(t, map[string]Handler{"search": Echo, "read": Echo, "write": Echo})
	s.crm = NewMCP(t, map[string]Handler{"customer": Echo})
	s.Gateway = MustRun(t, Site{Upstream: s.up.URL, Servers: []string{Server("docs", s.docs.URL), Server("crm", s.crm.URL)}}.Yaml())
	s.key = s.newKey(settings)
	return s
}

// newKey makes a key and returns its secret.
func (s *limitedSite) newKey(settings string) string {
	s.T.Helper()
	var made struct{ Key string }
	a := s.manage("POST", "/api/keys", `{"name":"app",`+settings+`}`)
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != 201 || made.Key == "" {
		s.T.Fatalf("status %d: %s", a.Status, a.Body)
	}
	return made.Key
}

// manage sends a request to the management API with the owner's key.
func (s *limitedSite) manage(method, path, body string) Answer {
	s.T.Helper()
	return s.Send(method, path, strings.NewReader(body))
}

// ask sends a request with the app's key.
func (s *limitedSite) ask(path, body string) Answer {
	s.T.Helper()
	return s.Send("POST", path, strings.NewReader(body), "Authorization", "Bearer "+s.key)
}

// offered returns the names of the tools in a request to the model.
func offered(t *testing.T, r Received) (names []string) {
	t.Helper()
	var tools []struct{ Function struct{ Name string } }
	if raw := r.Decode(t).Tools; raw != nil {
		if err := json.Unmarshal(raw, &tools); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range tools {
		names = append(names, tool.Function.Name)
	}
	return names
}

const twoTools = `"servers":["docs"],"tools":["search","re*"]`

// An app whose key may use two tools of one server sees two. Calls of others are refused
// whatever the model says, with the words for tools that do not exist. // P46
func TestALimitedKeySeesAndCallsOnlyItsTools(t *testing.T) {
	for _, tt := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", Question},
		{"chat, streamed", "/v1/chat/completions", StreamedQuestion},
		{"responses", "/v1/responses", `{"model":"m","input":"go"}`},
		{"a declared server of the org", "/v1/responses", `{"model":"m","input":"go","tools":[{"type":"mcp","server_label":"docs","require_approval":"never"}]}`},
		{"a declared server, and a tool that the key lacks", "/v1/responses", `{"model":"m","input":"go","tools":[{"type":"mcp","server_label":"docs","allowed_tools":["search","read","write"],"require_approval":"never"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newLimitedSite(t, twoTools, Asks(Use("write", `{"n":1}`), Use("customer", `{"n":2}`), Use("search", `{"n":3}`)), Says("done"))
			if a := s.ask(tt.path, tt.body); a.Status != 200 {
				t.Fatalf("status %d: %s", a.Status, a.Body)
			} else if text := string(a.Body); strings.Contains(text, `"write"`) && !strings.Contains(tt.body, "write") || regexp.MustCompile(`\bcrm\b`).MatchString(text) || strings.Contains(text, "customer") { // ids can have these letters
				t.Errorf("the answer tells of tools that the key may not use: %s", text)
			}
			asked := s.up.Requests()
			if got := fmt.Sprint(offered(t, asked[0])); got != "[read search]" {
				t.Errorf("the model is offered %s", got)
			}
			results := asked[1].Results(t)
			for i, name := range []string{"write", "customer"} {
				if want := fmt.Sprintf(`unknown tool \"%s\"; the tools are: read, search`, name); !strings.Contains(results[i], want) {
					t.Errorf("the result of %s is %s, want %s", name, results[i], want)
				}
			}
			if !strings.Contains(results[2], `"n":3`) {
				t.Errorf("the allowed call has the result %s", results[2])
			}
			if n := len(s.docs.Of("tools/call")) + len(s.crm.Of("tools/call")); n != 1 {
				t.Errorf("%d calls have reached the servers, want 1", n)
			}
		})
	}
}

// What a key may not use does not exist for its requests: servers by label, servers by
// URL, forced tools, models. // P46
func TestALimitedKeyCannotNameWhatItMayNotUse(t *testing.T) {
	s := newLimitedSite(t, twoTools+`,"models":["g-*"]`, Says("done"))
	respond := func(tools string) string { return `{"model":"g-1","input":"go","tools":[` + tools + `]}` }
	for _, tt := range []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"another server of the org", "/v1/responses", respond(`{"type":"mcp","server_label":"crm"}`), 400, `has no server_url, and the org has no MCP server \"crm\"`},
		{"a missing server", "/v1/responses", respond(`{"type":"mcp","server_label":"none"}`), 400, `has no server_url, and the org has no MCP server \"none\"`},
		{"a server by URL", "/v1/responses", respond(fmt.Sprintf(`{"type":"mcp","server_label":"docs","server_url":%q}`, s.crm.URL)), 403, "server_not_allowed"},
		{"a tool by tool_choice", "/v1/chat/completions", `{"model":"g-1","messages":[{"role":"user","content":"go"}],"tool_choice":{"type":"function","function":{"name":"write"}}}`, 400, "write"},
		{"a model", "/v1/chat/completions", Question, 404, `no provider serves the model \"m\"; known are: g-*`},
		{"a model, on Responses", "/v1/responses", `{"model":"m","input":"go"}`, 404, `no provider serves the model \"m\"; known are: g-*`},
		{"a missing model", "/v1/chat/completions", `{"model":"zzz","messages":[{"role":"user","content":"go"}]}`, 404, `no provider serves the model \"zzz\"; known are: g-*`},
		{"a model by its provider", "/v1/chat/completions", `{"model":"up/m","messages":[{"role":"user","content":"go"}]}`, 404, "model_not_found"},
		{"tokens of a model", "/v1/responses/input_tokens", `{"model":"m","input":"go"}`, 404, "model_not_found"},
	} {
		if a := s.ask(tt.path, tt.body); a.Status != tt.status || !strings.Contains(string(a.Body), tt.want) {
			t.Errorf("%s: status %d: %s, want %d with %s", tt.name, a.Status, a.Body, tt.status, tt.want)
		}
	}
	off := s.Send("POST", "/v1/chat/completions", strings.NewReader(Question), "Authorization", "Bearer "+s.key, "turnpike-mcp-disabled", "true")
	if off.Status != 404 {
		t.Errorf("a relay of another model: status %d: %s", off.Status, off.Body)
	}
	if len(s.up.Requests()) > 0 {
		t.Error("a refused request has reached the provider")
	}
	if a := s.ask("/v1/chat/completions", strings.ReplaceAll(Question, `"m"`, `"g-1"`)); a.Status != 200 {
		t.Errorf("an allowed model: status %d: %s", a.Status, a.Body)
	}
}

// The list of models has those that the key may ask for, with the tools that it may use. // P46
func TestALimitedKeyListsItsModels(t *testing.T) {
	s := newLimitedSite(t, twoTools+`,"models":["nothing","m*"]`, Says("done"))
	get := func(path string) Answer {
		return s.Send("GET", path, strings.NewReader(""), "Authorization", "Bearer "+s.key)
	}
	if a := get("/v1/models"); !strings.Contains(string(a.Body), `{"id":"m",`) || !strings.Contains(string(a.Body), `"mcp_tools_count":2,"mcp_servers_connected":1`) {
		t.Errorf("%s", a.Body)
	}
	if a := s.manage("PATCH", "/api/keys/app", `{"models":["g-*"],"servers":[]}`); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if a := get("/v1/models"); strings.Contains(string(a.Body), `"id":"m"`) {
		t.Errorf("%s", a.Body)
	}
	if a := get("/v1/models/m"); a.Status != 404 {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	if a := get("/v1/models/g-1"); a.Status != 200 || !strings.Contains(string(a.Body), `"mcp_tools_count":0`) {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
}

// A key with end_users must name the end user. // P46
func TestAKeyForEndUsersMustNameThem(t *testing.T) {
	s := newLimitedSite(t, `"end_users":true`, Says("done"))
	for member, want := range map[string]int{
		"": 400, `,"user":""`: 400, `,"user":"u1"`: 200, `,"safety_identifier":"u1"`: 200, `,"metadata":{"user_id":"u1"}`: 200, `,"metadata":{}`: 400,
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
			body := strings.TrimSuffix(Question, "}") + member + "}"
			if path == "/v1/responses" {
				body = `{"model":"m","input":"go"` + member + "}"
			}
			if a := s.ask(path, body); a.Status != want || want == 400 && !strings.Contains(string(a.Body), "end_user_required") {
				t.Errorf("%s with %q: status %d: %s, want %d", path, member, a.Status, a.Body, want)
			}
		}
	}
}

// A key cannot give more than it has: not to another key, not to itself, and not by a
// rotation, which would show a secret of a key that may do more. // P46
func TestAKeyGivesNoMoreThanItHas(t *testing.T) {
	s := newLimitedSite(t, twoTools+`,"role":"admin","models":["g-*"],"requests_per_minute":600,"expires_at":"2999-01-01T00:00:00Z"`, Says("done"))
	const all = `"servers":["docs"],"tools":["read"],"models":["g-1","g-2*"],"requests_per_minute":60,"expires_at":"2998-01-01T00:00:00Z"`
	send := func(method, path, body string) Answer {
		return s.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+s.key)
	}
	if a := send("POST", "/api/keys", `{"name":"within",`+all+`}`); a.Status != 201 {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	for i, tt := range []struct{ change, param string }{
		{`"servers":["docs"]→"servers":["docs","crm"]`, "servers"},
		{`"servers":["docs"]→"servers":"*"`, "servers"},
		{`"tools":["read"]→"tools":["r*"]`, "tools"},
		{`"models":["g-1","g-2*"]→"models":["*"]`, "models"},
		{`"models":["g-1","g-2*"],→`, "models"},
		{`"requests_per_minute":60→"requests_per_minute":0`, "requests_per_minute"},
		{`"requests_per_minute":60→"requests_per_minute":6000`, "requests_per_minute"},
		{`2998→3000`, "expires_at"},
	} {
		old, now, _ := strings.Cut(tt.change, "→")
		body := strings.Replace(all, old, now, 1)
		for _, a := range []Answer{
			send("POST", "/api/keys", fmt.Sprintf(`{"name":"n%d",%s}`, i, body)),
			send("PATCH", "/api/keys/app", `{`+body+patchRest(body)+`}`),
		} {
			if a.Status != 403 || !strings.Contains(string(a.Body), "exceeds_own_key") || !strings.Contains(string(a.Body), `"param":"`+tt.param+`"`) {
				t.Errorf("%s: status %d: %s", tt.change, a.Status, a.Body)
			}
		}
	}
	s.manage("POST", "/api/keys", `{"name":"wide"}`)
	for method, path := range map[string]string{"POST": "/api/keys/wide/rotate", "PATCH": "/api/keys/wide"} {
		body := map[string]string{"POST": `{"overlap":"1h"}`, "PATCH": `{"name":"other"}`}[method]
		if a := send(method, path, body); a.Status != 403 {
			t.Errorf("%s %s: status %d: %s", method, path, a.Status, a.Body)
		}
	}
}

// patchRest returns the members that a patch must have so that what a body leaves out has its default.
func patchRest(body string) string {
	if strings.Contains(body, `"models"`) {
		return ""
	}
	return `,"models":null`
}

// Keys can be named by their name, which is unique in the org. // P46
func TestKeysAreNamedByTheirNames(t *testing.T) {
	s := newLimitedSite(t, twoTools, Says("done"))
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/api/keys", `{"name":"app"}`, 409, "exists"},
		{"POST", "/api/keys", `{"name":"a"}`, 409, "exists"}, // of the file
		{"PATCH", "/api/keys/app", `{"name":"a"}`, 409, "exists"},
		{"PATCH", "/api/keys/app", `{"name":"other"}`, 200, `"name":"other"`},
		{"PATCH", "/api/keys/app", `{"name":"x"}`, 404, "not_found"},
		{"PATCH", "/api/keys/a", `{"name":"x"}`, 409, "declared"},
		{"DELETE", "/api/keys/other", ``, 200, `"id":"key_`},
		{"DELETE", "/api/keys/other", ``, 404, "not_found"},
	} {
		if a := s.manage(tt.method, tt.path, tt.body); a.Status != tt.status || !strings.Contains(string(a.Body), tt.want) {
			t.Errorf("%s %s %s: status %d: %s", tt.method, tt.path, tt.body, a.Status, a.Body)
		}
	}
}

// After a rotation both secrets work until the old one ends, and a rotation without overlap
// ends the old ones at once. The limits of the key hold for both. // P46
func TestARotatedKeyHasTwoSecrets(t *testing.T) {
	s := newLimitedSite(t, `"models":["m"]`, Says("done"))
	works := func(key string) bool {
		t.Helper()
		a := s.Send("POST", "/v1/chat/completions", strings.NewReader(Question), "Authorization", "Bearer "+key)
		if a.Status != 200 && a.Status != 401 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		other := s.Send("POST", "/v1/chat/completions", strings.NewReader(strings.ReplaceAll(Question, `"m"`, `"g-1"`)), "Authorization", "Bearer "+key)
		if a.Status == 200 && other.Status != 404 {
			t.Errorf("another model: status %d", other.Status)
		}
		return a.Status == 200
	}
	rotate := func(overlap string, want int) string {
		t.Helper()
		var made struct {
			Key           string
			PreviousUntil *string `json:"previous_until"`
		}
		a := s.manage("POST", "/api/keys/app/rotate", `{"overlap":"`+overlap+`"}`)
		if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != want || want == 200 && (made.PreviousUntil == nil) != (overlap == "0s") {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		return made.Key
	}
	first := s.key
	second := rotate("24h", 200)
	if !works(first) || !works(second) {
		t.Error("not both secrets work")
	}
	rotate("1h", 409)
	third := rotate("0s", 200)
	if works(first) || works(second) || !works(third) {
		t.Error("a rotation without overlap has not ended the old secrets")
	}
	fourth := rotate("1h", 200)
	if a := s.manage("DELETE", "/api/keys/app", ""); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if works(third) || works(fourth) {
		t.Error("a revoked key works")
	}
	for _, body := range []string{`{}`, `{"overlap":"x"}`, `{"overlap":"-1s"}`, `{"overlap":"10000h"}`, `{"overlap":"1h","x":1}`} {
		if a := s.manage("POST", "/api/keys/app/rotate", body); a.Status != 404 && a.Status != 400 {
			t.Errorf("%s: status %d: %s", body, a.Status, a.Body)
		}
	}
	rows := string(s.manage("GET", "/api/audit?kind=management&limit=50", "").Body)
	if n := strings.Count(rows, `"rotate"`); n != 3 {
		t.Errorf("the audit log has %d rotations: %s", n, rows)
	}
}

// The limits hold at dispatch. A run that began before its key was limited is offered less
// in its next round, and its calls of other tools are not sent and not answered from the cache. // P46
func TestAKeyIsLimitedWhileItsRunIsInProgress(t *testing.T) {
	for name, path := range map[string]string{"chat": "/v1/chat/completions", "responses": "/v1/responses"} {
		t.Run(name, func(t *testing.T) {
			s := newLimitedSite(t, `"role":"member"`, Asks(Use("change", `{}`)), Asks(Use("read", `{}`), Use("customer", `{}`)), Says("done"))
			s.docs.Add("change", func(context.Context, string) (string, error) {
				a := s.manage("PATCH", "/api/keys/app", `{"servers":["docs"],"tools":["search","change"]}`)
				return fmt.Sprint(a.Status), nil
			}, false)
			body := Question
			if path == "/v1/responses" {
				body = `{"model":"m","input":"go"}`
			}
			if a := s.ask(path, body); a.Status != 200 {
				t.Fatalf("status %d: %s", a.Status, a.Body)
			}
			asked := s.up.Requests()
			if got := fmt.Sprint(offered(t, asked[0]), offered(t, asked[1])); got != "[change customer read search write] [change search]" {
				t.Errorf("the model is offered %s", got)
			}
			for _, result := range asked[2].Results(t)[1:] {
				if !strings.Contains(result, "unknown tool") {
					t.Errorf("a call has the result %s", result)
				}
			}
			if n := len(s.docs.Of("tools/call")) + len(s.crm.Of("tools/call")); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
		})
	}
}

// Calls of one turn that are not sent yet when the key is limited are not sent, and not
// answered from the result cache. // P46
func TestCallsOfATurnAreCheckedAtDispatch(t *testing.T) {
	NoLeaks(t)
	s := &limitedSite{up: NewUpstream(t, Script(Asks(Use("read", `{}`)), Says("cached"), Asks(Use("change", `{}`), Use("read", `{}`)), Says("done")))}
	s.docs = NewMCP(t, map[string]Handler{"read": Echo}, "read")
	s.docs.Add("change", func(context.Context, string) (string, error) {
		return fmt.Sprint(s.manage("PATCH", "/api/keys/app", `{"tools":["change"]}`).Status), nil
	}, false)
	s.Gateway = MustRun(t, Site{Upstream: s.up.URL, Runtime: "tool_parallelism: serial, tool_cache_ttl_seconds: 60", Servers: []string{Server("docs", s.docs.URL)}}.Yaml())
	s.key = s.newKey(`"role":"member"`)
	for range 2 {
		if a := s.ask("/v1/chat/completions", Question); a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
	results := s.up.Requests()[3].Results(t)
	if len(results) != 2 || results[0] != "200" || !strings.Contains(results[1], "not available to this run any more") {
		t.Errorf("the results are %q", results)
	}
	if n := len(s.docs.Of("tools/call")); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// A request that continues a stored response is limited as the key is now. // P46
func TestALimitedKeyContinuesAResponse(t *testing.T) {
	s := newLimitedSite(t, `"role":"member"`, Asks(Use("read", `{}`)), Says("one"), Asks(Use("read", `{}`), Use("customer", `{}`)), Says("two"))
	var first struct{ ID string }
	if err := json.Unmarshal(s.ask("/v1/responses", `{"model":"m","input":"go"}`).Body, &first); err != nil || first.ID == "" {
		t.Fatal(err)
	}
	s.manage("PATCH", "/api/keys/app", `{"servers":["docs"],"tools":["search"]}`)
	if a := s.ask("/v1/responses", `{"model":"m","input":"on","previous_response_id":"`+first.ID+`"}`); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	asked := s.up.Requests()
	if got := fmt.Sprint(offered(t, asked[2])); got != "[search]" {
		t.Errorf("the model is offered %s", got)
	}
	if n := len(s.docs.Of("tools/call")) + len(s.crm.Of("tools/call")); n != 1 {
		t.Errorf("%d calls, want the one of the first response", n)
	}
}

// A run ends before its next model call if its key may not use the model any more. // P46
func TestARunEndsWhenItsKeyLosesTheModel(t *testing.T) {
	s := newLimitedSite(t, `"role":"member"`, Asks(Use("change", `{}`)), Says("done"))
	s.docs.Add("change", func(context.Context, string) (string, error) {
		return fmt.Sprint(s.manage("PATCH", "/api/keys/app", `{"models":["g-*"]}`).Status), nil
	}, false)
	a := s.ask("/v1/chat/completions", Question)
	if a.Status != 409 || !strings.Contains(string(a.Body), "model_not_allowed") || !strings.Contains(string(a.Body), "may not use its model any more") {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	if n := len(s.up.Requests()); n != 1 {
		t.Errorf("%d model calls, want 1", n)
	}
}

// Approvals of calls that a key may not make do not exist for it, and a call that was
// approved is not made if the key of the run was limited meanwhile. // P46
func TestApprovalsOfALimitedKey(t *testing.T) {
	NoLeaks(t)
	s := &limitedSite{up: NewUpstream(t, Script(Asks(Use("search", `{}`)), Says("done")))}
	s.docs = NewMCP(t, map[string]Handler{"search": Echo, "read": Echo})
	s.Gateway = MustRun(t, Site{Upstream: s.up.URL, Servers: []string{Server("docs", s.docs.URL, "require_approval: always")}}.Yaml())
	s.key = s.newKey(`"role":"member"`)
	var approver struct{ Key string }
	_ = json.Unmarshal(s.manage("POST", "/api/keys", `{"name":"judge","role":"approver","tools":["read"]}`).Body, &approver)
	judge := func(method, path, body string) Answer {
		return s.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+approver.Key)
	}
	asked := s.ask("/v1/responses", `{"model":"m","input":"go"}`)
	var page struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(s.manage("GET", "/v1/approvals?status=waiting", "").Body, &page); err != nil || len(page.Data) != 1 {
		t.Fatalf("no approval waits: %s", asked.Body)
	}
	id := page.Data[0].ID
	if a := judge("GET", "/v1/approvals?status=waiting", ""); a.Status != 200 || strings.Contains(string(a.Body), id) {
		t.Errorf("the list has it: %s", a.Body)
	}
	for _, a := range []Answer{judge("GET", "/v1/approvals/"+id, ""), judge("POST", "/v1/approvals/"+id, `{"decision":"approve"}`)} {
		if a.Status != 404 {
			t.Errorf("status %d: %s", a.Status, a.Body)
		}
	}
	s.manage("PATCH", "/api/keys/app", `{"tools":["read"]}`)
	if a := s.manage("POST", "/v1/approvals/"+id, `{"decision":"approve"}`); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	for range 10_000 {
		if len(s.up.Requests()) == 2 {
			break
		}
		runtime.Gosched()
		_ = s.manage("GET", "/v1/approvals", "")
	}
	if results := s.up.Requests()[1].Results(t); len(results) != 1 || strings.Contains(results[0], "{}") {
		t.Errorf("the results are %q", results)
	}
	if n := len(s.docs.Of("tools/call")); n != 0 {
		t.Errorf("%d calls, want none", n)
	}
}

// An expired key does not work, and says so. // P46
func TestAnExpiredKeyDoesNotWork(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	yaml := strings.Replace(Site{Upstream: up.URL}.Yaml(), "{name: c, key: member-key, role: member}", "{name: c, key: member-key, role: member, expires_at: 2001-01-31T18:00:00Z}", 1)
	g := MustRun(t, yaml)
	a := g.Post(Question, "Authorization", "Bearer member-key")
	if a.Status != 401 || !strings.Contains(string(a.Body), "key_expired") || !strings.Contains(string(a.Body), "2001-01-31T18:00:00Z") {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	if a := g.Send("POST", "/api/keys", strings.NewReader(`{"name":"late","expires_at":"2001-01-31T18:00:00Z"}`)); a.Status != 400 || !strings.Contains(string(a.Body), "past") {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
}

// Entries for which there is nothing allow nothing, and are named: in the log at the start, in
// the key, and by keys check. // P46
func TestKeysThatNameWhatDoesNotExist(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	docs := NewMCP(t, map[string]Handler{"read": Echo})
	yaml := strings.Replace(Site{Upstream: up.URL, Servers: []string{Server("docs", docs.URL)}}.Yaml(), "{name: c, key: member-key, role: member}",
		`{name: c, key: member-key, role: member, servers: [docs, dosc], tools: [read, "wirte*"], models: [m, "q-*", "g-*", gpt]}`, 1)
	g := MustRun(t, yaml)
	for _, want := range []string{`key=c setting=servers names=dosc`, `key=c setting=models names="q-*, gpt"`} {
		if !strings.Contains(g.Log.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
	check := func(want int) string {
		t.Helper()
		var out bytes.Buffer
		env := func(name string) (string, bool) {
			v, ok := map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "owner-key"}[name]
			return v, ok
		}
		if status := cli.Main(t.Context(), cli.Process{Args: []string{"keys", "check"}, Env: env, Stdout: &out, Stderr: &out}); status != want {
			t.Fatalf("status %d, want %d: %s", status, want, out.String())
		}
		return out.String()
	}
	if out := check(1); strings.Contains(out, "tools") {
		t.Errorf("the tools are not known yet: %s", out)
	}
	if a := g.Post(Question, "Authorization", "Bearer member-key"); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if out := check(1); out != "c (c): servers: there is no dosc\nc (c): tools: there is no wirte*\nc (c): models: there is no q-*, no gpt\n"+
		"turnpike: 3 findings in 5 active keys\n" {
		t.Errorf("keys check says %q", out)
	}
	list := string(g.Send("GET", "/api/keys", strings.NewReader("")).Body)
	if !strings.Contains(list, `"unmatched":[{"setting":"servers","names":["dosc"]}`) {
		t.Error(list)
	}
}

// A key that may only read runs with tools that read, whatever its server lists. // P46
func TestAReadOnlyKeyRunsWithToolsThatRead(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo, "write": Echo}, "look")
	up := NewUpstream(t, Script(Asks(Use("write", `{}`)), Says("done")))
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "trust: true")}}.Yaml()))
	_, reads := d.MakeKey(`{"name":"reads","read_only":true}`)
	if a := d.Post(Question, "Authorization", "Bearer "+reads); a.Status != http.StatusOK {
		t.Fatal(a.Status, string(a.Body))
	}
	if first := string(up.Requests()[0].Body); !strings.Contains(first, `"look"`) || strings.Contains(first, `"write"`) {
		t.Errorf("the model was offered %s", first)
	}
	if calls := tools.Of("tools/call"); len(calls) > 0 {
		t.Errorf("a tool that may write was called: %s", calls[0].Params)
	}
	d.Do("POST", "/api/keys", "owner-key", `{"name":"admin-2","role":"admin","read_only":true}`, http.StatusCreated)
}

// Keys that a limited key makes spend from its budgets as well as from their own, together and also after it is
// revoked, and so do the keys that these make. They have the hooks that name it. It can rotate only its own. An owner
// raises the budget for all of them at once. // P46
func TestKeysOfALimitedKeyHaveItsLimits(t *testing.T) {
	const budgets = `"budgets":[{"period":"day","tokens":200}]`
	s := newLimitedSite(t, `"role":"admin",`+budgets)
	s.up.Answer = func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("done").Write(w) }
	made := func(by, name, settings string) (secret, id string) {
		t.Helper()
		a := s.Send("POST", "/api/keys", strings.NewReader(fmt.Sprintf(`{"name":%q,%s}`, name, settings)), "Authorization", "Bearer "+by)
		var got struct {
			Key, ID string
			MadeBy  *string `json:"made_by"`
		}
		if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 201 || (got.MadeBy != nil) != (by != "owner-key") {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		return got.Key, got.ID
	}
	asks := func(key string) Answer {
		return s.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"go"}]}`), "Authorization", "Bearer "+key)
	}
	first, _ := made(s.key, "first", `"role":"admin",`+budgets)
	second, _ := made(s.key, "second", budgets)
	third, _ := made(first, "third", budgets)
	made("owner-key", "free", budgets)
	for path, want := range map[string]int{"free": 403, "second": 200} {
		a := s.Send("POST", "/api/keys/"+path+"/rotate", strings.NewReader(`{"overlap":"1h"}`), "Authorization", "Bearer "+s.key)
		if a.Status != want {
			t.Errorf("rotate %s: status %d: %s", path, a.Status, a.Body)
		}
	}
	s.manage("PATCH", "/api/keys/second", `{"name":"renamed"}`) // keeps its maker
	spent := 0
	for ; asks(first).Status == 200; spent++ {
		if spent > 200 {
			t.Fatal("the budget of 200 tokens is not spent")
		}
	}
	none := func(when string) {
		t.Helper()
		for i, key := range []string{first, second, third} {
			if a := asks(key); a.Status != 429 {
				t.Errorf("%s: key %d: status %d: %s", when, i, a.Status, a.Body)
			}
		}
	}
	none("the budget is spent")
	if a := s.manage("PATCH", "/api/keys/app", `{"budgets":[{"period":"day","tokens":400}]}`); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if a := asks(second); a.Status != 200 {
		t.Errorf("the budget was raised: status %d: %s", a.Status, a.Body)
	}
	s.manage("PATCH", "/api/keys/app", `{"budgets":[{"period":"day","tokens":200}]}`)
	s.manage("DELETE", "/api/keys/app", "")
	none("its maker is revoked")
}
