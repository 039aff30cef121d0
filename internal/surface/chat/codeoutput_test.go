package chat

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

// The images that code shows, and its directory, are in their members, as in mistral.rs. A directory of the host is not shown.
func TestTheImagesOfCode(t *testing.T) {
	for driver, want := range map[string]string{"wasm": "/work", "bwrap": "/work", "quickjs": "/work", "landlock": "", "remote": ""} {
		got := outputOf(event.ToolDone{Outcome: event.CallOK, Value: builtin.CodeResult{Driver: driver, Images: []string{"aQ=="}}})
		if !slices.Equal(got.Images, []string{"aQ=="}) || (got.Directory == nil) != (want == "") || want != "" && *got.Directory != want {
			t.Errorf("%s: %+v", driver, got)
		}
	}
}

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
