package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// bedrockStory has a turn with everything that a Claude model says, and an answer.
const bedrockStory = "reasoning Hm.\nreasoning\ntext Looking 👋\ncall c1 search {\"q\":\"go\"}\ncall c2 search {\"q\":\"日本\"}\nusage 20 9\n\ntext Found.\nusage 30 2\n"

const (
	bedrockModel  = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
	bedrockPrompt = "Look twice."
)

// bedrockClient returns AWS's own client of the fake.
func bedrockClient(up *upstreamtest.Upstream, secret string) *bedrockruntime.Client {
	return bedrockruntime.New(bedrockruntime.Options{
		Region: upstreamtest.AWSRegion, BaseEndpoint: aws.String(up.URL), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(upstreamtest.AWSAccessKeyID, secret, upstreamtest.AWSSessionToken),
		HTTPClient:  &http.Client{Transport: up.Transport(), Timeout: time.Minute},
	})
}

// strictBedrock is a fake that verifies signatures.
func strictBedrock(t *testing.T, story string) *upstreamtest.Upstream {
	up := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{Strict: true, Piece: 7})
	t.Cleanup(up.Close)
	return up
}

// AWS's own client gets the same answers from the strict fake as the gateway does, its
// requests are accepted, and they mean the same as the gateway's: signature, path, system
// text, tools, reasoning and results.
func TestTheOfficialClientOfBedrockAgreesWithTheFake(t *testing.T) {
	s := &site{}
	s.buildGateway(t)
	direct := strictBedrock(t, bedrockStory)
	said := bedrockLoop(t, bedrockClient(direct, upstreamtest.AWSSecretAccessKey))
	for tries := 1; said == "" && tries < 3; tries++ {
		direct = strictBedrock(t, bedrockStory)
		said = bedrockLoop(t, bedrockClient(direct, upstreamtest.AWSSecretAccessKey))
	}
	if said != "Looking 👋Found." {
		t.Errorf("the client heard %q", said)
	}
	behind := strictBedrock(t, bedrockStory)
	text := s.bedrockThroughTheGateway(t, behind)
	if text != "Found." {
		t.Errorf("the gateway said %q", text)
	}
	ours, theirs := behind.Requests(), direct.Requests()
	if len(ours) != 2 || len(theirs) != 2 {
		t.Fatalf("%d and %d requests", len(ours), len(theirs))
	}
	for i := range ours {
		if ours[i].Refused != "" || theirs[i].Refused != "" {
			t.Fatalf("request %d: refused with %q, the official client's with %q", i, ours[i].Refused, theirs[i].Refused)
		}
		if ours[i].Path != theirs[i].Path {
			t.Errorf("path %s, the official client's %s", ours[i].Path, theirs[i].Path)
		}
		wantEqual(t, "the body of the official client (-) and of the gateway (+)", decoded(t, string(theirs[i].Body)), decoded(t, string(ours[i].Body)))
		for _, h := range []string{"X-Amz-Date", "X-Amz-Security-Token", "Content-Type"} {
			if (ours[i].Header.Get(h) == "") != (theirs[i].Header.Get(h) == "") {
				t.Errorf("header %s: %q, the official client's %q", h, ours[i].Header.Get(h), theirs[i].Header.Get(h))
			}
		}
	}
}

// bedrockLoop is an agent loop with AWS's client: it streams a turn, answers its calls, and
// streams the next. It returns what was said.
func bedrockLoop(t *testing.T, client *bedrockruntime.Client) string {
	t.Helper()
	schema := map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}}
	input := &bedrockruntime.ConverseStreamInput{
		ModelId:  aws.String(bedrockModel),
		System:   []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: "Be brief."}},
		Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: bedrockPrompt}}}},
		ToolConfig: &types.ToolConfiguration{Tools: []types.Tool{&types.ToolMemberToolSpec{Value: types.ToolSpecification{
			Name: aws.String("search"), Description: aws.String("Searches."), InputSchema: &types.ToolInputSchemaMemberJson{Value: document.NewLazyDocument(schema)},
		}}}},
		InferenceConfig:              &types.InferenceConfiguration{MaxTokens: aws.Int32(4000)},
		AdditionalModelRequestFields: document.NewLazyDocument(map[string]any{"thinking": map[string]any{"type": "enabled", "budget_tokens": 2048}}),
	}
	var said strings.Builder
	for {
		turn := bedrockTurn(t, client, input)
		if turn == nil {
			return ""
		}
		input.Messages = append(input.Messages, types.Message{Role: types.ConversationRoleAssistant, Content: turn})
		var results []types.ContentBlock
		for _, b := range turn {
			switch b := b.(type) {
			case *types.ContentBlockMemberText:
				said.WriteString(b.Value)
			case *types.ContentBlockMemberToolUse:
				results = append(results, &types.ContentBlockMemberToolResult{Value: types.ToolResultBlock{
					ToolUseId: b.Value.ToolUseId, Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: "found"}},
				}})
			}
		}
		if results == nil {
			return said.String()
		}
		input.Messages = append(input.Messages, types.Message{Role: types.ConversationRoleUser, Content: results})
	}
}

// bedrockTurn streams one turn and puts its blocks together.
func bedrockTurn(t *testing.T, client *bedrockruntime.Client, input *bedrockruntime.ConverseStreamInput) []types.ContentBlock {
	t.Helper()
	out, err := client.ConverseStream(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	stream := out.GetStream()
	defer stream.Close()
	var blocks []types.ContentBlock
	inputs := map[int]string{}
	text := &types.ContentBlockMemberText{}
	reasoning := &types.ReasoningContentBlockMemberReasoningText{}
	ended := false
	for event := range stream.Events() {
		switch e := event.(type) {
		case *types.ConverseStreamOutputMemberContentBlockStart:
			start := e.Value.Start.(*types.ContentBlockStartMemberToolUse).Value
			blocks = append(blocks, &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{ToolUseId: start.ToolUseId, Name: start.Name}})
		case *types.ConverseStreamOutputMemberContentBlockDelta:
			switch d := e.Value.Delta.(type) {
			case *types.ContentBlockDeltaMemberText:
				if text.Value == "" {
					blocks = append(blocks, text)
				}
				text.Value += d.Value
			case *types.ContentBlockDeltaMemberToolUse:
				inputs[len(blocks)-1] += *d.Value.Input
			case *types.ContentBlockDeltaMemberReasoningContent:
				switch r := d.Value.(type) {
				case *types.ReasoningContentBlockDeltaMemberText:
					blocks = append(blocks, &types.ContentBlockMemberReasoningContent{Value: reasoning})
					reasoning.Value.Text = aws.String(r.Value)
				case *types.ReasoningContentBlockDeltaMemberSignature:
					reasoning.Value.Signature = aws.String(r.Value)
				case *types.ReasoningContentBlockDeltaMemberRedactedContent:
					blocks = append(blocks, &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberRedactedContent{Value: r.Value}})
				}
			}
		case *types.ConverseStreamOutputMemberMessageStop:
			ended = true
		}
	}
	if err := stream.Err(); errors.Is(err, net.ErrClosed) { // the client closes a connection in mid-stream now and then
		t.Logf("the client has closed its connection: %v", err)
		return nil
	} else if err != nil || !ended {
		t.Fatalf("the stream ended with %v, and with messageStop: %t", err, ended)
	}
	for i, arguments := range inputs {
		var v map[string]any
		if err := json.Unmarshal([]byte(arguments), &v); err != nil {
			t.Fatal(err)
		}
		blocks[i].(*types.ContentBlockMemberToolUse).Value.Input = document.NewLazyDocument(v)
	}
	return blocks
}

// bedrockThroughTheGateway asks the same through the gateway: the client executes the
// calls, and the gateway keeps the reasoning.
func (s *site) bedrockThroughTheGateway(t *testing.T, up *upstreamtest.Upstream) string {
	t.Helper()
	nothing := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}) // so that the loop runs
	t.Cleanup(nothing.Close)
	p := s.startGateway(t, strings.TrimSuffix(up.URL, "/v1"), []object{{"name": "nothing", "url": nothing.URL, "enabled": true}})
	messages := []object{{"role": "system", "content": "Be brief."}, {"role": "user", "content": bedrockPrompt}}
	for {
		request := object{
			"model": bedrockModel, "max_completion_tokens": 4000, "reasoning_effort": "low", "messages": messages,
			"tools": []object{{"type": "function", "function": object{
				"name": "search", "description": "Searches.", "parameters": object{"type": "object", "properties": object{"q": object{"type": "string"}}},
			}}},
		}
		answer := postCompletion(t, p.url, request)
		messages = append(messages, answer)
		calls, _ := answer["tool_calls"].([]any)
		if len(calls) == 0 {
			text, _ := answer["content"].(string)
			return text
		}
		for _, c := range calls {
			messages = append(messages, object{"role": "tool", "tool_call_id": c.(object)["id"], "content": "found"})
		}
	}
}

// The fake refuses AWS's own client with a wrong secret, and reports errors so that it
// knows them.
func TestTheFakeOfBedrockRefusesAWrongSecret(t *testing.T) {
	up := strictBedrock(t, "fail 429 slow down\n\ntext So\nfail 429 slower\n")
	ask := func(secret string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := bedrockClient(up, secret).ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{
			ModelId:  aws.String("amazon.nova-pro-v1:0"),
			Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "hi"}}}},
		})
		if err != nil {
			return err
		}
		stream := out.GetStream()
		defer stream.Close()
		for range stream.Events() { //nolint:revive // only the error matters
		}
		return stream.Err()
	}
	var refused smithy.APIError
	if err := ask("wrong"); !errors.As(err, &refused) || refused.ErrorCode() != "InvalidSignatureException" {
		t.Errorf("a wrong secret: %v", err)
	}
	for _, want := range []string{"slow down", "slower"} { // as a status, and inside of a stream
		var throttled *types.ThrottlingException
		if err := ask(upstreamtest.AWSSecretAccessKey); !errors.As(err, &throttled) || *throttled.Message != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// postCompletion asks the gateway and returns the message of the answer.
func postCompletion(t *testing.T, url string, request object) object {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+devKey)
	r.Header.Set("Content-Type", "application/json")
	resp, err := newHTTPClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, answer)
	}
	var got struct{ Choices []struct{ Message object } }
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("%v: %s", err, answer)
	}
	return got.Choices[0].Message
}
