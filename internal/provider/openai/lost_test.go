package openai

import (
	"strings"
	"testing"
)

// An answer that announces calls and has none that can be read is an error, never an empty answer.
func TestCallsThatAreLostAreAnError(t *testing.T) {
	for name, in := range map[string]string{
		"none":                   delta(`"content":"a"`) + end("tool_calls"),
		"none, and no text":      end("tool_calls"),
		"the old form, and none": end("function_call"),
		"one without a name":     delta(`"tool_calls":[{"index":0,"id":"1","function":{"arguments":"{}"}}]`) + end("tool_calls"),
	} {
		if got := decodeAll(strings.NewReader(in)); !strings.Contains(got.Err, "none that can be read") {
			t.Errorf("%s: %s, %+v", name, got.Err, got.Turn)
		}
	}
	// Calls after the finish reason have their end at [DONE], not where the stream breaks off.
	late := end("tool_calls") + delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}]`)
	if got := decodeAll(strings.NewReader(late)); !strings.Contains(got.Err, "before the answer was complete") {
		t.Errorf("%s, %+v", got.Err, got.Turn)
	}
}
