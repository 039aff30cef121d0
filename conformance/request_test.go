package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// chatRequest is a request to the upstream, as far as scripts and tests look.
type chatRequest struct {
	Model         string    `json:"model"`
	Messages      []message `json:"messages"`
	Tools         []offered `json:"tools"`
	Stream        bool      `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ResponseFormat json.RawMessage `json:"response_format"`
}

type offered struct {
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

type message struct {
	Role       string  `json:"role"`
	Content    content `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// content is a message's text, whether it came as a string, as parts or not.
type content string

// UnmarshalJSON accepts a string, a list of text parts and null.
func (c *content) UnmarshalJSON(data []byte) error {
	var parts []struct{ Text string }
	if json.Unmarshal(data, &parts) == nil {
		var text strings.Builder
		for _, part := range parts {
			text.WriteString(part.Text)
		}
		*c = content(text.String())
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("message content: %w", err)
	}
	*c = content(text)
	return nil
}

// offers reports whether the tool called name is among the request's tools.
func (r chatRequest) offers(name string) bool {
	return slices.ContainsFunc(r.Tools, func(o offered) bool { return o.Function.Name == name })
}

// results lists the texts of the tool messages, in order.
func (r chatRequest) results() []string {
	var texts []string
	for _, m := range r.Messages {
		if m.Role == "tool" {
			texts = append(texts, string(m.Content))
		}
	}
	return texts
}
