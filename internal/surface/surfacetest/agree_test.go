package surfacetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// told is what an answer tells its client, whatever its form.
type told struct {
	Text   string
	Finish string
	Calls  []toldCall
	Usage  json.RawMessage
	Error  json.RawMessage // nil = none
}

type toldCall struct {
	ID       string
	Function struct{ Name, Arguments string }
}

// wireChoice is a choice of a completion or of a chunk.
type wireChoice struct {
	Message, Delta struct {
		Content   string
		ToolCalls []toldCall `json:"tool_calls"`
	}
	FinishReason *string `json:"finish_reason"`
}

type wireAnswer struct {
	Choices []wireChoice
	Usage   json.RawMessage
	Error   json.RawMessage
}

// tellJSON reads an answer that is one object.
func tellJSON(t *testing.T, c *client) told {
	t.Helper()
	var a wireAnswer
	if err := json.Unmarshal([]byte(c.body()), &a); err != nil {
		t.Fatalf("the answer is no JSON: %v", err)
	}
	if a.Error != nil {
		return told{Error: a.Error}
	}
	if len(a.Choices) != 1 || a.Choices[0].FinishReason == nil {
		t.Fatalf("not one choice with a finish reason: %s", c.body())
	}
	m := a.Choices[0].Message
	return told{Text: m.Content, Calls: m.ToolCalls, Finish: *a.Choices[0].FinishReason, Usage: a.Usage}
}

// tellStream reads a stream and checks its form: writes of whole events and a flush for
// each, one terminal frame, one [DONE], nothing after it. // G05 G16 G19
func tellStream(t *testing.T, c *client) told {
	t.Helper()
	for name, want := range map[string]string{"Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := c.sent.Get(name); got != want || c.status != http.StatusOK {
			t.Errorf("status %d, %s: %q, want %q", c.status, name, got, want)
		}
	}
	if c.flushes < len(c.pieces) {
		t.Errorf("%d writes and %d flushes", len(c.pieces), c.flushes)
	}
	var out told
	chunks, ends, done := 0, 0, 0
	for _, p := range c.pieces {
		if !bytes.HasSuffix(p.bytes, []byte("\n\n")) {
			t.Errorf("a write ends within an event: %q", p.bytes)
		}
	}
	for frame := range strings.SplitSeq(strings.TrimSuffix(c.body(), "\n\n"), "\n\n") {
		data, isData := strings.CutPrefix(frame, "data: ")
		switch {
		case strings.HasPrefix(frame, "event: ") && chunks > 0 && done == 0:
			checkExtension(t, frame)
		case strings.Contains(frame, "\n"):
			t.Errorf("an event has several lines: %q", frame)
		case strings.HasPrefix(frame, ": "):
		case !isData || done > 0:
			t.Errorf("unexpected frame %q", frame)
		case data == "[DONE]":
			done++
		default:
			chunks++
			ends += out.add(t, data)
		}
	}
	if ends != 1 || done != 1 {
		t.Errorf("%d terminal frames and %d end marks, want one of each", ends, done)
	}
	return out
}

// checkExtension checks the form of an event that the OpenAI document does not have: official clients
// read it as a chunk without choices, and take no member of it for one of the answer. // G08
func checkExtension(t *testing.T, frame string) {
	t.Helper()
	name, data, _ := strings.Cut(strings.TrimPrefix(frame, "event: "), "\ndata: ")
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(data), &members); err != nil {
		t.Fatalf("event %q: %v", frame, err)
	}
	if string(members["type"]) != strconv.Quote(name) || string(members["choices"]) != "[]" || members["id"] != nil {
		t.Errorf("an event with another form: %q", frame)
	}
}

// add takes one chunk and returns how many ends it holds.
func (a *told) add(t *testing.T, data string) (ends int) {
	t.Helper()
	var w wireAnswer
	if err := json.Unmarshal([]byte(data), &w); err != nil {
		t.Fatalf("chunk %q: %v", data, err)
	}
	if w.Error != nil {
		a.Error = w.Error
		return 1
	}
	if w.Usage != nil {
		a.Usage = w.Usage
	}
	for _, c := range w.Choices {
		a.Text += c.Delta.Content
		a.Calls = append(a.Calls, c.Delta.ToolCalls...)
		if c.FinishReason != nil {
			a.Finish = *c.FinishReason
			ends++
		}
	}
	return ends
}

// checkAgreement holds the two forms of one request against each other. // A06
func checkAgreement(t *testing.T, whole, streamed performance) {
	t.Helper()
	a := tellJSON(t, whole.answer)
	var b told
	if streamed.answer.streamed() {
		b = tellStream(t, streamed.answer)
	} else {
		b = tellJSON(t, streamed.answer)
		if whole.answer.status != streamed.answer.status {
			t.Errorf("status %d, streamed %d", whole.answer.status, streamed.answer.status)
		}
	}
	if sameText(a, b, ended(streamed)) {
		b.Text = a.Text
	}
	if a.Error != nil && b.Error != nil && streamed.answer.streamed() {
		b.Text = "" // said before it failed
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("JSON (-) and stream (+) disagree:\n%s", d)
	}
	if x, y := toolList(whole.events), toolList(streamed.events); !slices.Equal(x, y) {
		t.Errorf("tools of JSON %v, of the stream %v", x, y)
	}
}

// sameText reports whether both forms carry the same final text: in a live
// stream, what follows the last parting; after a limit, all of it.
func sameText(whole, streamed told, reason event.Reason) bool {
	if whole.Text == streamed.Text {
		return true
	}
	return !reason.Limit() && strings.HasSuffix(streamed.Text, "\n\n"+whole.Text)
}

func ended(p performance) event.Reason {
	for _, e := range p.events {
		if f, ok := e.Event.(event.Finished); ok {
			return f.Reason
		}
	}
	return ""
}

// toolList names the calls that the gateway answered, in the order of the calls.
func toolList(events []timed) []string {
	var list []string
	for _, e := range events {
		if d, ok := e.Event.(event.ToolDone); ok {
			list = append(list, fmt.Sprintf("%s %s %s", d.Key, d.Name, d.Outcome))
		}
	}
	slices.Sort(list)
	return list
}

// checkRun holds one run against the rules that have no exception.
func checkRun(t *testing.T, p performance) {
	t.Helper()
	finished := 0
	for i, e := range p.events {
		if _, ok := e.Event.(event.Finished); ok {
			finished++
			if i != len(p.events)-1 {
				t.Errorf("%T follows the end", p.events[i+1].Event)
			}
		}
	}
	if finished != 1 && len(p.events) > 0 {
		t.Errorf("%d ends", finished)
	}
	var s loop.State
	for _, f := range p.facts {
		if err := loop.Allowed(s, f); err != nil {
			t.Errorf("the journal holds what is not allowed: %v", err)
		}
		s = loop.Apply(s, f)
	}
	if len(p.facts) > 0 && s.Finished == nil {
		t.Error("the journal has no end")
	}
}
