package app_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// keys returns the idempotency key of each call that the server got.
func (m *mcpServer) keys(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, r := range m.of("tools/call") {
		var p struct {
			Meta struct {
				Key string `json:"turnpike/idempotencyKey"`
			} `json:"_meta"`
		}
		if err := json.Unmarshal(r.Params, &p); err != nil {
			t.Fatal(err)
		}
		if header := r.header.Get("Idempotency-Key"); header != p.Meta.Key {
			t.Errorf("the header has the key %q, _meta %q", header, p.Meta.Key)
		}
		out = append(out, p.Meta.Key)
	}
	return out
}

func TestWhatAServersListsSayHoldsForTheNextRequest(t *testing.T) { // D11 D19 D29
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	made := d.do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"tools","url":%q}`, tools.URL+"/mcp"), 201)
	if fmt.Sprint(made["reads"], made["keyed"], made["max_concurrent_calls"]) != "[] [] 256" {
		t.Errorf("created %v", made)
	}
	d.post(chatBody)
	d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"reads":["echo"]}`, 200)
	d.post(chatBody)
	d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"reads":[],"keyed":["echo","later"],"max_concurrent_calls":3}`, 200)
	d.post(chatBody)
	got := tools.keys(t)
	if len(got) != 3 || !strings.HasPrefix(got[0], "turnpike:") || got[1] != "" || !strings.HasPrefix(got[2], "turnpike:") || got[0] == got[2] {
		t.Errorf("keys %q, want one for the call that may write, none for the one that reads, another for the keyed one", got)
	}
	if s := d.do("GET", "/api/mcp-servers/tools", "owner-key", "", 200); fmt.Sprint(s["reads"], s["keyed"], s["max_concurrent_calls"]) != "[] [echo later] 3" {
		t.Errorf("stored %v", s)
	}
	d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"max_concurrent_calls":null}`, 200)
	if s := d.do("GET", "/api/mcp-servers/tools", "owner-key", "", 200); fmt.Sprint(s["max_concurrent_calls"]) != "256" {
		t.Errorf("null: %v", s)
	}
	unknown := d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"concurrency":4}`, 422) // a setting of the org
	if !strings.Contains(fmt.Sprint(unknown), "concurrency: unknown key; known here: name, url, ") {
		t.Errorf("an unknown key: %v", unknown)
	}
	refused := d.do("PATCH", "/api/mcp-servers/tools", "owner-key", `{"reads":["later"]}`, 422)
	if !strings.Contains(fmt.Sprint(refused), `"later" is also in reads`) {
		t.Errorf("refused with %v", refused)
	}
}
