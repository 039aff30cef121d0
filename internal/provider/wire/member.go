package wire

import (
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Member is a member of a request whose name depends on the client's dialect. A member
// that is not here has the same name in all dialects, such as temperature.
type Member int

// The members.
const (
	MemberItems      Member = iota // Request.Items
	MemberItemName                 // Item.Name of a message
	MemberToolStrict               // Tool.Strict
	MemberFormat                   // Options.Format
	MemberSchema                   // Format.Schema
	MemberEffort                   // Options.Effort
	MemberVerbosity                // Options.Verbosity
	MemberDetail                   // Part.Detail of an image in a message
)

// members are the names, by dialect.
var members = [...]struct{ chat, responses string }{
	MemberItems:      {"messages", "input"},
	MemberItemName:   {"messages[].name", "input[].name"},
	MemberToolStrict: {"tools[].function.strict", "tools[].strict"},
	MemberFormat:     {"response_format", "text.format"},
	MemberSchema:     {"response_format.json_schema.schema", "text.format.schema"},
	MemberEffort:     {"reasoning_effort", "reasoning.effort"},
	MemberVerbosity:  {"verbosity", "text.verbosity"},
	MemberDetail:     {"messages[].content[].image_url.detail", "input[].content[].detail"},
}

// NameOf returns what the client calls a member of its request: the name in
// model.DialectResponses for a request in that dialect, otherwise the one in model.DialectChat.
func NameOf(r *model.Request, m Member) string {
	if r.Dialect == model.DialectResponses {
		return members[m].responses
	}
	return members[m].chat
}

// NameOfPart returns what the client calls a part of an item: the list that the part is
// in, and the part's own type.
func NameOfPart(r *model.Request, it *item.Item, kind item.PartKind) string {
	if r.Dialect != model.DialectResponses {
		return "messages[].content[]." + chatPart(kind)
	}
	list := "input[].content[]."
	if it.Kind == item.ToolResult {
		list = "input[].output[]."
	}
	return list + "input_" + string(kind)
}

// chatPart returns the type of a part in model.DialectChat.
func chatPart(kind item.PartKind) string {
	switch kind {
	case item.Image:
		return "image_url"
	case item.Audio:
		return "input_audio"
	}
	return string(kind)
}
