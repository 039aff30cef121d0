package providertest_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/openairesponses"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// responsesOutputs returns the output items of a recording that go back to the API: not
// reasoning of which nothing is known but an id.
func responsesOutputs(t testing.TB, r providertest.Recording) any {
	t.Helper()
	var list []map[string]any
	for _, raw := range responsesOutputsOf(t, r) {
		var in map[string]any
		if err := json.Unmarshal(raw, &in); err != nil {
			t.Fatal(err)
		}
		content, _ := in["content"].([]any)
		if in["type"] == "reasoning" && in["encrypted_content"] == nil && len(content) == 0 {
			continue
		}
		list = append(list, responsesPlain(in))
	}
	return list
}

// responsesRepeated returns the input items after the user's message.
func responsesRepeated(t testing.TB, body []byte) any {
	t.Helper()
	var list []map[string]any
	for _, in := range responsesInputOf(t, body)[1:] {
		list = append(list, responsesPlain(in))
	}
	return list
}

// responsesOutputsOf returns the output items of a recording, in the order of the answer:
// those of the ends of items in a stream.
func responsesOutputsOf(t testing.TB, r providertest.Recording) []json.RawMessage {
	t.Helper()
	if !r.Streamed {
		var whole struct{ Output []json.RawMessage }
		if err := json.Unmarshal(r.Body, &whole); err != nil {
			t.Fatal(err)
		}
		return whole.Output
	}
	var out []json.RawMessage
	dataLines(r, func(data []byte) {
		var e struct {
			Type  string
			Index int `json:"output_index"`
			Item  json.RawMessage
		}
		if json.Unmarshal(data, &e) != nil || e.Type != "response.output_item.done" {
			return
		}
		for len(out) <= e.Index {
			out = append(out, nil)
		}
		out[e.Index] = e.Item
	})
	return out
}

// responsesMeaning reads the members of a request that the recorded clients set, without
// those that the gateway decides.
func responsesMeaning(t testing.TB, body []byte) any {
	t.Helper()
	var r responsesBody
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	for i, in := range r.Input {
		r.Input[i] = responsesPlainly(in)
	}
	for _, tool := range r.Tools {
		if tool["description"] == nil {
			delete(tool, "description")
		}
		if tool["strict"] == nil {
			tool["strict"] = false // the gateway never leaves it to the provider
		}
	}
	return r
}

// responsesBody is a request body.
type responsesBody struct {
	Model           string
	Input           []map[string]any
	Tools           []map[string]any
	ToolChoice      any      `json:"tool_choice"`
	MaxOutputTokens int      `json:"max_output_tokens"`
	Temperature     *float64 `json:"temperature"`
	Text            *struct {
		Format struct {
			Type, Name string
			Schema     json.RawMessage
			Strict     *bool
		}
	}
}

// responsesPlainRequest reads a recorded request; nil for one with tools that the API runs
// itself, or with answers of the model, which TestRecordedToolLoops has.
func responsesPlainRequest(t testing.TB, recording providertest.Recording) *model.Request {
	t.Helper()
	var r responsesBody
	if err := json.Unmarshal(recording.Request.Body, &r); err != nil {
		t.Fatal(err)
	}
	req := &model.Request{Model: r.Model, MaxTokens: r.MaxOutputTokens, Options: model.Options{Temperature: r.Temperature}}
	choice, _ := r.ToolChoice.(string)
	req.ToolChoice.Mode = model.ToolChoiceMode(choice)
	for _, t := range r.Tools {
		if t["type"] != "function" {
			return nil
		}
		schema, _ := json.Marshal(t["parameters"])
		one := offered(t["name"].(string), "", schema, nil)
		one.Description, _ = t["description"].(string)
		if strict, ok := t["strict"].(bool); ok {
			one.Strict = &strict
		}
		req.Tools = append(req.Tools, one)
	}
	if r.Text != nil {
		f := r.Text.Format
		req.Format = model.Format{Type: f.Type, Name: f.Name, Schema: f.Schema, Strict: f.Strict}
	}
	for _, in := range r.Input {
		role, _ := in["role"].(string)
		if role == "" || role == "assistant" {
			return nil
		}
		message := item.Item{Kind: item.Message, Role: item.Role(role)}
		for _, p := range responsesPlainly(in)["content"].([]any) {
			message.Parts = append(message.Parts, responsesPartFrom(p.(map[string]any)))
		}
		req.Items = append(req.Items, message)
	}
	return req
}

func responsesPartFrom(p map[string]any) item.Part {
	of := func(name string) string {
		s, _ := p[name].(string)
		return s
	}
	switch p["type"] {
	case "input_image":
		return item.Part{Kind: item.Image, URL: of("image_url")}
	case "input_file":
		return item.Part{Kind: item.File, Data: of("file_data"), Name: of("filename")}
	}
	return item.Part{Kind: item.Text, Text: of("text")}
}

// responsesPlainly returns a message in the one form of the several that clients use.
func responsesPlainly(in map[string]any) map[string]any {
	out := maps.Clone(in)
	out["type"] = "message"
	if s, ok := in["content"].(string); ok {
		out["content"] = []any{map[string]any{"type": "input_text", "text": s}}
	}
	for _, p := range out["content"].([]any) {
		if part := p.(map[string]any); part["detail"] == "auto" {
			delete(part, "detail")
		}
	}
	return out
}

// responsesInputOf returns the input items of a request body.
func responsesInputOf(t testing.TB, body []byte) []map[string]any {
	t.Helper()
	var r struct{ Input []map[string]any }
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r.Input
}

// responsesPlain returns an input item without what tells nothing: empty lists, and the id
// and status of an item that the provider does not store.
func responsesPlain(in map[string]any) map[string]any {
	kind, _ := in["type"].(string)
	out := map[string]any{}
	for name, v := range in {
		list, isList := v.([]any)
		stored := kind == "message" || kind == "reasoning" || kind == "function_call"
		switch {
		case stored && (name == "id" || name == "status"), isList && len(list) == 0 && name != "summary":
			continue
		case name == "content" && isList:
			var parts []any
			for _, p := range list {
				parts = append(parts, responsesPlain(p.(map[string]any)))
			}
			v = parts
		}
		out[name] = v
	}
	return out
}

func responsesText(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	s, _ := content.([]any)[0].(map[string]any)["text"].(string)
	return s
}

// responsesASCII returns s with plain quotation marks: one recorded text was changed.
func responsesASCII(s string) string {
	for _, q := range [][2]string{{"’", "'"}, {"“", `"`}, {"”", `"`}} {
		s = string(bytes.ReplaceAll([]byte(s), []byte(q[0]), []byte(q[1])))
	}
	return s
}

func responsesDialect() dialect {
	return dialect{
		name: model.DialectResponses, recordings: []string{"openai-responses"},
		open: func(e wire.Endpoint) model.Model { return openairesponses.New(e) },
		suites: []providertest.Adapter{{
			Column: providertest.Responses, Model: "gpt-5",
			TooLong: "Your input exceeds the context window of this model. Please adjust your input and try again.",
		}},
		usage: func(u usage) model.Usage {
			return model.Usage{
				Input: u.Input, Output: u.Output, Total: u.Total, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning,
			}
		},
		own:  responsesOwn,
		said: responsesOutputs, repeated: responsesRepeated, request: responsesPlainRequest, meaning: responsesMeaning,
		loops: []string{
			"fantasy-open-airesponses-common-openai-gpt-4o-multi-tool-streaming",
			"pydantic-openai-responses-openai-responses-model-web-search-tool-stream",
			"pydantic-openai-responses-openai-responses-phase-streamed-on-part-start",
			"rubyllm-function-calling-xai-grok-4-1-fast-non-reasoning-can-handle-multiple-tool-ca14fe",
			"rubyllm-responses-protocol-dialects-with-azure-gpt-5-nano-round-trips-tool-calls",
		},
		resumed: responsesResumed,
		loosely: responsesLoosely,
	}
}

// responsesOwn compares the encrypted content. A stream has it twice, with different bytes: the vendor's SDK
// reads the last event, and the document says that the one at the end of the item is to be sent back.
func responsesOwn(t *testing.T, r providertest.Recording, turn *model.Turn) {
	type output struct {
		Type, ID  string
		Encrypted string `json:"encrypted_content"`
	}
	read := func(raw []byte) (o output) {
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	want := r.Expected
	if r.Streamed {
		want.ReasoningSignatures = nil
		for _, raw := range responsesOutputsOf(t, r) {
			if o := read(raw); o.Encrypted != "" {
				want.ReasoningSignatures = append(want.ReasoningSignatures, o.Encrypted)
			}
		}
		if len(want.ReasoningSignatures) != len(r.Expected.ReasoningSignatures) {
			t.Fatalf("%d items with encrypted content, want %d", len(want.ReasoningSignatures), len(r.Expected.ReasoningSignatures))
		}
	}
	checkSignatures(t, want, turn, func(native []byte) (string, bool) { return read(native).Encrypted, false })
	checkHosted(t, want, providertest.OfKind(turn.Items, item.Other), func(native []byte, kind, id string) bool {
		return read(native).Type == kind && read(native).ID == id
	})
}

// responsesResumed returns what came before the answer, the answer, and what came after it.
func responsesResumed(t testing.TB, second []byte, turn *model.Turn) (items []item.Item) {
	for _, in := range responsesInputOf(t, second) {
		role, _ := in["role"].(string)
		switch {
		case in["type"] == "function_call_output":
			items = append(items, item.NewResult(in["call_id"].(string), in["output"].(string), false))
		case role != "" && role != "assistant":
			items = append(items, item.NewText(item.Role(role), responsesText(in["content"])))
		case turn != nil:
			items = append(items, turn.Items...)
			turn = nil
		}
	}
	return items
}

// responsesLoosely returns the input in one of the forms that clients write it in.
func responsesLoosely(t testing.TB, body []byte) any {
	var all []map[string]any
	for _, in := range responsesInputOf(t, body) {
		out := responsesPlain(in)
		if role, ok := out["role"].(string); ok {
			out["type"], out["role"], out["content"] = "message", role, responsesASCII(responsesText(out["content"]))
		}
		if action, ok := out["action"].(map[string]any); ok {
			delete(action, "sources") // the recorded client drops them
		}
		all = append(all, out)
	}
	return all
}
