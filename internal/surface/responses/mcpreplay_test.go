package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

// D20, rows 16 and 17 of the parity bugs: a call that comes back is a call with exactly one
// result, which keeps its error.
func TestAReplayedMCPCallIsAPair(t *testing.T) {
	for members, want := range map[string]struct {
		text    string
		isError bool
	}{
		`"output":"found"`:                                            {"found", false},
		`"output":"","error":null`:                                    {"", false},
		`"output":null,"error":"no"`:                                  {"Tool call failed: no", true},
		`"output":"half","error":"no"`:                                {"Tool call failed: no", true},
		`"status":"incomplete"`:                                       {"Tool call failed: it has no recorded result.", true},
		`"error":{"type":"http_error","code":500,"message":"broken"}`: {"Tool call failed: broken", true},
		`"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`: {"Tool call failed: a\nb", true},
		`"error":{"type":"mcp_tool_execution_error","content":[]}`:                                                      {"Tool call failed: []", true},
		`"error":{"type":"mcp_tool_execution_error","content":"x"}`:                                                     {`Tool call failed: {"type":"mcp_tool_execution_error","content":"x"}`, true},
		`"error":7`: {"Tool call failed: 7", true},
	} {
		raw := `{"type":"mcp_call","id":"mcp_1","server_label":"docs","name":"look up","arguments":"{\"q\":1}",` + members + `}`
		got, err := replayMCPCall("input[2]", json.RawMessage(raw), 3)
		call := item.Item{Kind: item.ToolCall, Turn: 3, CallID: "mcp_1", Name: "look_up", Arguments: `{"q":1}`}
		if diff := cmp.Diff([]item.Item{call, item.NewResult("mcp_1", want.text, want.isError)}, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", raw, err, diff)
		}
	}
	for raw, param := range map[string]string{
		`{"name":"a","arguments":"{}"}`: "input[2].id", `{"id":"x"}`: "input[2].name", `{"id":7}`: "input[2]", `[]`: "input[2]",
	} {
		if _, err := replayMCPCall("input[2]", json.RawMessage(raw), 1); err == nil || fault.From(err).Param != param {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if got := functionName(strings.Repeat("é", 70)); got != strings.Repeat("_", 64) {
		t.Errorf("%q", got)
	}
}

// What the client sends back is not listed again, and it is said once. // D20
func TestAReplayedListIsNotListedAgain(t *testing.T) {
	req := &run.Request{}
	for _, label := range []string{"a", "b", "a"} {
		if err := replayMCPListTools(req, "input[0]", json.RawMessage(`{"type":"mcp_list_tools","server_label":"`+label+`","tools":[]}`)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, req.Listed); diff != "" {
		t.Error(diff)
	}
	for i := range maxReplayedLists {
		err := replayMCPListTools(req, "input[0]", json.RawMessage(fmt.Sprintf(`{"server_label":"s%d"}`, i)))
		if (err != nil) != (i >= maxReplayedLists-2) {
			t.Errorf("server %d: %v", i, err)
		}
	}
	for raw, param := range map[string]string{`{}`: "input[0].server_label", `{"server_label":"a b"}`: "input[0].server_label", `7`: "input[0]"} {
		if err := replayMCPListTools(req, "input[0]", json.RawMessage(raw)); fault.From(err).Param != param {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
