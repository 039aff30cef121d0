package responses_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestWhatAServersListsSayHoldsForTheNextRequest(t *testing.T) { // D11 D19 D29
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	made := d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"tools","url":%q}`, tools.URL+"/mcp"), 201)
	if fmt.Sprint(made["reads"], made["keyed"], made["max_concurrent_calls"]) != "[] [] 256" {
		t.Errorf("created %v", made)
	}
	d.Post(ChatBody)
	d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"reads":["echo"]}`, 200)
	d.Post(ChatBody)
	d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"reads":[],"keyed":["echo","later"],"max_concurrent_calls":3}`, 200)
	d.Post(ChatBody)
	got := tools.Keys(t)
	if len(got) != 3 || !strings.HasPrefix(got[0], "turnpike:") || got[1] != "" || !strings.HasPrefix(got[2], "turnpike:") || got[0] == got[2] {
		t.Errorf("keys %q, want one for the call that may write, none for the one that reads, another for the keyed one", got)
	}
	if s := d.Do("GET", "/api/mcp-servers/tools", "owner-key", "", 200); fmt.Sprint(s["reads"], s["keyed"], s["max_concurrent_calls"]) != "[] [echo later] 3" {
		t.Errorf("stored %v", s)
	}
	d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"max_concurrent_calls":null}`, 200)
	if s := d.Do("GET", "/api/mcp-servers/tools", "owner-key", "", 200); fmt.Sprint(s["max_concurrent_calls"]) != "256" {
		t.Errorf("null: %v", s)
	}
	unknown := d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"concurrency":4}`, 422) // a setting of the org
	if !strings.Contains(fmt.Sprint(unknown), "concurrency: unknown key; known here: name, url, ") {
		t.Errorf("an unknown key: %v", unknown)
	}
	refused := d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"reads":["later"]}`, 422)
	if !strings.Contains(fmt.Sprint(refused), `"later" is also in reads`) {
		t.Errorf("refused with %v", refused)
	}
}
