package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestAServerOverTheAPIWorksFromTheNextRequestOn(t *testing.T) { // A01 D29
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	calls := func() int { return len(tools.Of("tools/call")) }
	lists := func() int { return len(tools.Of("tools/list")) }
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))

	relayed := d.Post(ChatBody)
	if got := up.Last(); got != ChatBody {
		t.Fatalf("without a server the upstream got %s", got)
	}
	created := d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"tools","url":%q}`, tools.URL+"/mcp"), 201)
	if created["enabled"] != true || created["declared"] != false {
		t.Errorf("created %v", created)
	}
	if d.Post(ChatBody); calls() != 1 {
		t.Errorf("the next request made %d tool calls, want 1", calls())
	}
	if got := d.Do("GET", "/api/mcp-servers/tools", "admin-key", "", 200)["status"].(map[string]any); got["state"] != "connected" {
		t.Errorf("status %v", got)
	}
	d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"enabled":false}`, 200)
	listed := lists()
	if again := d.Post(ChatBody); !bytes.Equal(again.Body, relayed.Body) || up.Last() != ChatBody || lists() != listed {
		t.Errorf("switched off, the upstream got %s", up.Last())
	}
	d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"enabled":true}`, 200)
	if d.Post(ChatBody); calls() != 2 {
		t.Errorf("switched on again, %d tool calls, want 2", calls())
	}
	d.Do("DELETE", "/api/mcp-servers/tools", "owner-key", "", 200)
	if d.Post(ChatBody); up.Last() != ChatBody {
		t.Errorf("deleted, the upstream got %s", up.Last())
	}
	d.Do("GET", "/api/mcp-servers/tools", "owner-key", "", 404)
}

func TestWhatTheFileDeclaresIsShownAndNotEditable(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	d := Manage(MustRun(t, Site{Upstream: up.URL, Runtime: "max_rounds: 7", Servers: []string{
		Server("filed", "http://127.0.0.1:9/mcp", `headers: {Authorization: "Bearer CANARY-literal"}`),
	}}.Yaml()))
	list := d.Do("GET", "/api/mcp-servers", "owner-key", "", 200)["data"].([]any)
	first := list[0].(map[string]any)
	if len(list) != 1 || first["declared"] != true || fmt.Sprint(first["headers"]) != "map[Authorization:[redacted]]" {
		t.Errorf("servers %v", list)
	}
	d.Do("PATCH", "/api/mcp-servers/filed", "owner-key", `{"enabled":false}`, 409)
	d.Do("DELETE", "/api/mcp-servers/filed", "owner-key", "", 409)
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"filed","url":"https://example.com/mcp"}`, 409)
	d.Do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":3}`, 409)
	if got := d.Do("GET", "/api/org", "owner-key", "", 200)["runtime"].(map[string]any)["max_rounds"]; got != 7.0 {
		t.Errorf("max_rounds %v", got)
	}
	keys := d.Do("GET", "/api/keys", "owner-key", "", 200)["data"].([]any)
	if len(keys) != 5 || strings.Contains(fmt.Sprint(keys), "owner-key") {
		t.Errorf("keys %v", keys)
	}
	d.Do("DELETE", "/api/keys/a", "owner-key", "", 409)
}

func TestKeysWorkUntilTheyAreRevoked(t *testing.T) { // K08 K09
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	made := d.Do("POST", "/api/keys", "admin-key", `{"name":"ci","role":"member"}`, 201)
	key := made["key"].(string)
	if a := d.Post(ChatBody, "Authorization", "Bearer "+key); a.Status != 200 {
		t.Errorf("the new key got %d: %s", a.Status, a.Body)
	}
	for _, k := range d.Do("GET", "/api/keys", "owner-key", "", 200)["data"].([]any) {
		if _, shown := k.(map[string]any)["key"]; shown {
			t.Errorf("the list shows a key: %v", k)
		}
	}
	d.Do("DELETE", "/api/keys/"+made["id"].(string), "owner-key", "", 200)
	if a := d.Post(ChatBody, "Authorization", "Bearer "+key); a.Status != 401 {
		t.Errorf("the revoked key got %d", a.Status)
	}
	d.Do("POST", "/api/keys", "admin-key", `{"name":"me","role":"owner"}`, 403)
	d.Do("POST", "/api/keys", "owner-key", `{"name":"me","role":"king"}`, 400)
	d.Do("POST", "/api/keys", "owner-key", `{"name":"","role":"member"}`, 400)
	d.Do("DELETE", "/api/keys/nobody", "owner-key", "", 404)
}

func TestOnlyOwnersAndAdminsManage(t *testing.T) { // K09
	NoLeaks(t)
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.Yaml()))
	for _, key := range []string{"member-key", "approver-key"} {
		for _, r := range []string{"GET /api/org", "GET /api/keys", "POST /api/keys", "GET /api/mcp-servers", "POST /api/mcp-servers", "PATCH /api/org/runtime"} {
			method, path, _ := strings.Cut(r, " ")
			d.Do(method, path, key, "{}", 403)
		}
	}
	d.Do("GET", "/api/org", "nobody", "", 401)
	for _, key := range []string{"owner-key", "admin-key"} {
		d.Do("GET", "/api/orgs", key, "", 403)
	}
}

func TestSettingsAreReadWithTheRulesOfTheFile(t *testing.T) { // B01
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	yaml := strings.Replace(Site{Upstream: up.URL}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRun(t, yaml))
	for _, body := range []string{`{"max_rounds":0}`, `{"max_rounds":51}`, `{"stream_mode":"loud"}`, `{"max_rouns":3}`, `{"deadline":"soon"}`} {
		d.Do("PATCH", "/api/org/runtime", "owner-key", body, 422)
	}
	got := d.Do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":1,"stream_mode":"final_only"}`, 200)["runtime"].(map[string]any)
	if got["max_rounds"] != 1.0 || got["stream_mode"] != "final_only" {
		t.Errorf("runtime %v", got)
	}
	if got := d.Do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":null}`, 200)["runtime"].(map[string]any); got["max_rounds"] != nil {
		t.Errorf("max_rounds %v", got["max_rounds"])
	}
	for _, body := range []string{
		`{"name":"x"}`, `{"name":"x","url":"ftp://example.com"}`, `{"name":"x","url":"https://example.com","timout":"3s"}`,
		`{"name":"x","command":["sh","-c","id"]}`, `{"name":"x","url":"https://example.com","headers":{"X-A":"env:HOME"}}`,
		`{"name":"x","url":"https://example.com","headers":{"Authorization":"Bearer abc"}}`,
		`{"name":"x","url":"https://example.com/mcp?api_key=abc"}`,
	} {
		d.Do("POST", "/api/mcp-servers", "owner-key", body, 422)
	}
	d.Do("POST", "/api/mcp-servers", "owner-key", `{`, 400)
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"`+strings.Repeat("x", 2<<20)+`"}`, 413)
}

func TestTheOperatorManagesOrgs(t *testing.T) { // A01 K07
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	d := Manage(MustRun(t, "operator_key: operator-key\n"+Site{Upstream: up.URL}.Yaml()))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"new","features":["has_mcp_outbound"]}`, 201)
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"new"}`, 409)
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"-"}`, 400)
	key := d.Do("POST", "/api/orgs/new/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	if a := d.Post(ChatBody, "Authorization", "Bearer "+key); a.Status != 200 {
		t.Errorf("the new org's key got %d: %s", a.Status, a.Body)
	}
	d.Do("POST", "/api/mcp-servers", key, `{"name":"mine","url":"https://example.com/mcp"}`, 201)
	d.Do("GET", "/api/mcp-servers/mine", "owner-key", "", 404) // of another org
	d.Do("DELETE", "/api/mcp-servers/mine", "owner-key", "", 404)
	if n := len(d.Do("GET", "/api/orgs", "operator-key", "", 200)["data"].([]any)); n != 2 {
		t.Errorf("%d orgs", n)
	}
	d.Do("PATCH", "/api/orgs/new", "operator-key", `{"features":[]}`, 200)
	d.Do("PATCH", "/api/orgs/o", "operator-key", `{"features":[]}`, 409)
	d.Do("DELETE", "/api/orgs/new", "operator-key", "", 200)
	if a := d.Post(ChatBody, "Authorization", "Bearer "+key); a.Status != 401 {
		t.Errorf("the key of a deleted org got %d", a.Status)
	}
	if a := d.Send(http.MethodGet, "/api/org", nil, "Authorization", "Bearer operator-key"); a.Status != 401 ||
		!strings.Contains(string(a.Body), "the operator_key is valid only for /api/orgs; use an API key of an org") {
		t.Errorf("the operator is no org's principal: %d", a.Status)
	}
}

func TestAnOrgHasSoManyRunsAtATime(t *testing.T) { // B07
	NoLeaks(t)
	begun, release := make(chan struct{}, 3), make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		begun <- struct{}{}
		<-release
		Says("done").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "concurrency: 2", Servers: []string{Server("s", tools.URL)}}.Yaml())
	answers := make(chan Answer, 2)
	for range 2 {
		go func() { answers <- g.Post(ChatBody) }()
	}
	for range 2 {
		Wait(t, begun, "a run that reached the model")
	}
	refused := g.Post(ChatBody)
	if refused.Status != 429 || refused.Header.Get("Retry-After") != "60" || !bytes.Contains(refused.Body, []byte(`"retry_after_secs":60`)) {
		t.Errorf("the third run got %d, %v: %s", refused.Status, refused.Header, refused.Body)
	}
	close(release)
	for range 2 {
		if a := Wait(t, answers, "an answer"); a.Status != 200 {
			t.Errorf("status %d: %s", a.Status, a.Body)
		}
	}
	if a := g.Post(ChatBody); a.Status != 200 {
		t.Errorf("a run afterwards got %d: %s", a.Status, a.Body)
	}
}

func TestModelsSayWhichToolsTheGatewayAdds(t *testing.T) { // D25
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo, "other": Echo})
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9", Servers: []string{
		Server("up", tools.URL), Server("down", ClosedURL+"/mcp"),
	}}.Yaml()))
	var list struct {
		Data []struct {
			ID        string
			Available bool `json:"tools_available"`
			Tools     int  `json:"mcp_tools_count"`
			Servers   int  `json:"mcp_servers_connected"`
		}
	}
	if err := json.Unmarshal(d.Send("GET", "/v1/models", nil).Body, &list); err != nil {
		t.Fatal(err)
	}
	if m := list.Data[0]; len(list.Data) != 1 || m.ID != "m" || !m.Available || m.Tools != 2 || m.Servers != 1 {
		t.Errorf("models %+v", list)
	}
	status := d.Do("GET", "/api/mcp-servers/down", "owner-key", "", 200)["status"].(map[string]any)
	if status["state"] != "failed" || status["error"] == nil {
		t.Errorf("the server that is down has the status %v", status)
	}
}

func TestWhatToolChoiceDemandsMustBeThere(t *testing.T) { // C25
	NoLeaks(t)
	up := NewUpstream(t, Script(Asks(Use("echo", `{}`), Use("other", `{}`)), Says("done")))
	tools := NewMCP(t, map[string]Handler{"echo": Echo, "other": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	with := func(choice string) string {
		return strings.Replace(ChatBody, "{", `{"tool_choice":`+choice+",", 1)
	}
	if a := g.Post(with(`{"type":"function","function":{"name":"ghost"}}`)); a.Status != 400 || !bytes.Contains(a.Body, []byte("ghost")) || *a.Fault(t).Error.Param != "tool_choice" {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
	only := `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"echo"}}]}}`
	if a := g.Post(with(only)); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if got := tools.Of("tools/call"); len(got) != 1 {
		t.Errorf("%d tool calls, want that of the allowed one", len(got))
	}
	all := up.Requests()
	if first := string(all[0].Body); !strings.Contains(first, only) {
		t.Errorf("the first round got %s", first)
	}
	if second := string(all[1].Body); !strings.Contains(second, `"mode":"auto"`) || !strings.Contains(second, "not among the allowed tools") {
		t.Errorf("the second round got %s", second)
	}
	bare := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, "tools: []")}}.Yaml())
	if a := bare.Post(with(`"required"`)); a.Status != 400 || !bytes.Contains(a.Body, []byte("any tool")) {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
}

func TestRequestFieldsThatALoopCannotCarryAreNamedOrRefused(t *testing.T) { // P22
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	body := strings.Replace(ChatBody, "{", `{"logprobs":true,"made_up":{"a":1},`, 1)
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	a := g.Post(body)
	if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "logprobs" {
		t.Errorf("status %d, header %v", a.Status, a.Header)
	}
	if sent := up.Last(); strings.Contains(sent, "logprobs") || !strings.Contains(sent, `"made_up":{"a":1}`) {
		t.Errorf("the upstream got %s", sent)
	}
	g = MustRun(t, Site{Upstream: up.URL, Runtime: "dropped_params: refuse", Servers: []string{Server("s", tools.URL)}}.Yaml())
	if a := g.Post(body); a.Status != 400 || !bytes.Contains(a.Body, []byte("logprobs")) {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
}

func TestAnnotationsPlanOnlyWhereTheServerIsTrusted(t *testing.T) { // D14
	NoLeaks(t)
	for trust, together := range map[string]bool{"true": true, "false": false} {
		var now, most atomic.Int32
		slow := func(ctx context.Context, _ string) (string, error) {
			raise(&most, now.Add(1))
			defer now.Add(-1)
			if !together {
				return "ok", Pause(ctx, 20*time.Millisecond)
			}
			for most.Load() < 2 { // each waits for the other, until the time for a call is over
				if err := Pause(ctx, time.Millisecond); err != nil {
					return "", err
				}
			}
			return "ok", nil
		}
		tools := NewMCP(t, map[string]Handler{"a": slow}, "a")
		up := NewUpstream(t, Script(Asks(Use("a", `{"n":1}`), Use("a", `{"n":2}`)), Says("done")))
		g := MustRun(t, Site{Upstream: up.URL, Runtime: "tool_parallelism: safe", Servers: []string{Server("s", tools.URL, "trust: "+trust)}}.Yaml())
		g.Post(ChatBody)
		if got := most.Load() > 1; got != together {
			t.Errorf("trust %s: calls that say they only read overlapped: %v", trust, got)
		}
	}
}

// An unknown member of a body is named, with the one that was probably meant; but nothing of the body of a secret is. // K06
func TestUnknownMembersOfManagementBodiesAreNamed(t *testing.T) {
	NoLeaks(t)
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.WithVault()))
	id := d.Do("POST", "/api/keys", "owner-key", `{"name":"app","role":"member"}`, 201)["id"].(string)
	d.Do("POST", "/api/webhooks", "owner-key", `{"name":"ops","url":"https://example.com/","events":["run.waiting"]}`, 201)
	for _, c := range [][4]string{
		{"POST", "/api/webhooks", `{"name":"x","url":"https://example.com/","evnts":["run.waiting"]}`, "did you mean events?"},
		{"PATCH", "/api/webhooks/ops", `{"Enabled":false}`, "write enabled"},
		{"PATCH", "/api/webhooks/ops", `{"retries":3}`, "known members are name, url, events, enabled"},
		{"POST", "/api/webhooks/ops/rotate", `{"overlap":"1h","overlp":"2h"}`, "did you mean overlap?"},
		{"POST", "/api/keys/" + id + "/rotate", `{"overlp":"1h"}`, "did you mean overlap?"},
		{"GET", "/api/keys?limt=3", "", "did you mean limit?"},
	} {
		e := d.Do(c[0], c[1], "owner-key", c[2], 400)["error"].(map[string]any)
		if e["code"] != "unknown_parameter" || e["param"] == nil || !strings.Contains(e["message"].(string), c[3]) {
			t.Errorf("%s %s %s: %v", c[0], c[1], c[2], e)
		}
	}
	e := d.Do("PUT", "/api/secrets/a", "owner-key", `{"valeu":"CANARY","CANARY":1}`, 400)["error"].(map[string]any)
	if e["param"] != nil || strings.Contains(fmt.Sprint(e), "CANARY") || strings.Contains(fmt.Sprint(e), "valeu") {
		t.Errorf("a secret: %v", e)
	}
}

func raise(most *atomic.Int32, now int32) {
	for {
		old := most.Load()
		if now <= old || most.CompareAndSwap(old, now) {
			return
		}
	}
}
