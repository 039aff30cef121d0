package openairesponses

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func ptr[T any](v T) *T { return &v }

func of(turn int, it item.Item) item.Item {
	it.Turn = turn
	return it
}

// wrote is an item as a provider of the dialect wrote it.
func wrote(it item.Item, raw string) item.Item {
	it.Native = item.Native{Dialect: model.DialectResponses, Provider: "p", JSON: json.RawMessage(raw)}
	return of(1, it)
}

const hi = `{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}`

func TestInput(t *testing.T) { // M02 M05 P08
	user := item.NewText(item.User, "hi")
	image := item.Part{Kind: item.Image, Data: "AA==", MIMEType: "image/png"}
	long := strings.Repeat("x", 65)
	for _, tt := range []struct {
		name  string
		items []item.Item
		want  string
	}{
		{"system and developer messages stay where they are", []item.Item{item.NewText(item.System, "a"), user, item.NewText(item.Developer, "b")},
			`{"type":"message","role":"system","content":[{"type":"input_text","text":"a"}]},` + hi + `,{"type":"message","role":"developer","content":[{"type":"input_text","text":"b"}]}`},
		{"an answer is as many items as the model said, with the results after it", []item.Item{
			user, of(1, item.NewText(item.Assistant, "Let me see.")), of(1, item.NewCall("c1", "f", `{"a":1}`)), of(1, item.NewCall("c2", "g", "")), item.NewResult("c1", "5", false), item.NewResult("c2", "no", true)},
			hi + `,{"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"Let me see."}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},{"type":"function_call","call_id":"c2","name":"g","arguments":""},` +
				`{"type":"function_call_output","call_id":"c1","output":"5"},{"type":"function_call_output","call_id":"c2","output":"no"}`},
		{"what the provider wrote goes back without its id and status", []item.Item{
			wrote(item.Item{Kind: item.Reasoning}, `{"id":"rs_1","type":"reasoning","status":"completed","content":[],"encrypted_content":"g\u0041==","summary":[]}`),
			wrote(item.NewText(item.Assistant, "a"), `{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"text":"a"}],"phase":"commentary","role":"assistant"}`),
			wrote(item.NewCall("c1", "f", "{}"), `{"id":"fc_1","type":"function_call","status":"completed","arguments":"{}","call_id":"c1","name":"f","namespace":"n"}`)},
			`{"type":"reasoning","encrypted_content":"g\u0041==","summary":[]},{"type":"message","content":[{"type":"output_text","annotations":[],"text":"a"}],"phase":"commentary","role":"assistant"},{"type":"function_call","arguments":"{}","call_id":"c1","name":"f","namespace":"n"}`},
		{"its own tools keep their id, and each member once with its exact name; readable reasoning its text; reasoning with only a summary is left out", []item.Item{
			wrote(item.Item{Kind: item.Other}, `{"id":"ws_1","type":"item_reference","Type":"x","type":"web_search_call","status":"completed","ID":"ws_1","action":{"type":"search"}}`),
			wrote(item.NewText(item.Assistant, "u"), `{"type":"item_reference","id":"msg_1","Type":"message","role":"user","content":"u"}`),
			wrote(item.Item{Kind: item.Reasoning}, `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":null,"content":[{"type":"reasoning_text","text":"Hm."}]}`),
			wrote(item.Item{Kind: item.Reasoning}, `{"id":"rs_2","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}]}`), of(1, item.NewText(item.Assistant, "a"))},
			`{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search"}},{"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"u"}]},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},{"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"a"}]}`},
		{"a record of a provider's tool that a client sent gets another id", []item.Item{{Kind: item.Other, Turn: 1,
			Native: item.Native{Dialect: model.DialectResponses, JSON: json.RawMessage(`{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search"}}`)}}},
			`{"id":"ws_ee92e8791c136a7cb12214b795cd0d74","type":"web_search_call","status":"completed","action":{"type":"search"}}`},
		{"what another dialect wrote is written from its plain fields, or left out", []item.Item{
			user, of(1, item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: "r"}}}), of(1, item.Item{Kind: item.Other, Native: item.Native{Dialect: "x", JSON: json.RawMessage(`{}`)}}),
			of(1, item.Item{Kind: item.Message, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text}, {Kind: item.Refusal, Text: "No."}}, Native: item.Native{Dialect: model.DialectChat, JSON: json.RawMessage(`{"x":1}`)}}),
			of(1, item.NewText(item.Assistant, ""))},
			hi + `,{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`},
		{"images and files of a user", []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{
			{Kind: item.Image, URL: "https://x/i.png", Detail: "low"}, image, {Kind: item.Image, FileID: "file_1"}, {Kind: item.Image, URL: "data:image/gif;base64,AA=="},
			{Kind: item.File, Data: "data:application/pdf;base64,AA==", Name: "a.pdf"}, {Kind: item.File, Data: "AA==", MIMEType: "application/pdf"}, {Kind: item.File, FileID: "file_2"}, {Kind: item.File, URL: "https://x/a.pdf"},
			{Kind: item.Audio, Data: "AA==", MIMEType: "audio/wav"}, {Kind: item.Text, Text: ""}}}},
			`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"https://x/i.png","detail":"low"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"},{"type":"input_image","file_id":"file_1","detail":"auto"},{"type":"input_image","image_url":"data:image/gif;base64,AA==","detail":"auto"},` +
				`{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_file","filename":"file.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_file","file_id":"file_2"},{"type":"input_file","file_url":"https://x/a.pdf"},` +
				`{"type":"input_text","text":"[audio; type: audio/wav; 1 bytes, not shown]"}]}`},
		{"images, files and resources of a tool", []item.Item{
			of(1, item.NewCall("c", "f", "{}")), {Kind: item.ToolResult, CallID: "c", Parts: []item.Part{{Kind: item.Text, Text: "look:"}, image, {Kind: item.Resource, Data: "BB==", MIMEType: "application/pdf", Name: "b.pdf"}}},
			of(2, item.NewCall("d", "f", "{}")), {Kind: item.ToolResult, CallID: "d", Parts: []item.Part{{Kind: item.Text, Text: "a"}, {Kind: item.Resource, Text: "b"}, {Kind: item.Resource, Data: "AA==", MIMEType: "application/zip"}, {Kind: item.Resource, URL: "file:///x"}, {Kind: item.Image, Data: "AA==", MIMEType: "image/svg+xml"}}}},
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"look:"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"},{"type":"input_file","filename":"b.pdf","file_data":"data:application/pdf;base64,BB=="}]},` +
				`{"type":"function_call","call_id":"d","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"d","output":"a\n[resource]\nb\n[resource; type: application/zip; 1 bytes, not shown]\n[resource file:///x]\n[image; type: image/svg+xml; 1 bytes, not shown]"}`},
		{"ids that are missing, repeat or are too long", []item.Item{
			of(1, item.NewCall("c", "f", "{}")), of(1, item.NewCall("", "f", "{}")), item.NewResult("c", "1", false), item.NewResult("", "2", false),
			of(2, item.NewCall("c", "f", "{}")), wrote(item.NewCall(long, "f", "{}"), `{"type":"function_call","call_id":"`+long+`","name":"f","arguments":"{}"}`), item.NewResult("c", "3", false), item.NewResult(long, "4", false)},
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"},{"type":"function_call_output","call_id":"call_1","output":"2"},` +
				`{"type":"function_call","call_id":"call_2","name":"f","arguments":"{}"},{"type":"function_call","call_id":"call_3","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"call_2","output":"3"},{"type":"function_call_output","call_id":"call_3","output":"4"}`},
		{"a message that says nothing", []item.Item{item.NewText(item.User, "")}, `{"type":"message","role":"user","content":""}`},
		{"nothing", nil, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := appendInput(nil, tt.items)
			if diff := cmp.Diff(`[`+tt.want+`]`, string(got)); diff != "" {
				t.Error(diff)
			}
			if !json.Valid(got) {
				t.Error("not valid")
			}
		})
	}
}

func TestEncode(t *testing.T) { // M02 M05 P22
	user := item.NewText(item.User, "hi")
	f := model.Tool{Definition: tool.Definition{Name: "f", Description: "d", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{}}}`)}}
	for _, tt := range []struct {
		name string
		req  model.Request
		want string // after the model, before what every request has
	}{
		{"nothing but a message", model.Request{}, `"input":[` + hi + `],"include":["reasoning.encrypted_content"]`},
		{"tools are not strict unless the client says so", model.Request{Tools: []model.Tool{f,
			{Definition: tool.Definition{Name: "g", InputSchema: json.RawMessage(` {"properties":{"a":{}}} `)}, Strict: ptr(true)}, {Definition: tool.Definition{Name: "h"}},
			{Definition: tool.Definition{Name: "i", InputSchema: json.RawMessage(`{}`)}}, {Definition: tool.Definition{Name: "j", InputSchema: json.RawMessage(`{"type":"object"}`)}}}},
			`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}},"strict":false},{"type":"function","name":"g","parameters":{"properties":{"a":{}},"type":"object"},"strict":true},` +
				`{"type":"function","name":"h","parameters":{"type":"object","properties":{}},"strict":false},{"type":"function","name":"i","parameters":{"type":"object","properties":{}},"strict":false},{"type":"function","name":"j","parameters":{"type":"object","properties":{}},"strict":false}],"input":[` + hi + `],"include":["reasoning.encrypted_content"]`},
		{"one tool, one call at a time", model.Request{Tools: []model.Tool{f}, ToolChoice: model.ToolChoice{Mode: "named", Name: "f"}, Options: model.Options{ParallelCalls: ptr(false)}},
			`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}},"strict":false}],"input":[` + hi + `],"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false,"include":["reasoning.encrypted_content"]`},
		{"some tools", model.Request{Tools: []model.Tool{f}, ToolChoice: model.ToolChoice{Mode: "required", Only: []string{"f", "g"}}},
			`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}},"strict":false}],"input":[` + hi + `],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]},"include":["reasoning.encrypted_content"]`},
		{"no tools now", model.Request{Tools: []model.Tool{f}, ToolChoice: model.ToolChoice{Mode: "none", Only: []string{"f"}}},
			`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}},"strict":false}],"input":[` + hi + `],"tool_choice":"none","include":["reasoning.encrypted_content"]`},
		{"none of the tools", model.Request{Tools: []model.Tool{f}, ToolChoice: model.ToolChoice{Mode: "auto", Only: []string{}}},
			`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}},"strict":false}],"input":[` + hi + `],"tool_choice":"none","include":["reasoning.encrypted_content"]`},
		{"no tools at all", model.Request{ToolChoice: model.ToolChoice{Mode: "auto"}, Options: model.Options{ParallelCalls: ptr(true)}}, `"input":[` + hi + `],"include":["reasoning.encrypted_content"]`},
		{"all options", model.Request{MaxTokens: 100, Options: model.Options{Temperature: ptr(0.2), TopP: ptr(1e-7), Effort: "high", Verbosity: "low", Metadata: map[string]string{"b": "2", "a": "1"}, User: "u",
			Format: model.Format{Type: "json_schema", Name: "n", Description: "d", Schema: json.RawMessage(`{"type":"object"}`), Strict: ptr(true)}}},
			`"input":[` + hi + `],"max_output_tokens":100,"temperature":0.2,"top_p":0.0000001,"reasoning":{"effort":"high","summary":"auto"},"text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{"type":"object"},"strict":true},"verbosity":"low"},"metadata":{"a":"1","b":"2"},"user":"u","include":["reasoning.encrypted_content"]`},
		{"JSON of any form, no reasoning, and the least limit", model.Request{MaxTokens: 5, Options: model.Options{Effort: "none", Format: model.Format{Type: "json_object"}}},
			`"input":[` + hi + `],"max_output_tokens":16,"reasoning":{"effort":"none"},"text":{"format":{"type":"json_object"}},"include":["reasoning.encrypted_content"]`},
		{"members that both dialects of OpenAI have", model.Request{Dialect: model.DialectChat, Params: []model.Param{{Name: "temperature", Value: json.RawMessage(`1`), Typed: true}, {Name: "prompt_cache_key", Value: json.RawMessage(`"k"`)}, {Name: "service_tier", Value: json.RawMessage(`"flex"`)},
			{Name: "safety_identifier", Value: json.RawMessage(`null`)}, {Name: "prompt_cache_retention", Value: json.RawMessage(`"24h"`)}, {Name: "logit_bias", Value: json.RawMessage(`{}`)},
			{Name: "stream_options", Value: json.RawMessage(`{"include_usage":true,"include_obfuscation":false}`), Typed: true}}},
			`"input":[` + hi + `],"prompt_cache_key":"k","service_tier":"flex","prompt_cache_retention":"24h","stream_options":{"include_obfuscation":false},"include":["reasoning.encrypted_content"]`},
		{"members of the dialect itself are sent as they are", model.Request{Dialect: model.DialectResponses, MaxTokens: 100, Options: model.Options{Temperature: ptr(1.0)}, ToolChoice: model.ToolChoice{Mode: "required", Native: json.RawMessage(`{"type":"custom","name":"x"}`)},
			Tools:  []model.Tool{{Native: json.RawMessage(`{"type":"custom","name":"x"}`)}},
			Params: []model.Param{{Name: "temperature", Value: json.RawMessage(`0.50`)}, {Name: "store", Value: json.RawMessage(`true`)}, {Name: "max_output_tokens", Value: json.RawMessage(`50`)}, {Name: "include", Value: json.RawMessage(`["file_search_call.results"]`)}, {Name: "top_logprobs", Value: json.RawMessage(`2`)}}},
			`"tools":[{"type":"custom","name":"x"}],"input":[` + hi + `],"tool_choice":{"type":"custom","name":"x"},"temperature":0.50,"top_logprobs":2,"max_output_tokens":50,"include":["file_search_call.results","reasoning.encrypted_content"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Model, tt.req.Items = "m", []item.Item{user}
			got := string(encode(&tt.req, optional{}))
			if diff := cmp.Diff(`{"model":"m",`+tt.want+`,"store":false,"stream":true}`, got); diff != "" {
				t.Error(diff)
			}
			if again := string(encode(&tt.req, optional{})); again != got || !json.Valid([]byte(got)) {
				t.Errorf("the second time it is %s", again)
			}
		})
	}
}

// The provider's prompt cache finds what two requests of a run have in common.
func TestARequestThatGoesOnBeginsWithTheSameBytes(t *testing.T) {
	items := []item.Item{item.NewText(item.System, "s"), item.NewText(item.User, "hi")}
	req := &model.Request{Model: "m", Items: items, ToolChoice: model.ToolChoice{Mode: "required"}, Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}}
	for round := range 5 {
		before := encode(req, optional{})
		common, _, found := bytes.Cut(before, []byte(`],"tool_choice"`))
		req.ToolChoice = model.ToolChoice{Mode: "required", Only: []string{"f"}}
		id := fmt.Sprint("c", round%2) // ids repeat
		req.Items = append(req.Items, of(round+1, item.NewCall(id, "f", "{}")), item.NewResult(id, "x", false))
		if after := encode(req, optional{}); !found || !bytes.HasPrefix(after, common) {
			t.Fatalf("round %d: %s\ndoes not begin with %s", round, after, common)
		}
	}
}

// What the dialect cannot take is named.
// What is left out of messages, or is changed, is named, too.
func TestDroppedContent(t *testing.T) { // P22
	audio, image := item.Part{Kind: item.Audio, Data: "AA==", MIMEType: "audio/wav"}, item.Part{Kind: item.Image, URL: "https://x/i.png"}
	said := func(role item.Role, parts ...item.Part) item.Item {
		return item.Item{Kind: item.Message, Role: role, Parts: parts, Native: item.Native{Dialect: model.DialectChat, JSON: json.RawMessage(`{}`)}}
	}
	named := said(item.User)
	named.Name = "ann"
	result := item.Item{Kind: item.ToolResult, CallID: "c", Parts: []item.Part{audio, image}}
	for _, tt := range []struct {
		name string
		req  model.Request
		want []string
	}{
		{"text and images", model.Request{Items: []item.Item{said(item.User, item.Part{Kind: item.Text, Text: "a"}, image), said(item.Assistant, item.Part{Kind: item.Refusal, Text: "No."})}}, nil},
		{"the name of a participant", model.Request{Items: []item.Item{named}}, []string{"messages[].name"}},
		{"audio", model.Request{Items: []item.Item{said(item.User, audio)}}, []string{"messages[].content[].input_audio"}},
		{"an image that the model is said to have sent", model.Request{Items: []item.Item{said(item.Assistant, image)}}, []string{"messages[].content[].image_url"}},
		{"audio in a result of the client's tool", model.Request{Items: []item.Item{{Kind: item.ToolResult, Parts: []item.Part{audio, image}, Native: item.Native{Dialect: model.DialectChat}}}}, []string{"messages[].content[].input_audio"}},
		{"audio of a tool of the gateway", model.Request{Items: []item.Item{result}}, nil},
		{"a limit that is raised", model.Request{MaxTokens: 15, Params: []model.Param{{Name: "max_tokens", Value: json.RawMessage(`15`), Typed: true}}}, []string{"max_tokens"}},
		{"the least limit", model.Request{MaxTokens: 16, Params: []model.Param{{Name: "max_tokens", Value: json.RawMessage(`16`), Typed: true}}}, nil},
	} {
		tt.req.Dialect = model.DialectChat
		if diff := cmp.Diff(tt.want, new(Provider).Dropped(&tt.req)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestDropped(t *testing.T) { // P22
	p := New(wire.Endpoint{BaseURL: "http://p/v1"})
	req := &model.Request{
		Model: "m", Dialect: model.DialectChat,
		Options: model.Options{
			Effort: "high", Temperature: ptr(0.2), TopP: ptr(0.9), TopK: ptr(int64(3)), Seed: ptr(int64(7)), PresencePenalty: ptr(0.5), FrequencyPenalty: ptr(0.0),
			Stop: []string{"END"}, Verbosity: "low", Metadata: map[string]string{"a": "b"}, Format: model.Format{Type: "json_object"}, User: "u",
		},
		Params: []model.Param{{Name: "temperature", Typed: true}, {Name: "logit_bias"}, {Name: "service_tier"}, {Name: "prompt_cache_key"}, {Name: "store", Value: json.RawMessage("true")}},
	}
	if diff := cmp.Diff([]string{"logit_bias", "presence_penalty", "seed", "stop", "store", "top_k"}, p.Dropped(req)); diff != "" {
		t.Error(diff)
	}
	req = &model.Request{Dialect: model.DialectChat, Params: []model.Param{{Name: "store", Value: json.RawMessage("false")}}, Options: model.Options{FrequencyPenalty: ptr(0.0)}}
	if got := p.Dropped(req); got != nil {
		t.Error(got)
	}
	req = &model.Request{Dialect: "other", Params: []model.Param{{Name: "service_tier"}}, Options: model.Options{Format: model.Format{Type: "json_schema"}}}
	if diff := cmp.Diff([]string{"response_format", "service_tier"}, p.Dropped(req)); diff != "" {
		t.Error(diff)
	}
	if got := p.Dropped(&model.Request{Dialect: model.DialectResponses, Params: []model.Param{{Name: "x"}}, Options: model.Options{Stop: []string{"a"}}}); got != nil {
		t.Error(got)
	}
}

func TestWhichModelsReason(t *testing.T) { // P08
	for name, want := range map[string]bool{
		"gpt-4o": false, "gpt-4.1-nano": false, "openai/gpt-4o-mini": false, "chatgpt-4o-latest": false, "gpt-3.5-turbo": false, "gpt-5-chat-latest": false,
		"gpt-5": true, "gpt-5-nano": true, "o4-mini": true, "openai/gpt-oss-20b": true, "grok-4.3": true, "my-deployment": true, "": true,
	} {
		if reasons(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// A client writes the transcript: thousands of calls, with ids that are already taken.
func TestManyCallsAreWrittenSoon(t *testing.T) {
	const n = 25_000
	items := make([]item.Item, 0, 2*n)
	for i := range n {
		items = append(items, of(1, item.NewCall(fmt.Sprintf("call_%d", n+i), "f", "{}")))
	}
	for range n {
		items = append(items, of(1, item.NewCall("", "f", "{}")))
	}
	start := time.Now()
	appendInput(nil, items)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("%v", took)
	}
}

// A text of the model has annotations, whoever wrote the item; what has them keeps its bytes.
func TestTextsOfTheModelHaveAnnotations(t *testing.T) {
	const bare, whole = `{"type":"output_text","text":"a"}`, `{"annotations":[],"type":"output_text","text":"a"}`
	for content, want := range map[string]string{
		"[" + bare + "]":                      "[" + whole + "]",
		`[{"type":"refusal"},` + bare + " ]":  `[{"type":"refusal"},` + whole + "]",
		`[ {"type":"input_text","text":""} ]`: `[ {"type":"input_text","text":""} ]`,
		"[ " + whole + " ]":                   "[ " + whole + " ]",
		`[]`:                                  `[]`,
		`"text"`:                              `"text"`,
	} {
		if got := string(annotated([]byte(content))); got != want {
			t.Errorf("%s becomes %s", content, got)
		}
	}
}
