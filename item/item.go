// Package item is the vocabulary of a transcript: what was said, by whom, and
// which tool calls and results belong together.
//
// An [Item] is one entry. A run's transcript is a list of items in the order
// in which the model must see them; it is append-only.
//
//	user       "What is 2+3?"
//	assistant  call c1: get-sum {"a":2,"b":3}
//	tool       result of c1: "5"
//	assistant  "The answer is 5."
//
// Each provider dialect has fields that another dialect cannot say (reasoning
// signatures, audio, vendor extensions). They are kept in [Native]: the item
// exactly as one dialect wrote it. An adapter of that dialect sends the native
// form back unchanged; every other adapter builds its own from the plain fields.
package item

import (
	"encoding/json"
	"strings"
)

// Role says who speaks.
type Role string

// The roles of a transcript.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Item is one transcript entry. The zero value is not valid: an item has a role.
type Item struct {
	Role  Role   `json:"role"`
	Name  string `json:"name,omitempty"` // a participant's name, where a client gave one
	Parts []Part `json:"parts,omitempty"`

	// Calls are the tool calls of an assistant turn, in the model's order.
	Calls []Call `json:"calls,omitempty"`

	// CallID joins a tool result to the call that it answers: the provider's
	// own id, opaque, returned verbatim.
	CallID string `json:"call_id,omitempty"`

	// IsError marks a tool result that reports a failure to the model.
	IsError bool `json:"is_error,omitempty"`

	// Native is the item as one dialect wrote it; zero when we made the item.
	Native Native `json:"native,omitzero"`
}

// Call is one tool call as the model asked for it.
type Call struct {
	ID        string `json:"id"`        // the provider's id: opaque, may repeat or be empty
	Name      string `json:"name"`      // as the model wrote it
	Arguments string `json:"arguments"` // as the model wrote it; may be no JSON at all
}

// Native is an item in the words of one dialect.
type Native struct {
	Dialect string          `json:"dialect"` // such as "openai-chat"
	JSON    json.RawMessage `json:"json"`
}

// PartKind says what a [Part] holds.
type PartKind string

// The kinds of content.
const (
	Text      PartKind = "text"
	Image     PartKind = "image"
	Audio     PartKind = "audio"
	File      PartKind = "file"
	Refusal   PartKind = "refusal"
	Reasoning PartKind = "reasoning"
)

// Part is one piece of content. Text, refusal and reasoning use Text; the
// others name their bytes by URL or carry them in Data.
type Part struct {
	Kind     PartKind `json:"kind"`
	Text     string   `json:"text,omitempty"`
	URL      string   `json:"url,omitempty"`
	Data     string   `json:"data,omitempty"` // base64
	MIMEType string   `json:"mime_type,omitempty"`
	Name     string   `json:"name,omitempty"` // a file's name
	Detail   string   `json:"detail,omitempty"`
}

// NewText returns an item of the given role that says text.
func NewText(role Role, text string) Item {
	return Item{Role: role, Parts: []Part{{Kind: Text, Text: text}}}
}

// NewResult returns the tool result that answers the call with the given
// provider id.
func NewResult(callID, text string, isError bool) Item {
	return Item{Role: Tool, CallID: callID, IsError: isError, Parts: []Part{{Kind: Text, Text: text}}}
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
