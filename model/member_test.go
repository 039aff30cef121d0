package model

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/item"
)

// Every member has a name in each dialect, and no two have the same.
func TestMembersHaveNames(t *testing.T) {
	for _, dialect := range []string{DialectChat, DialectResponses} {
		var names []string
		for m := range members {
			names = append(names, (&Request{Dialect: dialect}).NameOf(Member(m)))
		}
		slices.Sort(names)
		if names[0] == "" || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("%s: %q", dialect, names)
		}
	}
}

func TestNameOfPart(t *testing.T) {
	message, result := &item.Item{Kind: item.Message}, &item.Item{Kind: item.ToolResult}
	for _, tt := range []struct {
		dialect string
		it      *item.Item
		kind    item.PartKind
		want    string
	}{
		{DialectChat, message, item.Image, "messages[].content[].image_url"},
		{DialectChat, result, item.Audio, "messages[].content[].input_audio"},
		{DialectChat, message, item.File, "messages[].content[].file"},
		{DialectResponses, message, item.Image, "input[].content[].input_image"},
		{DialectResponses, result, item.File, "input[].output[].input_file"},
	} {
		if got := (&Request{Dialect: tt.dialect}).NameOfPart(tt.it, tt.kind); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.dialect, got, tt.want)
		}
	}
}
