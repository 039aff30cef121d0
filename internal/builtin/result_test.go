package builtin_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
)

// A value that was stored is the same when it is read, with its type, and events that have it are charged with its texts.
func TestValuesAreStored(t *testing.T) {
	files := []event.File{{ID: "file-1", Name: "<a>.txt", Bytes: 3}}
	one := 1
	for _, v := range []any{
		builtin.CodeResult{Language: "python", Exit: -1, Stdout: "<out>", Error: "time", Files: files},
		builtin.ShellResult{
			Output: []builtin.ShellOutput{{Stderr: "no", Outcome: builtin.ShellOutcome{Type: "exit", Exit: &one}}}, Files: files,
			NotProduced: []builtin.NotProduced{{Path: "b", Why: "no such file"}},
		},
		builtin.SearchResult{Provider: "exa", Query: "q", Results: []builtin.Hit{{URL: "https://go.dev", Text: "Go"}}},
		builtin.Refusal{Error: "busy", Setting: "sandbox.drivers"},
		builtin.Made{Files: files},
		json.RawMessage(`{"of":"a program"}`),
	} {
		stored, err := builtin.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		row, err := json.Marshal(stored)
		if err != nil {
			t.Fatal(err)
		}
		var read builtin.Encoded
		if err := json.Unmarshal(row, &read); err != nil {
			t.Fatal(err)
		}
		got, err := read.Value()
		if diff := cmp.Diff(v, got); diff != "" || err != nil {
			t.Errorf("%T: %v (-stored +read)\n%s", v, err, diff)
		}
		_, made := v.(builtin.Made) // its files are those of the event
		if more := eventlog.EventSize(event.ToolDone{Value: v}) > eventlog.EventSize(event.ToolDone{}); more == made {
			t.Errorf("%T: an event is charged with it: %v", v, more)
		}
		if r, is := v.(builtin.Refusal); is && !cmp.Equal(r.Result().Value, v) {
			t.Errorf("the value of a refusal is %v", r.Result().Value)
		}
	}
}
