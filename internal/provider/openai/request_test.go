package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const streamed = `,"stream":true,"stream_options":{"include_usage":true}}`

func TestEncode(t *testing.T) { // M01
	sum := model.Tool{Definition: tool.Definition{Name: "sum", Description: "Adds <two>.", InputSchema: json.RawMessage(`{"type":"object", "$schema":"x"}`)}}
	native := model.Tool{Native: json.RawMessage(`{"type":"function", "function":{"name":"own","strict":true}}`)}
	param := func(name, value string) model.Param { return model.Param{Name: name, Value: json.RawMessage(value)} }
	for _, tt := range []struct {
		name string
		req  model.Request
		want string // after the model
	}{
		{"nothing but a model", model.Request{}, `,"messages":[]` + streamed},
		{"tools of both owners", model.Request{Dialect: model.DialectChat, Tools: []model.Tool{sum, native}}, `,"tools":[{"type":"function","function":{"name":"sum","description":"Adds <two>.","parameters":{"type":"object","properties":{}}}},{"type":"function", "function":{"name":"own","strict":true}}],"messages":[]` + streamed},
		{"a tool without description and schema", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"messages":[]` + streamed},
		{"a strict tool", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{}`)}, Strict: new(true)}}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}},"strict":true}}],"messages":[]` + streamed},
		{"a tool choice", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}, ToolChoice: model.ToolChoice{Mode: "required"}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":"required","messages":[]` + streamed},
		{"a named tool", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}, ToolChoice: model.ToolChoice{Mode: "named", Name: "f"}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[]` + streamed},
		{"some of the tools", model.Request{Dialect: model.DialectChat, Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}, ToolChoice: model.ToolChoice{Mode: "auto", Only: []string{"f", "g"}}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]}},"messages":[]` + streamed}, // C25
		{"some of the tools, for another dialect", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}, {Definition: tool.Definition{Name: "g"}}}, ToolChoice: model.ToolChoice{Mode: "required", Only: []string{"f"}}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":"required","messages":[]` + streamed},                                                                                                               // C25
		{"none of some tools", model.Request{Dialect: model.DialectChat, Tools: []model.Tool{native}, ToolChoice: model.ToolChoice{Mode: "none", Only: []string{"own"}}}, `,"tools":[{"type":"function", "function":{"name":"own","strict":true}}],"tool_choice":"none","messages":[]` + streamed},
		{"the client's own tool choice", model.Request{Dialect: model.DialectChat, Tools: []model.Tool{native}, ToolChoice: model.ToolChoice{Mode: "auto", Native: json.RawMessage(`{"a":1}`)}}, `,"tools":[{"type":"function", "function":{"name":"own","strict":true}}],"tool_choice":{"a":1},"messages":[]` + streamed},
		{"no tool choice without tools", model.Request{Dialect: model.DialectChat, ToolChoice: model.ToolChoice{Mode: "none"}, Params: []model.Param{param("parallel_tool_calls", "true")}}, `,"messages":[]` + streamed},
		{"params in order, without ours", model.Request{Dialect: model.DialectChat, Params: []model.Param{param("z", `1.0`), param("model", `"x"`), param("messages", `[]`), param("n", `1`), param("stream", `false`), param("a", `{"b": [ ]}`)}}, `,"messages":[],"z":1.0,"a":{"b": [ ]}` + streamed},
		{"params of another dialect", model.Request{Dialect: model.DialectAnthropic, Params: []model.Param{param("z", `1`), param("max_tokens", `1`)}, MaxTokens: 5}, `,"messages":[],"max_tokens":5` + streamed},
		{"stream options are merged", model.Request{Dialect: model.DialectChat, Params: []model.Param{param("stream_options", ` {"include_usage":false,"include_obfuscation":false} `)}}, `,"messages":[],"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`},
		{"a cap on the output", model.Request{Dialect: model.DialectChat, MaxTokens: 10, Params: []model.Param{param("max_completion_tokens", `7`)}}, `,"messages":[],"max_completion_tokens":7` + streamed},
		{"a lower cap on the output", model.Request{Dialect: model.DialectChat, MaxTokens: 5, Params: []model.Param{param("max_completion_tokens", `7`)}}, `,"messages":[],"max_completion_tokens":5` + streamed},
		{"the client's cap alone", model.Request{Dialect: model.DialectChat, Params: []model.Param{param("max_tokens", `7`)}}, `,"messages":[],"max_tokens":7` + streamed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Model = `m"1`
			got := string(New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{}).encode(&tt.req, true))
			if want := `{"model":"m\"1"` + tt.want; got != want {
				t.Errorf("\n%s, want\n%s", got, want)
			}
		})
	}
}

func TestToolHints(t *testing.T) {
	def := func(name string, reads *bool) model.Tool {
		return model.Tool{Definition: tool.Definition{Name: name, Annotations: tool.Annotations{ReadOnly: reads}}}
	}
	req := &model.Request{Model: "m", Tools: []model.Tool{def("r", new(true)), def("w", new(false)), def("u", nil)}}
	for hints, want := range map[bool][]string{
		true: {
			`"r",` + noArguments + `,"annotations":{"readOnlyHint":true}}`,
			`"w",` + noArguments + `,"annotations":{"readOnlyHint":false}}`,
			`"u",` + noArguments + `}`,
		},
		false: {`"r",` + noArguments + `}`},
	} {
		got := string(New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{ToolHints: hints}).encode(req, true))
		for _, one := range want {
			if !strings.Contains(got, `"name":`+one) {
				t.Errorf("hints %t: %s lacks %s", hints, got, one)
			}
		}
	}
}

const noArguments = `"parameters":{"type":"object","properties":{}}`

func TestEncodeMessages(t *testing.T) { // M05
	for _, tt := range []struct {
		name string
		item []item.Item
		want string
	}{
		{"system", []item.Item{item.NewText(item.System, "a\n<b>\u2028")}, `{"role":"system","content":"a\n<b>` + "\u2028" + `"}`},
		{"developer is spelt system", []item.Item{item.NewText(item.Developer, "a")}, `{"role":"system","content":"a"}`},
		{"a named user", []item.Item{{Kind: item.Message, Role: item.User, Name: "bob", Parts: []item.Part{{Kind: item.Text, Text: "a"}}}}, `{"role":"user","name":"bob","content":"a"}`},
		{"images, audio and files", []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Text, Text: "a"}, {Kind: item.Image, URL: "http://i", Detail: "low"}, {Kind: item.Image, Data: "AA==", MIMEType: "image/png"}, {Kind: item.Audio, Data: "AA==", MIMEType: "audio/mpeg"}, {Kind: item.File, Data: "AA==", MIMEType: "application/pdf", Name: "x.pdf"}}}}, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"http://i","detail":"low"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"input_audio","input_audio":{"data":"AA==","format":"mp3"}},{"type":"file","file":{"file_data":"data:application/pdf;base64,AA==","filename":"x.pdf"}}]}`},
		{"two calls", []item.Item{item.NewCall("1", "f", `{"a":"b"}`), item.NewCall("2", "g", "")}, `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}},{"id":"2","type":"function","function":{"name":"g","arguments":""}}]}`},
		{"an answer after reasoning", []item.Item{{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: "r"}}}, item.NewText(item.Assistant, "a")}, `{"role":"assistant","content":"a"}`},
		{"an empty answer", []item.Item{{Kind: item.Message, Role: item.Assistant}}, `{"role":"assistant","content":""}`},
		{"a refusal", []item.Item{{Kind: item.Message, Role: item.Assistant, Parts: []item.Part{{Kind: item.Refusal, Text: "no"}}}}, `{"role":"assistant","content":null,"refusal":"no"}`},
		{"a result", []item.Item{item.NewResult("1", "5", false)}, `{"role":"tool","tool_call_id":"1","content":"5"}`},
		{"a result with an image", []item.Item{{Kind: item.ToolResult, CallID: "1", Parts: []item.Part{{Kind: item.Text, Text: "a "}, {Kind: item.Image, Data: "AA==", MIMEType: "image/png"}}}}, `{"role":"tool","tool_call_id":"1","content":"a \n[image; type: image/png; 1 bytes, not shown]"}`},
		{"two texts", []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Text, Text: "a"}, {Kind: item.Text, Text: "b"}}}}, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		{"a message without content", []item.Item{{Kind: item.Message, Role: item.User}}, `{"role":"user","content":""}`},
		{"parts that the dialect has no form for", []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Resource, Text: "a", URL: "file:///a"}, {Kind: item.Resource, URL: "file:///b", Data: "AA=="}, {Kind: item.Image, FileID: "f1"}, {Kind: item.File, FileID: "f2"}, {Kind: item.File, Text: "c", Name: "c.txt", MIMEType: "text/plain"}, {Kind: item.Audio, URL: "http://s"}, {Kind: item.File, Data: "data:text/plain;base64,AA=="}}}}, `{"role":"user","content":[{"type":"text","text":"[resource file:///a]\na"},{"type":"text","text":"[resource file:///b; 1 bytes, not shown]"},{"type":"text","text":"[image; id: f1]"},{"type":"file","file":{"file_id":"f2"}},{"type":"text","text":"[file]\nc"},{"type":"text","text":"[audio http://s]"},{"type":"file","file":{"file_data":"data:text/plain;base64,AA=="}}]}`},
		{"as it was written in this dialect", []item.Item{{Kind: item.Message, Role: item.Assistant, Native: item.Native{Dialect: model.DialectChat, JSON: json.RawMessage(`{"role": "assistant","x":1}`)}}}, `{"role": "assistant","x":1}`},
		{"but not in another", []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Text, Text: "a"}}, Native: item.Native{Dialect: model.DialectAnthropic, JSON: json.RawMessage(`{"x":1}`)}}}, `{"role":"user","content":"a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(new(callIDs).appendMessage(nil, tt.item))
			if got != tt.want || !jsonscan.Valid([]byte(got)) {
				t.Errorf("\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// Texts that were messages of their own do not become one word.
func TestNeighbouringAnswersAreKeptApart(t *testing.T) { // M05
	texts := func(more ...item.Item) []item.Item {
		all := append([]item.Item{item.NewText(item.Assistant, "The answer is 4"), item.NewText(item.Assistant, "2 is prime")}, more...)
		item.SetTurn(all, 1)
		return all
	}
	reasoning := item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: "r"}}}
	for _, tt := range []struct {
		items []item.Item
		want  string
	}{
		{texts(), `[{"role":"assistant","content":"The answer is 4"},{"role":"assistant","content":"2 is prime"}]`},
		{texts(reasoning), `[{"role":"assistant","content":"The answer is 4"},{"role":"assistant","content":"2 is prime"}]`},
		{texts(item.NewCall("1", "f", "{}")), `[{"role":"assistant","content":"The answer is 4\n\n2 is prime","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]`},
	} {
		if got := string(appendMessages(nil, tt.items)); got != tt.want {
			t.Errorf("\n%s, want\n%s", got, tt.want)
		}
	}
}

// A request of another dialect is written from what all dialects share.
func TestEncodeOptionsOfAnotherDialect(t *testing.T) { // M01, P22
	f := func(n float64) *float64 { return &n }
	options := model.Options{
		Temperature: f(0.5), TopP: f(1), TopK: new(int64(40)), PresencePenalty: f(-2), FrequencyPenalty: f(1e21), Seed: new(int64(-7)),
		Stop: []string{"a", "b\n", "c", "d", "e"}, Effort: "low", Verbosity: "high", ParallelCalls: new(false),
		Metadata: map[string]string{"z": "1", "a": "<2>"}, User: "u",
		Format: model.Format{Type: "json_schema", Name: "n", Description: "d", Schema: json.RawMessage(`{"type": "object"}`), Strict: new(true)},
	}
	common := `,"presence_penalty":-2,"frequency_penalty":1e+21,"seed":-7,`
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"type": "object"},"strict":true}},"reasoning_effort":"low","verbosity":"high","parallel_tool_calls":false`
	for _, tt := range []struct {
		name, base, want string
		dropped          []string
	}{
		{"a compatible provider", "http://p/v1",
			`,"messages":[],"temperature":0.5,"top_p":1,"top_k":40` + common + `"stop":["a","b\n","c","d","e"]` + format + `,"metadata":{"a":"<2>","z":"1"},"user":"u","max_tokens":9` + streamed,
			[]string{"thinking"}},
		{"OpenAI", "https://api.openai.com/v1",
			`,"messages":[],"temperature":0.5,"top_p":1` + common + `"stop":["a","b\n","c","d"]` + format + `,"user":"u","max_completion_tokens":9` + streamed,
			[]string{"metadata", "stop", "thinking", "top_k"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := New(wire.Endpoint{BaseURL: tt.base}, Options{})
			req := &model.Request{
				Model: "m", MaxTokens: 9, Options: options, Dialect: "other", Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}},
				Params: []model.Param{{Name: "max_tokens", Value: json.RawMessage("7"), Typed: true}, {Name: "thinking", Value: json.RawMessage("{}")}},
			}
			got := string(p.encode(req, true))
			want := `{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]` + tt.want
			if got != want || !jsonscan.Valid([]byte(got)) {
				t.Errorf("\n%s, want\n%s", got, want)
			}
			if diff := cmp.Diff(tt.dropped, p.Dropped(req)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEncodeFormats(t *testing.T) { // M08
	for _, tt := range []struct {
		format model.Format
		want   string
	}{
		{model.Format{Type: "text"}, ``},
		{model.Format{Type: "json_object"}, `,"response_format":{"type":"json_object"}`},
		{model.Format{Type: "json_schema", Schema: json.RawMessage(`true`), Strict: new(false)}, `,"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":true,"strict":false}}`},
	} {
		if got := string(appendFormat(nil, tt.format)); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.format, got, tt.want)
		}
	}
}

// Members that both dialects of OpenAI have are sent to OpenAI. Other servers may refuse what
// they do not know.
func TestMembersOfTheResponsesAPI(t *testing.T) { // P11
	for base, want := range map[string]struct {
		sent    string
		dropped []string
	}{
		"https://api.openai.com/v1":            {`"prompt_cache_key":"k","service_tier":"flex","safety_identifier":"s","prompt_cache_retention":"24h",`, []string{"truncation"}},
		"https://name.openai.azure.com/openai": {`"prompt_cache_key":"k","service_tier":"flex","safety_identifier":"s","prompt_cache_retention":"24h",`, []string{"truncation"}},
		"http://p/v1":                          {``, []string{"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "truncation"}},
	} {
		p := New(wire.Endpoint{BaseURL: base}, Options{})
		req := &model.Request{Model: "m", Dialect: model.DialectResponses, Params: []model.Param{
			{Name: "prompt_cache_key", Value: json.RawMessage(`"k"`)}, {Name: "service_tier", Value: json.RawMessage(`"flex"`)},
			{Name: "safety_identifier", Value: json.RawMessage(`"s"`)}, {Name: "prompt_cache_retention", Value: json.RawMessage(`"24h"`)},
			{Name: "truncation", Value: json.RawMessage(`"auto"`)},
		}}
		if got := string(p.encode(req, true)); got != `{"model":"m","messages":[],`+want.sent+streamed[1:] {
			t.Errorf("%s: %s", base, got)
		}
		if diff := cmp.Diff(want.dropped, p.Dropped(req)); diff != "" {
			t.Errorf("%s: %s", base, diff)
		}
	}
}

// What only another dialect has is left out of the request and named.
func TestDropped(t *testing.T) { // P22
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	req := &model.Request{
		Dialect: "other", ToolChoice: model.ToolChoice{Native: json.RawMessage(`{"type":"search"}`)},
		Tools: []model.Tool{{Native: json.RawMessage(`{"type":"search"}`)}},
		Items: []item.Item{
			item.NewText(item.User, "a"),
			{Kind: item.Reasoning, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "r"}}},
			{Kind: item.Other, Turn: 1, Native: item.Native{Dialect: "other", JSON: json.RawMessage(`{"type":"search_call"}`)}},
			item.NewText(item.User, "b"),
		},
		Params:  []model.Param{{Name: "z"}, {Name: "a"}, {Name: "z"}},
		Options: model.Options{ParallelCalls: new(true)},
	}
	if diff := cmp.Diff([]string{"a", "messages", "tool_choice", "tools", "z"}, p.Dropped(req)); diff != "" {
		t.Error(diff)
	}
	want := `{"model":"","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]` + streamed
	if got := string(p.encode(req, true)); got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
	req.Dialect, req.Items[2].Native.Dialect = model.DialectResponses, model.DialectResponses
	if diff := cmp.Diff([]string{"a", "input", "tool_choice", "tools", "z"}, p.Dropped(req)); diff != "" {
		t.Errorf("of a client of the Responses API: %s", diff)
	}
	req.Params = []model.Param{{Name: "reasoning", Value: json.RawMessage(`{"effort":"low","summary":"auto"}`), Typed: true}}
	if got := p.Dropped(req); !slices.Contains(got, "reasoning.summary") || slices.Contains(got, "reasoning") {
		t.Errorf("a summary of the reasoning: %q", got)
	}
	for _, value := range []string{`{"summary":null}`, `{"effort":"low"}`, `null`} {
		req.Params[0].Value = json.RawMessage(value)
		if got := p.Dropped(req); slices.Contains(got, "reasoning.summary") {
			t.Errorf("%s: %q", value, got)
		}
	}
	req.Items[2].Native.Dialect = model.DialectAnthropic // of another provider: not a member of the client's
	if got := p.Dropped(req); slices.Contains(got, "input") {
		t.Errorf("an item of another provider: %q", got)
	}
	req.Dialect = model.DialectChat
	if got := p.Dropped(req); got != nil {
		t.Errorf("of this dialect: %q", got)
	}
}

// Calls without an id, or with the same one, are sent back with ids of their own,
// and each result with that of its call.
func TestEncodePairsCallsAndResults(t *testing.T) { // M05
	native := item.Native{Dialect: model.DialectChat, Provider: "p", JSON: json.RawMessage(`{"role": "assistant","content":null,"x":[1],"tool_calls":[{"id":"c","type":"function","extra":{"s":"t"},"function":{"name":"f","arguments":"{}"}},{"type":"function","function":{"name":"g","arguments":""}},{"id":"c","function":{"name":"h","arguments":"{}"}}]}`)}
	calls := func(n item.Native) []item.Item {
		items := []item.Item{item.NewText(item.User, "a"), item.NewCall("c", "f", "{}"), item.NewCall("", "g", ""), item.NewCall("c", "h", "{}"),
			item.NewResult("c", "1", false), item.NewResult("", "2", false), item.NewResult("c", "3", false), item.NewText(item.Assistant, "b"), item.NewCall("c", "f", "{}"), item.NewResult("c", "4", false)}
		item.SetTurn(items[1:4], 1)
		item.SetTurn(items[7:9], 2)
		items[1].Native = n
		return items
	}
	results := `,{"role":"tool","tool_call_id":"c","content":"1"},{"role":"tool","tool_call_id":"call00001","content":"2"},{"role":"tool","tool_call_id":"call00002","content":"3"},` +
		`{"role":"assistant","content":"b","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"4"}]`
	long := strings.Repeat("x", maxCallID+1)
	byClient := native
	byClient.Provider = ""
	handed := calls(native)
	handed[5].Native = item.Native{Dialect: model.DialectChat, JSON: json.RawMessage(`{"role":"tool","tool_call_id":"","content":[{"type":"text","text":"2"}]}`)}
	for _, tt := range []struct {
		name  string
		items []item.Item
		want  string
	}{
		{"of the same provider", calls(native), `[{"role":"user","content":"a"},{"role":"assistant","content":null,"x":[1],"tool_calls":[{"id":"c","type":"function","extra":{"s":"t"},"function":{"name":"f","arguments":"{}"}},{"id":"call00001","type":"function","function":{"name":"g","arguments":""}},{"id":"call00002","function":{"name":"h","arguments":"{}"}}]}` + results},
		{"of another provider", calls(item.Native{}), `[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call00001","type":"function","function":{"name":"g","arguments":""}},{"id":"call00002","type":"function","function":{"name":"h","arguments":"{}"}}]}` + results},
		{"as a client wrote them", calls(byClient)[1:5], `[` + string(native.JSON) + `,{"role":"tool","tool_call_id":"c","content":"1"}]`},
		{"with an id that is too long", []item.Item{{Kind: item.ToolCall, Turn: 1, CallID: long, Name: "f", Arguments: "{}"}, item.NewResult(long, "1", false)}, `[{"role":"assistant","content":null,"tool_calls":[{"id":"call00000","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call00000","content":"1"}]`},
		{"with a result of the client", handed[5:6], `[{"role":"tool","tool_call_id":"","content":[{"type":"text","text":"2"}]}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(appendMessages(nil, tt.items)); got != tt.want || !jsonscan.Valid([]byte(got)) {
				t.Errorf("\n%s, want\n%s", got, tt.want)
			}
		})
	}
	if got := string(appendMessages(nil, handed)); !strings.Contains(got, `{"tool_call_id":"call00001","role":"tool","content":[{"type":"text","text":"2"}]}`) {
		t.Errorf("the client's result: %s", got)
	}
}

// A longer transcript begins with the bytes of the shorter one.
func TestEncodeKeepsThePrefix(t *testing.T) {
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	req := model.Request{Model: "m", Items: []item.Item{item.NewText(item.User, "a")}, Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}}
	first := string(p.encode(&req, true))
	req.Items = append(req.Items, item.NewText(item.Assistant, "b"))
	if head := strings.TrimSuffix(first, `]`+streamed); !strings.HasPrefix(string(p.encode(&req, true)), head) {
		t.Error(first)
	}
}

func TestBaseURL(t *testing.T) {
	for base, want := range map[string]string{
		"https://api.openai.com/v1/":                         "https://api.openai.com/v1/chat/completions",
		"http://h:1/openai/deployments/d?api-version=2024-1": "http://h:1/openai/deployments/d/chat/completions?api-version=2024-1",
		"http://h": "http://h/chat/completions",
	} {
		if got := New(wire.Endpoint{BaseURL: base}, Options{}).chat.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for host, want := range map[string]string{"https://api.openai.com/v1": "max_completion_tokens", "http://h": "max_tokens"} {
		if got := New(wire.Endpoint{BaseURL: host}, Options{}).o.MaxTokensParam; got != want {
			t.Errorf("%s: %s", host, got)
		}
	}
	for _, bad := range []string{"", "not a url", "http://", "http://h:x/", "\x00"} {
		if _, err := New(wire.Endpoint{BaseURL: bad}, Options{}).Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit); err == nil || err.(*model.Error).Class != model.Target {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
