package conversation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/item"
)

// FuzzCallOrder: putting results into the order of their calls loses nothing,
// moves nothing but results, and has nothing to do the second time.
func FuzzCallOrder(f *testing.F) {
	f.Add("a:xyz rz ry rx")
	f.Add("a:xx rx ry rx u a: rx a:q rq")
	f.Add("rx ry a")
	f.Fuzz(func(t *testing.T, text string) {
		var items []item.Item
		for word := range strings.FieldsSeq(text) {
			switch rest, isCall := strings.CutPrefix(word, "a:"); {
			case isCall:
				said := item.NewText(item.Assistant, "")
				said.Turn = len(items) + 1
				items = append(items, said)
				for _, id := range rest {
					call := item.NewCall(string(id), "", "")
					call.Turn = said.Turn
					items = append(items, call)
				}
			case word[0] == 'r':
				items = append(items, item.NewResult(word[1:], fmt.Sprint(len(items)), false))
			default:
				items = append(items, item.NewText(item.User, word))
			}
		}
		sorted := slices.Clone(items)
		inCallOrder(sorted)
		for i := range items {
			if items[i].Kind != sorted[i].Kind || items[i].Kind != item.ToolResult && items[i].Text() != sorted[i].Text() {
				t.Fatalf("%d: %+v, was %+v", i, sorted[i], items[i])
			}
		}
		again := slices.Clone(sorted)
		inCallOrder(again)
		if fmt.Sprint(again) != fmt.Sprint(sorted) {
			t.Fatalf("%v, then %v", sorted, again)
		}
		byText := func(a, b item.Item) int {
			return strings.Compare(fmt.Sprint(a.Kind, a.CallID, a.Text()), fmt.Sprint(b.Kind, b.CallID, b.Text()))
		}
		slices.SortStableFunc(items, byText)
		slices.SortStableFunc(sorted, byText)
		if fmt.Sprint(items) != fmt.Sprint(sorted) {
			t.Fatalf("%v became %v", items, sorted)
		}
	})
}
