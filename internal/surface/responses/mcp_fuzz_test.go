package responses

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// FuzzMCPTool: a tool of type mcp is accepted or refused at its place, and neither the error
// nor the echo has its credentials.
func FuzzMCPTool(f *testing.F) {
	for _, more := range []string{
		"", `,"authorization":"CANARY"`, `,"headers":{"a":"CANARY","b":"CANARY"}`, `,"server_url":"https://u:CANARY@x/"`, `,"server_url":"https://x/CANARY?CANARY"`,
		`,"allowed_tools":{"tool_names":["a"],"read_only":true}`, `,"require_approval":{"never":{"tool_names":["a"]},"always":{"read_only":false}}`, `,"server_label":"crm"`,
	} {
		f.Add(mcpWith(more))
	}
	f.Fuzz(func(t *testing.T, text string) {
		req := &run.Request{Input: run.Input{Servers: []catalog.Server{{Name: "crm"}}}}
		_, err := decodeMCPTool(req, 0, json.RawMessage(text))
		var members map[string]json.RawMessage
		secretly := json.Unmarshal([]byte(text), &members) == nil && hasOnlySecretCanaries(members)
		switch {
		case err != nil && (fault.From(err).Code != fault.Invalid || !strings.HasPrefix(fault.From(err).Param, "tools[0]")):
			t.Errorf("%q: %v", text, err)
		case err != nil && secretly && strings.Contains(err.Error(), "CANARY"):
			t.Errorf("%q: the error has a credential: %v", text, err)
		case err == nil && len(req.RequestServers) != 1:
			t.Errorf("%q: %d servers", text, len(req.RequestServers))
		case err == nil && secretly && strings.Contains(string(echoMCPTool(json.RawMessage(text))), "CANARY"):
			t.Errorf("%q: the echo has a credential", text)
		}
	})
}

// hasOnlySecretCanaries reports whether the canary is only in members that are secret.
func hasOnlySecretCanaries(members map[string]json.RawMessage) bool {
	for name, value := range members {
		var text string
		_ = json.Unmarshal(value, &text) // "" if it is another type
		switch {
		case name == "headers" || name == "authorization":
		case strings.Contains(name+string(value)+text, "CANARY") && name != "server_url":
			return false
		case name == "server_url" && strings.Contains(hostPart(text), "CANARY"):
			return false
		}
	}
	return true
}

// hostPart returns the scheme and the host of a URL, which the echo repeats.
func hostPart(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	return scheme + host[strings.LastIndex(host, "@")+1:]
}

// FuzzMCPReplay: what a client sends back is refused, or is a call with one result.
func FuzzMCPReplay(f *testing.F) {
	f.Add(`{"id":"mcp_1","name":"a","arguments":"{}","output":"x","error":{"content":[{"text":"y"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		items, err := replayMCPCall("input[0]", json.RawMessage(text), 1)
		if err == nil && (len(items) != 2 || items[0].CallID == "" || items[0].CallID != items[1].CallID || items[0].Name == "") {
			t.Errorf("%q: %+v", text, items)
		}
	})
}
