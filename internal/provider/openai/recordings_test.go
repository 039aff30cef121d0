package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestRecordings(t *testing.T) { // M01, M06
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			p := serve(t, providertest.Answer(r.Response.Status, r.Response.Headers, string(r.Body)))
			var h providertest.Heard
			turn, err := p.Stream(t.Context(), &model.Request{Model: "m"}, h.Emit)
			check(t, r.Expected, turn, &h, err)
		})
	}
}

func check(t *testing.T, want expected, turn *model.Turn, h *providertest.Heard, err error) {
	t.Helper()
	if want.Error != nil {
		var e *model.Error
		if !errors.As(err, &e) || e.Status != want.Error.Status || e.Message != want.Error.Message || e.Class == "" || len(e.Body) == 0 {
			t.Errorf("error %#v, want %+v", err, want.Error)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if h.Text != want.Text || h.Reasoning != want.Reasoning {
		t.Errorf("text %q, want %q\nreasoning %q, want %q", h.Text, want.Text, h.Reasoning, want.Reasoning)
	}
	if turn == nil {
		if want.Error == nil || want.Error.InStream {
			t.Error("no turn")
		}
		return
	}
	if turn.Text() != want.Text || !sameText(want.ID, turn.ID) || !sameText(want.Model, turn.Model) || !sameText(want.Refusal, h.Refusal) {
		t.Errorf("id %q, model %q, refusal %q, text %q", turn.ID, turn.Model, h.Refusal, turn.Text())
	}
	checkCalls(t, want, turn)
	if want.Error != nil {
		return
	}
	if string(turn.Stop) != want.FinishReason.Normalized || !sameText(want.FinishReason.Raw, turn.RawStop) {
		t.Errorf("stop %q of %q, want %+v", turn.Stop, turn.RawStop, want.FinishReason)
	}
	var usage model.Usage
	if u := want.Usage; u != nil {
		usage = model.Usage{Input: u.Input, Output: u.Output, Total: u.Total, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
		included := u.Semantics.OutputIncludesReasoning
		if included != nil && !*included || u.Reasoning > u.Output {
			usage.Output += u.Reasoning
			usage.Total = max(usage.Total, usage.Input+usage.Output)
		}
	}
	if diff := cmp.Diff(usage, turn.Usage); diff != "" {
		t.Error("usage", diff)
	}
	if !json.Valid(turn.Items[0].Native.JSON) {
		t.Errorf("native is no JSON: %s", turn.Items[0].Native.JSON)
	}
}

func sameText(want *string, got string) bool {
	return want == nil && got == "" || want != nil && *want == got
}

func checkCalls(t *testing.T, want expected, turn *model.Turn) {
	t.Helper()
	calls := 0
	for _, it := range turn.Items {
		if it.Kind == item.ToolCall {
			calls++
		}
	}
	if len(turn.Calls) != len(want.ToolCalls) || calls != len(want.ToolCalls) {
		t.Fatalf("%d calls, %d complete, want %d", len(turn.Calls), calls, len(want.ToolCalls))
	}
	for i, w := range want.ToolCalls {
		c := turn.Calls[i]
		raw := string(w.Arguments)
		if w.ArgumentsRaw != nil {
			raw = *w.ArgumentsRaw
		}
		if !sameText(w.ID, c.ID) || c.Name != w.Name || c.Arguments != raw || !c.Complete {
			t.Errorf("call %d: %+v, want %s(%s)", i, c, w.Name, raw)
		}
	}
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

// What a provider accepted goes out as it was.
func TestRecordedMessagesGoBackUnchanged(t *testing.T) { // M01
	for _, r := range recordings(t) {
		if len(requestOf(t, r).Messages) == 0 {
			continue
		}
		req := &model.Request{Model: "m", Dialect: model.DialectChat}
		for _, m := range requestOf(t, r).Messages {
			req.Items = append(req.Items, item.Item{Kind: item.Message, Role: item.User, Native: item.Native{Dialect: model.DialectChat, JSON: m}})
		}
		for _, tool := range requestOf(t, r).Tools {
			req.Tools = append(req.Tools, model.Tool{Native: tool})
		}
		var got struct{ Messages, Tools []json.RawMessage }
		if err := json.Unmarshal(New(wire.Endpoint{BaseURL: "http://p"}, Options{}).encode(req, true), &got); err != nil {
			t.Fatal(r.Name, err)
		}
		if diff := cmp.Diff(requestOf(t, r).Messages, got.Messages); diff != "" {
			t.Error(r.Name, diff)
		}
		if diff := cmp.Diff(requestOf(t, r).Tools, got.Tools); diff != "" {
			t.Error(r.Name, diff)
		}
	}
}

// The turn of each recorded first request, with the recorded results, makes
// the second request of the same exchange.
func TestRecordedToolLoops(t *testing.T) { // M05
	for _, tt := range []struct{ first, second string }{
		{"fantasy-open-aicommon-openai-gpt-5-multi-tool-1", "fantasy-open-aicommon-openai-gpt-5-multi-tool-2"},
		{"fantasy-open-aicommon-openai-gpt-5-multi-tool-streaming-1", "fantasy-open-aicommon-openai-gpt-5-multi-tool-streaming-2"},
		{"fantasy-vercel-common-gpt-5-multi-tool-streaming-1", "fantasy-vercel-common-gpt-5-multi-tool-streaming-2"},
		{"fantasy-vercel-thinking-claude-sonnet-4-thinking-streaming-1", "fantasy-vercel-thinking-claude-sonnet-4-thinking-streaming-2"},
		{"fantasy-vercel-thinking-claude-sonnet-4-sig-thinking-1", "fantasy-vercel-thinking-claude-sonnet-4-sig-thinking-2"},
	} {
		t.Run(tt.first, func(t *testing.T) {
			turn := decodeAll(bytes.NewReader(byName(t, tt.first).Body)).Turn
			var sent []json.RawMessage
			item.SetTurn(turn.Items, 1)
			req := &model.Request{Items: turn.Items}
			for _, m := range requestOf(t, byName(t, tt.second)).Messages {
				var msg struct {
					Role, Content string
					CallID        string `json:"tool_call_id"`
				}
				_ = json.Unmarshal(m, &msg)
				switch msg.Role {
				case "assistant":
					sent = append(sent, m)
				case "tool":
					sent = append(sent, m)
					req.Items = append(req.Items, item.NewResult(msg.CallID, msg.Content, false))
				}
			}
			var got struct{ Messages []json.RawMessage }
			if err := json.Unmarshal(New(wire.Endpoint{BaseURL: "http://p"}, Options{}).encode(req, true), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(loosely(t, sent), loosely(t, got.Messages)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// loosely reads messages without what the recorded client left to itself: an
// empty content, the vendor's metadata, and spaces in arguments.
func loosely(t *testing.T, list []json.RawMessage) []map[string]any {
	t.Helper()
	var all []map[string]any
	for _, raw := range list {
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m["content"] == nil || m["content"] == "" {
			delete(m, "content")
		}
		delete(m, "provider_metadata")
		all = append(all, m)
	}
	return all
}
