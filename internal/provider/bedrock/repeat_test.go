package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

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
			return New(wire.Endpoint{BaseURL: "http://p"}, Options{}).encode(req)
		},
		Said:     said,
		Repeated: repeated,
		Request:  plainRequest,
		Meaning:  meaning,
	}
}

// What the API said goes back to it, block by block.
func TestRecordedAnswersAreRepeated(t *testing.T) { dialect().RepeatsAnswers(t, recordings(t)) } // M05 P08

func TestRecordedRequestsAreWritten(t *testing.T) { dialect().WritesRequests(t, recordings(t)) } // M04 M05

// recordedEvent is a message of a recorded event stream.
type recordedEvent struct {
	name string
	data map[string]any
}

func recordedEvents(t testing.TB, body []byte) []recordedEvent {
	t.Helper()
	var all []recordedEvent
	r, d := bytes.NewReader(body), eventstream.NewDecoder()
	for {
		m, err := d.Decode(r, nil)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recordedEvent{m.Headers.Get(":event-type").String(), providertest.Object(t, m.Payload)})
	}
}

// said returns the blocks of an answer; those of a stream are put together from their
// events. A text without characters is not said, and a call has no type in requests.
func said(t testing.TB, r providertest.Recording) any {
	var blocks []any
	if r.Streamed {
		blocks = joinedBlocks(t, r)
	} else {
		message := providertest.Object(t, r.Body)["output"].(map[string]any)["message"].(map[string]any)
		blocks = message["content"].([]any)
	}
	var kept []any
	for _, b := range blocks {
		b := b.(map[string]any)
		if call, ok := b["toolUse"].(map[string]any); ok && call["type"] == "tool_use" {
			delete(call, "type")
		}
		if b["text"] != "" {
			kept = append(kept, b)
		}
	}
	return kept
}

func joinedBlocks(t testing.TB, r providertest.Recording) []any {
	var order []string
	blocks := map[string]map[string]any{}
	at := func(e recordedEvent) map[string]any {
		index := string(e.data["contentBlockIndex"].(json.Number))
		if blocks[index] == nil {
			blocks[index] = map[string]any{}
			order = append(order, index)
		}
		return blocks[index]
	}
	for _, e := range recordedEvents(t, r.Body) {
		switch e.name {
		case "contentBlockStart":
			for name, v := range e.data["start"].(map[string]any) {
				at(e)[name] = v
			}
		case "contentBlockDelta":
			addPiece(at(e), e.data["delta"].(map[string]any))
		}
	}
	var all []any
	for _, index := range order {
		b := blocks[index]
		if call, ok := b["toolUse"].(map[string]any); ok {
			call["input"] = providertest.Object(t, []byte(call["input"].(string)))
		}
		all = append(all, b)
	}
	return all
}

// addPiece adds a delta to its block.
func addPiece(block, piece map[string]any) {
	extend := func(object map[string]any, name string, more any) {
		have, _ := object[name].(string)
		object[name] = have + more.(string)
	}
	member := func(object map[string]any, name string) map[string]any {
		if object[name] == nil {
			object[name] = map[string]any{}
		}
		return object[name].(map[string]any)
	}
	for name, v := range piece {
		switch name {
		case "text":
			extend(block, "text", v)
		case "toolUse":
			extend(block["toolUse"].(map[string]any), "input", v.(map[string]any)["input"])
		case "toolResult":
			member(block, "toolResult")["content"] = v
		case "citation":
			cited := member(block, "citationsContent")
			have, _ := cited["citations"].([]any)
			cited["citations"] = append(have, v)
		case "reasoningContent":
			for kind, text := range v.(map[string]any) {
				if kind == "redactedContent" {
					extend(member(block, name), kind, text)
				} else {
					extend(member(member(block, name), "reasoningText"), kind, text)
				}
			}
		}
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

// plainBlock is a block of content.
type plainBlock struct {
	Text  *string
	Image *struct {
		Format string
		Source struct{ Bytes string }
	}
	ToolUse *struct {
		ID, Name, Type string
		ToolUseID      string `json:"toolUseId"`
		Input          json.RawMessage
	} `json:"toolUse"`
	ToolResult *struct {
		ToolUseID string `json:"toolUseId"`
		Status    string
		Type      string
		Content   []plainBlock
	} `json:"toolResult"`
	Reasoning  json.RawMessage `json:"reasoningContent"`
	CachePoint json.RawMessage `json:"cachePoint"`
}

// plainRequest reads a recorded request; nil for one with tools that the API runs itself,
// guardrails and files of S3, which no other dialect has.
func plainRequest(t testing.TB, r providertest.Recording) *model.Request {
	for _, own := range []string{"systemTool", "guardContent", "s3Location"} {
		if bytes.Contains(r.Request.Body, []byte(own)) {
			return nil
		}
	}
	var w struct {
		System   []plainBlock
		Messages []struct {
			Role    item.Role
			Content []plainBlock
		}
		Inference struct {
			MaxTokens   int      `json:"maxTokens"`
			Temperature *float64 `json:"temperature"`
		} `json:"inferenceConfig"`
		Tools struct {
			Tools []struct {
				Spec struct {
					Name, Description string
					InputSchema       struct{ JSON json.RawMessage } `json:"inputSchema"`
				} `json:"toolSpec"`
			}
			Choice map[string]struct{ Name string } `json:"toolChoice"`
		} `json:"toolConfig"`
		Output struct {
			Format struct {
				Structure struct {
					Schema struct{ Schema, Name string } `json:"jsonSchema"`
				}
			} `json:"textFormat"`
		} `json:"outputConfig"`
	}
	if err := json.Unmarshal(r.Request.Body, &w); err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(r.Request.Path, "/model/"), "/")
	name, err := url.PathUnescape(name)
	if err != nil {
		t.Fatal(err)
	}
	req := &model.Request{Model: name, MaxTokens: w.Inference.MaxTokens, Options: model.Options{Temperature: w.Inference.Temperature}}
	for _, b := range w.System {
		if b.Text != nil {
			req.Items = append(req.Items, item.NewText(item.System, *b.Text))
		}
	}
	for i, m := range w.Messages {
		items := plainItems(m.Role, m.Content)
		if m.Role == item.Assistant {
			item.SetTurn(items, i+1)
		}
		req.Items = append(req.Items, items...)
	}
	for _, f := range w.Tools.Tools {
		req.Tools = append(req.Tools, model.Tool{Definition: tool.Definition{Name: f.Spec.Name, Description: f.Spec.Description, InputSchema: f.Spec.InputSchema.JSON}})
	}
	for kind, chosen := range w.Tools.Choice {
		modes := map[string]model.ToolChoiceMode{"auto": model.ChooseAuto, "any": model.ChooseRequired, "tool": model.ChooseNamed}
		req.ToolChoice = model.ToolChoice{Mode: modes[kind], Name: chosen.Name}
	}
	if s := w.Output.Format.Structure.Schema; s.Schema != "" {
		req.Format = model.Format{Type: "json_schema", Name: s.Name, Schema: json.RawMessage(s.Schema)}
	}
	return req
}

// plainItems returns a message as items. Parts of a user become one message each.
func plainItems(role item.Role, list []plainBlock) []item.Item {
	var items []item.Item
	for _, b := range list {
		switch {
		case b.ToolUse != nil:
			items = append(items, item.NewCall(b.ToolUse.ToolUseID, b.ToolUse.Name, string(b.ToolUse.Input)))
		case b.ToolResult != nil:
			result := item.Item{Kind: item.ToolResult, CallID: b.ToolResult.ToolUseID, IsError: b.ToolResult.Status == "error"}
			for _, part := range b.ToolResult.Content {
				result.Parts = append(result.Parts, part.part())
			}
			items = append(items, result)
		case b.Text != nil || b.Image != nil:
			items = append(items, item.Item{Kind: item.Message, Role: role, Parts: []item.Part{b.part()}})
		}
	}
	return items
}

func (b plainBlock) part() item.Part {
	if b.Image != nil {
		return item.Part{Kind: item.Image, MIMEType: "image/" + b.Image.Format, Data: b.Image.Source.Bytes}
	}
	return item.Part{Kind: item.Text, Text: *b.Text}
}

// meaning returns a request without empty members, cache points, thinking, and the
// reasoning, which only its own provider gets back.
func meaning(t testing.TB, body []byte) any {
	all := providertest.Object(t, body)
	for name, v := range all {
		switch v := v.(type) {
		case []any:
			if len(v) == 0 {
				delete(all, name)
			}
		case map[string]any:
			if len(v) == 0 || name == "additionalModelRequestFields" {
				delete(all, name)
			}
		}
	}
	for _, list := range []string{"system", "messages"} {
		messages, _ := all[list].([]any)
		for i, m := range messages {
			if content, ok := m.(map[string]any)["content"].([]any); ok {
				m.(map[string]any)["content"] = plainContent(content)
			} else if m.(map[string]any)["cachePoint"] != nil {
				all[list] = messages[:i]
			}
		}
	}
	return all
}

func plainContent(content []any) []any {
	var kept []any
	for _, b := range content {
		b := b.(map[string]any)
		if b["reasoningContent"] != nil || b["cachePoint"] != nil {
			continue
		}
		if result, ok := b["toolResult"].(map[string]any); ok && result["status"] == "success" {
			delete(result, "status") // as without one
		}
		kept = append(kept, b)
	}
	return kept
}

// Bytes of redacted reasoning that come in pieces are one block.
func TestRedactedReasoningInPieces(t *testing.T) { // P08
	secret := []byte("only the provider can read this")
	stream := concat(
		frame("messageStart", `{"role":"assistant"}`),
		frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"`+base64.StdEncoding.EncodeToString(secret[:10])+`"}}}`),
		frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"`+base64.StdEncoding.EncodeToString(secret[10:])+`"}}}`),
		frame("contentBlockStop", `{"contentBlockIndex":0}`),
		frame("messageStop", `{"stopReason":"end_turn"}`),
	)
	got := decoding().Run(bytes.NewReader(stream)).Turn
	want := `{"reasoningContent":{"redactedContent":"` + base64.StdEncoding.EncodeToString(secret) + `"}}`
	if len(got.Items) != 1 || string(got.Items[0].Native.JSON) != want {
		t.Errorf("%+v", got.Items)
	}
}
