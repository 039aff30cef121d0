package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
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

func TestRequestsHaveKeyAndVersion(t *testing.T) {
	var got http.Header
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		providertest.Answer(200, nil, started+ended)(w, r)
	}, func(o *Options) { o.APIKey = func(context.Context) (string, error) { return "sk-ant", nil } })
	if _, err := p.Stream(t.Context(), &model.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Api-Key") != "sk-ant" || got.Get("Anthropic-Version") != "2023-06-01" || got.Get("Authorization") != "" {
		t.Errorf("header %v", got)
	}
}

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
			if calls := len(ofKind(got.Turn.Items, item.ToolCall)); (calls == 1) != tt.complete {
				t.Errorf("%d complete calls of %+v", calls, got.Turn.Calls)
			}
		})
	}
}

func TestFailures(t *testing.T) { // G07
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for _, tt := range []struct {
		name    string
		status  int
		body    string
		class   model.Class
		message string
	}{
		{"overload", 529, overloaded, model.Transient, "Overloaded"},
		{"overload in mid-stream", 200, started + block0(`{"type":"text","text":"x"}`) + "event: error\ndata: " + overloaded + "\n\n", model.Transient, "Overloaded"},
		{"a wrong key", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, model.Target, "invalid x-api-key"},
		{"no such model", 404, `{"type":"error","error":{"type":"not_found_error","message":"model: x"}}`, model.Target, "model: x"},
		{"a prompt that is too long", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}`, model.TooLong, "prompt is too long: 9 tokens > 8 maximum"},
		{"a broken request", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one"}}`, model.Invalid, "messages: at least one"},
		{"a page", 200, "<html>", model.Transient, "answered with text/html, not JSON. Is base_url right?"},
		{"no end", 200, started, model.Transient, "ended the stream before the answer was complete"},
		{"another object", 200, `{"choices":[]}`, model.Transient, "the answer is not a message"},
		{"a piece without a block", 200, started + `data: {"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}` + "\n\n", model.Transient, "sent a piece of a block that has not begun"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, providertest.Answer(tt.status, nil, tt.body))
			_, err := p.Stream(t.Context(), &model.Request{}, (&heard{}).emit)
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || e.Message != tt.message || e.Status != tt.status {
				t.Errorf("%#v", err)
			}
		})
	}
}

// FuzzDecode: whatever a provider sends, the turn can be stored and sent back,
// and it does not depend on where the network cuts.
func FuzzDecode(f *testing.F) {
	f.Add(started + block0(callStart, `{"type":"input_json_delta","partial_json":"{\"a\":1}"}`) + stopped("tool_use"))
	f.Add(started + block0(`{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"Hm"}`, `{"type":"signature_delta","signature":"s"}`) + stopped("end_turn"))
	f.Add(`{"type":"message","id":"m","model":"c","content":[{"type":"text","text":"hi"},{"type":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":-1}}`)
	f.Add(started + block0(`null`) + block0(`7`) + ended)
	f.Fuzz(func(t *testing.T, body string) {
		got := decodeAll(strings.NewReader(body))
		if again := decodeAll(bytes.NewBufferString(body)); got.Err != again.Err {
			t.Fatalf("%s, then %s", got.Err, again.Err)
		}
		if got.Turn == nil {
			return
		}
		if got.Err == "<nil>" && got.Turn.Stop == "" {
			t.Fatalf("%q has no end and no error", body)
		}
		if _, err := json.Marshal(item.List(got.Turn.Items)); err != nil {
			t.Fatalf("%q cannot be stored: %v", body, err)
		}
		req := &model.Request{Model: "m", Items: append([]item.Item{item.NewText(item.User, "x")}, got.Turn.Items...)}
		if sent, err := New(Options{BaseURL: "http://p/v1"}).encode(req); err != nil || !json.Valid(sent) {
			t.Fatalf("%q cannot be sent back: %s, %v", body, sent, err)
		}
		u := got.Turn.Usage
		if min(u.Input, u.Output, u.Total, u.CachedInput, u.CacheWrite, u.Reasoning) < 0 || u.Total > 4*maxUsage {
			t.Fatalf("usage %+v", u)
		}
	})
}
