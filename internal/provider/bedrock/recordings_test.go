package bedrock

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestRecordings(t *testing.T) { // M04 M06
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			p := New(providertest.Serve(t, providertest.Answer(r.Response.Status, r.Response.Headers, string(r.Body))), signed())
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
	if turn.ID != "" || turn.Model != "" || want.ID != nil || want.Model != nil { // the dialect has none
		t.Errorf("id %q, model %q", turn.ID, turn.Model)
	}
	if string(turn.Stop) != want.FinishReason.Normalized || turn.RawStop != *want.FinishReason.Raw {
		t.Errorf("stop %q of %q, want %+v", turn.Stop, turn.RawStop, want.FinishReason)
	}
	checkCalls(t, want, turn)
	checkReasoning(t, want, turn)
	u := want.Usage // the dialect's input has no cached tokens in it
	usage := model.Usage{Input: u.Input + u.CachedInput + u.CacheWrite, Output: u.Output, Total: u.Total, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite}
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
	var own []map[string]any // blocks of the provider's own tools
	for _, it := range providertest.OfKind(turn.Items, item.Other) {
		block := providertest.Object(t, it.Native.JSON)
		if block["citationsContent"] == nil {
			own = append(own, block)
		}
	}
	if len(own) != len(want.ServerToolCalls) {
		t.Fatalf("%d blocks of the provider's own tools, want %d", len(own), len(want.ServerToolCalls))
	}
	for i, w := range want.ServerToolCalls {
		kind := map[string]string{"server_tool_use": "toolUse"}[w.Type]
		if kind == "" {
			kind = w.Type
		}
		if b, _ := own[i][kind].(map[string]any); b["toolUseId"] != w.ID {
			t.Errorf("block %v, want %+v", own[i], w)
		}
	}
}

// reasoningBlock is a block of reasoning, as it goes back to the provider.
type reasoningBlock struct {
	Content struct {
		Text struct{ Signature string } `json:"reasoningText"`

		Redacted string `json:"redactedContent"`
	} `json:"reasoningContent"`
}

func checkReasoning(t *testing.T, want providertest.Expected, turn *model.Turn) {
	t.Helper()
	var signatures []string
	redacted := 0
	for _, it := range providertest.OfKind(turn.Items, item.Reasoning) {
		var b reasoningBlock
		if err := json.Unmarshal(it.Native.JSON, &b); err != nil {
			t.Fatal(err)
		}
		if b.Content.Redacted != "" {
			redacted++
		} else if s := b.Content.Text.Signature; s != "" {
			signatures = append(signatures, s)
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

// The outcome does not depend on where the network cuts.
func TestRecordingsAtAnySplit(t *testing.T) { providertest.AtAnySplit(t, recordings(t), decoding()) }

// The deltas tell the items of the turn, with their numbers.
func TestRecordedDeltas(t *testing.T) { providertest.Deltas(t, recordings(t), decoding()) }

// Cut off anywhere, a stream never yields a turn that looks finished before its end, nor a
// call that is not the one of the whole stream.
func TestRecordingsCutOff(t *testing.T) { providertest.CutOff(t, recordings(t), decoding()) } // G07

// The turn of each recorded first request makes the assistant's message of the second
// request of the same exchange.
func TestRecordedToolLoops(t *testing.T) { // M05 M08
	all := recordings(t)
	for _, name := range []string{
		"pydantic-bedrock-anthropic-tool-with-thinking",
		"pydantic-bedrock-model-with-code-execution-tool",
		"rubyllm-function-calling-bedrock-amazon-nova-2-lite-v1-0-can-handle-multiple-tool-ae0cb8",
	} {
		t.Run(name, func(t *testing.T) {
			turn := decoding().Run(bytes.NewReader(providertest.Named(t, all, name+"-1").Body)).Turn
			item.SetTurn(turn.Items, 1)
			body, err := dialect().Encode(&model.Request{Model: "m", Items: append([]item.Item{item.NewText(item.User, "x")}, turn.Items...)})
			if err != nil {
				t.Fatal(err)
			}
			second := providertest.Object(t, providertest.Named(t, all, name+"-2").Request.Body)["messages"].([]any)
			if diff := cmp.Diff(second[1].(map[string]any)["content"], repeated(t, body)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
