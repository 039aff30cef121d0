package gemini

import (
	"bytes"
	"encoding/json"
	"path"
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
			return New(wire.Endpoint{BaseURL: "http://p/v1beta"}, Options{}).encode(req)
		},
		Said:     saidParts,
		Repeated: repeated,
		Request:  plainRequest,
		Meaning:  meaning,
	}
}

// What the API said goes back to it, part by part.
func TestRecordedAnswersAreRepeated(t *testing.T) { dialect().RepeatsAnswers(t, recordings(t)) } // M03 P08

func TestRecordedRequestsAreWritten(t *testing.T) { dialect().WritesRequests(t, recordings(t)) } // M03

// saidParts returns the parts of an answer, with adjacent texts of a stream joined.
func saidParts(t testing.TB, r providertest.Recording) any {
	chunks := []map[string]any{}
	if !r.Streamed {
		chunks = append(chunks, providertest.Object(t, r.Body))
	} else {
		for line := range bytes.Lines(r.Body) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "data:"); ok {
				chunks = append(chunks, providertest.Object(t, []byte(data)))
			}
		}
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

// repeated returns the parts of the model's content; nil = there is none.
func repeated(t testing.TB, body []byte) any {
	contents := providertest.Object(t, body)["contents"].([]any)
	var parts []any
	for _, c := range contents {
		if c := c.(map[string]any); c["role"] == "model" {
			parts = append(parts, c["parts"].([]any)...)
		}
	}
	return parts
}

// wirePart is a part of a recorded request.
type wirePart struct {
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

// plainRequest reads a recorded request; nil for one with tools that the API runs
// itself, or with settings that no other dialect has.
func plainRequest(t testing.TB, r providertest.Recording) *model.Request {
	var w struct {
		SystemInstruction struct{ Parts []wirePart }
		Contents          []struct {
			Role  string
			Parts []wirePart
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
				schema = json.RawMessage(strings.NewReplacer(`"OBJECT"`, `"object"`, `"STRING"`, `"string"`, `"INTEGER"`, `"integer"`).Replace(string(f.Parameters)))
			}
			req.Tools = append(req.Tools, model.Tool{Definition: tool.Definition{Name: f.Name, Description: f.Description, InputSchema: schema}})
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

// item returns a part as an entry of the transcript.
func (p wirePart) item(role string) (item.Item, bool) {
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

// meaning returns what a request means: without signatures, which only its own provider
// gets back, with one form of schemas and results, and without defaults.
func meaning(t testing.TB, body []byte) any {
	all := providertest.Object(t, []byte(strings.NewReplacer(
		`"parameters"`, `"parametersJsonSchema"`, `"parameters_json_schema"`, `"parametersJsonSchema"`, `"result":`, `"output":`,
		`"OBJECT"`, `"object"`, `"STRING"`, `"string"`, `"INTEGER"`, `"integer"`, `"description": "",`, ``, `"description":"",`, ``,
	).Replace(string(body))))
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
