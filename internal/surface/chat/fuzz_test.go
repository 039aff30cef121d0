package chat

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
)

// FuzzStream: whatever a model says, in whatever pieces, a client of a stream
// reads it and nothing else: chunks that are JSON, one end, and the same text as
// a client of the JSON answer. // G01 G17
func FuzzStream(f *testing.F) {
	f.Add("Hello", "r", "no", "c1", "{\"a\":1}", "gpt", uint8(0), true)
	f.Add("a\n\ndata: [DONE]\n\n"+strings.Repeat("é😀", 60), "", "", "", "", "m\r\nid: 1", uint8(1), false)
	f.Add("\x80\xff"+strings.Repeat("\x80", 80), "\u2028", "\x00", "x\ny", "not JSON", "", uint8(2), false)
	reasons := []event.Reason{event.Complete, event.ClientCalls, event.MaxRounds, event.OutputCut, event.Refused}
	f.Fuzz(func(t *testing.T, text, reasoning, refusal, callID, arguments, name string, how uint8, live bool) {
		cut := len(text) / 2
		end := event.Finished{Reason: reasons[int(how)%len(reasons)], Usage: model.Usage{Input: 1, Output: 2}}
		if end.Reason == event.ClientCalls {
			end.Calls = []event.ClientCall{{ID: callID, Name: name, Arguments: arguments}}
		}
		r := &teller{events: []event.Event{
			event.Started{RunID: "run_1", Model: name, At: time.Unix(1, 0)}, event.RoundStarted{Attempt: 1}, event.ReasoningDelta{Text: reasoning},
			event.TextDelta{Text: text[:cut]}, event.TextDelta{Text: text[cut:]}, event.RefusalDelta{Text: refusal}, event.RoundDone{}, end,
		}}
		mode := org.FinalOnly
		if live {
			mode = org.Live
		}
		got := readChunks(t, serve(r, mode, strings.Replace(ask, "{", `{"stream":true,`, 1), nil).Body.String())
		pieces := []string{text[:cut], text[cut:]}
		if !live {
			pieces = []string{text}
		}
		if want := shown(pieces...); live && got.content != want || !live && got.content != want && utf8.ValidString(text) {
			t.Fatalf("%q is read as %q", want, got.content)
		}
		if got.refusal != shown(refusal) || live && got.reasoning != shown(reasoning) {
			t.Fatalf("%+v, said refusal %q and reasoning %q", got, refusal, reasoning)
		}
		if want := finishReasons[end.Reason]; got.role != "assistant" || got.finish != want || len(got.calls) != len(end.Calls) {
			t.Fatalf("%+v, want %s and %d calls", got, want, len(end.Calls))
		}
		for _, c := range got.calls {
			if c.ID != shown(callID) || c.Function.Name != shown(name) || c.Function.Arguments != shown(arguments) {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// shown returns pieces of text as JSON can carry them.
func shown(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		for _, r := range p {
			b.WriteRune(r) // a byte that is no UTF-8 is U+FFFD
		}
	}
	return b.String()
}

// heard is what a client of a stream has at its end.
type heard struct {
	role, content, reasoning, refusal, finish string
	calls                                     []toolCall
}

func readChunks(t *testing.T, stream string) heard {
	t.Helper()
	var h heard
	r := sse.NewReader(strings.NewReader(stream), sse.ReaderOptions{})
	for ended := false; ; {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) && ended {
			return h
		}
		if err != nil || ended || ev.ID != "" || ev.Retry != 0 || len(ev.Name) > 0 {
			t.Fatalf("%+v, %v, after the end: %v", ev, err, ended)
		}
		if string(ev.Data) == "[DONE]" {
			ended = true
			continue
		}
		var c chunk
		if err := json.Unmarshal(ev.Data, &c); err != nil || h.finish != "" || len(c.Choices) != 1 || c.ID != "chatcmpl-run_1" {
			t.Fatalf("%s: %v, finished %q", ev.Data, err, h.finish)
		}
		d := c.Choices[0].Delta
		h.role += d.Role // said once
		if d.Content != nil {
			h.content += *d.Content
		}
		var called []toolCall
		if err := json.Unmarshal(marshal(t, d.ToolCalls), &called); err != nil {
			t.Fatalf("%s: %v", ev.Data, err)
		}
		h.reasoning, h.refusal, h.calls = h.reasoning+d.ReasoningContent, h.refusal+d.Refusal, append(h.calls, called...)
		if f := c.Choices[0].FinishReason; f != nil {
			h.finish = *f
		}
	}
}
