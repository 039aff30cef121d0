package surfacetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// frame is an event of a Responses stream.
type frame struct {
	Type         string
	Sequence     int64  `json:"sequence_number"`
	OutputIndex  int    `json:"output_index"`
	ItemID       string `json:"item_id"`
	ContentIndex int    `json:"content_index"`
	SummaryIndex int    `json:"summary_index"`
	Delta        string
	Text         *string
	Refusal      *string
	Arguments    *string
	Input        *string
	Code         *string
	Item         map[string]any
	Response     map[string]any
}

// frames reads a stream and checks its form. // G05 G15 G16
func frames(t *testing.T, c *client) []frame {
	t.Helper()
	if c.flushes < len(c.pieces) {
		t.Errorf("%d writes and %d flushes", len(c.pieces), c.flushes)
	}
	for _, p := range c.pieces {
		if !bytes.HasSuffix(p.bytes, []byte("\n\n")) {
			t.Errorf("a write ends within an event: %q", p.bytes)
		}
	}
	var out []frame
	done := 0
	for text := range strings.SplitSeq(strings.TrimSuffix(c.body(), "\n\n"), "\n\n") {
		switch {
		case strings.HasPrefix(text, ": "):
			continue
		case text == "data: [DONE]":
			done++
			continue
		}
		name, data, _ := strings.Cut(text, "\n")
		var f frame
		if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &f); err != nil {
			t.Fatalf("event %q: %v", text, err)
		}
		if name != "event: "+f.Type || done > 0 {
			t.Errorf("%q stands in the event %q after %d end marks", f.Type, name, done)
		}
		if f.Sequence != int64(len(out)) {
			t.Errorf("event %d has the number %d", len(out), f.Sequence)
		}
		out = append(out, f)
	}
	if done != 1 {
		t.Errorf("%d end marks", done)
	}
	return out
}

// checkResponse holds a stream against what clients rely on: one response, one terminal
// event, every item begun and ended once, its pieces the same as its end. // G15 G16
func checkResponse(t *testing.T, p performance) {
	t.Helper()
	if !p.answer.streamed() || p.answer.gone {
		return
	}
	all := frames(t, p.answer)
	last := len(all) - 1
	if d := cmp.Diff(all[last].Response, p.stored.object(t)); d != "" {
		t.Errorf("the stream ended with (-), and stored is (+):\n%s", d)
	}
	ids := map[string]int{}     // of items, by the place in the output
	ended := map[string]any{}   // items
	begun := map[string]bool{}  // parts
	said := map[string]string{} // by part
	for i, f := range all {
		part := fmt.Sprint(f.ItemID, f.ContentIndex, f.SummaryIndex)
		switch f.Type {
		case "response.created", "response.in_progress":
			if want := map[string]int{"response.created": 0, "response.in_progress": 1}[f.Type]; i != want || f.Response["status"] != "in_progress" {
				t.Errorf("%s is event %d: %v", f.Type, i, f.Response)
			}
		case "response.completed", "response.incomplete", "response.failed":
			if i != last || "response."+f.Response["status"].(string) != f.Type {
				t.Errorf("%s is event %d of %d: %v", f.Type, i, last, f.Response["status"])
			}
		case "response.output_item.added":
			id := f.Item["id"].(string)
			if _, known := ids[id]; known || f.OutputIndex != len(ids) {
				t.Errorf("item %s is added at %d, as number %d", id, f.OutputIndex, len(ids))
			}
			ids[id] = f.OutputIndex
		case "response.output_item.done":
			id := f.Item["id"].(string)
			if at, known := ids[id]; !known || at != f.OutputIndex || ended[id] != nil {
				t.Errorf("item %s is done at %d, added at %d", id, f.OutputIndex, at)
			}
			ended[id] = f.Item
		default:
			if at, known := ids[f.ItemID]; !known || at != f.OutputIndex || ended[f.ItemID] != nil {
				t.Errorf("%s is of item %s at %d", f.Type, f.ItemID, f.OutputIndex)
			}
		}
		switch {
		case strings.HasSuffix(f.Type, "part.added"):
			begun[part] = true
		case strings.HasSuffix(f.Type, ".delta"):
			if !begun[part] && !strings.Contains(f.Type, "arguments") && !strings.Contains(f.Type, "input") && !strings.Contains(f.Type, "code.delta") {
				t.Errorf("%s before its part", f.Type)
			}
			said[part] += f.Delta
		case strings.HasSuffix(f.Type, "text.done"), strings.HasSuffix(f.Type, "refusal.done"), strings.HasSuffix(f.Type, "arguments.done"), strings.HasSuffix(f.Type, "input.done"), strings.HasSuffix(f.Type, "code.done"):
			for _, whole := range []*string{f.Text, f.Refusal, f.Arguments, f.Input, f.Code} {
				if whole != nil && *whole != said[part] {
					t.Errorf("%s says %q, its pieces were %q", f.Type, *whole, said[part])
				}
			}
		}
	}
	output := all[last].Response["output"].([]any)
	if len(output) != len(ids) || len(ended) != len(ids) {
		t.Errorf("%d items begun, %d ended, %d in the response", len(ids), len(ended), len(output))
	}
	for i, it := range output {
		id := it.(map[string]any)["id"].(string)
		if d := cmp.Diff(ended[id], it); d != "" || ids[id] != i {
			t.Errorf("item %d of the response is not the one of the stream:\n%s", i, d)
		}
	}
}

// object is the body, which is a JSON object.
func (c *client) object(t *testing.T) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(c.body()), &object); err != nil {
		t.Fatalf("%v: %s", err, c.body())
	}
	return object
}

// checkResponses holds the two forms of one request against each other: the last event has
// the object of the other form. // A06 B09
func checkResponses(t *testing.T, whole, streamed performance) {
	t.Helper()
	if x, y := toolList(whole.events), toolList(streamed.events); !slices.Equal(x, y) {
		t.Errorf("tools of JSON %v, of the stream %v", x, y)
	}
	if !streamed.answer.streamed() {
		if whole.answer.golden() != streamed.answer.golden() {
			t.Errorf("JSON and stream disagree:\n%s", cmp.Diff(whole.answer.golden(), streamed.answer.golden()))
		}
		return
	}
	all := frames(t, streamed.answer)
	end := all[len(all)-1]
	if end.Type == "response.failed" {
		if whole.answer.status < http.StatusBadRequest {
			t.Errorf("the stream failed, the other form has status %d", whole.answer.status)
		}
		return
	}
	object := whole.answer.object(t)
	if d := cmp.Diff(object, whole.stored.object(t)); d != "" {
		t.Errorf("answered was (-), and stored is (+):\n%s", d)
	}
	if d := cmp.Diff(object, end.Response); d != "" {
		t.Errorf("JSON (-) and stream (+) disagree:\n%s", d)
	}
}
