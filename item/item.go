// Package item is the vocabulary of a transcript: messages, reasoning, tool
// calls and tool results, in the order in which the model must see them.
//
// An [Item] is one thing. What a model says in one call is often several items,
// in the order in which it said them; they carry the same Turn number:
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
// Providers have fields that other providers cannot express: reasoning
// signatures, encrypted content, ids. They ride on their item in [Native],
// tagged with the dialect and the provider that wrote them. An adapter sends a
// native form of its own dialect back unchanged; every other adapter writes the
// item from its plain fields. [For] removes what another provider wrote.
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

	// Other is something that only its dialect understands, such as a tool that
	// the provider ran itself: it has a Native and nothing else.
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

// Item is one entry of a transcript. The zero value is not valid: an item has a
// kind.
type Item struct {
	Kind Kind `json:"kind"`

	// Turn numbers the model call that wrote the item, from 1 on over the
	// transcript; 0 = no model wrote it. Adjacent items with the same number are
	// one answer of a model.
	Turn int `json:"turn,omitempty"`

	Role  Role   `json:"role,omitempty"`  // of a message
	Name  string `json:"name,omitempty"`  // of a tool call: the tool; of a message: the participant
	Parts []Part `json:"parts,omitempty"` // of a message or a result; of reasoning: what is readable

	// CallID joins a tool call to its result. It is the provider's own id:
	// opaque, returned verbatim; it may be empty or repeat.
	CallID string `json:"call_id,omitempty"`

	// Arguments of a tool call, as the model wrote them; they may not be valid JSON.
	Arguments string `json:"arguments,omitempty"`

	// IsError marks a tool result that reports a failure to the model.
	IsError bool `json:"is_error,omitempty"`

	// Structured is the structured content of a tool result, a JSON value beside
	// its Parts; nil = none.
	Structured json.RawMessage `json:"structured,omitempty"`

	// Native is the item as one dialect wrote it; zero when the gateway made it.
	// Where the dialect's unit is larger than an item, such as a chat message with
	// content and calls, the first item of the turn carries the whole unit.
	Native Native `json:"native,omitzero"`
}

// Native is an item in the words of one dialect: opaque bytes.
type Native struct {
	Dialect string `json:"dialect"` // such as "openai-chat"

	// Provider is the configured provider that wrote it; "" = a client, who may
	// send it to any provider of the dialect.
	Provider string `json:"provider,omitempty"`

	JSON json.RawMessage `json:"json,omitempty"`
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
	Resource PartKind = "resource" // of an MCP server: text or data with its URL
)

// Part is one piece of content. Text and refusal use Text; the others name
// their bytes by URL or FileID, or carry them in Data.
type Part struct {
	Kind     PartKind `json:"kind"`
	Text     string   `json:"text,omitempty"`
	URL      string   `json:"url,omitempty"`
	FileID   string   `json:"file_id,omitempty"` // a file that was uploaded to the provider
	Data     string   `json:"data,omitempty"`    // base64
	MIMEType string   `json:"mime_type,omitempty"`
	Name     string   `json:"name,omitempty"` // of a file or resource
	Detail   string   `json:"detail,omitempty"`
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

// For returns the items that a model of the given provider sees. Reasoning and
// Other items that another provider wrote are left out, and so is every other
// provider's Native.
// Without such items it returns items itself.
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
