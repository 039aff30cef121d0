package wire

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Every member has a name in each dialect, and no two have the same.
func TestMembersHaveNames(t *testing.T) {
	for _, dialect := range []string{model.DialectChat, model.DialectResponses} {
		var names []string
		for m := range members {
			names = append(names, NameOf(&model.Request{Dialect: dialect}, Member(m)))
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
		{model.DialectChat, message, item.Image, "messages[].content[].image_url"},
		{model.DialectChat, result, item.Audio, "messages[].content[].input_audio"},
		{model.DialectChat, message, item.File, "messages[].content[].file"},
		{model.DialectResponses, message, item.Image, "input[].content[].input_image"},
		{model.DialectResponses, result, item.File, "input[].output[].input_file"},
	} {
		if got := NameOfPart(&model.Request{Dialect: tt.dialect}, tt.it, tt.kind); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.dialect, got, tt.want)
		}
	}
}
