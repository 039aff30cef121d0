package providertest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// messagesSaid returns the blocks of an answer; those of a stream are put together from
// their events.
func messagesSaid(t testing.TB, r providertest.Recording) any {
	if !r.Streamed {
		return providertest.Object(t, r.Body)["content"]
	}
	var blocks []any
	dataLines(r, func(data []byte) {
		switch event := providertest.Object(t, data); event["type"] {
		case "content_block_start":
			blocks = append(blocks, event["content_block"])
		case "content_block_delta":
			messagesAdd(blocks[len(blocks)-1].(map[string]any), event["delta"].(map[string]any))
		case "content_block_stop":
			messagesEnd(t, blocks[len(blocks)-1].(map[string]any))
		}
	})
	return blocks
}

// messagesAdd adds a delta to its block.
func messagesAdd(block, delta map[string]any) {
	switch delta["type"] {
	case "text_delta", "thinking_delta":
		name := strings.TrimSuffix(delta["type"].(string), "_delta")
		have, _ := block[name].(string)
		block[name] = have + delta[name].(string)
	case "signature_delta":
		block["signature"] = delta["signature"]
	case "citations_delta":
		have, _ := block["citations"].([]any)
		block["citations"] = append(have, delta["citation"])
	case "input_json_delta":
		have, _ := block["input"].(string)
		block["input"] = have + delta["partial_json"].(string)
	}
}

// messagesEnd reads an input that came in pieces.
func messagesEnd(t testing.TB, block map[string]any) {
	if text, ok := block["input"].(string); ok {
		if text == "" {
			text = "{}"
		}
		block["input"] = providertest.Object(t, []byte(text))
	}
}

// messagesRepeated returns the blocks of the assistant's message.
func messagesRepeated(t testing.TB, body []byte) any { return twoMessages(t, body)["content"] }

// messagesPlainRequest reads a recorded request; nil for one with tools that the API runs
// itself, which no other dialect has.
func messagesPlainRequest(t testing.TB, r providertest.Recording) *model.Request {
	var w struct {
		Model     string
		MaxTokens int `json:"max_tokens"`
		System    json.RawMessage
		Messages  []struct {
			Role    item.Role
			Content json.RawMessage
		}
		Tools []struct {
			Type, Name, Description string
			Schema                  json.RawMessage `json:"input_schema"`
		}
		Choice struct{ Type, Name string } `json:"tool_choice"`
	}
	if json.Unmarshal(r.Request.Body, &w) != nil {
		return nil
	}
	req := &model.Request{Model: w.Model, MaxTokens: w.MaxTokens}
	for _, b := range messagesBlocks(t, w.System) {
		req.Items = append(req.Items, item.NewText(item.System, b.Text))
	}
	for i, m := range w.Messages {
		req.Items = append(req.Items, turned(messagesPlainItems(t, m.Role, messagesBlocks(t, m.Content)), m.Role, i+1)...)
	}
	for _, f := range w.Tools {
		if f.Type != "" && f.Type != "custom" {
			return nil
		}
		req.Tools = append(req.Tools, offered(f.Name, f.Description, f.Schema, nil))
	}
	req.ToolChoice = model.ToolChoice{Mode: choiceModes()[w.Choice.Type], Name: w.Choice.Name}
	return req
}

// messagesBlock is a block of content.
type messagesBlock struct {
	Type, Text, ID, Name, Title string
	Input, Content              json.RawMessage
	ToolUseID                   string `json:"tool_use_id"`
	IsError                     bool   `json:"is_error"`
	Source                      struct {
		Type, Data, URL string
		MediaType       string `json:"media_type"`
	}
}

// messagesBlocks reads content: a text or blocks.
func messagesBlocks(t testing.TB, content json.RawMessage) []messagesBlock {
	t.Helper()
	var text string
	if content == nil || json.Unmarshal(content, &text) == nil {
		if text == "" {
			return nil
		}
		return []messagesBlock{{Type: "text", Text: text}}
	}
	var list []messagesBlock
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// messagesPlainItems returns a message as items. Parts of a user become one message.
func messagesPlainItems(t testing.TB, role item.Role, list []messagesBlock) []item.Item {
	var items []item.Item
	for _, b := range list {
		switch b.Type {
		case "tool_use":
			items = append(items, item.NewCall(b.ID, b.Name, string(b.Input)))
		case "tool_result":
			result := item.Item{Kind: item.ToolResult, CallID: b.ToolUseID, IsError: b.IsError}
			for _, part := range messagesBlocks(t, b.Content) {
				result.Parts = append(result.Parts, part.part())
			}
			items = append(items, result)
		case "text", "image", "document":
			items = append(items, item.Item{Kind: item.Message, Role: role, Parts: []item.Part{b.part()}})
		}
	}
	return items
}

func (b messagesBlock) part() item.Part {
	p := item.Part{URL: b.Source.URL, Data: b.Source.Data, MIMEType: b.Source.MediaType, Name: b.Title}
	switch b.Type {
	case "image":
		p.Kind = item.Image
	case "document":
		p.Kind = item.File
		if b.Source.Type == "text" {
			p.Data = base64.StdEncoding.EncodeToString([]byte(p.Data))
		}
	default:
		return item.Part{Kind: item.Text, Text: b.Text}
	}
	return p
}

// messagesMeaning returns the members of a request that all dialects share, without cache
// markers, and without the reasoning, which only its own provider gets back.
func messagesMeaning(t testing.TB, body []byte) any {
	all, shared := providertest.Object(t, body), map[string]any{}
	for _, name := range []string{"model", "max_tokens", "tools", "tool_choice"} {
		if v, ok := all[name]; ok && v != "" { // Vertex has the model in the path
			shared[name] = v
		}
	}
	if system := messagesBlockList(all["system"]); len(system) > 0 {
		shared["system"] = system
	}
	var messages []any
	for _, m := range all["messages"].([]any) {
		m := m.(map[string]any)
		messages = append(messages, map[string]any{"role": m["role"], "content": messagesBlockList(m["content"])})
	}
	shared["messages"] = messages
	tools, _ := shared["tools"].([]any)
	for _, f := range tools {
		f := f.(map[string]any)
		delete(f, "cache_control")
		delete(f, "type") // custom, as without one
		if f["description"] == "" {
			delete(f, "description")
		}
	}
	if choice, ok := shared["tool_choice"].(map[string]any); ok && choice["disable_parallel_tool_use"] == false {
		delete(choice, "disable_parallel_tool_use")
	}
	return shared
}

// messagesBlockList returns content as blocks.
func messagesBlockList(content any) []any {
	if text, ok := content.(string); ok {
		content = []any{map[string]any{"type": "text", "text": text}}
	}
	list, _ := content.([]any)
	var kept []any
	for _, b := range list {
		b := b.(map[string]any)
		if b["type"] == "thinking" || b["type"] == "redacted_thinking" {
			continue
		}
		delete(b, "cache_control")
		delete(b, "citations") // a setting that only this dialect has
		if b["type"] == "tool_result" {
			b["content"] = messagesBlockList(b["content"])
			if b["is_error"] == false {
				delete(b, "is_error")
			}
		}
		kept = append(kept, b)
	}
	return kept
}

func messagesDialect() dialect {
	suite := func(name string) providertest.Adapter {
		return providertest.Adapter{
			Column: providertest.Anthropic, Model: name, TooLong: "prompt is too long: 3333404 tokens > 200000 maximum",
		}
	}
	return dialect{
		name: model.DialectAnthropic, recordings: []string{"anthropic"},
		open: func(e wire.Endpoint) model.Model { return anthropic.New(e, anthropic.Options{}) },
		suites: []providertest.Adapter{
			suite("claude-sonnet-4-5"), // thinks for a number of tokens
			suite("claude-opus-4-6"),   // decides by itself how much it thinks
		},
		usage: func(u usage) model.Usage { // the dialect's input has no cached tokens in it
			in := u.Input + u.CachedInput + u.CacheWrite
			return model.Usage{
				Input: in, Output: u.Output, Total: in + u.Output, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning,
			}
		},
		own: func(t *testing.T, r providertest.Recording, turn *model.Turn) {
			type block struct{ Type, Signature string }
			read := func(native []byte) (b block) {
				if err := json.Unmarshal(native, &b); err != nil {
					t.Fatal(err)
				}
				return b
			}
			checkSignatures(t, r.Expected, turn, func(native []byte) (string, bool) {
				b := read(native)
				return b.Signature, b.Type == "redacted_thinking"
			})
			others := providertest.OfKind(turn.Items, item.Other)
			checkHosted(t, r.Expected, others, func(native []byte, kind, _ string) bool { return read(native).Type == kind })
		},
		said: messagesSaid, repeated: messagesRepeated, request: messagesPlainRequest, meaning: messagesMeaning,
		loops: []string{
			"fantasy-anthropic-thinking-claude-sonnet-4-thinking",
			"fantasy-anthropic-thinking-with-cache-control-claude-sonnet-4-thinking-streaming",
			"fantasy-anthropic-computer-use-claude-opus-4-6-computer-use",
		},
		loosely: messagesLoosely,
	}
}

// messagesLoosely returns the blocks of the answer without the cache marks of the recorded client, and without
// texts, which it leaves out.
func messagesLoosely(t testing.TB, body []byte) any {
	var out []any
	messages := providertest.Object(t, body)["messages"].([]any)
	for _, b := range messages[1].(map[string]any)["content"].([]any) {
		m := b.(map[string]any)
		delete(m, "cache_control")
		delete(m, "caller")
		if m["type"] != "text" {
			out = append(out, m)
		}
	}
	return out
}

// invokedDialect is that of the recordings of Claude behind InvokeModel of Bedrock, with their streams as the
// Messages API would have sent them: Bedrock wraps each event in base64 and a binary frame.
func invokedDialect() dialect {
	d := messagesDialect()
	d.recordings, d.suites, d.request, d.loops = []string{"bedrock-invoke"}, nil, nil, nil
	d.unwrap = func(t testing.TB, r *providertest.Recording) {
		r.Response.Headers = nil
		if !r.Streamed {
			return
		}
		var out bytes.Buffer
		for _, payload := range frames(t, r.Body) {
			var chunk struct{ Bytes []byte }
			if err := json.Unmarshal(payload.Payload, &chunk); err != nil {
				t.Fatal(err)
			}
			out.WriteString("data: " + string(chunk.Bytes) + "\n\n")
		}
		r.Body = out.Bytes()
	}
	return d
}
