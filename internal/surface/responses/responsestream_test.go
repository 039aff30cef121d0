package responses_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// typed returns the events whose type begins and ends so.
func typed(all []RespEvent, prefix, suffix string) []RespEvent {
	return slices.DeleteFunc(slices.Clone(all), func(e RespEvent) bool {
		return !strings.HasPrefix(e.Type, prefix) || !strings.HasSuffix(e.Type, suffix)
	})
}

// last is the response of the last event.
func last(all []RespEvent) RespObject { return all[len(all)-1].Response }

// wantOpened fails the test unless every piece of a text is of a part that has begun and has not
// ended, in an item that has begun and has not ended.
func wantOpened(t *testing.T, all []RespEvent) {
	t.Helper()
	items, parts := map[string]bool{}, map[string]bool{}
	for _, e := range all {
		switch {
		case e.Type == "response.output_item.added":
			items[e.Item.ID] = true
		case e.Type == "response.output_item.done":
			delete(items, e.Item.ID)
		case strings.HasSuffix(e.Type, "part.added"):
			parts[e.Place()] = true
		case strings.HasSuffix(e.Type, "part.done"):
			delete(parts, e.Place())
		case strings.HasSuffix(e.Type, ".delta"):
			isText := strings.Contains(e.Type, "text") || strings.Contains(e.Type, "refusal")
			if !items[e.ItemID] || isText && !parts[e.Place()] {
				t.Errorf("%s of %s, which is not open", e.Type, e.Place())
			}
		}
	}
}

// wantWhole fails the test unless each text has one end, which says what its pieces said.
func wantWhole(t *testing.T, all []RespEvent) {
	t.Helper()
	said, ends := map[string]string{}, map[string]int{}
	for _, e := range all {
		switch e.Type {
		case "response.output_text.delta", "response.reasoning_summary_text.delta":
			said[e.Place()] += e.Delta
		case "response.output_text.done", "response.reasoning_summary_text.done":
			if ends[e.Place()]++; e.Text == nil || *e.Text != said[e.Place()] {
				t.Errorf("%s of %s does not say %q", e.Type, e.Place(), said[e.Place()])
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
func wantEnded(t *testing.T, all []RespEvent) {
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
		if !slices.ContainsFunc(done, func(d RespEvent) bool { return d.Item.ID == e.Item.ID && d.OutputIndex == i }) {
			t.Errorf("item %s is not done at %d", e.Item.ID, i)
		}
	}
}
