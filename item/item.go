// Package item defines the entries of a transcript: messages, reasoning, tool
// calls and tool results, in the order in which the model must see them.
//
// An [Item] is exactly one of these. The answer of one model call is often several
// items, in the order in which they began. They have the same Turn number:
//
//	message    user       "What is 2+3?"
//	reasoning  turn 1     "I have a tool for that."
//	message    turn 1     "Let me see."
//	tool_call  turn 1     c1 get-sum {"a":2,"b":3}
//	tool_result           c1 "5"
//	message    turn 2     "The answer is 5."
//
// A transcript is append-only. [List] is its stored form.
//
// A dialect is the wire format of a provider's API, such as "openai-chat" or
// "anthropic". Each has fields that the others do not have: signatures of
// reasoning, encrypted content, ids. Many providers require them back unchanged.
// An item keeps them in [Native], with the names of the dialect and the provider.
// An adapter sends the native form of its own dialect back unchanged. Every other
// adapter writes the item from its plain fields. [For] removes what another
// provider wrote.
package item

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
)

// Kind says what an [Item] is.
type Kind string

// The kinds of items.
const (
	Message    Kind = "message"
	Reasoning  Kind = "reasoning"
	ToolCall   Kind = "tool_call"
	ToolResult Kind = "tool_result"

	// Other is an item that only its dialect defines, such as the call of a tool
	// that the provider executed itself. It has a Native and nothing else.
	Other Kind = "other"
)

// Role says who wrote a message.
type Role string

// The roles of a message.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
)

// Label says where content comes from.
type Label string

// Untrusted is the label of what strangers wrote, such as a page of the web. It may contain
// instructions for the model, which must not be followed.
const Untrusted Label = "untrusted"

// Item is one entry of a transcript. The zero value is not valid: an item has a
// kind.
type Item struct {
	Kind Kind `json:"kind"`

	// Turn is the number of the model call whose answer the item belongs to, from 1
	// in the order of the transcript; 0 = no model wrote the item. Adjacent items
	// with the same number are one answer.
	Turn int `json:"turn,omitempty"`

	Role  Role   `json:"role,omitempty"`  // of a message
	Name  string `json:"name,omitempty"`  // of a tool call: the tool; of a message: the participant
	Parts []Part `json:"parts,omitempty"` // of a message or a tool result; of reasoning: its readable text

	// Phase says what a model's message is for, where its provider tells: commentary between tool calls,
	// or final_answer. "" = the provider does not tell.
	Phase string `json:"phase,omitempty"`

	// CallID is the id of a tool call, and of the result that answers it. The
	// provider chooses it and gets it back unchanged. It may be empty, and several
	// calls may have the same.
	CallID string `json:"call_id,omitempty"`

	// Citations are the sources of the texts of a model's message, in the order in which they
	// came.
	Citations []Citation `json:"citations,omitempty"`

	// Arguments are those of a tool call, as the model wrote them. They may be
	// invalid JSON.
	Arguments string `json:"arguments,omitempty"`

	// IsError says that a tool result reports a failure.
	IsError bool `json:"is_error,omitempty"`

	// Label says where the content of a tool result comes from; "" = nobody has said.
	Label Label `json:"label,omitempty"`

	// Structured is the structured content of a tool result, a JSON value beside
	// its Parts; nil = none.
	Structured json.RawMessage `json:"structured,omitempty"`

	// Native is the item as it was written in its dialect. It is zero if the
	// gateway made the item, or if the plain fields say everything. A message of
	// the chat dialect holds content and calls together, so one message is several
	// items: then the first item of the turn has the whole message.
	Native Native `json:"native,omitzero"`
}

// Native is an item in the JSON of one dialect. Only adapters of the dialect read
// it.
type Native struct {
	Dialect string `json:"dialect"` // such as "openai-chat"

	// Provider is the name of the configured provider that wrote the item. "" means
	// that a client wrote it: it may be sent to any provider of the dialect.
	Provider string `json:"provider,omitempty"`

	JSON json.RawMessage `json:"json,omitempty"`

	// Opaque says that JSON has members that a client of the same dialect does not
	// get, such as a signature of reasoning. Clients of other dialects get none of it.
	Opaque bool `json:"opaque,omitempty"`
}

// PartKind says what a [Part] holds.
type PartKind string

// The kinds of parts.
const (
	Text     PartKind = "text"
	Image    PartKind = "image"
	Audio    PartKind = "audio"
	File     PartKind = "file"
	Refusal  PartKind = "refusal"
	Resource PartKind = "resource" // of an MCP server: text or data with its URL, or a link: the URL alone
)

// Part is one piece of content. Text and refusals are in Text. The other kinds
// have their bytes in Data, or refer to them by URL or FileID.
type Part struct {
	Kind     PartKind `json:"kind"`
	Text     string   `json:"text,omitempty"`
	URL      string   `json:"url,omitempty"`
	FileID   string   `json:"file_id,omitempty"` // a file that was uploaded to the provider
	Data     string   `json:"data,omitempty"`    // base64
	MIMEType string   `json:"mime_type,omitempty"`
	Name     string   `json:"name,omitempty"`   // of a file or resource
	Detail   string   `json:"detail,omitempty"` // of an image: auto, low or high

	// Title and Description are those of a resource that an MCP server only links to.
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`

	// Cache asks the provider to cache the prompt up to and including this part;
	// nil = the client does not ask for it.
	Cache *Cache `json:"cache,omitempty"`
}

// Cache is a marker for the prompt cache of a provider that needs one.
type Cache struct {
	TTL string `json:"ttl,omitempty"` // such as "5m" or "1h"; "" = the provider's default
}

// NewText returns a message of the given role.
func NewText(role Role, text string) Item {
	return Item{Kind: Message, Role: role, Parts: []Part{{Kind: Text, Text: text}}}
}

// NewCall returns a tool call.
func NewCall(id, name, arguments string) Item {
	return Item{Kind: ToolCall, CallID: id, Name: name, Arguments: arguments}
}

// NewResult returns the tool result that answers the call with the given
// provider id.
func NewResult(callID, text string, isError bool) Item {
	return Item{Kind: ToolResult, CallID: callID, IsError: isError, Parts: []Part{{Kind: Text, Text: text}}}
}

// Text returns the item's text parts, joined with nothing between.
func (i Item) Text() string {
	if len(i.Parts) == 1 && i.Parts[0].Kind == Text {
		return i.Parts[0].Text
	}
	var b strings.Builder
	for _, p := range i.Parts {
		if p.Kind == Text {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// SetTurn gives all items the Turn number.
func SetTurn(items []Item, turn int) {
	for i := range items {
		items[i].Turn = turn
	}
}

// Turns yields the items of each answer together, and every other item alone.
func Turns(items []Item) iter.Seq[[]Item] {
	return func(yield func([]Item) bool) {
		for start := 0; start < len(items); {
			end := TurnEnd(items, start)
			if !yield(items[start:end]) {
				return
			}
			start = end
		}
	}
}

// TurnEnd returns the index after the last of the items that belong to the same
// answer as items[at]: at+1 for an item that no model wrote.
func TurnEnd(items []Item, at int) int {
	end := at + 1
	for items[at].Turn != 0 && end < len(items) && items[end].Turn == items[at].Turn {
		end++
	}
	return end
}

// TurnStart returns the index of the first of the items that belong to the same
// answer as items[at]: at for an item that no model wrote.
func TurnStart(items []Item, at int) int {
	for items[at].Turn != 0 && at > 0 && items[at-1].Turn == items[at].Turn {
		at--
	}
	return at
}

// LastTurn returns the highest Turn of the items, 0 without one.
func LastTurn(items []Item) int {
	last := 0
	for _, i := range items {
		last = max(last, i.Turn)
	}
	return last
}

// IsOtherOf reports whether the item is an Other of another provider than the given one, which
// does not get it: see [For].
func (i Item) IsOtherOf(provider string) bool {
	return i.Kind == Other && i.Native.Provider != "" && i.Native.Provider != provider
}

// For returns the items that a model of the given provider gets. It leaves out
// reasoning and Other items that another provider wrote, and the Native of its
// other items. If there are none of these, it returns items itself.
func For(items []Item, provider string) []Item {
	foreign := func(i Item) bool { return i.Native.Provider != "" && i.Native.Provider != provider }
	if !slices.ContainsFunc(items, foreign) {
		return items
	}
	visible := make([]Item, 0, len(items))
	for _, i := range items {
		if foreign(i) {
			if i.Kind == Reasoning || i.Kind == Other {
				continue
			}
			i.Native = Native{}
		}
		visible = append(visible, i)
	}
	return visible
}
