package responses_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// nativeProvider speaks the Responses API. It searches, thinks in secret and calls the tool
// echo, and then answers.
type nativeProvider struct {
	mu     sync.Mutex
	bodies []map[string]json.RawMessage
}

const (
	searched = `{"id":"ws_7","type":"web_search_call","status":"completed","action":{"type":"search","query":"go"}}`
	thought  = `{"id":"rs_7","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"SEALED"}`
)

func (p *nativeProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var members map[string]json.RawMessage
	_ = json.Unmarshal(body, &members)
	p.mu.Lock()
	p.bodies = append(p.bodies, members)
	n := len(p.bodies)
	p.mu.Unlock()
	items := []string{thought, searched, `{"id":"fc_7","type":"function_call","status":"completed","call_id":"c7","name":"echo","arguments":"{\"n\":7}"}`}
	if n%2 == 0 {
		items = []string{`{"id":"msg_7","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}`}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"resp_7","object":"response","status":"completed","model":"m","output":[`+strings.Join(items, ",")+`],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`)
}

// types returns the types of the items in a member of a request.
func (p *nativeProvider) types(t *testing.T, request int, member string) (list []string) {
	t.Helper()
	var items []struct{ Type string }
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.Unmarshal(p.bodies[request][member], &items); err != nil {
		t.Fatalf("%v: %s", err, p.bodies[request][member])
	}
	for _, it := range items {
		list = append(list, it.Type)
	}
	return list
}

// A tool that the provider executes: it gets the tool beside those of the gateway, and the
// client gets the item of each use, in the answer, in the stream and in what is stored. The same
// with reasoning that only the provider can read. The model gets both back.
func TestHostedToolsOfAProviderThatHasThem(t *testing.T) {
	NoLeaks(t)
	up := new(nativeProvider)
	provider := httptest.NewServer(up)
	t.Cleanup(provider.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: provider.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml() + "  - {id: bare, keys: [{name: a, key: other-key, role: owner}]}\n"
	g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
	ask := func(method, path, body string) string {
		a := g.Send(method, path, strings.NewReader(body), "Authorization", "Bearer owner-key")
		if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "" {
			t.Fatalf("%d %q %s", a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
		}
		return string(a.Body)
	}
	const request = `{"model":"m","input":"x","include":["reasoning.encrypted_content","web_search_call.action.sources"],"tools":[{"type":"web_search","search_context_size":"low"}]`
	answered := ask("POST", "/v1/responses", request+"}")
	var object struct {
		ID     string
		Output []map[string]any
	}
	if err := json.Unmarshal([]byte(answered), &object); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, it := range object.Output {
		types = append(types, it["type"].(string))
	}
	if !slices.Equal(types, []string{"reasoning", "web_search_call", "message"}) || object.Output[0]["encrypted_content"] != "SEALED" || !strings.Contains(answered, searched) {
		t.Errorf("%s", answered)
	}
	if got := up.types(t, 0, "tools"); !slices.Equal(got, []string{"web_search", "function"}) {
		t.Errorf("the provider was offered %q", got)
	}
	if got := up.types(t, 1, "input"); !slices.Equal(got, []string{"message", "reasoning", "web_search_call", "function_call", "function_call_output"}) && !slices.Equal(got, []string{"", "reasoning", "web_search_call", "function_call", "function_call_output"}) {
		t.Errorf("the second call has the input %q", got)
	}
	if got := ask("GET", "/v1/responses/"+object.ID, ""); got != answered {
		t.Errorf("stored is\n%s\nnot\n%s", got, answered)
	}
	stream := ask("POST", "/v1/responses", request+`,"stream":true}`)
	for _, want := range []string{`"item":` + searched, `"encrypted_content":"SEALED"`} {
		if strings.Count(stream, want) < 2 {
			t.Errorf("the stream does not have %s twice:\n%s", want, stream)
		}
	}
	// The items come back from a client that stores them itself, and a choice among the tools.
	output, _ := json.Marshal(object.Output)
	ask("POST", "/v1/responses", `{"model":"m","store":false,"tools":[{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]},"input":[{"role":"user","content":"x"},`+
		strings.Trim(string(output), "[]")+`,{"role":"user","content":"y"}]}`)
	if got := up.types(t, 4, "input"); !slices.Contains(got, "reasoning") || !slices.Contains(got, "web_search_call") {
		t.Errorf("a stateless client's items came as %q", got)
	}
	// A choice that demands it, of a caller without other tools.
	for _, choice := range []string{`"required"`, `{"type":"web_search"}`, `{"type":"allowed_tools","mode":"required","tools":[{"type":"web_search"}]}`} {
		a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","max_tool_calls":3,"parallel_tool_calls":false,"tools":[{"type":"web_search"}],"tool_choice":`+choice+`}`), "Authorization", "Bearer other-key")
		if a.Status != 200 || !strings.Contains(string(a.Body), `"status":"completed"`) {
			t.Errorf("%s: %d %s", choice, a.Status, a.Body)
		}
	}
	up.mu.Lock()
	choice, last := string(up.bodies[4]["tool_choice"]), up.bodies[len(up.bodies)-1]
	up.mu.Unlock()
	if choice != `{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}` {
		t.Errorf("tool_choice is %s", choice)
	}
	if string(last["max_tool_calls"]) != "3" || string(last["parallel_tool_calls"]) != "false" {
		t.Errorf("the provider's own tools are limited by %s, %s", last["max_tool_calls"], last["parallel_tool_calls"])
	}
}

// The tokens of an input are counted by a provider that can, with the tools of the org's
// servers and what is in front of the input; otherwise they are estimated.
func TestTheTokensOfAnInput(t *testing.T) {
	NoLeaks(t)
	var asked string
	counts := true
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.URL.Path + " " + string(body)
		if !counts {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"response.input_tokens","input_tokens":1234}`)
	}))
	t.Cleanup(provider.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: provider.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
	count := func(body string) Answer {
		return g.Send("POST", "/v1/responses/input_tokens", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}
	const request = `{"model":"m","instructions":"Be brief.","input":"How many?"}`
	if a := count(request); a.Status != 200 || string(a.Body) != `{"object":"response.input_tokens","input_tokens":1234}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, want := range []string{"/v1/responses/input_tokens ", "Be brief.", "How many?", `"name":"echo"`} {
		if !strings.Contains(asked, want) {
			t.Errorf("the provider was asked %s, without %s", asked, want)
		}
	}
	if strings.Contains(asked, `"stream"`) || strings.Contains(asked, `"store"`) {
		t.Errorf("the provider was asked %s", asked)
	}
	counts = false
	var estimated struct {
		Tokens    int64 `json:"input_tokens"`
		Estimated bool
	}
	a := count(request)
	if err := json.Unmarshal(a.Body, &estimated); err != nil || a.Status != 200 || !estimated.Estimated || estimated.Tokens < 10 || estimated.Tokens > 200 {
		t.Errorf("%v %d %s", err, a.Status, a.Body)
	}
	for body, param := range map[string]string{
		`{"model":"m"}`: "input",
		`{"model":"m","input":"x","previous_response_id":"resp_0"}`:                                                                           "previous_response_id",
		`{"model":"m","input":"x","tools":[{"type":"mcp","server_label":"x","server_url":"https://mcp.example","require_approval":"never"}]}`: "tools",
	} {
		if a := count(body); a.Status != 400 || a.Fault(t).Error.Param == nil || *a.Fault(t).Error.Param != param {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}

// With the loop off, a provider that speaks the Responses API gets the client's bytes, and
// the client gets the provider's. // A04
func TestARequestToTheResponsesAPIIsRelayed(t *testing.T) {
	NoLeaks(t)
	const request = `{"model":"m",  "input":"x","background":true,"anything":{"b":1,"a":[]}}`
	const reply = `{"id":"resp_theirs", "output":[],"anything":1}`
	var got string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(provider.Close)
	g := MustRun(t, strings.Replace(Site{Upstream: provider.URL}.Yaml(), "{name: up,", "{name: up, kind: openai-responses,", 1))
	a := g.Send("POST", "/v1/responses", strings.NewReader(request), "Authorization", "Bearer owner-key", "Turnpike-Mcp-Disabled", "true")
	if a.Status != http.StatusAccepted || string(a.Body) != reply || got != "/v1/responses "+request {
		t.Errorf("%d %s\n%s", a.Status, a.Body, got)
	}
	// What the provider stores belongs to nobody: all orgs have its one key.
	got = ""
	for body, param := range map[string]string{
		`{"model":"m","input":"x","previous_response_id":"resp_theirs"}`:                                         "previous_response_id",
		`{"model":"m","input":"x","conversation":{"id":"conv_theirs"}}`:                                          "conversation",
		`{"model":"m","input":[{"role":"user","content":"x"},{"id":"msg_theirs","type":"item\u005freference"}]}`: "input[1]",
		`{"model":"m","input":[{"id":"msg_theirs"}]}`:                                                            "input[0]",
		`{"model":"m","input":[{"type":"item_reference","id":"msg_theirs"}],"previous_response_id":null}`:        "input[0]",
	} {
		a := g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key", "Turnpike-Mcp-Disabled", "true")
		if p := a.Fault(t).Error.Param; a.Status != 400 || p == nil || *p != param || got != "" {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}
