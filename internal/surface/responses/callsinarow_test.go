package responses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The limit on calls ends a response, and no limit on rounds does before: a model that asks for one tool at a
// time can make all of its calls, and then answers. // B08 B09
func TestAResponseMakesAllItsCallsOneAfterTheOther(t *testing.T) {
	NoLeaks(t)
	for name, c := range map[string]struct {
		member, runtime string
		wants           int // calls that the model asks for
		made            int
		reason          string
	}{
		"as many as it may":  {wants: 10, made: 10},
		"one more":           {wants: 11, made: 10, reason: "max_tool_calls"},
		"more are asked for": {member: `"max_tool_calls":50,`, wants: 11, made: 10, reason: "max_tool_calls"},
		"fewer":              {member: `"max_tool_calls":2,`, wants: 3, made: 2, reason: "max_tool_calls"},
		"calls of the org":   {runtime: "max_calls: 30", wants: 30, made: 30},
		"rounds of the org":  {runtime: "max_rounds: 4", wants: 10, made: 4, reason: "max_rounds"},
	} {
		t.Run(name, func(t *testing.T) {
			var story strings.Builder
			for i := range c.wants {
				fmt.Fprintf(&story, "call c%d echo {\"n\":%d}\n\n", i, i)
			}
			up := upstreamtest.New(turnpiketest.NewScript(t, story.String()+"text Done."), upstreamtest.Options{})
			t.Cleanup(up.Close)
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			g := MustRun(t, Site{Upstream: up.URL, Runtime: c.runtime, Servers: []string{Server("tools", tools.URL)}}.Yaml())
			a := g.Send("POST", "/v1/responses", strings.NewReader(`{`+c.member+`"model":"m","input":"x"}`), "Authorization", "Bearer owner-key")
			var got struct {
				Status     string
				Incomplete *struct{ Reason string } `json:"incomplete_details"`
			}
			if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			if got.Incomplete == nil != (c.reason == "") || got.Incomplete != nil && got.Incomplete.Reason != c.reason {
				t.Errorf("%s, %+v; want %q", got.Status, got.Incomplete, c.reason)
			}
			if answered := strings.Contains(string(a.Body), "Done."); answered != (c.reason == "") {
				t.Errorf("answered: %v\n%s", answered, a.Body)
			}
			if n := len(tools.Of("tools/call")); n != c.made {
				t.Errorf("%d calls were made, want %d", n, c.made)
			}
		})
	}
}

// A call that is answered without running stands in its place among the calls that run: in the items, in
// agentic_tool_calls, and in the audit log, on both APIs, streamed or not. // C05 L02
func TestRefusedCallsKeepTheirPlace(t *testing.T) {
	NoLeaks(t)
	const story = "call c1 read {}\ncall c2 search [1]\ncall c3 search {\"q\":1}\ncall c4 read 7\n\ntext Done."
	for _, how := range []string{`"stream":false`, `"stream":true`} {
		p := NewParitySite(t, "openai", story, "")
		a := p.Respond(`"input":"go","tools":[` + p.DocsTool(Never) + `],` + how)
		inTheirOrder(t, "Responses, "+how, p.Gateway, a, `"mcp_call"`)

		up := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{})
		t.Cleanup(up.Close)
		tools := NewMCP(t, map[string]Handler{"read": Echo, "search": Echo})
		site := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Runtime: "extensions: [trace]", Servers: []string{Server("tools", tools.URL)}}
		g := MustRun(t, site.Yaml())
		a = g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"go"}],`+how+`}`))
		inTheirOrder(t, "chat, "+how, g, a, `"call_key"`)
	}
}

// inTheirOrder checks the order of the calls of TestRefusedCallsKeepTheirPlace in the last object of the answer, in which mark
// begins a call, and in the audit log.
func inTheirOrder(t *testing.T, what string, g *Gateway, a Answer, mark string) {
	t.Helper()
	text := string(a.Body)
	text = text[max(0, strings.LastIndex(text, `"response":`), strings.LastIndex(text, `"agentic_tool_calls":`)):]
	var names []string
	for _, call := range strings.Split(text, mark)[1:] {
		_, after, _ := strings.Cut(call, `"name":"`)
		of, _, _ := strings.Cut(after, `"`)
		names = append(names, of)
	}
	if fmt.Sprint(names) != "[read search search read]" {
		t.Errorf("%s: calls %q\n%s", what, names, a.Body)
	}
	rows := string(g.Send("GET", "/api/audit?kind=audit_log.agent.tool_call&limit=100", nil).Body)
	var indexes []string
	for _, row := range strings.Split(rows, `"tool_call_index":`)[1:] {
		indexes = append(indexes, row[:1])
	}
	if fmt.Sprint(indexes) != "[0 1 2 3]" {
		t.Errorf("%s: audit rows of the calls %q\n%s", what, indexes, rows)
	}
}
