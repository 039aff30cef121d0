package surface

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

// The typed results of the built-in tools. A call has no value if it was not executed, or a hook has replaced its result, or an older
// version has stored it: then the text for the model may have the form of one.

// CodeResultOf returns the result of a call that runs code. ran is false if nothing has run: the result has Error alone. ok is false for
// a result of another form.
func CodeResultOf(ev event.ToolDone) (v builtin.CodeResult, ran, ok bool) {
	switch value := ev.Value.(type) {
	case builtin.CodeResult:
		return value, true, true
	case builtin.Refusal:
		return builtin.CodeResult{Error: value.Error}, false, true
	}
	var old struct {
		builtin.CodeResult
		Exit *int `json:"exit"`
	}
	if hasValue(ev) || parse(ev, &old) != nil {
		return v, false, false
	}
	if v, ran = old.CodeResult, old.Exit != nil; ran {
		v.Exit = *old.Exit
	}
	return v, ran, true
}

// ShellResultOf returns the result of a call that runs commands; without outputs if it has another form.
func ShellResultOf(ev event.ToolDone) (v builtin.ShellResult) {
	if hasValue(ev) {
		v, _ = ev.Value.(builtin.ShellResult)
	} else if parse(ev, &v) != nil {
		return builtin.ShellResult{}
	}
	return v
}

// SearchResultOf returns the result of a search; without hits if it has another form.
func SearchResultOf(ev event.ToolDone) (v builtin.SearchResult) {
	if hasValue(ev) {
		v, _ = ev.Value.(builtin.SearchResult)
	} else if parse(ev, &v) != nil {
		return builtin.SearchResult{}
	}
	return v
}

// hasValue reports whether the event has the result of its call as a value.
func hasValue(ev event.ToolDone) bool {
	_, replaced := ev.Value.(builtin.Made)
	return ev.Value != nil && !replaced
}

// parse reads a result from the text for the model.
func parse(ev event.ToolDone, into any) error {
	return json.Unmarshal([]byte(strings.TrimPrefix(ev.Text, ErrorMark)), into)
}
