package upstreamtest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

const converse = "/model/m/converse"

const bedrockValid = `{"system":[{"text":"s"},{"cachePoint":{"type":"default","ttl":"1h"}}],"inferenceConfig":{"maxTokens":4096,"temperature":1,"topP":0.99,"stopSequences":["x"]},"requestMetadata":{"k":"v"},` +
	`"messages":[{"role":"user","content":[{"text":"t"},{"image":{"format":"png","source":{"bytes":"AAAA"}}},{"document":{"name":"a [1]","format":"pdf","source":{"bytes":"BBBB"}}}]},` +
	`{"role":"assistant","content":[{"text":"a"},{"toolUse":{"toolUseId":"u1","name":"f","input":{}}},{"toolUse":{"toolUseId":"u2","name":"f","input":{"a":1}}}]},` +
	`{"role":"user","content":[{"toolResult":{"toolUseId":"u2","content":[{"text":"2"},{"image":{"format":"gif","source":{"bytes":"CCCC"}}},{"document":{"name":"b","format":"txt","source":{"bytes":"DDDD"}}},{"json":{"n":1}}],"status":"success"}},{"toolResult":{"toolUseId":"u1","content":[{"text":"1"}],"status":"error"}},{"text":"more"}]}],` +
	`"toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"d","inputSchema":{"json":{"type":"object","properties":{}}}}},{"cachePoint":{"type":"default"}}],"toolChoice":{"auto":{}}},` +
	`"outputConfig":{"effort":"low","textFormat":{"type":"json_schema","structure":{"jsonSchema":{"name":"n","schema":"{}"}}}}}`

func bedrockRefusals() refusals {
	return refusals{converse, bedrockValid, []refused{
		{`"maxTokens":4096`, `"maxTokens":0`, "inferenceConfig.maxTokens: Input should be greater than or equal to 1"},
		{`"temperature":1`, `"temperature":1.5`, "inferenceConfig.temperature: Input should be less than or equal to 1"},
		{`"topP":0.99`, `"topK":1`, "inferenceConfig.topK: Extra inputs"},
		{`"stopSequences":["x"]`, `"stopSequences":[""]`, "non-whitespace"},
		{`"requestMetadata":{"k":"v"}`, `"requestMetadata":{"k":"ä"}`, "requestMetadata: must match"},
		{`"requestMetadata":{"k":"v"}`, `"metadata":{"k":"v"}`, "metadata: Extra inputs"},
		{`"system":[{"text":"s"}`, `"system":[{"text":" "}`, "is blank"},
		{`"ttl":"1h"`, `"ttl":"2h"`, "ttl: Input should be '5m' or '1h'"},
		{`{"text":"t"}`, `{"text":""}`, "is blank"},
		{`{"text":"t"}`, `{"text":"t","image":{}}`, "exactly one of the members"},
		{`{"text":"t"}`, `{"video":{}}`, "video: Extra inputs"},
		{`{"text":"t"},`, ``, "a message with a document must have one"},
		{`"image":{"format":"png"`, `"image":{"format":"bmp"`, "image.format: Input should be 'png'"},
		{`"bytes":"AAAA"`, `"url":"https://x"`, "source.url: Extra inputs"},
		{`"bytes":"AAAA"`, `"bytes":"*"`, "Invalid base64"},
		{`"name":"a [1]"`, `"name":"a.pdf"`, "The document file name can only contain"},
		{`"name":"a [1]"`, `"name":"a  b"`, "The document file name can only contain"},
		{`"name":"a [1]"`, `"name":"b"`, "duplicate document names"},
		{`"format":"pdf"`, `"format":"zip"`, "document.format: Input should be"},
		{`{"role":"assistant","content":[{"text":"a"}`, `{"role":"user","content":[{"text":"a"}`, "must alternate between user and assistant roles"},
		{`"messages":[{"role":"user"`, `"messages":[{"role":"assistant","content":[{"text":"x"}]},{"role":"user"`, `first message must use the "user" role`},
		{`{"toolUseId":"u1","name":"f","input":{}}`, `{"toolUseId":"u1","name":"f","input":[]}`, "toolUse.input: Input should be a valid dictionary"},
		{`{"toolUseId":"u1","name":"f","input":{}}`, `{"toolUseId":"u.1","name":"f","input":{}}`, "toolUseId: String should match"},
		{`{"toolUseId":"u1","name":"f","input":{}}`, `{"toolUseId":"u2","name":"f","input":{}}`, "ids must be unique"},
		{`"content":[{"text":"1"}]`, `"content":[]`, "greater than or equal to 1"},
		{`"content":[{"text":"1"}]`, `"content":[{"text":""}]`, "is blank"},
		{`"content":[{"text":"1"}]`, `"content":[{"text":"1"},{"image":{"format":"png","source":{"bytes":"AAAA"}}}]`, "all content must be type `text`"},
		{`{"toolResult":{"toolUseId":"u1","content":[{"text":"1"}],"status":"error"}},`, ``, "`tool_use` ids were found without `tool_result`"},
		{`"status":"error"`, `"status":"failed"`, "status: Input should be 'success'"},
		{`"toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"d","inputSchema":{"json":{"type":"object","properties":{}}}}},{"cachePoint":{"type":"default"}}],"toolChoice":{"auto":{}}},`, ``, "The toolConfig field must be defined"},
		{`"description":"d"`, `"description":""`, "greater than or equal to 1"},
		{`"toolSpec":{"name":"f"`, `"toolSpec":{"name":"f g"`, "String should match"},
		{`{"type":"object","properties":{}}`, `{"type":"object","anyOf":[]}`, "does not support oneOf"},
		{`{"json":{"type":"object","properties":{}}}`, `{"type":"object"}`, "inputSchema.type: Extra inputs"},
		{`{"auto":{}}`, `{"none":{}}`, "none: Extra inputs"},
		{`{"auto":{}}`, `{"tool":{"name":"g"}}`, "Tool 'g' not found"},
		{`"requestMetadata":{"k":"v"}`, `"additionalModelRequestFields":{"tool_choice":{"type":"none"}}`, "conflicts with an existing field"},
		{`"requestMetadata":{"k":"v"}`, `"additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":9000}}`, "must be greater than `thinking.budget_tokens`"},
		{`"requestMetadata":{"k":"v"}`, `"additionalModelRequestFields":{"seed":7}`, "seed: Extra inputs"},
		{`"effort":"low"`, `"effort":"much"`, "outputConfig.effort: Input should be 'low'"},
		{`"schema":"{}"`, `"schema":"{"`, "not valid JSON"},
	}}
}

func bedrockAdapter(t *testing.T, story string, o upstreamtest.Options) (*upstreamtest.Upstream, model.Model) {
	u := upstreamtest.New(turnpiketest.NewScript(t, story), o)
	t.Cleanup(u.Close)
	return u, bedrock.New(wire.Endpoint{BaseURL: u.URL, Transport: u.Transport()},
		bedrock.Options{Region: upstreamtest.AWSRegion, Credentials: bedrock.Static(upstreamtest.AWSAccessKeyID, upstreamtest.AWSSecretAccessKey, "")})
}

// Ten rounds with thinking, every byte of it checked. // P08
func TestReasoningOfBedrockComesBackUnchanged(t *testing.T) {
	var story strings.Builder
	for i := range 10 {
		fmt.Fprintf(&story, "reasoning Thought %d.\nreasoning\ntext Look.\ncall c%d f {\"n\":%d}\ncall d%d f {}\n\n", i, i, i, i)
	}
	story.WriteString("text Done.\n")
	u, m := bedrockAdapter(t, story.String(), upstreamtest.Options{Strict: true, Piece: 3})
	req := model.Request{
		Model: "anthropic.claude-sonnet-4-5-v1:0", Options: model.Options{Effort: "low"}, Items: []item.Item{item.NewText(item.User, "go")},
		Tools: []model.Tool{{Definition: tool.Definition{Name: "f", InputSchema: []byte(`{"type":"object"}`)}}},
	}
	for range 11 {
		turn, err := m.Stream(t.Context(), &req, func(model.Delta) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		req.Items = append(req.Items, turn.Items...)
		for _, c := range turn.Calls {
			req.Items = append(req.Items, item.NewResult(c.ID, "ok", false))
		}
	}
	last := string(u.Requests()[10].Body)
	if strings.Count(last, `"signature":"`) != 10 || strings.Count(last, `"redactedContent":`) != 10 || !strings.Contains(last, `"budget_tokens"`) {
		t.Error(last)
	}
}

// An Upstream knows the reasoning that it sent on Bedrock. A second request repeats it;
// the rows change it. // P08
func TestReasoningOfBedrockThatWasChangedIsRefused(t *testing.T) {
	u := upstreamtest.New(turnpiketest.NewScript(t, "reasoning Hm.\nreasoning\ntext Look.\ncall c1 f {}\n\ntext Done.\nagain"), upstreamtest.Options{Strict: true})
	defer u.Close()
	const first = `{"additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":2000}},"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}]},"messages":[{"role":"user","content":[{"text":"go"}]}%s]}`
	_, _, body := send(t, u, converse, fmt.Sprintf(first, ""))
	var blocks []string
	for _, b := range parse(t, body)["output"].(object)["message"].(object)["content"].([]any) {
		blocks = append(blocks, string(encode(t, b)))
	}
	if len(blocks) != 4 {
		t.Fatalf("%s", body)
	}
	thought, redacted, text, call := blocks[0], blocks[1], blocks[2], blocks[3]
	other := `{"reasoningContent":{"redactedContent":"` + base64.StdEncoding.EncodeToString([]byte("other")) + `"}}`
	for _, row := range []struct {
		name    string
		content []string
		why     string // "" = accepted
	}{
		{"unchanged", blocks, ""},
		{"another text", []string{strings.Replace(thought, "Hm.", "Hm!", 1), redacted, text, call}, "Invalid `signature`"},
		{"no signature", []string{`{"reasoningContent":{"reasoningText":{"text":"Hm."}}}`, redacted, text, call}, "Invalid `signature`"},
		{"other data", []string{thought, other, text, call}, "Invalid `data`"},
		{"one is left out", []string{thought, text, call}, "cannot be modified"},
		{"another order", []string{redacted, thought, text, call}, "cannot be modified"},
		{"all are left out", []string{text, call}, "Expected `thinking`"},
	} {
		t.Run(row.name, func(t *testing.T) {
			again := `,{"role":"assistant","content":[` + strings.Join(row.content, ",") + `]},{"role":"user","content":[{"toolResult":{"toolUseId":"c1","content":[{"text":"x"}]}}]}`
			body := fmt.Sprintf(first, again)
			if row.why != "" {
				checkRefused(t, u, converse, body, row.why)
			} else if status, _, answer := send(t, u, converse, body); status != http.StatusOK {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
}
