package providertest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// chatSaid returns the message of an answer; one that was streamed is put together
// from its deltas.
func chatSaid(t testing.TB, r providertest.Recording) any {
	if !r.Streamed {
		return chatTidy(chatChoice(t, r.Body, "message"))
	}
	message := map[string]any{}
	dataLines(r, func(data []byte) {
		if !bytes.Contains(data, []byte("[DONE]")) {
			chatJoin(message, chatChoice(t, data, "delta"))
		}
	})
	return chatTidy(message)
}

// chatChoice returns a member of the first choice, empty without one.
func chatChoice(t testing.TB, data []byte, member string) map[string]any {
	choices, _ := providertest.Object(t, data)["choices"].([]any)
	if len(choices) == 0 {
		return nil
	}
	object, _ := choices[0].(map[string]any)[member].(map[string]any)
	return object
}

// chatJoin adds the members of a delta to a message.
func chatJoin(message, delta map[string]any) {
	for name, v := range delta {
		switch v := v.(type) {
		case string:
			have, _ := message[name].(string)
			if list, ok := message[name].([]any); ok { // parts, then strings
				message[name] = chatJoinElement(list, map[string]any{"type": "text", "text": v})
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
				have = chatJoinElement(have, e.(map[string]any))
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
			chatJoin(have, v)
		default:
			message[name] = v
		}
	}
}

// chatJoinElement adds an element to the one that it continues: that of the same index
// and type, or the last one if neither has an index and both are text.
func chatJoinElement(list []any, e map[string]any) []any {
	for i := len(list) - 1; i >= 0; i-- {
		have := list[i].(map[string]any)
		same := e["type"] == nil || have["type"] == e["type"]
		if index, ok := e["index"]; ok && have["index"] == index && same {
			chatJoin(have, e)
			return list
		}
		if _, ok := e["index"]; !ok && i == len(list)-1 && same && (e["type"] == "text" || e["type"] == "thinking") {
			chatJoin(have, e)
			return list
		}
	}
	fresh := map[string]any{}
	chatJoin(fresh, e)
	return append(list, fresh)
}

// chatTidy removes from a message what says nothing, and what is not sent back.
func chatTidy(message map[string]any) map[string]any {
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

func chatRepeated(t testing.TB, body []byte) any { return chatTidy(twoMessages(t, body)) }

// chatPlainRequest reads a recorded request.
func chatPlainRequest(t testing.TB, r providertest.Recording) *model.Request {
	var w struct {
		Model     string
		Messages  []chatMessage
		Tools     []struct{ Function chatFunction }
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
		req.Items = append(req.Items, turned(m.items(), m.Role, i+1)...)
	}
	for _, f := range w.Tools {
		req.Tools = append(req.Tools, offered(f.Function.Name, f.Function.Description, f.Function.Parameters, f.Function.Strict))
	}
	var named struct{ Function chatFunction }
	if json.Unmarshal(w.Choice, &req.ToolChoice.Mode) != nil && json.Unmarshal(w.Choice, &named) == nil {
		req.ToolChoice = model.ToolChoice{Mode: "named", Name: named.Function.Name}
	}
	return req
}

type chatMessage struct {
	Role    item.Role
	Content json.RawMessage
	CallID  string `json:"tool_call_id"`
	Calls   []struct {
		ID       string
		Function chatFunction
	} `json:"tool_calls"`
}

type chatImage struct{ URL, Detail string }

// UnmarshalJSON reads an object, or the bare URL that Mistral allows.
func (i *chatImage) UnmarshalJSON(data []byte) error {
	type object chatImage
	if json.Unmarshal(data, &i.URL) == nil {
		return nil
	}
	return json.Unmarshal(data, (*object)(i))
}

type chatFunction struct {
	Name, Description, Arguments string
	Parameters                   json.RawMessage
	Strict                       *bool
}

func (m chatMessage) items() []item.Item {
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

func (m chatMessage) parts() []item.Part {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		if text == "" {
			return nil
		}
		return []item.Part{{Kind: item.Text, Text: text}}
	}
	var list []struct {
		Type, Text string
		Image      chatImage                     `json:"image_url"`
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

// chatMeaning returns the members of a request that all dialects share. The others of
// the recorded requests are settings of one provider, and how the answer comes.
func chatMeaning(t testing.TB, body []byte) any {
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
		messages = append(messages, chatMessageMeaning(m.(map[string]any)))
	}
	shared["messages"] = messages
	return shared
}

func chatMessageMeaning(m map[string]any) map[string]any {
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

func chatDialect() dialect {
	const tooLong = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
	return dialect{
		name: model.DialectChat, recordings: []string{"openai-chat", "openai-compat"},
		open: func(e wire.Endpoint) model.Model { return openai.New(e, openai.Options{}) },
		suites: []providertest.Adapter{
			{Column: providertest.Compatible, Model: "some-model", TooLong: tooLong, Lenient: true},
			{Column: providertest.OpenAI, Model: "gpt-5", TooLong: tooLong, New: func(e wire.Endpoint) model.Model {
				at := wire.Endpoint{BaseURL: "https://api.openai.com/v1", Transport: redirect{e}, Silence: e.Silence}
				return openai.New(at, openai.Options{}) // OpenAI itself is known by its host
			}},
		},
		usage: func(u usage) model.Usage {
			used := model.Usage{
				Input: u.Input, Output: u.Output, Total: u.Total, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning,
			}
			if u.Beside || u.Reasoning > u.Output {
				used.Output += u.Reasoning
				used.Total = max(used.Total, used.Input+used.Output)
			}
			return used
		},
		own: func(t *testing.T, _ providertest.Recording, turn *model.Turn) {
			if native := turn.Items[0].Native.JSON; !json.Valid(native) {
				t.Errorf("native is no JSON: %s", native)
			}
		},
		said: chatSaid, repeated: chatRepeated, request: chatPlainRequest, meaning: chatMeaning,
		loops: []string{
			"fantasy-open-aicommon-openai-gpt-5-multi-tool",
			"fantasy-open-aicommon-openai-gpt-5-multi-tool-streaming",
			"fantasy-vercel-common-gpt-5-multi-tool-streaming",
			"fantasy-vercel-thinking-claude-sonnet-4-thinking-streaming",
			"fantasy-vercel-thinking-claude-sonnet-4-sig-thinking",
		},
		resumed: func(t testing.TB, second []byte, turn *model.Turn) []item.Item {
			items := turn.Items
			for _, m := range chatLoosely(t, second).([]map[string]any) {
				if m["role"] == "tool" {
					items = append(items, item.NewResult(m["tool_call_id"].(string), m["content"].(string), false))
				}
			}
			return items
		},
		loosely: chatLoosely,
	}
}

// chatLoosely returns the messages of the model and the results without what the recorded client left to itself:
// an empty content, and the vendor's metadata.
func chatLoosely(t testing.TB, body []byte) any {
	var all []map[string]any
	for _, m := range providertest.Object(t, body)["messages"].([]any) {
		m := m.(map[string]any)
		if m["content"] == "" {
			delete(m, "content")
		}
		delete(m, "provider_metadata")
		if m["role"] == "assistant" || m["role"] == "tool" {
			all = append(all, m)
		}
	}
	return all
}

// redirect sends requests for OpenAI to the fake provider.
type redirect struct{ e wire.Endpoint }

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(r.e.BaseURL)
	if err != nil {
		return nil, err
	}
	if req.URL.Host != "api.openai.com" {
		return nil, fmt.Errorf("a request for %s", req.URL)
	}
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = to.Scheme, to.Host, to.Host
	return r.e.Transport.RoundTrip(req)
}

// What a provider accepted goes out as it was.
func TestRecordedMessagesGoBackUnchanged(t *testing.T) { // M01
	type recorded struct{ Messages, Tools []json.RawMessage }
	d := chatDialect()
	for _, r := range providertest.Recordings(t, d.recordings...) {
		var want, got recorded
		if json.Unmarshal(r.Request.Body, &want) != nil || len(want.Messages) == 0 {
			continue // one that is not JSON, such as a file
		}
		req := &model.Request{Model: "m", Dialect: model.DialectChat}
		for _, m := range want.Messages {
			native := item.Native{Dialect: model.DialectChat, JSON: m}
			req.Items = append(req.Items, item.Item{Kind: item.Message, Role: item.User, Native: native})
		}
		for _, one := range want.Tools {
			req.Tools = append(req.Tools, model.Tool{Native: one})
		}
		body, err := d.encode(req)
		if err = errors.Join(err, json.Unmarshal(body, &got)); err != nil {
			t.Fatal(r.Name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(r.Name, diff)
		}
	}
}
