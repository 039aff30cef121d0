package openairesponses

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestRecordings(t *testing.T) { // M02 M06
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			p := serve(t, providertest.Answer(r.Response.Status, r.Response.Headers, string(r.Body)))
			h := heard{}
			turn, err := p.Stream(t.Context(), &model.Request{Model: "m"}, h.emit)
			check(t, r, turn, h, err)
		})
	}
}

func check(t *testing.T, r providertest.Recording, turn *model.Turn, h heard, err error) {
	t.Helper()
	want := r.Expected
	if want.Error != nil {
		var e *model.Error
		if !errors.As(err, &e) || e.Status != want.Error.Status || e.Message != want.Error.Message || e.Class == "" || len(e.Body) == 0 || e.Dialect != model.DialectResponses {
			t.Errorf("error %#v, want %+v", err, want.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if h[model.TextDelta] != want.Text || turn.Text() != want.Text || h[model.ReasoningDelta] != want.Reasoning {
		t.Errorf("text %q and %q, want %q\nreasoning %q, want %q", h[model.TextDelta], turn.Text(), want.Text, h[model.ReasoningDelta], want.Reasoning)
	}
	if turn.ID != *want.ID || turn.Model != *want.Model {
		t.Errorf("id %q, model %q", turn.ID, turn.Model)
	}
	if string(turn.Stop) != want.FinishReason.Normalized || turn.RawStop != *want.FinishReason.Raw {
		t.Errorf("stop %q of %q, want %+v", turn.Stop, turn.RawStop, want.FinishReason)
	}
	checkCalls(t, want, turn)
	checkReasoning(t, r, turn)
	u := want.Usage
	usage := model.Usage{Input: u.Input, Output: u.Output, Total: u.Total, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
	if diff := cmp.Diff(usage, turn.Usage); diff != "" {
		t.Error("usage", diff)
	}
}

func checkCalls(t *testing.T, want providertest.Expected, turn *model.Turn) {
	t.Helper()
	if len(turn.Calls) != len(want.ToolCalls) || len(providertest.OfKind(turn.Items, item.ToolCall)) != len(want.ToolCalls) {
		t.Fatalf("%d calls, want %d", len(turn.Calls), len(want.ToolCalls))
	}
	for i, w := range want.ToolCalls {
		if c := (model.Call{ID: *w.ID, Name: w.Name, Arguments: *w.ArgumentsRaw, Complete: true}); turn.Calls[i] != c {
			t.Errorf("call %d: %+v, want %+v", i, turn.Calls[i], c)
		}
	}
	others := providertest.OfKind(turn.Items, item.Other)
	if len(others) != len(want.ServerToolCalls) {
		t.Fatalf("%d items of the provider's own tools, want %d", len(others), len(want.ServerToolCalls))
	}
	for i, w := range want.ServerToolCalls {
		var b struct{ Type, ID string }
		if json.Unmarshal(others[i].Native.JSON, &b) != nil || b.Type != w.Type || b.ID != w.ID {
			t.Errorf("item %s, want %+v", others[i].Native.JSON, w)
		}
	}
}

// checkReasoning compares the encrypted content. A stream has it twice, with
// different bytes: the vendor's SDK reads the last event, and the document says
// that the one at the end of the item is to be sent back.
func checkReasoning(t *testing.T, r providertest.Recording, turn *model.Turn) {
	t.Helper()
	want := r.Expected.ReasoningSignatures
	if r.Streamed {
		want = nil
		for line := range bytes.Lines(r.Body) {
			var e struct {
				Type string
				Item struct {
					Encrypted string `json:"encrypted_content"`
				}
			}
			data, ok := bytes.CutPrefix(line, []byte("data:"))
			if ok && json.Unmarshal(data, &e) == nil && e.Type == "response.output_item.done" && e.Item.Encrypted != "" {
				want = append(want, e.Item.Encrypted)
			}
		}
		if len(want) != len(r.Expected.ReasoningSignatures) {
			t.Fatalf("%d items with encrypted content, want %d", len(want), len(r.Expected.ReasoningSignatures))
		}
	}
	var got []string
	for _, it := range providertest.OfKind(turn.Items, item.Reasoning) {
		var b struct {
			Encrypted string `json:"encrypted_content"`
		}
		if err := json.Unmarshal(it.Native.JSON, &b); err != nil {
			t.Fatal(err)
		}
		if b.Encrypted != "" {
			got = append(got, b.Encrypted)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("encrypted content %q, want %q", got, want)
	}
}

// The outcome does not depend on where the network cuts.
func TestRecordingsAtAnySplit(t *testing.T) { providertest.AtAnySplit(t, recordings(t), decoding()) }

// The deltas tell the items of the turn, with their numbers.
func TestRecordedDeltas(t *testing.T) { providertest.Deltas(t, recordings(t), decoding()) }

// Cut off anywhere, a stream never yields a turn that looks finished before its
// end, nor a call that is not the one of the whole stream.
func TestRecordingsCutOff(t *testing.T) { providertest.CutOff(t, recordings(t), decoding()) } // G07

// inputOf returns the input items of a request body.
func inputOf(t testing.TB, body []byte) []map[string]any {
	t.Helper()
	var r struct{ Input []map[string]any }
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r.Input
}

// plain returns an input item without what tells nothing: empty lists, and the id
// and status of an item that the provider does not store.
func plain(in map[string]any) map[string]any {
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
				parts = append(parts, plain(p.(map[string]any)))
			}
			v = parts
		}
		out[name] = v
	}
	return out
}

// The turn of each recorded first request, and results for its calls, make the
// input of the second request of the same exchange.
func TestRecordedToolLoops(t *testing.T) { // M05 M08 P08
	all := recordings(t)
	for _, tt := range []struct{ first, second string }{
		{"fantasy-open-airesponses-common-openai-gpt-4o-multi-tool-streaming-1", "fantasy-open-airesponses-common-openai-gpt-4o-multi-tool-streaming-2"},
		{"pydantic-openai-responses-openai-responses-model-web-search-tool-stream-1", "pydantic-openai-responses-openai-responses-model-web-search-tool-stream-2"},
		{"pydantic-openai-responses-openai-responses-phase-streamed-on-part-start-1", "pydantic-openai-responses-openai-responses-phase-streamed-on-part-start-2"},
		{"rubyllm-function-calling-xai-grok-4-1-fast-non-reasoning-can-handle-multiple-tool-ca14fe-1", "rubyllm-function-calling-xai-grok-4-1-fast-non-reasoning-can-handle-multiple-tool-ca14fe-2"},
		{"rubyllm-responses-protocol-dialects-with-azure-gpt-5-nano-round-trips-tool-calls-1", "rubyllm-responses-protocol-dialects-with-azure-gpt-5-nano-round-trips-tool-calls-2"},
	} {
		t.Run(tt.first, func(t *testing.T) {
			turn := decodeAll(bytes.NewReader(providertest.Named(t, all, tt.first).Body)).Turn
			recorded := inputOf(t, providertest.Named(t, all, tt.second).Request.Body)
			var items []item.Item
			for _, in := range recorded { // what came before the answer, and what came after it
				role, _ := in["role"].(string)
				switch {
				case in["type"] == "function_call_output":
					items = append(items, item.NewResult(in["call_id"].(string), in["output"].(string), false))
				case role != "" && role != "assistant":
					items = append(items, item.NewText(item.Role(role), text(in["content"])))
				case turn != nil:
					for i := range turn.Items { // as the driver marks them
						if turn.Items[i].Native.JSON != nil {
							turn.Items[i].Native.Provider = "p"
						}
					}
					items = append(items, turn.Items...)
					turn = nil
				}
			}
			var got, want []map[string]any
			for _, in := range inputOf(t, encode(&model.Request{Items: items}, optional{})) {
				got = append(got, loosely(in))
			}
			for _, in := range recorded {
				want = append(want, loosely(in))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func text(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	s, _ := content.([]any)[0].(map[string]any)["text"].(string)
	return s
}

// loosely returns an input item in one of the forms that clients write it in.
func loosely(in map[string]any) map[string]any {
	out := plain(in)
	if role, ok := out["role"].(string); ok {
		out["type"], out["content"] = "message", ascii(text(out["content"]))
		out["role"] = role
	}
	if action, ok := out["action"].(map[string]any); ok {
		delete(action, "sources") // the recorded client drops them
	}
	return out
}

// ascii returns s with plain quotation marks: one recorded text was changed.
func ascii(s string) string {
	for _, q := range [][2]string{{"’", "'"}, {"“", `"`}, {"”", `"`}} {
		s = string(bytes.ReplaceAll([]byte(s), []byte(q[0]), []byte(q[1])))
	}
	return s
}
