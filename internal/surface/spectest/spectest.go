// Package spectest checks what /v1/responses and /v1/conversations answer against two
// specifications: the document of OpenAI, and that of Open Responses, which is stricter for
// responses and has nothing else.
//
//	specs := spectest.Read(t)
//	specs.Check(t, "GET /v1/responses/resp_1", body)
//
// The documents are not part of the repository. Without them, the tests that need them are
// skipped.
package spectest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
)

// Documents are the two specifications. A nil *Documents checks nothing. Its methods can be
// called at the same time.
type Documents struct {
	openAI, open *document

	bodies, events atomic.Int64
}

// document is a specification, compiled.
type document struct {
	schemas map[string]*jsonschema.Schema // by name
	events  map[string]*jsonschema.Schema // by the type of the event
	names   membersOf
}

// Read reads the specifications. If they are not there, it skips the test, or fails it where
// TURNPIKE_TEST_NO_SKIP is 1.
func Read(t testing.TB) *Documents {
	t.Helper()
	d := Find(t)
	if d == nil {
		t.Skip("no specifications beside the recordings")
	}
	return d
}

// Find is Read for a test that also proves something else: it returns nil if the
// specifications are not there.
func Find(t testing.TB) *Documents {
	t.Helper()
	shared := filepath.Dir(providertest.Root(t))
	dir := filepath.Join(shared, "specs")
	if _, err := os.Stat(dir); err != nil { // of a module within this one, shared is one further up
		dir = filepath.Join(shared, "..", "..", "shared", "specs")
	}
	openAI, err := read(filepath.Join(dir, "openai-openapi-2026-08-21.yaml"), "Response", "ResponseItemList", "ErrorResponse",
		"ConversationResource", "DeletedConversationResource", "ConversationItemList", "ConversationItem", "CompactResource")
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("TURNPIKE_TEST_NO_SKIP") != "1" {
		return nil
	}
	var open *document
	if err == nil {
		open, err = read(filepath.Join(dir, "open-responses-openapi-2026-04-24.json"), "ResponseResource", "ItemField", "ErrorPayload", "CompactResource")
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Documents{openAI: openAI, open: open}
}

// read reads a document and compiles the schemas of its events, and those with the names.
func read(path string, names ...string) (*document, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Components struct {
			Schemas map[string]map[string]any
		}
		Paths map[string]map[string]any
	}
	if strings.HasSuffix(path, ".yaml") {
		var generic any
		if err := yaml.Unmarshal(data, &generic); err != nil {
			return nil, err
		}
		if data, err = json.Marshal(generic); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	schemas := map[string]any{}
	for name, s := range doc.Components.Schemas {
		schemas[name] = s
		if s["$recursiveAnchor"] != nil { // of an older draft than the document names
			schemas[name] = map[string]any{"type": "object"}
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	// Only the schemas are a JSON Schema; the rest of the document is not compiled.
	if err := compiler.AddResource("mem:///spec", map[string]any{"components": map[string]any{"schemas": schemas}}); err != nil {
		return nil, err
	}
	d := &document{map[string]*jsonschema.Schema{}, map[string]*jsonschema.Schema{}, membersOf{doc.Components.Schemas, doc.Paths}}
	compiled := func(name string) (*jsonschema.Schema, error) {
		return compiler.Compile("mem:///spec#/components/schemas/" + name)
	}
	for _, name := range names {
		if d.schemas[name], err = compiled(name); err != nil {
			return nil, err
		}
	}
	for name, s := range doc.Components.Schemas {
		if kind := eventType(name, s); kind != "" {
			if d.events[kind], err = compiled(name); err != nil {
				return nil, err
			}
		}
	}
	if len(d.events) < 20 {
		return nil, fmt.Errorf("%s has %d events: has its form changed?", path, len(d.events))
	}
	return d, nil
}

// eventType returns the type of the event that a schema describes; "" if it is of no event.
func eventType(name string, schema map[string]any) string {
	members, _ := schema["properties"].(map[string]any)
	kind, _ := members["type"].(map[string]any)
	values, _ := kind["enum"].([]any)
	if len(values) != 1 || members["sequence_number"] == nil || strings.HasPrefix(name, "Beta") {
		return ""
	}
	return values[0].(string)
}

// Checked returns how many bodies and events were checked.
func (d *Documents) Checked() (bodies, events int) { return int(d.bodies.Load()), int(d.events.Load()) }

// Check reports a test error for each violation in an answer.
func (d *Documents) Check(t testing.TB, where, answer string) {
	t.Helper()
	for _, err := range d.Violations(where, answer) {
		t.Error(err)
	}
}

// Violations returns what is wrong with an answer: a JSON body, or a stream of events. where
// names it; the list of input items is one whose name has input_items.
func (d *Documents) Violations(where, answer string) (wrong []error) {
	if d == nil {
		return nil
	}
	if value, err := parse(answer); err == nil {
		d.bodies.Add(1)
		return named(where, d.body(where, value))
	}
	found := false
	for line := range strings.Lines(answer) {
		data, is := strings.CutPrefix(line, "data: ")
		if !is || strings.HasPrefix(data, "[DONE]") {
			continue
		}
		value, err := parse(data)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w: %s", where, err, data))
			continue
		}
		found = true
		d.events.Add(1)
		wrong = append(wrong, named(fmt.Sprint(where, " ", value["type"]), d.event(value))...)
	}
	rest := answer == "data: [DONE]\n\n" // of a stream of which the client has all events
	if !found && !rest {
		wrong = append(wrong, fmt.Errorf("%s: neither a JSON object nor a stream: %.200q", where, answer))
	}
	return wrong
}

func named(where string, wrong []error) []error {
	var out []error
	for _, err := range wrong {
		if err != nil {
			out = append(out, fmt.Errorf("%s: %w", where, err))
		}
	}
	return out
}

// parse reads an object.
func parse(text string) (map[string]any, error) {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	object, is := value.(map[string]any)
	if !is {
		return nil, errors.New("not an object")
	}
	return object, nil
}

// Whole checks an answer as the public suite of Open Responses does: with the schema of that
// name in its document, and nothing left out. A nil *Documents checks nothing.
func (d *Documents) Whole(schema string, answer []byte) error {
	if d == nil {
		return nil
	}
	value, err := parse(string(answer))
	if err != nil {
		return err
	}
	d.bodies.Add(1)
	return d.open.schemas[schema].Validate(value)
}

// WholeEvent checks an event of a stream in the same way.
func (d *Documents) WholeEvent(data []byte) error {
	if d == nil {
		return nil
	}
	value, err := parse(string(data))
	if err != nil {
		return err
	}
	kind, _ := value["type"].(string)
	schema, is := d.open.events[kind]
	if !is {
		return fmt.Errorf("%s is not an event of Open Responses", kind)
	}
	d.events.Add(1)
	return schema.Validate(value)
}

// body checks a body by what it says that it is.
func (d *Documents) body(where string, value map[string]any) []error {
	openAI := func(name string) error { return d.openAI.schemas[name].Validate(value) }
	switch value["object"] {
	case "response":
		if value["deleted"] == true { // which neither document describes
			return nil
		}
		documented(value)
		first := openAI("Response")
		onlyURLs(value)
		return []error{first, d.open.schemas["ResponseResource"].Validate(known(value))}
	case "response.compaction":
		return []error{openAI("CompactResource"), d.open.schemas["CompactResource"].Validate(value)}
	case "conversation":
		return []error{openAI("ConversationResource")}
	case "conversation.deleted":
		return []error{openAI("DeletedConversationResource")}
	case "list":
		if items, _ := value["data"].([]any); len(items) == 0 {
			delete(value, "first_id") // null, as OpenAI answers it in contrast to its document
			delete(value, "last_id")
			if len(value) != 3 || value["has_more"] != false {
				return []error{fmt.Errorf("an empty list is %v", value)}
			}
			return nil
		}
		if strings.Contains(where, "input_items") {
			first := openAI("ResponseItemList")
			return append(d.items(value["data"].([]any)), first)
		}
		first := openAI("ConversationItemList")
		return append(d.items(value["data"].([]any)), first)
	case nil:
		if failure, is := value["error"].(map[string]any); is {
			return []error{openAI("ErrorResponse"), d.open.schemas["ErrorPayload"].Validate(failure)}
		}
		first := openAI("ConversationItem")
		return append(d.items([]any{value}), first)
	}
	return []error{fmt.Errorf("object is %v", value["object"])}
}

// items checks items with the document of Open Responses, without those of other types.
func (d *Documents) items(list []any) (wrong []error) {
	for _, it := range list {
		if isKnown(it) {
			onlyURLs(it)
			wrong = append(wrong, d.open.schemas["ItemField"].Validate(it))
		}
	}
	return wrong
}

// event checks an event of a stream.
func (d *Documents) event(value map[string]any) []error {
	kind, _ := value["type"].(string)
	openAI, is := d.openAI.events[kind]
	if !is {
		return []error{errors.New("no such event in the document of OpenAI")}
	}
	if response, is := value["response"].(map[string]any); is {
		documented(response)
	}
	wrong := []error{openAI.Validate(value)}
	onlyURLs(value)
	open, is := d.open.events[kind]
	switch {
	case !is && !openAIOnly.MatchString(kind):
		return append(wrong, errors.New("no such event in Open Responses"))
	case !is, value["item"] != nil && !isKnown(value["item"]):
		return wrong
	}
	if response, is := value["response"].(map[string]any); is {
		value = maps.Clone(value)
		value["response"] = known(response)
	}
	return append(wrong, open.Validate(value))
}

// documented puts a reason and an error code that the documents have in the place of the gateway's own.
// Everything else of a response must be as they say.
func documented(response map[string]any) {
	if failure, _ := response["error"].(map[string]any); failure["code"] == "outbound_ssrf_blocked" {
		failure["code"] = "server_error"
	}
	details, _ := response["incomplete_details"].(map[string]any)
	own := []any{"max_rounds", "no_progress", "deadline", "max_tool_calls", "run_tokens", "run_cost"}
	if details != nil && slices.Contains(own, details["reason"]) {
		details["reason"] = "max_output_tokens"
	}
}

// onlyURLs leaves out the citations that Open Responses does not have: all but those of URLs.
func onlyURLs(value any) {
	isURL := func(citation any) bool {
		object, _ := citation.(map[string]any)
		return object["type"] == "url_citation"
	}
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			onlyURLs(v)
		}
	case map[string]any:
		for name, v := range value {
			list, is := v.([]any)
			switch {
			case name == "annotations" && is:
				value[name] = slices.DeleteFunc(list, func(v any) bool { return !isURL(v) })
			case name == "annotation" && !isURL(v):
				value[name] = nil
			default:
				onlyURLs(v)
			}
		}
	}
}

// openAIOnly matches the events of items that Open Responses does not have: those of MCP servers,
// of custom tools and of hosted tools.
var openAIOnly = regexp.MustCompile(`^response\.(mcp_|custom_tool_call_input\.|(web_search|file_search|code_interpreter|image_generation)_call)`)

// isKnown reports whether Open Responses knows the type of an item.
func isKnown(it any) bool {
	object, _ := it.(map[string]any)
	return slices.Contains([]any{"message", "function_call", "function_call_output", "reasoning", "compaction"}, object["type"])
}

// known returns a response without the items, the tools, the choice of tools and the schema of
// an answer that Open Responses does not know.
func known(response map[string]any) map[string]any {
	out := maps.Clone(response)
	if list, is := response["output"].([]any); is {
		out["output"] = slices.DeleteFunc(slices.Clone(list), func(it any) bool { return !isKnown(it) })
	}
	isFunction := func(tool any) bool {
		object, _ := tool.(map[string]any)
		return object["type"] == "function"
	}
	if list, is := response["tools"].([]any); is {
		out["tools"] = slices.DeleteFunc(slices.Clone(list), func(tool any) bool { return !isFunction(tool) })
	}
	if choice, is := response["tool_choice"].(map[string]any); is && !isFunction(choice) && choice["type"] != "allowed_tools" {
		out["tool_choice"] = "auto"
	}
	text, _ := response["text"].(map[string]any)
	if format, _ := text["format"].(map[string]any); format["schema"] != nil { // for which its document has only null
		format, text = maps.Clone(format), maps.Clone(text)
		format["schema"], text["format"] = nil, format
		out["text"] = text
	}
	return out
}
