package responses

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// webSearchCall is the item of a call that answers the hosted tool web_search.
type webSearchCall struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	Action any    `json:"action"` // searchAction or pageAction
}

type searchAction struct {
	Type  string `json:"type"`
	Query string `json:"query"`
}

// pageAction is that of a call that reads a page.
type pageAction struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// fileSearchCall is the item of a call that answers the hosted tool file_search.
type fileSearchCall struct {
	ID      string   `json:"id"`
	Type    string   `json:"type"`
	Status  string   `json:"status"`
	Queries []string `json:"queries"`
	Results []any    `json:"results"` // null: results of MCP servers do not have this form
}

// codeInterpreterCall is the item of a call that answers the hosted tool code_interpreter.
type codeInterpreterCall struct {
	ID          string     `json:"id"`
	Type        string     `json:"type"`
	Status      string     `json:"status"`
	ContainerID string     `json:"container_id"`
	Code        string     `json:"code"`
	Outputs     []codeLogs `json:"outputs"` // null until the call ends, and if the request does not include them
}

// imageCall is the item of a call that answers the hosted tool image_generation.
type imageCall struct {
	ID     string  `json:"id"`
	Type   string  `json:"type"`
	Status string  `json:"status"`
	Result *string `json:"result"` // base64; null until the call ends, and if it has no image
}

type codeLogs struct {
	Type string `json:"type"`
	Logs string `json:"logs"`
}

// hostedOutput turns events of calls that answer hosted tools into output items.
type hostedOutput struct {
	out  outputs
	run  string                // the run id without its prefix, which the ids of the items have
	open map[string]hostedCall // the calls that have begun, by their key

	container string // the id of that in which code runs
	outputs   bool   // calls that run code have their outputs
}

// hostedCall is a call that answers a hosted tool.
type hostedCall struct {
	index     int
	id, kind  string
	container string
	text      string // the query, the code, the address of a page, or the arguments of commands
	page      bool   // it reads a page
}

// event sends what an event adds to the output. Events of other calls add nothing.
func (o *hostedOutput) event(ev event.Event) {
	if ev, ok := ev.(event.ToolStarted); ok && ev.Hosted != "" {
		if call, isNew := o.begin(ev.Key, ev.Hosted, ev.Tool, string(ev.Arguments)); isNew {
			o.out.itemEvent(call.eventName(call.working()), call.id, call.index, "", "")
		}
	}
	if ev, ok := ev.(event.ToolDone); ok && ev.Hosted != "" {
		o.begin(ev.Key, ev.Hosted, ev.Tool, ev.Arguments)
		o.end(ev)
	}
}

// begin sends the item of a call, unless it has been sent: a call may be tried again, and
// one that was not executed begins when it ends.
func (o *hostedOutput) begin(key, kind, tool, arguments string) (call hostedCall, isNew bool) {
	if call, begun := o.open[key]; begun {
		return call, false
	}
	page := kind == builtin.HostedSearch && tool == builtin.WebScrape
	call = hostedCall{kind: kind, container: o.container, page: page, text: hostedText(kind, tool, page, arguments)}
	call.id = idPrefixes[kind+"_call"] + o.run + "_" + strings.ReplaceAll(key, ".", "_")
	first := call
	if kind == builtin.HostedCode { // its code comes with events
		first.text = ""
	}
	call.index = o.out.addItem(first.item("in_progress", nil))
	if kind == builtin.HostedShell { // official clients do not know the events of this tool
		o.keep(key, call)
		return call, false
	}
	o.out.itemEvent(call.eventName("in_progress"), call.id, call.index, "", "")
	if kind == builtin.HostedCode {
		surface.Pieces(call.text, surface.MaxPiece, func(piece string) {
			o.out.itemEvent("response.code_interpreter_call_code.delta", call.id, call.index, "delta", piece)
		})
		o.out.itemEvent("response.code_interpreter_call_code.done", call.id, call.index, "code", call.text)
	}
	o.keep(key, call)
	return call, true
}

func (o *hostedOutput) keep(key string, call hostedCall) {
	if o.open == nil {
		o.open = map[string]hostedCall{}
	}
	o.open[key] = call
}

// end sends the result of a call. The API has no event for one that failed.
func (o *hostedOutput) end(ev event.ToolDone) {
	call := o.open[ev.Key]
	delete(o.open, ev.Key)
	if call.kind == builtin.HostedShell {
		o.endShell(call, ev)
		return
	}
	status := "failed"
	isOK, result := ev.Outcome == event.CallOK || ev.Outcome == event.CallCached, &ev.Text
	switch call.kind {
	case builtin.HostedImage: // without an image there is nothing to show
		isOK, result = isOK && ev.Image != "", &ev.Image
	case builtin.HostedCode:
		out := codeOutputOf(ev)
		isOK, result = isOK || out.ran, &out.logs
		if !o.outputs {
			result = nil
		}
	}
	if isOK {
		status = "completed"
		o.out.itemEvent(call.eventName(status), call.id, call.index, "", "")
	}
	o.out.doneItem(call.index, call.item(status, result))
}

// cut ends the calls whose end is not known, when the response ends.
func (o *hostedOutput) cut() {
	for _, call := range slices.SortedFunc(maps.Values(o.open), func(a, b hostedCall) int { return cmp.Compare(a.index, b.index) }) {
		status := "incomplete"
		if call.kind == builtin.HostedSearch || call.kind == builtin.HostedImage { // the API does not have incomplete ones
			status = "failed"
		}
		o.out.doneItem(call.index, call.item(status, nil))
	}
	o.open = nil
}

// item returns the item of the call. result is nil while it is not known.
func (c hostedCall) item(status string, result *string) any {
	kind := c.kind + "_call"
	switch c.kind {
	case builtin.HostedImage:
		item := imageCall{ID: c.id, Type: kind, Status: status}
		if result != nil && *result != "" {
			item.Result = result
		}
		return item
	case builtin.HostedFiles:
		return fileSearchCall{ID: c.id, Type: kind, Status: status, Queries: []string{c.text}}
	case builtin.HostedShell:
		return newShellCall(c, status)
	case builtin.HostedCode:
		item := codeInterpreterCall{ID: c.id, Type: kind, Status: status, ContainerID: c.container, Code: c.text}
		if result != nil {
			item.Outputs = []codeLogs{{"logs", *result}}
		}
		return item
	}
	if c.page {
		return webSearchCall{ID: c.id, Type: kind, Status: status, Action: pageAction{"open_page", c.text}}
	}
	return webSearchCall{ID: c.id, Type: kind, Status: status, Action: searchAction{"search", c.text}}
}

// eventName returns the name of the event of a step of the call.
func (c hostedCall) eventName(step string) string { return "response." + c.kind + "_call." + step }

// working returns the step in which the tool is executed.
func (c hostedCall) working() string {
	switch c.kind {
	case builtin.HostedCode:
		return "interpreting"
	case builtin.HostedImage:
		return "generating"
	}
	return "searching"
}

// hostedText returns the query, the code or the address of a page in the arguments of a call: a member with a usual
// name, or otherwise all arguments. A call of code_interpreter without code, such as of list_files, is shown as a call.
func hostedText(kind, tool string, page bool, arguments string) string {
	names := []string{"query", "q"}
	switch {
	case kind == builtin.HostedShell:
		return arguments
	case page:
		names = []string{"url"}
	case kind == builtin.HostedCode:
		names = []string{"code"}
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal([]byte(arguments), &members) // arguments of another form are shown as they are
	for _, name := range names {
		var text string
		if json.Unmarshal(members[name], &text) == nil && text != "" {
			return text
		}
	}
	if kind == builtin.HostedCode && members != nil {
		return tool + "(" + arguments + ")"
	}
	return arguments
}
