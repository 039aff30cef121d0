package providertest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/internal/provider/gemini"
	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/openairesponses"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Every string of these answers ends with the first half of a character, some after a whole
// character that was cut in two. A line with a name before its JSON is an event of that name.
const (
	chatHalves = `
{"choices":[{"index":0,"delta":{"reasoning_content":"b\ud83d"}}]}
{"choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}
{"choices":[{"index":0,"delta":{"content":"\ude00\ud83d"}}]}
{"choices":[{"index":0,"delta":{"refusal":"r\ud83d"}}]}
{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f\ud83d","arguments":"{\"s\":\"c\ud83d"}}]}}]}
{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}}]}
{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"g","arguments":"{\"s\":\"\ud83d"}}]}}]}
{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}
[DONE]`
	messagesHalves = `
{"type":"message_start","message":{"id":"m","model":"m","usage":{"input_tokens":1,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"b\ud83d"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a\ud83d"}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\ude00\ud83d"}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c1","name":"f\ud83d","input":{}}}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"s\":\"c\ud83d"}}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"}"}}
{"type":"content_block_stop","index":2}
{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"c2","name":"g","input":{}}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"s\":\"\ud83d"}}
{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}
{"type":"message_stop"}`
	responsesHalves = `
{"type":"response.created","response":{"id":"r","model":"m"}}
{"type":"response.output_item.added","output_index":0,"item":{"id":"rs","type":"reasoning","summary":[]}}
{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs","summary_index":0,"delta":"b\ud83d"}
{"type":"response.reasoning_summary_text.done","output_index":0,"item_id":"rs","summary_index":0,"text":"b\ud83d"}
{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","summary":[{"type":"summary_text","text":"b\ud83d"}]}}
{"type":"response.output_item.added","output_index":1,"item":{"id":"msg","type":"message","role":"assistant","content":[]}}
{"type":"response.output_text.delta","output_index":1,"item_id":"msg","content_index":0,"delta":"a\ud83d"}
{"type":"response.output_text.delta","output_index":1,"item_id":"msg","content_index":0,"delta":"\ude00\ud83d"}
{"type":"response.output_text.done","output_index":1,"item_id":"msg","content_index":0,"text":"a\ud83d\ude00\ud83d"}
{"type":"response.refusal.delta","output_index":1,"item_id":"msg","content_index":1,"delta":"r\ud83d"}
{"type":"response.refusal.done","output_index":1,"item_id":"msg","content_index":1,"refusal":"r\ud83d"}
{"type":"response.output_item.done","output_index":1,"item":{"id":"msg","type":"message","role":"assistant","content":[{"type":"output_text","text":"a\ud83d\ude00\ud83d"},{"type":"refusal","refusal":"r\ud83d"}]}}
{"type":"response.output_item.added","output_index":2,"item":{"id":"fc","type":"function_call","call_id":"c1","name":"f\ud83d","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc","delta":"{\"s\":\"c\ud83d"}
{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc","delta":"\"}"}
{"type":"response.output_item.done","output_index":2,"item":{"id":"fc","type":"function_call","call_id":"c1","name":"f\ud83d","arguments":"{\"s\":\"c\ud83d\"}"}}
{"type":"response.output_item.added","output_index":3,"item":{"id":"fd","type":"function_call","call_id":"c2","name":"g","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":3,"item_id":"fd","delta":"{\"s\":\"\ud83d"}
{"type":"response.incomplete","response":{"id":"r","model":"m","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`
	geminiHalves = `
{"candidates":[{"content":{"parts":[{"thought":true,"text":"b\ud83d"}]}}]}
{"candidates":[{"content":{"parts":[{"text":"a\ud83d"}]}}]}
{"candidates":[{"content":{"parts":[{"text":"\ude00\ud83d"}]}}]}
{"candidates":[{"content":{"parts":[{"functionCall":{"id":"c1","name":"f\ud83d","args":{"s":"c\ud83d"}}}]},"finishReason":"MAX_TOKENS"}]}`
	converseHalves = `
messageStart {"role":"assistant"}
contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"b\ud83d"}}}
contentBlockStop {"contentBlockIndex":0}
contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"a\ud83d"}}
contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"\ude00\ud83d"}}
contentBlockStop {"contentBlockIndex":1}
contentBlockStart {"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"c1","name":"f\ud83d"}}}
contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"s\":\"c\ud83d"}}}
contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"\"}"}}}
contentBlockStop {"contentBlockIndex":2}
contentBlockStart {"contentBlockIndex":3,"start":{"toolUse":{"toolUseId":"c2","name":"g"}}}
contentBlockDelta {"contentBlockIndex":3,"delta":{"toolUse":{"input":"{\"s\":\"\ud83d"}}}
messageStop {"stopReason":"max_tokens"}
metadata {"usage":{"inputTokens":1,"outputTokens":9,"totalTokens":10}}`
)

// A half without the other half becomes U+FFFD, in all dialects and all strings, whatever follows
// it. It is not dropped, and nothing waits for another event after the last one. // D19
func TestAHalfAtTheEndOfATextIsReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		build             func(wire.Endpoint) model.Model
		body              string
		refuses, callsCut bool // the answer has a refusal, and a call without an end
	}{
		"openai":           {func(e wire.Endpoint) model.Model { return openai.New(e, openai.Options{}) }, chatHalves, true, true},
		"openai-responses": {func(e wire.Endpoint) model.Model { return openairesponses.New(e) }, responsesHalves, true, true},
		"anthropic":        {func(e wire.Endpoint) model.Model { return anthropic.New(e, anthropic.Options{}) }, messagesHalves, false, true},
		"gemini":           {func(e wire.Endpoint) model.Model { return gemini.New(e, gemini.Options{}) }, geminiHalves, false, false},
		"bedrock": {func(e wire.Endpoint) model.Model {
			return bedrock.New(e, bedrock.Options{Region: "us-east-1", Credentials: bedrock.Static("id", "secret", "")})
		}, converseHalves, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			body, kind := stream(t, tt.body)
			m := tt.build(providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				providertest.Answer(http.StatusOK, map[string]string{"Content-Type": kind}, body)(w, r)
				if w.(http.Flusher).Flush(); name != "gemini" { // which has no last event
					<-r.Context().Done()
				}
			}))
			var heard providertest.Heard
			arguments := map[int]string{}
			turn, err := m.Stream(t.Context(), &model.Request{Model: "anthropic.claude-sonnet-4-5-v1", Items: []item.Item{item.NewText(item.User, "go")}}, func(d model.Delta) error {
				if d.Kind == model.CallDelta {
					arguments[d.Item] += d.Name + d.Text
				}
				return heard.Emit(d)
			})
			if err != nil {
				t.Fatal(err)
			}
			providertest.CheckDeltas(t, providertest.Outcome{Turn: turn, Deltas: heard.Deltas, Err: fmt.Sprint(err)})
			if heard.Text != "a😀\ufffd" || heard.Reasoning != "b\ufffd" || turn.Text() != heard.Text {
				t.Errorf("text %q (turn %q), reasoning %q", heard.Text, turn.Text(), heard.Reasoning)
			}
			if tt.refuses && heard.Refusal != "r\ufffd" {
				t.Errorf("refusal %q", heard.Refusal)
			}
			if c := turn.Calls[0]; c.Name != "f\ufffd" || strings.ReplaceAll(c.Arguments, `\ufffd`, "\ufffd") != "{\"s\":\"c\ufffd\"}" {
				t.Errorf("call %q %q", c.Name, c.Arguments)
			}
			if tt.callsCut && (len(turn.Calls) != 2 || turn.Calls[1].Arguments != "{\"s\":\"\ufffd") {
				t.Errorf("calls %+v", turn.Calls)
			}
			for n, text := range arguments {
				if !strings.Contains(strings.ReplaceAll(text, `\ufffd`, "\ufffd"), "\ufffd") {
					t.Errorf("the deltas of item %d are %q", n, text)
				}
			}
		})
	}
}

// stream returns the body of a stream of events, one per line, and its content type.
func stream(t *testing.T, lines string) (body, kind string) {
	var b bytes.Buffer
	encoder := eventstream.NewEncoder()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		name, data, named := strings.Cut(line, " ")
		if !named || strings.ContainsAny(name, "{[") {
			fmt.Fprintf(&b, "data: %s\n\n", line)
			continue
		}
		kind = "application/vnd.amazon.eventstream"
		m := eventstream.Message{Payload: []byte(data)}
		m.Headers.Set(":message-type", eventstream.StringValue("event"))
		m.Headers.Set(":event-type", eventstream.StringValue(name))
		if err := encoder.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	if kind == "" {
		kind = "text/event-stream"
	}
	return b.String(), kind
}
