package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// request is what the script reads of a chat completion.
type request struct {
	Model         string    `json:"model"`
	Messages      []message `json:"messages"`
	Tools         []offered `json:"tools"`
	ToolChoice    choice    `json:"tool_choice"`
	Stream        bool      `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	N                   *int `json:"n"`
}

type message struct {
	Role       string  `json:"role"`
	Content    content `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []call  `json:"tool_calls"`
}

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type offered struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Annotations struct {
			ReadOnlyHint bool `json:"readOnlyHint"`
		} `json:"annotations"` // hints of the tool's source; absent: it may write
	} `json:"function"`
}

// content is the text of a message, written as a string or as parts.
type content string

// UnmarshalJSON takes a string, null, or a list of parts, whose texts are
// joined.
func (c *content) UnmarshalJSON(data []byte) error {
	var parts []struct {
		Text string `json:"text"`
	}
	if data[0] != '[' {
		return json.Unmarshal(data, (*string)(c))
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*c += content(p.Text)
	}
	return nil
}

// choice is how the tools may be used.
type choice struct {
	mode    string // "", none, auto, required or function
	name    string // for function
	allowed []string
}

// UnmarshalJSON takes a word, a named function, or a list of allowed tools.
func (c *choice) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, &c.mode)
	}
	type named struct {
		Name string `json:"name"`
	}
	var o struct {
		Type     string `json:"type"`
		Function named  `json:"function"`
		Allowed  struct {
			Mode  string `json:"mode"`
			Tools []struct {
				Function named `json:"function"`
			} `json:"tools"`
		} `json:"allowed_tools"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	c.mode, c.name = o.Type, o.Function.Name
	if o.Type == "allowed_tools" {
		c.mode = o.Allowed.Mode
		for _, t := range o.Allowed.Tools {
			c.allowed = append(c.allowed, t.Function.Name)
		}
	}
	return nil
}

func decode(body []byte) (*request, error) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, decodeError(err)
	}
	switch {
	case r.Model == "":
		return nil, invalid("model", "you must provide a model parameter")
	case len(r.Messages) == 0:
		return nil, invalid("messages", "messages must hold at least one message")
	case r.N != nil && *r.N != 1:
		return nil, invalid("n", "the demo model gives one choice")
	}
	if err := checkMessages(r.Messages); err != nil {
		return nil, err
	}
	if err := checkTools(&r); err != nil {
		return nil, err
	}
	return &r, nil
}

func decodeError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return invalid(wrong.Field, fmt.Sprintf("invalid type for '%s': found %s", wrong.Field, wrong.Value))
	}
	return invalid("", "we could not parse the JSON body of your request: "+err.Error())
}

// checkMessages is as strict as the real service about calls and results: each
// call is answered right after its turn, and nothing else is.
func checkMessages(messages []message) error {
	open := map[string]int{} // ids may repeat
	for i, m := range messages {
		at := fmt.Sprintf("messages[%d]", i)
		switch m.Role {
		case "system", "developer", "user", "assistant", "tool", "function":
		default:
			return invalid(at+".role", fmt.Sprintf("invalid value: '%s'", m.Role))
		}
		if m.Role == "tool" {
			if open[m.ToolCallID] == 0 {
				return invalid(at, "messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
			}
			if open[m.ToolCallID]--; open[m.ToolCallID] == 0 {
				delete(open, m.ToolCallID)
			}
			continue
		}
		if len(open) > 0 {
			return unanswered(at)
		}
		for _, c := range m.ToolCalls {
			open[c.ID]++
		}
	}
	if len(open) > 0 {
		return unanswered("messages")
	}
	return nil
}

func unanswered(param string) error {
	return invalid(param, "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'")
}

func checkTools(r *request) error {
	for i, t := range r.Tools {
		if t.Type == "function" && t.Function.Name == "" {
			return invalid(fmt.Sprintf("tools[%d].function.name", i), "missing required parameter")
		}
	}
	c := r.ToolChoice
	switch c.mode {
	case "":
		return nil
	case "none", "auto", "required", "function":
	default:
		return invalid("tool_choice", fmt.Sprintf("invalid value: '%s'", c.mode))
	}
	if len(r.Tools) == 0 {
		return invalid("tool_choice", "'tool_choice' is only allowed when 'tools' are specified")
	}
	if c.mode == "function" && len(named(r.Tools, c.name)) == 0 {
		return invalid("tool_choice", fmt.Sprintf("tool choice '%s' not found in 'tools' parameter", c.name))
	}
	return nil
}

// named returns the offered functions of the given names; all for none.
func named(tools []offered, names ...string) []offered {
	var found []offered
	for _, t := range tools {
		if t.Type != "function" {
			continue
		}
		if len(names) == 0 || slices.Contains(names, t.Function.Name) {
			found = append(found, t)
		}
	}
	return found
}
