package telemetry

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// What a span may hold of what was said, in bytes. A batch of 512 spans has to
// fit into the 64 MiB that an exporter sends at most.
const (
	maxName     = 128
	maxText     = 8 << 10  // one text
	maxMessages = 32 << 10 // all messages of a call: the last ones count
)

// short returns a name that somebody else has chosen, within bounds.
func short(name string) string { return cut(name, maxName) }

// cut returns at most so many bytes of the text, in whole characters.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// message is an entry of gen_ai.input.messages and gen_ai.output.messages.
type message struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

// part is one of text, reasoning, tool_call and tool_call_response.
type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Response  string `json:"response,omitempty"`
}

// messages returns the transcript as the conventions write it. Where it is too
// long, the earliest items are left out.
func messages(items []item.Item) string {
	var all []message
	size := 0
	for _, it := range slices.Backward(items) {
		m := messageOf(it)
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

func output(turn *model.Turn) string {
	m := messageOf(turn.Item)
	m.Role, m.Finish = string(item.Assistant), string(turn.Stop)
	return marshal([]message{m})
}

func messageOf(it item.Item) message {
	m := message{Role: string(it.Role), Parts: []part{}}
	if it.Role == item.Tool {
		m.Parts = append(m.Parts, part{Type: "tool_call_response", ID: it.CallID, Response: cut(it.Text(), maxText)})
		return m
	}
	for _, p := range it.Parts {
		if p.Text == "" {
			continue // what is no text is not shown
		}
		kind := "text"
		if p.Kind == item.Reasoning {
			kind = "reasoning"
		}
		m.Parts = append(m.Parts, part{Type: kind, Content: cut(p.Text, maxText)})
	}
	for _, c := range it.Calls {
		m.Parts = append(m.Parts, part{Type: "tool_call", ID: c.ID, Name: short(c.Name), Arguments: cut(c.Arguments, maxText)})
	}
	return m
}

func marshal(all []message) string {
	text, err := json.Marshal(all)
	if err != nil {
		return "" // strings cannot fail
	}
	return string(text)
}
