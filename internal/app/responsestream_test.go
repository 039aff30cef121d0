package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// respEvent is an event of a stream of the Responses API.
type respEvent struct {
	Type         string
	Sequence     *int   `json:"sequence_number"`
	OutputIndex  int    `json:"output_index"`
	ItemID       string `json:"item_id"`
	ContentIndex int    `json:"content_index"`
	SummaryIndex int    `json:"summary_index"`
	Delta        string
	Text         *string
	Part         struct{ Type string }
	Item         respItem
	Response     respObject
}

// respItem is an output item, as far as the tests look at it.
type respItem struct {
	ID, Type, Status, Name, Namespace, Arguments, Input string

	CallID  string `json:"call_id"`
	Request string `json:"approval_request_id"`
	Label   string `json:"server_label"`
	Output  *string
	Error   any
	Tools   []struct{ Name string }

	Content []struct{ Type, Text, Refusal string }
	Summary []struct{ Text string }
}

// respObject is a response.
type respObject struct {
	ID, Status string
	Output     []respItem
	Error      *struct{ Code, Message string }
	Incomplete *struct{ Reason string } `json:"incomplete_details"`
	Tools      []map[string]any
	Usage      json.RawMessage
}

// types are the types of the items.
func (o respObject) types() (all []string) {
	for _, it := range o.Output {
		all = append(all, it.Type)
	}
	return all
}

// of returns the items of a type.
func (o respObject) of(kind string) []respItem {
	return slices.DeleteFunc(slices.Clone(o.Output), func(it respItem) bool { return it.Type != kind })
}

// text is what the messages of the response say.
func (o respObject) text() (all string) {
	for _, it := range o.of("message") {
		for _, p := range it.Content {
			all += p.Text
		}
	}
	return all
}

// responded reads an answer that is one response.
func (a answer) responded(t *testing.T) (o respObject) {
	t.Helper()
	if err := json.Unmarshal(a.body, &o); err != nil || a.status != 200 || !strings.HasPrefix(o.ID, "resp_") {
		t.Fatalf("status %d, no response: %v: %.2000s", a.status, err, a.body)
	}
	return o
}

// events reads an answer that is a stream: each event has a line event with its type, and
// the end mark comes once, at the end.
func (a answer) events(t *testing.T) (all []respEvent) {
	t.Helper()
	if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s: %.2000s, want a stream", a.status, a.header.Get("Content-Type"), a.body)
	}
	body, whole := strings.CutSuffix(string(a.body), "data: [DONE]\n\n")
	if !whole || strings.Contains(body, "[DONE]") {
		t.Errorf("the stream does not end with one end mark: %s", a.body)
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		if strings.HasPrefix(text, ": ") {
			continue
		}
		name, data, _ := strings.Cut(text, "\ndata: ")
		var e respEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("event %q: %v", text, err)
		}
		if name != "event: "+e.Type {
			t.Errorf("%s has the line %q", e.Type, name)
		}
		all = append(all, e)
	}
	return all
}

// part names the part that an event is of.
func (e respEvent) part() string {
	return fmt.Sprint(e.ItemID, " ", e.OutputIndex, " ", e.ContentIndex, " ", e.SummaryIndex)
}

// typed returns the events whose type begins and ends so.
func typed(all []respEvent, prefix, suffix string) []respEvent {
	return slices.DeleteFunc(slices.Clone(all), func(e respEvent) bool {
		return !strings.HasPrefix(e.Type, prefix) || !strings.HasSuffix(e.Type, suffix)
	})
}

// last is the response of the last event.
func last(all []respEvent) respObject { return all[len(all)-1].Response }

// wantNumbered fails the test unless the events are numbered from 0, without gaps.
func wantNumbered(t *testing.T, all []respEvent) {
	t.Helper()
	for i, e := range all {
		if e.Sequence == nil || *e.Sequence != i {
			t.Errorf("event %d, %s, has no number or another one", i, e.Type)
		}
	}
}

// wantOpened fails the test unless every piece of a text is of a part that has begun and has not
// ended, in an item that has begun and has not ended.
func wantOpened(t *testing.T, all []respEvent) {
	t.Helper()
	items, parts := map[string]bool{}, map[string]bool{}
	for _, e := range all {
		switch {
		case e.Type == "response.output_item.added":
			items[e.Item.ID] = true
		case e.Type == "response.output_item.done":
			delete(items, e.Item.ID)
		case strings.HasSuffix(e.Type, "part.added"):
			parts[e.part()] = true
		case strings.HasSuffix(e.Type, "part.done"):
			delete(parts, e.part())
		case strings.HasSuffix(e.Type, ".delta"):
			isText := strings.Contains(e.Type, "text") || strings.Contains(e.Type, "refusal")
			if !items[e.ItemID] || isText && !parts[e.part()] {
				t.Errorf("%s of %s, which is not open", e.Type, e.part())
			}
		}
	}
}

// wantWhole fails the test unless each text has one end, which says what its pieces said.
func wantWhole(t *testing.T, all []respEvent) {
	t.Helper()
	said, ends := map[string]string{}, map[string]int{}
	for _, e := range all {
		switch e.Type {
		case "response.output_text.delta", "response.reasoning_summary_text.delta":
			said[e.part()] += e.Delta
		case "response.output_text.done", "response.reasoning_summary_text.done":
			if ends[e.part()]++; e.Text == nil || *e.Text != said[e.part()] {
				t.Errorf("%s of %s does not say %q", e.Type, e.part(), said[e.part()])
			}
		}
	}
	for part := range said {
		if ends[part] != 1 {
			t.Errorf("the text of %s has %d ends", part, ends[part])
		}
	}
}

// wantEnded fails the test unless each item that was added is done once, and stands at its
// index in the response of the last event, with its id and type.
func wantEnded(t *testing.T, all []respEvent) {
	t.Helper()
	added, done := typed(all, "response.output_item.added", ""), typed(all, "response.output_item.done", "")
	output := last(all).Output
	if len(added) != len(done) || len(added) != len(output) {
		t.Fatalf("%d items added, %d done, %d in the response", len(added), len(done), len(output))
	}
	seen := map[string]bool{}
	for i, e := range added {
		if e.OutputIndex != i || seen[e.Item.ID] || output[i].ID != e.Item.ID || output[i].Type != e.Item.Type {
			t.Errorf("item %s is number %d, added at %d; there the response has %s", e.Item.ID, i, e.OutputIndex, output[i].ID)
		}
		seen[e.Item.ID] = true
		if !slices.ContainsFunc(done, func(d respEvent) bool { return d.Item.ID == e.Item.ID && d.OutputIndex == i }) {
			t.Errorf("item %s is not done at %d", e.Item.ID, i)
		}
	}
}
