package anthropic

import (
	"bytes"
	"encoding/base64"
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
			return New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{}).encode(req)
		},
		Said:     said,
		Repeated: repeated,
		Request:  plainRequest,
		Meaning:  meaning,
	}
}

// What the API said goes back to it, block by block.
func TestRecordedAnswersAreRepeated(t *testing.T) { dialect().RepeatsAnswers(t, recordings(t)) } // M05 P08

func TestRecordedRequestsAreWritten(t *testing.T) { dialect().WritesRequests(t, recordings(t)) } // M02 M05

// said returns the blocks of an answer; those of a stream are put together from
// their events.
func said(t testing.TB, r providertest.Recording) any {
	if !r.Streamed {
		return providertest.Object(t, r.Body)["content"]
	}
	var blocks []any
	for line := range bytes.Lines(r.Body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "data:")
		if !ok {
			continue
		}
		switch event := providertest.Object(t, []byte(data)); event["type"] {
		case "content_block_start":
			blocks = append(blocks, event["content_block"])
		case "content_block_delta":
			add(blocks[len(blocks)-1].(map[string]any), event["delta"].(map[string]any))
		case "content_block_stop":
			end(t, blocks[len(blocks)-1].(map[string]any))
		}
	}
	return blocks
}

// add adds a delta to its block.
func add(block, delta map[string]any) {
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

// end reads an input that came in pieces.
func end(t testing.TB, block map[string]any) {
	if text, ok := block["input"].(string); ok {
		if text == "" {
			text = "{}"
		}
		block["input"] = providertest.Object(t, []byte(text))
	}
}

// repeated returns the blocks of the assistant's message.
func repeated(t testing.TB, body []byte) any {
	messages := providertest.Object(t, body)["messages"].([]any)
	if len(messages) != 2 {
		t.Fatalf("%d messages in %s", len(messages), body)
	}
	return messages[1].(map[string]any)["content"]
}

// plainRequest reads a recorded request; nil for one with tools that the API runs
// itself, which no other dialect has.
func plainRequest(t testing.TB, r providertest.Recording) *model.Request {
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
	for _, b := range blocks(t, w.System) {
		req.Items = append(req.Items, item.NewText(item.System, b.Text))
	}
	for i, m := range w.Messages {
		items := plainItems(t, m.Role, blocks(t, m.Content))
		if m.Role == item.Assistant {
			item.SetTurn(items, i+1)
		}
		req.Items = append(req.Items, items...)
	}
	for _, f := range w.Tools {
		if f.Type != "" && f.Type != "custom" {
			return nil
		}
		req.Tools = append(req.Tools, model.Tool{Definition: tool.Definition{Name: f.Name, Description: f.Description, InputSchema: f.Schema}})
	}
	modes := map[string]model.ToolChoiceMode{"auto": model.ChooseAuto, "any": model.ChooseRequired, "tool": model.ChooseNamed, "none": model.ChooseNone}
	req.ToolChoice = model.ToolChoice{Mode: modes[w.Choice.Type], Name: w.Choice.Name}
	return req
}

// plainBlock is a block of content.
type plainBlock struct {
	Type, Text, ID, Name, Title string
	Input, Content              json.RawMessage
	ToolUseID                   string `json:"tool_use_id"`
	IsError                     bool   `json:"is_error"`
	Source                      struct {
		Type, Data, URL string
		MediaType       string `json:"media_type"`
	}
}

// blocks reads content: a text or blocks.
func blocks(t testing.TB, content json.RawMessage) []plainBlock {
	t.Helper()
	var text string
	if content == nil || json.Unmarshal(content, &text) == nil {
		if text == "" {
			return nil
		}
		return []plainBlock{{Type: "text", Text: text}}
	}
	var list []plainBlock
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// plainItems returns a message as items. Parts of a user become one message.
func plainItems(t testing.TB, role item.Role, list []plainBlock) []item.Item {
	var items []item.Item
	for _, b := range list {
		switch b.Type {
		case "tool_use":
			items = append(items, item.NewCall(b.ID, b.Name, string(b.Input)))
		case "tool_result":
			result := item.Item{Kind: item.ToolResult, CallID: b.ToolUseID, IsError: b.IsError}
			for _, part := range blocks(t, b.Content) {
				result.Parts = append(result.Parts, part.part())
			}
			items = append(items, result)
		case "text", "image", "document":
			items = append(items, item.Item{Kind: item.Message, Role: role, Parts: []item.Part{b.part()}})
		}
	}
	return items
}

func (b plainBlock) part() item.Part {
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

// meaning returns the members of a request that all dialects share, without cache
// markers, and without the reasoning, which only its own provider gets back.
func meaning(t testing.TB, body []byte) any {
	all, shared := providertest.Object(t, body), map[string]any{}
	for _, name := range []string{"model", "max_tokens", "tools", "tool_choice"} {
		if v, ok := all[name]; ok && v != "" { // Vertex has the model in the path
			shared[name] = v
		}
	}
	if system := blockList(all["system"]); len(system) > 0 {
		shared["system"] = system
	}
	var messages []any
	for _, m := range all["messages"].([]any) {
		m := m.(map[string]any)
		messages = append(messages, map[string]any{"role": m["role"], "content": blockList(m["content"])})
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

// blockList returns content as blocks.
func blockList(content any) []any {
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
			b["content"] = blockList(b["content"])
			if b["is_error"] == false {
				delete(b, "is_error")
			}
		}
		kept = append(kept, b)
	}
	return kept
}
