package openai

import (
	"encoding/json"
	"strings"
	"testing"

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
		{"tools of both owners", model.Request{Dialect: Dialect, Tools: []model.Tool{sum, native}}, `,"tools":[{"type":"function","function":{"name":"sum","description":"Adds <two>.","parameters":{"type":"object", "$schema":"x"}}},{"type":"function", "function":{"name":"own","strict":true}}],"messages":[]` + streamed},
		{"a tool without description and schema", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"messages":[]` + streamed},
		{"a tool choice", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}, ToolChoice: model.ToolChoice{Mode: "required"}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":"required","messages":[]` + streamed},
		{"a named tool", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}, ToolChoice: model.ToolChoice{Mode: "named", Name: "f"}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[]` + streamed},
		{"some of the tools", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}, ToolChoice: model.ToolChoice{Mode: "auto", Only: []string{"f", "g"}}}, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]}},"messages":[]` + streamed}, // C25
		{"the client's own tool choice", model.Request{Dialect: Dialect, Tools: []model.Tool{native}, ToolChoice: model.ToolChoice{Mode: "auto", Native: json.RawMessage(`{"a":1}`)}}, `,"tools":[{"type":"function", "function":{"name":"own","strict":true}}],"tool_choice":{"a":1},"messages":[]` + streamed},
		{"no tool choice without tools", model.Request{Dialect: Dialect, ToolChoice: model.ToolChoice{Mode: "none"}, Params: []model.Param{param("parallel_tool_calls", "true")}}, `,"messages":[]` + streamed},
		{"params in order, without ours", model.Request{Dialect: Dialect, Params: []model.Param{param("z", `1.0`), param("model", `"x"`), param("messages", `[]`), param("n", `1`), param("stream", `false`), param("a", `{"b": [ ]}`)}}, `,"messages":[],"z":1.0,"a":{"b": [ ]}` + streamed},
		{"params of another dialect", model.Request{Dialect: "anthropic", Params: []model.Param{param("z", `1`), param("max_tokens", `1`)}, MaxTokens: 5}, `,"messages":[],"max_tokens":5` + streamed},
		{"stream options are merged", model.Request{Dialect: Dialect, Params: []model.Param{param("stream_options", ` {"include_usage":false,"include_obfuscation":false} `)}}, `,"messages":[],"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`},
		{"a cap on the output", model.Request{Dialect: Dialect, MaxTokens: 10, Params: []model.Param{param("max_completion_tokens", `7`)}}, `,"messages":[],"max_completion_tokens":7` + streamed},
		{"a lower cap on the output", model.Request{Dialect: Dialect, MaxTokens: 5, Params: []model.Param{param("max_completion_tokens", `7`)}}, `,"messages":[],"max_completion_tokens":5` + streamed},
		{"the client's cap alone", model.Request{Dialect: Dialect, Params: []model.Param{param("max_tokens", `7`)}}, `,"messages":[],"max_tokens":7` + streamed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Model = `m"1`
			got := string(New(Options{BaseURL: "http://p/v1"}).encode(&tt.req))
			if want := `{"model":"m\"1"` + tt.want; got != want {
				t.Errorf("\n%s, want\n%s", got, want)
			}
		})
	}
}

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
		{"a result with an image", []item.Item{{Kind: item.ToolResult, CallID: "1", Parts: []item.Part{{Kind: item.Text, Text: "a "}, {Kind: item.Image, Data: "AA==", MIMEType: "image/png"}}}}, `{"role":"tool","tool_call_id":"1","content":"a [image image/png: not shown, this model takes text results only]"}`},
		{"as it was written in this dialect", []item.Item{{Kind: item.Message, Role: item.Assistant, Native: item.Native{Dialect: Dialect, JSON: json.RawMessage(`{"role": "assistant","x":1}`)}}}, `{"role": "assistant","x":1}`},
		{"but not in another", []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Text, Text: "a"}}, Native: item.Native{Dialect: "anthropic", JSON: json.RawMessage(`{"x":1}`)}}}, `{"role":"user","content":"a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(appendMessage(nil, tt.item))
			if got != tt.want || !wire.Valid([]byte(got)) {
				t.Errorf("\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// A longer transcript begins with the bytes of the shorter one.
func TestEncodeKeepsThePrefix(t *testing.T) {
	p := New(Options{BaseURL: "http://p/v1"})
	req := model.Request{Model: "m", Items: []item.Item{item.NewText(item.User, "a")}, Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}}
	first := string(p.encode(&req))
	req.Items = append(req.Items, item.NewText(item.Assistant, "b"))
	if head := strings.TrimSuffix(first, `]`+streamed); !strings.HasPrefix(string(p.encode(&req)), head) {
		t.Error(first)
	}
}

func TestBaseURL(t *testing.T) {
	for base, want := range map[string]string{
		"https://api.openai.com/v1/":                         "https://api.openai.com/v1/chat/completions",
		"http://h:1/openai/deployments/d?api-version=2024-1": "http://h:1/openai/deployments/d/chat/completions?api-version=2024-1",
		"http://h": "http://h/chat/completions",
	} {
		if got := New(Options{BaseURL: base}).chat.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for host, want := range map[string]string{"https://api.openai.com/v1": "max_completion_tokens", "http://h": "max_tokens"} {
		if got := New(Options{BaseURL: host}).o.MaxTokensParam; got != want {
			t.Errorf("%s: %s", host, got)
		}
	}
	for _, bad := range []string{"", "not a url", "http://", "http://h:x/", "\x00"} {
		if _, err := New(Options{BaseURL: bad}).Stream(t.Context(), &model.Request{}, nil); err == nil || err.(*model.Error).Class != model.Target {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
