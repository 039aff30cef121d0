package admin_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

// The members that a body of the management API may have are those of the document: a member that one of both has
// alone is named here.
func TestBodiesHaveTheMembersOfTheDocument(t *testing.T) {
	NoLeaks(t)
	yaml := "operator_key: operator-key\n" + strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRun(t, yaml))
	made := func(path, body string) map[string]any { return d.Do("POST", path, "owner-key", body, 201) }
	agent := d.NewAgent("")
	nested := "/api/agents/" + agent
	key := made("/api/keys", `{"name":"k","role":"member"}`)["id"]
	made("/api/mcp-servers", `{"name":"s","url":"http://127.0.0.1:1009/mcp"}`)
	made("/api/webhooks", `{"name":"w","url":"http://127.0.0.1:1009","events":["run.waiting"]}`)
	tool := made("/api/tools", `{"name":"t","tool_type":"custom","input_schema":{"type":"object"},"description":"d",
		"config":{"endpoint":"http://127.0.0.1:1009/"}}`)["id"]
	session := made(nested+"/sessions", `{}`)["id"]
	server := made(nested+"/mcp-servers", `{"name":"n","url":"http://127.0.0.1:1009/mcp"}`)["id"]
	assigned := made(nested+"/tools", `{"tool_type":"builtin","tool_name":"storage_read"}`)["id"]
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"p"}`, 201)
	ids := map[string]any{
		"/api/keys/{id}": key, "/api/mcp-servers/{name}": "s", "/api/webhooks/{name}": "w", "/api/agents/{id}": agent, "/api/tools/{id}": tool,
		"/api/sessions/{id}": session, "/mcp-servers/{sid}": server, "/tools/{aid}": assigned, "/api/settings/{key}": "VISION_MODEL",
	}
	known := regexp.MustCompile(`known (?:members are|here:) ([^"\\;]*)`)
	refused := []string{ // by name, with the reason
		"command", "env", "knowledge_bases", "runtime_knowledge_bases", "context_handler_id", "context_override", "context_items",
	}
	for path, operations := range d.Bodies() {
		at := strings.NewReplacer("/v1/sessions/{id}", "/v1/sessions/s", "/orgs/{org}", "/orgs/p").Replace(path)
		for template, id := range ids {
			prefix, _, _ := strings.Cut(template, "{")
			at = strings.Replace(at, template, prefix+fmt.Sprint(id), 1)
		}
		for method, members := range operations {
			operation, holder, body := method+" "+path, "owner-key", `{"zzzzzzzz":1}`
			switch {
			case operation == "PUT /api/secrets/{name}": // quotes nothing of its body
				continue
			case strings.HasPrefix(path, "/api/orgs"):
				holder = "operator-key"
			case operation == "POST /api/agents/{id}/tools": // a member that decides about others
				body = `{"tool_type":"builtin","tool_name":"storage_write","zzzzzzzz":1}`
			}
			a := d.Gateway.Send(method, at, strings.NewReader(body), "Authorization", "Bearer "+holder)
			var got []string
			if found := known.FindSubmatch(a.Body); found != nil {
				got = strings.Split(string(found[1]), ", ")
			}
			got = slices.DeleteFunc(got, func(name string) bool {
				return slices.Contains(refused, name) || name == "id" && strings.Contains(path, "/mcp-servers")
			})
			slices.Sort(got)
			if want := slices.Sorted(maps.Keys(members)); !slices.Equal(got, want) {
				t.Errorf("%s reads\n%q, and the document has\n%q: %d %s", operation, got, want, a.Status, a.Body)
			}
		}
	}
}

// What somebody sets of a thing, the answer about it has.
func TestWhatABodySetsIsInTheAnswer(t *testing.T) {
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.Yaml()))
	sometimes := []string{"url", "prefix", "price_usd", "mcp_servers", "hooks", "tools", "input_schema", "config"}
	for _, path := range []string{
		"/api/keys", "/api/mcp-servers", "/api/webhooks", "/api/agents", "/api/agents/{id}/mcp-servers", "/api/agents/{id}/hooks", "/api/tools",
	} {
		always, answered := d.Answered("POST", path, 201)
		for name := range d.Bodies()[path]["POST"] {
			if !slices.Contains(answered, name) || !slices.Contains(always, name) && !slices.Contains(sometimes, name) {
				t.Errorf("POST %s sets %s, which its answer need not have", path, name)
			}
		}
	}
}

// The document names the built-in tools that there are.
func TestTheDocumentNamesTheBuiltinTools(t *testing.T) {
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.Yaml()))
	var names []string
	for _, name := range d.At("components", "schemas", "BuiltinToolSettings", "properties", "name", "enum").([]any) {
		names = append(names, fmt.Sprint(name))
	}
	if !slices.Equal(names, builtin.Names()) {
		t.Errorf("the document names %q, and the table has %q", names, builtin.Names())
	}
}
