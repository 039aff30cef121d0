package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// An answer in parts is one message; what its provider needs back of a part is kept where it still fits. // A12
func TestAnAnswerInPartsIsOneMessage(t *testing.T) {
	native := func(it item.Item, dialect string) item.Item {
		it.Native = item.Native{Dialect: dialect, Provider: "p", JSON: []byte("{}")}
		return it
	}
	text := func(s string) item.Item { return item.NewText(item.Assistant, s) }
	thought := native(item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: "hm"}}}, "anthropic")
	call := native(item.NewCall("c", "n", "{}"), "gemini")
	cited := func(s string, start int64) item.Item {
		it := text(s)
		it.Citations = []item.Citation{{Kind: item.CitesURL, URL: "u", Start: start, End: start + 1}}
		return it
	}
	both := text("älter")
	both.Citations = []item.Citation{{Kind: item.CitesURL, URL: "u", Start: 1, End: 2}, {Kind: item.CitesURL, URL: "u", Start: 2, End: 3}}
	for name, c := range map[string]struct{ begin, rest, want []item.Item }{
		"texts":                        {[]item.Item{text("a")}, []item.Item{text("b")}, []item.Item{text("ab")}},
		"native forms of one part":     {[]item.Item{native(text("a"), model.DialectChat)}, []item.Item{native(text("b"), model.DialectChat)}, []item.Item{text("ab")}},
		"reasoning before the begin":   {[]item.Item{thought, text("a")}, []item.Item{text("b")}, []item.Item{thought, text("ab")}},
		"reasoning before the rest":    {[]item.Item{text("a")}, []item.Item{thought, text("b")}, []item.Item{text("ab")}},
		"calls in the rest":            {[]item.Item{text("a")}, []item.Item{thought, text("b"), call}, []item.Item{text("ab"), thought, call}},
		"calls and no text":            {[]item.Item{text("a")}, []item.Item{call}, []item.Item{text("a"), call}},
		"a rest without anything":      {[]item.Item{text("a")}, []item.Item{{Kind: item.Message, Role: item.Assistant}}, []item.Item{text("a")}},
		"citations count from the top": {[]item.Item{cited("äl", 1)}, []item.Item{cited("ter", 0)}, []item.Item{both}},
	} {
		if diff := cmp.Diff(c.want, joined(c.begin, c.rest)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
