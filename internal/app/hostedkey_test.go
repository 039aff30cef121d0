package app_test

import (
	"fmt"
	"strings"
	"testing"
)

// Over the API a type of hosted tools has one server, too, whether that is declared or stored.
func TestATypeOfHostedToolsHasOneServerOfAnOrg(t *testing.T) {
	noLeaks(t)
	declared := site{upstream: "http://127.0.0.1:9", servers: []string{server("a", "http://127.0.0.1:9", "hosted: [web_search=find]")}}.yaml()
	d := manage(MustRun(t, declared))
	const b = `{"name":"b","url":"http://127.0.0.1:9","hosted":[%q]}`
	refused := func(method, path, body, want string) {
		t.Helper()
		if got := fmt.Sprint(d.do(method, path, "owner-key", body, 409)); !strings.Contains(got, want) || !strings.Contains(got, "param:hosted") {
			t.Errorf("%s %s: %s", method, body, got)
		}
	}
	refused("POST", "/api/mcp-servers", fmt.Sprintf(b, "web_search=search"), `hosted of the MCP server "a" already has web_search`)
	if made := d.do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(b, "file_search=search"), 201); fmt.Sprint(made["hosted"]) != "[file_search=search]" {
		t.Errorf("created %v", made)
	}
	refused("PATCH", "/api/mcp-servers/b", `{"hosted":["file_search=search","web_search=search"]}`, `"a" already has web_search`)
	refused("POST", "/api/mcp-servers", strings.Replace(fmt.Sprintf(b, "file_search=search"), `"b"`, `"c"`, 1), `"b" already has file_search`)
	if changed := d.do("PATCH", "/api/mcp-servers/b", "owner-key", `{"hosted":["file_search=other"]}`, 200); fmt.Sprint(changed["hosted"]) != "[file_search=other]" {
		t.Errorf("changed %v", changed)
	}
}
