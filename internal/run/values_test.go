package run_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The event of a call has the typed value of its result, live and from the store, also where the text for the model is cut. A value
// that the structured content of the result has already is stored once.
func TestTheValueOfAResultIsInItsEventAndStored(t *testing.T) {
	code := builtin.CodeResult{Language: "python", Exit: 1, Stdout: strings.Repeat("line\n", 100)}
	code.Files = []event.File{{ID: "file-1", Name: "a.txt"}}
	small := builtin.SearchResult{Provider: "exa", Query: "go", Results: []builtin.Hit{{URL: "https://go.dev"}}}
	result := func(v any) (tool.Result, error) {
		e, err := builtin.Encode(v)
		r := tool.Text(string(e.JSON))
		r.Structured, r.Value = e.JSON, v
		return r, err
	}
	w := &town{think: script("once_code", "read_search", "read_own", "read_text"), tools: tools{
		"once_code":   func(context.Context, tool.Call) (tool.Result, error) { return result(code) },
		"read_search": func(context.Context, tool.Call) (tool.Result, error) { return result(small) },
		"read_own": func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Parts: tool.Text("three").Parts, Value: map[string]int{"n": 3}}, nil
		},
		"read_text": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("none"), nil },
	}}
	r := w.gateway(t)
	req := w.wants("p", "k", "h")
	req.Policy.ResultMaxBytes = 200
	var live, stored diary
	if err := r.Run(t.Context(), req, &live); err != nil {
		t.Fatal(err)
	}
	id := w.theRun(t).Summary.RunID
	if err := eventlog.FollowStored(t.Context(), &w.journal, eventlog.Follow{Org: "o", RunID: id}, &stored); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"once_code": code, "read_search": small, "read_own": json.RawMessage(`{"n":3}`), "read_text": nil}
	for how, d := range map[string]*diary{"live": &live, "stored": &stored} {
		got := map[string]any{}
		for _, e := range d.events {
			if done, ok := e.(event.ToolDone); ok {
				got[done.Name] = done.Value
				if done.Name == "once_code" && (!strings.Contains(done.Text, "truncated") || !cmp.Equal(done.Files, code.Files)) {
					t.Errorf("%s: %s %v", how, done.Text, done.Files)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
	story, err := w.journal.Load(t.Context(), "o", id)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range story.Facts {
		if done, ok := f.Body.(loop.CallDone); ok && done.ValueRef != "" {
			var e builtin.Encoded
			if err := json.Unmarshal(story.Rows[done.ValueRef], &e); err != nil || (e.JSON == nil) != (e.Type == "search") {
				t.Errorf("row %s is %s: %v", done.ValueRef, story.Rows[done.ValueRef], err)
			}
		}
	}
}
