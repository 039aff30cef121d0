package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestRecordings(t *testing.T) { // M02 M06
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
		if !errors.As(err, &e) || e.Status != want.Error.Status || e.Message != want.Error.Message || e.Class == "" || len(e.Body) == 0 {
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
	if string(turn.Stop) != want.FinishReason.Normalized || turn.RawStop != *want.FinishReason.Raw {
		t.Errorf("stop %q of %q, want %+v", turn.Stop, turn.RawStop, want.FinishReason)
	}
	checkCalls(t, want, turn)
	checkReasoning(t, want, turn)
	u := want.Usage // the dialect's input has no cached tokens in it
	usage := model.Usage{Input: u.Input + u.CachedInput + u.CacheWrite, Output: u.Output, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
	usage.Total = usage.Input + usage.Output
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
		c := turn.Calls[i]
		if c.ID != *w.ID || c.Name != w.Name || !sameJSON(t, c.Arguments, string(w.Arguments)) || !c.Complete {
			t.Errorf("call %d: %+v, want %s(%s)", i, c, w.Name, w.Arguments)
		}
	}
	others := providertest.OfKind(turn.Items, item.Other)
	if len(others) != len(want.ServerToolCalls) {
		t.Fatalf("%d blocks of the provider's own tools, want %d", len(others), len(want.ServerToolCalls))
	}
	for i, w := range want.ServerToolCalls {
		var b struct{ Type string }
		if json.Unmarshal(others[i].Native.JSON, &b) != nil || b.Type != w.Type {
			t.Errorf("block %s, want %s", others[i].Native.JSON, w.Type)
		}
	}
}

func checkReasoning(t *testing.T, want providertest.Expected, turn *model.Turn) {
	t.Helper()
	var signatures []string
	redacted := 0
	for _, it := range providertest.OfKind(turn.Items, item.Reasoning) {
		var b struct{ Type, Signature string }
		if err := json.Unmarshal(it.Native.JSON, &b); err != nil {
			t.Fatal(err)
		}
		if b.Type == "redacted_thinking" {
			redacted++
		} else if b.Signature != "" {
			signatures = append(signatures, b.Signature)
		}
	}
	if !cmp.Equal(signatures, want.ReasoningSignatures) && len(signatures)+len(want.ReasoningSignatures) > 0 || redacted != want.RedactedReasoning {
		t.Errorf("signatures %q, want %q; %d redacted, want %d", signatures, want.ReasoningSignatures, redacted, want.RedactedReasoning)
	}
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
	return func(src io.Reader, emit func(model.Delta) error) (*model.Turn, error) { return decode(src, nil, emit) }
}

func decodeAll(src io.Reader) providertest.Outcome { return decoding().Run(src) }

// The outcome does not depend on where the network cuts.
func TestRecordingsAtAnySplit(t *testing.T) { providertest.AtAnySplit(t, recordings(t), decoding()) }

// The deltas tell the items of the turn, with their numbers.
func TestRecordedDeltas(t *testing.T) { providertest.Deltas(t, recordings(t), decoding()) }

// Cut off anywhere, a stream never yields a turn that looks finished before its
// end, nor a call that is not the one of the whole stream.
func TestRecordingsCutOff(t *testing.T) { providertest.CutOff(t, recordings(t), decoding()) } // G07

// The turn of each recorded first request makes the assistant's message of the
// second request of the same exchange.
func TestRecordedToolLoops(t *testing.T) { // M05 M08
	for _, tt := range []struct{ first, second string }{
		{"fantasy-anthropic-thinking-claude-sonnet-4-thinking-1", "fantasy-anthropic-thinking-claude-sonnet-4-thinking-2"},
		{"fantasy-anthropic-thinking-with-cache-control-claude-sonnet-4-thinking-streaming-1", "fantasy-anthropic-thinking-with-cache-control-claude-sonnet-4-thinking-streaming-2"},
		{"fantasy-anthropic-computer-use-claude-opus-4-6-computer-use-1", "fantasy-anthropic-computer-use-claude-opus-4-6-computer-use-2"},
	} {
		t.Run(tt.first, func(t *testing.T) {
			all := recordings(t)
			turn := decodeAll(bytes.NewReader(providertest.Named(t, all, tt.first).Body)).Turn
			item.SetTurn(turn.Items, 1)
			var sent struct{ Messages []map[string]any }
			if err := json.Unmarshal(providertest.Named(t, all, tt.second).Request.Body, &sent); err != nil {
				t.Fatal(err)
			}
			got := New(wire.Endpoint{}, Options{}).translate(&model.Request{Items: append([]item.Item{item.NewText(item.User, "x")}, turn.Items...)}).Messages
			var want any = loosely(sent.Messages[1]["content"])
			var have any
			if err := json.Unmarshal(wire.AsJSON(got[1].Content), &have); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, loosely(have)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// loosely returns blocks without the cache marks of the recorded client, and
// without texts, which it leaves out.
func loosely(blocks any) []any {
	var out []any
	for _, b := range blocks.([]any) {
		m := b.(map[string]any)
		delete(m, "cache_control")
		delete(m, "caller")
		if m["type"] != "text" {
			out = append(out, m)
		}
	}
	return out
}
