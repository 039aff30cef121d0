package turnpike

import (
	"cmp"
	"slices"

	"github.com/turnpike-gateway/turnpike/item"
)

// Input is what a run begins with: messages, or a whole conversation. The zero value is empty and
// is refused.
type Input struct {
	items []item.Item
	err   error // of the first item that is not valid
}

// Text returns the message of a user.
func Text(text string) Input { return Input{items: []item.Item{item.NewText(item.User, text)}} }

// Parts returns the message of a user with texts, images or files: Parts(item.TextPart("What is it?"), item.ImageData("image/png", data)).
func Parts(parts ...item.Part) Input { return Items(item.NewMessage(item.User, parts...)) }

// Items returns the entries of a conversation, such as Result.Items of earlier runs. A run with one that is not valid
// (see item.Item.Validate) ends with a [*ValidationError] that names its index.
func Items(items ...item.Item) Input {
	in := Input{items: slices.Clone(items)}
	for n, it := range items {
		if err := it.Validate(); err != nil {
			in.err = invalid("item %d of the input: %v", n, err)
			break
		}
	}
	return in
}

// And returns both, in this order: Items(history...).And(Text("And tomorrow?")).
func (in Input) And(more Input) Input {
	return Input{slices.Concat(in.items, more.items), cmp.Or(in.err, more.err)}
}
