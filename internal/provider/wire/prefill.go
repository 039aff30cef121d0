package wire

import (
	"slices"
	"strings"
	"unicode"

	"github.com/turnpike-gateway/turnpike/item"
)

// WithoutLastSpace returns the items without the white space at the end of the transcript,
// if its last message is the model's, which is to continue it. Claude models refuse such
// white space. The items of the caller stay as they are.
func WithoutLastSpace(items []item.Item) []item.Item {
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		if it.Kind == item.Message && (it.Role == item.System || it.Role == item.Developer) {
			continue // not in the transcript
		}
		if it.Kind != item.Message || it.Role != item.Assistant {
			return items
		}
		for n, p := range slices.Backward(it.Parts) {
			text := strings.TrimRightFunc(p.Text, unicode.IsSpace)
			switch {
			case p.Kind != item.Text && p.Kind != item.Refusal, text == "": // not sent
				continue
			case text == p.Text:
				return items
			}
			items = slices.Clone(items)
			items[i].Parts = slices.Clone(it.Parts)
			items[i].Parts[n].Text, items[i].Native = text, item.Native{}
			return items
		}
	}
	return items
}
