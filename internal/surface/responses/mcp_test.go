package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

func decodesMCP(t *testing.T, tools ...string) (*run.Request, []string, error) {
	t.Helper()
	req := &run.Request{Input: run.Input{Servers: []catalog.Server{{Name: "crm"}}}}
	var all []string
	for i, tool := range tools {
		dropped, err := decodeMCPTool(req, i, json.RawMessage(tool))
		if err != nil {
			return req, nil, err
		}
		all = append(all, dropped...)
	}
	return req, all, nil
}

// mcpWith is a tool that is accepted, with more members; a later member replaces an earlier one.
func mcpWith(more string) string {
	return `{"type":"mcp","server_label":"docs","server_url":"https://docs.example/mcp","require_approval":"never"` + more + `}`
}

// What a tool of type mcp asks for is honoured. // D21 D23
func TestAToolOfTypeMCP(t *testing.T) {
	req, dropped, err := decodesMCP(t,
		mcpWith(`,"authorization":"tok","headers":{"x-team":"blue"},"server_description":"Docs.","allowed_tools":["a","b"],"connector_id":null,"defer_loading":false`),
		`{"type":"mcp","server_label":"crm","require_approval":{"never":{"read_only":true}},"allowed_tools":{"read_only":true,"tool_names":["c"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	docs, crm := req.RequestServers[0], req.RequestServers[1]
	if docs.Label != "docs" || docs.URL.Reveal() != "https://docs.example/mcp" || len(docs.Headers) != 2 ||
		docs.Headers["X-Team"].Reveal() != "blue" || docs.Headers["Authorization"].Reveal() != "Bearer tok" || docs.ReadOnly != nil {
		t.Errorf("%+v", docs)
	}
	if crm.Label != "crm" || !crm.URL.IsZero() || crm.ReadOnly == nil || !*crm.ReadOnly {
		t.Errorf("%+v", crm)
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {"c"}, {"tools[0].server_description"}}, [][]string{docs.Tools, crm.Tools, dropped}); diff != "" {
		t.Error(diff)
	}
	for given, want := range map[string]string{"tok": "Bearer tok", "Bearer tok": "Bearer tok", "bearer tok": "bearer tok"} {
		req, _, err := decodesMCP(t, mcpWith(`,"authorization":"`+given+`"`))
		if err != nil || req.RequestServers[0].Headers["Authorization"].Reveal() != want {
			t.Errorf("%s: %v", given, err)
		}
	}
	if req, _, err = decodesMCP(t, mcpWith(`,"allowed_tools":[]`)); err != nil || req.RequestServers[0].Tools == nil {
		t.Errorf("an empty list of tools allows all: %v", err)
	}
}

// What cannot be honoured is refused, at its place. No error repeats a value. // D21
func TestToolsOfTypeMCPThatAreRefused(t *testing.T) {
	many := make([]string, maxMCPServers+1)
	for i := range many {
		many[i] = strings.Replace(mcpWith(""), "docs", fmt.Sprint("docs", i), 1)
	}
	headers := `,"headers":{`
	for i := range maxMCPHeaders + 1 {
		headers += fmt.Sprintf(`"h%d":"v",`, i)
	}
	for _, tt := range []struct {
		tools []string
		param string
	}{
		{[]string{`{"type":"mcp","server_url":"https://a.example","require_approval":"never"}`}, "tools[0].server_label"},
		{[]string{mcpWith(`,"server_label":7`)}, "tools[0].server_label"},
		{[]string{mcpWith(`,"server_label":"9a"`)}, "tools[0].server_label"},
		{[]string{mcpWith(`,"server_label":"a b"`)}, "tools[0].server_label"},
		{[]string{mcpWith(`,"server_label":"` + strings.Repeat("a", 65) + `"`)}, "tools[0].server_label"},
		{[]string{mcpWith(""), mcpWith("")}, "tools[1].server_label"},
		{many, "tools[20]"},

		{[]string{`{"type":"mcp","server_label":"other","require_approval":"never"}`}, "tools[0].server_url"},
		{[]string{`{"type":"mcp","server_label":"crm","authorization":"CANARY","require_approval":"never"}`}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":"file:///etc/CANARY"`)}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":"stdio:CANARY"`)}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":"https://user:CANARY@a.example"`)}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":"https://a.example/#CANARY"`)}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":"/CANARY"`)}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":""`)}, "tools[0].server_url"},
		{[]string{mcpWith(`,"server_url":["CANARY"]`)}, "tools[0].server_url"},

		{[]string{mcpWith(`,"headers":{"a":1}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"a":"CANARY\r\nb: c"}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"a b":"CANARY"}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"":"CANARY"}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"host":"CANARY"}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"Mcp-Session-Id":"CANARY"}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"a":"CANARY","A":"CANARY"}`)}, "tools[0].headers"},
		{[]string{mcpWith(`,"headers":{"a":"` + strings.Repeat("x", maxMCPHeader+1) + `"}`)}, "tools[0].headers"},
		{[]string{mcpWith(strings.TrimSuffix(headers, ",") + "}")}, "tools[0].headers"},
		{[]string{mcpWith(`,"authorization":"CANARY","headers":{"authorization":"CANARY"}`)}, "tools[0].authorization"},
		{[]string{mcpWith(`,"authorization":"CANARY\n"`)}, "tools[0].authorization"},
		{[]string{mcpWith(`,"authorization":{}`)}, "tools[0].authorization"},

		{[]string{mcpWith(`,"connector_id":"connector_gmail"`)}, "tools[0].connector_id"},
		{[]string{mcpWith(`,"tunnel_id":"t"`)}, "tools[0].tunnel_id"},
		{[]string{mcpWith(`,"defer_loading":true`)}, "tools[0].defer_loading"},
		{[]string{mcpWith(`,"allowed_callers":["x"]`)}, "tools[0].allowed_callers"},
		{[]string{mcpWith(`,"allowed_tools":"a"`)}, "tools[0].allowed_tools"},
		{[]string{mcpWith(`,"allowed_tools":{"names":["a"]}`)}, "tools[0].allowed_tools"},
		{[]string{mcpWith(`,"allowed_tools":[1]`)}, "tools[0].allowed_tools"},
		{[]string{`[]`}, "tools[0]"},
	} {
		_, _, err := decodesMCP(t, tt.tools...)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.Invalid || f.Param != tt.param || strings.Contains(f.Message, "CANARY") {
			t.Errorf("%.120s: %v, want an error at %s", tt.tools[len(tt.tools)-1], err, tt.param)
		}
	}
}

// D21, row 12 of the parity bugs: the default is to ask, and so is what an object does not say.
func TestRequireApproval(t *testing.T) {
	for _, tt := range []struct {
		approval string // "" = absent
		asks     string // the tools that wait, of a, b and r, which only reads
	}{
		{"", "abr"}, {"null", "abr"}, {`"always"`, "abr"}, {`"never"`, ""}, {`{}`, "abr"}, {`{"never":{}}`, "abr"}, {`{"never":null}`, "abr"},
		{`{"never":{"tool_names":["a","b"]}}`, "r"}, {`{"never":["a"]}`, "br"}, {`{"never":{"tool_names":[]}}`, "abr"},
		{`{"never":{"read_only":true}}`, "ab"}, {`{"never":{"read_only":false}}`, "r"}, {`{"never":{"read_only":true,"tool_names":["a"]}}`, "abr"},
		{`{"never":{"tool_names":["a"]},"always":{"tool_names":["b"]}}`, "br"}, {`{"never":{"tool_names":["a"]},"always":{"tool_names":["a"]}}`, "abr"},
		{`{"never":{"tool_names":["a"]},"always":{}}`, "abr"}, {`{"never":{"tool_names":["a"]},"always":null}`, "br"},
		{`{"never":{"read_only":true},"always":{"read_only":false}}`, "ab"}, {`{"always":{"tool_names":["b"]}}`, "abr"},
		{`"sometimes"`, "refused"}, {`""`, "refused"}, {`7`, "refused"}, {`{"ever":{}}`, "refused"}, {`{"never":{"names":["a"]}}`, "refused"},
	} {
		tool := `{"type":"mcp","server_label":"docs","server_url":"https://docs.example/mcp"`
		if tt.approval != "" {
			tool += `,"require_approval":` + tt.approval
		}
		req, _, err := decodesMCP(t, tool+"}")
		var f *fault.Error
		if errors.As(err, &f) {
			if tt.asks != "refused" || f.Param != "tools[0].require_approval" {
				t.Errorf("%s: %v", tool, err)
			}
			continue
		}
		got := ""
		for _, name := range []string{"a", "b", "r"} {
			if req.RequestServers[0].Approval.Asks(name, name == "r", func(string) bool { return true }) {
				got += name
			}
		}
		if got != tt.asks {
			t.Errorf("%s: %q wait, want %q", tool, got, tt.asks)
		}
	}
}

// The response repeats the tool without credentials. // C24
func TestTheEchoOfAToolOfTypeMCPHasNoCredentials(t *testing.T) {
	got := string(echoMCPTool(json.RawMessage(strings.Replace(
		mcpWith(`,"authorization":"CANARY","headers":{"a":"CANARY"}`), "docs.example/mcp", "docs.example/CANARY?k=CANARY", 1))))
	want := `{"allowed_tools":null,"headers":null,"require_approval":"never","server_label":"docs","server_url":"https://docs.example/redacted","type":"mcp"}`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for url, want := range map[string]string{"https://a.example": "https://a.example", "https://a.example:8/": "https://a.example:8", ":": "redacted"} {
		if got := redactedURL(url); got != want {
			t.Errorf("%s is shown as %s", url, got)
		}
	}
}

// choosing returns a request with a choice of a tool of a server.
func choosing(mode model.ToolChoiceMode, only run.ServerTool) run.Request {
	return run.Request{Input: run.Input{
		Conversation: run.Conversation{ToolChoice: model.ToolChoice{Mode: mode}}, OnlyOf: []run.ServerTool{only},
	}}
}

// A choice names a server that the request declares. // B09
func TestAChoiceOfTypeMCP(t *testing.T) {
	for raw, want := range map[string]run.Request{
		`{"type":"mcp","server_label":"docs"}`:             choosing(model.ChooseRequired, run.ServerTool{Server: "request:docs"}),
		`{"type":"mcp","server_label":"docs","name":"a"}`:  choosing(model.ChooseNamed, run.ServerTool{Server: "request:docs", Tool: "a"}),
		`{"type":"mcp","server_label":"docs","name":null}`: choosing(model.ChooseRequired, run.ServerTool{Server: "request:docs"}),
	} {
		req, _, err := decodesMCP(t, mcpWith(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := chooseMCP(req, json.RawMessage(raw)); err != nil || !cmp.Equal(req.ToolChoice, want.ToolChoice) || !cmp.Equal(req.OnlyOf, want.OnlyOf) {
			t.Errorf("%s: %v %+v %+v", raw, err, req.ToolChoice, req.OnlyOf)
		}
	}
	for _, raw := range []string{`{"type":"mcp"}`, `{"type":"mcp","server_label":"crm"}`, `{"type":"mcp","server_label":7}`} {
		req, _, _ := decodesMCP(t, mcpWith(""))
		if err := chooseMCP(req, json.RawMessage(raw)); fault.From(err).Code != fault.Invalid {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
