package item_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
)

// What release 0.1 stored is read as items: an entry held a whole answer.
func TestItemsOfVersion1AreRead(t *testing.T) {
	stored := `[
		{"role":"system","parts":[{"kind":"text","text":"be brief"}],"native":{"dialect":"openai-chat","json":{"role":"system"}}},
		{"role":"user","name":"ann","parts":[{"kind":"image","url":"http://x/i.png"}]},
		{"role":"assistant","parts":[{"kind":"reasoning","text":"Hm."},{"kind":"text","text":"Let me "},{"kind":"refusal","text":"no"}],
		 "calls":[{"id":"c1","name":"f","arguments":"{}"},{"id":"c2","name":"g","arguments":"{bad"}],"native":{"dialect":"openai-chat","json":{"x":1}}},
		{"role":"tool","call_id":"c1","is_error":true,"parts":[{"kind":"text","text":"Error: no"}]},
		{"role":"assistant","calls":[{"id":"c3","name":"f","arguments":"{}"}]},
		{"role":"assistant"}
	]`
	var got item.List
	if err := json.Unmarshal([]byte(stored), &got); err != nil {
		t.Fatal(err)
	}
	text := func(s string) item.Part { return item.Part{Kind: item.Text, Text: s} }
	want := item.List{
		{Kind: item.Message, Role: item.System, Parts: []item.Part{text("be brief")}, Native: item.Native{Dialect: "openai-chat", JSON: json.RawMessage(`{"role":"system"}`)}},
		{Kind: item.Message, Role: item.User, Name: "ann", Parts: []item.Part{{Kind: item.Image, URL: "http://x/i.png"}}},
		{Kind: item.Reasoning, Turn: 1, Parts: []item.Part{text("Hm.")}, Native: item.Native{Dialect: "openai-chat", JSON: json.RawMessage(`{"x":1}`)}},
		{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{text("Let me "), {Kind: item.Refusal, Text: "no"}}},
		{Kind: item.ToolCall, Turn: 1, CallID: "c1", Name: "f", Arguments: "{}"},
		{Kind: item.ToolCall, Turn: 1, CallID: "c2", Name: "g", Arguments: "{bad"},
		{Kind: item.ToolResult, CallID: "c1", IsError: true, Parts: []item.Part{text("Error: no")}},
		{Kind: item.ToolCall, Turn: 2, CallID: "c3", Name: "f", Arguments: "{}"},
		{Kind: item.Message, Turn: 3, Role: item.Assistant},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestItemsAreStoredAndRead(t *testing.T) {
	want := item.List{
		item.NewText(item.User, "<&> \u2028"),
		{Kind: item.Reasoning, Turn: 1, Native: item.Native{Dialect: "d", Provider: "p", JSON: json.RawMessage(`{"s":"<&>","n":12345678901234567890}`)}},
		{Kind: item.ToolResult, CallID: "c", Structured: json.RawMessage(`{"a":1}`)},
	}
	stored, err := json.Marshal(struct{ Items item.List }{want})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Items item.List }
	if err := json.Unmarshal(stored, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Items, cmp.Comparer(func(a, b json.RawMessage) bool { return mean(t, a) == mean(t, b) })); diff != "" {
		t.Error(diff)
	}
}

// mean returns the JSON without the ways in which it can be spelled.
func mean(t *testing.T, raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	var v map[string]json.RawMessage
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestItemsThatThisBuildCannotReadAreRefused(t *testing.T) {
	var l item.List
	if err := json.Unmarshal([]byte(`{"v":3,"items":[]}`), &l); !errors.Is(err, item.ErrUnknownVersion) {
		t.Errorf("items of version 3: %v", err)
	}
	for _, damaged := range []string{`[{"kind":"message"}]`, `{}`, `7`, `"x"`} {
		if err := json.Unmarshal([]byte(damaged), &l); err == nil {
			t.Errorf("%s is read as %+v", damaged, l)
		}
	}
}

func TestAnotherProviderSeesNeitherReasoningNorNativeForms(t *testing.T) { // P08
	native := func(provider string) item.Native {
		return item.Native{Dialect: "d", Provider: provider, JSON: json.RawMessage(`{}`)}
	}
	items := []item.Item{
		{Kind: item.Message, Role: item.User, Native: native("")},
		{Kind: item.Reasoning, Turn: 1, Native: native("a")},
		{Kind: item.Message, Turn: 1, Role: item.Assistant},
		{Kind: item.ToolCall, Turn: 1, CallID: "c", Native: native("a")},
	}
	if got := item.For(items, "a"); !cmp.Equal(got, items) {
		t.Errorf("a sees %+v", got)
	}
	want := []item.Item{items[0], items[2], {Kind: item.ToolCall, Turn: 1, CallID: "c"}}
	if got := item.For(items, "b"); !cmp.Equal(got, want) {
		t.Errorf("b sees %+v", got)
	}
	if items[3].Native.Provider != "a" {
		t.Error("the transcript itself has changed")
	}
}
