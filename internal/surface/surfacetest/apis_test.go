package surfacetest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
)

// api is a surface on which stories are played.
type api struct {
	name, path string
	errors     *surface.Errors
	// serve returns what answers requests, and what answers requests for stored answers; nil = none
	// is stored.
	serve func(responses.Options) (post, get surface.Endpoint)
	// body makes a request of a story's members, which are those of a chat request.
	body func(members string, f form) (string, error)
	// agree holds the two forms of one request against each other.
	agree func(t *testing.T, whole, streamed performance)
	// check holds the answer against the rules that have no exception.
	check func(t *testing.T, p performance)
}

// apis are the surfaces; every story is played on each. Chat is the first: its prompts and
// events are those of the story.
var apis = []api{
	{
		name: "chat", path: "/v1/chat/completions", errors: chat.Errors(), body: chatBody,
		serve: func(o responses.Options) (post, get surface.Endpoint) { return chat.New(o.Options).Serve, nil },
		agree: checkAgreement, check: func(*testing.T, performance) {},
	},
	{
		name: "responses", path: "/v1/responses", errors: responses.Errors(), body: responsesBody,
		serve: func(o responses.Options) (post, get surface.Endpoint) {
			h := responses.New(o)
			return h.Serve, h.Get
		},
		agree: checkResponses, check: checkResponse,
	},
}

// playedOn are the surfaces of a story.
func (s *story) playedOn() []api {
	return slices.DeleteFunc(slices.Clone(apis), func(a api) bool { return s.only != "" && s.only != a.name })
}

// chatBody is the story's members on top of the ones that every request has.
func chatBody(members string, f form) (string, error) {
	body := map[string]any{
		"model":    "scripted",
		"messages": []any{map[string]string{"role": "user", "content": "hi"}},
	}
	if f == asStream {
		body["stream"] = true
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	if strings.TrimSpace(members) != "" {
		if err := json.Unmarshal([]byte(members), &body); err != nil {
			return "", err
		}
	}
	out, err := json.Marshal(body)
	return string(out), err
}

// responsesBody says the same in the words of the Responses API.
func responsesBody(members string, f form) (string, error) {
	body := map[string]any{"model": "scripted", "input": "hi", "stream": f == asStream}
	var w struct {
		Messages []struct {
			Role, Content string
			ToolCallID    string `json:"tool_call_id"`
			ToolCalls     []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Tools      []struct{ Function map[string]any }
		ToolChoice any `json:"tool_choice"`
	}
	if strings.TrimSpace(members) != "" {
		if err := json.Unmarshal([]byte(members), &w); err != nil {
			return "", err
		}
	}
	var input []any
	for _, m := range w.Messages {
		if m.Role == "tool" {
			input = append(input, map[string]string{"type": "function_call_output", "call_id": m.ToolCallID, "output": m.Content})
			continue
		}
		if m.Content != "" || len(m.ToolCalls) == 0 {
			input = append(input, map[string]string{"role": m.Role, "content": m.Content})
		}
		for _, c := range m.ToolCalls {
			input = append(input, map[string]string{"type": "function_call", "call_id": c.ID, "name": c.Function.Name, "arguments": c.Function.Arguments})
		}
	}
	if input != nil {
		body["input"] = input
	}
	var tools []any
	for _, t := range w.Tools {
		t.Function["type"] = "function"
		tools = append(tools, t.Function)
	}
	if tools != nil {
		body["tools"] = tools
	}
	if w.ToolChoice != nil {
		body["tool_choice"] = w.ToolChoice
	}
	out, err := json.Marshal(body)
	return string(out), err
}
