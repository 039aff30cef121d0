package mcpserver_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// reportedSchemas are schemas of tools that one provider or another refuses, by the name of the
// tool. With a tool like these, every request of an org was answered with 400.
var reportedSchemas = map[string]string{
	"nothing":           `{"type":"object"}`,
	"open":              `{"type":"object","additionalProperties":true}`,
	"array":             `{"type":"object","properties":{"tags":{"type":"array"}}}`,
	"nested_array":      `{"type":"object","properties":{"o":{"type":"object","properties":{"l":{"type":["array","null"]},"m":{"type":"array"}}}}}`,
	"top_any_of":        `{"type":"object","anyOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`,
	"top_one_of":        `{"type":"object","oneOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"b":{"type":"array"}}}]}`,
	"top_not":           `{"type":"object","properties":{"a":{"type":"string"}},"not":{"required":["a"]}}`,
	"tuple":             `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"p":{"type":"array","items":[{"type":"number"},{"type":"string"}],"additionalItems":false}}}`,
	"tuple_in_branch":   `{"type":"object","properties":{"p":{"anyOf":[{"type":"array","items":[{"type":"number"}]},{"type":"null"}]}}}`,
	"boolean_bound":     `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"ttl":{"type":"integer","minimum":0,"exclusiveMinimum":true}}}`,
	"empty_arrays":      `{"type":"object","properties":[],"required":[]}`,
	"21st_builder":      `{"type":"object","properties":{}}`,
	"-find":             `{"type":"object","properties":{}}`,
	"name.with.dots":    `{"type":"object","properties":{"q":{"type":"string","format":"hostname","pattern":"^a"}}}`,
	"definitions_of_it": `{"type":"object","properties":{"d":{"$ref":"#/definitions/D"}},"definitions":{"D":{"type":"object"}}}`,
}

// One list of tools with all schemas is offered to every provider, each tool can be called, and
// each provider takes it. The same schemas are those of functions of the client. // D09 D25 M03
func TestEveryProviderTakesEveryReportedSchema(t *testing.T) {
	NoLeaks(t)
	var tools []turnpiketest.Tool
	var functions []string
	for name, schema := range reportedSchemas {
		tools = append(tools, turnpiketest.Tool{Name: name, Schema: schema, Result: "found"})
		if !strings.Contains(name, ".") { // in no dialect of OpenAI is that a name
			functions = append(functions, fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, "my"+name, schema),
				fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, name+"_", schema))
		}
	}
	for kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			functions := functions
			server1 := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, tools...)
			t.Cleanup(server1.Close)
			up := StrictUpstream(t, "call c1 nothing {}\n\ntext Done.")
			yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{Server("s", server1.URL)}}.Yaml()
			yaml, name := OfKind(yaml, kind)
			g := MustRun(t, yaml)
			if kind == "openai" { // what the client writes for its own dialect is passed on as it is
				functions = nil
			}
			a := g.Post(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"go"}],"tools":[%s]}`, name, strings.Join(functions, ",")))
			if text, _ := a.Completion(t); text != "Done." {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			if dropped := a.Header.Get("turnpike-dropped-params"); strings.Contains(dropped, "tools") {
				t.Errorf("not offered: %s", dropped)
			}
			if len(server1.Calls()) != 1 || len(up.Requests()) != 2 {
				t.Errorf("%d calls, %d requests", len(server1.Calls()), len(up.Requests()))
			}
			var sent struct{ Tools, ToolConfig json.RawMessage }
			if err := json.Unmarshal(up.Requests()[0].Body, &sent); err != nil {
				t.Fatal(err)
			}
			for tool := range reportedSchemas {
				if base := strings.Trim(strings.ReplaceAll(tool, ".", "_"), "-"); !strings.Contains(string(up.Requests()[0].Body), base) {
					t.Errorf("%s is not offered", tool)
				}
			}
		})
	}
}

// A function of the client whose name Gemini refuses has an alias there: the client sees its own
// name, and its history is sent with the alias. // D25 M03
func TestAFunctionWhoseNameGeminiRefuses(t *testing.T) {
	NoLeaks(t)
	sum := sha256.Sum256([]byte("21st"))
	alias := "_21st_" + hex.EncodeToString(sum[:4])
	up := StrictUpstream(t, "call c1 "+alias+" {}\n\ntext Done.")
	yaml, name := OfKind(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}.Yaml(), "gemini")
	g := MustRun(t, yaml)
	const head = `"tools":[{"type":"function","function":{"name":"21st"}}],"tool_choice":{"type":"function","function":{"name":"21st"}},"messages":[{"role":"user","content":"go"}`
	a := g.Post(`{"model":"` + name + `",` + head + `]}`)
	var got struct {
		Choices []struct {
			Message struct {
				Calls []json.RawMessage `json:"tool_calls"`
			}
		}
	}
	if err := json.Unmarshal(a.Body, &got); err != nil || len(got.Choices) != 1 || len(got.Choices[0].Message.Calls) != 1 || !strings.Contains(string(a.Body), `"name":"21st"`) {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	var call struct{ ID string }
	if err := json.Unmarshal(got.Choices[0].Message.Calls[0], &call); err != nil {
		t.Fatal(err)
	}
	b := g.Post(`{"model":"` + name + `",` + head + `,{"role":"assistant","tool_calls":[` + string(got.Choices[0].Message.Calls[0]) + `]},{"role":"tool","tool_call_id":"` + call.ID + `","content":"x"}]}`)
	if text, _ := b.Completion(t); text != "Done." {
		t.Fatalf("%d %s", b.Status, b.Body)
	}
	for i, r := range up.Requests() {
		if strings.Contains(string(r.Body), `"21st"`) || strings.Count(string(r.Body), alias) != []int{2, 4}[i] {
			t.Errorf("request %d: %s", i, r.Body)
		}
	}
}
