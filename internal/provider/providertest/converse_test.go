package providertest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/turnpike-gateway/turnpike/internal/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// converseEvent is a message of a recorded event stream.
type converseEvent struct {
	name string
	data map[string]any
}

func converseRecordedEvents(t testing.TB, body []byte) (all []converseEvent) {
	for _, m := range frames(t, body) {
		all = append(all, converseEvent{m.Headers.Get(":event-type").String(), providertest.Object(t, m.Payload)})
	}
	return all
}

// frames returns the messages of an AWS event stream.
func frames(t testing.TB, body []byte) (all []eventstream.Message) {
	t.Helper()
	r, d := bytes.NewReader(body), eventstream.NewDecoder()
	for {
		m, err := d.Decode(r, nil)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

// converseSaid returns the blocks of an answer; those of a stream are put together from their
// events. A text without characters is not said, and a call has no type in requests.
func converseSaid(t testing.TB, r providertest.Recording) any {
	var blocks []any
	if r.Streamed {
		blocks = converseJoinedBlocks(t, r)
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

func converseJoinedBlocks(t testing.TB, r providertest.Recording) []any {
	var order []string
	blocks := map[string]map[string]any{}
	at := func(e converseEvent) map[string]any {
		index := string(e.data["contentBlockIndex"].(json.Number))
		if blocks[index] == nil {
			blocks[index] = map[string]any{}
			order = append(order, index)
		}
		return blocks[index]
	}
	for _, e := range converseRecordedEvents(t, r.Body) {
		switch e.name {
		case "contentBlockStart":
			for name, v := range e.data["start"].(map[string]any) {
				at(e)[name] = v
			}
		case "contentBlockDelta":
			converseAddPiece(at(e), e.data["delta"].(map[string]any))
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

// converseAddPiece adds a delta to its block.
func converseAddPiece(block, piece map[string]any) {
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

// converseRepeated returns the blocks of the assistant's message.
func converseRepeated(t testing.TB, body []byte) any { return twoMessages(t, body)["content"] }

// converseBlock is a block of content.
type converseBlock struct {
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
		Content   []converseBlock
	} `json:"toolResult"`
	Reasoning  json.RawMessage `json:"reasoningContent"`
	CachePoint json.RawMessage `json:"cachePoint"`
}

// conversePlainRequest reads a recorded request; nil for one with tools that the API runs itself,
// guardrails and files of S3, which no other dialect has.
func conversePlainRequest(t testing.TB, r providertest.Recording) *model.Request {
	for _, own := range []string{"systemTool", "guardContent", "s3Location"} {
		if bytes.Contains(r.Request.Body, []byte(own)) {
			return nil
		}
	}
	var w struct {
		System   []converseBlock
		Messages []struct {
			Role    item.Role
			Content []converseBlock
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
		req.Items = append(req.Items, turned(conversePlainItems(m.Role, m.Content), m.Role, i+1)...)
	}
	for _, f := range w.Tools.Tools {
		req.Tools = append(req.Tools, offered(f.Spec.Name, f.Spec.Description, f.Spec.InputSchema.JSON, nil))
	}
	for kind, chosen := range w.Tools.Choice {
		req.ToolChoice = model.ToolChoice{Mode: choiceModes()[kind], Name: chosen.Name}
	}
	if s := w.Output.Format.Structure.Schema; s.Schema != "" {
		req.Format = model.Format{Type: "json_schema", Name: s.Name, Schema: json.RawMessage(s.Schema)}
	}
	return req
}

// conversePlainItems returns a message as items. Parts of a user become one message each.
func conversePlainItems(role item.Role, list []converseBlock) []item.Item {
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

func (b converseBlock) part() item.Part {
	if b.Image != nil {
		return item.Part{Kind: item.Image, MIMEType: "image/" + b.Image.Format, Data: b.Image.Source.Bytes}
	}
	return item.Part{Kind: item.Text, Text: *b.Text}
}

// converseMeaning returns a request without empty members, cache points, thinking, and the
// reasoning, which only its own provider gets back.
func converseMeaning(t testing.TB, body []byte) any {
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
				m.(map[string]any)["content"] = conversePlainContent(content)
			} else if m.(map[string]any)["cachePoint"] != nil {
				all[list] = messages[:i]
			}
		}
	}
	return all
}

func conversePlainContent(content []any) []any {
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

func converseDialect() dialect {
	signed := bedrock.Options{
		Region:      upstreamtest.AWSRegion,
		Credentials: bedrock.Static(upstreamtest.AWSAccessKeyID, upstreamtest.AWSSecretAccessKey, upstreamtest.AWSSessionToken),
	}
	suite := func(name string) providertest.Adapter {
		const tooLong = "The model returned the following errors: Input is too long for requested model."
		return providertest.Adapter{Column: providertest.Bedrock, Model: name, TooLong: tooLong}
	}
	return dialect{
		name: model.DialectBedrock, recordings: []string{"bedrock-converse"},
		open: func(e wire.Endpoint) model.Model { return bedrock.New(e, signed) },
		suites: []providertest.Adapter{
			suite("us.anthropic.claude-sonnet-4-5-20250929-v1:0"),                                             // thinks for a number of tokens
			suite("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-4-6-v1"), // decides by itself
		},
		usage: func(u usage) model.Usage { // the dialect's input has no cached tokens in it
			return model.Usage{
				Input: u.Input + u.CachedInput + u.CacheWrite, Output: u.Output, Total: u.Total, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite,
			}
		},
		own:  converseOwn,
		said: converseSaid, repeated: converseRepeated, request: conversePlainRequest, meaning: converseMeaning,
		loops: []string{
			"pydantic-bedrock-anthropic-tool-with-thinking",
			"pydantic-bedrock-model-with-code-execution-tool",
			"rubyllm-function-calling-bedrock-amazon-nova-2-lite-v1-0-can-handle-multiple-tool-ae0cb8",
		},
		loosely: func(t testing.TB, body []byte) any {
			return providertest.Object(t, body)["messages"].([]any)[1].(map[string]any)["content"]
		},
	}
}

// converseOwn checks signatures, and the blocks of the provider's own tools.
func converseOwn(t *testing.T, r providertest.Recording, turn *model.Turn) {
	checkSignatures(t, r.Expected, turn, func(native []byte) (string, bool) {
		var b struct {
			Content struct {
				Text     struct{ Signature string } `json:"reasoningText"`
				Redacted string                     `json:"redactedContent"`
			} `json:"reasoningContent"`
		}
		if err := json.Unmarshal(native, &b); err != nil {
			t.Fatal(err)
		}
		return b.Content.Text.Signature, b.Content.Redacted != ""
	})
	var others []item.Item
	for _, it := range providertest.OfKind(turn.Items, item.Other) {
		if providertest.Object(t, it.Native.JSON)["citationsContent"] == nil {
			others = append(others, it)
		}
	}
	checkHosted(t, r.Expected, others, func(native []byte, kind, id string) bool {
		if kind == "server_tool_use" {
			kind = "toolUse"
		}
		b, _ := providertest.Object(t, native)[kind].(map[string]any)
		return b["toolUseId"] == id
	})
}
