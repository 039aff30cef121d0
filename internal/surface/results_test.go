package surface_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The result of code is the value of its event, whatever the text for the model says. A result without a value is read from the text.
func TestTheResultOfCode(t *testing.T) {
	ran := builtin.CodeResult{Exit: 3, Stdout: "out"}
	refused := builtin.Refusal{Error: "busy"}
	const text, cut = surface.ErrorMark + `{"exit":3,"stdout":"out","stderr":""}`, `{"exit":3,"stdout":"ou … [truncated]`
	for name, c := range map[string]struct {
		ev      event.ToolDone
		want    builtin.CodeResult
		ran, ok bool
	}{
		"a value beside a cut text": {event.ToolDone{Text: cut, Value: ran}, ran, true, true},
		"a refusal":                 {event.ToolDone{Text: cut, Value: refused}, builtin.CodeResult{Error: "busy"}, false, true},
		"a value of another type":   {event.ToolDone{Text: text, Value: builtin.ShellResult{}}, builtin.CodeResult{}, false, false},
		"text of an older version":  {event.ToolDone{Text: text}, ran, true, true},
		"cut by an older version":   {event.ToolDone{Text: cut}, builtin.CodeResult{}, false, false},
		"not executed":              {event.ToolDone{Text: `{"error":"denied"}`}, builtin.CodeResult{Error: "denied"}, false, true},
		"text of a hook":            {event.ToolDone{Text: "hidden", Value: builtin.Made{}}, builtin.CodeResult{}, false, false},
	} {
		got, ran, ok := surface.CodeResultOf(c.ev)
		if diff := cmp.Diff(c.want, got); diff != "" || ran != c.ran || ok != c.ok {
			t.Errorf("%s: ran %v, ok %v\n%s", name, ran, ok, diff)
		}
	}
}

func TestTheResultsOfCommandsAndSearches(t *testing.T) {
	commands := builtin.ShellResult{Output: []builtin.ShellOutput{{Stdout: "a", Outcome: builtin.ShellOutcome{Type: "timeout"}}}}
	found := builtin.SearchResult{Query: "q", Results: []builtin.Hit{{URL: "https://go.dev"}}}
	for name, c := range map[string]struct{ ran, searched event.ToolDone }{
		"values": {event.ToolDone{Text: "cut", Value: commands}, event.ToolDone{Text: "cut", Value: found}},
		"text": {
			event.ToolDone{Text: `{"output":[{"stdout":"a","stderr":"","outcome":{"type":"timeout"}}]}`},
			event.ToolDone{Text: `{"query":"q","results":[{"url":"https://go.dev"}]}`},
		},
	} {
		if diff := cmp.Diff(commands, surface.ShellResultOf(c.ran)) + cmp.Diff(found, surface.SearchResultOf(c.searched)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	other := event.ToolDone{Text: `{"output":[{"stdout":"a"}],"results":[{}]}`, Value: builtin.Refusal{Error: "busy"}}
	if got := surface.ShellResultOf(other); got.Output != nil {
		t.Errorf("a refusal has outputs: %v", got)
	}
	if got := surface.SearchResultOf(other); got.Results != nil {
		t.Errorf("a refusal has hits: %v", got)
	}
}
