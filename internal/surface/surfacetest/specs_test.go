package surfacetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
)

// document is an OpenAPI document, with the schemas of the Responses API.
type document struct {
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by name
	events   map[string]string             // names of schemas, by the type of the event
}

// readDocument reads a document of the directory of specifications.
func readDocument(t *testing.T, name string) *document {
	t.Helper()
	path := filepath.Join(filepath.Dir(providertest.Root(t)), "specs", name)
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
	case os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1":
		t.Fatal(err)
	default:
		t.Skipf("no specifications: %v", err)
	}
	var doc map[string]any
	if strings.HasSuffix(name, ".yaml") {
		var generic any
		if err := yaml.Unmarshal(data, &generic); err != nil {
			t.Fatal(err)
		}
		if data, err = json.Marshal(generic); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	d := &document{compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, events: map[string]string{}}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, s := range schemas { // these two are not of the draft that the document names
		if s.(map[string]any)["$recursiveAnchor"] != nil {
			schemas[name] = map[string]any{"type": "object"}
		}
	}
	// Only the schemas are a JSON Schema; the rest of the document is not compiled.
	if err := d.compiler.AddResource("mem:///spec", map[string]any{"components": map[string]any{"schemas": schemas}}); err != nil {
		t.Fatal(err)
	}
	for name, s := range schemas {
		members, _ := s.(map[string]any)["properties"].(map[string]any)
		kind, _ := members["type"].(map[string]any)
		if values, ok := kind["enum"].([]any); ok && len(values) == 1 && members["sequence_number"] != nil && !strings.HasPrefix(name, "Beta") {
			d.events[values[0].(string)] = name
		}
	}
	if len(d.events) < 20 {
		t.Fatalf("%s has %d events: has its form changed?", name, len(d.events))
	}
	return d
}

// check validates a value against a schema of the document.
func (d *document) check(t *testing.T, where, name string, value any) {
	t.Helper()
	s := d.schemas[name]
	if s == nil {
		var err error
		if s, err = d.compiler.Compile("mem:///spec#/components/schemas/" + name); err != nil {
			t.Fatal(err)
		}
		d.schemas[name] = s
	}
	if err := s.Validate(value); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// ours are the reasons of incomplete_details that the documents do not have, with one that
// they have. Everything else of a response must be as they say.
var ours = strings.NewReplacer(
	`"reason":"max_rounds"`, `"reason":"max_output_tokens"`, `"reason":"no_progress"`, `"reason":"max_output_tokens"`,
	`"reason":"deadline"`, `"reason":"max_output_tokens"`, `"reason":"max_tool_calls"`, `"reason":"max_output_tokens"`,
	`"reason":"run_tokens"`, `"reason":"max_output_tokens"`, `"reason":"run_cost"`, `"reason":"max_output_tokens"`,
)

// Every body and every event of the stories is valid in the document of OpenAI, and in that
// of Open Responses, which is stricter and does not know items of MCP servers.
func TestResponsesAreValidInBothDocuments(t *testing.T) { // G15 O06
	openAI, open := readDocument(t, "openai-openapi-2026-08-21.yaml"), readDocument(t, "open-responses-openapi-2026-04-24.json")
	stories, err := readStories()
	if err != nil {
		t.Fatal(err)
	}
	bodies, events := 0, 0
	for _, s := range stories {
		for _, p := range s.parts {
			_, form, _ := strings.Cut(strings.TrimPrefix(p.name, "second "), "responses.")
			if form != "json" && form != "sse" || strings.HasPrefix(p.name, "prompts") || strings.HasPrefix(p.name, "events") {
				continue
			}
			where := s.path + " " + p.name
			if _, body, ok := strings.Cut(p.text, "\n\n{"); ok && !strings.HasPrefix(p.text, "event:") {
				var compact strings.Builder
				compact.WriteString("{")
				compact.WriteString(body)
				value := parseJSON(t, compact.String())
				bodies++
				if _, isError := value["error"].(map[string]any); isError && value["object"] == nil {
					openAI.check(t, where, "ErrorResponse", value)
					continue
				}
				openAI.check(t, where, "Response", value)
				open.check(t, where, "ResponseResource", value)
			}
			for line := range strings.Lines(p.text) {
				data, isEvent := strings.CutPrefix(line, "data: {")
				if !isEvent {
					continue
				}
				value := parseJSON(t, "{"+data)
				kind, _ := value["type"].(string)
				events++
				openAI.check(t, where+" "+kind, openAI.events[kind], value)
				if name := open.events[kind]; name != "" {
					open.check(t, where+" "+kind, name, value)
				} else if !strings.HasPrefix(kind, "response.mcp_") && !strings.HasPrefix(kind, "response.custom_tool_call_input.") {
					t.Errorf("%s: Open Responses has no event %s", where, kind)
				}
			}
		}
	}
	if bodies < 80 || events < 800 {
		t.Errorf("%d bodies and %d events: the stories are not read", bodies, events)
	}
}

// parseJSON reads an object, with the reasons of the documents.
func parseJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(ours.Replace(strings.ReplaceAll(text, `"reason": "`, `"reason":"`))))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value.(map[string]any)
}
