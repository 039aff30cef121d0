package responses_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Extensions are in an answer only if the header or the org asks for them: the calls of hidden
// tools, events on chat while they happen, and the id of the conversation. Streams of the
// Responses API have no events of their own: its clients refuse them.
func TestExtensions(t *testing.T) {
	NoLeaks(t)
	specs := spectest.Find(t)
	up := upstreamtest.New(turnpiketest.NewScript(t, strings.Repeat("call c1 echo {\"n\":1}\ncall c2 broken {\"n\":2}\n\ntext Done.\n\n", 30)), upstreamtest.Options{})
	t.Cleanup(up.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo, "broken": func(context.Context, string) (string, error) { return "", errors.New("no") }})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g := MustRun(t, yaml)
	conversation := g.Send("POST", "/v1/conversations", strings.NewReader(`{}`), "Authorization", "Bearer owner-key")
	var named struct{ ID string }
	if err := json.Unmarshal(conversation.Body, &named); err != nil {
		t.Fatal(err)
	}
	const trace = `"agentic_tool_calls":[{"call_key":"0.0","round":0,"name":"echo","arguments":"{\"n\":1}","result_content":"{\"n\":1}","outcome":"ok"},` +
		`{"call_key":"0.1","round":0,"name":"broken","arguments":"{\"n\":2}","result_content":"Error: no","outcome":"error"}]`
	const calling = `event: agentic_tool_call_progress` + "\n" + `data: {"type":"agentic_tool_call_progress","choices":[],"call_key":"0.0","round":0,"tool_name":"echo","phase":"calling","data":{"tool_type":"custom","arguments":"{\"n\":1}"}}`
	const complete = `"call_key":"0.1","round":0,"tool_name":"broken","phase":"complete","data":{"tool_type":"custom","arguments":"{\"n\":2}","content":"Error: no","outcome":"error"}}`
	for _, api := range []struct{ path, input, session string }{
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"x"}]`, "null"},
		{"/v1/responses", `"input":"x"`, "null"},
		{"/v1/responses", `"input":"x","conversation":"` + named.ID + `"`, `"` + named.ID + `"`},
	} {
		for _, stream := range []string{"false", "true"} {
			ask := func(header ...string) string {
				a := g.Send("POST", api.path, strings.NewReader(`{"model":"m",`+api.input+`,"stream":`+stream+`}`), append(header, "Authorization", "Bearer owner-key")...)
				if a.Status != 200 {
					t.Fatalf("%s: %d %s", api.path, a.Status, a.Body)
				}
				return string(a.Body)
			}
			if body := ask(); strings.Contains(body, "agentic") || strings.Contains(body, "session_id") {
				t.Errorf("%s: without being asked for: %s", api.path, body)
			}
			chat := api.path == "/v1/chat/completions"
			names := "trace, Session,,progress"
			if !chat {
				a := g.Send("POST", api.path, strings.NewReader(`{"model":"m",`+api.input+`,"stream":`+stream+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", names)
				if a.Status != 400 || !strings.Contains(string(a.Body), "GET /v1/runs/{id}/events") || !strings.Contains(string(a.Body), `"param":"turnpike-extensions"`) {
					t.Errorf("%s: progress of a hidden server: %d %s", api.path, a.Status, a.Body)
				}
				names = "trace, Session"
			}
			body := ask("turnpike-extensions", names)
			if strings.Count(body, trace) != 1 || strings.Count(body, `"session_id":`+api.session) != 1 {
				t.Errorf("%s: %s", api.path, body)
			}
			if stream == "false" {
				continue
			}
			if chat {
				if strings.Count(body, "event: agentic_tool_call_progress") != 4 || !strings.Contains(body, calling) || !strings.Contains(body, complete) || strings.Index(body, calling) > strings.Index(body, complete) {
					t.Errorf("%s: the steps are not there: %s", api.path, body)
				}
				if strings.HasPrefix(body, "event: agentic") {
					t.Errorf("%s: the stream begins with a step: %s", api.path, body)
				}
				continue
			}
			specs.Check(t, "POST "+api.path, body)
			all := Answer{Status: 200, Header: map[string][]string{"Content-Type": {"text/event-stream"}}, Body: []byte(body)}.Events(t)
			WantNumbered(t, all)
			id := last(all).ID
			if again := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key", "turnpike-extensions", "trace,session"); !strings.Contains(string(again.Body), trace) || !strings.Contains(string(again.Body), `"session_id":`+api.session) {
				t.Errorf("stored: %s", again.Body)
			}
			if again := g.Send("GET", "/v1/responses/"+id+"?stream=true", nil, "Authorization", "Bearer owner-key", "turnpike-extensions", "progress"); again.Status != 400 {
				t.Errorf("streamed again: %d %s", again.Status, again.Body)
			}
		}
		for value, want := range map[string]string{"tracing": "there is no extension \\\"tracing\\\"; use trace, progress, session, cost, files"} {
			a := g.Send("POST", api.path, strings.NewReader(`{"model":"m",`+api.input+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", value)
			if a.Status != 400 || !strings.Contains(string(a.Body), want) || !strings.Contains(string(a.Body), `"param":"turnpike-extensions"`) {
				t.Errorf("%s, %s: %d %s", api.path, value, a.Status, a.Body)
			}
		}
		if a := g.Send("POST", api.path, strings.NewReader(`{"model":"m",`+api.input+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", "trace", "turnpike-mcp-disabled", "true"); a.Status != 400 {
			t.Errorf("%s with the loop off: %d %s", api.path, a.Status, a.Body)
		}
	}
}

// What the org asks for by default is in every answer of a run, and not in a relay.
func TestExtensionsOfAnOrg(t *testing.T) {
	NoLeaks(t)
	up := upstreamtest.New(turnpiketest.NewScript(t, "call c1 echo {}\n\ntext Done.\n\ntext Relayed."), upstreamtest.Options{})
	t.Cleanup(up.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "extensions: [trace, progress]", Servers: []string{Server("tools", tools.URL)}}.Yaml())
	for _, header := range []string{"false", "true"} { // in this order: the model has a script
		want := header == "false"
		a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer owner-key", "turnpike-mcp-disabled", header)
		if a.Status != 200 || strings.Contains(string(a.Body), `"agentic_tool_calls":[{`) != want || strings.Contains(string(a.Body), "session_id") {
			t.Errorf("loop off %s: %d %s", header, a.Status, a.Body)
		}
	}
}
