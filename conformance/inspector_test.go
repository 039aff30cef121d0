package conformance

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"testing"
)

// testInspector lists and calls the tools of the org with the MCP Inspector, over /mcp.
func testInspector(t *testing.T, s *site) { // D26
	r := s.newRigWith(t, sumScript, func(r *rig) []object {
		return []object{{"name": "everything", "url": r.proxy.URL + "/mcp", "tools": []string{"echo", "get-sum", "get-env"}, "require_approval": object{"always": object{"tool_names": []string{"get-env"}}}}}
	})
	printed, err := r.program.command(t, "keys", "create", "inspector", "--role", "tools", "--tools", "get-*")
	token := regexp.MustCompile(`(?m)^tp_\S+`).FindString(printed)
	if err != nil || token == "" {
		t.Fatalf("keys create printed %q, %v", printed, err)
	}
	home := t.TempDir()
	inspect := func(args ...string) map[string]any {
		t.Helper()
		args = append([]string{
			"node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli", r.gateway + "/mcp", "--transport", "http",
			"--header", "Authorization: Bearer " + token,
		}, args...)
		cmd := exec.CommandContext(t.Context(), s.node, args...)
		cmd.Env = append(baseEnv(), "HOME="+home)
		output, err := cmd.Output()
		var out map[string]any
		if json.Unmarshal(output, &out) != nil {
			t.Fatalf("the Inspector printed %q, %v", output, err)
		}
		return out
	}
	var names []any
	for _, one := range inspect("--method", "tools/list")["tools"].([]any) {
		names = append(names, one.(map[string]any)["name"])
	}
	wantEqual(t, "tools", any([]any{"get-env", "get-sum"}), any(names))
	sum := inspect("--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=20", "b=22")
	wantEqual(t, "content", any([]any{map[string]any{"type": "text", "text": "The sum of 20 and 22 is 42."}}), sum["content"])
	refused := inspect("--method", "tools/call", "--tool-name", "get-env")
	wantEqual(t, "a call that needs an approval is an error", any(true), refused["isError"])
	r.program.wantRunning(t)
}
