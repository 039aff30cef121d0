package telemetry

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Limits on message content in a span, in bytes. A batch of 512 spans must fit
// into the 64 MiB that the exporter sends at most.
const (
	maxName     = 128
	maxText     = 8 << 10  // one text
	maxMessages = 32 << 10 // all messages of a call; the latest are kept
)

// truncateName truncates a name that somebody else chose.
func truncateName(name string) string { return truncate(name, maxName) }

// truncate truncates text to at most the given number of bytes, at a character
// boundary, and marks the cut with an ellipsis.
func truncate(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// message is an entry of gen_ai.input.messages or gen_ai.outputMessages.messages
// (OpenTelemetry semantic conventions for generative AI).
type message struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

// part is a part of a message. Its type is text, reasoning, tool_call or
// tool_call_response.
type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Response  string `json:"response,omitempty"`
}

// inputMessages returns the transcript as gen_ai.input.messages. The earliest items are
// left out if it is longer than maxMessages.
func inputMessages(items []item.Item) string {
	var all []message
	size := 0
	for end := len(items); end > 0; {
		start := item.TurnStart(items, end-1)
		m := newMessage(items[start:end])
		end = start
		for _, p := range m.Parts {
			size += len(p.Content) + len(p.Arguments) + len(p.Response)
		}
		if size > maxMessages {
			break
		}
		all = append(all, m)
	}
	slices.Reverse(all)
	return marshal(all)
}

func outputMessages(turn *model.Turn) string {
	m := newMessage(turn.Items)
	m.Role, m.Finish = string(item.Assistant), string(turn.Stop)
	return marshal([]message{m})
}

// newMessage returns the items of one answer, or any other item, as one message.
func newMessage(items []item.Item) message {
	m := message{Role: string(item.Assistant), Parts: []part{}}
	for _, it := range items {
		switch it.Kind {
		case item.ToolResult:
			m.Role = "tool"
			m.Parts = append(m.Parts, part{Type: "tool_call_response", ID: it.CallID, Response: truncate(item.PlainText(it.Parts), maxText)})
		case item.ToolCall:
			m.Parts = append(m.Parts, part{Type: "tool_call", ID: it.CallID, Name: truncateName(it.Name), Arguments: truncate(it.Arguments, maxText)})
		case item.Reasoning:
			m.addTexts("reasoning", it.Parts)
		case item.Message:
			m.Role = string(it.Role)
			m.addTexts("text", it.Parts)
		}
	}
	return m
}

// addTexts adds the parts that are text.
func (m *message) addTexts(kind string, parts []item.Part) {
	for _, p := range parts {
		if p.Text != "" {
			m.Parts = append(m.Parts, part{Type: kind, Content: truncate(p.Text, maxText)})
		}
	}
}

func marshal(all []message) string {
	text, err := json.Marshal(all)
	if err != nil {
		return "" // cannot happen: a message contains only strings
	}
	return string(text)
}
