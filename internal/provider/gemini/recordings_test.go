package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestRecordings(t *testing.T) { // M03 M06
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			p := serve(t, providertest.Answer(r.Response.Status, r.Response.Headers, string(r.Body)))
			var h providertest.Heard
			turn, err := p.Stream(t.Context(), &model.Request{Model: "m"}, h.Emit)
			check(t, r.Expected, turn, &h, err)
		})
	}
}

func check(t *testing.T, want providertest.Expected, turn *model.Turn, h *providertest.Heard, err error) {
	t.Helper()
	if want.Error != nil {
		var e *model.Error
		if !errors.As(err, &e) || e.Status != want.Error.Status || e.Message != want.Error.Message || e.Class == "" || len(e.Body) == 0 || e.Code != want.Error.Type {
			t.Errorf("error %#v, want %+v", err, want.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if h.Text != want.Text || turn.Text() != want.Text || h.Reasoning != want.Reasoning {
		t.Errorf("text %q and %q, want %q\nreasoning %q, want %q", h.Text, turn.Text(), want.Text, h.Reasoning, want.Reasoning)
	}
	if turn.ID != *want.ID || turn.Model != *want.Model {
		t.Errorf("id %q, model %q", turn.ID, turn.Model)
	}
	if string(turn.Stop) != want.FinishReason.Normalized || turn.RawStop == "" || want.FinishReason.Raw != nil && turn.RawStop != *want.FinishReason.Raw {
		t.Errorf("stop %q of %q, want %+v", turn.Stop, turn.RawStop, want.FinishReason)
	}
	checkCalls(t, want, turn)
	if got := signatures(turn, item.Message, item.Reasoning); !cmp.Equal(got, want.TextSignatures) && len(got)+len(want.TextSignatures) > 0 {
		t.Errorf("signatures of texts %q, want %q", got, want.TextSignatures)
	}
	u := want.Usage // the dialect counts thoughts, and the input of its own tools, beside output and input
	usage := model.Usage{Input: u.Input + u.ToolUseInput, Output: u.Output + u.Reasoning, CachedInput: u.CachedInput, Reasoning: u.Reasoning, Total: u.Total}
	if diff := cmp.Diff(usage, turn.Usage); diff != "" {
		t.Error("usage", diff)
	}
}

func checkCalls(t *testing.T, want providertest.Expected, turn *model.Turn) {
	t.Helper()
	calls := providertest.OfKind(turn.Items, item.ToolCall)
	if len(turn.Calls) != len(want.ToolCalls) || len(calls) != len(want.ToolCalls) {
		t.Fatalf("%d calls, want %d", len(turn.Calls), len(want.ToolCalls))
	}
	ids := map[string]bool{}
	for i, w := range want.ToolCalls {
		c := turn.Calls[i]
		if c.Name != w.Name || !sameJSON(t, c.Arguments, string(w.Arguments)) || !c.Complete || c.ID == "" || ids[c.ID] || w.ID != nil && c.ID != *w.ID {
			t.Errorf("call %d: %+v, want %s(%s)", i, c, w.Name, w.Arguments)
		}
		ids[c.ID] = true
		got := signatures(&model.Turn{Items: calls[i : i+1]}, item.ToolCall)
		if len(got) == 1 != (w.Signature != "") || len(got) == 1 && got[0] != w.Signature {
			t.Errorf("signature of call %d: %q, want %q", i, got, w.Signature)
		}
	}
	others := providertest.OfKind(turn.Items, item.Other)
	if len(others) != len(want.ServerToolCalls) {
		t.Fatalf("%d parts of the provider's own tools, want %d", len(others), len(want.ServerToolCalls))
	}
	for i, w := range want.ServerToolCalls {
		var parts []map[string]json.RawMessage
		if json.Unmarshal(others[i].Native.JSON, &parts) != nil || len(parts) != 1 || parts[0][w.Type] == nil {
			t.Errorf("part %s, want %s", others[i].Native.JSON, w.Type)
		}
	}
}

// signatures returns the thought signatures of the items of the kinds.
func signatures(turn *model.Turn, kinds ...item.Kind) (all []string) {
	for _, it := range turn.Items {
		for _, kind := range kinds {
			for _, p := range jsonscan.Elements(it.Native.JSON) {
				if s := jsonscan.Text(jsonscan.Member(p, "thoughtSignature")); it.Kind == kind && s != "" {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// decoding is the decoder, without a bound of memory.
func decoding() providertest.Decode {
	return func(src io.Reader, emit func(model.Delta) error) (*model.Turn, error) {
		return decode(src, 1, nil, nil, emit)
	}
}

func decodeAll(src io.Reader) providertest.Outcome { return decoding().Run(src) }

// The outcome does not depend on where the network cuts.
func TestRecordingsAtAnySplit(t *testing.T) { providertest.AtAnySplit(t, recordings(t), decoding()) }

// The deltas tell the items of the turn, with their numbers.
func TestRecordedDeltas(t *testing.T) { providertest.Deltas(t, recordings(t), decoding()) }

// Cut off anywhere, a stream never yields a turn that looks finished before its
// end, nor a call that is not the one of the whole stream.
func TestRecordingsCutOff(t *testing.T) { providertest.CutOff(t, recordings(t), decoding()) } // G07

// The turn of each recorded first request makes the model's content of the second
// request of the same exchange.
func TestRecordedToolLoops(t *testing.T) { // M03 P08
	for _, tt := range []struct{ first, second string }{
		{"fantasy-google-common-vertex-gemini-2-5-flash-multi-tool-1", "fantasy-google-common-vertex-gemini-2-5-flash-multi-tool-2"},
		{"fantasy-google-common-vertex-gemini-2-5-flash-multi-tool-streaming-1", "fantasy-google-common-vertex-gemini-2-5-flash-multi-tool-streaming-2"},
		{"fantasy-google-thinking-gemini-2-5-pro-thinking-streaming-1", "fantasy-google-thinking-gemini-2-5-pro-thinking-streaming-2"},
		{"rubyllm-tool-choice-and-calls-control-gemini-2-5-flash-respects-specific-tool-choice-1", "rubyllm-tool-choice-and-calls-control-gemini-2-5-flash-respects-specific-tool-choice-2"},
	} {
		t.Run(tt.first, func(t *testing.T) {
			all := recordings(t)
			turn := decodeAll(bytes.NewReader(providertest.Named(t, all, tt.first).Body)).Turn
			item.SetTurn(turn.Items, 1)
			req := &model.Request{Items: append([]item.Item{item.NewText(item.User, "x")}, turn.Items...)}
			for _, c := range turn.Calls {
				req.Items = append(req.Items, item.NewResult(c.ID, "ok", false))
			}
			body, err := dialect().Encode(req)
			if err != nil {
				t.Fatal(err)
			}
			want := providertest.Object(t, providertest.Named(t, all, tt.second).Request.Body)["contents"].([]any)[1]
			got := providertest.Object(t, body)["contents"].([]any)[1]
			if diff := cmp.Diff(loosely(want), loosely(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// loosely returns the parts of a content without thoughts, which the recorded clients
// leave out, and without the ids that they made.
func loosely(content any) []any {
	var out []any
	for _, p := range content.(map[string]any)["parts"].([]any) {
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
