package anthropic

import (
	"strings"
	"testing"
)

// Calls that can be read are read, whatever is missing around them; calls that are lost are an error.
func TestCallsOfCarelessServers(t *testing.T) {
	const input = `{"type":"input_json_delta","partial_json":"{\"a\":1}"}`
	const end = `data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}` + "\n\n" + ended
	const whole = `{"type":"tool_use","id":"c","name":"f","input":{"a":1}}`
	for name, body := range map[string]string{
		"a block that is not closed":           started + block0(callStart, input) + end,
		"the input in the start":               started + block0(whole) + stopped("tool_use"),
		"the input in the start and in pieces": started + block0(whole, input) + stopped("tool_use"),
		"an event and a piece of later types":  started + `data: {"type":"later","index":"x","delta":7}` + "\n\n" + block0(callStart, input, `{"type":"later_delta","text":{"a":1}}`) + stopped("tool_use"),
	} {
		got := decodeAll(strings.NewReader(body))
		if got.Err != "<nil>" || len(got.Turn.Calls) != 1 || got.Turn.Calls[0].Arguments != `{"a":1}` || !got.Turn.Calls[0].Complete {
			t.Errorf("%s: %s %+v", name, got.Err, got.Turn)
		}
	}
	for name, body := range map[string]string{
		"none":                       started + block0(`{"type":"text","text":"x"}`) + stopped("tool_use"),
		"one that breaks off":        started + block0(callStart, `{"type":"input_json_delta","partial_json":"{\"a\":"}`) + end,
		"only one of the provider's": started + block0(`{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`) + stopped("tool_use"),
	} {
		if got := decodeAll(strings.NewReader(body)); !strings.Contains(got.Err, "none that can be read") {
			t.Errorf("%s: %s %+v", name, got.Err, got.Turn)
		}
	}
}
