package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func ptr[T any](v T) *T { return &v }

func TestEncode(t *testing.T) { // M02 M05
	thought := item.Item{Kind: item.Reasoning, Turn: 1, Native: item.Native{Dialect: model.DialectAnthropic, JSON: json.RawMessage(`{"type":"thinking","thinking":"Hm.","signature":"s=="}`)}}
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
		{"white space at the end of an answer that is to be continued", model.Request{Items: []item.Item{user, of(1, item.NewText(item.Assistant, " The answer is \n")), of(1, item.NewText(item.Assistant, " ")), item.NewText(item.System, "a ")}},
			`"system":[{"type":"text","text":"a "}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"text","text":" The answer is"}]}]`},
		{"white space elsewhere", model.Request{Items: []item.Item{user, of(1, item.NewText(item.Assistant, "a ")), item.NewText(item.User, "b ")}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"text","text":"a "}]},{"role":"user","content":[{"type":"text","text":"b "}]}]`},
		{"white space of the provider's own block", model.Request{Items: []item.Item{user,
			{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text, Text: "a "}}, Native: item.Native{Dialect: model.DialectAnthropic, JSON: json.RawMessage(`{"type":"text","text":"a "}`)}}}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"text","text":"a"}]}]`},
		{"only a system message", model.Request{Items: []item.Item{item.NewText(item.System, "a")}},
			`"system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":[{"type":"text","text":"(The conversation begins with your message.)"}]}]`},
		{"the model speaks first, and arguments that are not an object", model.Request{Items: []item.Item{of(1, item.NewCall("c", "f", "{bad"))}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"(The conversation begins with your message.)"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"invalid_json":"{bad"}}]}]`},
		{"images and files, from a user and from a tool", model.Request{Items: []item.Item{
			{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.Image, URL: "https://x/i.png"}, {Kind: item.Image, URL: "data:image/png;base64,AA=="}, {Kind: item.File, Data: "data:application/pdf;base64,AA==", Name: "a.pdf"}, {Kind: item.File, FileID: "file_1"}, {Kind: item.Text, Text: " "}}},
			of(1, item.NewCall("c", "f", "{}")), {Kind: item.ToolResult, CallID: "c", Parts: []item.Part{{Kind: item.Image, Data: "BB==", MIMEType: "image/jpeg"}}}}},
			`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/i.png"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="},"title":"a.pdf"},{"type":"document","source":{"type":"file","file_id":"file_1"}}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"BB=="}}]}]}]`},
		{"what another dialect wrote is written from its plain fields, or left out", model.Request{Items: []item.Item{
			user, {Kind: item.Reasoning, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "r"}}}, {Kind: item.Other, Turn: 1, Native: item.Native{Dialect: "x", JSON: json.RawMessage(`{}`)}},
			{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text, Text: "a"}}, Native: item.Native{Dialect: model.DialectChat, JSON: json.RawMessage(`{"x":1}`)}}}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"text","text":"a"}]}]`},
		{"tools, one choice, one call at a time", model.Request{Items: []item.Item{user}, ToolChoice: model.ToolChoice{Mode: "named", Name: "f"}, Options: model.Options{ParallelCalls: ptr(false)},
			Tools: []model.Tool{{Definition: tool.Definition{Name: "f", Description: "d", InputSchema: json.RawMessage(`{"$schema":"s","properties":{}}`)}}}},
			`"tools":[{"name":"f","description":"d","input_schema":{"properties":{},"type":"object"}}],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`},
		{"a choice among some of the tools", model.Request{Items: []item.Item{user}, ToolChoice: model.ToolChoice{Mode: "required", Only: []string{"g"}},
			Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}, {Definition: tool.Definition{Name: "g"}}}},
			`"tools":[{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`},
		{"sampling, stop, format and user", model.Request{Items: []item.Item{user}, Options: model.Options{Temperature: ptr(1.5), TopK: ptr(int64(4)), Stop: []string{"END", " "}, User: "u",
			Format: model.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"object"}`)}}},
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"temperature":1,"top_k":4,"stop_sequences":["END"],"output_config":{"format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}},"metadata":{"user_id":"u"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Model, tt.req.MaxTokens = "m", 7
			p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
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
	thought := item.Item{Kind: item.Reasoning, Turn: 1, Native: item.Native{Dialect: model.DialectAnthropic, JSON: json.RawMessage(`{"type":"redacted_thinking","data":"x"}`)}}
	next := item.NewCall("d", "f", "{}")
	next.Turn = 2
	result, nextResult := item.NewResult("c", "x", false), item.NewResult("d", "x", false)
	thoughtNext := thought
	thoughtNext.Turn = 2
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
		{"in the tool loop of another provider's answer", "claude-sonnet-4-5", "low", 0, []item.Item{user, call, result}, false, `"max_tokens":8192`, []string{"reasoning_effort"}},
		{"in a tool loop that begins with another provider's answer", "claude-sonnet-4-5", "low", 0, []item.Item{user, call, result, thoughtNext, next, nextResult}, false, `"max_tokens":8192`, []string{"reasoning_effort"}},
		{"in a tool loop that begins with its own thinking", "claude-sonnet-4-5", "low", 0, []item.Item{user, thought, call, result, next, nextResult}, false, `"max_tokens":10240,"thinking":{"type":"enabled","budget_tokens":2048}`, nil},
		{"after a tool loop of another provider", "claude-sonnet-4-5", "low", 0, []item.Item{user, call, result, user}, false, `"max_tokens":10240,"thinking":{"type":"enabled","budget_tokens":2048}`, nil},
		{"an effort that the dialect does not know", "claude-sonnet-5", "much", 500, []item.Item{user}, false, `"max_tokens":500`, []string{"reasoning_effort"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &model.Request{Model: tt.model, MaxTokens: tt.limit, Items: tt.items, Options: model.Options{Effort: tt.effort}}
			if tt.forced {
				req.Tools, req.ToolChoice = []model.Tool{{Definition: tool.Definition{Name: "f"}}}, model.ToolChoice{Mode: "required"}
			}
			p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
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

// Thinking that the provider no longer takes, because the prompt before it has
// changed, is left out knowingly. The message is the one of the documentation:
// https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation // P08 M08
func TestThinkingThatIsOutdated(t *testing.T) {
	call := item.NewCall("c", "f", "{}")
	call.Turn = 1
	items := []item.Item{
		item.NewText(item.User, "hi"),
		{Kind: item.Reasoning, Turn: 1, Native: item.Native{Dialect: model.DialectAnthropic, JSON: json.RawMessage(`{"type":"redacted_thinking","data":"x"}`)}},
		call, item.NewResult("c", "x", false),
	}
	const mismatch = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
	for _, tt := range []struct {
		name, model, effort, message string
		want                         []string // thinking of each request, its beta header, and whether it has the block
	}{
		{"adaptive", "claude-opus-5-5", "low", mismatch, []string{`{"type":"adaptive","display":"summarized"}  true`, `{"type":"adaptive","display":"summarized","block_binding":{"prefix_mismatch_behavior":"drop_block"}} thinking-binding-controls-2026-08-01 true`}},
		{"adaptive by default", "claude-haiku-5-5", "much", mismatch, []string{`  true`, `{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}} thinking-binding-controls-2026-08-01 true`}},
		{"off", "claude-haiku-5-5", "none", mismatch, []string{`{"type":"disabled"}  true`, `{"type":"disabled"}  false`}},
		{"between calls", "claude-sonnet-5-5", "none", mismatch, []string{`{"type":"between_tools"}  true`, `{"type":"between_tools"}  false`}},
		{"another error", "claude-opus-5-5", "low", "messages.1.content.0: Invalid `signature` in `thinking` block", []string{`{"type":"adaptive","display":"summarized"}  true`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				var sent struct{ Thinking, Messages json.RawMessage }
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
					t.Error(err)
				}
				got = append(got, fmt.Sprint(string(sent.Thinking), " ", r.Header.Get("Anthropic-Beta"), " ", strings.Contains(string(sent.Messages), "redacted")))
				if len(got) == 1 {
					refusal, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": "invalid_request_error", "message": tt.message}})
					providertest.Answer(400, nil, string(refusal))(w, r)
					return
				}
				providertest.Answer(200, nil, started+stopped("end_turn"))(w, r)
			})
			_, err := p.Stream(t.Context(), &model.Request{Model: tt.model, Items: items, Options: model.Options{Effort: tt.effort}}, nil)
			if (err != nil) != (tt.message != mismatch) {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the dialect cannot take is named.
// The end user of a request for OpenAI is that of Anthropic. The option user comes first.
func TestASafetyIdentifierIsTheUser(t *testing.T) { // P11
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	req := &model.Request{
		Model: "claude-sonnet-5", Items: []item.Item{item.NewText(item.User, "hi")}, Dialect: model.DialectResponses,
		Params: []model.Param{{Name: "safety_identifier", Value: json.RawMessage(`"s"`)}},
	}
	for _, tt := range []struct {
		user, dialect, sent string
		dropped             []string
	}{
		{"", model.DialectResponses, `"metadata":{"user_id":"s"}`, nil},
		{"", model.DialectChat, `"metadata":{"user_id":"s"}`, nil},
		{"u", model.DialectResponses, `"metadata":{"user_id":"u"}`, []string{"safety_identifier"}},
		{"", "other", ``, []string{"safety_identifier"}},
	} {
		req.User, req.Dialect = tt.user, tt.dialect
		body, err := p.encode(req)
		if err != nil || !strings.Contains(string(body), tt.sent) || tt.sent == "" && strings.Contains(string(body), "user_id") {
			t.Errorf("%+v: %s %v", tt, body, err)
		}
		if diff := cmp.Diff(tt.dropped, p.Dropped(req)); diff != "" {
			t.Errorf("%+v: %s", tt, diff)
		}
	}
}

func TestDropped(t *testing.T) { // P22
	req := &model.Request{
		Model: "claude-sonnet-5", Items: []item.Item{item.NewText(item.User, "hi")}, Dialect: model.DialectChat,
		Options: model.Options{
			Effort: "high", Temperature: ptr(0.2), TopP: ptr(0.9), TopK: ptr(int64(3)), Seed: ptr(int64(7)), PresencePenalty: ptr(0.5), FrequencyPenalty: ptr(0.0),
			Verbosity: "low", Metadata: map[string]string{"a": "b"}, Format: model.Format{Type: "json_object"},
		},
		Params: []model.Param{{Name: "temperature", Typed: true}, {Name: "logit_bias"}, {Name: "service_tier"}},
	}
	want := []string{"logit_bias", "metadata", "presence_penalty", "response_format", "seed", "service_tier", "temperature", "top_k", "top_p", "verbosity"}
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	if diff := cmp.Diff(want, p.Dropped(req)); diff != "" {
		t.Error(diff)
	}
	req.Dialect, req.Effort = model.DialectResponses, "other"
	want = []string{"logit_bias", "metadata", "presence_penalty", "reasoning.effort", "seed", "service_tier", "temperature", "text.format", "text.verbosity", "top_k", "top_p"}
	if diff := cmp.Diff(want, p.Dropped(req)); diff != "" {
		t.Errorf("of a client of the Responses API: %s", diff)
	}
}

// A client of the Responses API gets the names of its own members.
func TestDroppedOfAResponsesRequest(t *testing.T) {
	audio, image := item.Part{Kind: item.Audio, Data: "AAAA", MIMEType: "audio/wav"}, item.Part{Kind: item.Image, URL: "https://x/i.png", Detail: "high"}
	own := item.Native{Dialect: model.DialectResponses, JSON: json.RawMessage(`{}`)}
	call := item.NewCall("c", "f", "{}")
	call.Turn = 1
	req := &model.Request{
		Model: "claude-sonnet-5", Dialect: model.DialectResponses,
		Items: []item.Item{
			{Kind: item.Message, Role: item.User, Native: own, Parts: []item.Part{image}},
			{Kind: item.Message, Role: item.Assistant, Turn: 1, Native: own, Parts: []item.Part{image}},
			{Kind: item.Other, Turn: 1, Native: own}, call,
			{Kind: item.ToolResult, CallID: "c", Native: own, Parts: []item.Part{audio}},
		},
		Tools:   []model.Tool{{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object","minProperties":1}`)}, Strict: ptr(true)}},
		Options: model.Options{Format: model.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"integer","minimum":1}`)}},
	}
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	want := []string{"input", "input[].content[].detail", "input[].content[].input_image", "input[].output[].input_audio", "text.format.schema.minimum", "tools[].strict"}
	if diff := cmp.Diff(want, p.Dropped(req)); diff != "" {
		t.Error(diff)
	}
	req.Items = []item.Item{{Kind: item.Message, Role: item.User, Native: own, Parts: []item.Part{{Kind: item.Text, Text: "a"}, {Kind: item.Image, URL: "ftp://x/i.png"}}}}
	_, err := p.encode(req)
	var refused *model.Error
	if !errors.As(err, &refused) || refused.Param != "input[].content[1].input_image" {
		t.Errorf("the place of a part that is refused: %v", err)
	}
}

// Dropped charges nothing to the memory of the run, so it does not copy the contents
// of messages.
func TestDroppedCopiesNoContents(t *testing.T) {
	const size = 4 << 20
	long := strings.Repeat("a", size)
	call := item.NewCall("c", "f", `{"x":"y"}`)
	call.Turn = 1
	req := &model.Request{Model: "claude-sonnet-5", Items: []item.Item{
		item.NewText(item.System, long), item.NewText(item.User, long),
		{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.File, MIMEType: "application/pdf", Data: long}, {Kind: item.Audio, Data: long}}},
		call, item.NewResult("c", long, false),
	}}
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	dropped := p.Dropped(req)
	runtime.ReadMemStats(&after)
	if !slices.Equal(dropped, []string{"messages[].content[].input_audio"}) {
		t.Errorf("dropped %q", dropped)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > size/4 {
		t.Errorf("%d bytes were allocated for a request with contents of %d bytes each", n, size)
	}
}

// A changed value is named, too.
func TestValuesThatAModelDoesNotTake(t *testing.T) { // P22
	hot := model.Options{Temperature: ptr(1.5), TopP: ptr(0.5), TopK: ptr(int64(3))}
	tools := []model.Tool{{Definition: tool.Definition{Name: "f"}}}
	for _, tt := range []struct {
		name, model string
		req         model.Request
		want        string // members of the request
		dropped     []string
	}{
		{"the highest temperature is 1", "claude-opus-4-6", model.Request{Options: hot}, `"temperature":1,"top_k":3`, []string{"temperature", "top_p"}},
		{"newer models have no sampling", "claude-opus-4-7", model.Request{Options: hot}, ``, []string{"temperature", "top_k", "top_p"}},
		{"1 is the default", "claude-haiku-5-5", model.Request{Options: model.Options{Temperature: ptr(1.0), TopP: ptr(1.0)}}, `"thinking":{"type":"adaptive","display":"summarized"}`, nil},
		{"a forced call", "claude-opus-5", model.Request{Tools: tools, ToolChoice: model.ToolChoice{Mode: "required"}}, `"tool_choice":{"type":"any"}`, nil},
		{"no forced call", "claude-opus-5-5", model.Request{Tools: tools, ToolChoice: model.ToolChoice{Mode: "named", Name: "f"}}, `"tool_choice":{"type":"auto"},"thinking":{"type":"adaptive","display":"summarized"}`, []string{"tool_choice"}},
		{"the highest effort before Claude 4.7", "claude-opus-4-6", model.Request{Options: model.Options{Effort: "xhigh"}}, `"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"high"}`, []string{"reasoning_effort"}},
		{"always thinks", "claude-fable-5-1", model.Request{Options: model.Options{Effort: "none"}}, `"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"low"}`, []string{"reasoning_effort"}},
		{"thinks only between calls", "claude-sonnet-5-5", model.Request{Options: model.Options{Effort: "none"}}, `"thinking":{"type":"between_tools"}`, nil},
		{"does not think anyway", "claude-opus-4-8", model.Request{Options: model.Options{Effort: "none"}}, ``, nil},
		{"a schema", "claude-opus-4-5", model.Request{Options: model.Options{Format: model.Format{Type: "json_schema", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1}}}`)}}},
			`"output_config":{"format":{"type":"json_schema","schema":{"type":"object","properties":{"n":{"type":"integer","description":"{minimum: 1}"}},"additionalProperties":false}}}`, []string{"response_format.json_schema.schema.minimum"}},
		{"a schema, before there were any", "claude-opus-4-1", model.Request{Options: model.Options{Format: model.Format{Type: "json_schema", Schema: json.RawMessage(`{}`)}}}, ``, []string{"response_format"}},
		{"nothing is stored, and the name of a participant", "claude-opus-4-1", model.Request{
			Params: []model.Param{{Name: "store", Value: json.RawMessage(`false`)}}, Items: []item.Item{{Kind: item.Message, Role: item.User, Name: "ann", Parts: []item.Part{{Kind: item.Text, Text: "hi"}}}}}, ``, []string{"messages[].name"}},
		{"a tool whose arguments have names that the provider refuses", "claude-opus-4-1", model.Request{Tools: []model.Tool{
			{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object","properties":{"größe":{}}}`)}, Native: json.RawMessage(`{}`)},
			{Definition: tool.Definition{Name: "g", InputSchema: json.RawMessage(`{"type":"object","properties":{"a b":{}}}`)}}}}, ``, []string{"tools[0]"}},
		{"a strict tool", "claude-opus-4-5", model.Request{Tools: []model.Tool{
			{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)}, Strict: ptr(true)}}},
			`"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false},"strict":true}]`, nil},
		{"a strict tool with a bound that is not enforced", "claude-opus-4-5", model.Request{Tools: []model.Tool{
			{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"minimum":1}}}`)}, Strict: ptr(true)}}},
			`"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":{"minimum":1}}}}]`, []string{"tools[].function.strict"}},
		{"a strict tool, before there were any", "claude-opus-4-1", model.Request{Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}, Strict: ptr(true)}}}, ``, []string{"tools[].function.strict"}},
		{"a tool with several forms", "claude-opus-4-1", model.Request{Tools: []model.Tool{
			{Definition: tool.Definition{Name: "f", Description: "d", InputSchema: json.RawMessage(`{"type":"object","anyOf":[{"required":["a"]}]}`)}}}},
			`"tools":[{"name":"f","description":"d\n\nThe arguments must also match this JSON Schema: {\"anyOf\":[{\"required\":[\"a\"]}]}","input_schema":{"type":"object","properties":{},"required":["a"]}}]`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Model, tt.req.MaxTokens = tt.model, 500
			p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
			body, err := p.encode(&tt.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, v := range jsonscan.Members(body) {
				switch n := string(name); n {
				case "model", "max_tokens", "messages", "stream":
				case "tools":
					if strings.Contains(tt.want, n) {
						got = append(got, `"tools":`+string(v))
					}
				default:
					got = append(got, `"`+n+`":`+string(v))
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ",")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.dropped, p.Dropped(&tt.req)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Where nobody limits the output, thinking does not shorten the answer.
func TestTheDefaultOutputLimit(t *testing.T) {
	for _, tt := range []struct {
		model, effort string
		own, want     int
	}{
		{"claude-haiku-4-5", "", 0, 8192}, {"claude-haiku-4-5", "", 100, 100}, {"claude-opus-4-6", "", 0, 8192},
		{"claude-opus-4-6", "low", 0, 8192 + 2048}, {"claude-sonnet-5", "", 0, 8192 + 16384}, {"claude-sonnet-5", "none", 4000, 4000}, {"other", "", 0, 8192},
	} {
		p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{MaxTokens: tt.own})
		if got := p.translate(&model.Request{Model: tt.model, Options: model.Options{Effort: tt.effort}}).MaxTokens; got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestCacheMarkers(t *testing.T) { // M02
	marked := func(ttl string) item.Part {
		return item.Part{Kind: item.Text, Text: "t" + ttl, Cache: &item.Cache{TTL: ttl}}
	}
	call := item.NewCall("c", "f", "{}")
	call.Turn = 1
	req := &model.Request{
		Model: "claude-opus-4-6", MaxTokens: 7,
		Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}, Cache: &item.Cache{TTL: "1h"}}},
		Items: []item.Item{
			{Kind: item.Message, Role: item.System, Parts: []item.Part{marked("1h")}},
			{Kind: item.Message, Role: item.User, Parts: []item.Part{marked("5m"), {Kind: item.Text, Text: "x"}}},
			call, {Kind: item.ToolResult, CallID: "c", Parts: []item.Part{marked("")}},
		},
	}
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
	got, err := p.encode(req)
	const tools = `"tools":[{"name":"f","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral","ttl":"1h"}}]`
	const rest = `"system":[{"type":"text","text":"t1h","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":[{"type":"text","text":"t5m","cache_control":{"type":"ephemeral","ttl":"5m"}},{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"t"}],"cache_control":{"type":"ephemeral"}}]}]`
	if want := `{"model":"claude-opus-4-6","max_tokens":7,` + tools + `,` + rest + `,"stream":true}`; string(got) != want || err != nil {
		t.Error(err, cmp.Diff(want, string(got)))
	}
	if dropped := p.Dropped(req); dropped != nil {
		t.Errorf("%q", dropped)
	}
	req.Cache = &item.Cache{} // the fifth
	got, err = p.encode(req)
	if want := `{"model":"claude-opus-4-6","max_tokens":7,` + strings.Replace(tools, `,"cache_control":{"type":"ephemeral","ttl":"1h"}`, "", 1) + `,` + rest + `,"cache_control":{"type":"ephemeral"},"stream":true}`; string(got) != want || err != nil {
		t.Error(err, cmp.Diff(want, string(got)))
	}
	if diff := cmp.Diff([]string{"cache_control"}, p.Dropped(req)); diff != "" {
		t.Error(diff)
	}
}

func TestSchemasOfAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, schema, want string
		lost               []string
	}{
		{"objects are closed", `{"$schema":"s","type":"object","properties":{"b":{"type":"object"},"a":{"type":"array","items":{"properties":{}}}},"required":["b"]}`,
			`{"type":"object","properties":{"b":{"type":"object","additionalProperties":false},"a":{"type":"array","items":{"properties":{},"additionalProperties":false}}},"required":["b"],"additionalProperties":false}`, nil},
		{"bounds are told", `{"type":"string","minLength":1,"description":"d","format":"email","pattern":"^a"}`, `{"type":"string","format":"email","description":"d\n\n{minLength: 1, pattern: \"^a\"}"}`, []string{"minLength", "pattern"}},
		{"open objects", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","additionalProperties":false}`, []string{"additionalProperties"}},
		{"alternatives and definitions", `{"$defs":{"x":{"oneOf":[{"const":1},{"format":"other","minItems":1}]}},"anyOf":[{"$ref":"#/$defs/x"},true]}`,
			`{"$defs":{"x":{"anyOf":[{"const":1},{"minItems":1,"description":"{format: \"other\"}"}]}},"anyOf":[{"$ref":"#/$defs/x"},true]}`, []string{"format"}},
		{"what only describes", `{"$comment":"c","default":7,"x-unknown":{"minimum":1},"title":"t"}`, `{"title":"t","description":"{default: 7}"}`, nil},
		{"nothing", `{}`, `{}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, lost := claude.AnswerSchema(json.RawMessage(tt.schema))
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.lost, lost); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzAnswerSchema: whatever a client's schema is, what is sent is JSON, and reducing
// it again changes nothing.
func FuzzAnswerSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"minimum":1,"oneOf":[{},{"type":"string","format":"x"}]}},"additionalProperties":true}`)
	f.Add(`{"items": [ {"properties":7}, {"description":"d","pattern":"\u0000"} ], "$defs" : { "\"x" : null } }`)
	f.Fuzz(func(t *testing.T, schema string) {
		if !json.Valid([]byte(schema)) {
			return
		}
		got, _ := claude.AnswerSchema(json.RawMessage(schema))
		if !json.Valid(got) {
			t.Fatalf("%q becomes %s", schema, got)
		}
		if again, _ := claude.AnswerSchema(got); string(again) != string(got) {
			t.Fatalf("%q becomes %s, then %s", schema, got, again)
		}
	})
}

// A client writes the transcript: thousands of calls, with ids that are already taken.
func TestManyCallsAreWrittenSoon(t *testing.T) {
	const n = 25_000
	items := make([]item.Item, 0, 2*n)
	for i := range n {
		items = append(items, item.NewCall(fmt.Sprintf("call_%d", n+i), "f", "{}"))
	}
	for range n {
		items = append(items, item.NewCall("", "f", "{}"))
	}
	item.SetTurn(items, 1)
	start := time.Now()
	(&Provider{}).translate(&model.Request{Items: items})
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("%v", took)
	}
}
