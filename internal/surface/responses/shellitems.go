package responses

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
)

// shellCall is the item of a call that answers the hosted tool shell. Its result is an item of its own.
type shellCall struct {
	ID          string           `json:"id"`
	Type        string           `json:"type"`
	CallID      string           `json:"call_id"`
	Action      shellAction      `json:"action"`
	Status      string           `json:"status"`
	Environment shellEnvironment `json:"environment"`
}

type shellAction struct {
	Commands  []string `json:"commands"`
	TimeoutMS *int64   `json:"timeout_ms"`        // null = the default
	Most      *int64   `json:"max_output_length"` // null = the default
}

type shellEnvironment struct {
	Type        string `json:"type"`
	ContainerID string `json:"container_id"`
}

// shellCallOutput is the item with the result of a [shellCall].
type shellCallOutput struct {
	ID     string                `json:"id"`
	Type   string                `json:"type"`
	CallID string                `json:"call_id"`
	Status string                `json:"status"`
	Output []builtin.ShellOutput `json:"output"`
	Most   *int64                `json:"max_output_length"` // of the call
}

// newShellCall returns the item of a call by its arguments. Arguments of another form are shown as one command.
func newShellCall(c hostedCall, status string) shellCall {
	item := shellCall{ID: c.id, Type: "shell_call", CallID: c.callID(), Status: status, Environment: shellEnvironment{"container_reference", c.container}}
	if json.Unmarshal([]byte(c.text), &item.Action) != nil || len(item.Action.Commands) == 0 {
		item.Action = shellAction{Commands: []string{c.text}}
	}
	return item
}

// callID returns the id that joins a call of the shell and its output.
func (c hostedCall) callID() string {
	return "call_" + strings.TrimPrefix(c.id, idPrefixes["shell_call"])
}

// endShell sends the end of a call, and its output. What was not executed, or has another result, is the output of a command that failed.
func (o *hostedOutput) endShell(call hostedCall, ev event.ToolDone) {
	item := newShellCall(call, "completed")
	o.out.doneItem(call.index, item)
	ran := surface.ShellResultOf(ev).Output
	if len(ran) == 0 {
		ran = []builtin.ShellOutput{{Stderr: ev.Text, Outcome: builtin.ShellOutcome{Type: "exit", Exit: new(1)}}}
	}
	out := shellCallOutput{
		ID: idPrefixes["shell_call_output"] + strings.TrimPrefix(call.id, idPrefixes["shell_call"]), Type: "shell_call_output", CallID: item.CallID,
		Status: "in_progress", Output: []builtin.ShellOutput{}, Most: item.Action.Most,
	}
	index := o.out.addItem(out)
	out.Status, out.Output = "completed", ran
	o.out.doneItem(index, out)
}

// replayShell is replay for an item of the shell: a call or an output.
func (c *codeTool) replayShell(at string, raw json.RawMessage, turn int) ([]item.Item, error) {
	var w struct {
		Type   string          `json:"type"`
		CallID string          `json:"call_id"`
		Action shellAction     `json:"action"`
		Output json.RawMessage `json:"output"`
	}
	switch err := json.Unmarshal(raw, &w); {
	case err != nil:
		return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
	case w.CallID == "":
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no call_id", at).In(at + ".call_id")
	}
	if w.Type == "shell_call_output" {
		text, err := surface.Marshal(map[string]json.RawMessage{"output": w.Output})
		return []item.Item{item.NewResult(w.CallID, string(text), false)}, err
	}
	args := map[string]any{"commands": w.Action.Commands}
	if w.Action.TimeoutMS != nil {
		args["timeout_ms"] = *w.Action.TimeoutMS
	}
	if w.Action.Most != nil {
		args["max_output_length"] = *w.Action.Most
	}
	text, err := surface.Marshal(args)
	call := item.NewCall(w.CallID, c.tool.Tool, string(text))
	call.Turn = turn
	return []item.Item{call}, err
}
