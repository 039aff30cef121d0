package item_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
)

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
	if err := json.Unmarshal([]byte(`{"v":2,"items":[]}`), &l); !errors.Is(err, item.ErrUnknownVersion) {
		t.Errorf("items of version 2: %v", err)
	}
	for _, damaged := range []string{`[{"kind":"message"}]`, `{}`, `[]`, `7`, `"x"`} {
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
