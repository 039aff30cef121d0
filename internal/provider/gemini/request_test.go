package gemini

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func provider() *Provider { return New(wire.Endpoint{BaseURL: "https://g/v1beta/"}, Options{}) }

// written returns the request, as a provider gets it.
func written(t *testing.T, req *model.Request) string {
	t.Helper()
	body, err := provider().encode(req)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func of[T any](v T) *T { return &v }

func said(role item.Role, turn int, parts ...item.Part) item.Item {
	return item.Item{Kind: item.Message, Role: role, Turn: turn, Parts: parts}
}

func text(s string) item.Part { return item.Part{Kind: item.Text, Text: s} }

func called(turn int, id, name, args string) item.Item {
	c := item.NewCall(id, name, args)
	c.Turn = turn
	return c
}

func function(name, schema string) model.Tool {
	return model.Tool{Definition: tool.Definition{Name: name, InputSchema: json.RawMessage(schema)}}
}

func TestTranscripts(t *testing.T) { // M03
	hi := item.NewText(item.User, "hi")
	two := []item.Item{hi, called(1, "a", "f", `{"n":1}`), called(1, "b", "g", "")}
	for _, tt := range []struct {
		name, model string
		items       []item.Item
		want        string
	}{
		{"a conversation", "m", []item.Item{item.NewText(item.System, "s"), item.NewText(item.Developer, "d"), hi, said(item.Assistant, 1, text("a"), text("b")), item.NewText(item.User, "c")},
			`{"systemInstruction":{"parts":[{"text":"s"},{"text":"d"}]},"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"a"},{"text":"b"}]},{"role":"user","parts":[{"text":"c"}]}]}`},
		{"nothing from the user", "m", []item.Item{item.NewText(item.System, "s")},
			`{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"(The conversation begins with your message.)"}]}]}`},
		{"the model begins", "m", []item.Item{said(item.Assistant, 1, text("a")), hi},
			`{"contents":[{"role":"user","parts":[{"text":"(The conversation begins with your message.)"}]},{"role":"model","parts":[{"text":"a"}]},{"role":"user","parts":[{"text":"hi"}]}]}`},
		{"empty texts", "m", []item.Item{hi, said(item.Assistant, 1, text("")), said(item.User, 0, text(""), text("x"))},
			`{"contents":[{"role":"user","parts":[{"text":"hi"},{"text":"x"}]}]}`},
		{"results in another order than the calls, and a message after them", "gemini-2.5-flash",
			append(slices.Clone(two), item.NewResult("b", "2", false), item.NewResult("a", "1", true), item.NewText(item.User, "and?")),
			`{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{"n":1}}},{"functionCall":{"id":"b","name":"g","args":{}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"error":"1"}}},{"functionResponse":{"id":"b","name":"g","response":{"output":"2"}}}]},{"role":"user","parts":[{"text":"and?"}]}]}`},
		{"calls without ids", "gemini-2.5-flash", []item.Item{hi, called(1, "", "f", "{}"), called(1, "", "g", "{bad"), item.NewResult("", "1", false), item.NewResult("", "2", false)},
			`{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"g","args":{"invalid_json":"{bad"}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"1"}}},{"functionResponse":{"name":"g","response":{"output":"2"}}}]}]}`},
		{"an image that a model made, and a client sends back", "m", []item.Item{hi, said(item.Assistant, 1, text("Here:\n\n![image](data:image/png;base64,AAAA)\n\nNice.")), item.NewText(item.User, "more")},
			`{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"Here:"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"\n\nNice."}]},{"role":"user","parts":[{"text":"more"}]}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, written(t, &model.Request{Model: tt.model, Items: tt.items})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Models from Gemini 3 on refuse a call of the current turn without its signature. One
// that another model made, or whose signature the client lost, is marked as such. // P08
func TestCallsWithoutASignature(t *testing.T) {
	native := called(3, "x", "f", "{}")
	native.Native = item.Native{Dialect: model.DialectGemini, JSON: json.RawMessage(`[{"functionCall":{"name":"f","args":{}}}]`)}
	signed := called(4, "y", "f", "{}")
	signed.Native = item.Native{Dialect: model.DialectGemini, JSON: json.RawMessage(`[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"s=="}]`)}
	items := []item.Item{
		item.NewText(item.User, "hi"), called(1, "old", "f", "{}"), item.NewResult("old", "0", false), said(item.Assistant, 2, text("so")),
		item.NewText(item.User, "go"), native, called(3, "z", "f", "{}"), item.NewResult("x", "1", false), item.NewResult("z", "2", false), signed, item.NewResult("y", "3", false),
	}
	const mark = `"thoughtSignature":"skip_thought_signature_validator"`
	for name, marks := range map[string]int{"gemini-3-flash-preview": 1, "gemini-3.1-pro": 1, "gemini-flash-latest": 1, "gemini-2.5-pro": 0, "gemma-3-27b-it": 0} {
		body := written(t, &model.Request{Model: name, Items: items})
		if n := strings.Count(body, mark); n != marks || !strings.Contains(body, `"thoughtSignature":"s=="`) {
			t.Errorf("%s: %d marks in %s", name, n, body)
		}
		if marks == 1 && !strings.Contains(body, `{"functionCall":{"name":"f","args":{}},`+mark+`}`) {
			t.Errorf("%s: the mark is on another call: %s", name, body)
		}
	}
	if string(native.Native.JSON) != `[{"functionCall":{"name":"f","args":{}}}]` {
		t.Error("the transcript itself has changed")
	}
}

func TestEfforts(t *testing.T) { // M08
	for _, tt := range []struct {
		model, effort, want string
		dropped             bool
	}{
		{"gemini-3-flash-preview", "", ``, false},
		{"gemini-3-flash-preview", "minimal", `{"includeThoughts":true,"thinkingLevel":"minimal"}`, false},
		{"gemini-3-flash-preview", "medium", `{"includeThoughts":true,"thinkingLevel":"medium"}`, false},
		{"gemini-3-flash-preview", "none", `{"thinkingLevel":"minimal"}`, true},
		{"gemini-3-flash-preview", "xhigh", `{"includeThoughts":true,"thinkingLevel":"high"}`, true},
		{"gemini-3-flash-preview", "odd", ``, true},
		{"gemini-3-pro-preview", "medium", `{"includeThoughts":true,"thinkingLevel":"high"}`, true},
		{"gemini-3.1-pro-preview", "medium", `{"includeThoughts":true,"thinkingLevel":"medium"}`, false},
		{"gemini-3.1-pro-preview", "minimal", `{"includeThoughts":true,"thinkingLevel":"low"}`, false},
		{"gemini-4-argon", "high", `{"includeThoughts":true,"thinkingLevel":"high"}`, false},
		{"gemini-2.5-flash", "low", `{"includeThoughts":true,"thinkingBudget":1024}`, false},
		{"gemini-2.5-flash", "max", `{"includeThoughts":true,"thinkingBudget":24576}`, false},
		{"gemini-2.5-flash", "none", `{"thinkingBudget":0}`, false},
		{"gemini-2.5-pro", "none", `{"thinkingBudget":128}`, true},
		{"gemini-2.5-pro", "xhigh", `{"includeThoughts":true,"thinkingBudget":32768}`, false},
		{"gemini-2.0-flash", "low", ``, true},
		{"gemini-2.0-flash", "none", ``, false},
		{"gemma-3-27b-it", "high", ``, true},
	} {
		req := &model.Request{Model: tt.model, Items: []item.Item{item.NewText(item.User, "hi")}, Options: model.Options{Effort: tt.effort}}
		want := tt.want
		if want != "" {
			want = `,"generationConfig":{"thinkingConfig":` + want + `}`
		}
		if got := written(t, req); got != `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]`+want+`}` {
			t.Errorf("%s %s: %s", tt.model, tt.effort, got)
		}
		if dropped := slices.Contains(provider().Dropped(req), "reasoning_effort"); dropped != tt.dropped {
			t.Errorf("%s %s: dropped %v", tt.model, tt.effort, dropped)
		}
	}
}

func TestToolChoices(t *testing.T) { // C25
	tools := []model.Tool{function("f", `{"type":"object"}`), function("g", `{"type":"object"}`)}
	for _, tt := range []struct {
		name    string
		choice  model.ToolChoice
		config  string
		offered string
		dropped bool
	}{
		{"nothing is said", model.ToolChoice{}, ``, "f g", false},
		{"auto", model.ToolChoice{Mode: model.ChooseAuto}, `{"mode":"AUTO"}`, "f g", false},
		{"auto among some", model.ToolChoice{Mode: model.ChooseAuto, Only: []string{"g"}}, `{"mode":"AUTO"}`, "g", false},
		{"none", model.ToolChoice{Mode: model.ChooseNone}, `{"mode":"NONE"}`, "f g", false},
		{"required", model.ToolChoice{Mode: model.ChooseRequired}, `{"mode":"ANY"}`, "f g", false},
		{"required among some", model.ToolChoice{Mode: model.ChooseRequired, Only: []string{"g", "x"}}, `{"mode":"ANY","allowedFunctionNames":["g"]}`, "f g", false},
		{"required among none", model.ToolChoice{Mode: model.ChooseRequired, Only: []string{}}, `{"mode":"NONE"}`, "f g", true},
		{"one", model.ToolChoice{Mode: model.ChooseNamed, Name: "f"}, `{"mode":"ANY","allowedFunctionNames":["f"]}`, "f g", false},
	} {
		req := &model.Request{Model: "m", Items: []item.Item{item.NewText(item.User, "hi")}, Tools: tools, ToolChoice: tt.choice}
		var got struct {
			Tools      []struct{ FunctionDeclarations []struct{ Name string } }
			ToolConfig struct{ FunctionCallingConfig json.RawMessage }
		}
		if err := json.Unmarshal([]byte(written(t, req)), &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range got.Tools[0].FunctionDeclarations {
			names = append(names, f.Name)
		}
		if config := string(got.ToolConfig.FunctionCallingConfig); config != tt.config || strings.Join(names, " ") != tt.offered {
			t.Errorf("%s: %s of %q", tt.name, config, names)
		}
		if dropped := slices.Contains(provider().Dropped(req), "tool_choice"); dropped != tt.dropped {
			t.Errorf("%s: dropped %v", tt.name, dropped)
		}
	}
}

// Fields that the dialect does not have are named. // P22
func TestWhatIsDropped(t *testing.T) {
	base := func(change func(*model.Request)) *model.Request {
		req := &model.Request{Model: "gemini-2.5-flash", Items: []item.Item{item.NewText(item.User, "hi")}}
		change(req)
		return req
	}
	own := function("1f", `{"type":"object"}`)
	own.Native = json.RawMessage(`{}`)
	strict := function("f", `{"type":"object"}`)
	strict.Strict = of(true)
	for name, tt := range map[string]struct {
		req  *model.Request
		want []string
	}{
		"nothing":                {base(func(*model.Request) {}), nil},
		"a seed that is too big": {base(func(r *model.Request) { r.Seed = of(int64(1) << 40) }), []string{"seed"}},
		"stop sequences":         {base(func(r *model.Request) { r.Stop = []string{"a", "", "b", "c", "d", "e", "f"} }), []string{"stop"}},
		"settings": {base(func(r *model.Request) {
			r.Verbosity, r.User, r.Metadata = "low", "u", map[string]string{"k": "v"}
			r.Params = []model.Param{{Name: "store", Value: json.RawMessage("false")}, {Name: "logit_bias", Value: json.RawMessage("{}")}}
		}), []string{"logit_bias", "metadata", "user", "verbosity"}},
		"a service tier": {base(func(r *model.Request) {
			r.Dialect, r.Params = model.DialectResponses, []model.Param{{Name: "service_tier", Value: json.RawMessage(`"flex"`)}}
		}), nil},
		"a service tier of OpenAI": {base(func(r *model.Request) {
			r.Dialect, r.Params = model.DialectResponses, []model.Param{{Name: "service_tier", Value: json.RawMessage(`"scale"`)}}
		}), []string{"service_tier"}},
		"a cache marker":                    {base(func(r *model.Request) { r.Cache = &item.Cache{} }), []string{"cache_control"}},
		"one call":                          {base(func(r *model.Request) { r.Tools = []model.Tool{strict}; r.ParallelCalls = of(false) }), []string{"parallel_tool_calls", "tools[].function.strict"}},
		"a tool's name, which has an alias": {base(func(r *model.Request) { r.Tools = []model.Tool{own} }), nil},
		"a form of the answer beside tools, before Gemini 3": {base(func(r *model.Request) {
			r.Tools, r.Format.Type = []model.Tool{function("f", `{"type":"object"}`)}, "json_object"
		}), []string{"response_format"}},
		"a pattern": {base(func(r *model.Request) {
			r.Format = model.Format{Type: "json_schema", Schema: json.RawMessage(`{"type":"string","pattern":"^a"}`)}
		}), []string{"response_format.json_schema.schema.pattern"}},
		"names": {base(func(r *model.Request) { r.Items[0].Name = "ann" }), []string{"messages[].name"}},
		"detail": {base(func(r *model.Request) {
			r.Items[0].Parts = []item.Part{{Kind: item.Image, URL: "https://x/i.png", Detail: "low"}}
		}), []string{"messages[].content[].image_url.detail"}},
		"the name of a file": {base(func(r *model.Request) {
			r.Items[0].Parts = []item.Part{{Kind: item.File, Data: "JVBERi0=", MIMEType: "application/pdf", Name: "a.pdf"}}
		}), []string{"messages[].content[].file.filename"}},
	} {
		if diff := cmp.Diff(tt.want, provider().Dropped(tt.req)); diff != "" {
			t.Error(name, diff)
		}
	}
}

func TestPartsOfAMessage(t *testing.T) { // P22
	for _, tt := range []struct {
		name    string
		part    item.Part
		want    string // the part that is sent
		refused string
	}{
		{"a data URL", item.Part{Kind: item.Image, URL: "data:image/webp;base64,AAAA"}, `{"inlineData":{"mimeType":"image/webp","data":"AAAA"}}`, ""},
		{"a URL", item.Part{Kind: item.Image, URL: "https://x/a.JPG?q=1"}, `{"fileData":{"mimeType":"image/jpeg","fileUri":"https://x/a.JPG?q=1"}}`, ""},
		{"a URL that does not tell its type", item.Part{Kind: item.Image, URL: "https://x/a"}, `{"fileData":{"fileUri":"https://x/a"}}`, ""},
		{"an uploaded file", item.Part{Kind: item.File, FileID: "files/abc", MIMEType: "application/pdf"}, `{"fileData":{"mimeType":"application/pdf","fileUri":"https://g/v1beta/files/abc"}}`, ""},
		{"a file of another provider", item.Part{Kind: item.File, FileID: "file-1"}, "", `a file id must be one of the provider's own, such as "files/abc"`},
		{"sound", item.Part{Kind: item.Audio, Data: "AAAA", MIMEType: "audio/mp3"}, `{"inlineData":{"mimeType":"audio/mp3","data":"AAAA"}}`, ""},
		{"a text file", item.Part{Kind: item.File, Data: "data:application/json;base64,e30="}, `{"inlineData":{"mimeType":"text/plain","data":"e30="}}`, ""},
		{"a GIF", item.Part{Kind: item.Image, Data: "AAAA", MIMEType: "image/gif"}, "", `this provider takes PNG, JPEG, WebP, HEIC and HEIF images, and this is "image/gif"`},
		{"a program", item.Part{Kind: item.File, Data: "AAAA", MIMEType: "application/zip"}, "", `this provider takes PDF files, texts, audio and video, and this is "application/zip"`},
		{"another scheme", item.Part{Kind: item.Image, URL: "ftp://x/i.png"}, "", "its URL must begin with https://, http:// or data:"},
		{"a text in a data URL", item.Part{Kind: item.Image, URL: "data:image/png,x"}, "", "a data URL must be in base64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body, err := provider().encode(&model.Request{Model: "m", Items: []item.Item{said(item.User, 0, text("a"), tt.part)}})
			var e *model.Error
			switch {
			case tt.refused == "" && !strings.Contains(string(body), `"parts":[{"text":"a"},`+tt.want+`]`):
				t.Errorf("%v %s", err, body)
			case tt.refused != "" && (!errors.As(err, &e) || e.Class != model.Target || !strings.HasPrefix(e.Param, "messages[0].content[1].") || e.Message != e.Param+": "+tt.refused):
				t.Errorf("%v", err)
			}
		})
	}
}

// The schema of a tool, and that of an answer, is what the provider takes of it. What
// else it demands is told to the model.
func TestSchemas(t *testing.T) {
	for _, tt := range []struct{ name, in, want, lost string }{
		{"as it is", `{"type":"object","properties":{"a":{"type":["string","null"],"format":"date"}},"required":["a"],"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"type":["string","null"],"format":"date"}},"required":["a"],"additionalProperties":false}`, ""},
		{"constraints", `{"$schema":"x","type":"string","minLength":2,"pattern":"^a","format":"uri","description":"d"}`,
			`{"type":"string","description":"d\n\n{minLength: 2, pattern: \"^a\", format: \"uri\"}"}`, "format minLength pattern"},
		{"a constant", `{"const":"x"}`, `{"enum":["x"]}`, ""},
		{"another constant", `{"const":true}`, `{"description":"{const: true}"}`, "const"},
		{"an enum with null", `{"enum":["a",null]}`, `{"description":"{enum: [\"a\",null]}"}`, "enum"},
		{"definitions", `{"$ref":"#/definitions/A","description":"gone","definitions":{"A":{}}}`, `{"$ref":"#/$defs/A"}`, ""},
		{"nested definitions", `{"type":"object","properties":{"a":{"$ref":"#/definitions/A"}},"definitions":{"A":{"type":"object","default":{}}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","description":"{default: {}}"}}}`, ""},
		{"branches", `{"oneOf":[{"type":"string"},true],"anyOf":[{}]}`, `{"anyOf":[{"type":"string"},{}],"description":"{anyOf: [{}]}"}`, "anyOf"},
		{"one branch of all", `{"allOf":[{"$ref":"#/$defs/A"}],"description":"d"}`, `{"$ref":"#/$defs/A"}`, ""},
		{"branches of all", `{"allOf":[{"type":"string"},{"minLength":1}]}`, `{"description":"{allOf: [{\"type\":\"string\"},{\"minLength\":1}]}"}`, "allOf"},
		{"a tuple", `{"items":[{"type":"string"}],"minItems":1}`, `{"prefixItems":[{"type":"string"}],"minItems":1}`, ""},
		{"nothing is allowed", `{"properties":{"a":false}}`, `{"properties":{"a":{}}}`, "not"},
	} {
		got, lost := subset(json.RawMessage(tt.in))
		if string(got) != tt.want || strings.Join(lost, " ") != tt.lost || !json.Valid(got) {
			t.Errorf("%s: %s, lost %q", tt.name, got, lost)
		}
	}
}

// FuzzSchema: whatever a schema says, what the provider gets is JSON and has only
// keywords that it takes.
func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"allOf":[{"$ref":"#/definitions/A"}]},"b":{"oneOf":[true,{"const":1}],"anyOf":7}},"items":[7],"enum":{}}`)
	f.Add(strings.Repeat(`{"items":`, 200) + "7" + strings.Repeat("}", 200))
	f.Fuzz(func(t *testing.T, schema string) {
		if !json.Valid([]byte(schema)) {
			return
		}
		got, _ := subset(json.RawMessage(schema))
		if !json.Valid(got) {
			t.Fatalf("%s becomes %s", schema, got)
		}
	})
}
