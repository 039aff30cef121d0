package responses

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// mcpListTools is the item with the tools of a server that the request declared.
type mcpListTools struct {
	ID          string      `json:"id"`
	Type        string      `json:"type"`
	ServerLabel string      `json:"server_label"`
	Tools       []mcpListed `json:"tools"`
	Error       *string     `json:"error"`
}

// mcpListed is one of its tools.
type mcpListed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Annotations *mcpAnnotations `json:"annotations"`
}

// mcpAnnotations are the server's hints, with the names of MCP.
type mcpAnnotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// mcpCall is the item of a call of such a tool.
type mcpCall struct {
	ID                string        `json:"id"`
	Type              string        `json:"type"`
	Status            string        `json:"status"`
	ServerLabel       string        `json:"server_label"`
	Name              string        `json:"name"`
	Arguments         string        `json:"arguments"`
	ApprovalRequestID *string       `json:"approval_request_id"`
	Output            *string       `json:"output"`
	Error             *mcpCallError `json:"error"`
}

// mcpCallError says why a call has no output: the text that the model got in its place.
type mcpCallError struct {
	Type    string         `json:"type"`
	Content []mcpErrorPart `json:"content"`
}

type mcpErrorPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// outputs is what the items of MCP servers need of the encoder.
type outputs interface {
	// addItem appends an item to the output, sends output_item.added, and returns its
	// index.
	addItem(item any) (index int)
	// itemEvent sends an event of an item, with one more member unless its name is "".
	itemEvent(name, id string, index int, member, value string)
	// doneItem replaces an item by its final form, and sends output_item.done.
	doneItem(index int, item any)
}

// mcpOutput turns events of shown servers into output items.
type mcpOutput struct {
	out  outputs
	run  string             // the run id without its prefix, which the ids of the items have
	open map[string]openMCP // the calls that have begun, by their key
}

type openMCP struct {
	index int
	item  mcpCall
}

// event sends what an event adds to the output. It returns false for an event that is not
// about a shown server.
func (o *mcpOutput) event(ev event.Event) bool {
	switch ev := ev.(type) {
	case event.ToolsListed:
		for i, server := range ev.Servers {
			o.list("mcpl_"+o.run+"_"+strconv.Itoa(i), server)
		}
		return true
	case event.ToolStarted:
		if ev.Shown {
			o.begin(ev.Key, ev.Server, ev.Tool, string(ev.Arguments), ev.Approval)
		}
		return ev.Shown
	case event.ToolDone:
		if ev.Shown && ev.Outcome != event.CallDenied { // of a denial the client knows already
			o.begin(ev.Key, ev.Server, ev.Tool, ev.Arguments, ev.Approval)
			o.end(ev)
		}
		return ev.Shown
	case event.ApprovalDecided, event.CallDelta, event.Citation, event.Finished, event.ItemDone, event.Compacted, event.HookRan, event.LimitsRaised, event.ModelFallback,
		event.NativeItem, event.NativeProgress, event.Paused, event.ReasoningDelta, event.RefusalDelta, event.RelayBody,
		event.RelayHead, event.RoundDone, event.RoundStarted, event.Started, event.TextDelta, event.Waiting: // no item of an MCP server
	}
	return false
}

// list sends the item with the tools of a server.
func (o *mcpOutput) list(id string, server event.ListedServer) {
	item := mcpListTools{ID: id, Type: "mcp_list_tools", ServerLabel: server.Server, Tools: []mcpListed{}}
	index := o.out.addItem(item)
	o.out.itemEvent("response.mcp_list_tools.in_progress", id, index, "", "")
	how := "completed"
	if server.Error != "" {
		how, item.Error = "failed", &server.Error
	}
	for _, t := range server.Tools {
		item.Tools = append(item.Tools, newMCPListed(t))
	}
	o.out.itemEvent("response.mcp_list_tools."+how, id, index, "", "")
	o.out.doneItem(index, item)
}

func newMCPListed(d tool.Definition) mcpListed {
	a := d.Annotations
	return mcpListed{
		Name: d.Name, Description: d.Description, InputSchema: d.InputSchema,
		Annotations: &mcpAnnotations{d.Title, a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld},
	}
}

// begin sends the item of a call, unless it has been sent: a call may be tried again, and
// one that was not executed begins when it ends.
func (o *mcpOutput) begin(key, server, name, arguments, approval string) {
	if _, begun := o.open[key]; begun {
		return
	}
	id := "mcp_" + o.run + "_" + strings.ReplaceAll(key, ".", "_")
	item := mcpCall{ID: id, Type: "mcp_call", Status: "in_progress", ServerLabel: server, Name: name}
	if approval != "" {
		request := requestID(approval)
		item.ApprovalRequestID = &request
	}
	index := o.out.addItem(item)
	o.out.itemEvent("response.mcp_call.in_progress", id, index, "", "")
	surface.Pieces(arguments, surface.MaxPiece, func(piece string) {
		o.out.itemEvent("response.mcp_call_arguments.delta", id, index, "delta", piece)
	})
	o.out.itemEvent("response.mcp_call_arguments.done", id, index, "arguments", arguments)
	item.Arguments = arguments
	if o.open == nil {
		o.open = map[string]openMCP{}
	}
	o.open[key] = openMCP{index, item}
}

// end sends the result of a call.
func (o *mcpOutput) end(ev event.ToolDone) {
	call := o.open[ev.Key]
	delete(o.open, ev.Key)
	call.item.Status = "failed"
	if ev.Outcome == event.CallOK || ev.Outcome == event.CallCached {
		call.item.Status, call.item.Output = "completed", &ev.Text
	} else {
		call.item.Error = &mcpCallError{"mcp_tool_execution_error", []mcpErrorPart{{"text", ev.Text}}}
	}
	o.out.itemEvent("response.mcp_call."+call.item.Status, call.item.ID, call.index, "", "")
	o.out.doneItem(call.index, call.item)
}

// cut ends the calls whose end is not known, when the response ends.
func (o *mcpOutput) cut() {
	for _, call := range slices.SortedFunc(maps.Values(o.open), func(a, b openMCP) int { return a.index - b.index }) {
		call.item.Status = "incomplete"
		o.out.doneItem(call.index, call.item)
	}
	o.open = nil
}
