package bedrock

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	sonnet = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
	haiku3 = "anthropic.claude-3-haiku-20240307-v1:0"
	opus5  = "global.anthropic.claude-opus-5-5-v1:0"
	nova   = "us.amazon.nova-2-lite-v1:0"
	oss    = "openai.gpt-oss-120b-1:0"
	llama  = "us.meta.llama4-scout-17b-instruct-v1:0"
	opaque = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
)

func pointer[T any](v T) *T { return &v }

func asked(name string, change ...func(*model.Request)) *model.Request {
	req := &model.Request{Model: name, Dialect: model.DialectChat, Items: []item.Item{item.NewText(item.User, "hi")}}
	for _, c := range change {
		c(req)
	}
	return req
}

func withTool(req *model.Request) {
	req.Tools = append(req.Tools, model.Tool{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object"}`)}})
}

// withPrefix has the model continue its answer.
func withPrefix(req *model.Request) {
	answer := item.NewText(item.Assistant, "So ")
	answer.Turn = 1
	req.Items = append(req.Items, answer)
}

func withCall(req *model.Request) {
	call := item.NewCall("c", "f", `{}`)
	call.Turn = 1
	req.Items = append(req.Items, call, item.NewResult("c", "r", true))
}

// What only some models take is sent to them, and named or changed for the others. // M04 C25 P22
func TestWhatModelsTake(t *testing.T) {
	none := func(r *model.Request) { r.ToolChoice.Mode = model.ChooseNone }
	single := func(r *model.Request) { r.ParallelCalls = pointer(false) }
	forced := func(r *model.Request) { r.ToolChoice.Mode = model.ChooseRequired }
	effort := func(e string) func(*model.Request) { return func(r *model.Request) { r.Effort = e } }
	capped := func(r *model.Request) { r.MaxTokens = 1500 }
	warm := func(r *model.Request) { r.Temperature, r.TopP = pointer(1.7), pointer(0.5) }
	topK := func(r *model.Request) { r.TopK = pointer(int64(7)) }
	strict := func(r *model.Request) { r.Tools[0].Strict = pointer(true) }
	schema := func(r *model.Request) {
		r.Format = model.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1}}}`)}
	}
	cached := func(ttl string) func(*model.Request) {
		return func(r *model.Request) { r.Items[0].Parts[0].Cache = &item.Cache{TTL: ttl} }
	}
	for name, tt := range map[string]struct {
		req     *model.Request
		sent    string // in the body
		without string // not in the body
		dropped string
	}{
		"no calls, none before":         {asked(llama, withTool, none), ``, `toolConfig`, ""},
		"no calls, some before, Claude": {asked(sonnet, withTool, withCall, none), `"tool_choice":{"type":"none"}`, `toolChoice`, ""},
		"no calls, some before, others": {asked(llama, withTool, withCall, none), `"toolConfig":{"tools":[{"toolSpec":{"name":"f"`, `tool_choice`, "tool_choice"},
		"ids of calls, Mistral":         {asked("mistral.mistral-large-2407-v1:0", withCall), `"toolUse":{"toolUseId":"call00000"`, `"c"`, ""},
		"results of calls, Mistral":     {asked("us.mistral.pixtral-large-2502-v1:0", withCall), `"toolResult":{"toolUseId":"call00000"`, `"c"`, ""},
		"ids of calls, llama":           {asked(llama, withCall), `"toolUse":{"toolUseId":"c"`, `call0`, ""},
		"white space at the end":        {asked(sonnet, withPrefix), `{"text":"So"}`, `So `, ""},
		"white space at the end, llama": {asked(llama, withPrefix), `{"text":"So "}`, ``, ""},
		"no tools, calls before":        {asked(sonnet, withCall), `"description":"This tool is not available any more."`, ``, ""},
		"no tools, calls before, llama": {asked(llama, withCall), `"description":"This tool is not available any more."`, `toolChoice`, ""},
		"one call, Claude":              {asked(sonnet, withTool, single), `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`, `toolChoice`, ""},
		"one forced call, Claude":       {asked(sonnet, withTool, single, forced), `"tool_choice":{"type":"any","disable_parallel_tool_use":true}`, `toolChoice`, ""},
		"one call, Claude 3":            {asked(haiku3, withTool, single), ``, `disable_parallel`, "parallel_tool_calls"},
		"one call, Nova":                {asked(nova, withTool, single), ``, `tool_choice`, "parallel_tool_calls"},
		"one call without tools":        {asked(sonnet, single), ``, `tool_choice`, ""},
		"a forced call":                 {asked(llama, withTool, forced), `"toolChoice":{"any":{}}`, ``, ""},
		"a forced call, Claude 5.5":     {asked(opus5, withTool, forced), `"toolChoice":{"auto":{}}`, `"any"`, "tool_choice"},
		"an error, Claude":              {asked(sonnet, withTool, withCall), `"status":"error"`, ``, ""},
		"an error, llama":               {asked(llama, withTool, withCall), ``, `"status"`, ""},
		"effort, Claude":                {asked(sonnet, effort("low")), `"thinking":{"type":"enabled","budget_tokens":2048}`, ``, ""},
		"effort and a limit, Claude":    {asked(sonnet, effort("high"), capped), `"budget_tokens":1499`, ``, ""},
		"effort and a forced call":      {asked(sonnet, effort("high"), withTool, forced), ``, `thinking`, "reasoning_effort"},
		"effort, Claude 5.5":            {asked(opus5, effort("xhigh")), `"outputConfig":{"effort":"xhigh"},"additionalModelRequestFields":{"thinking":{"type":"adaptive"`, `maxTokens`, ""},
		"no effort, Claude 5.5":         {asked(opus5, effort("none")), `"effort":"low"`, ``, "reasoning_effort"},
		"effort, Nova":                  {asked(nova, effort("minimal")), `"reasoningConfig":{"type":"enabled","maxReasoningEffort":"low"}`, ``, ""},
		"high effort, Nova":             {asked(nova, effort("high")), `"maxReasoningEffort":"high"`, ``, ""},
		"high effort and a limit, Nova": {asked(nova, effort("high"), capped), `"maxReasoningEffort":"medium"`, ``, "reasoning_effort"},
		"effort, gpt-oss":               {asked(oss, effort("high")), `"reasoning_effort":"high"`, ``, ""},
		"effort, llama":                 {asked(llama, effort("high")), ``, `high`, "reasoning_effort"},
		"no effort, llama":              {asked(llama, effort("none")), ``, `none`, ""},
		"effort, a profile":             {asked(opaque, effort("high")), ``, `high`, "reasoning_effort"},
		"an effort that is none":        {asked(sonnet, effort("huge")), ``, `thinking`, "reasoning_effort"},
		"sampling, Claude":              {asked(sonnet, warm, topK), `"inferenceConfig":{"temperature":1},"additionalModelRequestFields":{"top_k":7}`, `topP`, "temperature top_p"},
		"sampling and thinking":         {asked(sonnet, warm, topK, effort("low")), ``, `temperature`, "temperature top_k top_p"},
		"sampling, Claude 5.5":          {asked(opus5, warm, topK), ``, `temperature`, "temperature top_k top_p"},
		"sampling, Nova":                {asked(nova, warm, topK), `"temperature":1,"topP":0.5},"additionalModelRequestFields":{"inferenceConfig":{"topK":7}}`, ``, "temperature"},
		"sampling, llama":               {asked(llama, topK), ``, `7`, "top_k"},
		"strict, Claude":                {asked(sonnet, withTool, strict), `"strict":true`, ``, ""},
		"strict, llama":                 {asked(llama, withTool, strict), ``, `strict`, "tools[].function.strict"},
		"a schema, Claude":              {asked(sonnet, schema), `"schema":"{\"type\":\"object\",`, ``, "response_format.json_schema.schema.minimum"},
		"a schema, Claude 3":            {asked(haiku3, schema), ``, `outputConfig`, "response_format"},
		"a schema, Nova":                {asked(nova, schema), ``, `outputConfig`, "response_format"},
		"a schema, gpt-oss":             {asked(oss, schema), `"textFormat":{"type":"json_schema"`, ``, "response_format.json_schema.schema.minimum"},
		"any JSON":                      {asked(sonnet, func(r *model.Request) { r.Format.Type = "json_object" }), ``, `json`, "response_format"},
		"cached, Claude":                {asked(sonnet, cached("1h")), `{"text":"hi"},{"cachePoint":{"type":"default","ttl":"1h"}}`, ``, ""},
		"cached for an hour, Nova":      {asked(nova, cached("1h")), `{"cachePoint":{"type":"default"}}`, ``, "cache_control"},
		"cached, llama":                 {asked(llama, cached("")), ``, `cachePoint`, "cache_control"},
		"the whole prompt":              {asked(sonnet, func(r *model.Request) { r.Cache = &item.Cache{} }), `{"text":"hi"},{"cachePoint":{"type":"default"}}]}]`, ``, ""},
		"metadata that is not taken":    {asked(sonnet, func(r *model.Request) { r.Metadata = map[string]string{"k": "ä"} }), ``, `requestMetadata`, "metadata"},
		"white space that stops":        {asked(sonnet, func(r *model.Request) { r.Stop = []string{"\n\n", "x"} }), `"stopSequences":["x"]`, ``, "stop"},
		"white space that stops llama":  {asked(llama, func(r *model.Request) { r.Stop = []string{"\n\n"} }), `"stopSequences":["\n\n"]`, ``, ""},
		"everything that is not there": {asked(sonnet, func(r *model.Request) {
			r.Seed, r.Verbosity, r.User, r.PresencePenalty, r.FrequencyPenalty = pointer(int64(1)), "low", "u", pointer(1.0), pointer(1.0)
			r.Params = []model.Param{{Name: "logit_bias", Value: json.RawMessage(`{}`)}, {Name: "store", Value: json.RawMessage(`false`)}}
		}), ``, `low`, "frequency_penalty logit_bias presence_penalty seed user verbosity"},
		"a service tier": {asked(sonnet, func(r *model.Request) {
			r.Dialect, r.Params = model.DialectChat, []model.Param{{Name: "service_tier", Value: json.RawMessage(`"priority"`)}}
		}), `"serviceTier":{"type":"priority"}`, ``, ""},
		"a service tier of OpenAI": {asked(sonnet, func(r *model.Request) {
			r.Dialect, r.Params = model.DialectChat, []model.Param{{Name: "service_tier", Value: json.RawMessage(`"scale"`)}}
		}), ``, `serviceTier`, "service_tier"},
		"the name of a participant": {asked(sonnet, func(r *model.Request) { r.Items[0].Name = "ann" }), ``, `ann`, "messages[].name"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(wire.Endpoint{BaseURL: "http://p"}, Options{})
			body, err := p.encode(tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(body), tt.sent) || tt.without != "" && strings.Contains(string(body), tt.without) {
				t.Errorf("%s\nwant %s and not %s", body, tt.sent, tt.without)
			}
			if got := strings.Join(p.Dropped(tt.req), " "); got != tt.dropped {
				t.Errorf("dropped %q, want %q", got, tt.dropped)
			}
		})
	}
}

// A request that a model cannot take is refused before any call, with the place. // M07 P22
func TestWhatIsRefusedBeforeACall(t *testing.T) {
	part := func(p item.Part) func(*model.Request) {
		return func(r *model.Request) { r.Items[0].Parts = append(r.Items[0].Parts, p) }
	}
	for name, tt := range map[string]struct {
		req  *model.Request
		want string
	}{
		"tools for Titan":        {asked("amazon.titan-text-express-v1", withTool), `tools: the model "amazon.titan-text-express-v1" takes no tools`},
		"tools for Llama 3":      {asked("meta.llama3-70b-instruct-v1:0", withTool), "takes no tools"},
		"calls for DeepSeek R1":  {asked("us.deepseek.r1-v1:0", withCall), "takes no tools"},
		"an image of a bad type": {asked(sonnet, part(item.Part{Kind: item.Image, URL: "data:image/tiff;base64,AA=="})), "messages[0].content[1].image_url: this provider takes PNG"},
		"a file of a bad type":   {asked(sonnet, part(item.Part{Kind: item.File, Data: "UEsDBA==", Name: "a.zip"})), "takes PDF, CSV"},
		"a stored file":          {asked(sonnet, part(item.Part{Kind: item.File, FileID: "file_1"})), "stores no files"},
	} {
		_, err := New(wire.Endpoint{}, Options{}).encode(tt.req)
		var refused *model.Error
		if !errors.As(err, &refused) || refused.Class != model.Target || refused.Param == "" || !strings.Contains(refused.Message, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, takes := range []string{"us.meta.llama3-1-70b-instruct-v1:0", "us.meta.llama3-3-70b-instruct-v1:0", nova, "anthropic.claude-3-haiku-20240307-v1:0", "mistral.mistral-large-2407-v1:0", "cohere.command-r-plus-v1:0", opaque} {
		if _, err := New(wire.Endpoint{}, Options{}).encode(asked(takes, withTool)); err != nil {
			t.Errorf("%s: %v", takes, err)
		}
	}
}

// Files have names that the dialect takes, each once, and a text beside them.
func TestDocuments(t *testing.T) {
	req := asked(sonnet)
	req.Items = []item.Item{{Kind: item.Message, Role: item.User}}
	for _, p := range []item.Part{
		{Name: "Q3_report (final).pdf", MIMEType: "application/pdf"}, {Name: "Q3 report (final).pdf", MIMEType: "application/pdf"}, {Name: "日本.csv", MIMEType: "text/csv"},
		{Name: "a.docx", MIMEType: "application/zip"}, {Name: "notes.md", MIMEType: "text/plain"}, {MIMEType: "application/json"},
	} {
		p.Kind, p.Data = item.File, "AAAA"
		req.Items[0].Parts = append(req.Items[0].Parts, p)
	}
	body, err := New(wire.Endpoint{}, Options{}).encode(req)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Messages []struct {
			Content []struct {
				Text     string
				Document struct{ Name, Format string }
			}
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, b := range got.Messages[0].Content {
		said = append(said, b.Document.Name+"|"+b.Document.Format+b.Text)
	}
	want := []string{"Q3 report (final)|pdf", "Q3 report (final) (2)|pdf", "document|csv", "a|docx", "notes|md", "document (2)|txt", "|" + attached}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}
