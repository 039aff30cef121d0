package providertest_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/gemini"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// geminiSaidParts returns the parts of an answer, with adjacent texts of a stream joined.
func geminiSaidParts(t testing.TB, r providertest.Recording) any {
	chunks := []map[string]any{}
	if !r.Streamed {
		chunks = append(chunks, providertest.Object(t, r.Body))
	} else {
		dataLines(r, func(data []byte) { chunks = append(chunks, providertest.Object(t, data)) })
	}
	var parts []any
	for _, c := range chunks {
		candidate := c["candidates"].([]any)[0].(map[string]any)
		content, _ := candidate["content"].(map[string]any)
		list, _ := content["parts"].([]any)
		for _, p := range list {
			p := p.(map[string]any)
			text, plain := p["text"].(string)
			plain = plain && p["thoughtSignature"] == nil
			if plain && text == "" {
				continue
			}
			if n := len(parts); plain && n > 0 {
				last := parts[n-1].(map[string]any)
				if have, ok := last["text"].(string); ok && last["thoughtSignature"] == nil && last["thought"] == p["thought"] {
					last["text"] = have + text
					continue
				}
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// geminiRepeated returns the parts of the model's content; nil = there is none.
func geminiRepeated(t testing.TB, body []byte) any {
	contents := providertest.Object(t, body)["contents"].([]any)
	var parts []any
	for _, c := range contents {
		if c := c.(map[string]any); c["role"] == "model" {
			parts = append(parts, c["parts"].([]any)...)
		}
	}
	return parts
}

// geminiPart is a part of a recorded request.
type geminiPart struct {
	Text         string
	InlineData   *struct{ MimeType, Data string }
	FileData     *struct{ MimeType, FileURI string }
	FunctionCall *struct {
		ID, Name string
		Args     json.RawMessage
	}
	FunctionResponse *struct {
		ID, Name string
		Response map[string]any
	}
	ToolCall json.RawMessage
}

// geminiPlainRequest reads a recorded request; nil for one with tools that the API runs
// itself, or with settings that no other dialect has.
func geminiPlainRequest(t testing.TB, r providertest.Recording) *model.Request {
	var w struct {
		SystemInstruction struct{ Parts []geminiPart }
		Contents          []struct {
			Role  string
			Parts []geminiPart
		}
		Tools []struct {
			FunctionDeclarations []struct {
				Name, Description    string
				Parameters           json.RawMessage
				ParametersJSONSchema json.RawMessage `json:"parameters_json_schema"`
			}
		}
		GenerationConfig struct {
			MaxOutputTokens    int
			ResponseJSONSchema json.RawMessage
		}
		SafetySettings []any
	}
	if err := json.Unmarshal(r.Request.Body, &w); err != nil {
		t.Fatal(err)
	}
	if w.SafetySettings != nil {
		return nil
	}
	name, _, _ := strings.Cut(path.Base(r.Request.Path), ":")
	req := &model.Request{Model: name, MaxTokens: w.GenerationConfig.MaxOutputTokens}
	if s := w.GenerationConfig.ResponseJSONSchema; s != nil {
		req.Format = model.Format{Type: "json_schema", Schema: s}
	}
	for _, p := range w.SystemInstruction.Parts {
		req.Items = append(req.Items, item.NewText(item.System, p.Text))
	}
	for _, set := range w.Tools {
		if set.FunctionDeclarations == nil {
			return nil
		}
		for _, f := range set.FunctionDeclarations {
			schema := f.ParametersJSONSchema
			if f.Parameters != nil {
				schema = json.RawMessage(geminiTypes().Replace(string(f.Parameters)))
			}
			req.Tools = append(req.Tools, offered(f.Name, f.Description, schema, nil))
		}
	}
	for i, c := range w.Contents {
		for _, p := range c.Parts {
			it, ok := p.item(c.Role)
			if !ok {
				return nil
			}
			if c.Role == "model" {
				it.Turn = i + 1
			}
			req.Items = append(req.Items, it)
		}
	}
	return req
}

// geminiTypes writes the types of the older form of schemas as JSON Schema does.
func geminiTypes() *strings.Replacer {
	return strings.NewReplacer(`"OBJECT"`, `"object"`, `"STRING"`, `"string"`, `"INTEGER"`, `"integer"`)
}

// item returns a part as an entry of the transcript.
func (p geminiPart) item(role string) (item.Item, bool) {
	part := item.Part{Kind: item.Text, Text: p.Text}
	switch {
	case p.ToolCall != nil:
		return item.Item{}, false
	case p.FunctionCall != nil:
		return item.NewCall(p.FunctionCall.ID, p.FunctionCall.Name, string(p.FunctionCall.Args)), true
	case p.FunctionResponse != nil:
		text, ok := p.FunctionResponse.Response["result"].(string)
		return item.NewResult(p.FunctionResponse.ID, text, false), ok
	case p.InlineData != nil:
		part = item.Part{Kind: item.Image, Data: p.InlineData.Data, MIMEType: p.InlineData.MimeType}
	case p.FileData != nil:
		part = item.Part{Kind: item.File, URL: p.FileData.FileURI, MIMEType: p.FileData.MimeType}
	}
	it := item.Item{Kind: item.Message, Role: item.User, Parts: []item.Part{part}}
	if role == "model" {
		it.Role = item.Assistant
	}
	return it, true
}

// geminiMeaning returns what a request means: without signatures, which only its own provider
// gets back, with one form of schemas and results, and without defaults.
func geminiMeaning(t testing.TB, body []byte) any {
	all := providertest.Object(t, []byte(strings.NewReplacer(
		`"parameters"`, `"parametersJsonSchema"`, `"parameters_json_schema"`, `"parametersJsonSchema"`, `"result":`, `"output":`,
		`"description": "",`, ``, `"description":"",`, ``,
	).Replace(geminiTypes().Replace(string(body)))))
	if system, ok := all["systemInstruction"].(map[string]any); ok {
		delete(system, "role")
	}
	for _, c := range all["contents"].([]any) {
		for _, p := range c.(map[string]any)["parts"].([]any) {
			delete(p.(map[string]any), "thoughtSignature")
		}
	}
	if c, ok := all["generationConfig"].(map[string]any); ok {
		delete(c, "responseModalities")
		delete(c, "thinkingConfig")
		if len(c) == 0 {
			delete(all, "generationConfig")
		}
	}
	delete(all, "toolConfig")
	return all
}

func geminiDialect() dialect {
	suite := func(name string) providertest.Adapter {
		const tooLong = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
		return providertest.Adapter{Column: providertest.Gemini, Model: name, TooLong: tooLong}
	}
	return dialect{
		name: model.DialectGemini, recordings: []string{"gemini"}, anyID: true,
		open: func(e wire.Endpoint) model.Model { return gemini.New(e, gemini.Options{}) },
		suites: []providertest.Adapter{
			suite("gemini-3-flash-preview"), // thinks at a level, and checks signatures
			suite("gemini-2.5-flash"),       // thinks for a number of tokens
		},
		usage: func(u usage) model.Usage { // thoughts, and the input of its own tools, count beside output and input
			return model.Usage{
				Input: u.Input + u.ToolUseInput, Output: u.Output + u.Reasoning, CachedInput: u.CachedInput, Reasoning: u.Reasoning, Total: u.Total,
			}
		},
		own:  geminiOwn,
		said: geminiSaidParts, repeated: geminiRepeated, request: geminiPlainRequest, meaning: geminiMeaning,
		loops: []string{
			"fantasy-google-common-vertex-gemini-2-5-flash-multi-tool",
			"fantasy-google-common-vertex-gemini-2-5-flash-multi-tool-streaming",
			"fantasy-google-thinking-gemini-2-5-pro-thinking-streaming",
			"rubyllm-tool-choice-and-calls-control-gemini-2-5-flash-respects-specific-tool-choice",
		},
		loosely: geminiLoosely,
	}
}

// geminiOwn checks the signatures of texts and of calls, and the parts of the provider's own tools.
func geminiOwn(t *testing.T, r providertest.Recording, turn *model.Turn) {
	signatures := func(items ...item.Item) (all []string) {
		for _, it := range items {
			for _, p := range jsonscan.Elements(it.Native.JSON) {
				if s := jsonscan.Text(jsonscan.Member(p, "thoughtSignature")); s != "" {
					all = append(all, s)
				}
			}
		}
		return all
	}
	said := slices.DeleteFunc(slices.Clone(turn.Items), func(it item.Item) bool {
		return it.Kind != item.Message && it.Kind != item.Reasoning
	})
	if got := signatures(said...); !slices.Equal(got, r.Expected.TextSignatures) {
		t.Errorf("signatures of texts %q, want %q", got, r.Expected.TextSignatures)
	}
	for i, it := range providertest.OfKind(turn.Items, item.ToolCall) {
		want := r.Expected.ToolCalls[i].Signature
		if got := signatures(it); len(got) == 1 != (want != "") || len(got) == 1 && got[0] != want {
			t.Errorf("signature of call %d: %q, want %q", i, got, want)
		}
	}
	checkHosted(t, r.Expected, providertest.OfKind(turn.Items, item.Other), func(native []byte, kind, _ string) bool {
		var parts []map[string]json.RawMessage
		return json.Unmarshal(native, &parts) == nil && len(parts) == 1 && parts[0][kind] != nil
	})
}

// geminiLoosely returns the parts of the answer without thoughts, which the recorded clients leave out, and
// without the ids that they made.
func geminiLoosely(t testing.TB, body []byte) any {
	var out []any
	contents := providertest.Object(t, body)["contents"].([]any)
	for _, p := range contents[1].(map[string]any)["parts"].([]any) {
		p := p.(map[string]any)
		if call, ok := p["functionCall"].(map[string]any); ok {
			delete(call, "id")
		}
		if p["thought"] == nil {
			out = append(out, p)
		}
	}
	return out
}
