package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func ptr[T any](v T) *T { return &v }

func TestEncode(t *testing.T) { // M02 M05
	thought := item.Item{Kind: item.Reasoning, Turn: 1, Native: item.Native{Dialect: Dialect, JSON: json.RawMessage(`{"type":"thinking","thinking":"Hm.","signature":"s=="}`)}}
	of := func(turn int, it item.Item) item.Item {
		it.Turn = turn
		return it
	}
	user := item.NewText(item.User, "hi")
	for _, tt := range []struct {
		name string
		req  model.Request
		want string // without what every request has
	}{
		{"system and developer messages are the system text", model.Request{Items: []item.Item{item.NewText(item.System, "a"), user, item.NewText(item.Developer, "b")}},
			`"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`},
		{"two calls and their results in one message each, with thinking first", model.Request{Items: []item.Item{
			user, thought, of(1, item.NewText(item.Assistant, "Let me see.")), of(1, item.NewCall("c1", "f", `{"a":1}`)), of(1, item.NewCall("c2", "g", "")),
			item.NewResult("c1", "5", false), item.NewResult("c2", "no", true), item.NewText(item.User, "and?")}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s=="},{"type":"text","text":"Let me see."},{"type":"tool_use","id":"c1","name":"f","input":{"a":1}},{"type":"tool_use","id":"c2","name":"g","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"5"}]},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"no"}],"is_error":true},{"type":"text","text":"and?"}]}]`},
		{"ids that the dialect does not allow, or that repeat", model.Request{Items: []item.Item{
			user, of(1, item.NewCall("a:1", "f", "{}")), item.NewResult("a:1", "x", false), of(2, item.NewCall("a:1", "f", "{}")), of(2, item.NewCall("", "f", "{}")), item.NewResult("a:1", "y", false), item.NewResult("", "z", false)}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"tool_use","id":"a_1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a_1","content":[{"type":"text","text":"x"}]}]},{"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"f","input":{}},{"type":"tool_use","id":"call_2","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"y"}]},{"type":"tool_result","tool_use_id":"call_2","content":[{"type":"text","text":"z"}]}]}]`},
		{"the model speaks first, and arguments that are not an object", model.Request{Items: []item.Item{of(1, item.NewCall("c", "f", "{bad"))}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"(The conversation begins with your message.)"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"invalid_json":"{bad"}}]}]`},
		{"images and files, from a user and from a tool", model.Request{Items: []item.Item{
			{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Image, URL: "https://x/i.png"}, {Kind: item.Image, URL: "data:image/png;base64,AA=="}, {Kind: item.File, Data: "data:application/pdf;base64,AA==", Name: "a.pdf"}, {Kind: item.File, FileID: "file_1"}, {Kind: item.Text, Text: " "}}},
			of(1, item.NewCall("c", "f", "{}")), {Kind: item.ToolResult, CallID: "c", Parts: []item.Part{{Kind: item.Image, Data: "BB==", MIMEType: "image/jpeg"}}}}},
			`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/i.png"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="},"title":"a.pdf"},{"type":"document","source":{"type":"file","file_id":"file_1"}}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"BB=="}}]}]}]`},
		{"what another dialect wrote is written from its plain fields, or left out", model.Request{Items: []item.Item{
			user, {Kind: item.Reasoning, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "r"}}}, {Kind: item.Other, Turn: 1, Native: item.Native{Dialect: "x", JSON: json.RawMessage(`{}`)}},
			{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text, Text: "a"}}, Native: item.Native{Dialect: "openai-chat", JSON: json.RawMessage(`{"x":1}`)}}}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"text","text":"a"}]}]`},
		{"tools, one choice, one call at a time", model.Request{Items: []item.Item{user}, ToolChoice: model.ToolChoice{Mode: "named", Name: "f"}, Options: model.Options{ParallelCalls: ptr(false)},
			Tools: []model.Tool{{Definition: tool.Definition{Name: "f", Description: "d", InputSchema: json.RawMessage(`{"$schema":"s","properties":{}}`)}}}},
			`"tools":[{"name":"f","description":"d","input_schema":{"properties":{},"type":"object"}}],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`},
		{"a choice among some of the tools", model.Request{Items: []item.Item{user}, ToolChoice: model.ToolChoice{Mode: "required", Only: []string{"g"}},
			Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}, {Definition: tool.Definition{Name: "g"}}}},
			`"tools":[{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`},
		{"sampling, stop, format and user", model.Request{Items: []item.Item{user}, Options: model.Options{Temperature: ptr(1.5), TopK: ptr(int64(4)), Stop: []string{"END", " "}, User: "u",
			Format: model.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"object"}`)}}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"temperature":1,"top_k":4,"stop_sequences":["END"],"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}},"metadata":{"user_id":"u"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Model, tt.req.MaxTokens = "m", 7
			p := New(Options{BaseURL: "http://p/v1"})
			got, err := p.encode(&tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(`{"model":"m","max_tokens":7,`+tt.want+`,"stream":true}`, string(got)); diff != "" {
				t.Error(diff)
			}
			again, _ := p.encode(&tt.req)
			if string(again) != string(got) {
				t.Errorf("the second time it is %s", again)
			}
		})
	}
}

func TestThinking(t *testing.T) { // M08
	user := item.NewText(item.User, "hi")
	call := item.NewCall("c", "f", "{}")
	call.Turn = 1
	for _, tt := range []struct {
		name, model, effort string
		limit               int
		items               []item.Item
		forced              bool
		want                string // members of the request, in their order
		dropped             []string
	}{
		{"a number of tokens, on top of the default", "claude-sonnet-4-5-20250929", "medium", 0, []item.Item{user}, false, `"max_tokens":16384,"thinking":{"type":"enabled","budget_tokens":8192}`, nil},
		{"within the client's limit", "claude-opus-4-1", "high", 3000, []item.Item{user}, false, `"max_tokens":3000,"thinking":{"type":"enabled","budget_tokens":2999}`, nil},
		{"no room for the least number", "claude-3-7-sonnet-latest", "low", 1000, []item.Item{user}, false, `"max_tokens":1000`, []string{"reasoning_effort"}},
		{"newer models decide by themselves", "claude-opus-4-6", "minimal", 500, []item.Item{user}, false, `"max_tokens":500,"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"low"}`, nil},
		{"the newest too", "claude-sonnet-5", "xhigh", 500, []item.Item{user}, false, `"max_tokens":500,"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"xhigh"}`, nil},
		{"off", "claude-sonnet-5", "none", 500, []item.Item{user}, false, `"max_tokens":500,"thinking":{"type":"disabled"}`, nil},
		{"a forced call excludes it", "claude-sonnet-5", "high", 500, []item.Item{user}, true, `"max_tokens":500`, []string{"reasoning_effort"}},
		{"in the tool loop of another provider's answer", "claude-sonnet-4-5", "low", 0, []item.Item{user, call, item.NewResult("c", "x", false)}, false, `"max_tokens":8192`, []string{"reasoning_effort"}},
		{"an effort that the dialect does not know", "claude-sonnet-5", "much", 500, []item.Item{user}, false, `"max_tokens":500`, []string{"reasoning_effort"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &model.Request{Model: tt.model, MaxTokens: tt.limit, Items: tt.items, Options: model.Options{Effort: tt.effort}}
			if tt.forced {
				req.Tools, req.ToolChoice = []model.Tool{{Definition: tool.Definition{Name: "f"}}}, model.ToolChoice{Mode: "required"}
			}
			p := New(Options{BaseURL: "http://p/v1"})
			body, err := p.encode(req)
			if err != nil {
				t.Fatal(err)
			}
			var all map[string]json.RawMessage
			if err := json.Unmarshal(body, &all); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range []string{"max_tokens", "thinking", "output_config"} {
				if v, ok := all[name]; ok {
					got = append(got, `"`+name+`":`+string(v))
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ",")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.dropped, p.Dropped(req)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the dialect cannot take is named.
func TestDropped(t *testing.T) { // P22
	req := &model.Request{
		Model: "claude-sonnet-5", Items: []item.Item{item.NewText(item.User, "hi")}, Dialect: "openai-chat",
		Options: model.Options{
			Effort: "high", Temperature: ptr(0.2), TopP: ptr(0.9), TopK: ptr(int64(3)), Seed: ptr(int64(7)), PresencePenalty: ptr(0.5), FrequencyPenalty: ptr(0.0),
			Verbosity: "low", Metadata: map[string]string{"a": "b"}, Format: model.Format{Type: "json_object"},
		},
		Params: []model.Param{{Name: "temperature", Typed: true}, {Name: "logit_bias"}, {Name: "service_tier"}},
	}
	want := []string{"logit_bias", "metadata", "presence_penalty", "response_format", "seed", "service_tier", "temperature", "top_k", "top_p", "verbosity"}
	if diff := cmp.Diff(want, New(Options{BaseURL: "http://p/v1"}).Dropped(req)); diff != "" {
		t.Error(diff)
	}
}
