package turnpike

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/item"
)

// Input is what a run begins with: messages, or a whole conversation. The zero value is empty and
// is refused.
type Input struct{ items []item.Item }

// Text returns the message of a user.
func Text(text string) Input { return Input{[]item.Item{item.NewText(item.User, text)}} }

// Items returns the entries of a conversation, such as Result.Items of earlier runs.
func Items(items ...item.Item) Input { return Input{slices.Clone(items)} }

// And returns both, in this order: Items(history...).And(Text("And tomorrow?")).
func (in Input) And(more Input) Input { return Input{slices.Concat(in.items, more.items)} }
