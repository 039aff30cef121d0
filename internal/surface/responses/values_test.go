package responses

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The outputs of code are complete where the text for the model is cut, and code that failed has run.
func TestTheOutputOfCodeWhoseResultIsCutForTheModel(t *testing.T) {
	cut := event.ToolDone{Server: org.BuiltinTools, Outcome: event.CallError, Text: `Error: {"exit":1,"stdout":"on … [truncated]`}
	if got := codeOutputOf(cut); got.ran || got.logs != cut.Text {
		t.Errorf("without a value: %+v", got)
	}
	cut.Value = builtin.CodeResult{Exit: 1, Stdout: "one\n", Stderr: "NameError: v"}
	if got := codeOutputOf(cut); !got.ran || got.logs != "one\nNameError: v" {
		t.Errorf("%+v", got)
	}
}
