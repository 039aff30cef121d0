package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func dialect() providertest.Dialect {
	return providertest.Dialect{
		Decode: decoding(),
		Encode: func(req *model.Request) ([]byte, error) {
			return New(wire.Endpoint{BaseURL: "http://p"}, Options{}).encode(req, true), nil
		},
		Said:     said,
		Repeated: repeated,
		Request:  plainRequest,
		Meaning:  meaning,
	}
}

func TestRecordedAnswersAreRepeated(t *testing.T) { dialect().RepeatsAnswers(t, recordings(t)) } // P08

func TestRecordedRequestsAreWritten(t *testing.T) { dialect().WritesRequests(t, recordings(t)) } // M01, M05

// said returns the message of an answer; one that was streamed is put together
// from its deltas.
func said(t testing.TB, r recording) any {
	message := map[string]any{}
	lines := bufio.NewScanner(bytes.NewReader(r.Body))
	lines.Buffer(nil, len(r.Body)+1)
	for r.Streamed && lines.Scan() {
		data, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "data:")
		if ok && !strings.Contains(data, "[DONE]") {
			join(message, choice(t, []byte(data), "delta"))
		}
	}
	if !r.Streamed {
		message = choice(t, r.Body, "message")
	}
	return tidy(message)
}

// choice returns a member of the first choice, empty without one.
func choice(t testing.TB, data []byte, member string) map[string]any {
	choices, _ := providertest.Object(t, data)["choices"].([]any)
	if len(choices) == 0 {
		return nil
	}
	object, _ := choices[0].(map[string]any)[member].(map[string]any)
	return object
}

// join adds the members of a delta to a message.
func join(message, delta map[string]any) {
	for name, v := range delta {
		switch v := v.(type) {
		case string:
			have, _ := message[name].(string)
			if list, ok := message[name].([]any); ok { // parts, then strings
				message[name] = joinElement(list, map[string]any{"type": "text", "text": v})
				continue
			}
			switch name {
			case "role", "id", "type", "name", "format", "signature": // come whole, and may be repeated
				if v != "" {
					message[name] = v
				}
			default:
				message[name] = have + v
			}
		case []any:
			have, _ := message[name].([]any)
			for _, e := range v {
				have = joinElement(have, e.(map[string]any))
			}
			message[name] = have
		case map[string]any:
			have, _ := message[name].(map[string]any)
			if name != "function" {
				message[name] = v // the last one
				continue
			}
			if have == nil {
				have = map[string]any{}
				message[name] = have
			}
			join(have, v)
		default:
			message[name] = v
		}
	}
}

// joinElement adds an element to the one that it continues: that of the same index
// and type, or the last one if neither has an index and both are text.
func joinElement(list []any, e map[string]any) []any {
	for i := len(list) - 1; i >= 0; i-- {
		have := list[i].(map[string]any)
		same := e["type"] == nil || have["type"] == e["type"]
		if index, ok := e["index"]; ok && have["index"] == index && same {
			join(have, e)
			return list
		}
		if _, ok := e["index"]; !ok && i == len(list)-1 && same && (e["type"] == "text" || e["type"] == "thinking") {
			join(have, e)
			return list
		}
	}
	fresh := map[string]any{}
	join(fresh, e)
	return append(list, fresh)
}

// tidy removes from a message what says nothing, and what is not sent back.
func tidy(message map[string]any) map[string]any {
	delete(message, "channel")
	for name, v := range message {
		if list, ok := v.([]any); v == "" || ok && len(list) == 0 {
			delete(message, name)
		}
	}
	calls, _ := message["tool_calls"].([]any)
	for _, c := range calls {
		delete(c.(map[string]any), "index")
		c.(map[string]any)["type"] = "function"
	}
	message["role"] = "assistant"
	return message
}

func repeated(t testing.TB, body []byte) any {
	messages := providertest.Object(t, body)["messages"].([]any)
	if len(messages) != 2 {
		t.Fatalf("%d messages in %s", len(messages), body)
	}
	return tidy(messages[1].(map[string]any))
}

// plainRequest reads a recorded request.
func plainRequest(t testing.TB, r recording) *model.Request {
	var w struct {
		Model     string
		Messages  []plainMessage
		Tools     []struct{ Function plainFunction }
		Choice    json.RawMessage `json:"tool_choice"`
		MaxTokens int             `json:"max_tokens"`
		MaxNew    int             `json:"max_completion_tokens"`

		Temperature *float64
		P           *float64 `json:"top_p"`
		K           *int64   `json:"top_k"`
		Presence    *float64 `json:"presence_penalty"`
		Frequency   *float64 `json:"frequency_penalty"`
		Stop        []string
		Effort      string `json:"reasoning_effort"`
		Format      struct {
			Type   string
			Schema model.Format `json:"json_schema"`
		} `json:"response_format"`
	}
	if json.Unmarshal(r.Request.Body, &w) != nil || len(w.Messages) == 0 {
		return nil // not JSON, such as a file
	}
	req := &model.Request{Model: w.Model, MaxTokens: max(w.MaxTokens, w.MaxNew), Options: model.Options{
		Temperature: w.Temperature, TopP: w.P, TopK: w.K, PresencePenalty: w.Presence, FrequencyPenalty: w.Frequency,
		Stop: w.Stop, Effort: w.Effort, Format: w.Format.Schema,
	}}
	req.Format.Type = w.Format.Type
	for i, m := range w.Messages {
		items := m.items()
		if m.Role == item.Assistant {
			item.SetTurn(items, i+1)
		}
		req.Items = append(req.Items, items...)
	}
	for _, f := range w.Tools {
		req.Tools = append(req.Tools, model.Tool{Strict: f.Function.Strict, Definition: tool.Definition{Name: f.Function.Name, Description: f.Function.Description, InputSchema: f.Function.Parameters}})
	}
	var named struct{ Function plainFunction }
	if json.Unmarshal(w.Choice, &req.ToolChoice.Mode) != nil && json.Unmarshal(w.Choice, &named) == nil {
		req.ToolChoice = model.ToolChoice{Mode: "named", Name: named.Function.Name}
	}
	return req
}

type plainMessage struct {
	Role    item.Role
	Content json.RawMessage
	CallID  string `json:"tool_call_id"`
	Calls   []struct {
		ID       string
		Function plainFunction
	} `json:"tool_calls"`
}

type plainImage struct{ URL, Detail string }

// UnmarshalJSON reads an object, or the bare URL that Mistral allows.
func (i *plainImage) UnmarshalJSON(data []byte) error {
	type object plainImage
	if json.Unmarshal(data, &i.URL) == nil {
		return nil
	}
	return json.Unmarshal(data, (*object)(i))
}

type plainFunction struct {
	Name, Description, Arguments string
	Parameters                   json.RawMessage
	Strict                       *bool
}

func (m plainMessage) items() []item.Item {
	parts := m.parts()
	switch m.Role {
	case "tool":
		return []item.Item{{Kind: item.ToolResult, CallID: m.CallID, Parts: parts}}
	case item.Assistant:
		var items []item.Item
		if len(parts) > 0 || len(m.Calls) == 0 {
			items = append(items, item.Item{Kind: item.Message, Role: m.Role, Parts: parts})
		}
		for _, c := range m.Calls {
			items = append(items, item.NewCall(c.ID, c.Function.Name, c.Function.Arguments))
		}
		return items
	}
	return []item.Item{{Kind: item.Message, Role: m.Role, Parts: parts}}
}

func (m plainMessage) parts() []item.Part {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		if text == "" {
			return nil
		}
		return []item.Part{{Kind: item.Text, Text: text}}
	}
	var list []struct {
		Type, Text string
		Image      plainImage                    `json:"image_url"`
		Audio      struct{ Data, Format string } `json:"input_audio"`
		File       struct {
			Data string `json:"file_data"`
			Name string `json:"filename"`
		}
	}
	_ = json.Unmarshal(m.Content, &list)
	var parts []item.Part
	for _, p := range list {
		switch p.Type {
		case "text":
			parts = append(parts, item.Part{Kind: item.Text, Text: p.Text})
		case "image_url": // as bytes, which become a URL again
			mime, data, ok := item.DataURL(p.Image.URL)
			if ok {
				p.Image.URL = ""
			}
			parts = append(parts, item.Part{Kind: item.Image, URL: p.Image.URL, MIMEType: mime, Data: data, Detail: p.Image.Detail})
		case "input_audio":
			parts = append(parts, item.Part{Kind: item.Audio, Data: p.Audio.Data, MIMEType: "audio/" + p.Audio.Format})
		case "file":
			mime, data, ok := item.DataURL(p.File.Data)
			if !ok {
				data = p.File.Data
			}
			parts = append(parts, item.Part{Kind: item.File, MIMEType: mime, Data: data, Name: p.File.Name})
		}
	}
	return parts
}

// meaning returns the members of a request that all dialects share. The others of
// the recorded requests are settings of one provider, and how the answer comes.
func meaning(t testing.TB, body []byte) any {
	all, shared := providertest.Object(t, body), map[string]any{}
	for _, name := range []string{"model", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k",
		"presence_penalty", "frequency_penalty", "stop", "reasoning_effort", "response_format"} {
		if v, ok := all[name]; ok {
			shared[name] = v
		}
	}
	if limit, ok := all["max_completion_tokens"]; ok {
		shared["max_tokens"] = limit
	}
	if format, ok := shared["response_format"].(map[string]any); ok && format["json_schema"] != nil {
		if schema := format["json_schema"].(map[string]any); schema["name"] == nil {
			schema["name"] = "answer" // which OpenAI demands, and others do not
		}
	}
	tools, _ := shared["tools"].([]any)
	for _, f := range tools {
		f := f.(map[string]any)["function"].(map[string]any)
		if f["description"] == "" {
			delete(f, "description")
		}
	}
	var messages []any
	for _, m := range all["messages"].([]any) {
		messages = append(messages, messageMeaning(m.(map[string]any)))
	}
	shared["messages"] = messages
	return shared
}

func messageMeaning(m map[string]any) map[string]any {
	meant := map[string]any{"role": m["role"]}
	if m["role"] == "developer" {
		meant["role"] = "system"
	}
	switch content := m["content"].(type) {
	case string:
		if content != "" {
			meant["content"] = []any{map[string]any{"type": "text", "text": content}}
		}
	case []any:
		for _, p := range content {
			p := p.(map[string]any)
			if url, ok := p["image_url"].(string); ok { // as Mistral allows it
				p["image_url"] = map[string]any{"url": url}
			}
		}
		meant["content"] = content
	}
	for _, name := range []string{"tool_calls", "tool_call_id"} {
		if v, ok := m[name]; ok && m["role"] != "user" {
			meant[name] = v
		}
	}
	return meant
}
