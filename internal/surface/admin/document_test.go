package admin

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// openAPI is what the tests read of the document. That answers conform to it is
// tested in package app.
type openAPI struct {
	Paths      map[string]map[string]operation
	Components struct {
		Schemas    map[string]struct{ Enum words }
		Parameters map[string]parameter
		Responses  map[string]response
	}
}

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
}

// words are those of an enum that are text.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(data []byte) error {
	var all []any
	err := json.Unmarshal(data, &all)
	for _, one := range all {
		if text, ok := one.(string); ok {
			*w = append(*w, text)
		}
	}
	return err
}

type operation struct {
	OperationID string
	Summary     string
	Parameters  []parameter
	Responses   map[string]response
}

func parsedDocument(t *testing.T) openAPI {
	t.Helper()
	var d openAPI
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Paths) == 0 {
		t.Fatal("the document has no paths")
	}
	for _, operations := range d.Paths {
		for _, o := range operations {
			for i, p := range o.Parameters {
				if p.Ref != "" {
					o.Parameters[i] = d.Components.Parameters[path.Base(p.Ref)]
				}
			}
			for status, r := range o.Responses {
				if r.Ref != "" {
					o.Responses[status] = d.Components.Responses[path.Base(r.Ref)]
				}
			}
		}
	}
	return d
}

// A program that reads the document finds each parameter of a path, and learns
// of every error, also of those that any request can get.
func TestEveryOperationIsDescribed(t *testing.T) {
	ids := map[string]string{}
	for path, operations := range parsedDocument(t).Paths {
		for method, o := range operations {
			at := strings.ToUpper(method) + " " + path
			if other, used := ids[o.OperationID]; used || o.OperationID == "" {
				t.Errorf("%s has the operationId %q, as has %q", at, o.OperationID, other)
			}
			ids[o.OperationID] = at
			if o.Summary == "" {
				t.Errorf("%s has no summary", at)
			}
			var inPath, declared []string
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				inPath = append(inPath, m[1])
			}
			for _, p := range o.Parameters {
				if p.In == "path" {
					declared = append(declared, p.Name)
				}
				if p.Description == "" {
					t.Errorf("%s: the parameter %s has no description", at, p.Name)
				}
			}
			if !slices.Equal(inPath, declared) {
				t.Errorf("%s declares the path parameters %q", at, declared)
			}
			if o.Responses["default"].Description == "" || o.Responses["429"].Description == "" {
				t.Errorf("%s does not describe 429, or other errors as default", at)
			}
		}
	}
}

// What several operations answer or take stands once, as a component, and each reference leads to one.
func TestWhatIsRepeatedIsAComponent(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	at := map[string]string{} // places of responses by their text
	var walk func(where string, value any)
	walk = func(where string, value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(where, v)
			}
		case map[string]any:
			if ref, ok := value["$ref"].(string); ok && !resolves(doc, ref) {
				t.Errorf("%s refers to %s, which is not in the document", where, ref)
			}
			if text, _ := json.Marshal(value); value["content"] != nil && value["description"] != nil {
				if other := at[string(text)]; other != "" {
					t.Errorf("%s and %s are the same: make one component of them", other, where)
				}
				at[string(text)] = where
			}
			for key, v := range value {
				walk(where+"/"+key, v)
			}
		}
	}
	walk("", doc)
}

// resolves reports whether the document has what a reference names.
func resolves(doc map[string]any, ref string) bool {
	var value any = doc
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value != nil
}

func TestTheDocumentHasAllKindsOfAuditRows(t *testing.T) {
	want := []string{}
	for _, k := range audit.Kinds() {
		want = append(want, string(k))
	}
	if got := parsedDocument(t).Components.Schemas["AuditKind"].Enum; !slices.Equal(got, want) {
		t.Errorf("AuditKind is %q, want %q", got, want)
	}
}

// storedEvents returns an event of each type that package event can store, without and
// with all fields.
func storedEvents(t *testing.T) (zero, full []event.Event) {
	t.Helper()
	u := model.Usage{Input: 1, Output: 2, Total: 3, CachedInput: 4, CacheWrite: 5, Reasoning: 6, CacheWrite1h: 7, GPUMS: 8, ServiceTier: model.TierFlex, Estimated: true}
	zero = []event.Event{
		event.Started{}, event.ToolsListed{}, event.RoundStarted{}, event.ModelFallback{}, event.TextDelta{}, event.ReasoningDelta{}, event.RefusalDelta{}, event.CallDelta{}, event.NativeItem{JSON: []byte(`{}`)}, event.Citation{Citation: item.Citation{Kind: item.CitesURL}}, event.NativeProgress{JSON: []byte(`{}`)}, event.ItemDone{}, event.RoundDone{},
		event.ToolStarted{}, event.ToolDone{Outcome: loop.OK}, event.Waiting{}, event.ApprovalDecided{Decision: "expired"}, event.Paused{Reason: event.MaxRounds}, event.LimitsRaised{}, event.HookRan{Event: "OnRunStart", Status: event.HookFailed}, event.Compacted{}, event.Finished{Reason: event.Complete},
	}
	full = []event.Event{
		event.Started{RunID: "run_1", Model: "m", At: time.UnixMilli(1700000000123).UTC(), Queued: true},
		event.ToolsListed{Servers: []event.ListedServer{{Server: "s", Tools: []tool.Definition{{
			Name: "look", Title: "Look", Description: "Looks.", InputSchema: []byte(`{"type":"object"}`), Annotations: tool.Annotations{ReadOnly: new(true), Destructive: new(true), Idempotent: new(true), OpenWorld: new(true)},
		}}, Error: "down"}}},
		event.RoundStarted{Round: 1, Attempt: 2, Missing: []string{"s"}, Target: event.Target{Provider: "p", Model: "m"}, Continues: 1, NoTools: true, At: time.UnixMilli(1700000000123).UTC()},
		event.ModelFallback{
			Round: 1, From: event.Target{Provider: "p", Model: "m"}, To: event.Target{Provider: "q", Model: "n"}, Class: model.Transient,
			Skipped: []event.SkippedTarget{{Target: event.Target{Provider: "r", Model: "o"}, Reason: "breaker_open"}},
			At:      time.UnixMilli(1700000000123).UTC(),
		},
		event.TextDelta{Round: 1, Item: 2, Part: 3, Text: "a", Phase: "commentary"}, event.ReasoningDelta{Round: 1, Item: 2, Part: 3, Text: "a"},
		event.RefusalDelta{Round: 1, Item: 2, Part: 3, Text: "a", Phase: "commentary"}, event.CallDelta{Round: 1, Item: 2, CallID: "c", Name: "n", Arguments: "{"},
		event.NativeItem{Round: 1, Item: 2, JSON: []byte(`{"type":"web_search_call"}`)},
		event.Citation{Round: 1, Item: 2, Citation: item.Citation{Kind: item.CitesFile, Part: 1, URL: "http://a", Title: "A", FileID: "f", Filename: "n", ContainerID: "c", Start: 1, End: 2, Index: 3}},
		event.NativeProgress{Round: 1, Item: 2, JSON: []byte(`{"type":"response.web_search_call.searching"}`)},
		event.ItemDone{Round: 1, Item: 2},
		event.RoundDone{Round: 1, Stop: model.StopEnd, Usage: u, At: time.UnixMilli(1700000000123).UTC()},
		event.ToolStarted{Round: 1, Key: "1.0", Name: "n", Server: "s", Arguments: []byte(`{"a":1}`), Shown: true, Tool: "m", Hosted: "web_search", Approval: "appr_1", At: time.UnixMilli(1700000000123).UTC()},
		event.ToolDone{Round: 1, Key: "1.0", Name: "n", Server: "s", Outcome: loop.Cached, Text: "a", Label: "untrusted", Duration: 5, At: time.UnixMilli(1700000000123).UTC(), Shown: true, Tool: "m", Hosted: "web_search", Arguments: "{", Image: "iVBO", Approval: "appr_1",
			Files: []event.File{{ID: "file-1", Name: "a.txt", Path: "d/a.txt", MediaType: "text/plain", Bytes: 1, SHA256: "ca", CreatedAt: time.UnixMilli(1700000000123).UTC(), ExpiresAt: time.UnixMilli(1700000001000).UTC(), Preview: "a"}}},
		event.Waiting{Usage: u, Cost: tool.NanoUSD(8), Rounds: 1, ToolCalls: 2, SideEffects: true, At: time.UnixMilli(1700000000123).UTC(),
			Approvals: []event.Approval{
				{ID: "appr_1", Key: "1.0", Name: "n", Server: "s", Tool: "m", Arguments: []byte(`{"a":1}`), ExpiresAt: time.UnixMilli(1700000000123).UTC()},
			}},
		event.ApprovalDecided{ID: "appr_1", Key: "1.0", Decision: "denied", By: "dev", Reason: "no", At: time.UnixMilli(1700000000123).UTC()},
		event.Paused{
			ID: "p", Reason: event.Tokens, Budget: "org/day", BudgetEndsAt: time.UnixMilli(1700000000123).UTC(), Message: "m", Usage: u,
			Rounds: 1, ToolCalls: 2, Active: 3 * time.Millisecond,
			SideEffects: true, Cost: tool.NanoUSD(8), At: time.UnixMilli(1700000000123).UTC(), ExpiresAt: time.UnixMilli(1700000000123).UTC(),
		},
		event.Compacted{Round: 1, Before: 9, After: 3, Summarized: true, NetNanoUSD: new(int64(-5)), Failed: true, At: time.UnixMilli(1700000000123).UTC()},
		event.HookRan{
			ID: "h", Position: 2, Event: "PreToolUse", Key: "0.1", Status: event.HookTimedOut, Modified: true, Blocked: true, Asked: true, Duration: 5, Message: "why",
			At: time.UnixMilli(1700000000123).UTC(),
		},
		event.LimitsRaised{
			ID: "p", By: "k", Rounds: 1, Calls: 2, Tokens: 3, USD: tool.NanoUSD(4), Active: 5 * time.Millisecond,
			At: time.UnixMilli(1700000000123).UTC(),
		},
		event.Finished{
			Cost:   tool.NanoUSD(8),
			Reason: event.ModelError, Limit: event.MaxRounds, Repeated: "calls of add", Usage: u,
			Calls: []event.ClientCall{{ID: "c", Name: "n", Arguments: "{}"}}, At: time.UnixMilli(1700000000123).UTC(), Rounds: 1, ToolCalls: 2, SideEffects: true, GaveUp: true,
			Failure: &event.Failure{
				Code: "c", Message: "m", Param: "p", Address: "10.0.0.1", Server: "s", URL: "http://s", Setting: "k",
				RetryAt: time.UnixMilli(9).UTC(),
				Upstream: &model.Error{
					Class: model.Transient, Status: 500, Unsent: true, Header: map[string][]string{"Retry-After": {"1"}}, Body: []byte("{}"), Dialect: "d", Code: "c", Param: "p",
					Credential: true, Message: "m",
				},
			},
		},
	}
	return zero, full
}

// The document has each type of event, and each of its fields. // L05
func TestTheDocumentDescribesEveryEvent(t *testing.T) {
	zero, full := storedEvents(t)
	var types []string
	for _, e := range zero {
		types = append(types, e.Type())
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../../event/event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "Type" && f.Recv != nil {
			name, err := strconv.Unquote(f.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(name, "relay_") { // never stored
				declared = append(declared, name)
			}
		}
		return true
	})
	var doc struct {
		Components struct {
			Schemas struct {
				RunEvent struct {
					OneOf []struct {
						Ref string `json:"$ref"`
					}
					Discriminator struct{ Mapping map[string]string }
				}
			}
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	mapping := doc.Components.Schemas.RunEvent.Discriminator.Mapping
	inDocument := slices.Sorted(maps.Keys(mapping))
	slices.Sort(types)
	slices.Sort(declared)
	if !slices.Equal(inDocument, declared) || !slices.Equal(types, declared) {
		t.Fatalf("package event has the types %q, the document %q, this test %q", declared, inDocument, types)
	}
	var refs []string
	for _, one := range doc.Components.Schemas.RunEvent.OneOf {
		refs = append(refs, one.Ref)
	}
	if slices.Sort(refs); !slices.Equal(refs, slices.Sorted(maps.Values(mapping))) {
		t.Errorf("oneOf has %q, the mapping %v", refs, mapping)
	}
	for _, e := range append(zero, full...) {
		data, err := event.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"#/components/schemas/RunEvent", mapping[e.Type()]} {
			if err := schemaAt(t, at).Validate(value); err != nil {
				t.Errorf("%s: %v", data, err)
			}
		}
	}
	for _, e := range full { // or a new field would be described nowhere
		if name := emptyField(reflect.ValueOf(e)); name != "" {
			t.Errorf("%s: this test leaves %s empty", e.Type(), name)
		}
	}
}

// emptyField returns the name of a field in v, or below it, that is stored and has its
// zero value; "" = none.
func emptyField(v reflect.Value) string {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
		if v.Kind() == reflect.Slice {
			v = v.Index(0)
		} else {
			v = v.Elem()
		}
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[tool.Money]() {
		return ""
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("json") == "-" && slices.Contains([]string{"Part", "Value", "RetryAfter", "Err"}, f.Name) {
			continue // not stored
		}
		if v.Field(i).IsZero() {
			return f.Name
		}
		if name := emptyField(v.Field(i)); name != "" {
			return f.Name + "." + name
		}
	}
	return ""
}

func schemaAt(t *testing.T, pointer string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///openapi.json" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The words of runs in the document are those of the code. // L05
func TestTheDocumentHasTheWordsOfRuns(t *testing.T) {
	schemas := parsedDocument(t).Components.Schemas
	var reasons []string
	for _, r := range event.Reasons() {
		reasons = append(reasons, string(r))
	}
	for name, want := range map[string][]string{"RunState": journal.States(), "RunReason": reasons, "ApprovalStatus": journal.ApprovalStatuses()} {
		if got := schemas[name].Enum; !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	outcomes := []string{string(loop.OK), string(loop.Error), string(loop.Unknown), string(loop.Cached), string(loop.Denied), string(loop.SkippedLimit), string(loop.NotRun)}
	if got := schemas["RunOutcome"].Enum; !slices.Equal(got, outcomes) {
		t.Errorf("RunOutcome is %q, want %q", got, outcomes)
	}
}
