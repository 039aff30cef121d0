package chat

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
)

// Code that fails has its output and its exception, each in its member. // G08
func TestTheOutputOfCodeThatFails(t *testing.T) {
	got := outputOf(event.ToolDone{Outcome: event.CallError, Text: `Error: {"exit":1,"stdout":"one\n","stderr":"Traceback\nNameError: v\n"}`})
	if got.Stdout != "one\n" || got.Stderr != "Traceback\nNameError: v\n" || got.Exception == nil || *got.Exception != "NameError: v" {
		t.Errorf("%+v", got)
	}
	const refused = "Error: the sandbox is busy"
	if got := outputOf(event.ToolDone{Outcome: event.CallError, Text: refused}); got.Stdout != "" || got.Exception == nil || *got.Exception != refused {
		t.Errorf("%+v", got)
	}
}
