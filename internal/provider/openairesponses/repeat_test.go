package openairesponses

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func dialect() providertest.Dialect {
	return providertest.Dialect{
		Decode:   decoding(),
		Encode:   func(req *model.Request) ([]byte, error) { return encode(req, optional{}), nil },
		Said:     outputs,
		Repeated: repeated,
		Request:  plainRequest,
		Meaning:  meaning,
	}
}

// What the API said goes back to it, item by item.
func TestRecordedAnswersAreRepeated(t *testing.T) { dialect().RepeatsAnswers(t, recordings(t)) } // M05 P08

func TestRecordedRequestsAreWritten(t *testing.T) { dialect().WritesRequests(t, recordings(t)) } // M02 M05

// outputs returns the output items of a recording that go back to the API: not
// reasoning of which nothing is known but an id.
func outputs(t testing.TB, r providertest.Recording) any {
	t.Helper()
	var list []map[string]any
	for _, raw := range outputsOf(t, r) {
		var in map[string]any
		if err := json.Unmarshal(raw, &in); err != nil {
			t.Fatal(err)
		}
		content, _ := in["content"].([]any)
		if in["type"] == "reasoning" && in["encrypted_content"] == nil && len(content) == 0 {
			continue
		}
		list = append(list, plain(in))
	}
	return list
}

// repeated returns the input items after the user's message.
func repeated(t testing.TB, body []byte) any {
	t.Helper()
	var list []map[string]any
	for _, in := range inputOf(t, body)[1:] {
		list = append(list, plain(in))
	}
	return list
}

// outputsOf returns the output items of a recording, in the order of the answer:
// those of the ends of items in a stream.
func outputsOf(t testing.TB, r providertest.Recording) []json.RawMessage {
	t.Helper()
	if !r.Streamed {
		var whole struct{ Output []json.RawMessage }
		if err := json.Unmarshal(r.Body, &whole); err != nil {
			t.Fatal(err)
		}
		return whole.Output
	}
	var out []json.RawMessage
	for line := range bytes.Lines(r.Body) {
		var e struct {
			Type  string
			Index int `json:"output_index"`
			Item  json.RawMessage
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok || json.Unmarshal(data, &e) != nil || e.Type != "response.output_item.done" {
			continue
		}
		for len(out) <= e.Index {
			out = append(out, nil)
		}
		out[e.Index] = e.Item
	}
	return out
}

// meaning reads the members of a request that the recorded clients set, without
// those that the gateway decides.
func meaning(t testing.TB, body []byte) any {
	t.Helper()
	var r recordedRequest
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	for i, in := range r.Input {
		r.Input[i] = plainly(in)
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

// recordedRequest is a request body.
type recordedRequest struct {
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

// plainRequest reads a recorded request; nil for one with tools that the API runs
// itself, or with answers of the model, which TestRecordedToolLoops has.
func plainRequest(t testing.TB, recording providertest.Recording) *model.Request {
	t.Helper()
	var r recordedRequest
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
		one := model.Tool{Definition: tool.Definition{Name: t["name"].(string), InputSchema: schema}}
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
		for _, p := range plainly(in)["content"].([]any) {
			message.Parts = append(message.Parts, partFrom(p.(map[string]any)))
		}
		req.Items = append(req.Items, message)
	}
	return req
}

func partFrom(p map[string]any) item.Part {
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

// plainly returns a message in the one form of the several that clients use.
func plainly(in map[string]any) map[string]any {
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
