package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

const (
	started = `data: {"type":"message_start","message":{"id":"msg_1","model":"claude","usage":{"input_tokens":9,"output_tokens":1}}}` + "\n\n"
	ended   = `data: {"type":"message_stop"}` + "\n\n"
)

func block0(start string, deltas ...string) string {
	out := `data: {"type":"content_block_start","index":0,"content_block":` + start + "}\n\n"
	for _, d := range deltas {
		out += `data: {"type":"content_block_delta","index":0,"delta":` + d + "}\n\n"
	}
	return out
}

func stopped(reason string) string {
	return `data: {"type":"content_block_stop","index":0}` + "\n\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":5}}` + "\n\n" + ended
}

const callStart = `{"type":"tool_use","id":"c","name":"f","input":{}}`

func TestHowATurnEnds(t *testing.T) { // M06 G07
	for _, tt := range []struct {
		name, body string
		stop       model.Stop
		complete   bool // of the call
	}{
		{"a call", started + block0(callStart, `{"type":"input_json_delta","partial_json":"{}"}`) + stopped("tool_use"), model.StopCalls, true},
		{"a call cut off by the length", started + block0(callStart, `{"type":"input_json_delta","partial_json":"{\"a\":"}`) + stopped("max_tokens"), model.StopLength, false},
		{"a refusal", started + block0(`{"type":"text","text":"no"}`) + stopped("refusal"), model.StopFilter, false},
		{"the context is full", started + block0(`{"type":"text","text":"x"}`) + stopped("model_context_window_exceeded"), model.StopLength, false},
		{"a pause of the provider's own tools", started + block0(`{"type":"text","text":"x"}`) + stopped("pause_turn"), model.StopEnd, false},
		{"a reason that is not known", started + block0(`{"type":"text","text":"x"}`) + stopped("new"), model.StopEnd, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decodeAll(strings.NewReader(tt.body))
			if got.Err != "<nil>" || got.Turn.Stop != tt.stop {
				t.Fatalf("%+v", got)
			}
			if calls := len(providertest.OfKind(got.Turn.Items, item.ToolCall)); (calls == 1) != tt.complete {
				t.Errorf("%d complete calls of %+v", calls, got.Turn.Calls)
			}
		})
	}
}

// Each delta names its block, also one whose item the client never sees. What was told ends with its block.
func TestDeltas(t *testing.T) { // M02
	event := func(at, kind, members string) string {
		return `data: {"type":"content_block_` + kind + `","index":` + at + members + "}\n\n"
	}
	begin := func(at, block string) string { return event(at, "start", `,"content_block":`+block) }
	piece := func(at, delta string) string { return event(at, "delta", `,"delta":`+delta) }
	end := func(at string) string { return event(at, "stop", "") }
	call := func(item int, id, name, args string) model.Delta {
		return model.Delta{Kind: model.CallDelta, Item: item, CallID: id, Name: name, Text: args}
	}
	stop := func(item int) model.Delta { return model.Delta{Kind: model.DoneDelta, Item: item} }
	blocks := begin("0", `{"type":"thinking","thinking":""}`) + piece("0", `{"type":"thinking_delta","thinking":"Hm"}`) + end("0") +
		begin("1", `{"type":"redacted_thinking","data":"x"}`) + end("1") +
		begin("2", `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`) + piece("2", `{"type":"input_json_delta","partial_json":"{\"q\":1}"}`) + end("2") +
		begin("3", `{"type":"text","text":""}`) + piece("3", `{"type":"text_delta","text":"Let me "}`) + piece("3", `{"type":"text_delta","text":"see."}`) + end("3") +
		begin("4", `{"type":"tool_use","id":"a","name":"f","input":{}}`) + piece("4", `{"type":"input_json_delta","partial_json":""}`) +
		piece("4", `{"type":"input_json_delta","partial_json":"{\"a\""}`) + piece("4", `{"type":"input_json_delta","partial_json":":1}"}`) + end("4") +
		begin("5", `{"type":"tool_use","id":"b","name":"g","input":{}}`) + end("5")
	want := []model.Delta{
		{Kind: model.ReasoningDelta, Text: "Hm"}, stop(0), {Item: 3, Text: "Let me "}, {Item: 3, Text: "see."}, stop(3),
		call(4, "a", "f", ""), call(4, "", "", `{"a"`), call(4, "", "", ":1}"), stop(4), call(5, "b", "g", ""), call(5, "", "", "{}"), stop(5),
	}
	whole := `{"type":"message","id":"m","stop_reason":"tool_use","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"a","name":"f","input":{"a":1}},{"type":"tool_use","id":"b","name":"g","input":{}}]}`
	decoding().Tells(t, []providertest.Told{
		{"a stream", started + blocks + ended, want},
		{"a whole answer", whole, []model.Delta{{Text: "x"}, stop(0), call(1, "a", "f", `{"a":1}`), stop(1), call(2, "b", "g", ""), call(2, "", "", "{}"), stop(2)}},
	})
}

func TestFailures(t *testing.T) { // G07
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	open := func(e wire.Endpoint) model.Model { return New(e, Options{}) }
	providertest.Fails(t, model.DialectAnthropic, open, []providertest.Failure{
		{"overload", 529, overloaded, model.Transient, "Overloaded"},
		{"overload in mid-stream", 200, started + block0(`{"type":"text","text":"x"}`) + "event: error\ndata: " + overloaded + "\n\n", model.Transient, "Overloaded"},
		{"a wrong key", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, model.Target, "invalid x-api-key"},
		{"no such model", 404, `{"type":"error","error":{"type":"not_found_error","message":"model: x"}}`, model.Target, "model: x"},
		{"a prompt that is too long", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}`, model.TooLong, "prompt is too long: 9 tokens > 8 maximum"},
		{"a broken request", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one"}}`, model.Invalid, "messages: at least one"},
		{"a page", 200, "<html>", model.Target, "answered with text/html, not JSON. Is base_url right?"},
		{"no end", 200, started, model.Transient, "ended the stream before the answer was complete"},
		{"another object", 200, `{"choices":[]}`, model.Target, "the answer is not a message"},
		{"a piece after its block", 200, started + block0(`{"type":"text","text":"x"}`) + `data: {"type":"content_block_stop","index":0}` + "\n\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}` + "\n\n", model.Transient, "sent a piece of a block that has ended"},
		{"a piece without a block", 200, started + `data: {"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}` + "\n\n", model.Transient, "sent a piece of a block that has not begun"},
	})
}

// FuzzDecode: whatever a provider sends, the turn can be stored and sent back,
// and it does not depend on where the network cuts.
func FuzzDecode(f *testing.F) {
	f.Add(started + block0(callStart, `{"type":"input_json_delta","partial_json":"{\"a\":1}"}`) + stopped("tool_use"))
	f.Add(started + block0(`{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"Hm"}`, `{"type":"signature_delta","signature":"s"}`) + stopped("end_turn"))
	f.Add(`{"type":"message","id":"m","model":"c","content":[{"type":"text","text":"hi"},{"type":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":-1}}`)
	f.Add(started + block0(`null`) + block0(`7`) + ended)
	f.Fuzz(func(t *testing.T, body string) { dialect().CheckAnyAnswer(t, body) })
}

// A provider decides in which order events come, and how many.
func TestBlocksAreLimited(t *testing.T) {
	begin := func(index int, block string) string {
		return fmt.Sprintf("data: {\"type\":\"content_block_start\",\"index\":%d,\"content_block\":%s}\n\n", index, block)
	}
	for _, tt := range []struct{ name, body, want string }{
		{"as many as there may be", strings.Repeat(begin(0, `{"type":"text","text":""}`), wire.MaxBlocks), ""},
		{"one more", strings.Repeat(begin(0, `{"type":"text","text":""}`), wire.MaxBlocks+1), "more than 4096 blocks"},
		{"indexes that are not in order", begin(-1, `{"type":"text","text":"a"}`) + begin(1<<40, `{"type":"text","text":"b"}`) + begin(-1, `{"type":"text","text":"c"}`), ""},
		{"null", begin(0, "null"), "sent a chunk that is not valid"},
		{"nothing", `data: {"type":"content_block_start"}` + "\n\n", "sent a chunk that is not valid"},
	} {
		_, err := decode(strings.NewReader(started+tt.body+ended), nil, func(model.Delta) error { return nil })
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// The dialect counts cached and written tokens beside the input. Each is counted once, and writes are not dropped.
func TestUsageHasEachTokenOnce(t *testing.T) { // M06 P41
	for said, want := range map[string]model.Usage{
		`"input_tokens":10,"cache_read_input_tokens":900,"output_tokens":5,"service_tier":"standard"`: {Input: 910, CachedInput: 900, Output: 5, Total: 915},
		`"input_tokens":10,"cache_creation_input_tokens":700,"output_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":300,"ephemeral_1h_input_tokens":400}`: {
			Input: 710, CacheWrite: 700, CacheWrite1h: 400, Output: 5, Total: 715},
		`"input_tokens":10,"output_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":300,"ephemeral_1h_input_tokens":400}`: {
			Input: 710, CacheWrite: 700, CacheWrite1h: 400, Output: 5, Total: 715},
		`"input_tokens":10,"output_tokens":5,"output_tokens_details":{"thinking_tokens":4},"service_tier":"priority"`: {
			Input: 10, Output: 5, Total: 15, Reasoning: 4, ServiceTier: model.TierPriority},
		`"input_tokens":10,"output_tokens":5,"cache_creation":null,"service_tier":null`: {Input: 10, Output: 5, Total: 15},
	} {
		whole := `{"type":"message","id":"m","model":"claude","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{` + said + `}}`
		streamed := `data: {"type":"message_start","message":{"id":"m","model":"claude","usage":{` + said + `}}}` + "\n\n" + block0(`{"type":"text","text":"x"}`) + stopped("end_turn")
		decoding().Counts(t, want, whole, streamed)
	}
}

// The provider's own compaction is an item that is sent back as it is, whether it comes in pieces or whole, and
// its tokens are counted. // P50
func TestCompactionsOfTheProvider(t *testing.T) {
	const block = `{"type":"compaction","content":"The user wants <tea>.","encrypted_content":"e=="}`
	const usage = `{"input_tokens":9,"output_tokens":5,"iterations":[{"type":"compaction","input_tokens":100,"cache_read_input_tokens":30,"output_tokens":20},{"type":"message","input_tokens":9,"output_tokens":5}]}`
	text := strings.ReplaceAll(block0(`{"type":"text","text":""}`, `{"type":"text_delta","text":"Tea."}`), `"index":0`, `"index":1`)
	pieces := started + block0(`{"type":"compaction","content":null}`, `{"type":"compaction_delta","content":"The user "}`, `{"type":"compaction_delta","content":"wants <tea>.","encrypted_content":"e=="}`, `{"type":"compaction_delta","encrypted_content":null}`) +
		`data: {"type":"content_block_stop","index":0}` + "\n\n" + text + `data: {"type":"content_block_stop","index":1}` + "\n\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + "}\n\n" + ended
	whole := `{"type":"message","id":"msg_1","model":"claude","content":[` + block + `,{"type":"text","text":"Tea."}],"stop_reason":"end_turn","usage":` + usage + `}`
	for name, body := range map[string]string{"pieces": pieces, "whole": whole} {
		turn, err := decode(strings.NewReader(body), nil, func(model.Delta) error { return nil })
		if err != nil || len(turn.Items) != 2 {
			t.Fatalf("%s: %+v %v", name, turn, err)
		}
		it := turn.Items[0]
		if it.Kind != item.Other || it.Native.Dialect != model.DialectAnthropic || !providertest.SameJSON(t, string(it.Native.JSON), block) {
			t.Errorf("%s: %s %s", name, it.Kind, it.Native.JSON)
		}
		if turn.Items[1].Text() != "Tea." || turn.Stop != model.StopEnd {
			t.Errorf("%s: %+v", name, turn)
		}
		if diff := cmp.Diff(model.Usage{Input: 139, Output: 25, Total: 164, CachedInput: 30}, turn.Usage); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		sent, err := wire.Body((&Provider{}).translate(&model.Request{Items: append([]item.Item{item.NewText(item.User, "hi")}, turn.Items...)}).request)
		if err != nil || !strings.Contains(string(sent), `"role":"assistant","content":[{"`) || !strings.Contains(string(sent), `"encrypted_content":"e=="`) {
			t.Errorf("%s: %s %v", name, sent, err)
		}
	}
}

// What a client asks of the provider's own context management is sent as it is, with the header that it needs. // P50
func TestContextEditsAreSent(t *testing.T) {
	var got http.Header
	var body string
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		providertest.Answer(200, nil, started+ended)(w, r)
	})
	if !p.EditsContext() {
		t.Error("the provider edits no context")
	}
	for edits, beta := range map[string]string{
		"": "",
		`{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":60000}}]}`: "compact-2026-01-12",
		`{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"clear_thinking_20251015"}]}`:      editingBeta,
		`{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"compact_20260112"}]}`:             editingBeta + ",compact-2026-01-12",
		`{"edits":[{"type":"compact_x"}]}`:                                                        editingBeta,
	} {
		if _, err := p.Stream(t.Context(), &model.Request{Options: model.Options{ContextEdits: json.RawMessage(edits)}}, (&providertest.Heard{}).Emit); err != nil {
			t.Fatal(err)
		}
		if got.Get("Anthropic-Beta") != beta || strings.Contains(body, `"context_management":`) != (edits != "") || !strings.Contains(body, edits) {
			t.Errorf("%s: %q %s", edits, got.Get("Anthropic-Beta"), body)
		}
	}
}
