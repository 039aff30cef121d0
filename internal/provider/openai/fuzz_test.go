package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// FuzzRequest: whatever a transcript, a tool and a client's members say, the
// provider gets one JSON object that says the same, the same both times, and in
// which only the gateway has decided what is the gateway's to decide. A call without
// an id, or with one that is too long, gets another one.
func FuzzRequest(f *testing.F) {
	f.Add("gpt", "hello", "c1", "search", `{"q":"x"}`, "5", "temperature", `0.5`, 0)
	f.Add("m\"\n", "a\xff\u2028", "", "", `not JSON`, "\x00", "model", `"other"`, 7)
	f.Add("m", "", "c", "n", ``, "", "max_tokens", `1e3`, 5)
	f.Add("m", "", strings.Repeat("c", maxCallID+1), "n", ``, "", "x", `1`, 0)
	f.Add("m", "", "c", "n", ``, "", "stream_options", `{"include_usage":false,"x":[1]}`, 5)
	f.Fuzz(func(t *testing.T, name, said, id, toolName, arguments, result, param, value string, limit int) {
		otherCase := func(own string) bool { return own != param && strings.EqualFold(own, param) }
		if !json.Valid([]byte(value)) || !utf8.ValidString(value) || slices.ContainsFunc([]string{"model", "stream", "stream_options", "messages"}, otherCase) {
			return // the standard library takes a name in any case, providers do not
		}
		p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
		req := &model.Request{
			Model: name, Dialect: model.DialectChat, MaxTokens: max(limit, 0),
			Items: []item.Item{
				item.NewText(item.User, said),
				{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text, Text: said}}},
				{Kind: item.ToolCall, Turn: 1, CallID: id, Name: toolName, Arguments: arguments},
				item.NewResult(id, result, false),
			},
			Params: []model.Param{{Name: param, Value: json.RawMessage(value)}},
		}
		body := p.encode(req, true)
		if again := p.encode(req, true); string(again) != string(body) {
			t.Fatalf("%s, then %s", body, again)
		}
		var got struct {
			Model    string
			Stream   bool
			Options  map[string]json.RawMessage `json:"stream_options"`
			Messages []struct {
				Role, Content string
				ID            string `json:"tool_call_id"`
				Calls         []struct {
					ID       string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got.Model != mended(name) || !got.Stream || string(got.Options["include_usage"]) != "true" || len(got.Messages) != 3 || len(got.Messages[1].Calls) != 1 {
			t.Fatalf("%s", body)
		}
		call, answer := got.Messages[1].Calls[0], got.Messages[2]
		if got.Messages[0].Content != mended(said) || id != "" && len(id) <= maxCallID && call.ID != mended(id) || call.ID == "" || call.Function.Name != mended(toolName) || answer.ID != call.ID || answer.Content != mended(result) {
			t.Fatalf("%s", body)
		}
	})
}

// mended returns a text as JSON can carry it.
func mended(s string) string { return string([]rune(s)) }

// FuzzUsage: whatever a provider says that it has counted, the usage is one that
// a budget can add up: nothing below zero, and nothing that overflows.
func FuzzUsage(f *testing.F) {
	f.Add(`{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}`)
	f.Add(`{"prompt_tokens":-1000000,"completion_tokens":9223372036854775807,"completion_tokens_details":{"reasoning_tokens":-1}}`)
	f.Add(`{"prompt_tokens":1e15,"prompt_cache_hit_tokens":"7","cache_creation_input_tokens":-0.5,"completion_tokens":null}`)
	f.Fuzz(func(t *testing.T, said string) {
		a := &assembly{Emit: func(model.Delta) error { return nil }}
		if !jsonscan.Valid([]byte(said)) || a.chunk([]byte(`{"choices":[],"usage":`+said+`}`)) != nil {
			return
		}
		u := a.usage
		for _, n := range []int64{u.Input, u.Output, u.Total, u.CachedInput, u.CacheWrite, u.Reasoning} {
			if n < 0 || n > wire.MaxUsage {
				t.Fatalf("%s is read as %+v", said, u)
			}
		}
	})
}
