package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// ledgerOfItems writes down what an encoder would send.
type ledgerOfItems struct{ lines, items []string }

func (l *ledgerOfItems) addItem(item any) int {
	l.items = append(l.items, asJSON(item))
	l.lines = append(l.lines, fmt.Sprintf("added %d %s", len(l.items)-1, asJSON(item)))
	return len(l.items) - 1
}

func (l *ledgerOfItems) itemEvent(name, id string, index int, member, value string) {
	line := fmt.Sprintf("%s %d %s", strings.TrimPrefix(name, "response."), index, id)
	if member != "" {
		line += " " + member + "=" + value
	}
	l.lines = append(l.lines, line)
}

func (l *ledgerOfItems) doneItem(index int, item any) {
	l.items[index] = asJSON(item)
	l.lines = append(l.lines, fmt.Sprintf("done %d %s", index, asJSON(item)))
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// D20 G15, rows 7 to 10 of the parity bugs: each item has its events in order, one index and
// one id, and the item that is done is the one in the response. A hidden call has none.
func TestTheItemsOfMCPServers(t *testing.T) {
	l := &ledgerOfItems{}
	o := &mcpOutput{out: l, run: "1"}
	for _, e := range []struct {
		event.Event
		shown bool
	}{
		{event.ToolsListed{Servers: []event.ListedServer{
			{Server: "docs", Tools: []tool.Definition{{Name: "look up", Description: "Looks.", InputSchema: []byte(`{"type":"object"}`), Annotations: tool.Annotations{ReadOnly: new(true)}}}},
			{Server: "broken", Error: "down"},
		}}, true},
		{event.RoundStarted{}, false},
		{event.ToolStarted{Key: "0.0", Name: "hidden", Server: "org", Arguments: []byte(`{}`)}, false},
		{event.ToolStarted{Key: "0.1", Name: "look_up", Server: "docs", Shown: true, Tool: "look up", Arguments: []byte(`{"q":1}`)}, true},
		{event.ToolStarted{Key: "0.2", Server: "docs", Shown: true, Tool: "look up", Arguments: []byte(`{}`)}, true},
		{event.ToolDone{Key: "0.2", Server: "docs", Shown: true, Tool: "look up", Outcome: event.CallError, Text: "no"}, true},
		{event.ToolStarted{Key: "0.1", Server: "docs", Shown: true, Tool: "look up", Arguments: []byte(`{"q":1}`)}, true}, // again, by the next owner
		{event.ToolDone{Key: "0.0", Server: "org", Outcome: event.CallOK, Text: "hidden"}, false},
		{event.ToolDone{Key: "0.1", Server: "docs", Shown: true, Tool: "look up", Outcome: event.CallOK, Text: ""}, true},
		{event.ToolDone{Key: "1.0", Server: "docs", Shown: true, Tool: "look up", Outcome: event.CallSkipped, Text: "limit", Arguments: "{"}, true},
		{event.ToolStarted{Key: "1.1", Server: "docs", Shown: true, Tool: "look up"}, true},
	} {
		if o.event(e.Event) != e.shown {
			t.Errorf("%+v is shown: %v", e.Event, !e.shown)
		}
	}
	o.cut()
	o.cut()
	want := strings.Split(strings.TrimSpace(`
added 0 {"id":"mcpl_1_0","type":"mcp_list_tools","server_label":"docs","tools":[],"error":null}
mcp_list_tools.in_progress 0 mcpl_1_0
mcp_list_tools.completed 0 mcpl_1_0
done 0 {"id":"mcpl_1_0","type":"mcp_list_tools","server_label":"docs","tools":[{"name":"look up","description":"Looks.","input_schema":{"type":"object"},"annotations":{"readOnlyHint":true}}],"error":null}
added 1 {"id":"mcpl_1_1","type":"mcp_list_tools","server_label":"broken","tools":[],"error":null}
mcp_list_tools.in_progress 1 mcpl_1_1
mcp_list_tools.failed 1 mcpl_1_1
done 1 {"id":"mcpl_1_1","type":"mcp_list_tools","server_label":"broken","tools":[],"error":"down"}
added 2 {"id":"mcp_1_0_1","type":"mcp_call","status":"in_progress","server_label":"docs","name":"look up","arguments":"","approval_request_id":null,"output":null,"error":null}
mcp_call.in_progress 2 mcp_1_0_1
mcp_call_arguments.delta 2 mcp_1_0_1 delta={"q":1}
mcp_call_arguments.done 2 mcp_1_0_1 arguments={"q":1}
added 3 {"id":"mcp_1_0_2","type":"mcp_call","status":"in_progress","server_label":"docs","name":"look up","arguments":"","approval_request_id":null,"output":null,"error":null}
mcp_call.in_progress 3 mcp_1_0_2
mcp_call_arguments.delta 3 mcp_1_0_2 delta={}
mcp_call_arguments.done 3 mcp_1_0_2 arguments={}
mcp_call.failed 3 mcp_1_0_2
done 3 {"id":"mcp_1_0_2","type":"mcp_call","status":"failed","server_label":"docs","name":"look up","arguments":"{}","approval_request_id":null,"output":null,"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":"no"}]}}
mcp_call.completed 2 mcp_1_0_1
done 2 {"id":"mcp_1_0_1","type":"mcp_call","status":"completed","server_label":"docs","name":"look up","arguments":"{\"q\":1}","approval_request_id":null,"output":"","error":null}
added 4 {"id":"mcp_1_1_0","type":"mcp_call","status":"in_progress","server_label":"docs","name":"look up","arguments":"","approval_request_id":null,"output":null,"error":null}
mcp_call.in_progress 4 mcp_1_1_0
mcp_call_arguments.delta 4 mcp_1_1_0 delta={
mcp_call_arguments.done 4 mcp_1_1_0 arguments={
mcp_call.failed 4 mcp_1_1_0
done 4 {"id":"mcp_1_1_0","type":"mcp_call","status":"failed","server_label":"docs","name":"look up","arguments":"{","approval_request_id":null,"output":null,"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":"limit"}]}}
added 5 {"id":"mcp_1_1_1","type":"mcp_call","status":"in_progress","server_label":"docs","name":"look up","arguments":"","approval_request_id":null,"output":null,"error":null}
mcp_call.in_progress 5 mcp_1_1_1
mcp_call_arguments.done 5 mcp_1_1_1 arguments=
done 5 {"id":"mcp_1_1_1","type":"mcp_call","status":"incomplete","server_label":"docs","name":"look up","arguments":"","approval_request_id":null,"output":null,"error":null}
`), "\n")
	if diff := cmp.Diff(want, l.lines); diff != "" {
		t.Error(diff)
	}
}

// A client that reads slowly holds one piece of long arguments, not all.
func TestLongArgumentsOfAShownCallComeInPieces(t *testing.T) {
	l := &ledgerOfItems{}
	long := `"` + strings.Repeat("é", surface.MaxPiece) + `"`
	(&mcpOutput{out: l}).event(event.ToolStarted{Key: "0.0", Shown: true, Arguments: []byte(long)})
	var joined strings.Builder
	for _, line := range l.lines {
		if _, piece, ok := strings.Cut(line, "delta="); ok {
			if len(piece) > surface.MaxPiece {
				t.Errorf("a piece of %d bytes", len(piece))
			}
			joined.WriteString(piece)
		}
	}
	if joined.String() != long {
		t.Error("the pieces are not the arguments")
	}
}
